"""Accepts messages: decides whether a message repeats an earlier one, finds its task, and plans its work.

A message creates a task, answers a task that asks, or is held for the work of a working task.

Spec: A2A 1.0 sections 3.1.1, 3.3.1 (idempotency), 3.4 (contexts and tasks).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bridge import trace
from bridge.a2a.model.errors import (
    OVERLOADED,
    A2AError,
    Violation,
    invalid_params,
    task_history_is_full,
    task_is_at_work,
    too_many_open_tasks,
)
from bridge.a2a.model.life import CLOSES_STREAM, INTERRUPTED, IdsAndClock
from bridge.a2a.model.objects import (
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    made,
    timestamp,
)
from bridge.a2a.model.task_names import beginning_of
from bridge.a2a.model.timeline import MomentKind
from bridge.a2a.tasks.addressing import Addressing
from bridge.a2a.tasks.agent import (
    Agent,
    Commit,
    PlannedWork,
    RunningWork,
    StandingWork,
    Turn,
    WorkSession,
)
from bridge.a2a.tasks.callers import CallContext, pass_gate
from bridge.a2a.tasks.draft import BriefWork, DraftTask
from bridge.a2a.tasks.idempotency import REPEATED, Earlier, MessageBook, Repeat
from bridge.a2a.tasks.live import LiveTask
from bridge.a2a.tasks.moments import line_of
from bridge.a2a.tasks.session_owners import SessionHold, SessionOwnership
from bridge.a2a.tasks.task_registry import HeldElsewhereError, StorePace, TaskRegistry
from bridge.a2a.tasks.watcher import Watcher
from bridge.a2a.tasks.webhooks import AskedWebhook, Webhooks
from bridge.concurrency import Signal, done_slowly, one_at_a_time, with_slow_work
from bridge.errors import BusyError, StoreConflictError, StoreError
from bridge.frozen import frozen
from bridge.identity.callers.principals import Principal
from bridge.settings import RequestSettings, RunSettings
from bridge.store.contract import Store
from bridge.store.outbox import Webhook
from bridge.store.records import MessageKey
from bridge.text.jsonvalues import JsonObject
from bridge.trace import NO_TRACE, Hop


@frozen
class AcceptedMessage:
    """A message that was accepted."""

    live: LiveTask
    seq: int
    """The number of the last event that the message caused."""
    watcher: Watcher | None
    stored: Commit
    """The commit of the message."""
    is_held: bool = False
    """Whether there is no outcome to wait for: the message is held for running work, or began standing work."""
    note: JsonObject | None = None
    """Metadata to add to the answer."""


@frozen
class _Sent:
    """A message that goes to a task or makes a task."""

    turn: Turn
    key: MessageKey
    size_bytes: int
    replaces: str | None
    """The task that an earlier message of this id went to."""
    webhook: AskedWebhook | None


StartWork = Callable[[LiveTask, RunningWork, Turn, Commit, PlannedWork], None]
"""Starts the work on a task."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The engine's times and bounds."""

    run: RunSettings
    requests: RequestSettings
    watch_events: int
    """The most events that may wait for a reader. A slower reader is cut off."""
    store_pace: StorePace = field(default_factory=StorePace)
    """How often the store is checked."""


class Intake:
    """Accepts messages for an engine."""

    def __init__(
        self,
        agent: Agent,
        store: Store,
        ids: IdsAndClock,
        tasks: TaskRegistry,
        sessions: SessionOwnership | None,
        book: MessageBook,
        start: StartWork,
        webhooks: Webhooks | None,
    ) -> None:
        """`sessions` are the sessions of this replica; None if no other replica uses the same store."""
        self._agent = agent
        self._store = store
        self._ids = ids
        self._tasks = tasks
        self._sessions = sessions
        self._book = book
        self._addressing = Addressing(agent, store, tasks, book)
        self._start = start
        self._webhooks = webhooks
        self._is_shared = store.replicas is not None
        self._taking: dict[tuple[str, str], Signal] = {}

    async def take(
        self,
        request: SendMessageRequest,
        caller: CallContext,
        limits: EngineLimits,
        require_running: Callable[[], None],
        *,
        watch: bool,
        only: str | None = None,
    ) -> AcceptedMessage:
        """Accept a message. `require_running` is called before any new work, and raises A2AError to refuse it.

        With `only`, the message is for this task. If other replicas use the same store, the message is stored on
        return.

        Raises:
            A2AError: the message is refused.
            HeldElsewhereError: another replica has to accept the message, or the message goes to another task than
                `only`.
            StoreConflictError: another replica was first. Try again.
        """
        message, principal = request.message, caller.principal
        if message.role is not Role.USER:
            violation = Violation("message.role", f"a client's message has the role {Role.USER}")
            raise invalid_params(violation, names=(Role.USER,))
        name = message.task_id if caller.names_tasks else None
        began_by = message.message_id if name is None else beginning_of(name)
        async with one_at_a_time(self._taking, (principal.name, began_by)):
            take_in = partial(self._take_in, request, caller, limits, require_running, watch=watch, only=only)
            try:
                accepted = await with_slow_work(take_in)
            except BusyError as exc:
                raise _overloaded(exc) from exc
            if self._is_shared:
                await _stored_or_closed(accepted)
            return accepted

    async def _take_in(
        self,
        request: SendMessageRequest,
        caller: CallContext,
        limits: EngineLimits,
        require_running: Callable[[], None],
        *,
        watch: bool,
        only: str | None,
    ) -> AcceptedMessage:
        message, principal = request.message, caller.principal
        name = message.task_id if caller.names_tasks else None
        began_by = message.message_id if name is None else beginning_of(name)
        content = _without_configuration(request)
        key = MessageKey(began_by, hashlib.sha256(content).digest(), self._ids.now_ms())
        # Callers without a name of their own would get each other's tasks, so they get a task only by its id. If
        # clients name tasks, messages have no ids. Then the same content is a new message.
        knows = name is None and (principal.may_list_all or message.task_id is not None)
        earlier = await self._book.earlier(principal.name, key) if knows or self._is_shared else Earlier()
        if knows and earlier.repeat is not None:
            return await self._join(earlier.repeat, principal, request, limits, watch=watch)
        require_running()
        webhook = await self._webhook_asked(request, caller)
        if self._is_shared:
            await self._tasks.open.refresh(principal.name, principal.open_tasks or limits.requests.open_tasks)
        before = earlier.task_id
        if name is not None:
            request = await self._addressing.by_its_id(name, request, principal)
            if request.message.task_id is not None and self._is_shared:
                before = await self._book.task_of(principal.name, message.message_id)
        if (hop := trace.hop.get()) is not None and hop.is_gated:
            await self._before_start(hop, request, caller)
        turn, live, hold = await self._placed(request, caller)
        # No await from here on: otherwise another request could use up the free room, or start work on the task.
        try:
            if live is not None and name is not None:
                turn = self._with_new_id(turn, live.task)
                key = replace(key, message_id=turn.message.message_id)
                before = before if turn.message.message_id == message.message_id else None
            self._require_room(live, turn, len(content), limits)
            if only is not None and (live is None or live.id != only):
                raise HeldElsewhereError(only, None)
            if live is not None:
                if self._is_shared and self._tasks.is_elsewhere(live):
                    self.tell_of(live, is_answer=live.state in INTERRUPTED)
                self._tasks.require_here(live)
            sent = _Sent(turn, key, len(content), before, webhook)
            if live is not None and live.running is not None:
                return self._give_to_running(live, live.running, sent, limits, watch=watch)
            return self._begin(live, sent, limits, name=name, watch=watch, hold=hold)
        except BaseException:
            if hold is not None:
                hold.release()
            raise

    def tell_of(self, live: LiveTask, *, is_answer: bool = False) -> None:
        """Tell the hop of the request, if there is one, its task and work. An answer continues the trace of the turn
        that asked."""
        if (hop := trace.hop.get()) is not None:
            hop.is_answer = is_answer
            hop.task_id, hop.context_id = live.id, live.origin.context_id
            hop.skill, hop.peer = self._work_of(live)
        if is_answer:
            trace.go_on(self._agent.work_kept(live.kept).trace)

    async def _before_start(self, hop: Hop, request: SendMessageRequest, caller: CallContext) -> None:
        """Pass the audit's gate, with the task and the work that the message means. The message is placed after this
        wait: meanwhile the task may have moved.

        Raises:
            A2AError: the message is refused, or the gate is closed.
        """
        turn, live = await self._addressing.of_message(request, caller)
        if live is not None:
            hop.task_id, hop.context_id = live.id, live.origin.context_id
        is_at_work = live is not None and live.running is not None
        if live is not None and is_at_work:
            hop.skill, hop.peer = self._work_of(live)
        else:
            try:
                hop.skill, hop.peer, _ = await done_slowly(partial(self._agent.work_meant, turn))
            except BusyError as exc:
                raise _overloaded(exc) from exc
        await pass_gate(hop)
        hop.forget()  # the message tells its work again when it starts

    def tell_of_refusal(self, live: LiveTask) -> None:
        """Tell the hop of a refused request, if there is one, its task and skill. Nothing goes to the peer."""
        self.tell_of(live)
        if (hop := trace.hop.get()) is not None:
            hop.peer = ""

    def _work_of(self, live: LiveTask) -> tuple[str, str]:
        """The skill and the peer of a task's work: from its request, or from the kept bytes."""
        began_in = None if live.running is None else live.running.began_in
        if began_in is not None and began_in.skill:
            return began_in.skill, began_in.peer
        skill, peer, _ = self._agent.work_kept(live.kept)
        return skill, peer

    async def _webhook_asked(self, request: SendMessageRequest, caller: CallContext) -> AskedWebhook | None:
        configuration = request.configuration
        config = None if configuration is None else configuration.task_push_notification_config
        if config is None or self._webhooks is None:
            return None
        extensions = caller.extensions & self._agent.extensions
        return await self._webhooks.requested(
            config, caller.principal.name, request.message.task_id, extensions
        )

    def _webhook_of(self, live: LiveTask, webhook: AskedWebhook | None) -> Webhook | None:
        if webhook is None or self._webhooks is None:
            return None
        return self._webhooks.made_of_message(webhook, live.id, live.origin.owner)

    async def _placed(
        self, request: SendMessageRequest, caller: CallContext
    ) -> tuple[Turn, LiveTask | None, SessionHold | None]:
        """The turn for a message; its task, if it has one; and a hold on the session of its work, if it needs one.

        Raises:
            HeldElsewhereError: another replica has the session.
        """
        new_context = self._ids.new() if self._sessions is not None else None
        while True:
            turn, live = await self._addressing.of_message(request, caller)
            if self._sessions is None or (live is not None and self._addressing.has_work(live)):
                return turn, live, None
            context_id = live.origin.context_id if live else turn.message.context_id or new_context
            assert context_id is not None
            session = self._agent.session_of(turn, context_id)
            if session is None:
                return turn, live, None
            if (hold := self._sessions.hold(session)) is not None:
                message = turn.message.changed(context_id=context_id)
                return replace(turn, message=message, lost_session=hold.is_lost), live, hold
            await self._claim(self._sessions, session, live)

    async def _claim(self, sessions: SessionOwnership, session: WorkSession, live: LiveTask | None) -> None:
        try:
            await sessions.claim(session, None if live is None else live.id)
        except HeldElsewhereError:
            if live is not None and self._store.replicas is not None:  # its release may not have been stored
                self._store.replicas.release(live.id, live.next_seq - 1)
            raise

    async def task_named(self, name: str, principal: Principal) -> str | None:
        """See `Addressing.task_named`."""
        return await self._addressing.task_named(name, principal)

    def _with_new_id(self, turn: Turn, task: Task) -> Turn:
        """The turn. If its task already has a message with the same id, the message of the turn gets a new id."""
        if all(message.message_id != turn.message.message_id for message in task.history or ()):
            return turn
        return replace(turn, message=turn.message.changed(message_id=self._ids.new()))

    def _require_room(self, live: LiveTask | None, turn: Turn, turn_bytes: int, limits: EngineLimits) -> None:
        if live is None:
            most = turn.principal.open_tasks or limits.requests.open_tasks
            if self._tasks.open.of(turn.principal.name) >= most:
                raise too_many_open_tasks(most)
            return
        if len(live.task.history or ()) >= limits.requests.history_messages:
            raise task_history_is_full(live.task)
        before_bytes = limits.requests.history_bytes - turn_bytes
        # The stored bytes of the task are an upper bound of its history, which is slow to measure.
        if live.weight_bytes > before_bytes and live.history_bytes > before_bytes:
            raise task_history_is_full(live.task)

    async def _join(
        self,
        repeat: Repeat,
        principal: Principal,
        request: SendMessageRequest,
        limits: EngineLimits,
        *,
        watch: bool,
    ) -> AcceptedMessage:
        """Answer a repeat with the task of the earlier message."""
        live = await self._tasks.require_owned(repeat.task_id, principal)
        await self._tasks.reached(live, live.next_seq - 1, settled=False)
        live = self._tasks.attached(live)
        length = request.configuration.history_length if request.configuration else None
        at_ms = repeat.answered_ms
        note: JsonObject | None = None if at_ms is None else {REPEATED: {"answeredAt": timestamp(at_ms)}}
        # The stream closes in the same states as the repeated stream: nobody would answer an old question here.
        watcher = (
            live.watch(limits.watch_events, length, closed_by=CLOSES_STREAM, note=note) if watch else None
        )
        return AcceptedMessage(live, live.next_seq - 1, watcher, Commit(done=True), note=note)

    def _give_to_running(
        self,
        live: LiveTask,
        running: RunningWork,
        sent: _Sent,
        limits: EngineLimits,
        *,
        watch: bool,
    ) -> AcceptedMessage:
        """Give a message to running work: as an answer if the work listens, else as a held message."""
        if running.hearing is not None:
            hear = running.hearing(sent.turn)
            self.tell_of(live, is_answer=True)
            accepted = self._accept(live, sent, running, limits, watch=watch)
            hear(accepted.stored)
            return accepted
        if not running.hold(sent.turn, sent.size_bytes, limits.requests):
            raise task_is_at_work(live.task)
        self.tell_of(live)
        return self._accept(live, sent, running, limits, watch=watch, is_held=True)

    def _begin(
        self,
        live: LiveTask | None,
        sent: _Sent,
        limits: EngineLimits,
        *,
        name: str | None,
        watch: bool,
        hold: SessionHold | None,
    ) -> AcceptedMessage:
        """Start the agent's work on a message, in a new task or in the waiting task `live`.

        A task that its client named is never answered with a Message alone.
        """
        turn = sent.turn
        work = self._agent.plan(turn)
        is_brief = isinstance(work, BriefWork) and name is None
        is_draft = is_brief and not turn.configuration.return_immediately
        live = live or self._tasks.new(
            turn.principal.name, turn.message.context_id, name=name, is_draft=is_draft
        )
        live.running = running = RunningWork(
            began_in=trace.hop.get(), is_standing=isinstance(work, StandingWork)
        )
        if running.began_in is not None and not is_draft:
            running.began_in.task_id = live.id
        if hold is not None:
            running.release = hold.release
            hold.note_loss_told()
        accepted = self._accept(live, sent, running, limits, watch=watch)
        self._start(live, running, turn, accepted.stored, work)
        return accepted

    def _accept(
        self,
        live: LiveTask,
        sent: _Sent,
        running: RunningWork,
        limits: EngineLimits,
        *,
        watch: bool,
        is_held: bool = False,
    ) -> AcceptedMessage:
        """Make the message an event of its task.

        The message becomes the first event of a new task, or a message of the history. An answer also sets the
        task to WORKING; a held message does not.
        """
        turn, key, context_id = sent.turn, sent.key, live.origin.context_id
        message = turn.message.changed(task_id=live.id, context_id=context_id)
        webhook = self._webhook_of(live, sent.webhook)
        length = turn.configuration.history_length
        if (
            turn.task is not None or trace.context.get() is not NO_TRACE
        ):  # otherwise the first event has the same time
            live.note(_line_of_arrival(turn, key))
        if turn.task is None:
            first = _first_event(live.id, context_id, message, key)
            watcher = live.watch(limits.watch_events, length, from_next=True) if watch else None
            commit = live.accept(first, message=key, replaces=sent.replaces, webhook=webhook)
        else:
            event = made(StreamResponse, message=message)
            commit = live.accept(event, message=key, replaces=sent.replaces, webhook=webhook)
            watcher = live.watch(limits.watch_events, length, from_next=not is_held) if watch else None
            if not is_held:
                live.accept(self._tasks.events_of(live).status(TaskState.WORKING))
        note = partial(self._book.note, live.id, live.origin, key, running.work_status)
        if isinstance(live, DraftTask) and turn.task is None:
            live.when_task(note)
        else:
            note(commit)
        seq = live.next_seq - 1
        if running.is_standing and not turn.configuration.return_immediately:
            seq += 1  # the answer shows the first event of the work
        return AcceptedMessage(live, seq, watcher, commit, is_held or running.is_standing)


def _overloaded(exc: BusyError) -> A2AError:
    return A2AError(OVERLOADED, str(exc), headers={"Retry-After": "5"})


async def _stored_or_closed(accepted: AcceptedMessage) -> None:
    """Wait until a message is stored. If another replica was first, the watcher is closed.

    Raises:
        StoreConflictError: another replica was first.
    """
    try:
        await accepted.stored
    except BaseException as exc:
        if isinstance(exc, StoreError) and not isinstance(exc, StoreConflictError):
            return  # the error reaches the caller through the task
        if accepted.watcher is not None:
            accepted.watcher.close()
        raise


def _line_of_arrival(turn: Turn, key: MessageKey) -> str:
    return line_of(
        MomentKind.RECEIVED if turn.task is None else MomentKind.MESSAGE,
        key.accepted_ms,
        by=turn.acting or turn.principal.name,
        trace=trace.context.get().trace_id,
        message=key.message_id,
    )


def _first_event(task_id: str, context_id: str, message: Message, key: MessageKey) -> StreamResponse:
    status = made(TaskStatus, state=TaskState.SUBMITTED, timestamp=timestamp(key.accepted_ms))
    task = made(Task, id=task_id, context_id=context_id, status=status, history=(message,))
    return made(StreamResponse, task=task)


def _without_configuration(request: SendMessageRequest) -> bytes:
    """A request as JSON without its configuration. Its hash identifies a repeat, and its length counts as its size."""
    return made(SendMessageRequest, message=request.message, metadata=request.metadata).to_json()
