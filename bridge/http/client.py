"""An HTTP client that connects only to addresses that a guard has judged.

A name may resolve to another address each time. So it is resolved once, all its addresses are judged, and the
connection is made to one of them. Certificates and the Host header still use the name. An idle connection keeps its
address, and that address is judged again for each request that reuses the connection: another request may have another
guard.

The guard travels with its request (`guarded_by`). A request through a proxy is not guarded, because the proxy resolves
the name.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import anyio
import httpcore2
import httpx2

from bridge.http.private_addresses import AddressGuard, PrivateAddressError

_GUARD: Final = "mcp_a2a.guard"
"""The extension of a request that holds its guard."""

_NEXT_ADDRESS_SECONDS: Final = 0.25
"""How long an address is tried before the next one is tried in parallel (RFC 8305 section 5)."""

_Connect = Callable[[str], Awaitable[httpcore2.AsyncNetworkStream]]


def guarded_by(guard: AddressGuard | None) -> dict[str, Any]:
    """The extensions of a request with this guard. Without a guard any address is allowed."""
    return {} if guard is None else {_GUARD: guard}


async def connect_guarded(host: str, port: int, guard: AddressGuard | None) -> httpcore2.AsyncNetworkStream:
    """Connect to a host, under a guard.

    Raises:
        PrivateAddressError: the guard refuses an address of the host.
        httpcore2.ConnectError: the connection cannot be made.
    """
    return await _Connecting(guard).connect_tcp(host, port)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """HTTP without a proxy, to addresses that the guard of each request allows.

    A request raises PrivateAddressError if its guard refuses an address. No connection was made then.
    """

    def __init__(
        self, *, verify: ssl.SSLContext | str | bool = True, limits: httpx2.Limits | None = None
    ) -> None:
        # The parent's __init__ is not called: it only makes a pool.
        self._pool = _Pool(httpx2.create_ssl_context(verify=verify), limits or httpx2.Limits())


class GuardedClient(httpx2.AsyncClient):
    """A client with guarded connections, except for those that the environment sends through a proxy."""

    def _init_transport(self, *_: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return GuardedTransport(verify=options["verify"], limits=options["limits"])


class _Pool(httpcore2.AsyncConnectionPool):
    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
        )
        self._context = context
        self._expiry_seconds = limits.keepalive_expiry

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        return _PooledConnection(origin, self._context, self._expiry_seconds)


class _PooledConnection(httpcore2.AsyncHTTPConnection):
    """One HTTP/1.1 connection. It serves one request at a time, and its first request opens it."""

    def __init__(
        self, origin: httpcore2.Origin, context: ssl.SSLContext, expiry_seconds: float | None
    ) -> None:
        self._connecting = _Connecting()
        super().__init__(origin, context, keepalive_expiry=expiry_seconds, network_backend=self._connecting)

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        guard: AddressGuard | None = request.extensions.get(_GUARD)
        if not self.is_connected():
            self._connecting.guard = guard
        elif guard is not None and self.is_idle():
            try:
                guard.judge([self._connecting.address])
            except PrivateAddressError as exc:
                await self.aclose()
                # The pool then opens another connection, under this request's guard.
                raise httpcore2.ConnectionNotAvailable from exc
        return await super().handle_async_request(request)


class _Connecting(httpcore2.AsyncNetworkBackend):
    """Connects to a name, and remembers the address that it connected to."""

    def __init__(self, guard: AddressGuard | None = None) -> None:
        self.guard = guard
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

        try:
            with anyio.fail_after(timeout):
                addresses = [host] if self.guard is None else await self.guard.addresses(host, port)
                stream = await _first_of(addresses, connect)
        except TimeoutError as exc:
            raise httpcore2.ConnectTimeout(str(exc)) from exc
        except (OSError, UnicodeError) as exc:
            raise httpcore2.ConnectError(str(exc)) from exc
        self.address = str(stream.get_extra_info("server_addr")[0])
        return stream


async def _first_of(addresses: Sequence[str], connect: _Connect) -> httpcore2.AsyncNetworkStream:
    """The first connection that succeeds. Each address is tried a little after the one before it.

    Raises:
        httpcore2.ConnectError: no connection succeeded.
    """
    made: list[httpcore2.AsyncNetworkStream] = []
    faults: list[httpcore2.ConnectError] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            made.append(await connect(address))
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
        if not made:
            raise faults[0] if faults else httpcore2.ConnectError("the name stands for no address")
        return made.pop(0)
    finally:
        with anyio.CancelScope(shield=True):
            for late in made:
                await late.aclose()
