"""An agent that says on the wire what a test tells it to, word for word: what frameworks were seen to say, say.

Knows Starlette and no A2A library. Must not import `bridge`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.running import listening

Json = dict[str, Any]
Script = Callable[[str, Json], list[Json]]
"""What it answers to a method and its params: the results of a stream, of which the last is all without one; a
result may be `{"error": ...}`."""

_STREAMS = ("SendStreamingMessage", "SubscribeToTask")


@asynccontextmanager
async def scripted_agent(
    script: Script, card: Json | None = None, heard: list[Mapping[str, str]] | None = None
) -> AsyncIterator[str]:
    """Serve the agent; its URL. `card` says what differs from a plain card of A2A 1.0; `heard` takes the headers of
    every request."""

    def listen(request: Request) -> None:
        if heard is not None:
            heard.append(request.headers)

    async def show_card(request: Request) -> JSONResponse:
        listen(request)
        return JSONResponse({**plain_card(str(request.base_url)), **(card or {})})

    async def answer(request: Request) -> Response:
        listen(request)
        called = await request.json()
        told = [
            {"jsonrpc": "2.0", "id": called["id"], **(result if "error" in result else {"result": result})}
            for result in script(called["method"], called["params"])
        ]
        if called["method"] not in _STREAMS:
            return JSONResponse(told[-1])
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in told)
        return Response(events, media_type="text/event-stream")

    routes = [
        Route("/.well-known/agent-card.json", show_card),
        Route("/", answer, methods=["POST"]),
    ]
    async with listening(Starlette(routes=routes)) as url:
        yield url


def plain_card(url: str) -> Json:
    """A card of A2A 1.0 whose agent streams."""
    return {
        "name": "Scripted",
        "description": "Says what it was told to",
        "version": "1",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "act", "name": "Act", "description": "Acts", "tags": ["test"]}],
    }
