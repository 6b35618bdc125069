"""The connections over which agents are called: shared by calls to one place, bounded in number, and closed at the end.

A name may resolve to another address each time. So a name is resolved here and judged by the guard, and the channel
gets addresses only. Each call judges the addresses of its channel again. A channel whose connection is lost is
replaced, and the name is then resolved anew. Certificates and the authority still use the name.

A call starts only on a connection that is ready. So a fault before that is certainly a request that was not sent.
Proxies of the environment are not used.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import anyio
import grpc
import httpx2
from grpc import aio

from bridge.a2a.client.http import NotReachedError, redacted_url
from bridge.errors import UsageError, echoed
from bridge.http.private_addresses import AddressGuard, PrivateAddressError, addresses_of
from bridge.http.tls import PeerTls

_CHANNELS: Final = 100
"""The most idle channels that are kept. HTTP keeps 20 idle connections, and each agent over gRPC needs one channel."""
_PING_MS: Final = 330_000
"""How long a connection may be silent until it is tested. Servers close a connection whose client asks more often than
each 5 minutes (github.com/grpc/grpc/blob/master/doc/keepalive.md)."""
_PING_ANSWER_MS: Final = 20_000
_REASON_SECONDS: Final = 1
_NO_FILES: Final = PeerTls()
_PROBE: Final = "/grpc.health.v1.Health/Check"
"""The call that asks gRPC why a connection failed. It needs a connection, so it is not sent."""


@dataclass
class _Held:
    """A channel, and the calls on it."""

    channel: aio.Channel
    addresses: Sequence[str]
    calls: int = 0


@dataclass
class GrpcChannels:
    """The channels of a process. Use it as a context manager, in the event loop of the calls."""

    most: int = _CHANNELS
    _held: dict[object, _Held] = field(default_factory=dict)
    _retired: list[_Held] = field(default_factory=list)
    """The channels that take no new calls, and still have some."""
    _of_files: dict[PeerTls, tuple[ssl.SSLContext, grpc.ChannelCredentials]] = field(default_factory=dict)
    """The credentials of TLS, and the context that was made from the same files. The context says when files change."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            for held in (*self._held.values(), *self._retired):
                await held.channel.close()
        self._held.clear()
        self._retired.clear()

    @asynccontextmanager
    async def connected(
        self,
        url: httpx2.URL,
        guard: AddressGuard | None,
        tls: PeerTls | None,
        connect_seconds: float,
        limit_bytes: int,
    ) -> AsyncIterator[aio.Channel]:
        """A channel with a ready connection to the host and port of a URL; `https` is TLS.

        Raises:
            NotReachedError: there is no connection, or the guard refuses an address.
        """
        where, key = redacted_url(str(url)), None
        try:
            credentials = self._credentials(tls) if url.scheme == "https" else None
            key = url.scheme, url.host, url.port, credentials, limit_bytes
            with anyio.fail_after(connect_seconds):
                held = await self._ready(key, url, guard, credentials, limit_bytes)
        except TimeoutError as exc:
            await self._retire(key)
            raise NotReachedError(
                f"{where} cannot be reached: no connection within {connect_seconds:g} s"
            ) from exc
        except PrivateAddressError as exc:
            raise NotReachedError(str(exc)) from exc
        except (OSError, UnicodeError, UsageError) as exc:
            raise NotReachedError(f"{where} cannot be reached: {exc}") from exc
        held.calls += 1
        try:
            yield held.channel
        finally:
            held.calls -= 1
            with anyio.CancelScope(shield=True):
                await self._close_unused()

    async def _ready(
        self,
        key: object,
        url: httpx2.URL,
        guard: AddressGuard | None,
        credentials: grpc.ChannelCredentials | None,
        limit_bytes: int,
    ) -> _Held:
        held = self._held.get(key)
        if held is not None and held.channel.get_state() is grpc.ChannelConnectivity.READY:
            if guard is not None:
                guard.judge(held.addresses)
            self._held[key] = self._held.pop(key)  # the channel that was used last is closed last
            return held
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await (addresses_of(url.host, port) if guard is None else guard.addresses(url.host, port))
        held = self._held.get(key)  # another call may have made a channel meanwhile
        if (
            held is None
            or set(held.addresses) != set(addresses)
            or held.channel.get_state()
            in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
        ):
            await self._retire(key)
            held = _Held(_channel(url, port, addresses, credentials, limit_bytes), addresses)
            self._held[key] = held
        await self._connect(held, url)
        return held

    def _credentials(self, tls: PeerTls | None) -> grpc.ChannelCredentials:
        """The credentials of the current files, or of the last good ones.

        Raises:
            UsageError: a file cannot be used, and there are no earlier credentials.
        """
        files = tls or _NO_FILES
        context = files.context()
        made = self._of_files.get(files)
        if made is None or made[0] is not context:
            made = self._of_files[files] = context, _credentials_of(files)
        return made[1]

    async def _connect(self, held: _Held, url: httpx2.URL) -> None:
        held.calls += 1
        try:
            state = held.channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    reason = await _reason(held.channel)
                    raise NotReachedError(f"{redacted_url(str(url))} cannot be reached over gRPC: {reason}")
                if state is grpc.ChannelConnectivity.SHUTDOWN:
                    raise NotReachedError(f"{redacted_url(str(url))} cannot be reached: the bridge stops")
                await held.channel.wait_for_state_change(state)
                state = held.channel.get_state(try_to_connect=True)
        finally:
            held.calls -= 1

    async def _retire(self, key: object) -> None:
        """Give a channel no new calls."""
        if (held := self._held.pop(key, None)) is not None:
            self._retired.append(held)
            with anyio.CancelScope(shield=True):
                await self._close_unused()

    async def _close_unused(self) -> None:
        """Close the channels that are retired or too many, if they have no calls."""
        idle = [key for key, held in self._held.items() if not held.calls]
        for key in idle[: max(0, len(self._held) - self.most)]:
            self._retired.append(self._held.pop(key))
        unused = [held for held in self._retired if not held.calls]
        self._retired = [held for held in self._retired if held.calls]
        for held in unused:
            await held.channel.close()


def _channel(
    url: httpx2.URL,
    port: int,
    addresses: Sequence[str],
    credentials: grpc.ChannelCredentials | None,
    limit_bytes: int,
) -> aio.Channel:
    """A channel to addresses alone. All must be of one family, since gRPC takes one in a target."""
    family = "ipv6" if ":" in addresses[0] else "ipv4"
    chosen = [address for address in addresses if (":" in address) == (family == "ipv6")]
    places = (f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in chosen)
    host = f"[{url.host}]" if ":" in url.host else url.host
    options: list[tuple[str, Any]] = [
        ("grpc.default_authority", f"{host}:{port}"),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", limit_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_ANSWER_MS),
    ]
    target = f"{family}:{','.join(places)}"
    if credentials is None:
        return aio.insecure_channel(target, options)
    options.append(("grpc.ssl_target_name_override", url.host))
    return aio.secure_channel(target, credentials, options)


def _credentials_of(tls: PeerTls) -> grpc.ChannelCredentials:
    """The credentials of TLS. Without authorities of the user, those of this system count, as over HTTP."""
    own: tuple[bytes | None, bytes | None] = (None, None)
    if tls.ca is not None:
        roots: bytes | None = tls.ca.read_bytes()
    else:
        known = ssl.create_default_context().get_ca_certs(binary_form=True)
        roots = "".join(map(ssl.DER_cert_to_PEM_cert, known)).encode() or None
    if tls.certificate is not None and tls.key is not None:
        own = tls.key.read_bytes(), tls.certificate.read_bytes()
    return grpc.ssl_channel_credentials(roots, *own)


async def _reason(channel: aio.Channel) -> str:
    """Why a channel has no connection, in gRPC's words."""
    try:
        await channel.unary_unary(_PROBE)(b"", timeout=_REASON_SECONDS)
    except aio.AioRpcError as exc:
        return echoed(exc.details() or exc.code().name)
    return "the connection failed"
