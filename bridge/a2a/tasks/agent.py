"""What the worker behind an agent sees: the turn it is asked to take, and the task it writes to.

The engine makes both. A worker plans a turn before there is a task, so that what it refuses leaves nothing
behind; then it runs, writes events to its job, and returns once the task has ended or asks something. Work
that cannot be left while it asks (the call that the question belongs to is still open) listens instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
)
from bridge.access.principals import Principal
from bridge.concurrency import Signal
from bridge.jsonvalues import JsonObject


class Commit:
    """Says when an event is stored. Awaiting it raises the StoreError when it was not."""

    __slots__ = ("_callbacks", "_done", "_error")

    def __init__(self, *, done: bool = False) -> None:
        self._done = done
        self._error: Exception | None = None
        self._callbacks: list[Callable[[], object]] = []

    def settle(self, error: Exception | None) -> None:
        """It is stored, or never will be."""
        self._done, self._error = True, error
        for callback in self._callbacks:
            callback()

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call back once the store has answered; at once when it has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    async def _wait(self) -> None:
        if not self._done:
            settled = anyio.Event()
            self._callbacks.append(settled.set)
            await settled.wait()
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[object, None, None]:
        return self._wait().__await__()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message for the agent."""

    principal: Principal
    message: Message
    configuration: SendMessageConfiguration
    metadata: JsonObject
    """The request's, beside the message's own."""
    extensions: frozenset[str]
    """The extensions that the client activated and the agent has."""
    task: Task | None = None
    """The task that the message answers; None for a new one."""
    kept: bytes = b""
    """What the worker kept with that task."""
    beside: tuple[str, ...] = ()
    """The tasks in the message's context that wait for an answer, when the message was not taken for one."""


AnswerHandler = Callable[[Turn], Callable[[Commit], None]]
"""How work that goes on takes an answer: it refuses the turn by raising A2AError, or gives what is called once the
message was accepted, with the commit that says when it is stored."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that came while its task was at work."""

    turn: Turn
    since: float
    """When it came, on the clock of the event loop."""


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """How much may be held for one task."""

    messages: int
    total_bytes: int


@dataclass(slots=True)
class WorkStatus:
    """What is known of some work also after it, which costs little for as long as its message is remembered."""

    is_at_work: bool = True
    """Whether it goes on, and takes no answers."""
    is_repeatable: bool = False
    """Whether doing it twice does no more than doing it once; not until the worker says so."""


@dataclass(eq=False)
class RunningWork:
    """The work that goes on for a task."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    finished: anyio.Event = field(default_factory=anyio.Event)
    canceled: bool = False
    """The client asked for it."""
    hearing: AnswerHandler | None = None
    """What takes the client's answers while the work goes on; None while it takes none."""
    standing: WorkStatus = field(default_factory=WorkStatus)
    held: list[HeldMessage] = field(default_factory=list)
    """What its client said meanwhile, until the worker makes use of it."""
    held_messages: int = 0
    held_bytes: int = 0
    """How much was held in all, also of what was used."""
    outlives: bool = False
    """Whether another process could go on with it from what is kept, although its task is at work."""
    moved: Signal = field(default_factory=Signal)
    """Told when `hearing` or `finished` changes."""

    def listen(self, hearing: AnswerHandler | None) -> None:
        """Take answers from here on, or no more of them."""
        self.hearing = hearing
        self.standing.is_at_work = hearing is None and not self.finished.is_set()
        self.moved.tell()

    def hold(self, turn: Turn, size_bytes: int, limits: HeldLimits) -> bool:
        """Keep what the client says meanwhile; False when that is too much."""
        if self.held_messages >= limits.messages or self.held_bytes + size_bytes > limits.total_bytes:
            return False
        self.held_messages += 1
        self.held_bytes += size_bytes
        self.held.append(HeldMessage(turn, anyio.current_time()))
        return True

    def finish(self) -> None:
        """The work is over."""
        self.held.clear()
        self.finished.set()
        self.listen(None)


@dataclass
class Job:
    """A task as its worker holds it: each method is one event, accepted in the order of the calls.

    An event is visible to others once it is stored; awaiting what a method gives back waits for that.
    """

    turn: Turn
    events: EventMaker
    emit: Callable[[StreamResponse, bytes | None], Commit]
    """Accepts an event and what the worker keeps with it; the commit says when it is stored."""
    accepted: Commit
    """Says when the message that started this is stored: await it before anything that cannot be taken back, so
    that the same message, sent again after a crash, finds this task instead of doing it twice."""
    running: RunningWork
    is_left: Callable[[], bool]
    """Whether the bridge stops, and another process can go on with this: what goes on elsewhere is then left as it
    is."""

    def listen(self, hearing: AnswerHandler | None) -> None:
        """From here on, take answers in this way while the work goes on; None takes no more of them."""
        self.running.listen(hearing)

    def allow_repeats(self) -> None:
        """Say that doing this twice does no more than doing it once."""
        self.running.standing.is_repeatable = True

    @property
    def held(self) -> list[HeldMessage]:
        """What the client said while this was at work. What the worker makes use of, it takes out."""
        return self.running.held

    def outlive(self) -> None:
        """From here on, another process could go on with this from what is kept, also while the task is at work."""
        self.running.outlives = True

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
        """The task is now in this state. `keep` replaces what is kept with it; None leaves that."""
        return self.emit(self.events.status(state, message, metadata), keep)

    def artifact(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = True) -> Commit:
        """An output of the task, or more of one."""
        return self.emit(self.events.artifact(artifact, append=append, last_chunk=last_chunk), None)


class PlannedWork(Protocol):
    """What a worker does with one turn, once there is a task."""

    async def __call__(self, job: Job) -> None: ...


class Agent(Protocol):
    """What an A2A server serves."""

    def card(self, base_url: str) -> AgentCard:
        """What the agent says of itself, reachable at this base."""
        ...

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        ...

    def plan(self, turn: Turn) -> PlannedWork:
        """Decide what a turn means, without waiting.

        Raises:
            A2AError: the turn is refused; no task is made and none is changed.
        """
        ...

    def takes_as_answer(self, turn: Turn) -> bool:
        """Whether a message that names a context alone answers what `turn.task`, the only one there, asks."""
        ...

    def resume(self, kept: bytes, state: TaskState, owner: str) -> PlannedWork | None:
        """What goes on with a task that was being worked on, or waited, when an earlier process ended.

        `kept` is what the worker kept with it, `owner` the name of its principal. None: it goes on waiting, or fails
        if it did not wait.
        """
        ...
