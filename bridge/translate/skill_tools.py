"""The skills of agents as tools, as tools/list shows them. Pure.

An agent with our extension on its card is shown as the tools that it was made of, exactly. Any other skill takes a
message, since a skill says in words alone what it wants.

Spec: A2A 1.0 section 4.4.5 (AgentSkill); MCP server/tools. Hosts differ in what they refuse: no schema here has
anything but `type: object` at its root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

import mcp_types as types
from jsonschema.protocols import Validator
from pydantic import JsonValue, ValidationError

from bridge.a2a.model.objects import AgentCard, AgentSkill
from bridge.jsonvalues import JsonObject
from bridge.mcp.schemas import validator_of
from bridge.mcp.tools import SchemaBudget, Tool, tools_from
from bridge.safe_text import web_link, without_hidden_characters
from bridge.translate.extension import URI
from bridge.translate.own_tools import (
    AGENT_HINTS,
    MESSAGE_FIELDS,
    follow_ups,
    object_schema,
    search_tools,
)
from bridge.translate.tool_names import ToolToName, tool_names

Granularity = Literal["skill", "agent", "search"]
"""One tool for each skill, one for each agent, or one that finds skills and one that calls them."""

MAX_EXAMPLES: Final = 5
"""How many examples of a skill stand in a description; the card has all of them."""

_MESSAGE: Final = object_schema(MESSAGE_FIELDS, ["message"])
"""The schema of every skill that takes a message."""
_WORD: Final = re.compile(r"\w+")
_SAID: Final = frozenset({"title", "description"})
"""What is words for people and models, wherever it stands in a tool."""
_VALUES: Final = frozenset({"default", "const", "enum", "examples", "_meta"})
"""What holds values, which a call gives back as they are."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""What holds schemas by names, which may be any of the words above."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """An agent, and what it is called here."""

    key: str
    card: AgentCard


@dataclass(frozen=True, slots=True)
class ToolRules:
    """What a profile says about tools."""

    granularity: Granularity
    always_prefixed: bool
    found_most: int
    """Skills that find_skill gives at most: each comes with its schema."""
    skills_most: int
    """Skills of one agent that are offered at most: the first ones. No host takes as many tools; whoever finds them by
    find_skill has each looked through."""


@dataclass(frozen=True, slots=True, eq=False)
class AgentTool:
    """A tool that stands for a skill of an agent, or for the agent."""

    name: str
    source_key: str
    skill_id: str | None
    """None for an agent as a whole."""
    listed: JsonObject
    """As tools/list shows it."""
    original: Tool | None
    """The tool that the skill was made of, where our extension says so."""
    input_schema: JsonObject
    """The schema of its arguments, whatever hosts are shown of it."""
    output: Validator | None = None
    """Checks its structured result, if it has one."""


def tools_of_agents(sources: Sequence[ToolSource], rules: ToolRules) -> tuple[AgentTool, ...]:
    """What can be called, in the order of the agents and their cards."""
    found = [tool for source in sources for tool in _tools_of(_within(source, rules), rules)]
    wanted = {
        id(tool): ToolToName(
            tool.source_key,
            tool.skill_id or tool.name,
            tool.original.name if tool.original else None,
            "" if tool.skill_id is None else str(tool.listed.get("title", "")),
        )
        for tool in found
    }
    names = tool_names(wanted.values(), always_prefixed=rules.always_prefixed)
    return tuple(_called(tool, names[wanted[id(tool)]]) for tool in found)


def skills_by_id(card: AgentCard) -> Mapping[str, AgentSkill]:
    """The skills of a card in its order; of two with one id, the first."""
    found: dict[str, AgentSkill] = {}
    for skill in card.skills:
        found.setdefault(skill.id, skill)
    return found


def listed_tools(
    tools: Sequence[AgentTool],
    rules: ToolRules,
    *,
    follow_up_tools: bool = True,
    longest_wait_seconds: int,
) -> tuple[JsonObject, ...]:
    """What tools/list shows."""
    found = tuple(tool.listed for tool in tools)
    shown = search_tools(rules.found_most) if rules.granularity == "search" else found
    return (*shown, *follow_ups(longest_wait_seconds)) if follow_up_tools else shown


def find_skills(tools: Sequence[AgentTool], query: str, limit: int, most: int) -> tuple[AgentTool, ...]:
    """The tools that have most of a query's words, the best first; without words, the first ones."""
    words = set(_WORD.findall(query.lower()))
    ranked = sorted(tools, key=lambda tool: -_score(tool, words))
    fitting = [tool for tool in ranked if not words or _score(tool, words)]
    return tuple(fitting[: max(1, min(limit, most))])


def found_as_text(tools: Sequence[AgentTool]) -> str:
    """What find_skill answers: what it found, as JSON, each as call_skill takes it."""
    shown = ("title", "description", "inputSchema")
    found = [
        {"skill": tool.name, **{key: tool.listed[key] for key in shown if key in tool.listed}}
        for tool in tools
    ]
    return json.dumps(found, ensure_ascii=False)


def _score(tool: AgentTool, words: set[str]) -> int:
    named = set(_WORD.findall(f"{tool.name.replace('_', ' ')} {tool.listed.get('title', '')}".lower()))
    described = set(_WORD.findall(str(tool.listed.get("description", "")).lower()))
    return 3 * len(words & named) + len(words & described)


def _within(source: ToolSource, rules: ToolRules) -> ToolSource:
    card = source.card
    if len(card.skills) <= rules.skills_most:
        return source
    return replace(source, card=card.model_copy(update={"skills": card.skills[: rules.skills_most]}))


def _tools_of(source: ToolSource, rules: ToolRules) -> list[AgentTool]:
    """The tools of one agent, each with the name that it would like."""
    card, work = source.card, SchemaBudget()
    originals = _originals(card, work)
    if originals is not None and not originals:
        return []  # an agent of ours whose server lists nothing: its one skill says so, and cannot be called
    if rules.granularity == "agent":
        return [_whole_agent(source, source.key)]
    if not card.skills:
        return [_whole_agent(source, "message")]
    tools = []
    for skill_id, skill in skills_by_id(card).items():
        if originals is None or skill_id not in originals:
            tools.append(_message_tool(source, skill))
        elif (original := originals[skill_id]) is not None:
            tools.append(_original(source, skill_id, original, work))
    return tools


def _originals(card: AgentCard, work: SchemaBudget) -> Mapping[str, Tool | None] | None:
    """The tools behind the skills by skill id, None for one that cannot be served; None without the extension."""
    for extension in card.capabilities.extensions or ():
        listed = (extension.params or {}).get("tools") if extension.uri == URI else None
        if isinstance(listed, dict):
            return {skill_id: _tool_from(one, work) for skill_id, one in listed.items()}
    return None


def _tool_from(listed: JsonValue, work: SchemaBudget) -> Tool | None:
    """A tool as a host can read it: one that is not loses it the whole list."""
    tools, _ = tools_from([listed], work)
    with suppress(ValidationError):
        types.Tool.model_validate(listed)
        return tools[0] if tools else None
    return None


def _original(source: ToolSource, skill_id: str, tool: Tool, work: SchemaBudget) -> AgentTool:
    listed = {key: value for key, value in tool.listed.items() if key != "execution"}
    schema = listed["inputSchema"]
    if isinstance(schema, dict) and "type" not in schema:
        listed["inputSchema"] = {"type": "object", **schema}  # many clients refuse the whole list else
    output = _output_of(tool, work)
    return AgentTool(tool.name, source.key, skill_id, listed, tool, tool.input_schema, output)


def _output_of(tool: Tool, work: SchemaBudget) -> Validator | None:
    if tool.output_schema is None or not work.takes(tool.output_schema):
        return None
    try:
        return validator_of(tool.output_schema)
    except ValueError:
        return None  # nothing can be checked against it; the client is shown what the server shows


def _message_tool(source: ToolSource, skill: AgentSkill) -> AgentTool:
    title = skill.name or skill.id
    listed = _listed(title, _description(skill, source.card), source.card, _MESSAGE)
    return AgentTool(skill.id, source.key, skill.id, listed, None, _MESSAGE)


def _whole_agent(source: ToolSource, wish: str) -> AgentTool:
    card, fields = source.card, dict(MESSAGE_FIELDS)
    lines = [card.description, f"Sends a message to the agent {card.name}."]
    if card.skills:
        ids: list[JsonValue] = [*dict.fromkeys(skill.id for skill in card.skills)]
        fields["skill"] = {
            "type": "string",
            "enum": ids,
            "description": "Which skill is meant, if it matters",
        }
        lines += [
            "Its skills:",
            *(f"- {skill.id}: {skill.description or skill.name}" for skill in card.skills),
        ]
    schema = object_schema(fields, ["message"])
    listed = _listed(card.name, "\n".join(filter(None, lines)), card, schema)
    return AgentTool(wish, source.key, None, listed, None, schema)


def _listed(title: str, description: str, card: AgentCard, schema: JsonObject) -> JsonObject:
    listed: JsonObject = {
        "title": without_hidden_characters(title),
        "description": without_hidden_characters(description),
        "inputSchema": schema,
        "annotations": AGENT_HINTS,
    }
    if web_link(card.icon_url):
        listed["icons"] = [{"src": card.icon_url}]
    return listed


def _description(skill: AgentSkill, card: AgentCard) -> str:
    lines = [skill.description, f"The skill {skill.name or skill.id} of the agent {card.name}."]
    if skill.tags:
        lines.append(f"Tags: {', '.join(skill.tags)}")
    if examples := (skill.examples or ())[:MAX_EXAMPLES]:
        lines += ["Examples:", *(f"- {example}" for example in examples)]
    return "\n".join(filter(None, lines))


def _called(tool: AgentTool, name: str) -> AgentTool:
    if tool.original is None:
        return replace(tool, name=name, listed={**tool.listed, "name": name})
    listed = {key: _seen(value, key) for key, value in tool.listed.items()}
    if isinstance(icons := listed.get("icons"), list):
        listed["icons"] = [
            icon for icon in icons if isinstance(icon, dict) and _is_icon(str(icon.get("src")))
        ]
    return replace(tool, name=name, listed={**listed, "name": name})


def _is_icon(source: str) -> bool:
    """Whether a host may show it: MCP takes images that stand in the URL themselves, too."""
    return web_link(source) is not None or source.startswith("data:image/")


def _seen(value: JsonValue, key: str) -> JsonValue:
    """What stands under a key of a tool, its words without the characters that a person would not see."""
    if isinstance(value, str):
        return without_hidden_characters(value) if key in _SAID else value
    if isinstance(value, dict) and key not in _VALUES:
        return {name: _seen(inner, "" if key in _BY_NAME else name) for name, inner in value.items()}
    if isinstance(value, list) and key not in _VALUES:
        return [_seen(inner, key) for inner in value]
    return value
