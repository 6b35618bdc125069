"""An MCP server on the official SDK that wants access tokens of an issuer, over HTTP in the test's own process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import jwt
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from tests.support.ports import free_port
from tests.support.running import listening


@dataclass
class ProtectedServer(TokenVerifier):
    """Its tool `whoami` tells the subject, the client and the scopes of the token, and who acts for the subject."""

    issuer: str
    scopes: tuple[str, ...] = ("read",)
    """The scopes that every request takes."""
    url: str = ""
    """Its URL, which is also the audience of its tokens."""
    shown: list[str] = field(default_factory=list)
    """Every token that was shown, once and in order."""
    revoked: set[str] = field(default_factory=set)
    """Tokens that are refused from now on."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ProtectedServer]:
        """Serve as long as this is entered."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/mcp"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(self.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=[*self.scopes],
            validate_token_resource=True,
        )
        server = MCPServer("protected", auth=settings, token_verifier=self)
        server.tool()(whoami)
        app = server.streamable_http_app()
        async with server.session_manager.run(), listening(app, port):
            yield self

    async def verify_token(self, token: str) -> AccessToken | None:
        """What is known of a token; None if it is not valid here."""
        if token not in self.shown:
            self.shown.append(token)
        try:
            claims = jwt.decode(
                token, await self._key(token), ["ES256"], audience=self.url, issuer=self.issuer
            )
        except (jwt.PyJWTError, KeyError):
            return None
        if token in self.revoked:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=self.url,
            subject=claims["sub"],
            claims=claims,
        )

    async def _key(self, token: str) -> jwt.PyJWK:
        async with httpx2.AsyncClient() as http:
            metadata = (await http.get(f"{self.issuer}/.well-known/oauth-authorization-server")).json()
            keys = jwt.PyJWKSet.from_dict((await http.get(metadata["jwks_uri"])).json())
        return keys[jwt.get_unverified_header(token)["kid"]]


def whoami() -> str:
    """Whose rights are used?"""
    token = get_access_token()
    assert token is not None
    told = {"subject": token.subject, "client": token.client_id, "scopes": token.scopes}
    return json.dumps({**told, "actor": (token.claims or {}).get("act", {}).get("sub")})
