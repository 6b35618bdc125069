"""Several replicas on one store: who holds which task, what the others append, and what a holder is asked to do.

A *replica* is one running engine on a store that others write to as well. Each start of a replica is an *epoch*, a name
that is never used again. An unfinished task has a *holder*, the epoch that may append to it, or rests without one.

- A change by a replica claims a task that rests, in the same step in which the change is stored.
- A change to a task that another living replica holds is refused with StoreConflictError. Whoever wants something of
  such a task asks its holder.
- A replica that is dead, or that was silent for a lease, is *fenced*: its epoch is marked as gone, and from then on
  nothing of that epoch is stored. The tasks that it held are adopted by another replica in the same step.
- A replica that finds itself fenced drops what it has in memory and goes on under a new epoch.

This module is the contract alone. A store in memory or in a SQLite file has one replica, which holds every task, so its
`Store.replicas` is None. Nothing here knows a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bridge.store.records import StoredTask


@dataclass(frozen=True, slots=True)
class ForeignEvent:
    """An event that another replica has stored, or a snapshot in place of all events up to it.

    A snapshot comes where the events were folded before they could be told.
    """

    seq: int
    event: bytes | None = None
    snapshot: bytes | None = None


OnForeignEvents = Callable[[tuple[ForeignEvent, ...]], None]
"""Called in an async task with the next events of a followed task, in order and without a gap."""


class ReplicaEngine(Protocol):
    """What a replica's engine does for the others. All of it is called inside the store's own async task."""

    async def answer(self, command: bytes) -> bytes:
        """Do what another replica asks of a task that this one holds, and return the reply. It never raises: a refusal
        is a reply, too."""
        ...

    async def adopt(self, task: StoredTask) -> None:
        """Go on with a task whose holder is gone. This replica holds the task now."""
        ...

    def fenced(self) -> None:
        """This replica was taken for dead: drop every task in memory, and add nothing to any of them."""
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

    def start(self, engine: ReplicaEngine) -> None:
        """Serve this engine from now on. Adopt the tasks of the dead first."""
        ...

    def release(self, task_id: str, seq: int) -> None:
        """Let a task of this replica rest, unless another change followed `seq`. It is done after what was submitted
        before, and lost without harm: the holder is then asked."""
        ...

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """Call with each event after `seq` that another replica stores. Returns a function that ends it.

        An event is told once it is stored, at the latest a second after. An event that this replica stored may be told
        as well, or not.
        """
        ...

    async def ask(self, holder: str, command: bytes) -> bytes:
        """Ask the holder of a task, and return its reply.

        Raises:
            HolderGoneError: the holder is gone, so its tasks have another one. Look again, and ask that one.
            StoreError: the store cannot be reached.
        """
        ...
