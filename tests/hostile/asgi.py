"""One HTTP request straight into an ASGI application: no server in between that would mend or refuse it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

_STREAM_SECONDS: Final = 0.05
"""How long a stream is read that does not end by itself."""


@dataclass(frozen=True)
class Asked:
    """A request, with what no server would let through."""

    verb: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    chunks: tuple[bytes, ...] = ()
    leaves_early: bool = False
    """Goes away before it has sent all of its body."""
    reads_bytes: int = 1 << 30
    """Goes away once it has read so much."""


@dataclass(frozen=True)
class Answered:
    """What came back; without a status nothing did."""

    status: int | None
    headers: dict[str, str]
    body: bytes
    ended: bool
    """Whether the application said that this was all."""

    @property
    def media_type(self) -> str:
        """Without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0]


class _Client:
    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.left = anyio.Event()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.size = 0
        self.ended = False
        self._chunks = list(asked.chunks) or [b""]

    async def receive(self) -> dict[str, Any]:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {
                "type": "http.request",
                "body": chunk,
                "more_body": bool(self._chunks) or self.asked.leaves_early,
            }
        if not self.asked.leaves_early and not self.left.is_set():
            await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert self.status is None, "two answers to one request"
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            if self.headers.get("content-type") == "text/event-stream":
                asyncio.get_running_loop().call_later(_STREAM_SECONDS, self.left.set)
            return
        assert self.status is not None, "a body before its status"
        assert not self.ended, "more after the end"
        self.body.append(message.get("body", b""))
        self.size += len(self.body[-1])
        self.ended = not message.get("more_body", False)
        if self.ended or self.size >= self.asked.reads_bytes:
            self.left.set()


async def ask(app: Any, asked: Asked) -> Answered:
    """Send a request; what is answered until the application has returned."""
    client = _Client(asked)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": asked.verb,
        "path": asked.path,
        "raw_path": asked.path.encode("utf-8", "surrogatepass"),
        "root_path": "",
        "query_string": asked.query,
        "headers": list(asked.headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, client.receive, client.send)
    return Answered(client.status, client.headers, b"".join(client.body), client.ended)


def header(name: str, value: str) -> tuple[bytes, bytes]:
    """A header as a server hands it on: bytes, its name in lower case."""
    return name.lower().encode("latin-1", "replace"), value.encode("utf-8", "surrogatepass")


def events_in(body: bytes) -> Sequence[bytes]:
    """The data of each event that is whole."""
    blocks = body.split(b"\n\n")[:-1]
    for block in blocks:
        assert b"\n" not in block, "an event of ours is one line"
    return [block.removeprefix(b"data: ") for block in blocks if not block.startswith(b":")]
