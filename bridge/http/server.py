"""The HTTP server: uvicorn, with bounds on the resources that an unauthenticated peer may hold.

uvicorn's parser accepts heads of any size, and waits forever for the rest of a head or a body. This server bounds the
bytes, headers and time of a head, bounds the target, and requires a body to come at a minimum rate. It refuses a
request above a bound at once, before a task or an application sees it. `connections.py` bounds the connections.

A running answer is never cut off: a fault in a later request closes the connection after the answer.

This module accepts the connections itself, because asyncio logs a traceback each time that no descriptor is free.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

import anyio
import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from bridge.http.connections import Connections, HttpServerLimits, PendingHandshake
from bridge.http.request_checks import IDENTITIES
from bridge.http.tls import ShownCertificate, TlsPoint, UnreadableCertificateError
from bridge.settings import RequestSettings

logger = logging.getLogger(__name__)

_GOODBYE_SECONDS: Final = 3
"""The time for answers that are still being written after all tasks have ended."""

_BACKLOG: Final = 2048
"""The connections that the system queues until the server accepts them."""

_AT_ONCE: Final = 16
"""The connections that are accepted in one turn of the event loop: fewer than the descriptors that `connections.py`
reserves. Processes that share a listener accept one at a time, so that each process gets its share."""

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_PAUSE_SECONDS: Final = 0.1
"""The pause after `accept` failed because no descriptor was free."""

_UNREAD_BYTES: Final = 1024 * 1024
"""The most bytes of a body that are read after the answer, so that the connection can be reused."""


class RequestRefusal(Enum):
    """Why the server refuses a request: the HTTP status, and the message for the peer and the log."""

    MALFORMED = HTTPStatus.BAD_REQUEST, "this is not an HTTP request"
    TARGET = HTTPStatus.REQUEST_URI_TOO_LONG, "the target of the request is too long"
    HEAD = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of the request is too large"
    SLOW_HEAD = HTTPStatus.REQUEST_TIMEOUT, "the head of the request did not come in time"
    SLOW_BODY = HTTPStatus.REQUEST_TIMEOUT, "the body of the request came too slowly"
    PIPELINED = HTTPStatus.SERVICE_UNAVAILABLE, "too many requests were pipelined on one connection"
    FULL = HTTPStatus.SERVICE_UNAVAILABLE, "all connections are in use"
    BODIES_FULL = HTTPStatus.SERVICE_UNAVAILABLE, "the bodies of all current requests are too large"
    SITE_FULL = HTTPStatus.SERVICE_UNAVAILABLE, "too many connections from one address"

    @property
    def answer(self) -> bytes:
        """The whole response."""
        status, words = self.value
        body = json.dumps({"error": {"message": f"{words[0].upper()}{words[1:]}"}}).encode()
        again = b"retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else b""
        return (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n%s"
            % (status, status.phrase.encode(), len(body), again, body)
        )

    async def app(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - the signature of ASGI
        """An ASGI application that sends the response."""
        head, _, body = self.answer.partition(b"\r\n\r\n")
        headers = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]]
        await send({"type": "http.response.start", "status": self.value[0], "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @property
    def line(self) -> str:
        """The log line."""
        status, words = self.value
        return f"refused with {status:d}: {words}"


class _RequestRefusedError(Exception):
    """Raised in a callback of the parser to stop parsing."""

    def __init__(self, refusal: RequestRefusal) -> None:
        super().__init__(refusal.line)
        self.refusal = refusal


class _AnswerWrites:
    """The transport of one answer. It sends the head together with the body if the head declares one, and else with the
    bytes that follow in the same turn of the loop. So a short answer is one segment and one system call."""

    __slots__ = (
        "_has_begun",
        "_has_body",
        "_head",
        "_transport",
    )

    def __init__(self, transport: asyncio.Transport, *, has_body: bool) -> None:
        """`has_body` is whether a declared body follows the head; it does not in the answer to HEAD."""
        self._transport = transport
        self._has_body = has_body
        self._head: bytes | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Write a piece of the answer. The first piece is its head."""
        if not self._has_begun:
            self._has_begun, self._head = True, data
            if not (self._has_body and b"\r\ncontent-length: " in data):
                asyncio.get_running_loop().call_soon(self._flush)
        elif (head := self._head) is not None:
            self._head = None
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after the written bytes."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 on one connection, with bounds.

    A small request that comes in one piece costs one comparison per bound. All other code is for requests that come in
    several pieces.
    """

    # Python gives an object of more than 30 attributes a dictionary of 1.5 KB, and uvicorn's class alone
    # has nearly so many.
    __slots__ = (
        "_awaits_head",
        "_body_bytes",
        "_connections",
        "_ended_one",
        "_framing_bytes",
        "_head_bytes",
        "_identities",
        "_is_refused",
        "_limits",
        "_reads_body",
        "_unread_bytes",
        "_unsent_bytes",
        "handshake",
        "headers",
        "kept",
        "site",
        "url",
    )

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: RequestSettings,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.kept = False
        self.site: str | None = None
        self.handshake: PendingHandshake | None = None
        """The entry of this connection during its TLS handshake."""
        self._identities: tuple[str, ...] = ()
        self.url = b""
        self.headers = []
        self._limits = limits
        self._connections = connections
        self._awaits_head = True
        self._ended_one = False
        """Whether a request ended in the piece that is being parsed."""
        self._head_bytes = 0
        self._body_bytes = 0
        """The bytes of the body in the current period of `body_seconds`."""
        self._framing_bytes = 0
        """The bytes of chunk extensions and trailers since the last byte of the body."""
        self._unread_bytes = 0
        self._unsent_bytes = 0
        """The unsent bytes of the answer at the last call of `end_idle`."""
        self._reads_body = False
        """Whether the connection is reading a body that did not come with its head."""
        self._is_refused = False

    # Calls of `Connections`

    @property
    def peer(self) -> str:
        """The address of the peer; "" if it has none."""
        return self.client[0] if self.client else ""

    @property
    def has_sent_all(self) -> bool:
        """Whether every answer was handed to the system in full."""
        return not self.transport.get_write_buffer_size()

    def head_is_late(self) -> None:
        """Close the connection, with a refusal if a part of the head has come. A client that has sent nothing gets no
        refusal."""
        self._refuse(RequestRefusal.SLOW_HEAD, silently=not self._head_bytes)

    def check_body(self) -> None:
        """Refuse the body if too little of it came since the last call, unless the server itself paused reading."""
        wanted = self._wanted_bytes(self._limits.body_seconds)
        if self._body_bytes < wanted and not self.flow.read_paused and not self.pipeline:
            self._refuse(RequestRefusal.SLOW_BODY)
            return
        self._body_bytes = 0
        self._connections.bodies.add(self)

    def end_idle(self) -> None:
        """Close the connection, unless its peer still reads the answer at the minimum rate of bodies."""
        unsent, before = self.transport.get_write_buffer_size(), self._unsent_bytes
        self._unsent_bytes = unsent
        if not unsent:
            self.transport.close()
        elif before and before - unsent < self._wanted_bytes(self._connections.limits.idle_seconds):
            self.transport.abort()
        else:
            self._connections.idle.add(self)

    def give_way(self) -> None:
        """Refuse the request because its slot is needed."""
        self._refuse(RequestRefusal.FULL)

    def read_no_more(self) -> None:
        """Refuse the request because all bodies together are too large."""
        self._refuse(RequestRefusal.BODIES_FULL)

    def refuse_more(self) -> None:
        """Refuse the connection because its address has too many connections."""
        self._refuse(RequestRefusal.SITE_FULL)

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # Calls of asyncio

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.handshake is not None:
            self._connections.left(self.handshake)
            tls = transport.get_extra_info("ssl_object")
            self._identities = tls.identities if isinstance(tls, ShownCertificate) else ()
        self._connections.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.left(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        most = self._limits.head_limit_bytes
        if len(data) <= most:
            self._feed(data)
            return
        for start in range(0, len(data), most):
            self._feed(data[start : start + most])

    def _feed(self, data: bytes) -> None:
        """Parse a piece of at most `head_limit_bytes`. The size of a head is checked after each piece, so a head
        exceeds its limit by one piece at most."""
        if self._is_refused:
            return
        cycle = None if self._awaits_head else self.cycle
        body_bytes = len(cycle.body) if cycle is not None else 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no upgrade is supported; RFC 9110 section 7.8 lets a server continue in HTTP/1.1
        except httptools.HttpParserError as exc:
            raised = exc.__context__
            self._refuse(
                raised.refusal if isinstance(raised, _RequestRefusedError) else RequestRefusal.MALFORMED
            )
            return
        if self._ended_one:
            self._ended_one = False
        elif self._awaits_head:
            self._head_goes_on(len(data))
        else:
            is_body = self.cycle is not cycle or len(self.cycle.body) > body_bytes
            self._body_goes_on(len(data), is_body=is_body)

    # Calls of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._identities:
            scope: dict[str, Any] = {**self.scope, IDENTITIES: self._identities}
            self.scope = scope  # type: ignore[assignment] # uvicorn's type has no key of ours

    def on_headers_complete(self) -> None:
        limits = self._limits
        if len(self.url) > limits.target_limit_bytes:
            raise _RequestRefusedError(RequestRefusal.TARGET)
        if len(self.headers) > limits.headers or (
            self._head_bytes and self._size() > limits.head_limit_bytes
        ):
            raise _RequestRefusedError(RequestRefusal.HEAD)
        if len(self.pipeline) >= limits.pipelined:
            raise _RequestRefusedError(RequestRefusal.PIPELINED)
        if not self._connections.enters(self):
            raise _RequestRefusedError(RequestRefusal.FULL)
        super().on_headers_complete()
        writes = _AnswerWrites(self.transport, has_body=self.scope["method"] != "HEAD")
        self.cycle.transport = writes  # type: ignore[assignment] # all that a cycle calls
        self._awaits_head = False
        self._head_bytes = self._unsent_bytes = 0
        self.headers = []  # collects the trailers, which are no headers of the request (RFC 9110 section 6.5.1)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._awaits_head = self._ended_one = True
        if self._body_bytes or self._reads_body:
            self._body_bytes = self._unread_bytes = self._framing_bytes = 0
            self._reads_body = False
            self._connections.bodies.discard(self)
            self._connections.has_read(self)
            if self.cycle.response_complete:
                self._start_idle()

    def on_response_complete(self) -> None:
        if self.pipeline:
            super().on_response_complete()
            if not self._awaits_head:
                self._await_body()
            return
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._start_idle()

    def _start_idle(self) -> None:
        """Wait for the next request, if the current one was read in full."""
        if self._awaits_head and not self._is_refused:
            self._connections.idle.add(self)

    # Requests that come in pieces

    def _wanted_bytes(self, seconds: float) -> float:
        return self._limits.bytes_per_second * seconds

    def _head_goes_on(self, size: int) -> None:
        self._head_bytes += size
        if len(self.url) > self._limits.target_limit_bytes:
            self._refuse(RequestRefusal.TARGET)
        elif self._head_bytes > self._limits.head_limit_bytes or len(self.headers) > self._limits.headers:
            self._refuse(RequestRefusal.HEAD)
        else:
            self._connections.await_head(self)

    def _size(self) -> int:
        """The size of a complete head, without its separators."""
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _body_goes_on(self, size: int, *, is_body: bool) -> None:
        self._body_bytes += size
        if self.cycle.response_complete:
            self._unread_bytes += size
            self._connections.has_read(self)
        else:
            self._framing_bytes = 0 if is_body else self._framing_bytes + size
        if self._unread_bytes > _UNREAD_BYTES:
            self._refuse(RequestRefusal.SLOW_BODY, silently=True)
        elif self._framing_bytes > self._limits.head_limit_bytes or len(self.headers) > self._limits.headers:
            self._refuse(RequestRefusal.HEAD)
        else:
            if not self.pipeline and not self.cycle.response_complete:
                self._connections.read(self, size)
            self._await_body()

    def _await_body(self) -> None:
        """Require the minimum rate for a body after all earlier requests are answered."""
        if not self._reads_body and not self.pipeline and not self._is_refused:
            self._reads_body = True
            self._connections.bodies.add(self)

    def _refuse(self, refusal: RequestRefusal, *, silently: bool = False) -> None:
        """Read nothing more, and close the connection: with a refusal, or after the answer that is being written."""
        self._is_refused = True
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is not None and cycle.response_complete and not self._awaits_head
        if not silently and not is_answered:
            self._connections.limited_log.warn(refusal.line, self.peer)
        if cycle is not None and not cycle.response_complete:
            if self._awaits_head or self.pipeline or cycle.response_started:
                self._end_after(cycle, refusal)
                return
            cycle.disconnected = True
            cycle.message_event.set()
        elif silently or is_answered:
            self.transport.close()
            return
        self.transport.write(refusal.answer)
        self._connections.refused(self)
        if not self.transport.can_write_eof():
            return  # TLS cannot close one direction: the peer closes the connection, or the drain ends it
        try:
            self.transport.write_eof()
        except OSError:  # the peer has gone, and asyncio has not noticed yet
            self.transport.abort()

    def _end_after(self, cycle: RequestResponseCycle, refusal: RequestRefusal) -> None:
        """Close the connection after all earlier answers, and after the refusal of this request if it has a head."""
        cycle.keep_alive = False
        if self.pipeline and not self._awaits_head:
            self.pipeline[0] = cycle, refusal.app


class BoundedServer(uvicorn.Server):
    """uvicorn with bounds and without its signal handlers.

    uvicorn's handlers would end the streams at the first signal, before the bridge could drain its tasks.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: HttpServerLimits,
        *,
        shares_listener: bool = False,
        tls: TlsPoint | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                http="httptools",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_GOODBYE_SECONDS,
            )
        )
        self._limits = limits
        self._accepts_at_once = 1 if shares_listener else _AT_ONCE
        self._tls = tls
        self._accepting = anyio.CancelScope()

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve until `should_exit` is set. The listener closes then, before running requests end."""
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._accept, listener)
            await self.serve(sockets=[])
            self.accept_no_more()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and close the open ones."""
        self.accept_no_more()
        await super().shutdown(sockets)

    def accept_no_more(self) -> None:
        """Close the listener."""
        self._accepting.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process (`bridge/process/shutdown.py`)."""
        yield

    async def _accept(self, listener: socket.socket) -> None:
        connections = Connections(self._limits.connections, self._limits.requests)
        with listener, self._accepting:
            async with anyio.create_task_group() as handshakes:
                while True:
                    await anyio.wait_readable(listener)
                    async with anyio.create_task_group() as batch:
                        for accepted in _accepted(listener, connections, self._accepts_at_once):
                            if accepted is None:
                                batch.start_soon(anyio.sleep, _PAUSE_SECONDS)
                            elif self._tls is None:
                                batch.start_soon(self._connect, accepted, connections)
                            else:
                                handshakes.start_soon(self._secure, accepted, connections, self._tls)

    async def _connect(
        self,
        accepted: socket.socket,
        connections: Connections,
        handshake: PendingHandshake | None = None,
        **tls: Any,
    ) -> None:
        def protocol() -> BoundedProtocol:
            made = BoundedProtocol(
                self.config, self.server_state, self.lifespan.state, self._limits.requests, connections
            )
            made.handshake = handshake
            return made

        loop, peer = asyncio.get_running_loop(), _address_of(accepted)
        try:
            await loop.connect_accepted_socket(protocol, accepted, **tls)
        except Exception as exc:  # noqa: BLE001 - the fault of a single connection must not stop the others
            _log_failed_connection(exc, connections, peer)
            if not tls:  # with TLS asyncio closes the socket when the handshake has released it
                accepted.close()

    async def _secure(self, accepted: socket.socket, connections: Connections, tls: TlsPoint) -> None:
        """Do the TLS handshake of a connection. A slow peer delays no other connection."""
        with anyio.CancelScope() as scope:
            handshake = PendingHandshake(_address_of(accepted), scope.cancel)
            try:
                connections.arrived(handshake)
                if scope.cancel_called:
                    accepted.close()
                    return
                try:
                    context = tls.context()
                except Exception as exc:  # noqa: BLE001 - as in `_connect`
                    _log_failed_connection(exc, connections, handshake.peer)
                    accepted.close()
                    return
                await self._connect(
                    accepted,
                    connections,
                    handshake,
                    ssl=context,
                    ssl_handshake_timeout=self._limits.requests.head_seconds,
                    ssl_shutdown_timeout=_GOODBYE_SECONDS,
                )
            finally:
                connections.left(handshake)


def _log_failed_connection(exc: Exception, connections: Connections, peer: str) -> None:
    """Log why a connection was not made. Failed handshakes are common, so they are not warnings."""
    if isinstance(exc, UnreadableCertificateError):
        connections.limited_log.warn("refused a client whose certificate cannot be read", peer)
    elif not isinstance(exc, OSError):
        connections.limited_log.warn(f"a connection was closed at its start, by {type(exc).__name__}", peer)
    logger.debug("a connection was not made: %s", exc, exc_info=None if isinstance(exc, OSError) else exc)


def _address_of(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except (OSError, IndexError):  # already closed, or a socket without an address
        return ""


def _accepted(listener: socket.socket, connections: Connections, most: int) -> Iterator[socket.socket | None]:
    """Accept at most `most` waiting connections; None means that no descriptor was free."""
    for _ in range(most):
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            if exc.errno in _NO_DESCRIPTOR:
                connections.relieve()
                yield None
                return
            logger.debug(
                "a connection broke before it was accepted: %s", exc
            )  # Linux reports such faults from accept(2)
            continue
        accepted.setblocking(False)
        yield accepted
