"""Peers that note what they are told of traces: an agent, and a tool server over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.trace import NAMES

TOOL: Final = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass
class Recording:
    """A peer that notes what it is told of traces."""

    told: list[dict[str, str]] = field(default_factory=list)

    def note(self, said: Any) -> None:
        """Note a call."""
        self.told.append({name: said[name] for name in NAMES if name in said})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        body = await request.body()
        await self.answer(request, json.loads(body) if body else {})(scope, receive, send)

    def answer(self, request: Request, said: Any) -> Response:
        """The answer to a request."""
        raise NotImplementedError


class RecordingAgent(Recording):
    """An agent that answers every message with a greeting."""

    def answer(self, request: Request, said: Any) -> Response:
        """The card, or the greeting."""
        if request.method == "GET":
            interface = {"url": str(request.base_url), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            skill = {"id": "greet", "name": "Greet", "description": "Greets", "tags": ["x"]}
            return JSONResponse(
                {
                    "name": "Recorder",
                    "description": "Greets",
                    "version": "1",
                    "capabilities": {},
                    "defaultInputModes": ["text/plain"],
                    "defaultOutputModes": ["text/plain"],
                    "skills": [skill],
                    "supportedInterfaces": [interface],
                }
            )
        self.note(request.headers)
        reply = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}
        return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "result": {"message": reply}})


class RecordingServer(Recording):
    """A tool server of MCP 2025-11-25 with one tool."""

    def answer(self, request: Request, said: Any) -> Response:
        """What a server says."""
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "recorder", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }
        if request.method != "POST":
            return Response(status_code=405)
        if "id" not in said:
            return Response(status_code=202)
        if said["method"] == "tools/call":
            self.note(said["params"].get("_meta", {}))
        return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "result": results[said["method"]]})
