"""Decompressed bodies of HTTP responses, bounded in bytes and values.

The bounds count the decompressed size of a body, or of each event of an event stream. Above a bound, an error is raised
that the SDK handles.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx2

from bridge.errors import reason_of
from bridge.mcp.client.faults import LIMITED_BY, VALUES_LIMITED_BY
from bridge.text.jsonvalues import holds_more_values

_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_ENDS_BYTES: Final = 3
"""How many bytes of the separator after an event may be in the chunk before."""
_OF_PACKING: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""The headers that describe the original transfer of a body. They do not fit the decompressed body."""


class TooLargeError(httpx2.SSEError):
    """The response is above a limit. The SDK passes on the message of an SSEError, and does not resume the stream."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one message, in bytes and in values."""

    size: int
    values: int

    def require_size(self, size: int) -> None:
        """Raises TooLargeError if a size in bytes is above the limit."""
        if size > self.size:
            raise TooLargeError(f"the response is larger than {self.size} bytes: {LIMITED_BY}")

    def require_few_values(self, text: bytes) -> None:
        """Raises TooLargeError if a JSON text has too many values and keys."""
        if holds_more_values(text, self.values):
            raise TooLargeError(
                f"the response holds more than {self.values} values and keys: {VALUES_LIMITED_BY}"
            )


def unpacked(
    request: httpx2.Request, packed: httpx2.Response, bounds: Bounds, *, in_events: bool
) -> httpx2.Response:
    """The response without its content encoding. The limits count the decompressed bytes."""
    # Raw bytes, since a header value beyond ASCII could not be encoded again.
    headers = [(name, value) for name, value in packed.headers.raw if name.lower() not in _OF_PACKING]
    return httpx2.Response(
        packed.status_code,
        headers=headers,
        stream=(BoundedEvents if in_events else BoundedBody)(packed, bounds),
        request=request,
        extensions=packed.extensions,
    )


class BoundedBody(httpx2.AsyncByteStream):
    """A decompressed response body. If it breaks off or is too large, it raises an error that the SDK handles."""

    def __init__(self, packed: httpx2.Response, bounds: Bounds) -> None:
        self._packed = packed
        self._bounds = bounds
        self._size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            # Chunks have at most 1 MiB, even if a few bytes decompress to much more.
            async with aclosing(self._packed.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    self._judge(chunk)
                    yield chunk
        except TooLargeError:
            raise
        except (httpx2.TransportError, httpx2.DecodingError) as exc:
            raise httpx2.StreamError(f"the response broke off: {reason_of(exc)}") from exc

    def _judge(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._bounds.require_size(self._size)

    async def aclose(self) -> None:
        await self._packed.aclose()


class BoundedEvents(BoundedBody):
    """A stream of events. Each event is bounded; the stream itself is not.

    An event is checked before its end is passed on, so the SDK never sees an event that is too large.
    """

    def __init__(self, packed: httpx2.Response, bounds: Bounds) -> None:
        super().__init__(packed, bounds)
        self._event = bytearray()
        """The part of the current event that has arrived."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The chunks. A byte order mark before the first event is removed, since the SDK would read it as part of the
        event."""
        first: bytes | None = b""
        async for chunk in super().__aiter__():
            if first is None:
                yield chunk
            elif len(first + chunk) < len(BOM_UTF8):
                first += chunk
            else:
                yield (first + chunk).removeprefix(BOM_UTF8)
                first = None
        if first:
            yield first

    def _judge(self, chunk: bytes) -> None:
        rest = self._event[-_ENDS_BYTES:]
        end, *others = _EVENT_END.split(rest + chunk)
        if not others:
            self._event += chunk
            self._bounds.require_size(len(self._event))
            return
        self._event[len(self._event) - len(rest) :] = end
        self._bounds.require_size(max(len(self._event), *map(len, others)))
        for event in (self._event, *others[:-1]):
            if len(event) > self._bounds.values:
                self._bounds.require_few_values(_data_of(event))
        self._event = bytearray(others[-1])


def _data_of(event: bytes | bytearray) -> bytes:
    """The data of an event, without its framing."""
    return b"\n".join(line[5:] for line in _LINE_END.split(event) if line.startswith(b"data:"))
