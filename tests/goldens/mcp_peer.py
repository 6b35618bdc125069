"""A tool server over HTTP that says the same each time, in both eras. Knows nothing of the bridge.

echo  gives its arguments back     fail  an error of JSON-RPC    progress  a stream with two reports
ask   asks for a name              wait  does not answer
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]

_INFO: Final = {"name": "golden", "title": "Golden Server", "version": "1.0"}
_SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}}
_FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_NAMES: Final = ("echo", "fail", "progress", "ask", "wait")
_ASKS: Final = {"mode": "form", "message": "Who?", "requestedSchema": _FORM}
_OPENED: Final = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": _INFO,
        "instructions": "For goldens.",
    },
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "For goldens.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": _INFO},
    },
}


@dataclass
class McpPeer:
    """The server; `is_modern` says which era it speaks."""

    is_modern: bool
    waiting: anyio.Event = field(default_factory=anyio.Event)
    """Set once a call of `wait` is there."""
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    """Set once that was cancelled."""
    _answered: anyio.Event = field(default_factory=anyio.Event)
    _answer: Json = field(default_factory=dict)

    def app(self) -> Starlette:
        """It as an application."""
        return Starlette(routes=[Route("/mcp", self._serve, methods=["GET", "POST", "DELETE"])])

    async def _serve(self, request: Request) -> Response:
        if request.method == "DELETE":
            return Response(status_code=200)
        if request.method == "GET":
            return Response(status_code=405)
        said = await request.json()
        if "id" not in said or "method" not in said:
            return self._noted(said)
        method, params = said["method"], said.get("params", {})
        if method in _OPENED and (method == "server/discover") is self.is_modern:
            session = {} if self.is_modern else {"Mcp-Session-Id": "session-1"}
            return _result(said, _OPENED[method], session)
        if method == "tools/list":
            return _result(said, self._page(params.get("cursor")))
        if method == "tools/call":
            return self._call(said, params)
        return _error(said, -32601, "Method not found", 404 if self.is_modern else 200)

    def _noted(self, said: Json) -> Response:
        if said.get("method") == "notifications/cancelled":
            self.cancelled.set()
        if "result" in said:
            self._answer = said["result"]
            self._answered.set()
        return Response(status_code=202)

    def _page(self, cursor: str | None) -> Json:
        """One tool on the first page, the others on the second."""
        names = _NAMES[1:] if cursor else _NAMES[:1]
        tools = [{"name": name, "inputSchema": _SCHEMA} for name in names]
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.is_modern else {}
        return {"tools": tools, **({} if cursor else {"nextCursor": "page-2"}), **more}

    def _call(self, said: Json, params: Json) -> Response:
        match params["name"]:
            case "echo":
                return _result(said, self._text(json.dumps(params["arguments"])))
            case "fail":
                return _error(said, -32000, "not today")
            case "ask" if self.is_modern:
                return _result(said, self._round(params))
            case _:
                return StreamingResponse(self._stream(said, params), media_type="text/event-stream")

    def _round(self, params: Json) -> Json:
        if (answers := params.get("inputResponses")) is not None:
            return self._text(json.dumps(answers))
        question = {"method": "elicitation/create", "params": _ASKS}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "state-1"}

    async def _stream(self, said: Json, params: Json) -> AsyncIterator[str]:
        if params["name"] == "wait":
            self.waiting.set()
            yield ": \n\n"
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        if params["name"] == "ask":
            yield _event({"id": 7, "method": "elicitation/create", "params": _ASKS})
            await self._answered.wait()
            yield _event({"id": said["id"], "result": self._text(json.dumps(self._answer))})
            return
        for step in (1, 2):
            token = params["_meta"]["progressToken"]
            report = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
            yield _event({"method": "notifications/progress", "params": report})
        yield _event({"id": said["id"], "result": self._text("done")})

    def _text(self, words: str) -> Json:
        kind = {"resultType": "complete"} if self.is_modern else {}
        return {"content": [{"type": "text", "text": words}], **kind}


def _event(message: Json) -> str:
    return f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"


def _result(said: Json, result: Any, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "result": result}, headers=headers)


def _error(said: Json, code: int, words: str, status: int = 200) -> Response:
    error = {"code": code, "message": words}
    return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "error": error}, status)
