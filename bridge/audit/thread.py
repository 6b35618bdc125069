"""A thread for work that waits for the disk. It cannot keep the process from ending.

At its end the interpreter waits for the threads of a pool, even for a thread that a disk or a pipe blocks forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class DiskThread(Generic[_Result]):
    """A thread that does one job after another. Create it on the event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], _Result], asyncio.Future[_Result]] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Do `work` in the thread, and return its result. A cancellation ends only the wait, not the work."""
        done: asyncio.Future[_Result] = self._loop.create_future()
        self._jobs.put((work, done))
        return await done

    def end(self) -> None:
        """End the thread after the jobs that it has."""
        self._jobs.put(None)

    def _run(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            while (job := self._jobs.get()) is not None:
                work, done = job
                try:
                    tell = partial(_set_result, done, work())
                except BaseException as exc:  # noqa: BLE001 - `run` raises it
                    tell = partial(_set_exception, done, exc)
                self._loop.call_soon_threadsafe(tell)


def _set_result(done: asyncio.Future[_Result], result: _Result) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: asyncio.Future[_Result], exc: BaseException) -> None:
    if not done.done():
        done.set_exception(exc)
