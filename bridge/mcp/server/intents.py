"""Lets a POST to the endpoint through once it is written down what it is about to do.

This stands before the SDK, because the SDK may have begun its answer with 200 when a method is called, and a request
that cannot be written down is refused with 503. Behind it no other replica is asked, so a request is written down once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import JsonValue
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge import trace
from bridge.errors import AuditAwayError
from bridge.http.request_checks import RefusedError
from bridge.jsonvalues import JsonObject
from bridge.mcp.server.endpoint import AdmittedUser
from bridge.mcp.server.face import ToolFace
from bridge.trace import Hop, HopGate

AWAY = "The bridge cannot write its audit at the moment"


@dataclass(frozen=True)
class IntentGate:
    """The application behind the gate."""

    inner: ASGIApp
    gate: HopGate
    face: str
    tools: ToolFace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of an admitted user.

        Raises:
            RefusedError: 503, it cannot be written down.
        """
        if scope["method"] != "POST":
            await self.inner(scope, receive, send)
            return
        body = await receive()  # the endpoint has read it whole
        if body["type"] != "http.request":
            raise ClientDisconnect
        user: AdmittedUser = scope["user"]
        try:
            user.intent = await self._intend(_message_in(body.get("body", b"")), scope, user)
        except AuditAwayError as exc:
            again = {"Retry-After": str(exc.retry_after_seconds)}
            raise RefusedError(503, AWAY, again) from exc
        waiting: list[Message] = [body]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.inner(scope, replayed, send)

    async def _intend(self, message: JsonObject, scope: Scope, user: AdmittedUser) -> int:
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return 0
        params = params if isinstance(params, dict) else {}
        name, meta = params.get("name"), params.get("_meta")
        context = trace.context_from(
            meta if isinstance(meta, dict) else {}, trace.in_headers(scope["headers"])
        )
        hop = Hop("server", "mcp", (), context, method, face=self.face, principal=user.principal.name)
        if method == "tools/call":
            hop.skill, hop.peer = call_meant(self.tools, name, params.get("arguments"))
        return await self.gate.intend(hop)


def call_meant(tools: ToolFace, name: JsonValue, arguments: JsonValue) -> tuple[str, str]:
    """The tool that a call runs, and its peer, each as far as it is known before the call is made."""
    if not isinstance(name, str):
        return "", ""
    runs = tools.tool_called(name, arguments if isinstance(arguments, dict) else {}) or name
    return runs, tools.peer_of(runs)


def _message_in(body: bytes) -> JsonObject:
    """The message in a body; empty for what the SDK will refuse."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
