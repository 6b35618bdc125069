"""Makes the Agent Card of an agent whose skills are tools. Pure.

Spec: A2A 1.0 sections 4.4 and 8.3. Required arrays have at least one element.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.objects import (
    BINDINGS,
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
)
from bridge.a2a.wire.versions import VERSIONS
from bridge.mcp.client.values import Greeting
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.skills import Skills
from bridge.translate.extensions.availability import Unavailability, UnavailablePeer, availability_of
from bridge.translate.extensions.bridge import declaration
from bridge.translate.extensions.passed_metadata import DeclaredExtension
from bridge.translate.skills import JSON, TEXT

_PLACEHOLDER_ID: Final = "unavailable"

_WHY: Final[Mapping[Unavailability | None, str]] = {
    None: "lists no tools",
    Unavailability.UNREACHABLE: "cannot be reached",
    Unavailability.LOGIN_NEEDED: "waits for a login",
}
"""Why a server has no skills. Strangers read it, so it says nothing about the server's errors or its connection."""


@dataclass(frozen=True, slots=True)
class ToolServerSummary:
    """The facts about a tool server that the card needs."""

    key: str
    greeting: Greeting | None
    down: Unavailability | None
    """Why the server cannot be called; None while it can. The error text is not here: only operators may see it."""
    has_skills: bool
    """Whether the card has skills of the server. The skills of a server that went down stay on the card."""

    @property
    def name(self) -> str:
        """The server's name for people."""
        return (self.greeting and (self.greeting.title or self.greeting.name)) or self.key

    @property
    def instructions(self) -> str | None:
        """The `instructions` from its handshake."""
        return self.greeting.instructions if self.greeting else None


def make_card(
    base_url: str,
    servers: Sequence[ToolServerSummary],
    skills: Skills,
    options: AgentOptions,
    nothing: str = "",
    unavailable: Sequence[UnavailablePeer] = (),
    further: Sequence[AgentExtension] = (),
) -> AgentCard:
    """The card of an agent that is reached at `base_url`. The A2A server adds the security schemes. `nothing` says why
    the agent has no skills, if the servers are not the reason. `unavailable` are the servers that have been down for a
    while. `further` are the extensions that declare what the caller may use besides skills."""
    shown = [*skills.on_card] or [_placeholder(servers, nothing)]
    stand_in = "" if skills.skills or nothing else _PLACEHOLDER_ID
    greeting = servers[0].greeting if len(servers) == 1 else None
    name = options.name or ", ".join(server.name for server in servers) or "tools"
    return AgentCard(
        name=name,
        description="\n\n".join(
            [
                options.description or _description(name, servers),
                *([options.chooser.notice] if options.chooser else []),
            ]
        ),
        supported_interfaces=tuple(
            AgentInterface(url=base_url, protocol_binding=binding, protocol_version=VERSIONS.current.version)
            for binding in BINDINGS
        ),
        version=_version(servers),
        documentation_url=greeting.website_url if greeting else None,
        icon_url=greeting.icon_url if greeting else None,
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=options.push,
            extended_agent_card=False,
            extensions=(
                declaration(skills.tools.items()),
                *further,
                *(_declared(extension) for extension in options.extensions),
                *_availability(skills, unavailable, stand_in),
            ),
        ),
        default_input_modes=_union([JSON, TEXT], (skill.input_modes for skill in shown)),
        default_output_modes=_union([TEXT, JSON], (skill.output_modes for skill in shown)),
        skills=tuple(shown),
    )


def _availability(
    skills: Skills, unavailable: Sequence[UnavailablePeer], stand_in: str
) -> Iterator[AgentExtension]:
    """The availability extension, if a skill cannot be called. `stand_in` is the id of the placeholder skill; "" if the
    card has real skills."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for skill in skills.skills:
        ids[skill.source_key].append(skill.shown.id)
    if stand_in and unavailable:
        ids[unavailable[0].key].append(stand_in)
    extension = availability_of(unavailable, ids)
    if extension is not None:
        yield extension


def _declared(extension: DeclaredExtension) -> AgentExtension:
    return AgentExtension(
        uri=extension.uri,
        description=extension.description,
        required=extension.required,
        params=extension.params,
    )


def _description(name: str, servers: Sequence[ToolServerSummary]) -> str:
    """The instructions of the only server. For several servers, a paragraph for each, and a note on servers that are
    down."""
    if len(servers) < 2:
        return (servers[0].instructions if servers else None) or f"The tools of {name}"
    instructions = [f"{server.name}: {server.instructions}" for server in servers if server.instructions]
    silent = [server.name for server in servers if server.has_skills and not server.instructions]
    missed = [server.name for server in servers if server.down and not server.has_skills]
    others = f"The tools of {', '.join(silent)}" if silent else ""
    down = f"Without the tools of {', '.join(missed)}, which cannot be reached" if missed else ""
    return "\n\n".join(filter(None, [*instructions, others, down])) or f"The tools of {name}"


def _version(servers: Sequence[ToolServerSummary]) -> str:
    """The version of the only server. For several servers, each version with the server's key."""
    versions = {server.key: server.greeting.version for server in servers if server.greeting}
    known = {key: version for key, version in versions.items() if version}
    if len(servers) < 2:
        return next(iter(known.values()), "0")
    return ", ".join(f"{key} {version}" for key, version in known.items()) or "0"


def _placeholder(servers: Sequence[ToolServerSummary], nothing: str) -> AgentSkill:
    """A placeholder skill for a card without skills, since a card must have a skill."""
    whys = [_why(server, alone=len(servers) == 1) for server in servers]
    why = nothing or "; ".join(whys) or "it has no tool server"
    return AgentSkill(
        id=_PLACEHOLDER_ID,
        name="No skills at the moment",
        description=f"This agent has no skills at the moment: {why}",
        tags=(*(server.key for server in servers), "unavailable"),
    )


def _why(server: ToolServerSummary, *, alone: bool) -> str:
    which = "its tool server" if alone else f"its tool server {server.key}"
    return f"{which} {_WHY[server.down]}"


def _union(first: Sequence[str], modes: Iterable[Sequence[str] | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *(mode for some in modes for mode in some or ())]))
