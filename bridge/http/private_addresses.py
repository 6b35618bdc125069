"""The addresses of this machine and its network, and guards that refuse connections to them.

A name does not show its address, and may resolve to another address each time. So a guard judges addresses, and the
client connects to an address that the guard judged (`client.py`). A proxy resolves names itself, so behind a proxy only
names and literal addresses can be judged.

The ranges are listed here because `ipaddress` takes different ranges for public in different patch releases of Python.

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
            "169.254.0.0/16",  # link-local, and the metadata services of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_GLOBAL: Final = ipaddress.IPv6Network("2000::/3")
"""The allocated global range of IPv6. Loopback, link-local, unique local, site-local and multicast lie outside it."""

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
"""Prefixes of IPv6 addresses that a gateway or the kernel maps to IPv4, and the index of the IPv4 address's first
byte."""

_PRIVATE_ENDINGS: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
"""Endings of names that no public server has: RFC 6761, 6762 and 8375, and `.internal`, which ICANN reserved."""

AddressJudge = Callable[[Sequence[str]], None]
"""Takes the addresses of a name. Raises PrivateAddressError if a connection to one of them is not allowed."""

ResolveName = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, for a port. Raises OSError if there are none."""


class PrivateAddressError(PeerError):
    """A connection would have gone to this machine or its network. Nothing was sent."""


def is_private_host(host: str) -> bool:
    """Whether a host's name or address belongs to this machine or its network."""
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
    """The addresses of a name, as the system resolves it."""
    entries = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(entry[4][0]) for entry in entries)]


def refusing_private(words: str) -> AddressJudge:
    """A judge that refuses private addresses with the message `words`, for names that the user did not give."""

    def judge(addresses: Sequence[str]) -> None:
        if any(map(is_private_host, addresses)):
            raise PrivateAddressError(words)

    return judge


def allowing_private(*, on_command_line: bool) -> str:
    """A hint that says how to allow a private address for a peer, on the command line or in a file."""
    return "add --allow-private" if on_command_line else "set `allow_private = true` for it"


class RebindingJudge:
    """Judges the addresses of a name that the user gave. They may be private, unless an earlier address was public."""

    def __init__(self) -> None:
        self._public: str | None = None
        self._is_known = False

    def judge(self, name: str, allowed_by: str) -> AddressJudge:
        """The judge for addresses of the name. `allowed_by` tells the user how to allow a private address."""

        def judge(addresses: Sequence[str]) -> None:
            private = next((address for address in addresses if is_private_host(address)), None)
            if private is not None and self._public is not None:
                raise PrivateAddressError(
                    f"{name} led to the public address {self._public} and now leads to the private address {private},"
                    f" so no connection was made. If that is right, {allowed_by}"
                )
            if not self._is_known and addresses:
                self._is_known, self._public = True, None if private else addresses[0]

        return judge


@dataclass(frozen=True, eq=False)
class AddressGuard:
    """Refuses connections to addresses that are not allowed."""

    judge: AddressJudge
    resolve: ResolveName = addresses_of
    uses_proxy: bool = True
    """Whether connections may use the proxy of the environment. Without a proxy the resolved addresses are judged
    too."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve and judge a name. The client may connect only to the addresses returned.

        Raises:
            PrivateAddressError: one of the addresses is not allowed.
            OSError: the name has no address.
            UnicodeError: the text cannot be a name.
        """
        addresses = await self.resolve(host, port)
        self.judge(addresses)
        return addresses
