"""An authorization server over loopback that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.http.tls import TlsPoint
from tests.support.running import listening

METADATA: Final = "/.well-known/oauth-authorization-server"

Answer = Callable[["AuthorizationServer"], Response]


@dataclass(frozen=True)
class TokenRequest:
    """A request for a token, as it came."""

    form: dict[str, str]
    authorization: str | None


@dataclass
class AuthorizationServer:
    """The server. `metadata` is put over what it says of itself; `said` and `token` answer in its place."""

    metadata: dict[str, Any] = field(default_factory=dict)
    said: Answer | None = None
    token: Answer | None = None
    lives_seconds: int | None = 3600
    issuer: str = ""
    asked: list[TokenRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self, tls: TlsPoint | None = None) -> AsyncIterator[str]:
        """Listen on loopback; the issuer."""
        async with listening(self, tls=tls) as self.issuer:
            yield self.issuer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await (await self._response(Request(scope, receive)))(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        self.paths.append(request.url.path)
        if request.url.path == METADATA:
            if self.said:
                return self.said(self)
            own = {"issuer": self.issuer, "token_endpoint": f"{self.issuer}/token"}
            return JSONResponse(own | self.metadata)
        if not request.url.path.endswith("/token"):
            return Response(status_code=404)
        form = dict(parse_qsl((await request.body()).decode()))
        self.asked.append(TokenRequest(form, request.headers.get("authorization")))
        return self.token(self) if self.token else self.granted()

    def granted(self) -> Response:
        """The next token: `token-1`, `token-2` and so on."""
        life = {} if self.lives_seconds is None else {"expires_in": self.lives_seconds}
        answer = {"access_token": f"token-{len(self.asked)}", "token_type": "Bearer", **life}
        return JSONResponse(answer)
