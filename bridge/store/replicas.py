"""Several replicas on one store: who holds which task, what the others append, and what a holder is asked to do.

A *replica* is one running engine on a store that others write to as well. Each start of a replica is an *epoch*, a name
that is never used again. An unfinished task has a *holder*, the epoch that may append to it, or rests without one.

- A change by a replica claims a task that rests, in the same step in which the change is stored.
- A change to a task that another living replica holds is refused with StoreConflictError. Whoever wants something of
  such a task asks its holder.
- A change belongs to the epoch in which it was submitted. A refused change takes with it every change of its task and
  epoch that was submitted before that answer was given.
- A replica that is dead, or that was silent for a lease, is *fenced*: its epoch is marked as gone, and from then on
  nothing of that epoch is stored. The tasks that it held are adopted by another replica in the same step.
- A replica that finds itself fenced drops what it has in memory and goes on under a new epoch. Its engine is told
  before anything is stored under the new epoch.
- A *session* with a peer is had by one replica at a time, its owner, which claims it by its name.
- What one replica was told is stored can be read by all from then on.

This module is the contract alone. A store in memory or in a SQLite file has one replica, which holds every task, so its
`Store.replicas` is None. Nothing here knows a database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bridge.store.records import StoredTask, WrittenAnswer


@dataclass(frozen=True, slots=True)
class ForeignEvent:
    """An event that another replica has stored, or a snapshot in place of all events up to it.

    A snapshot comes where the events were folded before they could be told.
    """

    seq: int
    event: bytes | None = None
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class SessionClaim:
    """Which replica has a session with a peer, as the store knows it."""

    name: str
    owner: str
    """An epoch."""
    token: str
    """Tells this claim from an earlier one of the same replica."""
    is_lost: bool = False
    """Whether a replica that is gone had the session before, so that what it held is lost."""


OnForeignEvents = Callable[[tuple[ForeignEvent, ...]], None]
"""Called in an async task with the next events of a followed task, in order and without a gap."""


class ReplicaEngine(Protocol):
    """What a replica's engine does for the others."""

    async def answer(self, command: bytes) -> bytes:
        """Do what another replica asks of a task that this one holds, and return the reply.

        It never raises: a refusal is a reply, too. It may take long and waits for the store, so each command is
        answered in an async task of its own.
        """
        ...

    async def adopt(self, task: StoredTask) -> None:
        """Go on with a task whose holder is gone. This replica holds the task now.

        It may wait for the store, so it is called in an async task other than the one that stores. Until it returns,
        `Store.load` of this task waits: nobody answers a task here whose engine does not have it yet. A replica that
        goes on under a new epoch may adopt what it held itself.
        """
        ...

    def fenced(self) -> None:
        """This replica was taken for dead: drop every task in memory, and add nothing to any of them.

        It is called in an async task, with the new epoch in place, before the changes of the old one are refused.
        """
        ...


class Replicas(Protocol):
    """The other replicas on a store."""

    @property
    def epoch(self) -> str:
        """The epoch of this replica. It changes when the replica was fenced."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this replica does what one of them has to do: evict tasks, and end those that nobody answers. At most
        one replica leads; for a moment none may."""
        ...

    @property
    def offset_ms(self) -> int:
        """What added to this machine's clock gives the store's one clock, as it was last measured."""
        ...

    def start(self, engine: ReplicaEngine) -> None:
        """Serve this engine from now on. Adopt the tasks of the dead first."""
        ...

    def release(self, task_id: str, seq: int) -> None:
        """Let a task of this replica rest, unless another change followed `seq`. It is done after what was submitted
        before, and lost without harm: the holder is then asked."""
        ...

    def hand_over(self, task_id: str, seq: int) -> None:
        """Let another replica adopt a task of this one, unless another change followed `seq`.

        It is done after what was submitted before. A replica that hands a task over is stopping and adopts none from
        then on. Where there is no other replica, the task is adopted once there is one.
        """
        ...

    async def open_of(self, owner: str) -> int:
        """The number of unfinished tasks of an owner.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...

    def note_answer(self, owner: str, message_id: str, task_id: str, answer: WrittenAnswer) -> None:
        """Note that the answer to a message was written in full, if the message still goes to that task. It is done
        after what was submitted before, and lost with little harm: a repeat may then be taken for one whose answer did
        not arrive."""
        ...

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """Call with each event after `seq` that another replica stores or has stored. Returns a function that ends it
        at once.

        An event is told once it is stored, at the latest a second after, and never within this call. An event that
        this replica stored may be told as well, or not; an event that only another epoch of it stored is told. It goes
        on when this replica is fenced.
        """
        ...

    async def events_after(self, task_id: str, seq: int) -> Sequence[ForeignEvent]:
        """What `follow` would tell of a task after event `seq`, as far as it is stored and comes in one read.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...

    async def claim_session(self, name: str, idle_seconds: float) -> SessionClaim:
        """Become the owner of a session, unless a replica that lives is. A replica that owns it already claims it anew.

        Once its owner is gone, it is known for `idle_seconds` that there was such a session.

        Raises:
            StoreConflictError: this replica was fenced, or the session ended just now. Try again.
            StoreError: the store cannot be reached.
        """
        ...

    def end_session(self, claim: SessionClaim) -> None:
        """Own a session no more, unless it was claimed anew. It is done soon, and lost with this replica."""
        ...

    async def ask(self, holder: str, command: bytes) -> bytes:
        """Ask the holder of a task, and return its reply.

        Raises:
            HolderGoneError: the holder is gone, so its tasks have another one. Look again, and ask that one.
            StoreError: the store cannot be reached.
        """
        ...
