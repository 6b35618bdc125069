"""What the preview finds about the peers of a bridge: tool servers, remote agents and catalogs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.http import redacted_url
from bridge.a2a.model.objects import AgentCard
from bridge.a2a.wire.canonical_card import CardForm, CardProof
from bridge.assembly.offered_server import other_kind_at
from bridge.assembly.plan import Plan, RemotePlan
from bridge.config.ready_mappings import ReadyMapping
from bridge.errors import PeerError, counted
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.tools import Tool
from bridge.pinned.definitions import NOUNS
from bridge.pinned.differences import differences
from bridge.pinned.guard import MEND
from bridge.pinned.oddities import Oddity, vanished
from bridge.process.peer_definitions import ReadDefinitions
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.command_packages import package_of
from bridge.text.safe_text import without_hidden_characters
from bridge.translate.language.plain_words import phrase_faults

_NAMED_MOST: Final = 5
"""The most tools or skills that one note names."""


@dataclass(frozen=True)
class PeerFindings:
    """The findings about one peer."""

    kind: str
    """The peer's table: `tool_servers`, `agents` or `catalogs`."""
    key: str
    where: str
    """The command, or the URL without its query. The query may hold a key."""
    says: str = ""
    """The peer's own name and version, and the number of its tools or skills; "" while it is down."""
    down: str | None = None
    """Why the peer cannot be called; None when it can."""
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_unauthorized: bool = False
    """Whether the peer is down because it refuses the credentials of the bridge."""
    ready_mapping: str = ""
    """The name of the ready mapping that gives its tools phrases."""

    @property
    def title(self) -> str:
        """The peer's name in the file."""
        return f"{self.kind}.{self.key}"


def server_findings(
    key: str, upstream: Upstream, ready: ReadyMapping | None, *, is_needed: bool
) -> PeerFindings:
    """The findings about a tool server. `is_needed` says that the bridge does not start without it."""
    greeting, listing = upstream.greeting, upstream.listing
    named = f"{greeting.name} {greeting.version}".rstrip() if greeting else ""
    says = f"{named}, {counted(len(listing.tools), 'tool')}" if greeting else ""
    ends = "; `serve` would end at once (fail = closed)" if is_needed else ""
    return PeerFindings(
        "tool_servers",
        key,
        str(upstream.target),
        "" if upstream.down else says,
        None if upstream.down is None else f"{upstream.down}{ends}",
        tuple(f"the tool {tool.name} cannot be served: {tool.reason}" for tool in listing.left_out),
        (
            *(
                f"not all arguments of the tool {tool.name} are checked: {tool.unchecked}"
                for tool in listing.tools
                if tool.unchecked
            ),
            *listing.odd_fields,
            *([listing.odd] if listing.odd else []),
            *(_on_ready(ready, listing.tools) if ready is not None and greeting is not None else ()),
            *_on_unseen(
                {f"the tool {tool.name}": tool.listed for tool in listing.tools}, "the card has them"
            ),
            *release_advice(upstream.target),
        ),
        is_unauthorized=upstream.is_unauthorized,
        ready_mapping=name_of(ready),
    )


def with_definitions(
    peer: PeerFindings, plan: Plan, read: ReadDefinitions, odd: Sequence[Oddity]
) -> PeerFindings:
    """The findings about a peer, with how its definitions differ from the lock. `odd` is what stands out in the
    definitions of all peers."""
    faults, notes = [*peer.faults], [*peer.notes]
    if (source := read.sources.get(peer.title)) is not None:
        notes += [str(oddity) for oddity in odd if oddity.title == peer.title]
        pinned = plan.pinned.of(peer.title)
        if pinned is not None and pinned.definitions is None:
            (faults if pinned.mode == "refuse" else notes).append(f"nothing of it is pinned: {MEND}")
        elif pinned is not None and pinned.definitions is not None:
            differing = differences(pinned.definitions, source.definitions)
            notes += [difference.summary for difference in differing]
            notes += [str(oddity) for oddity in vanished(peer.title, differing)]
            held = [f"the {NOUNS[item.kind]} {item.name}" for item in differing if item.change != "gone"]
            if held and pinned.mode == "refuse":
                faults.append(f"not offered, as the lock does not have it so: {', '.join(held)}; {MEND}")
    elif peer.title in plan.pinned.modes and peer.down is None and (why := read.unread.get(peer.title)):
        notes.append(f"its definitions could not be compared with the lock: {why}")
    return replace(peer, faults=tuple(faults), notes=tuple(notes))


def release_advice(target: ServerTarget) -> Iterator[str]:
    """A note on a command that may run another release at each start."""
    package = package_of(target.argv) if isinstance(target, StdioTarget) else None
    if package is not None and not package.is_exact:
        exact = f"{package.name}{'@' if package.kind == 'npm' else '=='}1.2.3"
        yield f"each start may run another release of {package.name}: `{exact}` would run only this release"


def name_of(ready: ReadyMapping | None) -> str:
    """The name of a ready mapping; "" if there is none."""
    return "" if ready is None else ready.name


def _on_ready(ready: ReadyMapping, tools: Sequence[Tool]) -> Iterator[str]:
    """Notes on the phrases of a ready mapping that do not fit the tools that the server lists."""
    listed = {tool.name: tool for tool in tools}
    if missing := [name for name in ready.tools if name not in listed]:
        yield f"the ready mapping {ready.name} has words for tools that the server does not list: {', '.join(missing)}"
    for name, rule in ready.tools.items():
        for fault in phrase_faults(rule.phrases or (), listed[name]) if name in listed else ():
            yield f"the ready mapping {ready.name}: {name}: {fault}"


def _words_of_card(card: AgentCard) -> dict[str, JsonValue]:
    skills = {f"the skill {skill.id}": skill.to_object() for skill in card.skills}
    return {"the card": [card.name, card.description], **skills}


def _on_unseen(words: Mapping[str, JsonValue], then: str) -> tuple[str, ...]:
    """A note about hidden characters in the texts of a peer, which may mislead a person or a model. `words` maps the
    place of each text to the text."""
    places = [
        what
        for what, value in words.items()
        if any(without_hidden_characters(text) != text for text in _texts_in(value))
    ]
    if not places:
        return ()
    more = f" and {len(places) - _NAMED_MOST} more" if len(places) > _NAMED_MOST else ""
    where = ", ".join(places[:_NAMED_MOST])
    return (f"invisible characters, or characters that reverse text, are in {where}{more}; {then}",)


def _texts_in(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts_in(inner)


async def agent_findings(agent: RemoteAgent, plan: RemotePlan | None) -> PeerFindings:
    """The findings about a remote agent. `plan` is None for an agent of a catalog."""
    says, down = "", agent.down
    if plan is not None and down is not None:
        down = await other_kind_at(agent, plan) or down
    if agent.down is None:
        spoken = agent.client.interface
        skills = counted(len(agent.card.skills), "skill")
        says = (
            f"{agent.card.name} {agent.card.version}, A2A {spoken.protocol_version} {spoken.protocol_binding},"
            f" {skills}"
        )
    notes = tuple(f"does not conform to A2A: {deviation}" for deviation in agent.deviations)
    if agent.has_card:
        notes += agent.extension_notes
        notes += _on_proof(agent.proof)
        notes += _on_unseen(_words_of_card(agent.card), "hosts get its text without them")
    return PeerFindings(
        "agents",
        agent.key,
        redacted_url(agent.url),
        says,
        down,
        notes=notes,
        is_unauthorized=agent.state.is_unauthorized,
    )


def _on_proof(proof: CardProof | None) -> tuple[str, ...]:
    """A note about what the signature of a card does not cover."""
    if proof is None or proof.form is CardForm.STRICT or not proof.outside:
        return ()
    more = f" and {len(proof.outside) - _NAMED_MOST} more" if len(proof.outside) > _NAMED_MOST else ""
    where = ", ".join(proof.outside[:_NAMED_MOST])
    return (f"its card is signed in the form of the SDKs, which does not cover {where}{more}; none is used",)


async def catalog_findings(key: str, source: CatalogSource) -> PeerFindings:
    """The findings about a catalog, which is read if it was not read before."""
    try:
        entries = source.cached() or await source.refresh()
    except PeerError as exc:
        return PeerFindings("catalogs", key, redacted_url(source.url), down=str(exc))
    return PeerFindings("catalogs", key, redacted_url(source.url), counted(len(entries), "agent"))
