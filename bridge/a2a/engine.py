"""Running tasks: takes messages in, starts the agent's work, and answers what clients ask of a task.

It owns every task that runs, in one task group; it knows nothing of wires. All state that outlives it is in
the store. While it runs it is the only writer of its store.

Spec: A2A 1.0 sections 3.1 (operations), 3.3.1 (idempotency), 3.4 (contexts and tasks), 13.1 (scope).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio

from bridge.a2a.commit import Commit
from bridge.a2a.errors import (
    Violation,
    invalid_params,
    task_not_found,
)
from bridge.a2a.events import EventMaker, Ids
from bridge.a2a.job import Agent, Job, Turn, Work
from bridge.a2a.life import CLOSES_STREAM, ENDED, INTERRUPTED, IllegalTransitionError, with_history
from bridge.a2a.listing import query_from, response_from, shown_of, task_from
from bridge.a2a.live import DEFAULT_WATCH_EVENTS, Live, Running, Watcher
from bridge.a2a.messages import MessageBook
from bridge.a2a.models import (
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    timestamp,
)
from bridge.a2a.refusals import ended, not_cancelable, require_answerable, unavailable
from bridge.errors import StoreConflictError, StoreError
from bridge.store.records import MessageKey, Origin, Store, StoredTask
from bridge.store.retention import Retention, retain
from bridge.web import Principal

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine waits for and how much it holds."""

    cancel_grace_seconds: float = 5
    """How long work may take to wind up once it is cancelled."""
    drain_seconds: float = 10
    """How long running tasks may go on once the engine stops."""
    repeat_seconds: float = 600
    """How long the same message sent again finds its task."""
    watch_events: int = DEFAULT_WATCH_EVENTS
    retry_seconds: float = 5
    """How long to wait before a store that failed is tried again."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends, and which extensions the client activated."""

    principal: Principal
    extensions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Accepted:
    live: Live
    seq: int
    """The event that the message became."""
    watcher: Watcher | None
    stored: Commit
    """Says when the message is stored."""


_RESTARTED: Final = "The bridge restarted while this task was running, so its outcome is not known"
_STOPPED: Final = "The bridge was stopped while this task was running"
_UNSTORED: Final = "The bridge could not store what happened to this task"
_BROKE: Final = "The bridge failed while it worked on this task; its log says why"
_SILENT: Final = "The work on this task ended without a result"
_CANCELED: Final = "Canceled on request"


class Engine:
    """The tasks of one agent. Enter it to run; on exit the running tasks are drained, then stopped."""

    def __init__(
        self,
        agent: Agent,
        store: Store,
        ids: Ids,
        limits: EngineLimits | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._agent = agent
        self._store = store
        self._ids = ids
        self._limits = limits or EngineLimits()
        self._retention = retention
        self._live: dict[str, Live] = {}
        self._loading: dict[str, anyio.Event] = {}
        self._taking: dict[tuple[str, str], anyio.Event] = {}
        self._messages = MessageBook(store, self._limits.repeat_seconds)
        self._closing = False
        self._idle = anyio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start; raises StoreError when what ran before cannot be ended in the store."""
        async with AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            try:
                await self._recover()
            except BaseException:
                self._tasks.cancel_scope.cancel()
                raise
            self._stack = stack.pop_all()
        if self._retention is not None:
            self._tasks.start_soon(retain, self._store, self._retention, self._ids.now_ms)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.drain(self._limits.drain_seconds if exc is None else 0)
        self._tasks.cancel_scope.cancel()
        await self._stack.aclose()

    @property
    def ready(self) -> bool:
        """Whether new work is taken in."""
        return not self._closing and self._store.failure is None

    @property
    def running(self) -> int:
        """How many tasks are being worked on."""
        return sum(live.running is not None for live in self._live.values())

    # What clients ask

    async def send(self, request: SendMessageRequest, caller: Caller) -> Task:
        """Take a message in and answer with its task, by default once it has ended or waits (section 3.2.2).

        Raises:
            A2AError: the message is refused.
        """
        configuration = request.configuration or SendMessageConfiguration()
        accepted = await self._take(request, caller, watch=False)
        settled = not configuration.return_immediately
        task = await self._reached(accepted.live, accepted.seq, settled=settled)
        return with_history(task, configuration.history_length)

    async def stream(self, request: SendMessageRequest, caller: Caller) -> Watcher:
        """Take a message in and watch its task. The caller closes the watcher.

        Raises:
            A2AError: the message is refused.
        """
        accepted = await self._take(request, caller, watch=True)
        assert accepted.watcher is not None
        return accepted.watcher

    async def get(self, task_id: str, history_length: int | None, caller: Caller) -> Task:
        """A task as it is visible now.

        Raises:
            A2AError: TASK_NOT_FOUND, also for another principal's task.
        """
        live = await self._own(task_id, caller.principal)
        return with_history(await self._shown(live), history_length)

    async def list(self, request: ListTasksRequest, caller: Caller) -> ListTasksResponse:
        """One page of the caller's tasks, the newest status first.

        Raises:
            A2AError: INVALID_PARAMS for a page token that is not ours, or a missing contextId.
        """
        query = query_from(request, caller.principal)
        listing = await self._store.list(query)
        return response_from(listing, [shown_of(row) for row in listing.tasks], request)

    async def cancel(self, task_id: str, caller: Caller) -> Task:
        """End a task before its time. The first terminal state wins.

        Raises:
            A2AError: TASK_NOT_FOUND, or TASK_NOT_CANCELABLE when it ended otherwise.
        """
        live = await self._own(task_id, caller.principal)
        if live.task.status.state in ENDED:
            raise not_cancelable(await self._reached(live, live.next_seq - 1, settled=True))
        running = live.running
        if running is not None:
            running.canceled = True
            running.scope.cancel()
            with anyio.move_on_after(self._limits.cancel_grace_seconds):
                await running.finished.wait()
        if live.task.status.state not in ENDED:
            self._conclude(live, TaskState.CANCELED, _CANCELED)
        task = await self._reached(live, live.next_seq - 1, settled=True)
        if task.status.state is not TaskState.CANCELED:
            raise not_cancelable(task)
        return task

    async def subscribe(self, task_id: str, caller: Caller) -> Watcher:
        """Watch a task from where it is. The caller closes the watcher.

        Raises:
            A2AError: TASK_NOT_FOUND, or UNSUPPORTED_OPERATION when it has ended.
        """
        live = await self._own(task_id, caller.principal)
        task = await self._shown(live)
        if task.status.state in ENDED:
            raise ended(task)
        return live.watch(self._limits.watch_events)

    # Taking a message in

    async def _take(self, request: SendMessageRequest, caller: Caller, *, watch: bool) -> _Accepted:
        if request.message.role is not Role.USER:
            raise invalid_params(Violation("message.role", "a client's message has the role ROLE_USER"))
        async with _one_at_a_time(self._taking, (caller.principal.name, request.message.message_id)):
            return await self._take_once(request, caller, watch=watch)

    async def _take_once(self, request: SendMessageRequest, caller: Caller, *, watch: bool) -> _Accepted:
        message, owner = request.message, caller.principal.name
        key = MessageKey(message.message_id, _digest(request), self._ids.now_ms())
        # Callers that share one name would be given each other's tasks: to them, the task id is the capability.
        knows = caller.principal.may_list_all or message.task_id is not None
        repeated = await self._messages.task_of(owner, key) if knows else None
        if repeated is not None:
            return await self._join(repeated, caller.principal, request, watch=watch)
        self._require_running()
        live = await self._addressed(message, caller.principal)
        turn = Turn(
            principal=caller.principal,
            message=message,
            configuration=request.configuration or SendMessageConfiguration(),
            metadata=request.metadata or {},
            extensions=caller.extensions & self._agent.extensions,
            task=live.task if live else None,
            kept=live.kept if live else b"",
        )
        # Nothing waits from here on: what the plan found free is taken before anyone else can.
        work = self._agent.plan(turn)
        live = live or self._new(owner, message.context_id)
        live.running = Running(anyio.CancelScope(), anyio.Event())
        accepted = self._accept(live, turn, key, watch=watch)
        job = Job(turn, self._events_of(live), partial(self._emit, live), accepted.stored)
        self._tasks.start_soon(self._run, live, live.running, job, work)
        return accepted

    async def _addressed(self, message: Message, principal: Principal) -> Live | None:
        """The task that a message goes to, or None when it makes one; its context is this principal's."""
        if message.task_id is not None:
            live = await self._at_rest(message.task_id, principal)
            if message.context_id not in (None, live.origin.context_id):
                raise invalid_params(Violation("message.contextId", "is not the context of message.taskId"))
            if live.task.status.state in ENDED:
                await self._reached(live, live.next_seq - 1, settled=True)
            require_answerable(live.task)
            return live
        if message.context_id is not None:
            owner = await self._messages.owner_of_context(message.context_id)
            if owner not in (None, principal.name):
                raise invalid_params(
                    Violation("message.contextId", "cannot be used; leave it out to start a new context")
                )
        return None

    async def _at_rest(self, task_id: str, principal: Principal) -> Live:
        """The principal's task, once work that has already asked its question is out of the way."""
        while True:
            live = await self._own(task_id, principal)
            if live.running is None or live.task.status.state not in INTERRUPTED:
                return live
            await live.running.finished.wait()

    async def _join(
        self, task_id: str, principal: Principal, request: SendMessageRequest, *, watch: bool
    ) -> _Accepted:
        """Take part in what the same message started earlier."""
        live = await self._own(task_id, principal)
        await self._reached(live, live.next_seq - 1, settled=False)
        length = request.configuration.history_length if request.configuration else None
        # It closes where the stream that it repeats did, or would wait for what nobody is asked for again.
        watcher = live.watch(self._limits.watch_events, length, closed_by=CLOSES_STREAM) if watch else None
        return _Accepted(live, live.next_seq - 1, watcher, Commit(done=True))

    def _new(self, owner: str, context_id: str | None) -> Live:
        task_id = self._ids.new()
        origin = Origin(context_id or self._ids.new(), owner, self._ids.now_ms())
        live = Live(task_id, origin, self._store, self._changed)
        self._live[task_id] = live
        return live

    def _accept(self, live: Live, turn: Turn, key: MessageKey, *, watch: bool) -> _Accepted:
        """The message becomes part of its task: its first event, or an answer that sets it to work again."""
        context_id = live.origin.context_id
        message = turn.message.model_copy(update={"task_id": live.id, "context_id": context_id})
        length = turn.configuration.history_length
        watcher: Watcher | None = None
        if turn.task is None:
            status = TaskStatus(state=TaskState.SUBMITTED, timestamp=timestamp(key.accepted_ms))
            task = Task(id=live.id, context_id=context_id, status=status, history=(message,))
            if watch:
                watcher = live.watch(self._limits.watch_events, length, from_next=True)
            commit = live.accept(StreamResponse(task=task), message=key)
        else:
            answered = StreamResponse(message=message)
            commit = live.accept(answered, message=key)
            if watch:
                watcher = live.watch(self._limits.watch_events, length, from_next=True)
            live.accept(self._events_of(live).status(TaskState.WORKING))
        self._messages.note(live.id, live.origin, key, commit)
        return _Accepted(live, live.next_seq - 1, watcher, commit)

    # Doing the work

    async def _run(self, live: Live, running: Running, job: Job, work: Work) -> None:
        broke = False
        with running.scope:
            try:
                await work(job)
            except StoreError:
                logger.warning("task %s is given up: the store cannot write", live.id)
            except Exception:
                logger.exception("the work on task %s failed", live.id)
                broke = True
        live.running = None
        state = live.task.status.state
        if state not in ENDED and state not in INTERRUPTED and live.failure is None:
            if running.canceled:
                self._conclude(live, TaskState.CANCELED, _CANCELED)
            elif self._closing:
                self._conclude(live, TaskState.FAILED, _STOPPED)
            else:
                self._conclude(live, TaskState.FAILED, _BROKE if broke else _SILENT)
        running.finished.set()
        self._changed(live)

    def _emit(self, live: Live, event: StreamResponse, keep: bytes | None) -> Commit:
        try:
            return live.accept(event, keep=keep)
        except IllegalTransitionError as exc:
            logger.info("a late event was dropped: %s", exc)
            return Commit(done=True)

    def _conclude(self, live: Live, state: TaskState, words: str) -> Commit:
        """End a task from here, with a message that says why."""
        events = self._events_of(live)
        return live.accept(events.status(state, events.message((Part(text=words),))), keep=b"")

    def _events_of(self, live: Live) -> EventMaker:
        return EventMaker(self._ids, live.id, live.origin.context_id)

    # Memory and the store

    async def _own(self, task_id: str, principal: Principal) -> Live:
        """The principal's task, from memory or the store."""
        live = self._live.get(task_id) or await self._load(task_id)
        if live is None or live.origin.owner != principal.name:
            raise task_not_found(task_id)
        return live

    async def _load(self, task_id: str) -> Live | None:
        async with _one_at_a_time(self._loading, task_id):
            if task_id in self._live:
                return self._live[task_id]
            stored = await self._store.load(task_id)
            return None if stored is None else self._hold(stored)

    def _hold(self, stored: StoredTask) -> Live:
        live = Live(stored.task_id, stored.origin, self._store, self._changed)
        live.restore(task_from(stored), stored.seq, stored.private)
        if live.task.status.state not in ENDED:
            self._live[live.id] = live
            # Whoever asked for it makes use of it before another gets a turn; if it only looked, it leaves again.
            self._tasks.start_soon(self._leave_if_idle, live)
        return live

    async def _leave_if_idle(self, live: Live) -> None:
        self._changed(live)

    async def _shown(self, live: Live) -> Task:
        return live.visible or await self._reached(live, 1, settled=False)

    async def _reached(self, live: Live, seq: int, *, settled: bool) -> Task:
        try:
            return await live.reached(seq, settled=settled)
        except StoreError as exc:
            raise unavailable("The bridge cannot store tasks at the moment") from exc

    def _changed(self, live: Live) -> None:
        if live.failure is not None:
            self._mend(live)
        elif live.idle:
            self._live.pop(live.id, None)
        if self._closing and all(other.running is None for other in self._live.values()):
            self._idle.set()

    def _mend(self, live: Live) -> None:
        """A task whose events could not be stored is stopped, and ended as soon as the store can write again."""
        if live.running is not None:
            live.running.scope.cancel()
        elif not live.mending:
            live.mending = True
            self._tasks.start_soon(self._end_unstored, live)

    async def _end_unstored(self, live: Live) -> None:
        overtaken = isinstance(live.failure, StoreConflictError)
        while not await self._store.probe():  # noqa: ASYNC110 - a disk tells nobody that it has room again
            await anyio.sleep(self._limits.retry_seconds)
        live.fall_back()
        if overtaken or live.visible is None:
            # What the store holds counts: there is nothing to add to it, now or ever.
            self._live.pop(live.id, None)
        elif live.visible.status.state not in ENDED:
            self._conclude(live, TaskState.FAILED, _UNSTORED)

    async def _recover(self) -> None:
        """End what ran when the last process died; what waits for its client goes on (sections 3.4.3, 7.6)."""
        last = Commit(done=True)
        async for stored in self._store.unfinished():
            if TaskState(stored.head.state) in INTERRUPTED:
                continue
            try:
                last = self._conclude(self._hold(stored), TaskState.FAILED, _RESTARTED)
            except ValueError:
                logger.exception("task %s cannot be read and is left as it is", stored.task_id)
        await last

    # Starting and stopping

    async def drain(self, seconds: float) -> None:
        """Take no new work, let what runs go on for so long, then stop it. Streams end with their tasks."""
        self._closing = True
        self._end_waiting_streams()
        if any(live.running for live in self._live.values()):
            with anyio.move_on_after(seconds):
                await self._idle.wait()
        await self.stop()

    async def stop(self) -> None:
        """Stop every running task now."""
        for live in tuple(self._live.values()):
            if live.running is not None:
                live.running.scope.cancel()
        with anyio.move_on_after(self._limits.cancel_grace_seconds):
            for live in tuple(self._live.values()):
                if live.running is not None:
                    await live.running.finished.wait()
        self._end_waiting_streams()

    def _end_waiting_streams(self) -> None:
        """A task that waits for its client will say nothing more: its streams need not hold the bridge up."""
        for live in tuple(self._live.values()):
            if live.running is None and live.task.status.state in INTERRUPTED:
                live.end_streams()

    def _require_running(self) -> None:
        if self._closing:
            raise unavailable("The bridge is stopping")
        if self._store.failure is not None:
            raise unavailable("The bridge cannot store tasks at the moment")


@asynccontextmanager
async def _one_at_a_time(busy: dict[K, anyio.Event], key: K) -> AsyncIterator[None]:
    """Wait while another does the same."""
    while (other := busy.get(key)) is not None:
        await other.wait()
    busy[key] = done = anyio.Event()
    try:
        yield
    finally:
        del busy[key]
        done.set()


def _digest(request: SendMessageRequest) -> bytes:
    """What makes two messages the same: all that is said, not how it is to be answered."""
    said = SendMessageRequest(message=request.message, metadata=request.metadata)
    return hashlib.sha256(said.to_json()).digest()
