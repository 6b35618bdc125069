"""Server-sent events: how a stream is framed, and how frames are read. Pure.

Spec: A2A 1.0 sections 9.4.2 and 11.7; HTML, "server-sent events".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HEARTBEAT: Final = b": \n\n"
"""A comment, which every reader passes over: it shows that the stream lives."""

_LINE_ENDS: Final = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
"""Characters that JSON leaves as they are and that some readers take for the end of a line."""


def frame(data: bytes) -> bytes:
    """One event whose data is a JSON text, on one line."""
    for raw, escaped in _LINE_ENDS:
        data = data.replace(raw, escaped)
    return b"data: %b\n\n" % data


_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class EventReader:
    """Server-sent events out of chunks of bytes, however they are cut. Comments are passed over.

    Spec: HTML, "server-sent events", interpreting an event stream.
    """

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is what one event may weigh."""
        self._limit_bytes = limit_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that ends in this chunk.

        Raises:
            ValueError: an event is too large.
        """
        if not chunk:
            return
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")  # the second half of a line end that was cut in two
            self._after_return = False
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        for piece in ended:
            self._grow(piece)
            line = b"".join(self._line)
            self._line, self._line_bytes = [], 0
            if (data := self._event_at(line)) is not None:
                yield data
        self._grow(rest)

    def _grow(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_bytes += len(piece)
        if self._line_bytes + self._data_bytes > self._limit_bytes:
            raise ValueError(f"an event of more than {self._limit_bytes} bytes")

    def _event_at(self, line: bytes) -> bytes | None:
        """The event that this line ends, if it does."""
        if not line:
            data, self._data, self._data_bytes = self._data, [], 0
            return b"\n".join(data) if data else None
        field, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value) + 1
        return None
