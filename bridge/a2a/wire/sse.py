"""Server-sent events: how a stream is framed. Pure; `bridge.sse` reads them.

Spec: A2A 1.0 sections 9.4.2 and 11.7; HTML, "server-sent events".
"""

from __future__ import annotations

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
