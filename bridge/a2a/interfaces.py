"""Which interfaces of a card a client calls, and who may be reached through a card.

A card is a stranger's word for where to send messages and credentials. One from the public network that leads
to this machine or its network would turn the bridge on its own neighbours; credentials belong to the origin
that they were given for. Names are judged here, and the addresses behind them when a connection is made.

Spec: A2A 1.0 sections 8.3 (which interface), 13.4.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bridge.a2a.card import FoundCard
from bridge.a2a.errors import A2AError
from bridge.a2a.fetch import Guard, NotReachedError, origin_of, shown, url_from
from bridge.a2a.models import AgentCard, AgentInterface
from bridge.a2a.versions import CURRENT, require_served
from bridge.errors import PeerError

JSONRPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
BINDINGS: Final = (JSONRPC, HTTP_JSON)
"""The bindings that this client speaks."""

_PRIVATE_ENDINGS: Final = (".localhost", ".local", ".internal", ".home.arpa", ".lan")
"""Names that no public server has: RFC 6761, 6762, 8375, and the one that ICANN set aside."""


@dataclass(frozen=True)
class Trust:
    """Where a card may lead."""

    origins: frozenset[str] = frozenset()
    """As `origin_of` writes them. Credentials go there too, and a private address among them is allowed."""
    allow_private: bool = False
    """Whether a card from the public network may name a private or loopback interface."""


def interfaces_of(card: AgentCard) -> tuple[AgentInterface, ...]:
    """The interfaces of a card that this client speaks, in the card's order.

    Raises:
        PeerError: there is none; it says what the card offers.
    """
    spoken = tuple(one for one in card.supported_interfaces if _is_spoken(one))
    if spoken:
        return spoken
    offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    speaks = " and ".join(BINDINGS)
    raise PeerError(f"{card.name} offers {offered}, and this client speaks {speaks} {CURRENT}")


def interface_of(card: AgentCard) -> AgentInterface:
    """The interface that is called: the first one that this client speaks (section 8.3).

    Raises:
        PeerError: there is none.
    """
    return interfaces_of(card)[0]


def permitted_interfaces(
    found: FoundCard, trust: Trust, *, has_credentials: bool
) -> tuple[AgentInterface, ...]:
    """The interfaces that are spoken and may be called; the others are passed over.

    Raises:
        PeerError: none is left; it says why the first one may not be called, and what allows it.
    """
    spoken = interfaces_of(found.card)
    refusals = [_refusal(found, one.url, trust, has_credentials) for one in spoken]
    if all(refusals):
        raise PeerError(refusals[0] or "")
    return tuple(one for one, refusal in zip(spoken, refusals, strict=True) if not refusal)


_HOLD_IPV4: Final = tuple(
    map(
        ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
    )
)
"""Prefixes behind which the last four bytes are an IPv4 address."""


def is_private_host(host: str) -> bool:
    """Whether a host's name or address says that it is this machine, or one of its own network."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_ENDINGS)
    inside = [*_inside(address)]
    return any(not one.is_global for one in inside) if inside else not address.is_global


def _inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 address to which a gateway, or the kernel, would take an IPv6 address (RFC 4291, 6052, 3056)."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    if any(address in network for network in _HOLD_IPV4):
        yield ipaddress.IPv4Address(address.packed[-4:])


def address_guard(found: FoundCard, url: str, trust: Trust) -> Guard | None:
    """What judges connections to a URL that a card names; None when any address will do."""
    return connection_guard(found.url, url, trust, _private_words(found, url))


def connection_guard(source_url: str, url: str, trust: Trust, words: str) -> Guard | None:
    """What judges connections to a URL that was read at another one, and refuses with these words.

    A public name may lead to a private address, and may do so only the second time that it is looked up. So
    the address is judged that the connection has, before anything is written to it. A connection to a proxy
    is not judged: the proxy looks up the name.
    """
    host = url_from(url).host
    allowed = trust.allow_private or origin_of(url) in {origin_of(source_url), *trust.origins}
    if allowed or is_private_host(url_from(source_url).host):
        return None
    connecting_to = ""

    async def watch(event: str, details: dict[str, Any]) -> None:
        nonlocal connecting_to
        if event == "connection.connect_tcp.started":
            connecting_to = str(details.get("host", ""))
        elif event == "connection.connect_tcp.complete" and connecting_to == host:
            stream = details["return_value"]
            address = stream.get_extra_info("server_addr")
            if address and is_private_host(str(address[0])):
                await stream.aclose()
                raise NotReachedError(words)

    return watch


def _is_spoken(interface: AgentInterface) -> bool:
    try:
        current = require_served(interface.protocol_version) == CURRENT
    except A2AError:
        return False
    return current and interface.protocol_binding.upper() in BINDINGS


def _refusal(found: FoundCard, url: str, trust: Trust, has_credentials: bool) -> str | None:
    """Why an interface may not be called."""
    here, there = origin_of(found.url), origin_of(url)
    if there == here or there in trust.origins:
        return None
    leads_inside = is_private_host(url_from(url).host) and not is_private_host(url_from(found.url).host)
    if leads_inside and not trust.allow_private:
        return _private_words(found, url)
    if has_credentials:
        return (
            f"the card at {shown(found.url)} says to call {shown(url)}, which is another origin, so the "
            f"credentials are not sent there. If you trust it, add --trust {there}"
        )
    return None


def _private_words(found: FoundCard, url: str) -> str:
    return (
        f"the card at {shown(found.url)} is public and says to call {shown(url)}, which is a private address. "
        f"If you trust it, add --trust {origin_of(url)}"
    )
