"""The messages of a server on their way from a transport to the wire, in order.

The wire takes an answer at once if it has handled all earlier messages. So the answer to a call wakes the call's task
directly. Any other message waits here for the wire's task, which lets other tasks run before each message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.lowlevel
from mcp.shared.message import SessionMessage

from bridge.concurrency import Signal

_WAITING_MOST: Final = 16
"""The most messages that wait for the wire. The transport reads no further until one of them is handled."""


class Incoming:
    """A `ReadStream` of the SDK, for one reader."""

    def __init__(self) -> None:
        self.take_at_once: Callable[[SessionMessage], bool] = lambda _: False
        """Handles a message without waiting, or returns False."""
        self._waiting: deque[SessionMessage | Exception] = deque()
        self._is_idle = False
        """Whether the reader has handled every message that it has received."""
        self._moved = Signal()
        """Signalled when a message has come or was received, and at the end."""
        self._has_ended = False
        self._is_closed = False

    async def put(self, item: SessionMessage | Exception) -> None:
        """Pass on what the server has sent, or the reason why it cannot be read.

        Raises:
            BrokenResourceError: the reader is gone.
        """
        if (
            self._is_idle
            and not self._waiting
            and isinstance(item, SessionMessage)
            and self.take_at_once(item)
        ):
            return
        while len(self._waiting) >= _WAITING_MOST and not self._is_closed:
            await self._moved.wait()
        if self._is_closed:
            raise anyio.BrokenResourceError
        self._waiting.append(item)
        self._moved.notify()

    def end(self) -> None:
        """End the messages: the server sends no more."""
        self._has_ended = True
        self._moved.notify()

    def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        self._moved.notify()

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            EndOfStream: the messages have ended.
            ClosedResourceError: the reader has closed the stream.
        """
        if self._waiting:
            await anyio.lowlevel.checkpoint()
        self._is_idle = True
        try:
            while not self._waiting and not self._has_ended and not self._is_closed:
                await self._moved.wait()
        finally:
            self._is_idle = False
        if self._is_closed:
            raise anyio.ClosedResourceError
        if not self._waiting:
            raise anyio.EndOfStream
        self._moved.notify()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Stop reading."""
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
