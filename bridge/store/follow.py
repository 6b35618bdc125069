"""Whether a change follows what is stored: the one rule that every store applies before it keeps anything.

It knows the order of a task's changes and who owns a context. It knows no table, no file and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.errors import StoreConflictError

if TYPE_CHECKING:
    from bridge.store.records import Change


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
