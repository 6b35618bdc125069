"""A peer on loopback that answers HTTP with any bytes at all, and never more than it was told."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

from tests.hostile.json_grammar import TEXTS
from tests.hostile.mutations import cut, mutated_text

HANG: Final = b"@HANG@"
"""In the place of a piece: says nothing more, and holds the connection."""

_STATUSES: Final = (b"200 OK", b"200 OK", b"200 OK", b"204 No", b"206 P", b"302 Found", b"304 No", b"400 Bad")
_MORE_STATUSES: Final = (
    b"401 U",
    b"404 N",
    b"429 T",
    b"500 E",
    b"503 U",
    b"999 ?",
    b"100 C",
    b"101 S",
    b"000 x",
)
_TYPES: Final = (
    b"application/json",
    b"application/a2a+json",
    b"text/event-stream",
    b"text/event-stream; charset=utf-16",
    b"text/html",
    b"",
)
_HEADERS: Final = (
    b"Content-Encoding: gzip",
    b"Content-Encoding: br, zstd, x",
    b"Location: //127.0.0.1:1/x",
    b"Location: \xff\xfe",
    b"Location: http://[",
    b"Location: /again",
    b'ETag: "\xe9\xff"',
    b"ETag: \x01",
    b"Cache-Control: max-age=99999999999, no-cache",
    b"Cache-Control: max-age=5",
    b"Age: 9999999999999999999999999",
    b"Expires: Mon, 01 Jan 0001 00:00:00 -9999",
    b"Date: x\nExpires: Fri, 31 Dec 9999 23:59:59 -2359",
    b"WWW-Authenticate: \xff, Basic",
    b"Mcp-Session-Id: a b",
    b"Set-Cookie: a=b",
    b"X: " + b"y" * 9000,
    b": nameless",
)


@dataclass(frozen=True)
class Reply:
    """What is written for one request, piece by piece."""

    pieces: Iterable[bytes]


def head_of(kind: bytes, *more: bytes) -> bytes:
    """The head of a response of some type whose end is that of the connection."""
    lines = (b"HTTP/1.1 200 OK", b"Content-Type: " + kind, b"Connection: close", *more)
    return b"\r\n".join(lines) + b"\r\n\r\n"


@cache
def bomb(size_bytes: int) -> bytes:
    """What gzip makes of the beginning of a text in JSON: a thousandth of what it unpacks to."""
    packer, piece = zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16), b"a" * (1 << 20)
    pieces = [packer.compress(b'{"a": "')]
    pieces += [packer.compress(piece) for _ in range(size_bytes >> 20)]
    return b"".join([*pieces, packer.flush()])


def reply_of(body: bytes, chance: Random, kind: bytes = b"application/json", honest: float = 0.6) -> Reply:
    """An HTTP response around a body: mostly a right one."""
    if chance.random() < honest:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nConnection: close\r\n\r\n"
        return Reply((head, *cut(body, chance)))
    status = chance.choice(_STATUSES if chance.random() < 0.7 else _MORE_STATUSES)
    lines = [b"HTTP/1.1 " + status, b"Content-Type: " + chance.choice([kind, kind, *_TYPES])]
    lines += [chance.choice(_HEADERS) for _ in range(chance.choice([0, 0, 1, 2]))]
    match chance.randrange(6):
        case 0:
            lines.append(b"Content-Length: %d" % (len(body) + chance.choice([-1, 0, 1, 10**6])))
        case 1:
            lines.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n" % (len(body), body) + chance.choice([b"0\r\n\r\n", b"", b"zz\r\n"])
        case 2:
            lines.append(b"Content-Length: 0")
        case 3:
            lines.append(b"Content-Length: " + chance.choice(TEXTS).encode("utf-8", "replace")[:50])
        case _:
            lines.append(b"Connection: close")
    said = b"\r\n".join(lines) + b"\r\n\r\n" + body
    said = mutated_text(said, chance, 1) if chance.random() < 0.15 else said
    return Reply((*cut(said, chance), *([HANG] if chance.random() < 0.03 else ())))


def sse_of(texts: Sequence[bytes], chance: Random) -> bytes:
    """Texts as a stream of events, or nearly."""
    end = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
    said = b"".join(b"data: " + text.replace(b"\n", b" ") + end + end for text in texts)
    return mutated_text(said, chance) if chance.random() < 0.2 else said


Answer = Callable[[str, bytes], Reply]
"""Takes the path of a request and its body."""


class RawPeer:
    """Listens, and answers each request by `answer`."""

    def __init__(self) -> None:
        self.answer: Answer = lambda *_: Reply(())
        self.port = 0
        self._open: set[Any] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which brings one request."""
        self._open.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("latin-1")
                length = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:")
                    ),
                    0,
                )
                body = await reader.readexactly(length)
                for piece in self.answer(path, body).pieces:
                    if piece == HANG:
                        await reader.read(1)  # until the other side is gone
                        break
                    writer.write(piece)
                    await writer.drain()
        finally:
            self._open.discard(writer)
            writer.close()


@asynccontextmanager
async def raw_peer() -> AsyncIterator[RawPeer]:
    """A peer that listens."""
    peer = RawPeer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for writer in tuple(peer._open):
            writer.close()
        await asyncio.sleep(0.01)
