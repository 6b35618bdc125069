"""Decides which interfaces of a card a client calls, and to which addresses a card may send it.

A card is untrusted, and says where to send messages and credentials. A public card that names a private address could
make the bridge attack its own network (server-side request forgery, SSRF). Credentials may go only to the origin that
they are configured for. This module checks host names; their IP addresses are checked when a connection is made.

Spec: A2A 1.0 sections 8.3 (which interface), 13.4.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.http import origin_of, redacted_url, url_from
from bridge.a2a.model.objects import BINDINGS, GRPC, AgentCard, AgentInterface
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.versions import VERSIONS, Versions
from bridge.errors import PeerError
from bridge.http.private_addresses import (
    AddressGuard,
    AddressJudge,
    RebindingJudge,
    ResolveName,
    addresses_of,
    allowing_private,
    is_private_host,
    refusing_private,
)
from bridge.http.request_checks import is_loopback
from bridge.local.installation import adding_extra

_ANY: Final = ("0.0.0.0", "::")
"""The unspecified addresses. A server can listen on them, but no client can call them."""
_LOCALHOST: Final = "localhost"
_SCHEMES: Final = ("http://", "https://")
_DNS: Final = "dns:///"
"""The scheme that gRPC presumes for a name without one."""


@dataclass(frozen=True)
class Trust:
    """The origins that a card may lead to."""

    origins: frozenset[str] = frozenset()
    """Trusted origins, as `origin_of` writes them. They may be private, and credentials are sent to them."""
    allow_private: bool = False
    """Whether a public card may name a private or loopback address."""
    on_command_line: bool = False
    """Whether these settings come from the command line and not from a file, for the hint in a refusal."""

    def how_to_add(self, origin: str) -> str:
        """The hint that says how to add an origin to the trusted ones."""
        return f"add --trust {origin}" if self.on_command_line else f'add "{origin}" to its `trust`'


def interfaces_of(
    card: AgentCard, versions: Versions = VERSIONS, *, grpc: bool = False, bindings: Sequence[str] = ()
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    """The interfaces of a card that this client speaks, each with its dialect.

    `bindings` are the bindings that the user allows, the preferred one first. If it is empty, these are the interfaces
    over HTTP in the card's order, or else those over gRPC. `grpc` says whether the client can call over gRPC.

    If the user has chosen the version and no interface has it, the client speaks that version at every interface, in a
    binding that the version has.

    Raises:
        PeerError: there is no such interface. The message says what the card offers.
    """
    versioned = [(interface, interface.protocol_version) for interface in card.supported_interfaces]
    known = (*BINDINGS, GRPC) if grpc else BINDINGS
    allowed = [binding for binding in dict.fromkeys(bindings or known) if binding in known]

    def spoken_of(
        versioned: Sequence[tuple[AgentInterface, str]],
    ) -> tuple[tuple[AgentInterface, Dialect], ...]:
        if bindings:
            return tuple(pair for binding in allowed for pair in _spoken(versioned, versions, (binding,)))
        return _spoken(versioned, versions, BINDINGS) or _spoken(versioned, versions, known)

    spoken = spoken_of(versioned)
    if not spoken and versions.is_told:
        dialect, named = versions.current, [interface for interface, _ in versioned]
        spoken = spoken_of([(interface, dialect.version) for interface in named]) or spoken_of(
            [
                (interface.changed(protocol_binding=dialect.bindings[0]), dialect.version)
                for interface in named
                if interface.protocol_binding.upper() != GRPC
            ]
        )
    if spoken:
        return spoken
    offered = ", ".join(
        f"{interface.protocol_binding} {interface.protocol_version}"
        for interface in card.supported_interfaces
    )
    speaks = f"{' and '.join(bindings or known)} {', '.join(versions.names)}"
    lacks_grpc = importlib.util.find_spec("grpc") is None and bool(_spoken(versioned, versions, (GRPC,)))
    hint = (
        f". To call it over gRPC: {adding_extra('grpc')}"
        if lacks_grpc and GRPC in (bindings or (GRPC,))
        else ""
    )
    limit = "may call it over" if bindings else "speaks"
    raise PeerError(f"{card.name} offers {offered}, and this client {limit} {speaks}{hint}")


def _spoken(
    versioned: Iterable[tuple[AgentInterface, str]], versions: Versions, bindings: Sequence[str]
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    return tuple(
        (interface, dialect)
        for interface, version in versioned
        if interface.protocol_binding.upper() in bindings
        and (dialect := versions.find(version, interface.protocol_binding)) is not None
    )


def permitted_interfaces(
    read_card: FoundCard,
    trust: Trust,
    *,
    has_credentials: bool,
    versions: Versions = VERSIONS,
    grpc: bool = False,
    bindings: Sequence[str] = (),
) -> tuple[tuple[AgentInterface, Dialect], ...]:
    """The interfaces of a card that this client speaks and may call.

    All are of one version, that of the first: an interface out of reach is no reason to use an older version.

    Raises:
        PeerError: no interface is left. The message says why the first one may not be called, and how to allow it.
    """
    spoken = tuple(
        (reachable(read_card, interface, trust), dialect)
        for interface, dialect in interfaces_of(read_card.card, versions, grpc=grpc, bindings=bindings)
    )
    refusals = [_refusal(read_card, interface.url, trust, has_credentials) for interface, _ in spoken]
    if all(refusals):
        raise PeerError(refusals[0] or "")
    permitted = [pair for pair, refusal in zip(spoken, refusals, strict=True) if not refusal]
    version = permitted[0][1].version
    return tuple(pair for pair in permitted if pair[1].version == version)


def reachable(read_card: FoundCard, interface: AgentInterface, trust: Trust) -> AgentInterface:
    """The interface, with an address that leads to the agent's machine from this machine, too.

    A card from another machine may name the address on which its server listens (`0.0.0.0`), or a loopback address.
    Here, such an address leads to this machine, so the host of the card's URL takes its place, unless the user trusts
    the address on the card. The numeric loopback address of a public card stays, and is refused later.

    An address of gRPC may have no scheme. It is called over TLS, except on this machine, or if the user trusts the
    origin with `http`.
    """
    if interface.protocol_binding.upper() != GRPC:
        return _reachable(read_card, interface, trust)
    if interface.url.startswith(_SCHEMES):
        return _reachable(read_card, interface, trust)
    try:
        over_tls = interface.changed(url=f"https://{interface.url.removeprefix(_DNS)}")
        called = _reachable(read_card, over_tls, trust)
        parsed = url_from(called.url)
        plain = str(parsed.copy_with(scheme="http", port=parsed.port or 443))
        is_plain = is_loopback(parsed.host) or origin_of(plain) in trust.origins
    except PeerError:
        return interface
    return called.changed(url=plain) if is_plain else called


def _reachable(read_card: FoundCard, interface: AgentInterface, trust: Trust) -> AgentInterface:
    try:
        parsed, own = url_from(interface.url), url_from(read_card.url).host
    except PeerError:
        return interface  # an interface that is not called needs no note
    host = parsed.host.strip("[]").rstrip(".").lower()
    if origin_of(interface.url) in trust.origins:
        return interface
    if host not in _ANY:
        is_here = is_loopback(own) or trust.allow_private or not is_loopback(host)
        if is_here or (host != _LOCALHOST and not is_private_host(own)):
            return interface
    return interface.changed(url=str(parsed.copy_with(host=own)))


def address_notes(read_card: FoundCard, trust: Trust) -> tuple[str, ...]:
    """A note for each interface that is called at another address than the card names."""
    notes = []
    for interface in read_card.card.supported_interfaces:
        try:
            called = reachable(read_card, interface, trust).url
        except PeerError:
            continue  # no URL
        if called != interface.url and interface.protocol_binding.upper() != GRPC:
            notes.append(
                f"it says to call {redacted_url(interface.url)}, which leads to this machine from here, and is "
                f"called at {redacted_url(called)}"
            )
    return tuple(notes)


@dataclass
class ConnectionPolicy:
    """The rules for connections to one agent, or to the agents of one catalog."""

    own_url: str
    """The URL that the user gave. Its host may have a private address, unless it had a public address before. All other
    URLs were learned from the agent or the catalog at this URL."""
    trust: Trust = field(default_factory=Trust)
    resolve: ResolveName = addresses_of
    seen: RebindingJudge = field(default_factory=RebindingJudge)
    uses_proxy: bool = True
    """Whether the proxy of the environment, if there is one, is used."""

    def guard(self, url: str, words: str = "") -> AddressGuard | None:
        """The guard for connections to a URL; None if any address is allowed, also through a proxy. `words` is the
        refusal for a learned URL."""
        judge = self._judge(url, words)
        if judge is None:
            return None if self.uses_proxy else AddressGuard(_any_address, self.resolve, uses_proxy=False)
        return AddressGuard(judge, self.resolve, self.uses_proxy)

    def _judge(self, url: str, words: str) -> AddressJudge | None:
        host, origin = url_from(url).host, origin_of(url)
        if self.trust.allow_private or origin in self.trust.origins or self.is_private:
            return None
        if origin != origin_of(self.own_url):
            return refusing_private(words)
        allowed_by = allowing_private(on_command_line=self.trust.on_command_line)
        return self.seen.judge(host, allowed_by)

    @property
    def is_private(self) -> bool:
        """Whether the host in the user's URL is this machine or is in its network."""
        return is_private_host(url_from(self.own_url).host)


def _any_address(_: Sequence[str]) -> None:
    """Allow every address."""


def interface_guard(read_card: FoundCard, url: str, reach: ConnectionPolicy) -> AddressGuard | None:
    """The guard for connections to a URL that a card names."""
    return reach.guard(url, _private_words(read_card, url, reach.trust))


def may_be_shown(read_card: FoundCard, url: str, trust: Trust) -> bool:
    """Whether credentials may go to a URL on a card: it is at the card's origin or a trusted origin."""
    return origin_of(url) in (origin_of(read_card.url), *trust.origins)


def _refusal(read_card: FoundCard, url: str, trust: Trust, has_credentials: bool) -> str | None:
    """Why an interface may not be called; None if it may."""
    try:
        there = origin_of(url)
    except PeerError as exc:
        return str(exc)
    if may_be_shown(read_card, url, trust):
        return None
    leads_inside = is_private_host(url_from(url).host) and not is_private_host(url_from(read_card.url).host)
    if leads_inside and not trust.allow_private:
        return _private_words(read_card, url, trust)
    if has_credentials:
        return (
            f"the card at {redacted_url(read_card.url)} says to call {redacted_url(url)}, which is another origin, so "
            f"the credentials are not sent there. If you trust it, {trust.how_to_add(there)}"
        )
    return None


def _private_words(read_card: FoundCard, url: str, trust: Trust) -> str:
    return (
        f"the card at {redacted_url(read_card.url)} is public and says to call {redacted_url(url)}, which is a"
        f" private address. If you trust it, {trust.how_to_add(origin_of(url))}"
    )
