"""Moves all that one store keeps to another, and compares both sides. What a store keeps is in `contract.py`.

The target keeps all or nothing: it is compared before its block ends. So a move that failed is just begun again.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bridge.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from bridge.store.contract import StoreContents
    from bridge.store.records import WholeTask

ADDED_AT_ONCE: Final = 256
ADDED_BYTES: Final = 8 * 1024 * 1024
"""The bounds of what is in memory at a time. A task may be larger."""


async def move(
    source: StoreContents,
    target: StoreContents,
    *,
    on_moved: Callable[[int], None] = lambda _: None,
    on_compared: Callable[[int], None] = lambda _: None,
) -> int:
    """Add every task of one store to another, which is empty, and compare them. Returns how many there are.

    The callbacks are told how many tasks were added, and how many were compared.

    Raises:
        UsageError: the target has tasks.
        StoreError: a store cannot be read or written, or a task is not the same on both sides.
    """
    if there := await target.count():
        raise UsageError(f"the store to move to has {there} tasks: name one that has none")
    moved = 0
    async with aclosing(_groups(source.tasks())) as groups:
        async for group in groups:
            await target.add(group)
            moved += len(group)
            on_moved(moved)
    await _compare(source.tasks(), target.tasks(), on_compared)
    return moved


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


async def _compare(
    source: AsyncIterator[WholeTask], target: AsyncIterator[WholeTask], on_compared: Callable[[int], None]
) -> None:
    compared = 0
    async for task in source:
        found = await anext(target, None)
        if found is None or _as_kept_by_all(found) != _as_kept_by_all(task):
            raise StoreError(
                f"task {task.task.task_id} is not the same in the store to move to; nothing was moved"
            )
        compared += 1
        if not compared % ADDED_AT_ONCE:
            on_compared(compared)
    if (more := await anext(target, None)) is not None:
        raise StoreError(f"the store to move to has a task {more.task.task_id} of its own; nothing was moved")
    on_compared(compared)


def _as_kept_by_all(whole: WholeTask) -> WholeTask:
    """A task without what stores without replicas do not keep."""
    messages = (replace(message, age_ms=None, answer=None) for message in whole.messages)
    return replace(whole, messages=tuple(messages))
