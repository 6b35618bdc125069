"""The Agent Card of an agent made of tools. Pure.

Spec: A2A 1.0 sections 4.4 and 8.3. Required arrays have at least one element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bridge.a2a.models import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, SecurityRequirement
from bridge.a2a.versions import SERVED
from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool
from bridge.mcp.values import Greeting
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.extension import declaration
from bridge.translate.skills import JSON, TEXT

BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
"""In the order of preference."""

_BEARER: Final[Mapping[str, JsonObject]] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}


def make_card(
    base_url: str,
    greeting: Greeting | None,
    down: str | None,
    skills: Sequence[tuple[AgentSkill, Tool]],
    options: AgentOptions,
    *,
    server_name: str,
    needs_token: bool,
) -> AgentCard:
    """The card of an agent that is reached at `base_url`; `down` says why its server is not, if so."""
    name = options.name or (greeting and (greeting.title or greeting.name)) or server_name
    shown = [skill for skill, _ in skills] or [_placeholder(server_name, down)]
    return AgentCard(
        name=name,
        description=options.description or (greeting and greeting.instructions) or f"The tools of {name}",
        supported_interfaces=tuple(
            AgentInterface(url=base_url, protocol_binding=binding, protocol_version=version)
            for version in SERVED
            for binding in BINDINGS
        ),
        version=(greeting and greeting.version) or "0",
        documentation_url=greeting.website_url if greeting else None,
        icon_url=greeting.icon_url if greeting else None,
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=False,
            extended_agent_card=False,
            extensions=(declaration((skill.id, tool) for skill, tool in skills),),
        ),
        security_schemes=_BEARER if needs_token else None,
        security_requirements=(SecurityRequirement(schemes={"bearer": {"list": []}}),)
        if needs_token
        else None,
        default_input_modes=_union([JSON, TEXT], (skill.input_modes for skill in shown)),
        default_output_modes=_union([TEXT, JSON], (skill.output_modes for skill in shown)),
        skills=tuple(shown),
    )


def _placeholder(server_name: str, down: str | None) -> AgentSkill:
    """What stands for the skills when there are none: a card must have one."""
    why = f"its tool server is down: {down}" if down else "its tool server lists no tools"
    return AgentSkill(
        id="unavailable",
        name="No skills at the moment",
        description=f"This agent has no skills at the moment: {why}",
        tags=(server_name, "unavailable"),
    )


def _union(first: Sequence[str], modes: Iterable[Sequence[str] | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *(mode for some in modes for mode in some or ())]))
