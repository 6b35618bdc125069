"""A part of a bridge that can be started and ended by itself, each on a task of its own.

What is entered has to be left on the same task, in the reverse order. A reload ends some parts and keeps others, so
they cannot be nested in one another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio
import anyio.abc

T = TypeVar("T")


class PartTask(Generic[T]):
    """One part: what `make` gives is entered when it starts, and left when it ends."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._wanted = anyio.Event()
        self._ended = anyio.Event()
        self._value: T | None = None

    async def start(self, group: anyio.abc.TaskGroup) -> T:
        """Enter it on a task of the group; raises what entering raises."""
        value: T = await group.start(self._run)
        self._value = value
        return value

    @property
    def value(self) -> T:
        """What was entered."""
        assert self._value is not None, "it has not been started"
        return self._value

    async def end(self) -> None:
        """Leave it, and wait until it is left."""
        self._wanted.set()
        await self._ended.wait()

    async def _run(self, *, task_status: anyio.abc.TaskStatus[T]) -> None:
        try:
            async with self._make() as value:
                task_status.started(value)
                await self._wanted.wait()
        finally:
            self._ended.set()
