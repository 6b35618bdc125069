"""Which connections are open, what each waits for, and which has to go when there are too many.

A connection is *new* until its first head is whole; from then on it is *kept*, and rests between two requests. New ones
have places of their own, so that whoever sends no head takes no place from those who do, and those who hold all the
other places cannot shut the door. Where a place is wanted it is that of the one that rests longest, then that of
the body that is read longest; what is being answered, a call or a stream, is never ended for another's sake.

Bodies that are being read have a bound together. Beyond it, those that hold most are read no more, so that small ones
pass; what comes in one piece is never counted.

It knows no HTTP and reads no bytes: that is for `http_server.py`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

logger = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 2.0
"""How long what comes after a refusal is thrown away: closing at once could lose the answer (RFC 9112 section 9.6)."""

_LOG_SECONDS: Final = 60.0
"""Between two log lines of one kind."""

_ELSEWHERE: Final = 4
"""One descriptor of so many is for tool servers, agents and stores."""

_HEADS_OF: Final = 8
"""One of so many places is for new connections, where descriptors are few."""

_ROOM_OF: Final = 8
"""One of so many bytes of bodies is freed at once, so that not each piece has to look for who holds most."""

_SITE_BITS: Final = 64
"""What of an IPv6 address names a site: whoever has one address has all of these."""

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may take for what it has to send."""

    most: int
    """Connections from which a request has come."""
    new: int
    """Connections from which none has come yet; also those that are read out after a refusal."""
    each: int
    """Connections of one address, of either kind."""
    proxies: Sequence[IpNetwork]
    """Peers that speak for many: `each` is not for them."""
    idle_seconds: float
    head_seconds: float
    body_seconds: float
    bodies_bytes: int
    """What may have come of all bodies that are being read, together."""

    def within(self, descriptors: int) -> ConnectionLimits:
        """The same where no more than so many descriptors can be had."""
        places = descriptors - descriptors // _ELSEWHERE
        new = max(1, min(self.new, places // _HEADS_OF))
        return replace(self, new=new, most=max(1, min(self.most, places - 2 * new)))


class Connection(Protocol):
    """What is said to a connection. Each of these may close it; then `Connections.left` is told in the end."""

    kept: bool
    """Whether it has one of the places that `most` counts. For `Connections` alone."""
    site: str | None
    """Whose connections it counts among. For `Connections` alone."""

    @property
    def peer(self) -> str:
        """The address of its other end; "" where that has none."""
        ...

    @property
    def has_sent_all(self) -> bool:
        """Whether nothing that was answered is still on its way."""
        ...

    def head_is_late(self) -> None:
        """Its head has not come in time."""
        ...

    def look_at_body(self) -> None:
        """A while has passed in which its body was read."""
        ...

    def rest_is_over(self) -> None:
        """It has rested long enough, or its place is wanted."""
        ...

    def give_way(self) -> None:
        """It is reading a body, and its place is wanted."""
        ...

    def read_no_more(self) -> None:
        """It is reading a body, and holds most of what all of them have read, which is too much."""
        ...

    def refuse_more(self) -> None:
        """It is one too many of its address."""
        ...

    def abort(self) -> None:
        """It has been drained for long enough, or too many are."""
        ...


class WaitingConnections:
    """Connections that wait for the same, the longest first; who has waited too long is told, and is out."""

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
        """It waits from now on, behind all others."""
        self._since.pop(connection, None)
        self._since[connection] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def discard(self, connection: Connection) -> None:
        """It waits no more, if it did."""
        self._since.pop(connection, None)

    def longest(self) -> Connection | None:
        """Who waits longest."""
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
    """How often something happened that is told seldom."""

    until: float
    more: int = 0


class RateLimitedLog:
    """Logs each kind of event at once, and then not more than once in a while, with how many there were."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[str, _LogPause] = {}

    def warn(self, kind: str, peer: str) -> None:
        """Something of this kind happened. Kinds are few, and no peer's words."""
        now, pause = self._clock(), self._pauses.get(kind)
        if pause is not None and now < pause.until:
            pause.more += 1
            return
        more = f"; {pause.more} more since the last such line" if pause is not None and pause.more else ""
        self._pauses[kind] = _LogPause(now + _LOG_SECONDS)
        logger.warning("%s%s%s", kind, f", from {peer}" if peer else "", more)


@dataclass(eq=False)
class Connections:
    """All of one listening socket. Made on its loop."""

    limits: ConnectionLimits
    _kept: int = 0
    _of_site: dict[str, int] = field(default_factory=dict)
    _read: dict[Connection, int] = field(default_factory=dict)
    """What has come of each body that is being read, the one that began first before the others."""
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        limits = self.limits
        self.heads = WaitingConnections(limits.head_seconds, lambda one: one.head_is_late())
        """Those of which a head is awaited: new ones, and kept ones of which a part of it has come."""
        self.bodies = WaitingConnections(limits.body_seconds, lambda one: one.look_at_body())
        """Those of which a body is read that did not come with its head."""
        self.idle = WaitingConnections(limits.idle_seconds, lambda one: one.rest_is_over())
        """Those that rest."""
        self.draining = WaitingConnections(_LINGER_SECONDS, lambda one: one.abort())
        """Those that were refused."""
        self.seldom = RateLimitedLog(asyncio.get_running_loop().time)

    def arrived(self, connection: Connection) -> None:
        """It is open, and has sent nothing yet."""
        site = self._site(connection.peer)
        if site is not None:
            connection.site, count = site, self._of_site.get(site, 0) + 1
            self._of_site[site] = count
            if count > self.limits.each:
                connection.refuse_more()
                return
        self.await_head(connection)

    def await_head(self, connection: Connection) -> None:
        """Its head has to come soon. Who has waited longest goes when too many do."""
        if connection in self.heads:
            return
        self.heads.add(connection)
        if len(self.heads) > self.limits.new and (first := self.heads.longest()) is not None:
            self.seldom.warn("too many connections wait for a request: closed the first of them", first.peer)
            self.heads.discard(first)
            first.head_is_late()

    def enters(self, connection: Connection) -> bool:
        """A head of it is whole; whether there is a place for what it asks."""
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
        """So much more of its body has come."""
        self._read[connection] = self._read.get(connection, 0) + size
        self._read_bytes += size
        if self._read_bytes > self.limits.bodies_bytes:
            self._lighten()

    def has_read(self, connection: Connection) -> None:
        """Its body is whole, or nobody wants it any more."""
        self._read_bytes -= self._read.pop(connection, 0)

    def _lighten(self) -> None:
        most = self.limits.bodies_bytes - self.limits.bodies_bytes // _ROOM_OF
        for connection in sorted(self._read, key=self._read.__getitem__, reverse=True):
            if self._read_bytes <= most:
                return
            self.has_read(connection)
            connection.read_no_more()

    def refused(self, connection: Connection) -> None:
        """It is told why, and read out for a while, in none of the places of the others."""
        self._forget(connection)
        self.draining.add(connection)
        if len(self.draining) > self.limits.new and (first := self.draining.longest()) is not None:
            self.draining.discard(first)
            first.abort()

    def left(self, connection: Connection) -> None:
        """It is gone."""
        self._forget(connection)
        self.draining.discard(connection)
        site, connection.site = connection.site, None
        if site is not None:
            self._of_site[site] -= 1
            if not self._of_site[site]:
                del self._of_site[site]

    def relieve(self) -> None:
        """Close one, as no descriptor is left for anything."""
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
        """Whose connections are counted together; None for those that are not."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return None
        address = getattr(address, "ipv4_mapped", None) or address
        if address.is_loopback or any(address in network for network in self.limits.proxies):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((address, _SITE_BITS), strict=False))
        return str(address)
