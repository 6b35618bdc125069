"""Knows the open connections of a server and what each waits for, and closes one when there are too many.

A connection is *new* until its first head is complete. From then on it is *kept*, and idle between two requests. New
and kept connections have separate slots. So peers that never send a head take no slot from other peers, and peers that
hold all slots for kept connections cannot lock out new connections. To free a slot, the server closes the connection
that was idle longest, or, if none is idle, the connection whose body has been read longest. It never closes a
connection whose request is being answered, by a call or a stream.

All bodies that are being read share one bound. Above it, the server refuses the largest bodies, so that small ones
pass. A body that comes in one piece with its head does not count.

This module knows no HTTP and reads no bytes; `server.py` does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from bridge.concurrency import WaitingLine
from bridge.http.request_checks import network_of, site_of
from bridge.settings import ConnectionSettings, RequestSettings

logger = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 2.0
"""How long input is discarded after a refusal: closing at once could lose the answer (RFC 9112 section 9.6)."""

_LOG_SECONDS: Final = 60.0
"""The pause between two log lines of the same kind."""

_ELSEWHERE: Final = 4
"""A quarter of the descriptors is reserved for tool servers, agents and stores."""

_HEADS_OF: Final = 8
"""If there are few descriptors, an eighth of the slots is for new connections."""

_ROOM_OF: Final = 8
"""When bodies exceed their bound, an eighth of the bound is freed at once, so that not every piece needs a search."""


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class HttpServerLimits:
    """The bounds of a server: on each request, and on its connections."""

    requests: RequestSettings
    connections: ConnectionSettings

    def within(self, descriptors: int) -> HttpServerLimits:
        """These limits, with at most as many connections as `descriptors` allows."""
        places, wanted = descriptors - descriptors // _ELSEWHERE, self.connections
        new = max(1, min(wanted.new, places // _HEADS_OF))
        most = max(1, min(wanted.most, places - 2 * new))
        if (new, most) != (wanted.new, wanted.most):
            logger.info("%d descriptors are enough for %d connections", descriptors, most)
        return replace(self, connections=wanted.having(new=new, most=most))


class Connection(Protocol):
    """A connection, as `Connections` uses it. Each call may close the connection, which then calls
    `Connections.left`."""

    kept: bool
    """Whether the connection has one of the slots that `most` counts. Only `Connections` uses this."""
    site: str | None
    """The site under which the connection is counted. Only `Connections` uses this."""

    @property
    def peer(self) -> str:
        """The address of the peer; "" if it has none."""
        ...

    @property
    def has_sent_all(self) -> bool:
        """Whether every answer was handed to the system in full."""
        ...

    def head_is_late(self) -> None:
        """Called when the head has not come in time."""
        ...

    def check_body(self) -> None:
        """Called each time that `body_seconds` have passed while the body is being read."""
        ...

    def end_idle(self) -> None:
        """Called when the connection has been idle for `idle_seconds`, or when its slot is needed."""
        ...

    def give_way(self) -> None:
        """Called when the slot is needed while the connection is reading a body."""
        ...

    def read_no_more(self) -> None:
        """Called when all bodies together are too large and this connection's body is among the largest."""
        ...

    def refuse_more(self) -> None:
        """Called when the peer's address has too many connections."""
        ...

    def abort(self) -> None:
        """Called when the connection has drained for `_LINGER_SECONDS`, or when too many connections drain."""
        ...


@dataclass(eq=False)
class PendingHandshake:
    """A connection during its TLS handshake. It counts as a connection that waits for its head, and every call closes
    it."""

    peer: str
    abort: Callable[[], None]
    kept: bool = False
    site: str | None = None
    has_sent_all: Final = True

    def head_is_late(self) -> None:
        """See `Connection`."""
        self.abort()

    check_body = end_idle = give_way = read_no_more = refuse_more = head_is_late


@dataclass
class _LogPause:
    """The pause after a log line: its end, and the number of events during the pause."""

    until: float
    more: int = 0


class RateLimitedLog:
    """Logs the first event of a kind at once, and later events as a count, at most once per `_LOG_SECONDS`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[str, _LogPause] = {}

    def warn(self, kind: str, peer: str) -> None:
        """Log an event of this kind. `kind` must come from a small fixed set, never from a peer."""
        now, pause = self._clock(), self._pauses.get(kind)
        if pause is not None and now < pause.until:
            pause.more += 1
            return
        more = f"; {pause.more} more since the last such line" if pause is not None and pause.more else ""
        self._pauses[kind] = _LogPause(now + _LOG_SECONDS)
        logger.warning("%s%s%s", kind, f", from {peer}" if peer else "", more)


@dataclass(eq=False)
class Connections:
    """All connections of a listening socket. Create the object on the socket's event loop."""

    limits: ConnectionSettings
    requests: RequestSettings
    _kept: int = 0
    _of_site: dict[str, int] = field(default_factory=dict)
    _read: dict[Connection, int] = field(default_factory=dict)
    """The bytes received of each body that is being read, in the order in which the bodies began."""
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        limits, requests = self.limits, self.requests
        self._proxies = [network_of(network) for network in limits.proxies]
        self.heads = WaitingLine[Connection](
            requests.head_seconds, lambda connection: connection.head_is_late()
        )
        """Connections whose head is awaited: new ones, and kept ones that have sent a part of a head."""
        self.bodies = WaitingLine[Connection](
            requests.body_seconds, lambda connection: connection.check_body()
        )
        """Connections whose body is being read and did not come with its head."""
        self.idle = WaitingLine[Connection](limits.idle_seconds, lambda connection: connection.end_idle())
        """Idle connections."""
        self.draining = WaitingLine[Connection](_LINGER_SECONDS, lambda connection: connection.abort())
        """Refused connections, whose remaining input is discarded."""
        self.limited_log = RateLimitedLog(asyncio.get_running_loop().time)

    def arrived(self, connection: Connection) -> None:
        """Add a connection that was opened and has sent nothing yet."""
        site = self._site(connection.peer)
        if site is not None:
            connection.site, count = site, self._of_site.get(site, 0) + 1
            self._of_site[site] = count
            if count > self.limits.each:
                connection.refuse_more()
                return
        self.await_head(connection)

    def await_head(self, connection: Connection) -> None:
        """Wait for a connection's head. If too many connections wait, close the one that has waited longest."""
        if connection in self.heads:
            return
        self.heads.add(connection)
        if len(self.heads) > self.limits.new and (first := self.heads.longest()) is not None:
            self.limited_log.warn(
                "too many connections wait for a request: closed the oldest of them", first.peer
            )
            self.heads.discard(first)
            first.head_is_late()

    def enters(self, connection: Connection) -> bool:
        """Give a connection with a complete head a slot for its request. Returns whether there is a slot."""
        self.heads.discard(connection)
        if connection.kept:
            self.idle.discard(connection)
            return True
        if self._kept >= self.limits.most and not self._make_room():
            return False
        connection.kept = True
        self._kept += 1
        return True

    def read(self, connection: Connection, size: int) -> None:
        """Count `size` more bytes of a connection's body."""
        self._read[connection] = self._read.get(connection, 0) + size
        self._read_bytes += size
        if self._read_bytes > self.requests.bodies_limit_bytes:
            self._refuse_largest_bodies()

    def has_read(self, connection: Connection) -> None:
        """Stop counting a connection's body: it is complete, or no longer needed."""
        self._read_bytes -= self._read.pop(connection, 0)

    def _refuse_largest_bodies(self) -> None:
        most = self.requests.bodies_limit_bytes - self.requests.bodies_limit_bytes // _ROOM_OF
        for connection in sorted(self._read, key=self._read.__getitem__, reverse=True):
            if self._read_bytes <= most:
                return
            self.has_read(connection)
            connection.read_no_more()

    def refused(self, connection: Connection) -> None:
        """Take the slot of a refused connection, and let it drain for `_LINGER_SECONDS`."""
        self._forget(connection)
        self.draining.add(connection)
        if len(self.draining) > self.limits.new and (first := self.draining.longest()) is not None:
            self.draining.discard(first)
            first.abort()

    def left(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        self._forget(connection)
        self.draining.discard(connection)
        site, connection.site = connection.site, None
        if site is not None:
            self._of_site[site] -= 1
            if not self._of_site[site]:
                del self._of_site[site]

    def relieve(self) -> None:
        """Close one connection, because no descriptor is left."""
        self.limited_log.warn("no descriptor is left for another connection", "")
        if not self._make_room() and (first := self.heads.longest() or self.draining.longest()) is not None:
            first.abort()

    def _make_room(self) -> bool:
        first = next((connection for connection in self.idle if connection.has_sent_all), None)
        if first is not None:
            self.limited_log.warn(
                "all connections are in use: closed the one that was idle longest", first.peer
            )
            self._forget(first)
            first.end_idle()
            return True
        first = self.bodies.longest()
        if first is not None:
            self._forget(first)
            first.give_way()
        return first is not None

    def _forget(self, connection: Connection) -> None:
        for queue in (self.heads, self.bodies, self.idle):
            queue.discard(connection)
        self.has_read(connection)
        if connection.kept:
            connection.kept = False
            self._kept -= 1

    def _site(self, peer: str) -> str | None:
        """The site under which a peer's connections are counted; None if they are not counted."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return None
        address = getattr(address, "ipv4_mapped", None) or address
        if address.is_loopback or any(address in network for network in self._proxies):
            return None
        return site_of(peer)
