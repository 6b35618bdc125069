"""Streamable HTTP to a tool server, and the kinds of addresses of tool servers.

In the SDK's HTTP transport, a refused connection cancels all users of its client. Here a fault becomes the answer to
the request that met it: a JSON-RPC error that is marked as the transport's (see `faults.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx2
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError

from bridge.errors import PeerError, echoed, reason_of
from bridge.http.client import (
    CredentialsSource,
    GuardedClient,
    GuardedTransport,
    PeerAuth,
    PeerCredentials,
    fixed_credentials,
    guarded_by,
    lacked_scopes,
    wants_login,
)
from bridge.http.private_addresses import (
    AddressGuard,
    PrivateAddressError,
    RebindingJudge,
    allowing_private,
    is_private_host,
)
from bridge.http.probe import WantedKind, explained
from bridge.http.request_checks import is_loopback
from bridge.http.tls import PeerTls
from bridge.identity.logins.kept_logins import OPERATOR
from bridge.identity.logins.later_login import LaterCredentials, LaterLogin
from bridge.identity.logins.login_credentials import (
    LoginConfig,
    LoginNeededError,
    LoginToken,
    ScopesNeededError,
)
from bridge.identity.tokens.caller_token import CallerToken
from bridge.identity.tokens.oauth import ClientToken, TokenSource, bearer_credentials
from bridge.identity.tokens.token_endpoint import OAuthClient, TokenError
from bridge.identity.tokens.token_exchange import CallerTokenError, CallerTokens
from bridge.mcp.client.faults import (
    BROKEN_OFF,
    CALLER_GONE,
    HTTP_STATUS,
    LOGIN_NEEDED,
    LOGIN_REFUSED,
    SESSION_DOUBTED,
    SESSION_LOST,
    TOO_LARGE,
    UNREACHABLE,
    error_of,
    means_session_lost,
    phrase_of_lost_session,
)
from bridge.mcp.client.transports.bounded_bodies import Bounds, TooLargeError, unpacked
from bridge.mcp.client.transports.in_process import InProcessTarget
from bridge.mcp.client.transports.lenient_streams import lenient_streams
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.messages import messages_in, plain_message_in
from bridge.notices import NO_LISTENER, TokenListener
from bridge.text.jsonvalues import json_bytes
from bridge.text.safe_text import shell_word

logger = logging.getLogger(__name__)

_ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of an error page is read, to distinguish it from a JSON-RPC error."""

_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_MAY_BE_JSON: Final = frozenset(
    {"", "text/json", "text/plain", "application/json-rpc", "application/octet-stream"}
)
"""Further media types that servers use for JSON."""

NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
"""The errors before a request was sent. After any other error, the server may have acted on the request."""

LIMITS: Final = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)
"""Idle connections are closed earlier than servers close them (uvicorn: 5 s). Otherwise a server might close a
connection while a request is on its way."""


@dataclass(frozen=True)
class HttpTarget:
    """A server that is reached over Streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient | LoginConfig | TokenSource | None = None
    """How the bridge gets an access token for the server, if it needs one."""
    callers: CallerTokens | None = field(default=None, kw_only=True)
    """The source of access tokens for calls on behalf of callers; None if the server is called for the bridge
    itself."""
    tls: PeerTls | None = field(default=None, kw_only=True)
    """The client certificate, and the certificate authorities that the server's certificate may come from."""
    connect_seconds: float = field(kw_only=True)
    result_limit_bytes: int = field(kw_only=True)
    result_json_values: int = field(kw_only=True)
    shown: str = field(default="", compare=False)
    """The URL as it may be shown, if this differs from the URL without user, query and fragment."""
    allow_private: bool = False
    """Whether the name of the host may resolve to a private address after it resolved to a public one."""
    on_command_line: bool = field(default=False, compare=False)
    """Whether the server was given on the command line, not in a file. A refusal says how to allow it there."""
    listener: TokenListener = field(default=NO_LISTENER, compare=False, kw_only=True)
    """The listener for the access tokens for the server."""
    transport: Literal["auto", "sse"] = field(default="auto", kw_only=True)
    """`sse` uses only HTTP+SSE; `auto` tries Streamable HTTP first."""
    proxy: Literal["environment", "none"] = field(default="environment", kw_only=True)
    """Whether the proxy of the environment, if there is one, is used."""
    roots: tuple[str, ...] = field(default=(), kw_only=True)
    """The file URIs of the folders that the server is told when it asks for roots; without any, it may not ask."""
    seen: RebindingJudge = field(default_factory=RebindingJudge, repr=False, compare=False)

    @property
    def guard(self) -> AddressGuard | None:
        """The guard for connections to the server; None if any address is allowed."""
        host = httpx2.URL(self.url).host
        if self.allow_private or is_private_host(host):
            return None
        return AddressGuard(self.seen.judge(host, allowing_private(on_command_line=self.on_command_line)))

    @property
    def uses_proxy(self) -> bool:
        """Whether the server is reached through the proxy of the environment. A server with `tls` settings is not."""
        return self.proxy != "none" and self.tls is None

    @cached_property
    def tokens(self) -> TokenSource | None:
        """The source of access tokens; None if there are none. All sessions with the server share it."""
        if isinstance(self.oauth, LoginConfig):
            tokens: TokenSource = LoginToken(self.oauth, self.connect_seconds)
        elif isinstance(self.oauth, OAuthClient):
            tokens = ClientToken(self.oauth, self.connect_seconds)
        else:
            return self.oauth
        tokens.listener = self.listener
        return tokens

    @cached_property
    def credentials(self) -> CredentialsSource:
        """The credentials for each request."""
        bare = PeerCredentials(self.headers, tls=self.tls)
        if self.tokens is None:
            return fixed_credentials(bare)
        known = bearer_credentials(self.tokens, self.headers, self.tls)
        return LaterCredentials(self.tokens, known, bare) if isinstance(self.tokens, LaterLogin) else known

    @property
    def has_login_of_caller(self) -> bool:
        """Whether the server is called with the login of a caller. A session belongs to one such login, and ends with
        it."""
        return isinstance(self.oauth, LoginConfig) and self.oauth.principal != OPERATOR

    @property
    def how_to_log_in(self) -> str:
        """The hint for a server that requires the login of a person; empty if a token is configured."""
        if (
            not isinstance(self.oauth, LaterLogin | None)
            or self.callers is not None
            or "authorization" in map(str.lower, self.headers)
        ):
            return ""
        if self.on_command_line:
            return f"Run `mcp-a2a login {shell_word(str(self))}`"
        return (
            'Write auth = { oauth2 = { grant = "authorization_code" } } for it, and run `mcp-a2a login NAME`'
        )

    def with_listener(self, listener: TokenListener) -> HttpTarget:
        """The server, with a listener for the access tokens for it."""
        for tokens in (self.oauth, self.callers):
            if isinstance(tokens, TokenSource):
                tokens.listener = listener
        return replace(self, listener=listener)

    @property
    def caller_login(self) -> LoginConfig | None:
        """The login that the server wants of each caller; None if it wants none."""
        login_config = self.oauth
        return login_config if isinstance(login_config, LoginConfig) and login_config.of_each else None

    def of_principal(self, principal: str, caller: CallerToken | None = None) -> HttpTarget:
        """The server for one principal: with the token that the principal has shown, or with its login.

        Raises:
            CallerTokenError: the server is called on behalf of callers, and this caller has shown no token for it.
        """
        if self.callers is not None:
            return replace(self, oauth=self.callers.of(caller), callers=None)
        if (login_config := self.caller_login) is None:
            return self
        return replace(self, oauth=replace(login_config, principal=principal))

    def __str__(self) -> str:
        parts = urlsplit(self.shown or self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


ServerTarget = StdioTarget | HttpTarget | InProcessTarget


def is_local(target: ServerTarget) -> bool:
    """Whether a server is on this machine: an object, a command, or at a loopback address."""
    return not isinstance(target, HttpTarget) or is_loopback(urlsplit(target.url).hostname or "")


@asynccontextmanager
async def streamable_http(
    target: HttpTarget, on_fault: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Connect to a server over Streamable HTTP. `on_fault` is called with the kind of each fault."""
    transport = FaultMappingTransport(target, on_fault, limits=LIMITS)
    async with (
        client_of(target, transport) as client,
        lenient_streams(target.url, client) as streams,
    ):
        yield streams


def client_of(target: HttpTarget, transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    """An HTTP client with the credentials, timeout and guard of the target."""
    # No read timeout: a call has its own deadline, and a stream may be silent until then.
    timeout = httpx2.Timeout(None, connect=target.connect_seconds)
    guarded = guarded_by(target.guard)

    async def have_judged(request: httpx2.Request) -> None:
        request.extensions.update(guarded)

    return _TargetClient(
        transport=transport,
        timeout=timeout,
        auth=PeerAuth(target.url, target.credentials),
        event_hooks={"request": [have_judged]},
        on_token_error=transport.without_token if isinstance(transport, FaultMappingTransport) else None,
    )


class _TargetClient(httpx2.AsyncClient):
    """A client that treats a missing access token as a fault of the transport, if the transport maps faults."""

    def __init__(
        self, *, on_token_error: Callable[[httpx2.Request, PeerError], httpx2.Response] | None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._on_token_error = on_token_error

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. Nothing is sent without the token."""
        try:
            return await super().send(request, **options)
        except TokenError as exc:
            if self._on_token_error is None:
                raise
            return self._on_token_error(request, exc)


async def explained_at(target: HttpTarget, fault: PeerError) -> PeerError:
    """The fault, with an explanation of what answers at the URL instead of MCP. The target's headers are not sent."""
    async with GuardedClient(timeout=target.connect_seconds, trust_env=target.uses_proxy) as client:
        bound = target.connect_seconds
        return await explained(fault, client, target.url, WantedKind.SERVER, target.guard, bound)


class FaultMappingTransport(GuardedTransport):
    """An HTTP transport that never raises: a fault becomes a response with a JSON-RPC error."""

    def __init__(self, target: HttpTarget, on_fault: Callable[[str], None], *, limits: httpx2.Limits) -> None:
        super().__init__(limits=limits, uses_proxy=target.uses_proxy)
        self._name = str(target)
        self._how_to_log_in = target.how_to_log_in
        self._tokens = target.tokens
        self._is_callers = target.has_login_of_caller
        self._bounds = Bounds(target.result_limit_bytes, target.result_json_values)
        self._on_fault = on_fault

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; a transport error or an error page becomes a JSON-RPC error."""
        try:
            response = await super().handle_async_request(request)
        except PrivateAddressError as exc:
            return self.unreachable(request, exc)
        except NOT_SENT as exc:
            return self._fault(request, 502, UNREACHABLE, f"{self._name} cannot be reached: {reason_of(exc)}")
        except httpx2.TransportError as exc:
            return self._fault(request, 502, BROKEN_OFF, f"{self._name} broke off: {reason_of(exc)}")
        if response.status_code >= 400:
            return await self._error_page(request, response)
        kind = response.headers.get("content-type", "").lower()
        plain = unpacked(request, response, self._bounds, in_events=kind.startswith(_EVENTS))
        if kind.startswith(_JSON):
            return await self._whole(request, plain)
        if request.method == "POST" and kind.partition(";")[0].strip() in _MAY_BE_JSON:
            return _named_json(await self._whole(request, plain))
        return plain

    def without_token(self, request: httpx2.Request, fault: PeerError) -> httpx2.Response:
        """The response for a request without a token. If only scopes are missing, the token still serves other
        requests. If the caller's token is missing, earlier requests may still be answered."""
        if isinstance(fault, ScopesNeededError):
            return self._fault(request, 403, LOGIN_REFUSED if self._is_callers else HTTP_STATUS, str(fault))
        if isinstance(fault, CallerTokenError):
            return self._fault(request, 401, CALLER_GONE, str(fault))
        if isinstance(fault, LoginNeededError):
            kind = CALLER_GONE if self._is_callers else LOGIN_NEEDED
            return self._fault(request, 401, kind, str(fault))
        return self.unreachable(request, fault)

    def unreachable(self, request: httpx2.Request, fault: PeerError) -> httpx2.Response:
        """The response for a request that was not sent."""
        return self._fault(request, 502, UNREACHABLE, str(fault))

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Read the whole body if it is one JSON text, so that a fault in it can still become an error."""
        try:
            self._bounds.require_few_values(await response.aread())
        except TooLargeError as exc:
            return self._fault(request, 502, TOO_LARGE, str(exc))
        except (httpx2.StreamError, httpx2.HTTPError) as exc:
            return self._fault(request, 502, BROKEN_OFF, str(exc))
        finally:
            await response.aclose()
        return response

    async def _error_page(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """An error page as a JSON-RPC error, with the challenge for the credentials."""
        page = await self._error_response(request, response)
        if challenge := response.headers.get("www-authenticate"):
            page.headers["www-authenticate"] = challenge
        return page

    async def _error_response(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        body = await beginning_of(response)
        status, error = response.status_code, _jsonrpc_error(body)
        error_text = body.decode("utf-8", "replace") if error is None else error.message
        wants_token = "www-authenticate" in response.headers
        if self.is_of_session(request) and not wants_token and means_session_lost(status, error_text):
            # Not the original status, since a 401 would count as a refused token.
            return self._fault(request, 404, SESSION_LOST, f"{self._name} no longer knows the session")
        refuses_login = self._is_callers and status == 401
        if error is not None and status != 401:
            is_plain = plain_message_in(body) is not None
            return _json_response(request, status, body if is_plain else _error_body(error))
        words = f"{self._name} answered HTTP {status} {response.reason_phrase}".rstrip()
        words += f" ({echoed(error.message)})" if error is not None else ""
        if self.is_of_session(request) and not wants_token and (phrase := phrase_of_lost_session(error_text)):
            return self._fault(request, status, SESSION_DOUBTED, f"{words}: {phrase}")
        if wants_login(response) and self._how_to_log_in:
            words += f". {self._how_to_log_in}"
        elif status == 401 and self._tokens is not None and (hint := self._tokens.if_refused):
            words += f". {hint}"
        if lacked := lacked_scopes(response):
            words += f": the token lacks the scopes {' '.join(lacked)}"
        return self._fault(request, status, LOGIN_REFUSED if refuses_login else HTTP_STATUS, words)

    def is_of_session(self, request: httpx2.Request) -> bool:
        """Whether a request is a message of a session.

        A GET is not: a server without a stream for notifications may answer it with 404, too.
        """
        return request.method == "POST" and "mcp-session-id" in request.headers

    def _fault(self, request: httpx2.Request, status: int, kind: str, message: str) -> httpx2.Response:
        self._on_fault(kind)
        error = error_of(kind, message, status if kind == HTTP_STATUS else None)
        return _json_response(request, status, _error_body(error))


def _named_json(response: httpx2.Response) -> httpx2.Response:
    """The response, with the media type of JSON if its body is JSON."""
    try:
        json.loads(response.content)
    except (ValueError, RecursionError):
        return response
    response.headers["content-type"] = _JSON
    return response


async def beginning_of(response: httpx2.Response) -> bytes:
    """The first bytes of a body, decompressed. The rest is not read."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                chunks.append(piece[: _ERROR_BODY_BYTES - size])
                size += len(piece)
                if size >= _ERROR_BODY_BYTES:
                    break
    except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError):
        logger.debug("an error page broke off")
    finally:
        await response.aclose()
    return b"".join(chunks)


def _json_response(request: httpx2.Request, status: int, body: bytes) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": _JSON}, content=body, request=request)


def _error_body(error: ErrorData) -> bytes:
    """The body of a response with an error. The SDK takes it as the error of the request, whatever its id."""
    return json_bytes({"jsonrpc": "2.0", "id": None, "error": error.model_dump()})


def _jsonrpc_error(body: bytes) -> ErrorData | None:
    """The JSON-RPC error in a body; None if the body is not a JSON-RPC error."""
    if b'"jsonrpc"' not in body:
        return None
    read = messages_in(body)[0]
    message = read.message if isinstance(read, SessionMessage) else None
    return message.error if isinstance(message, JSONRPCError) else None
