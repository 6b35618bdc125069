"""The contract between the engine and an agent's worker: turns, jobs, and running work.

The engine makes the turn and the job. A worker plans a turn before the task exists, so that a refused turn leaves
nothing behind. Then the worker runs, writes events to its job, and returns once the task has ended or asks something.
If a call is still open when the work asks, the work cannot return; it listens for the answer instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import anyio

from bridge.a2a.model.life import EventMaker
from bridge.a2a.model.objects import (
    AgentCard,
    Artifact,
    Message,
    Part,
    SendMessageConfiguration,
    StreamResponse,
    Task,
    TaskState,
    made,
)
from bridge.concurrency import Signal
from bridge.frozen import frozen
from bridge.identity.callers.principals import Principal
from bridge.settings import RequestSettings
from bridge.text.jsonvalues import JsonObject
from bridge.trace import NO_TRACE, Hop, TraceContext


class Commit:
    """The storing of one event. Awaiting a commit waits for the store, and raises StoreError if the store failed."""

    __slots__ = ("_callbacks", "_done", "_error")

    def __init__(self, *, done: bool = False) -> None:
        self._done = done
        self._error: Exception | None = None
        self._callbacks: list[Callable[[], object]] = []

    def settle(self, error: Exception | None) -> None:
        """Record the store's answer: None if the event is stored, else the error."""
        self._done, self._error = True, error
        for callback in self._callbacks:
            callback()

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call `callback` once the store has answered; immediately if it already has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    async def _wait(self) -> None:
        if not self._done:
            settled = asyncio.Event()
            self._callbacks.append(settled.set)
            await settled.wait()
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[object, None, None]:
        return self._wait().__await__()


@frozen
class Turn:
    """One message for the agent."""

    principal: Principal
    message: Message
    configuration: SendMessageConfiguration
    metadata: JsonObject
    """The metadata of the request, besides that of the message."""
    extensions: frozenset[str]
    """The extensions that the client activated and the agent has."""
    task: Task | None = None
    """The task that the message answers; None for a new task."""
    kept: bytes = b""
    """The bytes that the worker kept with that task."""
    beside: tuple[str, ...] = ()
    """The tasks of the message's context that wait for an answer, if the message was not taken as an answer."""
    acting: str = ""
    """The operator that sent the message on behalf of the principal; empty if the principal sent it."""
    client: str = ""
    """How the client describes itself. This is not verified."""
    lost_session: bool = False
    """Whether the work continues in a new session, because the replica that had the last session is gone."""


AnswerHandler = Callable[[Turn], Callable[[Commit], None]]
"""Takes a client's answer to running work.

The handler refuses the turn by raising A2AError, or returns a callback. The callback is called once the message was
accepted, with the commit of the message."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that came while its task was working."""

    turn: Turn
    since: float
    """The time of its arrival, in seconds on the event loop's clock."""


@dataclass(slots=True)
class WorkStatus:
    """Two flags about a piece of work. They decide what a repeat of its message means.

    They are separate from `RunningWork`, because they are kept for as long as the message is remembered.
    """

    is_at_work: bool = True
    """Whether the work runs and does not listen for answers."""
    is_repeatable: bool = False
    """Whether the work is idempotent; False until the worker says so."""


CancelAtPeer = Callable[[], Awaitable[bool]]
"""Asks the peer to cancel the work, and returns whether the peer does so. The event that ends the task is then added by
the work. Raises PeerError if the peer cannot be asked."""


@dataclass(eq=False)
class RunningWork:
    """The work that runs for a task."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_finished: bool = False
    canceled: bool = False
    """Whether the client canceled the task."""
    canceled_by: str = ""
    """The operator that canceled the task on behalf of the client."""
    hearing: AnswerHandler | None = None
    """Handles the client's answers while the work runs; None while the work does not listen."""
    work_status: WorkStatus = field(default_factory=WorkStatus)
    held: list[HeldMessage] = field(default_factory=list)
    """The messages that came while the task was working, until the worker uses them."""
    held_messages: int = 0
    held_bytes: int = 0
    """The bytes of all held messages so far. Like `held_messages`, this includes messages that were used."""
    abandoned: bool = False
    """Whether another replica continues the task, so that this work must add nothing to it."""
    outlives: bool = False
    """Whether another process could resume this work from the kept bytes, even while the task is working."""
    stays: bool = False
    """Whether only this process can continue the task after it has waited for its client."""
    is_standing: bool = False
    """Whether the work goes on until somebody ends it; see `StandingWork`."""
    began_in: Hop | None = None
    """The hop of the request that began the work; None if hops have no listener."""
    release: Callable[[], None] = lambda: None
    """Releases the resources that are held for the work. Called once the work has ended."""
    cancel_at_peer: CancelAtPeer | None = None
    """Cancels the work at its peer, which decides whether the task ends as canceled; None if the work is stopped."""
    moved: Signal = field(default_factory=Signal)
    """Signalled when `hearing` or `is_finished` changes."""

    def listen(self, hearing: AnswerHandler | None) -> None:
        """Handle answers with `hearing` from now on; None accepts no more answers."""
        self.hearing = hearing
        self.work_status.is_at_work = hearing is None and not self.is_finished
        self.moved.notify()

    def hold(self, turn: Turn, size_bytes: int, requests: RequestSettings) -> bool:
        """Hold a message of `size_bytes` bytes for the worker; False if a limit is reached."""
        if self.held_messages >= requests.held_messages or self.held_bytes + size_bytes > requests.held_bytes:
            return False
        self.held_messages += 1
        self.held_bytes += size_bytes
        self.held.append(HeldMessage(turn, anyio.current_time()))
        return True

    def abandon(self) -> None:
        """Stop the work, because another replica continues its task."""
        self.abandoned = True
        self.scope.cancel()
        self.listen(None)

    async def wait(self) -> None:
        """Wait until the work has finished."""
        while not self.is_finished:
            await self.moved.wait()

    def finish(self) -> None:
        """Mark the work as finished, and drop the held messages."""
        self.held.clear()
        self.is_finished = True
        self.release()
        self.listen(None)


@dataclass
class Job:
    """A task as its worker sees it. Events are accepted in the order of the calls.

    An event is visible to others once it is stored. To wait for this, await the commit that the method returns.
    """

    turn: Turn
    events: EventMaker
    emit: Callable[[StreamResponse, bytes | None], Commit]
    """Accepts an event, with the bytes that the worker keeps with the task."""
    accepted: Commit
    """The commit of the message that started this job. Await it before an action that cannot be undone. A repeat of the
    message after a crash then finds this task, and the action is not done twice."""
    running: RunningWork
    is_left: Callable[[], bool]
    """Whether the bridge is stopping and another process can resume this task. The worker then must not end a call that
    another process can resume."""
    sent: Callable[[str], None]
    """Notes in the task's timeline that the call goes to a peer, named by its key in the configuration. The note is
    stored with the next event."""
    is_draft: Callable[[], bool] = lambda: False
    """Whether a Message alone can still answer the turn."""

    def cancel_with(self, cancel: CancelAtPeer) -> None:
        """Let the peer decide on a cancellation, in place of stopping this work."""
        self.running.cancel_at_peer = cancel

    def listen(self, hearing: AnswerHandler | None) -> None:
        """Handle answers with `hearing` from now on, while the work runs; None accepts no more answers."""
        self.running.listen(hearing)

    def allow_repeats(self) -> None:
        """Declare this work idempotent."""
        self.running.work_status.is_repeatable = True

    @property
    def held(self) -> list[HeldMessage]:
        """The messages that came while the task was working. The worker removes those that it uses."""
        return self.running.held

    def outlive(self) -> None:
        """Declare that another process can resume this work from the kept bytes, even while the task is working."""
        self.running.outlives = True

    def stay(self) -> None:
        """Declare that only this process can continue after this work returns with a question. Other replicas pass the
        answer to this replica."""
        self.running.stays = True

    def new_id(self) -> str:
        """A fresh id, for an artifact."""
        return self.events.ids.new()

    def message(self, parts: Sequence[Part], metadata: JsonObject | None = None) -> Message:
        """A message of the agent on this task."""
        return self.events.message(parts, metadata)

    def status(
        self,
        state: TaskState,
        message: Message | None = None,
        *,
        metadata: JsonObject | None = None,
        keep: bytes | None = None,
    ) -> Commit:
        """Set the task's state. `keep` replaces the bytes that are kept with the task; None leaves them."""
        return self.emit(self.events.status(state, message, metadata), keep)

    def reply(self, message: Message, keep: bytes) -> Commit:
        """Complete the work with a message: the answer is this message, if it can be, else a task with the content of
        the message as its artifact."""
        if self.is_draft():
            self.emit(made(StreamResponse, message=message), None)
            return self.status(TaskState.COMPLETED)
        self.artifact(
            made(
                Artifact,
                artifact_id=message.message_id,
                parts=tuple(message.parts),
                metadata=message.metadata,
                extensions=message.extensions,
            )
        )
        return self.status(TaskState.COMPLETED, keep=keep)

    def artifact(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = True) -> Commit:
        """Add an artifact to the task; with `append`, add its parts to the artifact of the same id."""
        return self.emit(self.events.artifact(artifact, append=append, last_chunk=last_chunk), None)


class WorkName(NamedTuple):
    """The skill, the peer and the trace of some work, for hops."""

    skill: str = ""
    """Empty while no skill is chosen."""
    peer: str = ""
    """The peer that does the work; empty if there is none."""
    trace: TraceContext = NO_TRACE
    """The trace of the turn in which the work asked last, if it has asked."""


class PlannedWork(Protocol):
    """The work for one turn. The engine calls it once the task exists."""

    async def __call__(self, job: Job) -> None: ...


@runtime_checkable
class ReservedWork(Protocol):
    """Planned work that holds a resource from its planning on."""

    def drop(self) -> None:
        """Release the resource. Called if the work is never called."""
        ...


@dataclass(frozen=True, slots=True)
class StandingWork:
    """Work that goes on until somebody ends it. Its first event answers its message, and the store keeps few of its
    events."""

    work: PlannedWork

    async def __call__(self, job: Job) -> None:
        """Do the work."""
        await self.work(job)

    def drop(self) -> None:
        """See `ReservedWork.drop`."""
        if isinstance(self.work, ReservedWork):
            self.work.drop()


class WorkSession(Protocol):
    """A session with a peer in which work continues. Only one replica has the session at a time."""

    @property
    def name(self) -> str:
        """The name of the session. It is the same at every replica."""
        ...

    @property
    def idle_seconds(self) -> float:
        """How long the session may be without work before it ends."""
        ...

    def open(self, on_end: Callable[[], None]) -> None:
        """Open the session in this process, if it is not open yet. `on_end` is called once it has ended.

        Raises:
            BusyError: there are too many sessions.
        """
        ...

    def hold(self) -> Callable[[], None] | None:
        """Keep the session open. Returns a function that releases it; None if the session is not open here."""
        ...

    def end(self) -> None:
        """Give the session to no further work, and end it once no work uses it."""
        ...


class Agent(Protocol):
    """An agent that an A2A server serves."""

    def card(self, base_url: str) -> AgentCard:
        """The agent's public card, with addresses below `base_url`."""
        ...

    def extended_card(self, base_url: str, principal: Principal) -> AgentCard:
        """The agent's card for a principal of this face, with the fields that only this principal may see."""
        ...

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        ...

    @property
    def required_extensions(self) -> frozenset[str]:
        """The URIs of the extensions that every client must activate."""
        ...

    def plan(self, turn: Turn) -> PlannedWork:
        """Plan the work for a turn, without waiting.

        Raises:
            A2AError: the turn is refused. No task is created or changed.
        """
        ...

    def work_meant(self, turn: Turn) -> WorkName:
        """The name of the work for a turn. Nothing is planned.

        Raises:
            A2AError: the turn is refused.
        """
        ...

    def work_kept(self, work: bytes) -> WorkName:
        """The name of the work that kept these bytes with its task."""
        ...

    def metadata_of(self, work: bytes) -> JsonObject | None:
        """The metadata of a task itself, which answers with the task show. `work` is the bytes that the worker kept
        with the task. None if there is none."""
        ...

    def session_of(self, turn: Turn, context_id: str) -> WorkSession | None:
        """The session in which the work for a turn continues, in this context; None if any process may do the work.

        This is called only if other replicas use the same store.

        Raises:
            A2AError: the turn is refused.
        """
        ...

    def takes_as_answer(self, turn: Turn) -> bool:
        """Whether a message without a task id answers the question of `turn.task`.

        That task is the only one in the message's context that asks.
        """
        ...

    def resume(
        self, work: bytes, state: TaskState, owner: str, *, is_adopted: bool = False
    ) -> PlannedWork | None:
        """The work that resumes a task of an earlier process, which was working or waiting when that process ended.

        `work` is the bytes that the worker kept with the task, `owner` the name of its principal. `is_adopted` says
        that the process was another replica. If this returns None, a waiting task goes on waiting, and any other task
        fails.
        """
        ...

    def canceling(self, work: bytes) -> Callable[[Job], Awaitable[bool]] | None:
        """Cancels a task that waits for its client, at the peer that knows the task; see `CancelAtPeer`. `work` is the
        bytes that the worker kept with the task. None if no peer knows the task."""
        ...
