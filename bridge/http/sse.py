"""Server-sent events: framing, and reading from chunks of bytes. Pure.

This module knows the framing and its bound, but not the content of events. Each byte is scanned once, regardless of the
size of the event and of the chunks.

Spec: HTML, "server-sent events"; A2A 1.0 sections 9.4.2 and 11.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

HEARTBEAT: Final = b": \n\n"
"""A comment, which readers ignore. It shows that the stream is alive."""

_ESCAPED: Final = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
"""Characters that JSON does not escape and that some readers treat as the end of a line."""


def frame(data: bytes) -> bytes:
    """An event whose data is a JSON text on one line."""
    for raw, escaped in _ESCAPED:
        data = data.replace(raw, escaped)
    return b"data: %b\n\n" % data


@dataclass(frozen=True, slots=True)
class SseEvent:
    """An event. Its type is `message` if it names none."""

    type: str
    data: bytes
    tail: bytes | None = None
    """The last bytes of an event above the limit, whose first bytes are in `data`. None for a complete event."""


class SseReader:
    """Reads server-sent events from chunks of bytes. Comments and events without data are ignored."""

    def __init__(self, limit_bytes: int, ends_bytes: int | None = None) -> None:
        """`limit_bytes` is the largest size of an event. A larger event keeps only its first and its last
        `ends_bytes`, or is an error if `ends_bytes` is None.
        """
        self._limit_bytes = limit_bytes
        self._ends_bytes = ends_bytes
        self._after_return = False
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._start_event()

    def _start_event(self) -> None:
        self._type = "message"
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._tail: bytes | None = None

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield each event that ends in this chunk.

        Raises:
            ValueError: an event is too large, and `ends_bytes` is None.
        """
        if not chunk:
            return
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF split between two chunks
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        for piece in ended:
            self._grow(piece)
            if (event := self._end_line()) is not None:
                yield event
        self._grow(rest)

    def rest(self) -> SseEvent | None:
        """The last event of a stream that ended without a blank line; None if there is no such event or it is too
        large."""
        if self._line and self._tail is None:
            self._end_line()
        event = None if self._tail is not None else self._event()
        self._start_event()
        return event

    def _grow(self, piece: bytes) -> None:
        self._line_bytes += len(piece)
        if self._tail is not None and self._ends_bytes is not None:
            self._tail = (self._tail + piece[-self._ends_bytes :])[-self._ends_bytes :]
            return
        self._line.append(piece)
        if self._line_bytes + self._data_bytes > self._limit_bytes:
            self._cut()

    def _cut(self) -> None:
        """Keep both ends of an event that is too large, and drop the middle."""
        if self._ends_bytes is None:
            raise ValueError(f"an event of more than {self._limit_bytes} bytes")
        line = b"".join(self._line)
        self._take(line)
        self._data = [b"\n".join(self._data)[: self._ends_bytes]]
        self._tail, self._line = line[-self._ends_bytes :], []

    def _end_line(self) -> SseEvent | None:
        """The event that the current line completes; None if it completes none."""
        line, is_blank = b"".join(self._line), self._line_bytes == 0
        self._line, self._line_bytes = [], 0
        if is_blank:
            event = self._event()
            self._start_event()
            return event
        if self._tail is None:
            self._take(line)
        else:
            self._tail += b"\n"
        return None

    def _take(self, line: bytes) -> None:
        field, _, value = line.removeprefix(_BYTE_ORDER_MARK).partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._type = value.decode("utf-8", "replace") or "message"

    def _event(self) -> SseEvent | None:
        data = b"\n".join(self._data)
        if self._tail is None:
            return SseEvent(self._type, data) if self._data else None
        return SseEvent(self._type, data, _data_in(self._tail)) if data else None


def _data_in(lines: bytes) -> bytes:
    """The data in the last bytes of an event. The bytes may begin in the middle of a line."""
    first, *others = lines.removesuffix(b"\n").split(b"\n")
    values = [line[5:].removeprefix(b" ") for line in others if line.startswith(b"data:")]
    return b"\n".join([first, *values])
