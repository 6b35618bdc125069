"""Runs the SDK's OAuth provider up to the page at which a person logs in, with stricter rules.

It refuses an issuer that does not announce PKCE, and an issuer other than the configured issuer. It sends nothing to a
private address that the operator did not write, and nothing over plain HTTP to another machine. The size of answers is
limited.

Spec: MCP 2026-07-28 authorization, RFC 7636 (PKCE), 8252 (native apps), 8705 (certificates), 8707 (resources), 9728.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, NoReturn
from urllib.parse import urlencode, urljoin, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthClientProvider, OAuthContext, PKCEParameters
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, Field

from bridge.http.client import GuardedClient, guarded_by
from bridge.http.request_checks import is_loopback
from bridge.identity.logins.kept_logins import BegunLogin, Login, LoginClientAuth, LoginLead
from bridge.identity.logins.login_clients import ClientUse, RegisteredClients
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.tokens.token_endpoint import (
    ANSWER_BYTES,
    TokenError,
    is_metadata_of_issuer,
    is_same_issuer,
    issuer_guard,
    object_in,
    union_of,
    with_mtls_aliases,
    without_blanks,
)

logger = logging.getLogger(__name__)

_AUTH_METHODS: Final[dict[str | None, LoginClientAuth]] = {
    "client_secret_basic": "basic",
    "client_secret_post": "post",
}
_OTHER_ISSUER: Final = (
    "the server leads to the issuer {}, and `issuer` is {}. If you trust the first, write it as `issuer`"
    " (--issuer)"
)
_METHOD_NAMES: Final = {"basic": "client_secret_basic", "post": "client_secret_post"}


@dataclass
class _LoginContext(OAuthContext):
    wished_resource: str | None = None
    is_led: bool = False

    def get_resource_url(self) -> str:
        return super().get_resource_url() if self.wished_resource is None else self.wished_resource

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        if self.wished_resource is not None:
            return bool(self.wished_resource)
        return self.is_led or super().should_include_resource_param(protocol_version)


class _ClientMetadata(OAuthClientMetadata):
    """The client metadata for registration. Issuers may refuse scopes that a client is not registered with."""

    wished_scopes: Callable[[], Sequence[str]] = Field(exclude=True)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        scope = " ".join(self.wished_scopes())
        return super().model_dump(**options) | ({"scope": scope} if scope else {})


class BegunSignal(BaseException):
    """Ends the provider's flow where the person's part begins. It is a BaseException, so that no error handler of the
    SDK catches it."""

    def __init__(self, begun: BegunLogin) -> None:
        self.begun = begun


class LoginProvider(OAuthClientProvider):
    """The SDK's provider up to the login page. It is its own storage, since nothing is stored before the login is
    complete."""

    def __init__(
        self,
        login_config: LoginConfig,
        redirect_uri: str,
        before: Login | None,
        lead: LoginLead | None,
        clients: RegisteredClients,
    ) -> None:
        """`before` is the current login. A newly registered client is added to `clients`."""
        metadata = _ClientMetadata(
            client_name="mcp-a2a",
            redirect_uris=[AnyUrl(redirect_uri)],
            wished_scopes=lambda: self._scopes,
        )
        url = lead.url if lead else login_config.url
        super().__init__(url, metadata, self, client_metadata_url=login_config.client_metadata_url or None)
        known = {field.name: getattr(self.context, field.name) for field in fields(OAuthContext)}
        self.context = _LoginContext(**known, wished_resource=login_config.resource, is_led=lead is not None)
        if lead is not None:  # for a peer without its own metadata
            self.context.auth_server_url = login_config.issuer or lead.issuer or None
        self._login_config = login_config
        self._lead = lead
        self._redirect_uri = redirect_uri
        # A record of a declined login has no issuer.
        self._before = before if before is not None and before.issuer else None
        self._refresh_url = ""
        self._iss = ""
        """The issuer exactly as in its metadata; empty if the rest of the login writes it the same way."""
        scopes = () if before is None else (*before.scopes, *before.wanted_scopes)
        self._clients = clients
        self._use = ClientUse(login_config.key, redirect_uri, (*login_config.scopes, *scopes))

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The configured client, or a recently registered client."""
        login_config = self._login_config
        if not login_config.client_id:
            return self._clients.find(self._use)
        return OAuthClientInformationFull(
            client_id=login_config.client_id,
            client_secret=login_config.secret or None,
            token_endpoint_auth_method=_METHOD_NAMES[login_config.method] if login_config.secret else "none",
            redirect_uris=self.context.client_metadata.redirect_uris,
            issuer=login_config.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember the client. It is stored with the login when the login is complete."""
        self._clients.keep(self._use, client_info)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Do nothing: this flow ends before tokens come."""

    def _select_authorization_server(self, advertised: list[str]) -> str:
        """The configured issuer, spelled as in the configuration, if the server names it; without a configured issuer
        the first that the server names. Servers on the MCP SDK append a slash to an issuer without a path, which its
        metadata may omit.

        Raises:
            OAuthFlowError: the server does not name the configured issuer.
        """
        wished = self._login_config.issuer
        if wished and any(is_same_issuer(wished, server) for server in advertised):
            return wished
        if wished:  # before any request to the other issuer
            raise OAuthFlowError(_OTHER_ISSUER.format(" or ".join(advertised), wished))
        return super()._select_authorization_server(advertised)

    def _expected_issuer(self) -> str:
        """The issuer whose metadata is read.

        Raises:
            OAuthFlowError: a peer that is no MCP server names no issuer. (Older MCP revisions define a default for MCP
                servers.)
        """
        if self._lead is not None and not self.context.auth_server_url:
            raise OAuthFlowError("it names no issuer. Set `issuer` (--issuer)")
        return super()._expected_issuer()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The flow of the SDK. It gets each answer as `_as_read` returns it."""
        async with aclosing(super().async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                try:
                    outgoing = await flow.asend(await self._as_read(outgoing, response))
                except StopAsyncIteration:
                    return

    async def _as_read(self, outgoing: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The answer for the SDK. Metadata loses its blank fields. The issuer's metadata gets the expected spelling of
        the issuer, and the mTLS aliases for a client with a certificate (RFC 8705 section 5)."""
        is_of_issuer = is_metadata_of_issuer(outgoing.url.path)
        if response.status_code != 200 or "/.well-known/" not in outgoing.url.path:
            return response
        document = object_in(await response.aread())
        if document is None:
            return response
        read = without_blanks(document)
        if is_of_issuer:
            shows = partial(
                self._login_config.shows_certificate, is_of_issuer=bool(self._login_config.issuer)
            )
            read = with_mtls_aliases(read, shows)
            if is_same_issuer(read.get("issuer"), expected := self._expected_issuer()):
                self._iss = "" if read["issuer"] == expected else str(read["issuer"])
                read = {**read, "issuer": expected}
        return response if read == document else httpx2.Response(200, json=read, request=outgoing)

    async def authorize_as_the_card_says(self, lead: LoginLead) -> NoReturn:
        """End the flow with the page that a card names, for an authorization server without metadata.

        Raises:
            OAuthFlowError: the endpoints or the configuration do not allow a login.
        """
        self.context.client_info = await self.get_client_info()
        if self.context.client_info is None:
            raise OAuthFlowError(
                "its card says where to log in, but not where to register a client. Set `client_id` (--client-id)"
            )
        if _place(lead.authorization_url) != _place(lead.token_url):
            page, token = (urlsplit(url).netloc for url in (lead.authorization_url, lead.token_url))
            raise OAuthFlowError(
                f"its card names a login page at {page} but a token endpoint at {token}, which may belong to somebody"
                " else. If both belong to one issuer, set `issuer` (--issuer)"
            )
        self._refresh_url = _refresh_url_of(lead)
        methods = {"code_challenge_methods_supported": ["S256"]} if lead.checks_pkce else {}
        self.context.oauth_metadata = OAuthMetadata.model_validate(
            {
                "issuer": "{0.scheme}://{0.netloc}".format(urlsplit(lead.token_url)),
                "authorization_endpoint": lead.authorization_url,
                "token_endpoint": lead.token_url,
                **methods,
            }
        )
        self.context.client_metadata.scope = " ".join(lead.scopes) or None
        await self._perform_authorization()

    async def _perform_authorization(self) -> NoReturn:
        """End the flow with the page; the SDK would wait for the page's answer here.

        Raises:
            OAuthFlowError, UnsentError: the endpoints or the configuration do not allow a login.
        """
        context, client = self.context, self.context.client_info
        assert client is not None
        _require_issuer(self._login_config, self._issuer, context.oauth_metadata, self._before)
        scope = " ".join(self._scopes)
        has_resource = context.should_include_resource_param(context.protocol_version)
        bare = Login(
            issuer=self._issuer,
            token_url=self._token_url,
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            client_auth=_client_auth_of(client, context.oauth_metadata),
            access_token="",
            got_at=0,
            since=0,
            scopes=tuple(scope.split()),
            resource=context.get_resource_url() if has_resource else "",
            allow_private=self._login_config.allow_private or bool(self._login_config.issuer),
            refresh_url=self._refresh_url,
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
            # Without consent OpenID Connect gives no refresh token (Core section 11).
            "prompt": "consent" if "offline_access" in bare.scopes else "",
        }
        joint = "&" if "?" in self._authorization_url else "?"
        page = f"{self._authorization_url}{joint}{urlencode({key: value for key, value in query.items() if value})}"
        _require_reach(page)
        if _place(self._token_url) != _place(self._login_config.url):
            _require_reach(self._token_url)
        written = (self._login_config.url, self._login_config.issuer)
        issuer_guard(
            self._token_url, written, allow_private=self._login_config.allow_private
        )  # before the person sees a page
        says = (
            context.oauth_metadata and context.oauth_metadata.authorization_response_iss_parameter_supported
        )
        raise BegunSignal(
            BegunLogin(page, self._redirect_uri, state, pkce.code_verifier, says is True, bare, self._iss)
        )

    @property
    def _scopes(self) -> Sequence[str]:
        """The scopes to request. The scopes of a login at another issuer are ignored."""
        wished = self._login_config.scopes or self._scopes_said
        before = self._before
        if before is None or not is_same_issuer(before.issuer, self._issuer):
            return wished
        return union_of(wished, () if self._login_config.scopes else before.scopes, before.wanted_scopes)

    @property
    def _scopes_said(self) -> Sequence[str]:
        """The scopes that the peer names. If it names none, the SDK takes all scopes of the issuer, as older MCP
        revisions require; for an agent they are dropped, since an agent that names no scopes needs none."""
        scopes, resource = (
            (self.context.client_metadata.scope or "").split(),
            self.context.protected_resource_metadata,
        )
        lead = self._lead
        if lead is None or "scope=" in challenge_of(lead) or (resource and resource.scopes_supported):
            return scopes
        return [scope for scope in scopes if scope == "offline_access"]

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


def login_client(login_config: LoginConfig, seconds: float, lead: LoginLead | None) -> httpx2.AsyncClient:
    """The HTTP client for the requests of a login. It checks the URL of each request, and limits the size of answers.
    It uses the environment's proxy under the same conditions as later requests to the peer."""
    written = (login_config.url, login_config.issuer)

    async def judge(request: httpx2.Request) -> None:
        url = str(request.url)
        if (request.url.scheme, request.url.netloc) != _place(login_config.url):
            _require_reach(url)
        guard = issuer_guard(url, written, allow_private=login_config.allow_private)
        request.extensions |= {**guarded_by(guard), **login_config.certified(url)}
        request.headers["Accept-Encoding"] = "identity"

    async def bound(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_packed = response.headers.get("content-encoding", "identity").lower() != "identity"
        response.stream = _Bounded(response.stream, str(response.request.url), is_packed=is_packed)

    place = urlsplit(login_config.url)
    is_own = lead is None and (login_config.tls is not None or is_loopback(place.hostname or ""))
    is_direct = is_own or not login_config.uses_proxy
    direct = {f"{place.scheme}://{place.netloc.rpartition('@')[2]}": None} if is_direct else {}
    return GuardedClient(
        timeout=seconds, mounts=direct, event_hooks={"request": [judge], "response": [bound]}
    )


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of an answer, limited in size. A compressed answer is refused, since its decompressed size has no
    limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, url: str, *, is_packed: bool) -> None:
        self._inner = inner
        self._url = url
        self._is_packed = is_packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_packed:
            raise TokenError(f"{self._url} sent a compressed answer, which was not requested")
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise TokenError(f"{self._url} answered with more than {ANSWER_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _place(url: str) -> tuple[str, bytes]:
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as exc:  # of a peer
        raise OAuthFlowError(f"the login leads to something that is not a URL: {exc}") from exc
    return parsed.scheme, parsed.netloc


def _client_auth_of(client: OAuthClientInformationFull, metadata: OAuthMetadata | None) -> LoginClientAuth:
    """How a client authenticates. If its registration gave a secret without a method, the method is one that the issuer
    supports, or basic if the issuer names none (RFC 7591 section 2, RFC 8414 section 2)."""
    method = client.token_endpoint_auth_method
    if method is None and client.client_secret:
        taken = metadata.token_endpoint_auth_methods_supported if metadata else None
        method = next(
            (
                known_method
                for known_method in _METHOD_NAMES.values()
                if taken is None or known_method in taken
            ),
            None,
        )
    return _AUTH_METHODS.get(method, "none")


def _require_issuer(
    login_config: LoginConfig, issuer: str, metadata: OAuthMetadata | None, before: Login | None
) -> None:
    """Refuse an issuer that is not the configured issuer, or does not announce PKCE."""
    if login_config.issuer and not is_same_issuer(login_config.issuer, issuer):
        raise OAuthFlowError(_OTHER_ISSUER.format(issuer, login_config.issuer))
    has_moved = before is not None and not login_config.issuer and not is_same_issuer(before.issuer, issuer)
    if before is not None and has_moved and before.client_id == login_config.client_id:
        raise OAuthFlowError(
            f"the server has moved from the issuer {before.issuer} to {issuer}, and the client"
            f" {login_config.client_id} is registered at the first. If you have registered it at the second, too, set"
            " `issuer` to the second (--issuer)"
        )
    methods = (metadata.code_challenge_methods_supported if metadata else None) or ()
    if "S256" not in methods and login_config.pkce != "assume":
        raise OAuthFlowError(
            f"{issuer} does not say that it checks PKCE with S256, so a stolen code may be used there. If you know"
            ' that it does, set `pkce = "assume"` (--assume-pkce)'
        )


def _refresh_url_of(lead: LoginLead) -> str:
    """The refresh URL of a card if it has the origin of the token endpoint; empty otherwise.

    A refresh token is sent only to the origin that gave it, whatever the card says. The token endpoint accepts it, too
    (RFC 6749 section 6).

    Raises:
        OAuthFlowError: the refresh URL is invalid, or not secure.
    """
    if not lead.refresh_url:
        return ""
    _require_reach(lead.refresh_url)
    if _place(lead.refresh_url) == _place(lead.token_url):
        return lead.refresh_url
    refresh_url = urlsplit(lead.refresh_url)
    logger.warning(
        "the card for %s says to renew a login at %s://%s, which did not give it: it is renewed at the token endpoint",
        urlsplit(lead.url)._replace(query="").geturl(),
        refresh_url.scheme,
        refresh_url.netloc,
    )
    return ""


def _require_reach(url: str) -> None:
    """Refuse a URL that is neither https nor on this machine, or that the command of a browser could misread."""
    try:
        place = urlsplit(url)
        has_port = place.port != 0
    except ValueError as exc:
        raise OAuthFlowError(f"the login leads to something that is not a URL: {exc}") from exc
    if not has_port:
        raise OAuthFlowError("the login leads to port 0, and there is no such port")
    is_here = place.scheme == "http" and is_loopback(place.hostname or "")
    if (place.scheme != "https" and not is_here) or "@" in place.netloc:
        raise OAuthFlowError(
            f"the login leads to {place.scheme}://{place.hostname}, which is no https:// URL"
        )
    if not url.isascii() or not url.isprintable() or set(url) & set("\"'`<>\\ "):
        raise OAuthFlowError("the login leads to a URL with invalid characters")


def challenge_of(lead: LoginLead) -> str:
    """The challenge of a peer. If it names no scopes, the scopes of the peer's card are added."""
    if not lead.scopes or "scope=" in lead.challenge:
        return lead.challenge
    scopes = f'scope="{" ".join(lead.scopes)}"'
    return f"{lead.challenge}, {scopes}" if "=" in lead.challenge else f"Bearer {scopes}"
