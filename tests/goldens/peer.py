"""A remote agent that does on the wire what a script says, over both bindings. Knows nothing of the bridge."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.goldens.placeholders import FIXED_TIME

Json = dict[str, Any]
Told = Json | anyio.Event
Script = Callable[[str, Json], list[Told]]
"""What it answers to an operation and its params: the results of a stream, of which the last is all without one. A
result may be `{"error": ...}`; an event is waited for."""

_STREAMS: Final = ("SendStreamingMessage", "SubscribeToTask")
_PATHS: Final = (
    (re.compile(r"POST .*/message:send"), "SendMessage"),
    (re.compile(r"POST .*/message:stream"), "SendStreamingMessage"),
    (re.compile(r"POST .*/tasks/(?P<id>[^/]+):cancel"), "CancelTask"),
    (re.compile(r"POST .*/tasks/(?P<id>[^/]+):subscribe"), "SubscribeToTask"),
    (re.compile(r"GET .*/tasks/(?P<id>[^/:]+)"), "GetTask"),
    (re.compile(r"GET .*/tasks"), "ListTasks"),
)
_OPERATIONS: Final = frozenset(operation for _, operation in _PATHS)
_NO_METHOD: Final[Json] = {"error": {"code": -32601, "message": "Method not found"}}
_HTTP_STATUSES: Final = {-32001: (404, "NOT_FOUND"), -32602: (400, "INVALID_ARGUMENT")}


@dataclass
class Peer:
    """The agent. `card` says what differs from a plain one; `{base}` in it is where it is served."""

    script: Script
    binding: str = "JSONRPC"
    card: Json | None = None

    def app(self) -> Starlette:
        """It as an application."""
        routes = [
            Route("/.well-known/agent-card.json", self._show_card),
            Route("/agents", _show_catalog),
            Route("/{path:path}", self._answer, methods=["POST", "GET"]),
        ]
        return Starlette(routes=routes)

    async def _show_card(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == '"c-1"':
            return Response(status_code=304, headers={"ETag": '"c-1"'})
        interface = {"url": str(request.base_url), "protocolBinding": self.binding, "protocolVersion": "1.0"}
        shown = {
            "name": "Peer",
            "description": "Does what a script says",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "act", "name": "Act", "description": "Acts", "tags": ["test"]}],
            **(self.card or {}),
        }
        return JSONResponse(shown, headers={"ETag": '"c-1"', "Cache-Control": "max-age=60"})

    async def _answer(self, request: Request) -> Response:
        if self.binding == "JSONRPC":
            if request.method != "POST":
                return Response(status_code=404)
            called = await request.json()
            operation, params, call_id = called["method"], called["params"], called["id"]
        else:
            (operation, params), call_id = await _operation_of(request), None
            if not operation:
                return Response(status_code=404)
        told = self.script(operation, params) if operation in _OPERATIONS else [_NO_METHOD]
        if operation in _STREAMS and "error" not in told[0]:
            return StreamingResponse(self._events(told, call_id), media_type="text/event-stream")
        last = told[-1]
        assert isinstance(last, dict)
        return self._one(last, call_id)

    async def _events(self, told: list[Told], call_id: Any) -> AsyncIterator[str]:
        for one in told:
            if isinstance(one, anyio.Event):
                await one.wait()
            else:
                yield f"data: {json.dumps(self._enveloped(one, call_id))}\n\n"

    def _enveloped(self, result: Json, call_id: Any) -> Json:
        if self.binding != "JSONRPC":
            return result
        return {"jsonrpc": "2.0", "id": call_id, **(result if "error" in result else {"result": result})}

    def _one(self, result: Json, call_id: Any) -> Response:
        if self.binding == "JSONRPC" or "error" not in result:
            return JSONResponse(self._enveloped(result, call_id))
        error = result["error"]
        status, name = _HTTP_STATUSES.get(error["code"], (400, "FAILED_PRECONDITION"))
        said = {"code": status, "status": name, "message": error["message"], "details": error.get("data", [])}
        return JSONResponse({"error": said}, status)


async def _show_catalog(request: Request) -> Response:
    """Two pages with an agent each."""
    is_last = "pageToken" in request.query_params
    etag = '"p-2"' if is_last else '"p-1"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"ETag": etag})
    agent = (
        {"name": "second", "url": "agents/second"} if is_last else {"name": "first", "cardUrl": "/card.json"}
    )
    listed = {"agents": [agent], "nextPageToken": "" if is_last else "page/2"}
    return JSONResponse(listed, headers={"ETag": etag})


async def _operation_of(request: Request) -> tuple[str, Json]:
    body = await request.body()
    params: Json = json.loads(body) if body else dict(request.query_params)
    for pattern, operation in _PATHS:
        if found := pattern.fullmatch(f"{request.method} {request.scope['raw_path'].decode()}"):
            return operation, {**params, **found.groupdict()}
    return "", {}


def task(state: str, *said: Json, **more: Any) -> Json:
    """A task as the wire has it."""
    return {"id": "t-1", "contextId": "c-1", "status": status(state, *said), **more}


def status(state: str, *said: Json) -> Json:
    """A status, with what the agent says in it."""
    spoken = {"message": message(f"said-{state.lower()}", *said)} if said else {}
    return {"state": f"TASK_STATE_{state}", **spoken, "timestamp": FIXED_TIME}


def message(message_id: str, *parts: Json) -> Json:
    """A message of the agent."""
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": [*parts]}


def turns_to(state: str, *said: Json) -> Json:
    """A status update."""
    return {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": status(state, *said)}}


def gives(*parts: Json, artifact_id: str = "a-1", **more: Any) -> Json:
    """An artifact update."""
    artifact = {"artifactId": artifact_id, "parts": [*parts]}
    return {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, **more}}


def refuses(code: int, words: str, reason: str) -> Json:
    """An error."""
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
    }
    return {"error": {"code": code, "message": words, "data": [info]}}


PARTS: Final[list[Json]] = [
    {"text": "words", "metadata": {"m": 1}},
    {"data": {"n": 1}, "mediaType": "application/json"},
    {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"},
    {"url": "https://example.com/a.pdf", "mediaType": "application/pdf", "filename": "a.pdf"},
]
"""One of each kind."""
