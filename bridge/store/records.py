"""What a store keeps, the rule by which it takes a change, and what every store promises.

It knows no protocol model: a task is an identity, a few columns to find it by, and bytes that only their writer
understands. It must never import a model, and it knows no table, no file and no clock.

A task is a *snapshot* and the events after it. An event gets the next sequence number of its task, from 1,
without gaps. A change may carry a new snapshot, which replaces the old one and every event up to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self

from bridge.errors import StoreConflictError


@dataclass(frozen=True, slots=True)
class TaskOrigin:
    """What is fixed when a task is made."""

    context_id: str
    owner: str
    """The principal that the task and its context belong to."""
    created_ms: int
    """Milliseconds since the epoch, UTC; so are all other `_ms` values here."""


@dataclass(frozen=True, slots=True)
class TaskHead:
    """The columns that tasks are found and ordered by."""

    state: str
    ended: bool
    """True for a state that nothing follows."""
    status_ms: int


@dataclass(frozen=True, slots=True)
class MessageKey:
    """A message that was taken in, so that the same one sent again is known."""

    message_id: str
    digest: bytes
    """A hash of the message's content."""
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """One step in the life of a task, kept whole or not at all.

    With `origin` it makes the task, and then `seq` is 1 and `head` and `snapshot` are given.
    """

    task_id: str
    seq: int
    event: bytes
    head: TaskHead | None = None
    """None leaves the stored head as it is."""
    snapshot: bytes | None = None
    """The task as of `seq`; the events up to it are no longer kept one by one."""
    private: bytes | None = None
    """Replaces what is kept beside the task for its worker; None leaves it, b"" clears it."""
    message: MessageKey | None = None
    origin: TaskOrigin | None = None


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as it is read back."""

    task_id: str
    origin: TaskOrigin
    head: TaskHead
    seq: int
    """The sequence number of its last event."""
    snapshot: bytes
    events: tuple[bytes, ...]
    """The events after the snapshot, in order."""
    private: bytes


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """Which task a message went to."""

    task_id: str
    key: MessageKey


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a listing: the last row that was seen."""

    status_ms: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Query:
    """Which tasks to list: newest status first, ties by task id descending."""

    owner: str
    limit: int
    context_id: str | None = None
    state: str | None = None
    status_from_ms: int | None = None
    """Only tasks whose status is at least this new."""
    after: Cursor | None = None
    """Only rows that come after this place."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of a listing."""

    tasks: tuple[StoredTask, ...]
    total: int
    """How many tasks match, on all pages."""
    more: bool
    """Whether rows follow the last one of this page."""


UNBOUNDED: Final = 1 << 62
"""More bytes than any store has."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many ended tasks are kept, the newest ones, and what they weigh."""

    total: int
    each: int
    """Of one owner."""
    total_bytes: int = UNBOUNDED
    """What their snapshots weigh: an ended task has nothing else that is large."""
    each_bytes: int = UNBOUNDED

    @property
    def of_bytes(self) -> Quota:
        """The same bound for bytes as there is for tasks."""
        return Quota(self.total_bytes, self.each_bytes)


OnStored = Callable[[Exception | None], None]
"""Called in a task, so that it may start others, once a change is durable (None) or was refused (StoreError), in the
order in which changes were submitted."""


class Store(AbstractAsyncContextManager["Store"], Protocol):
    """Where tasks are kept. Entered once; on exit every submitted change has been answered.

    Promises, for every implementation: (task, seq) is unique and has no gaps; the first ended head wins, in
    the same transaction as the event that carries it; a context has one owner for as long as it has a task;
    (owner, message id) is unique, the newest wins.
    """

    async def __aenter__(self) -> Self: ...

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change. Never blocks; `done` says how it ended.

        `done` gets StoreConflictError when the change does not follow what is stored, and StoreError when
        the store cannot write at all.
        """
        ...

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, whoever owns it, or None."""
        ...

    async def list(self, query: Query) -> TaskPage:
        """One page of the owner's tasks."""
        ...

    async def context_owner(self, context_id: str) -> str | None:
        """Who owns a context, or None when no task is in it."""
        ...

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """Which task a message of this owner went to, or None."""
        ...

    def unfinished(self) -> AsyncIterator[StoredTask]:
        """Every task that has not ended, oldest first: what a new process has to look after."""
        ...

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The tasks that have not ended and are in one of these states, by id, with their `status_ms`."""
        ...

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks older than a time, and those beyond a quota as `surplus_of` says, first for their number
        and then for their bytes; say how many.

        Tasks that have not ended are never touched. A context goes with its last task.
        """
        ...

    @property
    def lasts(self) -> bool:
        """Whether another process finds again what is kept here."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the store cannot write, in words, or None while it can."""
        ...

    async def probe(self) -> bool:
        """Try whether the store can write again; clears `failure` when it can."""
        ...

    async def check(self) -> None:
        """Look, without writing, whether what is kept is still there; `failure` says so when it is not."""
        ...


class TaskPosition(NamedTuple):
    """Where a task stands: all that the next change is measured against."""

    owner: str
    seq: int
    """The sequence number of its last event."""
    snapshot_seq: int
    """The event that its snapshot was taken at; later events are kept one by one."""
    ended: bool


def position_after(change: Change, standing: TaskPosition | None, context_owner: str | None) -> TaskPosition:
    """Where the task stands once the change is kept.

    `standing` is None for a task that is not stored, `context_owner` is None for a context without a task.
    Raises StoreConflictError when the change does not follow.
    """
    if change.origin is not None:
        return _first_standing(change, standing, context_owner)
    if standing is None:
        raise StoreConflictError(f"task {change.task_id} is not stored; make it with an origin first")
    owner, seq, snapshot_seq, ended = standing
    if ended:
        raise StoreConflictError(f"task {change.task_id} has ended with change {seq}; nothing follows it")
    if change.seq != seq + 1:
        raise StoreConflictError(
            f"task {change.task_id} is at change {seq}; {change.seq} does not follow, {seq + 1} would"
        )
    return TaskPosition(
        owner,
        change.seq,
        snapshot_seq if change.snapshot is None else change.seq,
        change.head is not None and change.head.ended,
    )


def _first_standing(change: Change, standing: TaskPosition | None, context_owner: str | None) -> TaskPosition:
    origin, head = change.origin, change.head
    if origin is None or head is None or change.snapshot is None or change.seq != 1:
        raise StoreConflictError(
            f"task {change.task_id} cannot be made: its first change is number 1, with a head and a snapshot"
        )
    if standing is not None:
        raise StoreConflictError(f"task {change.task_id} is stored already; use another id")
    if context_owner not in (None, origin.owner):
        raise StoreConflictError(
            f"context {origin.context_id} belongs to someone else; use another context id"
        )
    return TaskPosition(origin.owner, 1, 1, head.ended)
