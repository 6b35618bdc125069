"""The records of a store, and the rule that decides whether a change follows. `contract.py` has the store's promises.

This module knows no protocol model: a task is an identity, a few columns to find it by, and bytes that only their
writer understands. It must never import a model, and it knows no table, no file and no clock.

A task is a *snapshot* and the events after it. Its events have consecutive sequence numbers, starting at 1. A change
may carry a new snapshot, which replaces the old snapshot and every event up to the change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.errors import StoreConflictError
from bridge.frozen import frozen
from bridge.store.outbox import KeptWebhook, Webhook


@dataclass(frozen=True, slots=True)
class TaskOrigin:
    """The properties of a task that never change."""

    context_id: str
    owner: str
    """The principal that owns the task and its context."""
    created_ms: int
    """Milliseconds since the epoch, UTC, like all other `_ms` values in this module."""


@frozen
class TaskHead:
    """The columns by which queries find and order tasks."""

    state: str
    ended: bool
    """Whether `state` is final. This follows from `state` alone."""
    status_ms: int


@frozen
class MessageKey:
    """The key of an accepted message. It identifies repeats of the message."""

    message_id: str
    digest: bytes
    """A hash of the message's content."""
    accepted_ms: int


@frozen
class Change:
    """A step in the life of a task. A store keeps a change as a whole or not at all.

    A change with an `origin` creates the task. Its `seq` is 1, and it has a `head` and a `snapshot`.
    """

    task_id: str
    seq: int
    event: bytes
    head: TaskHead | None = None
    """None leaves the stored head as it is."""
    snapshot: bytes | None = None
    """The task as of `seq`. It replaces the events up to `seq`."""
    private: bytes | None = None
    """New bytes of the worker, which the store keeps with the task. None leaves the old bytes; b"" clears them."""
    message: MessageKey | None = None
    replaces: str | None = None
    """The task that got the message with this id before, as far as the writer knows; None for a new message. A store
    with replicas refuses a change that makes or claims a task with RepeatedMessageError if another task got the
    message. It never refuses a change by the task's holder because of its message, since the events of running work
    would be lost: there the newest message wins too."""
    origin: TaskOrigin | None = None
    webhook: Webhook | None = None
    """A webhook to add, for this event and later ones. It replaces the webhook with the same key."""
    may_wait: bool = False
    """Whether the change may be stored together with the next change of any task, because nobody waits for it. A store
    waits only a moment for the next change."""


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
    """The epoch of the replica that holds the task; None if the task rests or has ended, or without replicas."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The answer to a message that was written in full to its client."""

    at_ms: int
    is_repeatable: bool
    """Whether the work behind the answer may be done twice."""
    age_ms: int = 0
    """How long ago the answer was written, by the store's clock."""


@frozen
class StoredMessage:
    """A message's key, and the task that got the message."""

    task_id: str
    key: MessageKey
    age_ms: int | None = None
    """With replicas: how long ago the message was stored, by the store's clock. The clocks of replicas may differ."""
    answer: WrittenAnswer | None = None
    """With replicas: the answer, if it was written."""


@dataclass(frozen=True, slots=True)
class WholeTask:
    """A task with all that a store keeps for it, in the form that moves from one store to another."""

    task: StoredTask
    """The task, with no holder."""
    messages: tuple[StoredMessage, ...]
    """The messages that the task got, ordered by id."""
    webhooks: tuple[KeptWebhook, ...] = ()
    """Its webhooks, ordered by id."""

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        task = self.task
        pushed = sum(len(row.event) for webhook in self.webhooks for row in webhook.rows)
        return len(task.snapshot) + sum(map(len, task.events)) + len(task.private) + pushed


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a listing: the last row of a page."""

    status_ms: int
    task_id: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query for tasks of an owner, or of all owners: newest status first, ties by task id descending."""

    owner: str | None
    limit: int
    context_id: str | None = None
    state: str | None = None
    status_from_ms: int | None = None
    """Only tasks whose status has this time or a later one."""
    after: Cursor | None = None
    """Only rows after this position."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of a listing."""

    tasks: tuple[StoredTask, ...]
    total: int
    """The number of matching tasks on all pages."""
    more: bool
    """Whether another page follows."""


UNBOUNDED: Final = 1 << 62
"""A bound in bytes that no store reaches."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The bounds on ended tasks, in number and in bytes. Above a bound the oldest tasks are deleted."""

    total: int
    """Ended tasks of all owners."""
    each: int
    """Ended tasks of each owner."""
    total_bytes: int = UNBOUNDED
    """Bytes of the snapshots of all owners. Everything else in an ended task is small."""
    each_bytes: int = UNBOUNDED
    """Bytes of the snapshots of each owner."""

    @property
    def of_bytes(self) -> Quota:
        """A quota of bytes: its `total` and `each` are `total_bytes` and `each_bytes`."""
        return Quota(self.total_bytes, self.each_bytes)


class TaskPosition(NamedTuple):
    """The position of a task. It decides whether a change follows."""

    owner: str
    seq: int
    """The sequence number of its last event."""
    snapshot_seq: int
    """The sequence number of its snapshot. Later events are stored individually."""
    ended: bool


def position_after(change: Change, before: TaskPosition | None, context_owner: str | None) -> TaskPosition:
    """The position of a task after a change.

    `before` is the position before the change, or None for a task that is not stored. `context_owner` is None for a
    context without a task.

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
            f"task {change.task_id} is at change {seq}: change {change.seq} does not follow, but {seq + 1} would"
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
            f"task {change.task_id} cannot be made: its first change must be number 1, with a head and a snapshot"
        )
    if before is not None:
        raise StoreConflictError(f"task {change.task_id} is stored already; use another id")
    if context_owner not in (None, origin.owner):
        raise StoreConflictError(
            f"context {origin.context_id} belongs to someone else; use another context id"
        )
    return TaskPosition(origin.owner, 1, 1, head.ended)
