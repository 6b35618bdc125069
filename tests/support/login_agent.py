"""An agent that takes only callers with a token of an issuer, and says in one way or another how to get one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge.http.tls import TlsPoint
from tests.support.running import listening
from tests.support.scripted_agent import Json, plain_card


@dataclass
class LoginAgent:
    """An agent of A2A 1.0. `known` gives the tokens that it takes."""

    known: Callable[[], Collection[str]]
    issuer: str = ""
    """Which the metadata of the resource names, if it has some."""
    has_metadata: bool = True
    """Whether its 401 leads to the metadata of the resource."""
    shows_card: bool = True
    """Whether its card is open."""
    has_neighbour: bool = False
    """Whether another resource at its origin has metadata of its own, where that of the origin is."""
    card: Json = field(default_factory=dict)
    shown: list[str | None] = field(default_factory=list)
    """The tokens of the messages."""
    url: str = ""

    @asynccontextmanager
    async def serve(self, tls: TlsPoint | None = None) -> AsyncIterator[str]:
        """Listen on loopback; its URL."""
        routes = [
            Route("/.well-known/agent-card.json", self._card),
            Route("/agents", self._catalog),
            Route("/metadata", self._metadata),
            Route("/.well-known/oauth-protected-resource", self._metadata_of_another),
            Route("/", self._answer, methods=["POST"]),
        ]
        async with listening(Starlette(routes=routes), tls=tls) as self.url:
            yield self.url

    def _refusal(self, request: Request) -> Response | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token in self.known():
            return None
        link = f', resource_metadata="{self.url}/metadata", scope="read"' if self.has_metadata else ""
        return Response(status_code=401, headers={"WWW-Authenticate": f'Bearer realm="agent"{link}'})

    def _card(self, request: Request) -> Response:
        refusal = None if self.shows_card else self._refusal(request)
        plain = plain_card(str(request.base_url)) | {"capabilities": {"streaming": False}}
        return refusal or JSONResponse({**plain, **self.card})

    def _catalog(self, request: Request) -> Response:
        listed = [{"name": "near", "url": str(request.base_url)}]
        return self._refusal(request) or JSONResponse({"agents": listed})

    def _metadata(self, request: Request) -> Response:
        return JSONResponse({"resource": str(request.base_url), "authorization_servers": [self.issuer]})

    def _metadata_of_another(self, request: Request) -> Response:
        """What another resource at the same origin says."""
        if not self.has_neighbour:
            return Response(status_code=404)
        other = {"resource": f"{request.base_url}mcp", "authorization_servers": ["https://other.example"]}
        return JSONResponse(other)

    async def _answer(self, request: Request) -> Response:
        called = await request.json()
        if called["method"] == "SendMessage":
            self.shown.append(request.headers.get("authorization"))
        if refusal := self._refusal(request):
            return refusal
        words = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "done"}]}
        return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": {"message": words}})


def with_scheme(scheme: Json, *scopes: str) -> Json:
    """What a card says that takes a token by this scheme."""
    return {
        "securitySchemes": {"sso": scheme},
        "securityRequirements": [{"schemes": {"sso": {"list": [*scopes]}}}],
    }
