"""A login of a person at the authorization server of an MCP server: the code flow, from the server's 401 to the tokens.

The SDK's provider walks the way: metadata, the client, PKCE, `state`, `iss` and the code. It runs here for one login
alone, on a client of its own. That client sends nothing to an address that the operator did not write and that is
private, nothing over plain HTTP beyond this machine, and reads bounded answers. Beyond the SDK, a server that does
not say that it checks PKCE is refused, and so is another issuer than the configured one.

Spec: MCP 2026-07-28 authorization, RFC 7636 (PKCE), 8252 (native apps), 8707 (resources), 9207 (`iss`), 9728.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthClientProvider, OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types.version import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, ValidationError

from bridge.errors import PeerError, UsageError, reason_of
from bridge.http.client import GuardedTransport, guarded_by
from bridge.http.login_credentials import LoginWish, issuer_guard, with_tokens
from bridge.http.login_landing import LoginLanding
from bridge.http.logins import Login, LoginClientAuth
from bridge.http.private_addresses import PrivateAddressError
from bridge.http.request_checks import is_loopback
from bridge.http.token_endpoint import ANSWER_BYTES, TokenError
from bridge.safe_text import with_visible_characters

_LONGEST_WORDS: Final = 400
"""Characters of a server's words that a message repeats."""

_AUTH_METHODS: Final[dict[str | None, LoginClientAuth]] = {
    "client_secret_basic": "basic",
    "client_secret_post": "post",
}
_METHOD_NAMES: Final = {"basic": "client_secret_basic", "post": "client_secret_post"}

ShowPage = Callable[[str], Awaitable[None]]
"""Shows a person the page of the authorization server."""


class LoginFlowError(PeerError):
    """No login came about. The message says why, without any secret."""


async def log_in(wish: LoginWish, landing: LoginLanding, show: ShowPage, seconds: float) -> Login:
    """Log in at the authorization server of a peer. `seconds` bounds each answer of a server, not the person.

    Raises:
        LoginFlowError: a server or the person refused, or what a server says is not safe.
        UsageError: the server asks for no login.
    """
    provider = _Provider(wish, landing, show)
    request = httpx2.Request("POST", wish.url, json=_INITIALIZE, headers=_HEADERS)
    try:
        async with httpx2.AsyncClient(transport=_LoginTransport(wish), timeout=seconds) as http:
            response = await http.send(request, auth=provider, stream=True, follow_redirects=False)
            await response.aclose()
    except (OAuthFlowError, ValidationError) as exc:
        is_other = "issuer mismatch" in str(exc) and not wish.issuer
        hint = ". If you trust the first of the two, set `issuer` to it (--issuer)" if is_other else ""
        raise LoginFlowError(f"no login at {wish.key.shown}: {_shown(str(exc))}{hint}") from exc
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        raise LoginFlowError(f"no login at {wish.key.shown}: {reason_of(exc)}") from exc
    except (TokenError, PrivateAddressError) as exc:
        raise LoginFlowError(f"no login at {wish.key.shown}: {exc}") from exc
    if provider.login is None:
        raise UsageError(f"{wish.key.shown} asks for no login: it answered HTTP {response.status_code}")
    return provider.login


_HEADERS: Final = {"Accept": "application/json, text/event-stream"}
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "mcp-a2a", "version": "0"},
    },
}
"""What a server without a login refuses."""


@dataclass
class _LoginContext(OAuthContext):
    wished_resource: str | None = None

    def get_resource_url(self) -> str:
        return super().get_resource_url() if self.wished_resource is None else self.wished_resource

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        if self.wished_resource is not None:
            return bool(self.wished_resource)
        return super().should_include_resource_param(protocol_version)


class _Provider(OAuthClientProvider):
    """The SDK's provider for one login. It is its own storage: nothing is kept before the login is complete."""

    def __init__(self, wish: LoginWish, landing: LoginLanding, show: ShowPage) -> None:
        metadata = OAuthClientMetadata(client_name="mcp-a2a", redirect_uris=[AnyUrl(landing.redirect_uri)])
        super().__init__(
            wish.url, metadata, self, self._asked, self._answered, wish.client_metadata_url or None
        )
        known = {one.name: getattr(self.context, one.name) for one in fields(OAuthContext)}
        self.context = _LoginContext(**known, wished_resource=wish.resource)
        self.login: Login | None = None
        self._wish = wish
        self._landing = landing
        self._show = show

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registered client, if the operator named one."""
        wish = self._wish
        if not wish.client_id:
            return None
        return OAuthClientInformationFull(
            client_id=wish.client_id,
            client_secret=wish.secret or None,
            token_endpoint_auth_method=_METHOD_NAMES[wish.method] if wish.secret else "none",
            redirect_uris=self.context.client_metadata.redirect_uris,
            issuer=wish.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """The client is kept with the login."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Make the login of the tokens."""
        client, now = self.context.client_info, time.time()
        assert client is not None
        has_resource = self.context.should_include_resource_param(self.context.protocol_version)
        bare = Login(
            issuer=self._issuer,
            token_url=self._token_url,
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            client_auth=_AUTH_METHODS.get(client.token_endpoint_auth_method, "none"),
            access_token="",
            got_at=now,
            since=now,
            resource=self.context.get_resource_url() if has_resource else "",
        )
        self.login = with_tokens(bare, tokens.model_dump(), now)

    def _select_authorization_server(self, advertised: list[str]) -> str:
        """The configured issuer, spelled as the operator did, if the server names it; else the first. Servers on the
        MCP SDK put a slash behind an issuer without a path, which its metadata may not have."""
        wished = self._wish.issuer
        if wished and wished.rstrip("/") in (one.rstrip("/") for one in advertised):
            return wished
        return super()._select_authorization_server(advertised)

    async def _perform_authorization(self) -> httpx2.Request:
        if self._wish.scopes:
            self.context.client_metadata.scope = " ".join(self._wish.scopes)
        return await super()._perform_authorization()

    async def _asked(self, url: str) -> None:
        """Show the page of the authorization server, if the code may be asked for there."""
        _require_issuer(self._wish, self._issuer, self.context.oauth_metadata)
        _require_reach(url)
        self._landing.state = parse_qs(urlsplit(url).query)["state"][-1]
        await self._show(url)

    async def _answered(self) -> AuthorizationCodeResult:
        """What the browser brings back. The SDK checks `iss` before it sends the code."""
        await self._landing.came.wait()
        said = self._landing.answer
        if error := said.get("error"):
            words = ": ".join(filter(None, [error, said.get("error_description")]))
            raise OAuthFlowError(f"{self._issuer} gave no code: {words}")
        return AuthorizationCodeResult(code=said.get("code", ""), state=said["state"], iss=said.get("iss"))

    @property
    def _issuer(self) -> str:
        metadata = self.context.oauth_metadata
        return str(metadata.issuer) if metadata else self._origin

    @property
    def _token_url(self) -> str:
        metadata = self.context.oauth_metadata
        return str(metadata.token_endpoint) if metadata else urljoin(self._origin, "/token")

    @property
    def _origin(self) -> str:
        return self.context.get_authorization_base_url(self.context.server_url)


class _LoginTransport(GuardedTransport):
    """Requests of a login: judged by where they go, with bounded answers."""

    def __init__(self, wish: LoginWish) -> None:
        super().__init__()
        self._wish = wish

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, written = str(request.url), (self._wish.url, self._wish.issuer)
        if (request.url.scheme, request.url.netloc) != _place(self._wish.url):
            _require_reach(url)
        request.extensions |= guarded_by(issuer_guard(url, written, allow_private=self._wish.allow_private))
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream, url)
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, url: str) -> None:
        self._inner = inner
        self._url = url

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise TokenError(f"{self._url} answered with more than {ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _place(url: str) -> tuple[str, bytes]:
    parsed = httpx2.URL(url)
    return parsed.scheme, parsed.netloc


def _require_issuer(wish: LoginWish, issuer: str, metadata: OAuthMetadata | None) -> None:
    """Refuse an issuer that is not the configured one, or does not say that it checks PKCE."""
    if wish.issuer and wish.issuer != issuer:
        raise OAuthFlowError(f"the server leads to the issuer {issuer}, and `issuer` is {wish.issuer}")
    methods = (metadata.code_challenge_methods_supported if metadata else None) or ()
    if "S256" not in methods and wish.pkce != "assume":
        raise OAuthFlowError(
            f"{issuer} does not say that it checks PKCE with S256, so a stolen code may be used there. If you know"
            ' that it does, set `pkce = "assume"` (--assume-pkce)'
        )


def _require_reach(url: str) -> None:
    """Refuse what is neither https nor on this machine, or what a browser's command could misread."""
    place = urlsplit(url)
    is_here = place.scheme == "http" and is_loopback(place.hostname or "")
    if (place.scheme != "https" and not is_here) or "@" in place.netloc:
        raise OAuthFlowError(
            f"the login leads to {place.scheme}://{place.hostname}, which is no https:// URL"
        )
    if not url.isascii() or not url.isprintable() or set(url) & set("\"'`<>\\ "):
        raise OAuthFlowError("the login leads to a URL with characters that have no place in one")


def _shown(words: str) -> str:
    return with_visible_characters(words[:_LONGEST_WORDS], in_one_line=True)
