"""Unpacked bodies of HTTP responses, bounded in bytes and values.

A body, or each event of a stream of events, is bounded by what it unpacks to. What is above a bound raises an error
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
"""How many bytes of the separator after an event may stand in the chunk before."""
_OF_PACKING: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""The headers that describe the transfer of a body, which is not passed on as it came."""


class TooLargeError(httpx2.SSEError):
    """The response is above a limit. The SDK passes on the message of an SSEError, and does not resume the stream."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one message, in bytes and in values."""

    size: int
    values: int

    def require_size(self, size: int) -> None:
        """Raises TooLargeError when a size in bytes is above the limit."""
        if size > self.size:
            raise TooLargeError(f"the response is larger than {self.size} bytes: {LIMITED_BY}")

    def require_few_values(self, text: bytes) -> None:
        """Raises TooLargeError when a JSON text holds too many values and keys."""
        if holds_more_values(text, self.values):
            raise TooLargeError(
                f"the response holds more than {self.values} values and keys: {VALUES_LIMITED_BY}"
            )


def unpacked(
    request: httpx2.Request, packed: httpx2.Response, bounds: Bounds, *, in_events: bool
) -> httpx2.Response:
    """The same response without its content encoding. The limits count the unpacked bytes."""
    # As bytes: a header value beyond ASCII could not be encoded again.
    headers = [(name, value) for name, value in packed.headers.raw if name.lower() not in _OF_PACKING]
    return httpx2.Response(
        packed.status_code,
        headers=headers,
        stream=(BoundedEvents if in_events else BoundedBody)(packed, bounds),
        request=request,
        extensions=packed.extensions,
    )


class BoundedBody(httpx2.AsyncByteStream):
    """An unpacked response body. When it breaks off or is too large, it raises an error that the SDK handles."""

    def __init__(self, packed: httpx2.Response, bounds: Bounds) -> None:
        self._packed = packed
        self._bounds = bounds
        self._size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            # Chunks of 1 MiB at most, even when a few bytes unpack to much more.
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

    An event is checked before its end is passed on, so that the SDK never sees an event that is too large.
    """

    def __init__(self, packed: httpx2.Response, bounds: Bounds) -> None:
        super().__init__(packed, bounds)
        self._event = bytearray()
        """The part of the current event that has arrived."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The chunks. A byte order mark before the first event is left out, which the SDK would take for a part of
        it."""
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
