"""A stream of events as an HTTP response, with heartbeats and a bound on slow readers.

The response is plain ASGI, since every idle stream holds one open. It has no task group and no second task that waits
for the client to disconnect. A disconnect is noticed at the next heartbeat; until then, writes are discarded.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import cast

import anyio
from starlette.types import Message, Receive, Scope, Send

from bridge.a2a.server.service import Stream
from bridge.a2a.tasks.watcher import WatchedEvent
from bridge.a2a.wire.dialect import EventEncoder
from bridge.http.sse import HEARTBEAT, frame
from bridge.settings import StreamSettings

logger = logging.getLogger(__name__)


class EventStream:
    """The response to a streamed operation. It closes its stream in every case."""

    def __init__(
        self,
        stream: Stream,
        writer: EventEncoder,
        wrap: Callable[[bytes], bytes],
        pace: StreamSettings,
        headers: Mapping[str, str],
        seconds_left: float = math.inf,
    ) -> None:
        """`writer` encodes events in the client's dialect; `wrap` puts each into the envelope of the binding. After
        `seconds_left` the stream ends, at the next event or heartbeat."""
        self._ends_at = anyio.current_time() + seconds_left
        self.stream = stream
        self._writer = writer
        self._wrap = wrap
        self._pace = pace
        self.was_written = False
        """Whether the whole stream was written to a connected reader."""
        self._is_ended = False
        self._headers = {
            "content-type": "text/event-stream",
            "cache-control": "no-cache, no-store",
            "x-accel-buffering": "no",
            **headers,
        }

    def end(self) -> None:
        """End the stream. Queued events are dropped."""
        self._is_ended = True
        self.stream.close()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = [(name.lower().encode(), value.encode()) for name, value in self._headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            if await self._events(receive, send):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            # A stalled reader would not read the end of the body either, so the server closes the incomplete response.
        finally:
            self.stream.close()

    async def _events(self, receive: Receive, send: Send) -> bool:
        """Send the events of the stream. Returns whether the reader stayed until the end."""
        last = False
        while not last:
            if anyio.current_time() >= self._ends_at:
                return True
            body = HEARTBEAT
            with anyio.move_on_after(self._pace.heartbeat_seconds):
                seen = None if self._is_ended else await self.stream.next()
                if seen is None or self._is_ended:
                    return True
                body = self._frames(seen)
                last = seen.last or self._writer.is_over
            if (last or body is HEARTBEAT) and is_disconnected(receive):
                return False
            with anyio.move_on_after(self._pace.stall_seconds) as patience:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if patience.cancelled_caught:
                logger.warning(
                    "a client read nothing for %g s; its stream is closed", self._pace.stall_seconds
                )
                return False
        self.was_written = True
        return True

    def _frames(self, seen: WatchedEvent) -> bytes:
        """The frames of an event, usually one."""
        return b"".join([frame(self._wrap(text)) for text in self._writer.write(seen.text, last=seen.last)])


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
