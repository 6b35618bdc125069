"""The peers that the bridge fetches from: results that unpack to far more than they weigh, and thousands of skills."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.hostile.raw_peer import RawPeer, Reply, raw_peer
from tests.support.scripted_agent import plain_card

SKILLS: Final = 8000
_BOMB_BYTES: Final = 100_000_000
_HEAD: Final = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n%s\r\n"
_OPENED: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "packed", "version": "1"},
}
_RESULTS: Final[dict[str, Any]] = {
    "initialize": _OPENED,
    "tools/list": {"tools": [{"name": "bomb", "inputSchema": {"type": "object"}}]},
}


@asynccontextmanager
async def hostile_peers() -> AsyncIterator[str]:
    """Serve them; the agent is at the URL, and the tool server at `/mcp` there."""
    async with raw_peer() as peer:
        bomb, card = gzip.compress(_bomb()), json.dumps(_card(peer)).encode()
        peer.answer = lambda path, body: _Answer(bomb, card).to(path, body)
        yield peer.url


class _Answer:
    def __init__(self, bomb: bytes, card: bytes) -> None:
        self.bomb = bomb
        self.card = card

    def to(self, path: str, body: bytes) -> Reply:
        if path != "/mcp":
            return _reply(self.card)
        said = json.loads(body) if body else {}
        match said.get("method"):
            case None:
                return _reply(b"", b"405 Method Not Allowed")
            case "tools/call":
                return _reply(self.bomb, headers=b"Content-Encoding: gzip\r\n")
            case _ if "id" not in said:
                return _reply(b"", b"202 Accepted")
            case method if method in _RESULTS:
                return _reply(_json({"id": said["id"], "result": _RESULTS[method]}))
        return _reply(_json({"id": said["id"], "error": {"code": -32601, "message": "no such method"}}))


def _reply(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> Reply:
    length = b"Content-Length: %d\r\n" % len(body)
    return Reply((_HEAD % (status, length + headers), body))


def _json(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def _bomb() -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "%s"}]}}' % (
        b"x" * _BOMB_BYTES
    )


def _card(peer: RawPeer) -> dict[str, Any]:
    skills = [
        {"id": f"act-{number}", "name": f"Act {number}", "description": "Acts " * 20, "tags": ["test"]}
        for number in range(SKILLS)
    ]
    return {**plain_card(peer.url), "skills": skills}
