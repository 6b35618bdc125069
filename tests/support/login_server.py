"""An authorization server with a login page and rotating refresh tokens, and a tool server that it protects."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.http.tls import TlsPoint
from tests.support.running import listening

METADATA: Final = "/.well-known/oauth-authorization-server"
RESOURCE: Final = "/.well-known/oauth-protected-resource/mcp"

Page = Callable[[dict[str, str]], Response]


@dataclass
class LoginServer:
    """Issuer and resource on one origin. `metadata` and `back` are put over what it says by itself.

    A refresh token that comes a second time revokes its whole family, as servers do that rotate (RFC 9700 section
    4.14.2).
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)
    """What the redirect back says otherwise; a key with an empty value is left out."""
    named: Callable[[str], list[str]] = lambda issuer: [issuer]
    """The issuers that the tool server names, by this one."""
    challenge: str = ""
    """What the 401 of the tool server says in place of where its metadata is."""
    token: Callable[[], Response] | None = None
    """Answers in place of the token endpoint."""
    lives_seconds: int = 3600
    has_refresh: bool = True
    needs: str = ""
    """The scope without which the tool server answers 403 to a call."""
    grants: frozenset[str] | None = None
    """The scopes that a person can give; all that are asked for, if None."""
    greets_anybody: bool = False
    """Whether the tool server asks for a token only after `initialize`."""
    has_pages: bool = False
    """Whether it shows a web page for each path that it does not know."""
    rotates: bool = True
    issuer: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The forms at the token endpoint, and where a card says that tokens are renewed."""
    asked_at: list[str] = field(default_factory=list)
    """The paths of these."""
    authorizations: list[dict[str, str]] = field(default_factory=list)
    registered: list[dict[str, Any]] = field(default_factory=list)
    gives_client: dict[str, Any] = field(default_factory=dict)
    """What a registration says beside what it was asked for."""
    authorization_headers: list[str | None] = field(default_factory=list)
    given_back: list[dict[str, str]] = field(default_factory=list)
    """The forms at the revocation endpoint, which the metadata does not name unless `metadata` does."""
    refuses_back: str = ""
    """The kind of token that is not revoked."""
    revoked: bool = False
    """Whether the family was revoked."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _good: dict[str, list[str]] = field(default_factory=dict)
    """The scopes of each token."""
    _refresh: str = ""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        """The URL of the tool server."""
        return f"{self.issuer}/mcp"

    @asynccontextmanager
    async def serve(self, tls: TlsPoint | None = None) -> AsyncIterator[str]:
        """Listen on loopback; the URL of the tool server."""
        async with listening(self, tls=tls) as self.issuer:
            yield self.url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await (await self._response(Request(scope, receive)))(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        match request.url.path:
            case "/mcp":
                return self._resource(request, await request.body())
            case path if path == RESOURCE:
                return JSONResponse({"resource": self.url, "authorization_servers": self.named(self.issuer)})
            case path if path == METADATA:
                return JSONResponse({k: v for k, v in self._said().items() if v is not None})
            case "/authorize":
                return self._authorize(dict(request.query_params))
            case "/register":
                self.registered.append(await request.json())
                own = {"client_id": "registered", **self.registered[-1], **self.gives_client}
                return JSONResponse(own, 201)
            case "/token" | "/renew":
                form = dict(parse_qsl((await request.body()).decode()))
                self.asked.append(form)
                self.asked_at.append(request.url.path)
                self.authorization_headers.append(request.headers.get("authorization"))
                return self.token() if self.token else self.granted(form)
            case "/revoke":
                self.given_back.append(dict(parse_qsl((await request.body()).decode())))
                if self.given_back[-1]["token_type_hint"] == self.refuses_back:
                    return JSONResponse({"error": "unsupported_token_type"}, 400)
                return Response()
        return HTMLResponse("<p>Welcome") if self.has_pages else Response(status_code=404)

    def _said(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        } | self.metadata

    def _resource(self, request: Request, body: bytes) -> Response:
        if self.greets_anybody and b'"initialize"' in body:
            return JSONResponse({"jsonrpc": "2.0", "id": 0, "result": {}}, headers={"Mcp-Session-Id": "1"})
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        link = self.challenge or f'Bearer resource_metadata="{self.issuer}{RESOURCE}"'
        if token in self._good:
            if not self.needs or self.needs in self._good[token] or b'"call"' not in body:
                return JSONResponse({"token": token})
            link += f', error="insufficient_scope", scope="{self.needs}"'
            return Response(status_code=403, headers={"WWW-Authenticate": link})
        return Response(status_code=401, headers={"WWW-Authenticate": link})

    def _authorize(self, query: dict[str, str]) -> Response:
        """The person consents, unless `back` says an error."""
        self.authorizations.append(query)
        code = f"code-{next(self._numbers)}"
        self._codes[code] = query
        said = {"code": code, "state": query["state"], "iss": self.issuer} | self.back
        return RedirectResponse(
            f"{query['redirect_uri']}?{urlencode({k: v for k, v in said.items() if v})}", 302
        )

    def granted(self, form: dict[str, str]) -> Response:
        """The tokens that a form is good for."""
        if form["grant_type"] == "authorization_code":
            query = self._codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if query is None or query["code_challenge"] != challenge:
                return JSONResponse({"error": "invalid_grant"}, 400)
            return self._tokens(query.get("scope", ""))
        token = form.get("refresh_token", "")
        if self.revoked or token != self._refresh:
            self.revoked = self.revoked or token in self._used
            return JSONResponse({"error": "invalid_grant", "error_description": "revoked"}, 400)
        return self._tokens()

    def _tokens(self, asked: str = "") -> Response:
        number = next(self._numbers)
        scopes = [one for one in asked.split() if self.grants is None or one in self.grants] or ["read"]
        self._good[f"access-{number}"] = scopes
        answer: dict[str, Any] = {
            "access_token": f"access-{number}",
            "token_type": "Bearer",
            "expires_in": self.lives_seconds,
            "scope": " ".join(scopes),
        }
        if self.has_refresh and (self.rotates or not self._refresh):
            self._used.add(self._refresh)
            self._refresh = f"refresh-{number}"
            answer["refresh_token"] = self._refresh
        return JSONResponse(answer)

    @property
    def given(self) -> Collection[str]:
        """The access tokens that are good."""
        return self._good.keys()

    def start(self) -> tuple[str, str]:
        """An access token and a refresh token, as if a person had logged in."""
        self._tokens()
        return max(self._good, key=lambda one: int(one.partition("-")[2])), self._refresh

    def forget(self) -> None:
        """Take no access token any more that was given so far."""
        self._good.clear()
