"""A stream of events as an HTTP response, with heartbeats and a bound on slow readers.

The response is plain ASGI, since every idle stream holds one open. It has no task group, no second task that waits for
the client to disconnect, and no timer of its own: all streams of an agent share two timers. A disconnect is noticed at
the next heartbeat; until then, writes are discarded.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, cast

import anyio
from starlette.types import Message, Receive, Scope, Send

from bridge.a2a.server.service import Stream
from bridge.a2a.tasks.watcher import WatchedEvent
from bridge.a2a.wire.dialect import EventEncoder
from bridge.concurrency import WaitingLine
from bridge.http.sse import HEARTBEAT, frame
from bridge.settings import StreamSettings

logger = logging.getLogger(__name__)

_WRITE_BYTES: Final = 65_536
"""Available events are written together, up to this size. Above it, the server's buffer is full and the server waits
for the reader."""

_EARLY_SECONDS: Final = 0.05
"""How early a heartbeat may come, so that one turn of the event loop serves several streams."""


class StreamTimers:
    """The timers that all streams of an agent share: for their heartbeats, and for readers that stall."""

    def __init__(self, settings: StreamSettings) -> None:
        self.stall_seconds = settings.stall_seconds
        early_seconds = min(_EARLY_SECONDS, settings.heartbeat_seconds / 10)
        self.idle = WaitingLine[EventStream](
            settings.heartbeat_seconds, lambda stream: stream.beat(), early_seconds
        )
        """Streams that wait for an event."""
        self.sending = WaitingLine[EventStream](settings.stall_seconds, lambda stream: stream.stall())
        """Streams that wait for their reader."""


_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-store",
    "x-accel-buffering": "no",
}


class EventStream:
    """The response to a streamed operation. It closes its stream in every case."""

    def __init__(
        self,
        stream: Stream,
        writer: EventEncoder,
        wrap: Callable[[bytes], bytes],
        timers: StreamTimers,
        headers: Mapping[str, str],
        seconds_left: float = math.inf,
    ) -> None:
        """`writer` encodes events in the client's dialect; `wrap` puts each into the envelope of the binding. After
        `seconds_left` the stream ends, at the next event or heartbeat."""
        self._ends_at = math.inf if seconds_left == math.inf else anyio.current_time() + seconds_left
        self.stream = stream
        self._writer = writer
        self._wrap = wrap
        self._timers = timers
        self.was_written = False
        """Whether the whole stream was written to a connected reader."""
        self._is_ended = False
        self._is_beat_due = False
        self._scope = anyio.CancelScope()
        """Cancelled when the reader stalls."""
        self._headers = headers

    def end(self) -> None:
        """End the stream. Queued events are dropped."""
        self._is_ended = True
        self.stream.close()

    def beat(self) -> None:
        """Send a heartbeat, because no event came in time."""
        self._is_beat_due = True
        self.stream.wake()

    def stall(self) -> None:
        """Close the stream, because its reader read nothing in time."""
        self._scope.cancel()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._scope:
                await send({"type": "http.response.start", "status": 200, "headers": self._raw_headers()})
                if await self._events(receive, send):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            if self._scope.cancelled_caught:
                logger.warning(
                    "a client read nothing for %g s; its stream is closed", self._timers.stall_seconds
                )
            # A stalled reader would not read the end of the body either, so the server closes the incomplete response.
        finally:
            self.stream.close()

    def _raw_headers(self) -> list[tuple[bytes, bytes]]:
        headers = {**_HEADERS, **self._headers}
        return [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def _events(self, receive: Receive, send: Send) -> bool:
        """Send the events of the stream. Returns whether the reader stayed until the end."""
        last = False
        while not last:
            if self._is_ended or self._is_late:
                return True
            if (seen := self.stream.take()) is not None:
                body, last = self._frames(seen)
            elif self.stream.is_over:
                return True
            elif await self._is_idle():
                body = HEARTBEAT
            else:
                continue
            if (last or body is HEARTBEAT) and is_disconnected(receive):
                return False
            self._timers.sending.add(self)
            try:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            finally:
                self._timers.sending.discard(self)
        self.was_written = True
        return True

    @property
    def _is_late(self) -> bool:
        return self._ends_at != math.inf and anyio.current_time() >= self._ends_at

    async def _is_idle(self) -> bool:
        """Wait for a change. Returns whether a heartbeat is due because nothing has changed."""
        self._is_beat_due = False
        self._timers.idle.add(self)
        try:
            await self.stream.wait()
        finally:
            self._timers.idle.discard(self)
        return self._is_beat_due

    def _frames(self, seen: WatchedEvent | None) -> tuple[bytes, bool]:
        """The frames of an event and of the available events after it, and whether they are the last frames of the
        stream."""
        frames, size, last = [], 0, False
        while seen is not None and not last:
            for text in self._writer.write(seen.text, last=seen.last):
                frames.append(frame(self._wrap(text)))
                size += len(frames[-1])
            last = seen.last or self._writer.is_over
            seen = self.stream.take() if size < _WRITE_BYTES and not last else None
        return b"".join(frames), last


def is_disconnected(receive: Receive) -> bool:
    """Whether the server knows already that the client has disconnected."""
    # Every request calls this. A cancel scope with a deadline of zero does the same in three rounds of the event loop.
    while (message := _at_hand(receive)) is not None:
        if message["type"] == "http.disconnect":
            return True  # any other message is part of a body that is not needed
    return False


def _at_hand(receive: Receive) -> Message | None:
    """The next message; None if there is none yet."""
    receiving = receive().__await__()
    try:
        next(receiving)
    except StopIteration as received:
        return cast("Message", received.value)
    receiving.close()
    return None
