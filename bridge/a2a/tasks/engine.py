"""Running tasks: accepts messages, starts the agent's work, and answers requests about tasks.

The engine owns every running task, in one task group, and knows no wire format. All state that outlives the process is
in the store. A running engine is the only writer of its store, or one of several replicas: then the layer
`a2a/layers/replicated.py` is around it. Only one replica at a time writes to a task.

Spec: A2A 1.0 sections 3.1 (operations), 3.3.1 (idempotency), 3.4 (contexts and tasks), 13.1 (scope).
"""

# Two machines for each task
# ==========================
#
# Two state machines run for each task. The first is A2A's: the states of `life.py`, where `apply_event` says which
# event may follow. The second is the work: `LiveTask.running`, which is a `RunningWork` or None. Together they give
# these situations:
#
#   working     running, SUBMITTED or WORKING   a message is held for the work, or refused
#   listening   running.hearing is set          a message goes to the work, which asked and did not return
#   winding up  running, state in SETTLED       the work has reported its outcome and has not returned yet; an answer
#                                               waits until it has
#   waiting     not running, INTERRUPTED        a message starts new work
#   ended       not running, ENDED              nothing follows
#   left        not running, any state but      the process stops, and the next process resumes the task
#               ENDED
#
# Four parties move a task:
#
# 1) A client's message, by `Intake`: it creates a task, starts work on a waiting one, or goes to running work.
# 2) The work, by its `Job`: each call of `status` or `artifact` is one event.
# 3) This module, by `TaskRegistry.conclude`: it ends a task that was canceled, whose work returned without an outcome,
#    or that nobody can resume after a restart.
# 4) The registry: it ends a task that nobody answered in time. It also ends a task whose event could not be stored,
#    once the store can write again.
#
# Orders of events
# ----------------
#
# - The work ends the task, and a cancellation comes later: the first ended state wins, and the cancellation is refused
#   with TASK_NOT_CANCELABLE.
# - A cancellation comes first: the work gets `cancel_grace_seconds` to wind up. What it reports in that time counts.
#   Otherwise the task becomes CANCELED, and `_emit` drops every later event of the work.
# - The work returns: `_run` clears `running`, then ends a task that has no outcome, then calls `finish`.
# - The process stops: `drain` refuses new messages, lets the work go on, and cancels it when the time is up. Work
#   that listens does not delay the drain. Tasks that the next process can resume are left; all others become FAILED.
# - The process starts: `Recovery` is done before any message comes in. Each unfinished task is resumed, goes on
#   waiting, or becomes FAILED.
#
# Several replicas on one store
# -----------------------------
#
# - Work begins once its message is stored: only then it is certain that no other replica has begun it, too.
# - Work that returns with a question releases its task. The answer may then come to any replica. Work that stays
#   (`Job.stay`) keeps its task: other replicas pass the answer to this replica. If this replica dies, the task is lost.
# - A replica is gone: another replica adopts its tasks, by the rules of `Recovery`.
# - A replica was taken for dead, or was too late: its work is *abandoned*, that is, cancelled and unable to add events.
#   The task stays in memory for its waiters and watchers, and follows the events that other replicas store.
# - The process stops: tasks that another replica can resume are handed over at once.
#
# What breaks without these rules
# -------------------------------
#
# - There is no await between reading a task's state and adding the event that follows from the state. After an await,
#   another party may have ended the task; `accept` then raises IllegalTransitionError. Only `_emit` catches that error:
#   from `_run` it would end the task group, and all tasks with it. In `Intake`, such an await would let two messages
#   start work on one task.
# - `_run` does not await after the work. Otherwise `cancel` could find a WORKING task without work, and end it as
#   CANCELED although `_run` knows another outcome.
# - A party that has awaited asks the registry for the task again. A task leaves memory when nobody uses it, and the
#   registry may have a second `LiveTask` of the same id by now: two writers would give out the same sequence numbers.
# - `drain` sets `_closing` before anything else. Otherwise new work would use up the time that is left for running
#   work.
# - `_run` adds no event to a task that has a `failure`: the store lacks an event and would refuse the next. The
#   registry ends such a task, from its last stored state.
# - Abandoned work adds nothing, even if its task is at rest. Otherwise the store could take its event for a claim.

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.to_thread

from bridge import trace
from bridge.a2a.model.errors import (
    cannot_store,
    task_has_ended,
    task_not_cancelable,
    temporarily_unavailable,
)
from bridge.a2a.model.life import (
    ENDED,
    INTERRUPTED,
    SETTLED,
    IdsAndClock,
    IllegalTransitionError,
    with_history,
    with_note,
)
from bridge.a2a.model.objects import (
    NO_CONFIGURATION,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from bridge.a2a.model.operators import (
    CANCELED_BY,
)
from bridge.a2a.model.timeline import MOMENTS, TIMELINE_URI, MomentKind
from bridge.a2a.tasks.agent import (
    Agent,
    CancelAtPeer,
    Commit,
    Job,
    PlannedWork,
    ReservedWork,
    RunningWork,
    Turn,
)
from bridge.a2a.tasks.callers import CallContext, pass_gate
from bridge.a2a.tasks.draft import DraftTask
from bridge.a2a.tasks.idempotency import MessageBook
from bridge.a2a.tasks.intake import AcceptedMessage, EngineLimits, Intake
from bridge.a2a.tasks.live import LiveTask, refused_commit
from bridge.a2a.tasks.moments import MomentLines, line_of
from bridge.a2a.tasks.recovery import Recovery
from bridge.a2a.tasks.session_owners import SessionOwnership
from bridge.a2a.tasks.task_listing import (
    HEAVY_CONTAINERS,
    bounded,
    containers_in,
    listed_task,
    query_from,
    response_from,
)
from bridge.a2a.tasks.task_registry import TaskRegistry
from bridge.a2a.tasks.watcher import Watcher
from bridge.a2a.tasks.webhooks import Webhooks
from bridge.errors import PeerError, StoreConflictError, StoreError
from bridge.store.contract import Store
from bridge.store.records import StoredTask
from bridge.store.retention import Retention, evict_periodically
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)


_STORED_SECONDS: Final = 2.0
"""How long a stream waits for its message to be stored before it begins. Clients give up a stream that is silent for 5
s, and an unreachable database may take longer."""
_STOPPED: Final = "The bridge was stopped while this task was running"
_BROKE: Final = "The bridge failed while it worked on this task; its log says why"
_SILENT: Final = "The work on this task ended without a result"
_CANCELED: Final = "Canceled on request"


class Engine:
    """The tasks of one agent. Enter it to run; on exit the running tasks are drained, then stopped."""

    def __init__(
        self,
        agent: Agent,
        store: Store,
        ids: IdsAndClock,
        limits: EngineLimits,
        retention: Retention | None = None,
        webhooks: Webhooks | None = None,
    ) -> None:
        """Without `webhooks`, no push notifications are sent."""
        self._agent = agent
        self._store = store
        self._ids = ids
        self.limits = limits
        """May be replaced at any time. The limits for repeated messages stay those of the start."""
        self.webhooks = webhooks
        self._retention = retention
        self.messages = MessageBook(
            store, ids, self.limits.requests.repeat_seconds, self.limits.requests.repeat_answered_seconds
        )
        self._closing = False
        self._idle = anyio.Event()
        self.registry = TaskRegistry(
            store,
            ids,
            self.limits.store_pace,
            self._look_whether_idle,
            moments_most=self.limits.requests.timeline_moments,
        )
        self._is_shared = store.replicas is not None
        self.sessions = None if store.replicas is None else SessionOwnership(store.replicas)
        """The sessions of this replica; None if no other replica uses the same store."""
        self._intake = Intake(
            agent, store, ids, self.registry, self.sessions, self.messages, self._start, webhooks
        )
        self._recovery = Recovery(agent, store, self.registry, self._start)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start, and recover the tasks of the last process, unless other replicas use the same store: then
        `Replicated.start` does that.

        Raises:
            StoreError: a task that cannot be resumed could not be ended in the store.
        """
        async with AsyncExitStack() as stack:
            self._group = await stack.enter_async_context(anyio.create_task_group())
            self.registry.start(self._group)
            try:
                if not self._is_shared:
                    await self._recovery.recover()
            except BaseException:
                self._group.cancel_scope.cancel()
                raise
            self._stack = stack.pop_all()
        if self._retention is not None:
            self._group.start_soon(evict_periodically, self._store, self._retention, self._ids.now_ms)
        self._group.start_soon(self.registry.end_unanswered, self.limits.run.input_timeout_seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.drain(self.limits.run.drain_seconds if exc is None else 0)
        self._group.cancel_scope.cancel()
        await self._stack.aclose()

    @property
    def ready(self) -> bool:
        """Whether the engine accepts new messages."""
        return not self._closing and self._store.failure is None

    @property
    def store_failure(self) -> str | None:
        """Why the store cannot write; None while it can."""
        return self._store.failure

    @property
    def running(self) -> int:
        """The number of tasks with running work."""
        return sum(live.running is not None for live in self.registry)

    def running_by_state(self) -> Mapping[TaskState, int]:
        """How many tasks with running work are in each state."""
        return Counter(
            live.state or TaskState.SUBMITTED for live in self.registry if live.running is not None
        )

    async def waiting_in(self, state: TaskState) -> Mapping[str, int]:
        """The ids of the tasks in the store that wait for their clients in this state, each with the time at which its
        wait began, in milliseconds since the epoch.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self._store.waiting({state})

    # What clients ask

    async def send(self, request: SendMessageRequest, caller: CallContext) -> Task | Message:
        """Accept a message, and answer with its task or with the Message of brief work.

        By default the answer comes once the task has ended or waits (section 3.2.2).

        Raises:
            A2AError: the message is refused.
        """
        accepted = await self.take(request, caller, watch=False)
        return await self.answer_to(request, accepted, caller.patience_seconds)

    async def answer_to(
        self, request: SendMessageRequest, accepted: AcceptedMessage, patience_seconds: float | None = None
    ) -> Task | Message:
        """The answer to a message that was accepted. It waits at most `patience_seconds` until its task has settled.

        Raises:
            A2AError: UNAVAILABLE, the message could not be stored.
            StoreConflictError: another replica was first. Try again.
        """
        if isinstance(accepted.live, DraftTask):
            if (reply := await accepted.live.reply()) is not None:
                return reply
            if self._is_shared and await accepted.live.is_forestalled():
                raise StoreConflictError("another replica made a task of the same message")
        configuration = request.configuration or NO_CONFIGURATION
        is_left = self._closing and accepted.live.running is None
        settled = not (configuration.return_immediately or is_left or accepted.is_held)
        task: Task | None = None
        if settled and patience_seconds is not None:
            with anyio.move_on_after(patience_seconds):
                task = await self.registry.reached(accepted.live, accepted.seq, settled=True)
            settled = False
        task = task or await self.registry.reached(accepted.live, accepted.seq, settled=settled)
        task = with_note(with_history(task, configuration.history_length), self._metadata_of(accepted.live))
        return with_note(task, accepted.note)

    def written(self, request: SendMessageRequest, caller: CallContext) -> None:
        """Note that the answer to a message was written in full to its client."""
        self.messages.written(caller.principal.name, request.message.message_id)

    async def stream(self, request: SendMessageRequest, caller: CallContext) -> Watcher:
        """Accept a message and watch its task. The caller closes the watcher.

        Raises:
            A2AError: the message is refused.
        """
        accepted = await self.take(request, caller, watch=True)
        assert accepted.watcher is not None
        if not isinstance(accepted.live, DraftTask):
            await self._begun(accepted, accepted.watcher)
        return accepted.watcher

    async def _begun(self, accepted: AcceptedMessage, watcher: Watcher) -> None:
        """Wait a moment until a message is stored. The stream has no event before, and once a stream has begun, it
        cannot report that the message was not stored.

        Raises:
            A2AError: UNAVAILABLE, the message could not be stored.
        """
        try:
            with anyio.move_on_after(_STORED_SECONDS):
                await accepted.stored
        except StoreConflictError:
            return  # the watchers of the task get the error
        except StoreError as exc:
            watcher.close()
            raise cannot_store(str(exc)) from exc
        except BaseException:
            watcher.close()
            raise

    async def get(self, task_id: str, history_length: int | None, caller: CallContext) -> Task:
        """The visible state of a task.

        Raises:
            A2AError: TASK_NOT_FOUND, also for another principal's task.
        """
        live = await self._own(task_id, caller)
        task = with_history(await self.registry.visible_state(live), history_length)
        task = with_note(task, self._metadata_of(live))
        task = with_note(task, live.progress if caller.comes_late else None)
        return with_note(task, _moments_for(caller, live.moments))

    def _metadata_of(self, live: LiveTask) -> JsonObject | None:
        return self._agent.metadata_of(live.kept) if live.kept else None

    async def list(self, request: ListTasksRequest, caller: CallContext) -> ListTasksResponse:
        """One page of the caller's tasks, the newest status first.

        Raises:
            A2AError: INVALID_PARAMS for another caller's page token, or a missing contextId.
        """
        return await self.page(request, caller, caller.principal.name)

    async def page(
        self,
        request: ListTasksRequest,
        caller: CallContext,
        owner: str | None,
        shown: Callable[[Task, str], Task] | None = None,
    ) -> ListTasksResponse:
        """One page of the tasks of an owner; None is all owners. `shown` gets each task with the name of its owner, and
        returns what the caller sees of the task.

        Raises:
            A2AError: see `list`.
        """
        listing = bounded(await self._store.list(replace(query_from(request, caller.principal), owner=owner)))
        tasks = []
        for row in listing.tasks:
            note = self.registry.progress_of(row.task_id) if caller.comes_late else None
            note = note or (self._agent.metadata_of(row.private) if row.private else None)
            read = partial(_listed_for, caller, row, note, shown)
            is_heavy = containers_in(row) > HEAVY_CONTAINERS
            tasks.append(await anyio.to_thread.run_sync(read) if is_heavy else read())
        return response_from(listing, tasks, request)

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """Cancel a task. The first terminal state wins.

        Raises:
            A2AError: TASK_NOT_FOUND, or TASK_NOT_CANCELABLE when the task ended in another way.
        """
        live = await self._own(task_id, caller)
        self._intake.tell_of(live)
        if (hop := trace.hop.get()) is not None and hop.is_gated:
            await pass_gate(hop)
            live = await self._own(live.id, caller)  # the task may have left memory
        if live.task.status.state in ENDED:
            raise task_not_cancelable(await self.registry.reached(live, live.next_seq - 1, settled=True))
        self.registry.require_here(live)
        self._note(live, MomentKind.CANCEL, by=caller.asker)
        running = live.running
        if running is not None and running.cancel_at_peer is not None:
            return await self._canceled_by_peer(live, running.cancel_at_peer, caller)
        if running is None and (cancel := self._agent.canceling(live.kept)) is not None:
            return await self._canceled_by_peer(
                live, partial(self._cancel_at_rest, live, cancel, caller), caller
            )
        if running is not None:
            running.canceled, running.canceled_by = True, caller.acting
            running.scope.cancel()
            with anyio.move_on_after(self.limits.run.cancel_grace_seconds):
                await running.wait()
            live = await self._own(live.id, caller)  # the task may have left memory with its work
            self.registry.require_here(live)
        if live.task.status.state not in ENDED:
            canceled = self.registry.conclude(
                live, TaskState.CANCELED, _CANCELED, _canceled_by(caller.acting)
            )
            await self.registry.unless_overtaken(canceled)
        task = await self.registry.reached(live, live.next_seq - 1, settled=True)
        if task.status.state is not TaskState.CANCELED:
            raise task_not_cancelable(task)
        return with_note(with_history(task, None), self._metadata_of(live))

    async def _canceled_by_peer(self, live: LiveTask, cancel: CancelAtPeer, caller: CallContext) -> Task:
        """The task after its peer has canceled it, or is about to.

        Raises:
            A2AError: TASK_NOT_CANCELABLE, the peer goes on or has ended otherwise; UNAVAILABLE, it cannot be asked.
        """
        try:
            is_accepted = await cancel()
        except PeerError as exc:
            words = f"The task was not canceled, since its agent cannot be asked: {exc}"
            raise temporarily_unavailable(words) from exc
        live = await self._own(live.id, caller)  # the task may have left memory
        task = await self.registry.reached(live, live.next_seq - 1, settled=False)
        state = task.status.state
        if state is not TaskState.CANCELED and (state in ENDED or not is_accepted):
            raise task_not_cancelable(task)
        return with_note(with_history(task, None), self._metadata_of(live))

    async def _cancel_at_rest(
        self, live: LiveTask, cancel: Callable[[Job], Awaitable[bool]], caller: CallContext
    ) -> bool:
        """Cancel a waiting task at its peer, as work on the task.

        Raises:
            PeerError: the peer cannot be asked.
        """
        accepted: list[bool] = []
        faults: list[PeerError] = []

        async def work(job: Job) -> None:
            try:
                accepted.append(await cancel(job))
            except PeerError as exc:
                faults.append(exc)

        message = next(message for message in reversed(live.task.history or ()) if message.role is Role.USER)
        turn = Turn(caller.principal, message, NO_CONFIGURATION, {}, frozenset(), live.task, live.kept)
        live.running = running = RunningWork(began_in=trace.hop.get())
        self._start(live, running, turn, Commit(done=True), work)
        await running.wait()
        if faults:
            raise faults[0]
        return any(accepted)

    async def subscribe(self, task_id: str, caller: CallContext) -> Watcher:
        """Watch a task from its current state. The caller closes the watcher.

        Raises:
            A2AError: TASK_NOT_FOUND, or UNSUPPORTED_OPERATION if the task has ended, unless the caller `comes_late`.
        """
        live = await self._own(task_id, caller)
        task = await self.registry.visible_state(live)
        if task.status.state in ENDED and not caller.comes_late:
            raise task_has_ended(task)
        live = self.registry.attached(live)
        note = live.progress if caller.comes_late else None
        return live.watch(self.limits.watch_events, note=note)

    async def id_of(self, task_id: str, caller: CallContext) -> str:
        """The id of the caller's task, from its id or the caller's name for it.

        Raises:
            A2AError: TASK_NOT_FOUND, also for another principal's task.
        """
        live = await self._own(task_id, caller)
        if (hop := trace.hop.get()) is not None:
            hop.task_id, hop.context_id = live.id, live.origin.context_id
        return live.id

    def new_id(self) -> str:
        """A fresh id, for a message that has none."""
        return self._ids.new()

    async def is_named(self, task_id: str, caller: CallContext) -> bool:
        """Whether this id is a name that the caller gave to a task."""
        if self.registry.is_at_hand(task_id):
            return False
        return await self._intake.task_named(task_id, caller.principal) is not None

    def _note(self, live: LiveTask, kind: MomentKind, *, by: str = "", peer: str = "") -> None:
        """Add a moment to the timeline of a task."""
        live.note(line_of(kind, self._ids.now_ms(), by=by, peer=peer, trace=trace.context.get().trace_id))

    async def find(self, task_id: str) -> LiveTask | None:
        """The task with this id, whoever owns it."""
        return await self.registry.find(task_id)

    def tell_of_refusal(self, live: LiveTask) -> None:
        """See `Intake.tell_of_refusal`."""
        self._intake.tell_of_refusal(live)

    async def _own(self, task_id: str, caller: CallContext) -> LiveTask:
        """The caller's task, by its id or, if the caller names tasks, by its name."""
        if caller.names_tasks:
            task_id = await self._intake.task_named(task_id, caller.principal) or task_id
        return await self.registry.require_owned(task_id, caller.principal)

    def adopt(self, task: StoredTask) -> None:
        """Continue a task of a replica that is gone. A stopping replica leaves the task to the next one."""
        if not self._closing:
            self._recovery.adopt(task)

    async def go_on(self, task_id: str, work: PlannedWork) -> None:
        """See `Recovery.go_on`. A stopping process starts nothing."""
        if not self._closing:
            await self._recovery.go_on(task_id, work)

    async def take(
        self, request: SendMessageRequest, caller: CallContext, *, watch: bool, only: str | None = None
    ) -> AcceptedMessage:
        """See `Intake.take`."""
        return await self._intake.take(
            request, caller, self.limits, self._require_running, watch=watch, only=only
        )

    # Doing the work

    def _start(
        self, live: LiveTask, running: RunningWork, turn: Turn, stored: Commit, work: PlannedWork
    ) -> None:
        job = Job(
            turn,
            self.registry.events_of(live),
            partial(self._emit, live, running),
            stored,
            running,
            partial(self._is_left, live, running),
            lambda peer: self._note(live, MomentKind.SENT, peer=peer),
            lambda: isinstance(live, DraftTask) and live.is_open,
        )
        self._group.start_soon(self._run, live, running, job, work)

    async def _run(self, live: LiveTask, running: RunningWork, job: Job, work: PlannedWork) -> None:
        broke = False
        with running.scope:
            try:
                if self._is_shared:
                    await _stored_or_dropped(job, work)
                await work(job)
            except StoreError as exc:
                level = logging.INFO if running.abandoned else logging.WARNING
                logger.log(level, "task %s is given up: %s", live.id, exc)
            except Exception:
                logger.exception("the work on task %s failed", live.id)
                broke = True
        if running.abandoned:
            running.finish()
            return self.registry.changed(live)
        live.running = None
        if live.task.status.state not in SETTLED and live.failure is None:
            if self._is_left(live, running):
                live.leave()
            elif running.canceled:
                by = _canceled_by(running.canceled_by)
                self.registry.conclude(live, TaskState.CANCELED, _CANCELED, by)
            elif self._closing:
                self.registry.conclude(live, TaskState.FAILED, _STOPPED)
            else:
                self.registry.conclude(live, TaskState.FAILED, _BROKE if broke else _SILENT)
        if not (running.stays and live.state in INTERRUPTED):
            self.registry.give_back(live, is_left=self._is_left(live, running))
        running.finish()
        self.registry.changed(live)
        return None

    def _emit(
        self, live: LiveTask, running: RunningWork, event: StreamResponse, keep: bytes | None
    ) -> Commit:
        if running.abandoned:
            return refused_commit(live.id)
        try:
            return live.accept(event, keep=keep)
        except IllegalTransitionError as exc:
            logger.info("a late event was dropped: %s", exc)
            return Commit(done=True)

    def _is_left(self, live: LiveTask, running: RunningWork) -> bool:
        """Whether this process stops or may not continue the task, and another process can resume it."""
        waits = live.state in INTERRUPTED
        is_ending = self._closing and self._store.lasts and not running.canceled
        return (is_ending or running.abandoned) and (running.outlives or waits)

    def _look_whether_idle(self) -> None:
        """Tell `drain` once no work goes on but that which waits for a client."""
        if self._closing and not any(_is_at_work(live) for live in self.registry):
            self._idle.set()

    # Starting and stopping

    async def drain(self, seconds: float) -> None:
        """Refuse new messages, let running work go on for `seconds`, then stop it. Streams end with their tasks."""
        self._closing = True
        self._end_waiting_streams()
        if self._is_shared:
            self._leave_to_others()
        self._look_whether_idle()
        if not self._idle.is_set():
            with anyio.move_on_after(seconds):
                await self._idle.wait()
        await self.stop()

    async def stop(self) -> None:
        """Stop every running task now."""
        for live in self.registry:
            if live.running is not None:
                live.running.scope.cancel()
        with anyio.move_on_after(self.limits.run.cancel_grace_seconds):
            for live in self.registry:
                if live.running is not None:
                    await live.running.wait()
        self._end_waiting_streams()

    def _leave_to_others(self) -> None:
        """Hand over the tasks that other replicas can resume, and end the streams and waits of tasks at other
        replicas."""
        for live in self.registry:
            if live.running is not None and self._is_left(live, live.running):
                live.running.scope.cancel()
            elif not live.is_mine:
                live.leave()

    def _end_waiting_streams(self) -> None:
        """End the streams of tasks that wait for their clients. No event will come, so the stop need not wait for
        them."""
        for live in self.registry:
            if live.running is None and live.task.status.state in INTERRUPTED:
                live.end_streams()

    def _require_running(self) -> None:
        if self._closing:
            raise temporarily_unavailable("The bridge is stopping")
        if self._store.failure is not None:
            raise cannot_store(self._store.failure)


def _is_at_work(live: LiveTask) -> bool:
    """Whether work goes on for a task. Work that listens while its task waits for the client does not count."""
    running = live.running
    return running is not None and not (running.hearing and live.state in INTERRUPTED)


def _canceled_by(operator: str) -> JsonObject | None:
    return {CANCELED_BY: operator} if operator else None


def _listed_for(
    caller: CallContext, row: StoredTask, note: JsonObject | None, shown: Callable[[Task, str], Task] | None
) -> Task:
    task, moments = listed_task(row)
    task = with_note(with_note(task, note), _moments_for(caller, moments))
    return task if shown is None else shown(task, row.origin.owner)


def _moments_for(caller: CallContext, moments: MomentLines) -> JsonObject | None:
    """The timeline of a task as metadata; None unless the caller asks for timelines."""
    return {MOMENTS: moments.timeline.to_object()} if TIMELINE_URI in caller.extensions else None


async def _stored_or_dropped(job: Job, work: PlannedWork) -> None:
    """Wait until a job's message is stored. If it is not stored, the work is dropped."""
    try:
        await job.accepted
    except BaseException:
        if isinstance(work, ReservedWork):
            work.drop()
        raise
