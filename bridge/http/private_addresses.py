"""Which addresses are of this machine or its own network, and what keeps a connection from them.

A name says nothing of the address behind it, and may say another one each time. So what a guard judges are addresses,
and a connection is made to one of those that it judged (`http_client.py`). A proxy looks names up by itself, so that
behind one only names and literal addresses can be judged.

The ranges are our own: what `ipaddress` takes for public differs between patches of Python.

Spec: the IANA registries of special-purpose addresses; RFC 4291, 6052, 3056 (addresses within addresses), 8215.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from bridge.errors import PeerError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by customers of a carrier
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # the host of a machine at Azure
            "169.254.0.0/16",  # link-local, and what clouds tell their machines
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # for protocols
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # for protocols, Teredo among them
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_GLOBAL: Final = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is given out: loopback, link-local, unique local, site-local and multicast lie outside."""

_HOLD_IPV4: Final = tuple(
    (ipaddress.IPv6Network(prefix), first)
    for prefix, first in (
        ("::/96", 12),
        ("::ffff:0:0/96", 12),
        ("::ffff:0:0:0/96", 12),
        ("64:ff9b::/96", 12),
        ("2002::/16", 2),
    )
)
"""Prefixes behind which a gateway, or the kernel, takes an IPv6 address to an IPv4 one, and where that begins."""

_PRIVATE_ENDINGS: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
"""Names that no public server has: RFC 6761, 6762, 8375, and the one that ICANN set aside."""

AddressJudge = Callable[[Sequence[str]], None]
"""Takes the addresses of a name; raises a PrivateAddressError when one must not be connected to."""

ResolveName = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, for a port. It raises an OSError when there are none."""


class PrivateAddressError(PeerError):
    """A connection would have led to this machine or its own network. Nothing was written to it."""


def is_private_host(host: str) -> bool:
    """Whether a host's name or address says that it is this machine, or one of its own network."""
    host = host.strip("[]").rstrip(".").lower()
    address = _address_in(host)
    if address is None:
        return "." not in host or host.endswith(_PRIVATE_ENDINGS)
    return _is_private(address)


def _address_in(host: str) -> _Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    return None


def _is_private(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inside = [*_inside(address)]
        if inside or address not in _GLOBAL:
            return not inside or any(map(_is_private, inside))
    return any(address in network for network in _NOT_PUBLIC)


def _inside(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    for network, first in _HOLD_IPV4:
        if address in network:
            yield ipaddress.IPv4Address(address.packed[first : first + 4])


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """What the system says that a name stands for."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(one[4][0]) for one in found)]


def refusing_private(words: str) -> AddressJudge:
    """Refuses private addresses, with these words: for names that somebody else has given."""

    def judge(addresses: Sequence[str]) -> None:
        if any(map(is_private_host, addresses)):
            raise PrivateAddressError(words)

    return judge


def allowing_private(*, on_command_line: bool) -> str:
    """What allows a peer to be at a private address all the same, where that peer is given."""
    return "add --allow-private" if on_command_line else "set `allow_private = true` for it"


class RebindingJudge:
    """Where the name in a URL of the user's own led first. It may lead inside, but not once it was public."""

    def __init__(self) -> None:
        self._public: str | None = None
        self._is_known = False

    def judge(self, name: str, allowed_by: str) -> AddressJudge:
        """What judges addresses of the name; `allowed_by` says what to do where a private one is right."""

        def judge(addresses: Sequence[str]) -> None:
            private = next((address for address in addresses if is_private_host(address)), None)
            if private is not None and self._public is not None:
                raise PrivateAddressError(
                    f"{name} led to the public address {self._public} and now leads to the private address {private},"
                    f" which was not connected to. If that is right, {allowed_by}"
                )
            if not self._is_known and addresses:
                self._is_known, self._public = True, None if private else addresses[0]

        return judge


@dataclass(frozen=True, eq=False)
class AddressGuard:
    """What keeps connections from addresses that must not be connected to."""

    judge: AddressJudge
    resolve: ResolveName = addresses_of

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """What a name stands for now, judged: only to these addresses may a connection be made.

        Raises:
            PrivateAddressError: one of them must not be connected to.
            OSError: there are none.
            UnicodeError: it cannot be a name.
        """
        found = await self.resolve(host, port)
        self.judge(found)
        return found
