"""Copies the whole content of one store to another store, and compares both. `contract.py` defines the content.

The comparison comes before the context of the target ends, so the target keeps all tasks or none. After a failed move
the user starts again, and a repeated move finds that the first one was complete.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bridge.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from bridge.store.contract import StoreContents
    from bridge.store.records import WholeTask

ADDED_AT_ONCE: Final = 256
ADDED_BYTES: Final = 8 * 1024 * 1024
"""The bounds of the tasks that are in memory at a time. A single task may be larger."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move."""

    tasks: int
    unfinished: int
    """The number of unfinished tasks among `tasks`."""
    is_repeat: bool = False
    """Whether the target had the same tasks before the move."""


async def move(
    source: StoreContents, target: StoreContents, progress: Callable[[str, int], None] = lambda *_: None
) -> Moved:
    """Add every task of `source` to `target`, and compare both. A target that has the same tasks stays unchanged.

    `progress` gets the name of the step ("added", "compared") and the number of tasks so far.

    Raises:
        UsageError: the target has other tasks.
        StoreError: a store cannot be read or written, or a task differs between the stores.
    """
    if there := await target.count():
        try:
            return replace(await _compared(source, target, progress), is_repeat=True)
        except StoreError as exc:
            many = "a task" if there == 1 else f"{there} tasks"
            raise UsageError(f"the target store has {many} already: name a store without tasks") from exc
    added = 0
    async with aclosing(_groups(source.tasks())) as groups:
        async for group in groups:
            await target.add(group)
            added += len(group)
            progress("added", added)
    return await _compared(source, target, progress)


async def _groups(tasks: AsyncIterator[WholeTask]) -> AsyncGenerator[list[WholeTask], None]:
    group: list[WholeTask] = []
    size = 0
    async for task in tasks:
        group.append(task)
        size += task.size
        if len(group) == ADDED_AT_ONCE or size >= ADDED_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


async def _compared(
    source: StoreContents, target: StoreContents, progress: Callable[[str, int], None]
) -> Moved:
    compared = unfinished = 0
    others = target.tasks()
    async for task in source.tasks():
        other = await anext(others, None)
        if other is None or _without_replica_fields(other) != _without_replica_fields(task):
            raise StoreError(f"task {task.task.task_id} differs in the target store; nothing was moved")
        compared += 1
        unfinished += not task.task.head.ended
        if not compared % ADDED_AT_ONCE:
            progress("compared", compared)
    if (more := await anext(others, None)) is not None:
        raise StoreError(f"the target store has the additional task {more.task.task_id}; nothing was moved")
    return Moved(compared, unfinished)


def _without_replica_fields(whole: WholeTask) -> WholeTask:
    """A task with only the fields that every store keeps: stores without replicas drop ages and answers of messages."""
    messages = (replace(message, age_ms=None, answer=None) for message in whole.messages)
    return replace(whole, messages=tuple(messages))
