"""An HTTP client that connects only to addresses that a guard allows, and the credentials for its requests.

A name may resolve to another address each time. So the client resolves a name once, judges all its addresses, and
connects to one of them. Certificates and the Host header still use the name. Each request that reuses an idle
connection judges the connection's address again, because each request has its own guard.

The guard travels with its request (`guarded_by`). A proxy resolves names itself, so the guard of a request through a
proxy judges only a literal address.

`PeerAuth` calls the source of credentials before each request. The source may wait, for example to replace an expired
token. Credentials and client certificates belong to one origin: a request to another origin gets none. A client
certificate travels with the request, and a connection serves only requests with the same certificate.
Never let the HTTP library follow redirects: it copies the headers to the new URL.
"""

from __future__ import annotations

import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import anyio
import httpcore2
import httpx2

from bridge.errors import UsageError
from bridge.http.private_addresses import AddressGuard, PrivateAddressError
from bridge.http.proxies import proxy_of
from bridge.http.tls import PeerTls

_GUARD: Final = "mcp_a2a.guard"
"""The extension of a request that holds its guard."""

_CERTIFIED: Final = "mcp_a2a.certified"
"""The extension of a request that holds the TLS files for its peer, and the peer's origin."""

_NEXT_ADDRESS_SECONDS: Final = 0.25
"""How long the client tries an address before it tries the next address in parallel (RFC 8305 section 5)."""

HeaderLine = tuple[bytes, bytes]
"""A header: its name and its value."""

_OF_THE_LIBRARY: Final = frozenset({b"host", b"accept-encoding", b"connection", b"user-agent", b"cookie"})
"""The headers that the HTTP library adds by itself. Credentials may replace them. The protocol sets all other
headers."""
_ANY_ANSWER: Final = (b"accept", b"*/*")
"""The Accept header that the library adds if the protocol has none."""

_SHORT_BYTES: Final = 64 * 1024
"""The longest body of a 401 or 403 after which the client sends the request again with new credentials."""

_LACKED_MOST: Final = 50
"""The most scopes that are read from a challenge. Real challenges name few scopes."""

_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")
"""A scope (RFC 6749 section 3.3), of a length that fits a message."""
_INSUFFICIENT: Final = re.compile(r'(?<![\w-])error="?insufficient_scope(?!\w)', re.IGNORECASE)
_CHALLENGED: Final = re.compile(r'(?<![\w-])scope=(?:"([^"]*)"|([^\s,"]+))', re.IGNORECASE)

_Connect = Callable[[str], Awaitable[httpcore2.AsyncNetworkStream]]


def guarded_by(guard: AddressGuard | None) -> dict[str, Any]:
    """The extensions of a request with this guard. Without a guard any address is allowed."""
    return {} if guard is None else {_GUARD: guard}


def certified_by(url: str, tls: PeerTls | None) -> dict[str, Any]:
    """The extensions of a request with this certificate. Only the origin of `url` sees the certificate."""
    return {} if tls is None else {_CERTIFIED: (_connection_origin(httpx2.URL(url)), tls)}


def shows_certificate(request: httpx2.Request) -> bool:
    """Whether a request shows the peer a client certificate."""
    certified = request.extensions.get(_CERTIFIED)
    return certified is not None and certified[1].certificate is not None


async def connect_guarded(host: str, port: int, guard: AddressGuard | None) -> httpcore2.AsyncNetworkStream:
    """Connect to a host, under a guard.

    Raises:
        PrivateAddressError: the guard refuses an address of the host.
        httpcore2.ConnectError: the connection cannot be made.
    """
    return await _Connecting(guard).connect_tcp(host, port)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """HTTP to addresses that the guard of each request allows.

    A request raises PrivateAddressError, before any connection is made, if its guard refuses an address.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | str | bool = True,
        limits: httpx2.Limits | None = None,
        uses_proxy: bool = False,
    ) -> None:
        """`uses_proxy` sends a request through the proxy that the environment names for its origin. The guard then
        judges only literal addresses."""
        # The parent's __init__ is not called: it only makes a pool.
        self._pool = _Pool(httpx2.create_ssl_context(verify=verify), limits or httpx2.Limits(), uses_proxy)


class GuardedClient(httpx2.AsyncClient):
    """A client with guarded connections, except for connections that go through a proxy of the environment."""

    def _init_transport(self, *_: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return GuardedTransport(verify=options["verify"], limits=options["limits"])

    def _init_proxy_transport(
        self, proxy: httpx2.Proxy, *_: Any, **options: Any
    ) -> httpx2.AsyncBaseTransport:
        return _ProxyTransport(proxy, options)


class _ProxyTransport(httpx2.AsyncHTTPTransport):
    """HTTP through a proxy, which resolves names itself: the guard judges only literal addresses. A request goes
    directly if its guard has `uses_proxy = False`."""

    def __init__(self, proxy: httpx2.Proxy, options: dict[str, Any]) -> None:
        super().__init__(proxy=proxy, **options)
        self._direct = GuardedTransport(verify=options["verify"], limits=options["limits"])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        guard: AddressGuard | None = request.extensions.get(_GUARD)
        if guard is not None:
            if not guard.uses_proxy:
                return await self._direct.handle_async_request(request)
            guard.judge([request.url.host])
        return await super().handle_async_request(request)

    async def __aexit__(self, *raised: Any) -> None:
        await self._direct.aclose()
        await super().__aexit__(*raised)

    async def aclose(self) -> None:
        await self._direct.aclose()
        await super().aclose()


class _Pool(httpcore2.AsyncConnectionPool):
    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits, uses_proxy: bool) -> None:
        super().__init__(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
        )
        self._context = context
        self._expiry_seconds = limits.keepalive_expiry
        self._uses_proxy = uses_proxy
        self._proxies: dict[tuple[bytes, bytes, int], str | None] = {}
        """The proxy of each origin so far. A pool that uses proxies has few origins."""

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        guard: AddressGuard | None = request.extensions.get(_GUARD)
        proxy = self._proxy_for(request.url.origin)
        if guard is not None and proxy is not None:
            guard.judge([request.url.host.decode("ascii")])  # a proxy resolves names itself
        return await super().handle_async_request(request)

    def _proxy_for(self, origin: httpcore2.Origin) -> str | None:
        if not self._uses_proxy:
            return None
        place = (origin.scheme, origin.host, origin.port)
        if place not in self._proxies:
            self._proxies[place] = proxy_of(
                origin.scheme.decode("ascii"), origin.host.decode("ascii"), origin.port
            )
        return self._proxies[place]

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        if proxy := self._proxy_for(origin):
            url = httpx2.Proxy(proxy)  # takes the name and the password out of the URL
            ways = httpcore2.AsyncHTTPProxy(
                str(url.url),
                url.raw_auth,
                ssl_context=self._context,
                keepalive_expiry=self._expiry_seconds,
            )
            return ways.create_connection(origin)
        return _PooledConnection(origin, self._context, self._expiry_seconds)


class _PooledConnection(httpcore2.AsyncHTTPConnection):
    """An HTTP/1.1 connection. It serves one request at a time, and its first request opens it."""

    def __init__(
        self, origin: httpcore2.Origin, context: ssl.SSLContext, expiry_seconds: float | None
    ) -> None:
        self._connecting = _Connecting()
        self._at = (origin.scheme, origin.host, origin.port)
        super().__init__(origin, context, keepalive_expiry=expiry_seconds, network_backend=self._connecting)

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        guard: AddressGuard | None = request.extensions.get(_GUARD)
        place, tls = request.extensions.get(_CERTIFIED, (None, None))
        tls = tls if place == self._at else None
        if not self.is_connected():
            self._connecting.guard = guard
            self._connecting.tls = tls
        elif self.is_idle():
            # After ConnectionNotAvailable the pool opens another connection for the request.
            if tls != self._connecting.tls:
                await self.aclose()
                raise httpcore2.ConnectionNotAvailable
            try:
                if guard is not None:
                    guard.judge([self._connecting.address])
            except PrivateAddressError as exc:
                await self.aclose()
                raise httpcore2.ConnectionNotAvailable from exc
        return await super().handle_async_request(request)


class _Connecting(httpcore2.AsyncNetworkBackend):
    """Connects to a name, and remembers the address that it connected to."""

    def __init__(self, guard: AddressGuard | None = None) -> None:
        self.guard = guard
        self.tls: PeerTls | None = None
        self.address = ""
        self._system = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        async def connect(to: str) -> httpcore2.AsyncNetworkStream:
            return await self._system.connect_tcp(to, port, None, local_address, socket_options)

        if not 0 < port < 1 << 16:  # a URL may contain it, and no socket accepts it
            raise httpcore2.ConnectError(f"there is no port {port}")
        try:
            with anyio.fail_after(timeout):
                addresses = [host] if self.guard is None else await self.guard.addresses(host, port)
                stream = await _first_of(addresses, connect)
        except TimeoutError as exc:
            raise httpcore2.ConnectTimeout(str(exc)) from exc
        except (OSError, UnicodeError) as exc:
            raise httpcore2.ConnectError(str(exc)) from exc
        self.address = str(stream.get_extra_info("server_addr")[0])
        return stream if self.tls is None else _CertifiedStream(stream, self.tls)


class _CertifiedStream(httpcore2.AsyncNetworkStream):
    """A connection whose handshake uses the TLS files of its peer."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, tls: PeerTls) -> None:
        self._inner = inner
        self._tls = tls

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,  # noqa: ARG002 - the context for all other peers
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            context = self._tls.context()
        except UsageError as exc:
            await self._inner.aclose()
            raise httpcore2.ConnectError(str(exc)) from exc
        return await self._inner.start_tls(context, server_hostname, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


async def _first_of(addresses: Sequence[str], connect: _Connect) -> httpcore2.AsyncNetworkStream:
    """The first connection that succeeds. The attempts start one after another, `_NEXT_ADDRESS_SECONDS` apart.

    Raises:
        httpcore2.ConnectError: no connection succeeded.
    """
    streams: list[httpcore2.AsyncNetworkStream] = []
    faults: list[httpcore2.ConnectError] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            streams.append(await connect(address))
        except httpcore2.ConnectError as exc:
            faults.append(exc)
            ended.set()
        else:
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                ended = anyio.Event()
                tasks.start_soon(attempt, address, ended)
                with anyio.move_on_after(_NEXT_ADDRESS_SECONDS):
                    await ended.wait()
        if not streams:
            raise faults[0] if faults else httpcore2.ConnectError("the name has no address")
        return streams.pop(0)
    finally:
        with anyio.CancelScope(shield=True):
            for late in streams:
                await late.aclose()


@dataclass(frozen=True)
class PeerCredentials:
    """The credentials for one request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: PeerTls | None = None
    """The client certificate, and the authorities that the peer's certificate may come from; None for the defaults."""

    @cached_property
    def lines(self) -> Sequence[HeaderLine]:
        """The headers as they are on the wire."""
        return httpx2.Headers(self.headers).raw

    @cached_property
    def names(self) -> frozenset[bytes]:
        """The names of the headers, in lower case."""
        return frozenset(name.lower() for name, _ in self.lines)


CredentialsSource = Callable[[], Awaitable[PeerCredentials]]
"""Returns the credentials for the next request. A source must bound its own waits."""


def fixed_credentials(credentials: PeerCredentials) -> CredentialsSource:
    """A source of credentials that never change."""

    async def source() -> PeerCredentials:
        return credentials

    return source


NO_CREDENTIALS: Final = fixed_credentials(PeerCredentials())
"""A source without credentials."""


class RenewableCredentials(ABC):
    """A source that can give other credentials when the peer refuses the current ones before they expire."""

    @abstractmethod
    async def __call__(self) -> PeerCredentials:
        """The credentials for the next request."""

    @abstractmethod
    def refused(self, credentials: PeerCredentials) -> None:
        """Never give out these credentials again: the peer refused them."""

    @abstractmethod
    async def widened(self, credentials: PeerCredentials, scopes: Sequence[str]) -> bool:
        """Whether the source now has other credentials, which may include the missing `scopes`.

        A second call with the same scopes must return False or raise: the peer may ask for them forever.
        """


class PeerAuth(httpx2.Auth):
    """Adds credentials to requests to one origin.

    It retries once with renewed credentials after a 401, and once with wider scopes after a 403 that asks for scopes
    (RFC 6750).
    """

    def __init__(self, url: str | httpx2.URL, source: CredentialsSource) -> None:
        """`url` is any URL of the origin."""
        self._origin = _origin(httpx2.URL(url))
        self._source = source

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request, with credentials if it goes to the origin."""
        plain, credentials = request.headers, None
        if _origin(request.url) == self._origin:
            credentials = await self._source()
            if credentials.headers:
                request.headers = _with(plain, credentials)
            if credentials.tls is not None:
                request.extensions = {
                    **request.extensions,
                    _CERTIFIED: (_connection_origin(request.url), credentials.tls),
                }
            if credentials.query:
                request.url = request.url.copy_merge_params(credentials.query)
        if request.url.userinfo.strip(b":"):
            # As the library does for requests without an Auth: the user in the URL takes precedence.
            next(httpx2.BasicAuth(request.url.username, request.url.password).auth_flow(request))
        response = yield request
        for status in (401, 403):
            # Before a retry the library reads the whole response. The caller, which has bounds, reads a long response.
            if (
                credentials
                and response.status_code == status
                and await self._has_others(credentials, response)
                and await _is_short(response)
            ):
                before, credentials = credentials, await self._source()
                if credentials is before:  # the source has no other credentials after all
                    return
                request.headers = _with(plain, credentials)
                response = yield request

    async def _has_others(self, credentials: PeerCredentials, response: httpx2.Response) -> bool:
        """Whether the source may have other credentials than `credentials`, which the response refuses."""
        if not isinstance(self._source, RenewableCredentials):
            return False
        if response.status_code == 401:
            self._source.refused(credentials)
            return True
        lacked = lacked_scopes(response)
        return bool(lacked) and await self._source.widened(credentials, lacked)


_REGISTERED: Final = {
    name.lower(): name
    for name in ("Basic", "Bearer", "Digest", "DPoP", "GNAP", "HOBA", "Mutual", "Negotiate")
}
"""The authentication schemes of HTTP as IANA's registry writes them."""


def registered_scheme(name: str) -> str:
    """The name of an authentication scheme in its registered spelling: some servers compare the case."""
    return _REGISTERED.get(name.lower(), name)


def wants_login(response: httpx2.Response) -> bool:
    """Whether a peer refuses a request and says where a person can log in (RFC 9728 section 5.1)."""
    return response.status_code == 401 and "resource_metadata" in response.headers.get("www-authenticate", "")


def lacked_scopes(response: httpx2.Response) -> Sequence[str]:
    """The scopes that the token of a request lacks, according to the peer's challenge; empty if it lacks none.

    Spec: RFC 6750 section 3.1, MCP 2026-07-28 authorization (scope challenges).
    """
    challenge = response.headers.get("www-authenticate", "")
    match = _CHALLENGED.search(challenge)
    if response.status_code != 403 or match is None or not _INSUFFICIENT.search(challenge):
        return ()
    scopes = dict.fromkeys((match[1] or match[2] or "").split())
    return [scope for scope in scopes if _SCOPE.fullmatch(scope)][:_LACKED_MOST]


def _with(headers: httpx2.Headers, credentials: PeerCredentials) -> httpx2.Headers:
    """The headers with the credentials added. Headers that the protocol set stay as they are."""
    library: list[HeaderLine] = []
    protocol: list[HeaderLine] = []
    needed = set[bytes]()
    for line in headers.raw:
        name = line[0].lower()
        if name not in _OF_THE_LIBRARY and (name, line[1]) != _ANY_ANSWER:
            protocol.append(line)
            needed.add(name)
        elif name not in credentials.names:
            library.append(line)
    added = [line for line in credentials.lines if line[0].lower() not in needed]
    return httpx2.Headers([*library, *added, *protocol])


async def _is_short(response: httpx2.Response) -> bool:
    """Whether a response has at most `_SHORT_BYTES`. The bytes read here stay readable for the caller."""
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream), "an AsyncClient has sent the request"
    response.stream = read = _ReadAhead(stream)
    return await read.is_whole_within(_SHORT_BYTES)


class _ReadAhead(httpx2.AsyncByteStream):
    """A body that replays the beginning that `is_whole_within` has read."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._rest = aiter(body)
        self._beginning: list[bytes] = []

    async def is_whole_within(self, most: int) -> bool:
        size = 0
        async for chunk in self._rest:
            self._beginning.append(chunk)
            size += len(chunk)
            if size > most:
                return False
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._beginning:
            yield chunk
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _connection_origin(url: httpx2.URL) -> tuple[bytes, bytes, int | None]:
    """The origin of a URL, in the form that connections use."""
    return url.raw_scheme, url.raw_host, url.port or {"https": 443, "http": 80}.get(url.scheme)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
