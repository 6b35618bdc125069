"""The promise that an accepted event will be stored."""

from __future__ import annotations

from collections.abc import Callable, Generator

import anyio


class Commit:
    """Says when an event is stored. Awaiting it raises the StoreError when it was not."""

    __slots__ = ("_callbacks", "_done", "_error")

    def __init__(self, *, done: bool = False) -> None:
        self._done = done
        self._error: Exception | None = None
        self._callbacks: list[Callable[[], object]] = []

    def settle(self, error: Exception | None) -> None:
        """It is stored, or never will be."""
        self._done, self._error = True, error
        for callback in self._callbacks:
            callback()

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call back once the store has answered; at once when it has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    async def _wait(self) -> None:
        if not self._done:
            settled = anyio.Event()
            self._callbacks.append(settled.set)
            await settled.wait()
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[object, None, None]:
        return self._wait().__await__()
