"""An MCP server over HTTP that answers as a test says, and keeps every request that it got, headers and all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.running import listening

Json = dict[str, Any]

SESSION: Final = "session-0451"
ECHO: Final[Json] = {"name": "echo", "inputSchema": {"type": "object"}}


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    verb: str
    headers: Mapping[str, str]
    message: Json

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> Json:
        params: Json = self.message.get("params", {})
        return params


class Refusal(Exception):
    """A request is answered with a JSON-RPC error of this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


Answer = Callable[[Got], Json | list[Json] | Response]
"""The result of a request; the messages of its stream, of which the last one is its result; or any response."""


@dataclass
class RecordingServer:
    """The server. `answers` go before what it says by itself."""

    version: str = LEGACY
    tools: Sequence[Json] = (ECHO,)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    capabilities: Json = field(default_factory=lambda: {"tools": {}})
    got: list[Got] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on loopback; the URL."""
        async with listening(self) as root_url:
            yield f"{root_url}/mcp"

    def of(self, method: str) -> list[Got]:
        """The requests of a method, in their order."""
        return [got for got in self.got if got.method == method]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it may become so with a request only."""
        with anyio.fail_after(10):
            while not condition():
                await self._news.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        got = Got(request.method, dict(request.headers), json.loads(body) if body else {})
        self.got.append(got)
        self._news.set()
        self._news = anyio.Event()
        await self._response(got)(scope, receive, send)

    def _response(self, got: Got) -> Response:
        if got.verb != "POST":
            return Response(status_code=405 if got.verb == "GET" else 200)
        if "id" not in got.message or not got.method:
            return Response(status_code=202)
        try:
            answer = self.answers.get(got.method, self._by_itself)(got)
        except Refusal as exc:
            error = {"code": exc.code, "message": str(exc)}
            return JSONResponse({"jsonrpc": "2.0", "id": got.message["id"], "error": error})
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, list):
            *before, result = answer
            return _events([*before, self._said(got, result)])
        headers = {"MCP-SESSION-ID": SESSION} if got.method == "initialize" else {}
        return JSONResponse(self._said(got, answer), headers=headers)

    def _said(self, got: Got, result: Json) -> Json:
        return {"jsonrpc": "2.0", "id": got.message["id"], "result": result}

    def _by_itself(self, got: Got) -> Json:
        info = {"name": "recording", "version": "0"}
        is_modern = self.version == MODERN
        kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        match got.method:
            case "initialize" if not is_modern:
                return {"protocolVersion": LEGACY, "capabilities": self.capabilities, "serverInfo": info}
            case "server/discover" if is_modern:
                return {
                    **kept,
                    "supportedVersions": [MODERN],
                    "capabilities": self.capabilities,
                    "serverInfo": info,
                }
            case "tools/list":
                return {**kept, "tools": [*self.tools]}
            case "tools/call":
                return {"content": [], **({"resultType": "complete"} if is_modern else {})}
        raise Refusal(-32601)


def held_open(*messages: Json) -> Response:
    """A stream of messages that does not end with them."""

    async def events() -> AsyncIterator[str]:
        yield _framed(messages)
        await anyio.sleep_forever()

    return StreamingResponse(events(), media_type="text/event-stream")


def _events(messages: Sequence[Json]) -> Response:
    return Response(_framed(messages), media_type="text/event-stream")


def _framed(messages: Sequence[Json]) -> str:
    return "".join(f"event: message\ndata: {json.dumps(message)}\n\n" for message in messages)
