"""A login of a person at the authorization server of an MCP server: the code flow, from the server's 401 to the tokens.

It has two halves, since the person is between them: the answer may come to another process than the one that asked. The
SDK's provider walks the first half: metadata, the client, the scopes, the resource. It runs here for one login alone,
on a client of its own. That client sends nothing to an address that the operator did not write and that is private,
nothing over plain HTTP beyond this machine, and reads bounded answers. Beyond the SDK, a server that does not say that
it checks PKCE is refused, and so is another issuer than the configured one. What is left is a value (`BegunLogin`),
with which the second half checks the answer and exchanges the code.

Spec: MCP 2026-07-28 authorization, RFC 7636 (PKCE), 8252 (native apps), 8707 (resources), 9207 (`iss`), 9728.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NoReturn
from urllib.parse import urlencode, urljoin, urlsplit

import anyio
import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthClientProvider, OAuthContext, PKCEParameters
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types.version import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, Field, ValidationError

from bridge.errors import PeerError, UsageError, reason_of
from bridge.http.client import GuardedTransport, guarded_by
from bridge.http.login_credentials import (
    LoginWish,
    token_answer,
    with_tokens,
    words_of_refusal,
)
from bridge.http.login_landing import LoginLanding
from bridge.http.logins import BegunLogin, Login, LoginClientAuth
from bridge.http.private_addresses import PrivateAddressError
from bridge.http.request_checks import is_loopback
from bridge.http.token_endpoint import ANSWER_BYTES, TokenError, issuer_guard, union_of
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

    The scopes of the login so far, and those that the peer has missed in it, are asked for as well, at the same issuer.

    Raises:
        LoginFlowError: a server or the person refused, or what a server says is not safe.
        UsageError: the server asks for no login, or the place of logins cannot be used.
    """
    begun = await begin_login(wish, landing.redirect_uri, seconds)
    landing.state = begun.state
    await show(begun.page)
    await landing.came.wait()
    return await finish_login(wish, begun, landing.answer, seconds)


async def begin_login(wish: LoginWish, redirect_uri: str, seconds: float) -> BegunLogin:
    """Find the page at which a person logs in. `seconds` bounds each answer of a server.

    Raises:
        LoginFlowError: a server refused, or what it says is not safe.
        UsageError: the server asks for no login.
    """
    async with wish.keeper.held(wish.key) as held:
        provider = _Provider(wish, redirect_uri, held.login)
    try:
        async with httpx2.AsyncClient(transport=_LoginTransport(wish), timeout=seconds) as http:
            status = await _challenged(http, wish, provider)
    except _BegunSignal as signal:
        return signal.begun
    except (OAuthFlowError, ValidationError) as exc:
        is_other = "issuer mismatch" in str(exc) and not wish.issuer
        hint = ". If you trust the first of the two, set `issuer` to it (--issuer)" if is_other else ""
        raise LoginFlowError(f"no login at {wish.key.shown}: {_shown(str(exc))}{hint}") from exc
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        raise LoginFlowError(f"no login at {wish.key.shown}: {reason_of(exc)}") from exc
    except (TokenError, PrivateAddressError) as exc:
        raise LoginFlowError(f"no login at {wish.key.shown}: {exc}") from exc
    raise UsageError(f"{wish.key.shown} asks for no login: it answered HTTP {status}")


async def finish_login(
    wish: LoginWish, begun: BegunLogin, answer: Mapping[str, str], seconds: float
) -> Login:
    """The login that the answer of a page is good for. The answer's `iss` is checked before the code is sent.

    Raises:
        LoginFlowError: the answer is not that of the page, or the person or the issuer refused.
    """
    try:
        code = _code_in(answer, begun)
        with anyio.fail_after(seconds):
            status, found = await token_answer(
                wish,
                begun.bare,
                {
                    "grant_type": "authorization_code",
                    "code": code,
                    "redirect_uri": begun.redirect_uri,
                    "client_id": begun.bare.client_id,
                    "code_verifier": begun.verifier,
                },
            )
        if status not in (200, 201) or found is None:
            raise TokenError(f"{begun.bare.issuer} gave no tokens: {words_of_refusal(status, found)}")
        tokens = OAuthToken.model_validate(found).model_dump()
        now = time.time()
        return with_tokens(replace(begun.bare, since=now), tokens, now)
    except TimeoutError as exc:
        words = f"{begun.bare.issuer} gave no tokens in {seconds:g} s"
        raise LoginFlowError(f"no login at {wish.key.shown}: {words}") from exc
    except ValidationError as exc:
        words = f"{begun.bare.issuer} answered without a token that can be used"
        raise LoginFlowError(f"no login at {wish.key.shown}: {words}") from exc
    except (TokenError, PrivateAddressError) as exc:
        raise LoginFlowError(f"no login at {wish.key.shown}: {exc}") from exc


def _code_in(answer: Mapping[str, str], begun: BegunLogin) -> str:
    """The code in an answer.

    Raises:
        TokenError: it is the answer to something else, of another issuer, or a refusal.
    """
    issuer, iss = begun.bare.issuer, answer.get("iss")
    if not secrets.compare_digest(answer.get("state", "").encode(), begun.state.encode()):
        raise TokenError("the answer is not the one to this login")
    if error := answer.get("error"):
        words = ": ".join(filter(None, [error, answer.get("error_description")]))
        raise TokenError(f"{issuer} gave no code: {_shown(words)}")
    if iss != issuer and (iss is not None or begun.says_issuer):
        said = "no issuer" if iss is None else f"the issuer {_shown(iss)}"
        raise TokenError(f"the answer names {said} in `iss`, and the login is at {issuer}")
    if not answer.get("code"):
        raise TokenError(f"{issuer} answered without a code")
    return answer["code"]


async def _challenged(http: httpx2.AsyncClient, wish: LoginWish, provider: _Provider) -> int:
    """Send what a server may refuse without a login, until it does; the status of its last answer."""
    headers, status = dict(_HEADERS), 0
    for message in (_INITIALIZE, _LIST_TOOLS):
        request = httpx2.Request("POST", wish.url, json=message, headers=headers)
        response = await http.send(request, auth=provider, stream=True, follow_redirects=False)
        await response.aclose()
        status = response.status_code
        if session := response.headers.get(_SESSION):
            headers[_SESSION] = session
    return status


_SESSION: Final = "mcp-session-id"
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
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
"""What servers refuse that let anybody say hello."""


@dataclass
class _LoginContext(OAuthContext):
    wished_resource: str | None = None

    def get_resource_url(self) -> str:
        return super().get_resource_url() if self.wished_resource is None else self.wished_resource

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        if self.wished_resource is not None:
            return bool(self.wished_resource)
        return super().should_include_resource_param(protocol_version)


class _ClientMetadata(OAuthClientMetadata):
    """What the bridge registers as. Issuers may refuse scopes that a client is not registered with."""

    wished_scopes: Callable[[], Sequence[str]] = Field(exclude=True)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        scope = " ".join(self.wished_scopes())
        return super().model_dump(**options) | ({"scope": scope} if scope else {})


class _BegunSignal(BaseException):
    """Ends the provider's flow where the person's part begins. No handler of errors on the way may take it."""

    def __init__(self, begun: BegunLogin) -> None:
        self.begun = begun


class _Provider(OAuthClientProvider):
    """The SDK's provider up to the page. It is its own storage: nothing is kept before the login is complete."""

    def __init__(self, wish: LoginWish, redirect_uri: str, before: Login | None) -> None:
        """`before` is the login so far."""
        metadata = _ClientMetadata(
            client_name="mcp-a2a",
            redirect_uris=[AnyUrl(redirect_uri)],
            wished_scopes=lambda: self._scopes,
        )
        super().__init__(wish.url, metadata, self, client_metadata_url=wish.client_metadata_url or None)
        known = {one.name: getattr(self.context, one.name) for one in fields(OAuthContext)}
        self.context = _LoginContext(**known, wished_resource=wish.resource)
        self._wish = wish
        self._redirect_uri = redirect_uri
        self._before = before

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
        """The tokens come later, and elsewhere."""

    def _select_authorization_server(self, advertised: list[str]) -> str:
        """The configured issuer, spelled as the operator did, if the server names it; else the first. Servers on the
        MCP SDK put a slash behind an issuer without a path, which its metadata may not have."""
        wished = self._wish.issuer
        if wished and wished.rstrip("/") in (one.rstrip("/") for one in advertised):
            return wished
        return super()._select_authorization_server(advertised)

    async def _perform_authorization(self) -> NoReturn:
        """End with the page, where the SDK would wait for its answer.

        Raises:
            OAuthFlowError: no code may be asked for there.
        """
        context, client = self.context, self.context.client_info
        assert client is not None
        _require_issuer(self._wish, self._issuer, context.oauth_metadata, self._before)
        scope = " ".join(self._scopes)
        has_resource = context.should_include_resource_param(context.protocol_version)
        bare = Login(
            issuer=self._issuer,
            token_url=self._token_url,
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            client_auth=_AUTH_METHODS.get(client.token_endpoint_auth_method, "none"),
            access_token="",
            got_at=0,
            since=0,
            scopes=tuple(scope.split()),
            resource=context.get_resource_url() if has_resource else "",
        )
        pkce, state = PKCEParameters.generate(), secrets.token_urlsafe(32)
        query = {
            "response_type": "code",
            "client_id": bare.client_id,
            "redirect_uri": self._redirect_uri,
            "state": state,
            "code_challenge": pkce.code_challenge,
            "code_challenge_method": "S256",
            "resource": bare.resource,
            "scope": scope,
            # OpenID Connect gives no refresh token otherwise (Core section 11).
            "prompt": "consent" if "offline_access" in bare.scopes else "",
        }
        page = f"{self._authorization_url}?{urlencode({key: value for key, value in query.items() if value})}"
        _require_reach(page)
        if _place(self._token_url) != _place(self._wish.url):
            _require_reach(self._token_url)
        says = (
            context.oauth_metadata and context.oauth_metadata.authorization_response_iss_parameter_supported
        )
        raise _BegunSignal(
            BegunLogin(page, self._redirect_uri, state, pkce.code_verifier, says is True, bare)
        )

    @property
    def _scopes(self) -> Sequence[str]:
        """The scopes to ask for. Those of another issuer mean nothing at this one."""
        wished = self._wish.scopes or (self.context.client_metadata.scope or "").split()
        before = self._before
        if before is None or before.issuer != self._issuer:
            return wished
        return union_of(wished, () if self._wish.scopes else before.scopes, before.wanted_scopes)

    @property
    def _issuer(self) -> str:
        metadata = self.context.oauth_metadata
        return str(metadata.issuer) if metadata else self._origin

    @property
    def _authorization_url(self) -> str:
        metadata = self.context.oauth_metadata
        return str(metadata.authorization_endpoint) if metadata else urljoin(self._origin, "/authorize")

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


def _require_issuer(
    wish: LoginWish, issuer: str, metadata: OAuthMetadata | None, before: Login | None
) -> None:
    """Refuse an issuer that is not the configured one, or does not say that it checks PKCE."""
    if wish.issuer and wish.issuer != issuer:
        raise OAuthFlowError(f"the server leads to the issuer {issuer}, and `issuer` is {wish.issuer}")
    has_moved = before is not None and not wish.issuer and before.issuer != issuer
    if before is not None and has_moved and before.client_id == wish.client_id:
        raise OAuthFlowError(
            f"the server has moved from the issuer {before.issuer} to {issuer}, and the client {wish.client_id} is"
            " one of the first. If you have registered it at the second, set `issuer` to that (--issuer)"
        )
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
