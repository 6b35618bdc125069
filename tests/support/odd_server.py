"""An MCP server of 2025-11-25 without any library that says one thing oddly, over each of the three transports.

As a program (`python odd_server.py TEXT...`) it speaks stdio. `ID` in a text stands for the id of the call. Each text
is said, as latin-1 bytes, in answer to a call of its tool `odd`; all other requests are answered plainly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

FINE = '{"content":[{"type":"text","text":"fine"}]}'
INFO = {"name": "odd", "version": "1"}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("odd", "plain")]


def result_of(message: dict[str, Any]) -> Any:
    """The plain result of a request; None for one that is not known."""
    return {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": "plain"}]},
        "ping": {},
    }.get(message["method"])


def answers_to(message: dict[str, Any], texts: Sequence[str]) -> Iterator[bytes]:
    """What a message is answered with; nothing for a notification."""
    if "id" not in message or "method" not in message:
        return
    if message["method"] == "tools/call" and message["params"]["name"] == "odd":
        for text in texts:
            yield text.replace("ID", str(message["id"])).encode("latin-1")
        return
    result = result_of(message)
    said = (
        {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    )
    yield json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode()


def main(texts: Sequence[str]) -> None:
    """Speak stdio until stdin ends."""
    for line in sys.stdin:
        for answer in answers_to(json.loads(line), texts):
            sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()


@dataclass
class OddApp:
    """The server as an ASGI application: Streamable HTTP at /mcp, HTTP+SSE at /sse."""

    texts: Sequence[str]
    in_events: bool = True
    """Whether a POST to /mcp is answered with events."""
    content_type: str = "application/json"
    in_posts: bool = False
    """Whether a POST to /messages is answered in its response, and not with an event."""
    posted: list[str] = field(default_factory=list)
    _sends: dict[str, Any] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["method"] == "GET" and scope["path"] == "/sse":
            await self._listen(receive, send)
        elif scope["method"] != "POST" or scope["path"] == "/sse":
            await _respond(send, 405, "text/plain", b"")
        else:
            message = json.loads(await _body(receive))
            self.posted += [message["method"]] if "method" in message else []
            await self._answer(scope["path"], message, send)

    async def _listen(self, receive: Any, send: Any) -> None:
        await send(_start(200, "text/event-stream"))
        await send(_piece(b"event: endpoint\ndata: /messages\n\n"))
        self._sends["stream"] = send
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, path: str, message: dict[str, Any], send: Any) -> None:
        answers = list(answers_to(message, self.texts))
        if path == "/messages" and self.in_posts:
            await _respond(send, 200, self.content_type, b"".join(answers))
        elif path == "/messages":
            await _respond(send, 202, "text/plain", b"Accepted")
            with suppress(KeyError):
                await self._sends["stream"](_piece(b"".join(map(_event, answers))))
        elif not answers:
            await _respond(send, 202, "text/plain", b"")
        elif self.in_events:
            await _respond(send, 200, "text/event-stream", b"".join(map(_event, answers)))
        else:
            await _respond(send, 200, self.content_type, b"".join(answers))


def _event(text: bytes) -> bytes:
    return b"data: " + text + b"\n\n"


def _start(status: int, kind: str) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]}


def _piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _respond(send: Any, status: int, kind: str, body: bytes) -> None:
    await send(_start(status, kind))
    await send(_piece(body, more=False))


async def _body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


if __name__ == "__main__":
    main(sys.argv[1:])
