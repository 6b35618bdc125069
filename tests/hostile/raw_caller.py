"""A caller with nothing between it and the wire, who sends what it likes and reads what comes back."""

from __future__ import annotations

import json
from contextlib import suppress

import anyio
from anyio.abc import SocketStream


async def until_closed(stream: SocketStream) -> bytes:
    """All that comes before the connection ends, however it ends."""
    said = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            said += await stream.receive()
    return said


async def flood(stream: SocketStream, piece: bytes, pieces: int) -> int:
    """Send as long as the other side takes it; how many pieces that were."""
    sent = 0
    with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
        while sent < pieces:
            await stream.send(piece)
            sent += 1
    return sent


def refusal_in(said: bytes) -> tuple[int, str, bool]:
    """The status and the words of an answer, and whether it says when to come again."""
    head, _, body = said.partition(b"\r\n\r\n")
    status, words = int(head.split()[1]), json.loads(body)["error"]["message"]
    assert b"connection: close" in head
    return status, words, b"retry-after: 1" in head
