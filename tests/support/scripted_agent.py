"""An agent that says on the wire what a test tells it to, word for word: what frameworks were seen to say, say.

Knows Starlette and no A2A library. Must not import `bridge`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
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

_STREAMS = (
    "SendStreamingMessage",
    "SubscribeToTask",
    "message/stream",
    "tasks/resubscribe",
    "tasks/sendSubscribe",
)


@asynccontextmanager
async def scripted_agent(
    script: Script,
    card: Json | None = None,
    heard: list[Mapping[str, str]] | None = None,
    *,
    is_older: bool = False,
    is_first: bool = False,
    is_unsaid: bool = False,
    refused: Collection[str] = (),
    listed: Collection[tuple[str, str]] = (),
) -> AsyncIterator[str]:
    """Serve the agent; its URL.

    `card` says what differs from a plain card of A2A 1.0. `is_older` makes the card one of 0.3, `is_first` one of the
    first generation, at its place, and `is_unsaid` one that says no version. `heard` takes the headers of every
    request. Those with an `Authorization` in `refused` are answered with 401. `listed` are the names and URLs in its
    catalog, at `/agents`; "" is its own URL.
    """

    def listen(request: Request) -> Response | None:
        if heard is not None:
            heard.append(request.headers)
        return Response(status_code=401) if request.headers.get("authorization") in refused else None

    async def show_card(request: Request) -> Response:
        if refusal := listen(request):
            return refusal
        shown = {**plain_card(str(request.base_url)), **(card or {})}
        if is_first:
            return JSONResponse(first_card(shown))
        if is_unsaid:
            return JSONResponse(unsaid_card(shown))
        return JSONResponse(older_card(shown, "JSONRPC") if is_older else shown)

    async def answer(request: Request) -> Response:
        if refusal := listen(request):
            return refusal
        called = await request.json()
        told = [
            {"jsonrpc": "2.0", "id": called["id"], **(result if "error" in result else {"result": result})}
            for result in script(called["method"], called["params"])
        ]
        if called["method"] not in _STREAMS:
            return JSONResponse(told[-1])
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in told)
        return Response(events, media_type="text/event-stream")

    async def show_catalog(request: Request) -> Response:
        listen(request)
        own = str(request.base_url)
        return JSONResponse({"agents": [{"name": name, "url": url or own} for name, url in listed]})

    routes = [
        Route("/agents", show_catalog),
        Route(f"/.well-known/{'agent' if is_first else 'agent-card'}.json", show_card),
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


def older_card(card: Json, binding: str) -> Json:
    """A card of 1.0 as 0.3 would have it, with one interface: the first of this binding."""
    url = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == binding)
    kept = (
        "name",
        "description",
        "version",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    )
    older = {"url": url, "preferredTransport": binding, "protocolVersion": "0.3.0"}
    return {**older, **{name: card[name] for name in kept}}


def first_card(card: Json) -> Json:
    """A card of 1.0 as the first generation would have it."""
    return {**unsaid_card(card), "authentication": {"schemes": []}}


def unsaid_card(card: Json) -> Json:
    """A card of 1.0 as an older agent would have it that does not say of which generation it is."""
    newer = ("preferredTransport", "protocolVersion")
    return {name: item for name, item in older_card(card, "JSONRPC").items() if name not in newer}


@asynccontextmanager
async def card_served(card: Json, path: str = "/.well-known/agent-card.json") -> AsyncIterator[str]:
    """The URL at which there is nothing but a card."""

    async def show_card(_: Request) -> JSONResponse:
        return JSONResponse(card)

    async with listening(Starlette(routes=[Route(path, show_card)])) as url:
        yield url
