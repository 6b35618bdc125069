"""The contract of a store that several replicas share: who holds which task, and how replicas ask each other.

A *replica* is a running engine on a store to which other replicas write as well. Each start of a replica is an *epoch*,
a name that is never used again. An unfinished task either has a *holder*, the epoch that may append to it, or rests.

- A replica that changes a resting task claims it in the same transaction.
- A change to a task that another live replica holds is refused with StoreConflictError. To act on such a task, a
  replica asks the holder.
- A change belongs to the epoch in which it was submitted. After a refusal, every change of the same task and epoch that
  was submitted before the refusal was reported is refused too.
- A replica that is dead, or silent for a lease, is *fenced*: its epoch is marked as gone, and the store accepts nothing
  more from that epoch. Another replica adopts its tasks in the same step.
- A fenced replica drops its tasks from memory and continues under a new epoch. Its engine is notified before anything
  is stored under the new epoch.
- A *session* with a peer belongs to one replica at a time, its owner, which claims the session by name.
- After a replica learns that a change is stored, all replicas can read the change.

A store in memory or in a SQLite file has a single replica, which holds every task, so its `Store.replicas` is None.
Nothing here knows a database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bridge.store.records import StoredTask, WrittenAnswer


@dataclass(frozen=True, slots=True)
class ForeignEvent:
    """An event that another replica stored, or a snapshot in place of all events up to `seq`.

    A snapshot comes if it replaced the events before they could be delivered.
    """

    seq: int
    event: bytes | None = None
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class SessionClaim:
    """The store's record of the replica that has a session with a peer."""

    name: str
    owner: str
    """The epoch of the owner."""
    token: str
    """Distinguishes this claim from an earlier claim by the same replica."""
    is_lost: bool = False
    """Whether a replica that is gone had the session before, so that the session's state is lost."""


OnForeignEvents = Callable[[tuple[ForeignEvent, ...]], None]
"""Called in an async task with the next events of a followed task, in order and without gaps."""


class ReplicaEngine(Protocol):
    """The work that a replica's engine does for the other replicas."""

    async def answer(self, command: bytes) -> bytes:
        """Execute another replica's command on a task that this replica holds, and return the reply.

        It never raises: a refusal is a reply too. It may take long and waits for the store, so each command runs in its
        own async task.
        """
        ...

    async def adopt(self, task: StoredTask) -> None:
        """Continue a task whose holder is gone. This replica holds the task now.

        It may wait for the store, so it does not run in the async task that writes to the store. `Store.load` of the
        task waits until it returns, so that nothing answers for a task that the engine does not have yet. A replica
        under a new epoch may adopt tasks that it held before.
        """
        ...

    def fenced(self) -> None:
        """Drop every task in memory and append nothing more to them: the others took this replica for dead.

        It is called in an async task when the new epoch exists and before changes of the old epoch are refused.
        """
        ...


class Replicas(Protocol):
    """The other replicas on a store."""

    @property
    def epoch(self) -> str:
        """The epoch of this replica. It changes after the replica was fenced."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this replica does the work of a single replica: evict tasks, and end tasks that wait too long. At
        most one replica leads, and for a moment there may be none."""
        ...

    @property
    def offset_ms(self) -> int:
        """The last measured difference between the store's clock and this machine's clock."""
        ...

    def start(self, engine: ReplicaEngine) -> None:
        """Serve this engine from now on. First adopt the tasks of dead replicas."""
        ...

    def release(self, task_id: str, seq: int) -> None:
        """Let a task of this replica rest, unless another change followed `seq`. This happens after earlier submitted
        changes. Losing it is harmless: other replicas then ask the holder."""
        ...

    def hand_over(self, task_id: str, seq: int) -> None:
        """Let another replica adopt a task of this replica, unless another change followed `seq`.

        This happens after earlier submitted changes. A replica that hands over a task is stopping, and adopts no more
        tasks. Without another replica, the task waits until there is one.
        """
        ...

    async def open_of(self, owner: str) -> int:
        """The number of unfinished tasks of an owner.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...

    def note_answer(self, owner: str, message_id: str, task_id: str, answer: WrittenAnswer) -> None:
        """Note that the answer to a message was written in full, if the message still belongs to that task. This
        happens after earlier submitted changes. Losing it does little harm: a repeat of the message then looks as if
        its answer had not arrived."""
        ...

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """Call `on_events` with each event after `seq` that another replica stores or has stored. Returns a function
        that stops the calls at once.

        A call comes at most a second after the event is stored, and never within `follow`. Events of this replica's
        current epoch may be included; events of its earlier epochs are. The calls continue after this replica is
        fenced.
        """
        ...

    async def events_after(self, task_id: str, seq: int) -> Sequence[ForeignEvent]:
        """The events that `follow` would deliver for a task after `seq`, as far as one read of the store has them.

        Raises:
            StoreError: the store cannot be reached.
        """
        ...

    async def claim_session(self, name: str, idle_seconds: float) -> SessionClaim:
        """Become the owner of a session, unless another live replica owns it. The owner itself may claim it again.

        For `idle_seconds` after its owner is gone, the store remembers the session.

        Raises:
            StoreConflictError: this replica was fenced, or the session has just ended. Try again.
            StoreError: the store cannot be reached.
        """
        ...

    def end_session(self, claim: SessionClaim) -> None:
        """Give up a session soon, unless it was claimed again. The request is lost if this replica stops before."""
        ...

    async def ask(self, holder: str, command: bytes) -> bytes:
        """Send a command to the holder of a task, and return its reply.

        Raises:
            HolderGoneError: the holder is gone, so its tasks have another holder. Find the new holder and ask it.
            StoreError: the store cannot be reached.
        """
        ...
