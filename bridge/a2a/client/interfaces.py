"""Which interfaces of a card a client calls, and who may be reached through a card.

A card is a stranger's word for where to send messages and credentials. One from the public network that leads
to this machine or its network would turn the bridge on its own neighbours; credentials belong to the origin
that they were given for. Names are judged here, and the addresses behind them when a connection is made.

Spec: A2A 1.0 sections 8.3 (which interface), 13.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bridge.a2a.client.card import FoundCard
from bridge.a2a.client.http import origin_of, redacted_url, url_from
from bridge.a2a.model.objects import BINDINGS, AgentCard, AgentInterface
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.errors import PeerError
from bridge.http.private_addresses import (
    AddressGuard,
    RebindingJudge,
    ResolveName,
    addresses_of,
    allowing_private,
    is_private_host,
    refusing_private,
)


@dataclass(frozen=True)
class Trust:
    """Where a card may lead."""

    origins: frozenset[str] = frozenset()
    """As `origin_of` writes them. Credentials go there too, and a private address among them is allowed."""
    allow_private: bool = False
    """Whether a card from the public network may name a private or loopback interface."""
    on_command_line: bool = False
    """Whether that is said there, and not in a file: who is refused is told how to allow it in the same place."""

    def how_to_add(self, origin: str) -> str:
        """How an origin comes among those that are trusted."""
        return f"add --trust {origin}" if self.on_command_line else f'add "{origin}" to its `trust`'


def interfaces_of(
    card: AgentCard, versions: Versions = VERSIONS
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    """The interfaces of a card that this client speaks, in the card's order, each with its dialect.

    A client that is told what to speak speaks it at every interface, where none is of that version.

    Raises:
        PeerError: there is none; it says what the card offers.
    """
    said = [(one, one.protocol_version) for one in card.supported_interfaces]
    spoken = _spoken(said, versions)
    if not spoken and versions.is_told:
        spoken = _spoken([(one, versions.current.version) for one, _ in said], versions)
    if spoken:
        return spoken
    offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    speaks = " and ".join(BINDINGS)
    raise PeerError(
        f"{card.name} offers {offered}, and this client speaks {speaks} {', '.join(versions.names)}"
    )


def _spoken(
    said: Iterable[tuple[AgentInterface, str]], versions: Versions
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    return tuple(
        (one, dialect)
        for one, version in said
        if one.protocol_binding.upper() in BINDINGS
        and (dialect := versions.find(version, one.protocol_binding)) is not None
    )


def interface_of(card: AgentCard) -> AgentInterface:
    """The interface that is called: the first one that this client speaks (section 8.3).

    Raises:
        PeerError: there is none.
    """
    return interfaces_of(card)[0][0]


def permitted_interfaces(
    found: FoundCard, trust: Trust, *, has_credentials: bool, versions: Versions = VERSIONS
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    """The interfaces that are spoken and may be called; the others are passed over.

    They are of one version, the first one's: what cannot be reached is no reason to speak an older one.

    Raises:
        PeerError: none is left; it says why the first one may not be called, and what allows it.
    """
    spoken = interfaces_of(found.card, versions)
    refusals = [_refusal(found, one.url, trust, has_credentials) for one, _ in spoken]
    if all(refusals):
        raise PeerError(refusals[0] or "")
    permitted = [pair for pair, refusal in zip(spoken, refusals, strict=True) if not refusal]
    version = permitted[0][1].version
    return tuple(pair for pair in permitted if pair[1].version == version)


@dataclass
class ConnectionPolicy:
    """How connections are judged that are made for one agent, or for the agents of one catalog."""

    own_url: str
    """What the user gave. Its name may lead inside, unless it was public before; all others were learned there."""
    trust: Trust = field(default_factory=Trust)
    resolve: ResolveName = addresses_of
    seen: RebindingJudge = field(default_factory=RebindingJudge)

    def guard(self, url: str, words: str = "") -> AddressGuard | None:
        """What judges connections to a URL; None when any address will do. One that was learned is refused with
        these words."""
        host, origin = url_from(url).host, origin_of(url)
        if self.trust.allow_private or origin in self.trust.origins or self.is_private:
            return None
        if origin != origin_of(self.own_url):
            return AddressGuard(refusing_private(words), self.resolve)
        allowed_by = allowing_private(on_command_line=self.trust.on_command_line)
        return AddressGuard(self.seen.judge(host, allowed_by), self.resolve)

    @property
    def is_private(self) -> bool:
        """Whether what the user gave says that it is of this machine or its own network."""
        return is_private_host(url_from(self.own_url).host)


def interface_guard(found: FoundCard, url: str, reach: ConnectionPolicy) -> AddressGuard | None:
    """What judges connections to a URL that a card names."""
    return reach.guard(url, _private_words(found, url, reach.trust))


def _refusal(found: FoundCard, url: str, trust: Trust, has_credentials: bool) -> str | None:
    """Why an interface may not be called."""
    here, there = origin_of(found.url), origin_of(url)
    if there == here or there in trust.origins:
        return None
    leads_inside = is_private_host(url_from(url).host) and not is_private_host(url_from(found.url).host)
    if leads_inside and not trust.allow_private:
        return _private_words(found, url, trust)
    if has_credentials:
        return (
            f"the card at {redacted_url(found.url)} says to call {redacted_url(url)}, which is another origin, so the "
            f"credentials are not sent there. If you trust it, {trust.how_to_add(there)}"
        )
    return None


def _private_words(found: FoundCard, url: str, trust: Trust) -> str:
    return (
        f"the card at {redacted_url(found.url)} is public and says to call {redacted_url(url)}, which is a"
        f" private address. If you trust it, {trust.how_to_add(origin_of(url))}"
    )
