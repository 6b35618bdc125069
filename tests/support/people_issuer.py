"""An issuer at which people log in with OpenID Connect. The test says who is in a browser, and what is wrong."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tests.support.issuer import TokenIssuer, signed
from tests.support.running import listening


@dataclass
class PeopleIssuer:
    """The issuer, with one client. Whoever opens its page is `person`, and agrees."""

    person: str = "alice"
    back: dict[str, str] = field(default_factory=dict)
    """Beside or in place of what its page sends back; an empty value leaves one out."""
    sign: Callable[[dict[str, Any]], str] = lambda claims: signed(claims, typ="JWT")
    """Makes an ID token of its claims."""
    access: Callable[[dict[str, str]], str] = lambda _: "unused"
    """Makes the access token for a query of its page; an empty one is left out."""
    claims: dict[str, Any] = field(default_factory=dict)
    """Beside or in place of those of an ID token."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The queries of its page."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """The forms at its token endpoint."""
    tokens: TokenIssuer = field(default_factory=lambda: TokenIssuer(""))

    @property
    def url(self) -> str:
        """Its identifier."""
        return self.tokens.url

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on loopback; its identifier."""
        async with listening(self.tokens) as self.tokens.url:
            self.tokens.metadata = {
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "authorization_response_iss_parameter_supported": True,
            } | self.tokens.metadata
            self.tokens.answers = {"/authorize": self._page, "/token": self._token}
            yield self.url

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = dict(Request(scope).query_params)
        self.asked.append(query)
        said = {"code": f"code-{len(self.asked)}", "state": query["state"], "iss": self.url} | self.back
        told = urlencode({name: value for name, value in said.items() if value})
        await RedirectResponse(f"{query['redirect_uri']}?{told}", 302)(scope, receive, send)

    async def _token(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = dict(parse_qsl((await Request(scope, receive).body()).decode()))
        self.forms.append(form)
        await self._given(form)(scope, receive, send)

    def _given(self, form: dict[str, str]) -> Response:
        query = self.asked[int(form["code"].partition("-")[2]) - 1]
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if query["code_challenge"] != base64.urlsafe_b64encode(digest).rstrip(b"=").decode():
            return JSONResponse({"error": "invalid_grant"}, 400)
        told = {"nonce": query["nonce"], **self.claims}
        claims = self.tokens.claims(query["client_id"], self.person, **told)
        given = {"access_token": self.access(query), "token_type": "Bearer", "id_token": self.sign(claims)}
        return JSONResponse({name: value for name, value in given.items() if value})
