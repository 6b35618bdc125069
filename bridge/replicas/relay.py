"""Passes a request on to another replica, and its answer back, as it comes.

The answer is not buffered, not changed, and not followed anywhere: a redirect is an answer like any other. No proxy of
the environment is asked, since replicas are in one network.
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
"""How long an idle connection is kept: shorter than any server of ours keeps it."""
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
"""The headers that are about one connection (RFC 9110 section 7.6.1)."""
_OURS: Final = frozenset({b"host", b"content-length", b"expect"})
"""The headers of a request that are made anew."""
_OF_THE_SERVER: Final = frozenset({b"date", b"server"})
"""The headers of an answer that our own server adds, too."""


class UnreachableReplicaError(Exception):
    """A replica gave no answer: it could not be reached, or was silent."""


class BrokenRelayError(Exception):
    """The answer of a replica broke off."""


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request to pass on."""

    verb: str
    path: str
    headers: Iterable[HeaderLine]
    """The caller's own headers, and the hop's."""
    body: bytes = b""


class RelayedAnswer:
    """An answer whose head has come."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response
        self.start: Message = {
            "type": "http.response.start",
            "status": response.status,
            "headers": _end_to_end(response.headers, _OF_THE_SERVER),
        }
        """The head, as ASGI has it."""

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty if it is not there."""
        return next((value for key, value in self.start["headers"] if key == name), b"")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it comes.

        Raises:
            BrokenRelayError: it broke off.
        """
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as exc:
            raise BrokenRelayError(str(exc)) from exc


class Relay:
    """Connections to other replicas."""

    def __init__(self, silence_seconds: float) -> None:
        """`silence_seconds` is how long a replica may take to begin its answer."""
        self._silence_seconds = silence_seconds

    @cached_property
    def _pool(self) -> httpcore2.AsyncConnectionPool:
        # As many connections as there are requests to pass on: those are bounded where they come in.
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
        """Pass a request on. The context has the answer once its head has come.

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
    """The headers that are not about one connection, without some others."""
    lines = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in lines if name == b"connection").lower().split(b",")
    left_out = _OF_ONE_CONNECTION | but | {name.strip() for name in named}
    return [line for line in lines if line[0] not in left_out]


class _HostsAndSockets(httpcore2.AnyIOBackend):
    """Connects to a host, or to a socket, whose path stands in the place of the host."""

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
