"""The records of a store, and the rule by which a change follows. What every store promises is in `contract.py`.

This module knows no protocol model: a task is an identity, a few columns to find it by, and bytes that only their
writer understands. It must never import a model, and it knows no table, no file and no clock.

A task is a *snapshot* and the events after it. Each event has the next sequence number of its task, from 1 and without
gaps. A change may carry a new snapshot, which replaces the old one and every event up to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.errors import StoreConflictError
from bridge.store.outbox import KeptWebhook, Webhook


@dataclass(frozen=True, slots=True)
class TaskOrigin:
    """The properties of a task that never change."""

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
    """The key of an accepted message, by which a repeat is recognised."""

    message_id: str
    digest: bytes
    """A hash of the message's content."""
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """One step in the life of a task. A store keeps a change as a whole or not at all.

    A change with `origin` creates the task. Its `seq` is 1, and it has a `head` and a `snapshot`.
    """

    task_id: str
    seq: int
    event: bytes
    head: TaskHead | None = None
    """None leaves the stored head as it is."""
    snapshot: bytes | None = None
    """The task as of `seq`; the events up to it are no longer kept one by one."""
    private: bytes | None = None
    """Replaces the worker's bytes, which are kept with the task. None leaves them; b"" clears them."""
    message: MessageKey | None = None
    replaces: str | None = None
    """The task that the message of this id went to before, as its writer knows it; None for a message that is new. A
    store with replicas refuses a change that makes or claims a task with RepeatedMessageError if the message of this id
    goes to another task. It never refuses the holder's change for its message: the newest message wins there as well,
    since a refusal would take the events of running work with it."""
    origin: TaskOrigin | None = None
    webhook: Webhook | None = None
    """A webhook to add, for this event and those after it. It replaces the one of its key."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task as a store returns it."""

    task_id: str
    origin: TaskOrigin
    head: TaskHead
    seq: int
    """The sequence number of its last event."""
    snapshot: bytes
    events: tuple[bytes, ...]
    """The events after the snapshot, in order."""
    private: bytes
    holder: str | None = None
    """The epoch of the replica that holds the task; None while it rests, after its end, and without replicas."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The answer to a message, which was written in full to its client."""

    at_ms: int
    is_repeatable: bool
    """Whether the work that it answers may be done twice."""
    age_ms: int = 0
    """How long ago that was, by the store's one clock."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message's key, and the task that the message went to."""

    task_id: str
    key: MessageKey
    age_ms: int | None = None
    """With replicas: how long ago the message was stored, by the store's one clock. The clocks of two replicas may
    differ."""
    answer: WrittenAnswer | None = None
    """With replicas: the answer, once it was written."""


@dataclass(frozen=True, slots=True)
class WholeTask:
    """A task with all that a store keeps for it, as it goes from one store to another."""

    task: StoredTask
    """Without its holder."""
    messages: tuple[StoredMessage, ...]
    """The messages that went to it, in the order of their ids."""
    webhooks: tuple[KeptWebhook, ...] = ()
    """Its webhooks, in the order of their ids."""

    @property
    def size(self) -> int:
        """Its bytes, about."""
        task = self.task
        pushed = sum(len(row.event) for kept in self.webhooks for row in kept.rows)
        return len(task.snapshot) + sum(map(len, task.events)) + len(task.private) + pushed


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a listing: the last row of a page."""

    status_ms: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query for tasks of one owner, or of all: newest status first, ties by task id descending."""

    owner: str | None
    limit: int
    context_id: str | None = None
    state: str | None = None
    status_from_ms: int | None = None
    """Only tasks whose status is at least this new."""
    after: Cursor | None = None
    """Only rows after this position."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of a listing."""

    tasks: tuple[StoredTask, ...]
    total: int
    """How many tasks match, on all pages."""
    more: bool
    """Whether rows follow the last one of this page."""


UNBOUNDED: Final = 1 << 62
"""A number of bytes that no store reaches."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many ended tasks are kept, and how many bytes of them. The newest ones are kept."""

    total: int
    """Ended tasks of all owners."""
    each: int
    """Ended tasks of one owner."""
    total_bytes: int = UNBOUNDED
    """Bytes of the snapshots of all owners. An ended task has nothing else that is large."""
    each_bytes: int = UNBOUNDED
    """Bytes of the snapshots of one owner."""

    @property
    def of_bytes(self) -> Quota:
        """The bounds in bytes as a quota with bytes in place of tasks."""
        return Quota(self.total_bytes, self.each_bytes)


class TaskPosition(NamedTuple):
    """The position of a task, which decides whether the next change follows."""

    owner: str
    seq: int
    """The sequence number of its last event."""
    snapshot_seq: int
    """The sequence number of its snapshot. Later events are kept one by one."""
    ended: bool


def position_after(change: Change, before: TaskPosition | None, context_owner: str | None) -> TaskPosition:
    """The position of a task after a change.

    `before` is its position before, or None for a task that is not stored. `context_owner` is None for a context
    without a task.

    Raises:
        StoreConflictError: the change does not follow.
    """
    if change.origin is not None:
        return _first_position(change, before, context_owner)
    if before is None:
        raise StoreConflictError(f"task {change.task_id} is not stored; make it with an origin first")
    owner, seq, snapshot_seq, ended = before
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


def _first_position(change: Change, before: TaskPosition | None, context_owner: str | None) -> TaskPosition:
    origin, head = change.origin, change.head
    if origin is None or head is None or change.snapshot is None or change.seq != 1:
        raise StoreConflictError(
            f"task {change.task_id} cannot be made: its first change is number 1, with a head and a snapshot"
        )
    if before is not None:
        raise StoreConflictError(f"task {change.task_id} is stored already; use another id")
    if context_owner not in (None, origin.owner):
        raise StoreConflictError(
            f"context {origin.context_id} belongs to someone else; use another context id"
        )
    return TaskPosition(origin.owner, 1, 1, head.ended)
