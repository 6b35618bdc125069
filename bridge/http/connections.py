"""The open connections of a server, what each waits for, and which one is closed when there are too many.

A connection is *new* until its first head is complete. From then on it is *kept*, and idle between two requests. New
connections have slots of their own. So peers that never send a head take no slot from those that do, and peers that
hold all other slots cannot lock out new connections. If a slot is needed, the connection that was idle longest is
closed, and otherwise the one whose body has been read longest. A connection with a request that is being answered, by a
call or a stream, is never closed for another one.

All bodies that are being read have a common bound. Above it, the largest ones are refused, so that small ones pass. A
body that comes in one piece with its head is never counted.

This module knows no HTTP and reads no bytes; `server.py` does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from bridge.http.request_checks import network_of, site_of
from bridge.settings import ConnectionSettings, RequestSettings

logger = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 2.0
"""How long input is discarded after a refusal: closing at once could lose the answer (RFC 9112 section 9.6)."""

_LOG_SECONDS: Final = 60.0
"""The pause between two log lines of one kind."""

_ELSEWHERE: Final = 4
"""One descriptor of so many is reserved for tool servers, agents and stores."""

_HEADS_OF: Final = 8
"""One slot of so many is for new connections, if there are few descriptors."""

_ROOM_OF: Final = 8
"""One byte of so many is freed at once when bodies are above their bound, so that not every piece needs a search."""


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class HttpServerLimits:
    """The bounds of a server: on each request, and on its connections."""

    requests: RequestSettings
    connections: ConnectionSettings

    def within(self, descriptors: int) -> HttpServerLimits:
        """These limits, with no more connections than a number of available descriptors allows."""
        places, wanted = descriptors - descriptors // _ELSEWHERE, self.connections
        new = max(1, min(wanted.new, places // _HEADS_OF))
        most = max(1, min(wanted.most, places - 2 * new))
        if (new, most) != (wanted.new, wanted.most):
            logger.info("%d descriptors are enough for %d connections", descriptors, most)
        return replace(self, connections=wanted.having(new=new, most=most))


class Connection(Protocol):
    """The calls of `Connections` to one connection. Each may close it; `Connections.left` is called afterwards."""

    kept: bool
    """Whether the connection has one of the slots that `most` counts. Only `Connections` uses this."""
    site: str | None
    """The site that the connection is counted for. Only `Connections` uses this."""

    @property
    def peer(self) -> str:
        """The address of the peer; "" if it has none."""
        ...

    @property
    def has_sent_all(self) -> bool:
        """Whether every answer was handed to the system in full."""
        ...

    def head_is_late(self) -> None:
        """The head has not come in time."""
        ...

    def look_at_body(self) -> None:
        """`body_seconds` have passed while the body was read."""
        ...

    def rest_is_over(self) -> None:
        """The connection has been idle for long enough, or its slot is needed."""
        ...

    def give_way(self) -> None:
        """The slot is needed, and the connection is reading a body."""
        ...

    def read_no_more(self) -> None:
        """All bodies together are too large, and this connection's body is one of the largest."""
        ...

    def refuse_more(self) -> None:
        """The address of the peer has too many connections."""
        ...

    def abort(self) -> None:
        """The connection has drained for long enough, or too many connections drain."""
        ...


@dataclass(eq=False)
class PendingHandshake:
    """A connection that is not secure yet. It counts as one that waits for its head, and is closed in every case."""

    peer: str
    abort: Callable[[], None]
    kept: bool = False
    site: str | None = None
    has_sent_all: Final = True

    def head_is_late(self) -> None:
        """See `Connection`."""
        self.abort()

    look_at_body = rest_is_over = give_way = read_no_more = refuse_more = head_is_late


class WaitingConnections:
    """Connections that wait for the same thing, the longest first. One that has waited too long is removed and told."""

    def __init__(self, seconds: float, tell: Callable[[Connection], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._since: dict[Connection, float] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._since)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._since

    def add(self, connection: Connection) -> None:
        """Let a connection wait from now on, behind all others."""
        self._since.pop(connection, None)
        self._since[connection] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def discard(self, connection: Connection) -> None:
        """Remove a connection, if it waits."""
        self._since.pop(connection, None)

    def longest(self) -> Connection | None:
        """The connection that has waited longest; None if none waits."""
        return next(iter(self._since), None)

    def _look(self) -> None:
        self._timer, now = None, self._loop.time()
        while (first := self.longest()) is not None:
            left = self._since[first] + self._seconds - now
            if left > 0:
                self._timer = self._loop.call_later(left, self._look)
                return
            del self._since[first]
            self._tell(first)


@dataclass
class _LogPause:
    """The pause after a log line: its end, and how many events came in it."""

    until: float
    more: int = 0


class RateLimitedLog:
    """Logs the first event of a kind at once, and later ones at most once a `_LOG_SECONDS`, with their number."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[str, _LogPause] = {}

    def warn(self, kind: str, peer: str) -> None:
        """Log an event of this kind. There must be few kinds, and none may come from a peer."""
        now, pause = self._clock(), self._pauses.get(kind)
        if pause is not None and now < pause.until:
            pause.more += 1
            return
        more = f"; {pause.more} more since the last such line" if pause is not None and pause.more else ""
        self._pauses[kind] = _LogPause(now + _LOG_SECONDS)
        logger.warning("%s%s%s", kind, f", from {peer}" if peer else "", more)


@dataclass(eq=False)
class Connections:
    """All connections of one listening socket. Create the object on the socket's event loop."""

    limits: ConnectionSettings
    requests: RequestSettings
    _kept: int = 0
    _of_site: dict[str, int] = field(default_factory=dict)
    _read: dict[Connection, int] = field(default_factory=dict)
    """The bytes received of each body that is being read, the one that began first before the others."""
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        limits, requests = self.limits, self.requests
        self._proxies = [network_of(network) for network in limits.proxies]
        self.heads = WaitingConnections(requests.head_seconds, lambda one: one.head_is_late())
        """Connections whose head is awaited: new ones, and kept ones that have sent a part of it."""
        self.bodies = WaitingConnections(requests.body_seconds, lambda one: one.look_at_body())
        """Connections whose body is being read and did not come with its head."""
        self.idle = WaitingConnections(limits.idle_seconds, lambda one: one.rest_is_over())
        """Idle connections."""
        self.draining = WaitingConnections(_LINGER_SECONDS, lambda one: one.abort())
        """Refused connections, which drain."""
        self.seldom = RateLimitedLog(asyncio.get_running_loop().time)

    def arrived(self, connection: Connection) -> None:
        """A connection was opened, and has sent nothing yet."""
        site = self._site(connection.peer)
        if site is not None:
            connection.site, count = site, self._of_site.get(site, 0) + 1
            self._of_site[site] = count
            if count > self.limits.each:
                connection.refuse_more()
                return
        self.await_head(connection)

    def await_head(self, connection: Connection) -> None:
        """Wait for a connection's head. If too many connections wait, the one that has waited longest is closed."""
        if connection in self.heads:
            return
        self.heads.add(connection)
        if len(self.heads) > self.limits.new and (first := self.heads.longest()) is not None:
            self.seldom.warn("too many connections wait for a request: closed the first of them", first.peer)
            self.heads.discard(first)
            first.head_is_late()

    def enters(self, connection: Connection) -> bool:
        """A connection's head is complete. Returns whether there is a slot for the request."""
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
        """A connection has received `size` more bytes of its body."""
        self._read[connection] = self._read.get(connection, 0) + size
        self._read_bytes += size
        if self._read_bytes > self.requests.bodies_limit_bytes:
            self._lighten()

    def has_read(self, connection: Connection) -> None:
        """A connection's body is complete, or no longer needed."""
        self._read_bytes -= self._read.pop(connection, 0)

    def _lighten(self) -> None:
        most = self.requests.bodies_limit_bytes - self.requests.bodies_limit_bytes // _ROOM_OF
        for connection in sorted(self._read, key=self._read.__getitem__, reverse=True):
            if self._read_bytes <= most:
                return
            self.has_read(connection)
            connection.read_no_more()

    def refused(self, connection: Connection) -> None:
        """A connection was refused. It gives up its slot, and drains for a while."""
        self._forget(connection)
        self.draining.add(connection)
        if len(self.draining) > self.limits.new and (first := self.draining.longest()) is not None:
            self.draining.discard(first)
            first.abort()

    def left(self, connection: Connection) -> None:
        """A connection was closed."""
        self._forget(connection)
        self.draining.discard(connection)
        site, connection.site = connection.site, None
        if site is not None:
            self._of_site[site] -= 1
            if not self._of_site[site]:
                del self._of_site[site]

    def relieve(self) -> None:
        """Close one connection, because no descriptor is left."""
        self.seldom.warn("no descriptor is left for another connection", "")
        if not self._make_room() and (first := self.heads.longest() or self.draining.longest()) is not None:
            first.abort()

    def _make_room(self) -> bool:
        first = next((one for one in self.idle if one.has_sent_all), None)
        if first is not None:
            self.seldom.warn("all connections are in use: closed the one that rested longest", first.peer)
            self._forget(first)
            first.rest_is_over()
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
        """The site of a peer, whose connections are counted together; None if they are not counted."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return None
        address = getattr(address, "ipv4_mapped", None) or address
        if address.is_loopback or any(address in network for network in self._proxies):
            return None
        return site_of(peer)
