"""Passes a request on to another replica, and streams the answer back.

The answer is neither buffered nor changed, and redirects are not followed. The proxy of the environment is not used,
because replicas are in the same network.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import anyio
import httpcore2
import httpx2
from starlette.types import Message

from bridge.http.client import HeaderLine
from bridge.replicas.replica_address import ReplicaAddress

_KEPT_SECONDS: Final = 2.0
"""How long an idle connection stays open: our servers keep it open longer."""
_KEPT_MOST: Final = 20

_OF_ONE_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""The headers that concern only one connection (RFC 9110 section 7.6.1)."""
_OURS: Final = frozenset({b"host", b"content-length", b"expect"})
"""The headers of a request that are not passed on, because they are set again."""
_OF_THE_SERVER: Final = frozenset({b"date", b"server"})
"""The headers of an answer that are not passed on, because our own server adds them."""


class UnreachableReplicaError(Exception):
    """A replica could not be reached, or gave no answer in time."""


class BrokenRelayError(Exception):
    """The answer of a replica was cut off."""


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request to pass on."""

    verb: str
    path: str
    headers: Iterable[HeaderLine]
    """The headers of the caller, and those of the passed request."""
    body: bytes = b""


class RelayedAnswer:
    """An answer whose head has arrived."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self.start: Message = {
            "type": "http.response.start",
            "status": response.status,
            "headers": _end_to_end(response.headers, _OF_THE_SERVER),
        }
        """The head as an ASGI message."""

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty if there is none."""
        return next((value for key, value in self.start["headers"] if key == name), b"")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            BrokenRelayError: the body was cut off.
        """
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as exc:
            raise BrokenRelayError(str(exc)) from exc


class ReplicaRelay:
    """Connections to other replicas."""

    def __init__(self, silence_seconds: float) -> None:
        """`silence_seconds` is how long a replica may take to begin its answer."""
        self._silence_seconds = silence_seconds

    @cached_property
    def _pool(self) -> httpcore2.AsyncConnectionPool:
        # Connections need no bound: the requests to pass on are bounded where they arrive.
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl,
            max_connections=None,
            max_keepalive_connections=_KEPT_MOST,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=_HostsAndSockets(),
        )

    @cached_property
    def _ssl(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()

    async def close(self) -> None:
        """Close all connections."""
        if "_pool" in self.__dict__:
            await self._pool.aclose()

    @asynccontextmanager
    async def answer(self, address: ReplicaAddress, request: RelayedRequest) -> AsyncIterator[RelayedAnswer]:
        """Pass a request on. The context yields the answer when its head has arrived.

        Raises:
            UnreachableReplicaError: the replica cannot be reached, or does not answer.
        """
        try:
            with anyio.fail_after(self._silence_seconds):
                response = await self._pool.handle_async_request(_made(address, request))
        except (
            TimeoutError,
            OSError,
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as exc:
            why = str(exc) or f"no answer within {self._silence_seconds:g} s"
            raise UnreachableReplicaError(why) from exc
        try:
            yield RelayedAnswer(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


def _made(address: ReplicaAddress, request: RelayedRequest) -> httpcore2.Request:
    headers = [
        (b"Host", address.authority.encode()),
        *_end_to_end(request.headers, _OURS),
        *([(b"Content-Length", str(len(request.body)).encode())] if request.verb == "POST" else []),
    ]
    url = httpcore2.URL(
        scheme=b"https" if address.is_secure else b"http",
        host=address.host.encode(),
        port=address.port,
        target=f"{address.base_path}{request.path}".encode(),
    )
    return httpcore2.Request(request.verb.encode(), url, headers=headers, content=request.body or None)


def _end_to_end(headers: Iterable[HeaderLine], but: frozenset[bytes]) -> list[HeaderLine]:
    """The end-to-end headers, except `but`."""
    lines = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in lines if name == b"connection").lower().split(b",")
    left_out = _OF_ONE_CONNECTION | but | {name.strip() for name in named}
    return [line for line in lines if line[0] not in left_out]


class _HostsAndSockets(httpcore2.AnyIOBackend):
    """Connects to a host, or to a unix socket if the host is a path."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if host.startswith("/"):
            return await self.connect_unix_socket(host, timeout, socket_options)
        return await super().connect_tcp(host, port, timeout, local_address, socket_options)
