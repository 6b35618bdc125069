"""Turns the skills of agents into tools, as tools/list shows them. Pure.

An agent with the bridge's extension on its card is listed as exactly the tools that it was made from. Any other skill
becomes a tool that takes a message, since an A2A skill describes its input in words only.

Spec: A2A 1.0 section 4.4.5 (AgentSkill); MCP server/tools. Hosts differ in what they refuse: no schema here has
anything but `type: object` at its root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import mcp_types as types
from jsonschema.protocols import Validator
from pydantic import JsonValue, ValidationError

from bridge.a2a.model.objects import AgentCard, AgentSkill
from bridge.mcp.host_schemas import ShownOutput, shown_input, shown_output
from bridge.mcp.tools import SchemaBudget, Tool, UnservableTool, tools_from
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import icon_link, web_link, without_hidden_characters
from bridge.translate.extensions.apps import declared_app_tools
from bridge.translate.extensions.bridge import URI
from bridge.translate.own_tools import (
    AGENT_HINTS,
    MESSAGE_FIELDS,
    follow_ups,
    object_schema,
    page_tool,
    search_tools,
)
from bridge.translate.tool_names import PAGE_TOOL, ToolToName, names_of, qualified_name, tool_names

Granularity = Literal["skill", "agent", "search"]
"""One tool for each skill, one tool for each agent, or two tools: `find_skill` and `call_skill`."""

MAX_EXAMPLES: Final = 5
"""The most examples of a skill in a description. The card has all examples."""

_MESSAGE: Final = object_schema(MESSAGE_FIELDS, ["message"])
"""The schema of every skill that takes a message."""
_WORD: Final = re.compile(r"\w+")
_SAID: Final = frozenset({"title", "description"})
"""Keys whose values are words for people and models, anywhere in a tool."""
_VALUES: Final = frozenset({"default", "const", "enum", "examples", "_meta"})
"""Keys whose values a call may send back, so they stay unchanged."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keys that hold schemas by name. Such a name may look like one of the keys above."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """An agent's card and its key."""

    key: str
    card: AgentCard


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The options of a profile about tools."""

    granularity: Granularity
    always_prefixed: bool
    found_most: int
    """The most skills that find_skill returns. Each comes with its schema."""
    skills_most: int
    """The most skills of one agent that are offered: the first skills of its card. No host accepts as many tools, and
    find_skill searches every skill."""


@dataclass(frozen=True, slots=True, eq=False)
class AgentTool:
    """A tool that calls a skill of an agent, or the agent as a whole."""

    name: str
    source_key: str
    skill_id: str | None
    """None for an agent as a whole."""
    listed: JsonObject
    """The tool as tools/list shows it."""
    original: Tool | None
    """The tool that the skill was made from, as the extension on the card declares it; None without the extension."""
    input_schema: JsonObject
    """The full schema of the arguments. Hosts may see only part of it."""
    output: Validator | None = None
    """The validator of the structured result; None without an output schema."""
    every_name: tuple[str, ...] = ()
    """All names that the tool may get, depending on other tools, the longest first."""
    qualified: str = ""
    """The tool's name, prefixed by its source."""
    notes: tuple[str, ...] = ()
    """Notes on what the server listed but hosts do not see."""
    far_names: tuple[str, ...] = ()
    """The names that another bridge behind this tool may give its skill: prefixed by the tool's server."""
    server: str = ""
    """The key that the agent gives to the tool's server; "" if it is not known."""
    is_for_apps: bool = False
    """Whether only an app of its server may call it, and no model may see it."""
    shown_uri: Callable[[str], str] | None = None
    """Gives the URI by which hosts read a resource of the tool's server; None if URIs stay as they are."""


def tools_of_agents(
    sources: Sequence[ToolSource], rules: ToolRules, left_out: list[tuple[str, UnservableTool]] | None = None
) -> tuple[AgentTool, ...]:
    """The tools of all agents, in the order of the agents and their cards. Tools that hosts could not read are added to
    `left_out`, each with the key of its agent."""
    unread: list[tuple[str, UnservableTool]] = [] if left_out is None else left_out
    tools = [tool for source in sources for tool in _tools_of(_within(source, rules), rules, unread)]
    wanted = {
        id(tool): ToolToName(
            tool.source_key,
            tool.skill_id or tool.name,
            tool.original.name if tool.original else None,
            "" if tool.skill_id is None else str(tool.listed.get("title", "")),
        )
        for tool in tools
    }
    names = tool_names(wanted.values(), always_prefixed=rules.always_prefixed)
    return tuple(_called(tool, names[wanted[id(tool)]], wanted[id(tool)]) for tool in tools)


def takes_context(tool: AgentTool) -> bool:
    """Whether a host can continue a conversation with this tool. (The configuration may hide the `context`
    argument.)"""
    schema = tool.listed.get("inputSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return tool.original is None and isinstance(fields, dict) and "context" in fields


def skills_by_id(card: AgentCard) -> Mapping[str, AgentSkill]:
    """The skills of a card in its order. Of two skills with one id, the first counts."""
    by_id: dict[str, AgentSkill] = {}
    for skill in card.skills:
        by_id.setdefault(skill.id, skill)
    return by_id


def listed_tools(
    tools: Sequence[AgentTool],
    rules: ToolRules,
    *,
    follow_up_tools: bool = True,
    longest_wait_seconds: int,
    gives_pages: bool = False,
) -> tuple[JsonObject, ...]:
    """The tools as tools/list shows them. `gives_pages` says that long texts are shortened."""
    listed = tuple(tool.listed for tool in tools)
    skill_tools = search_tools(rules.found_most) if rules.granularity == "search" else listed
    if not follow_up_tools:
        return skill_tools
    pages = (page_tool(PAGE_TOOL),) if gives_pages else ()
    return (*skill_tools, *follow_ups(longest_wait_seconds), *pages)


def find_skills(
    tools: Sequence[AgentTool],
    query: str,
    limit: int,
    most: int,
    is_ready: Callable[[AgentTool], bool] = lambda _: True,
) -> tuple[AgentTool, ...]:
    """The tools that match a query: callable tools first, better matches before others. Without words in the query, the
    first tools."""
    words = set(_WORD.findall(query.lower()))
    ranked = sorted(tools, key=lambda tool: (not is_ready(tool), -_score(tool, words)))
    fitting = [tool for tool in ranked if not words or _score(tool, words)]
    return tuple(fitting[: max(1, min(limit, most))])


def found_as_text(tools: Sequence[AgentTool]) -> str:
    """The text of a find_skill result: the found skills as JSON, with the names that call_skill takes."""
    fields = ("title", "description", "inputSchema")
    entries = [
        {"skill": tool.name, **{key: tool.listed[key] for key in fields if key in tool.listed}}
        for tool in tools
    ]
    return json.dumps(entries, ensure_ascii=False)


def _score(tool: AgentTool, words: set[str]) -> int:
    named = set(_WORD.findall(f"{tool.name.replace('_', ' ')} {tool.listed.get('title', '')}".lower()))
    described = set(_WORD.findall(str(tool.listed.get("description", "")).lower()))
    return 3 * len(words & named) + len(words & described)


def _within(source: ToolSource, rules: ToolRules) -> ToolSource:
    card = source.card
    if len(card.skills) <= rules.skills_most:
        return source
    return replace(source, card=card.changed(skills=card.skills[: rules.skills_most]))


def _tools_of(
    source: ToolSource, rules: ToolRules, unread: list[tuple[str, UnservableTool]]
) -> list[AgentTool]:
    """The tools of one agent, each under the name that it would have alone."""
    card, work = source.card, SchemaBudget()
    originals = _originals(card, work)
    if originals is not None and not originals:
        # A bridge's agent without tools: its one skill is a placeholder that cannot be called.
        return [*_app_tools(source, rules, work, unread)]
    if rules.granularity == "agent":
        return [_whole_agent(source, source.key)]
    if not card.skills:
        return [_whole_agent(source, "message")]
    tools = []
    for skill_id, skill in skills_by_id(card).items():
        if originals is None or skill_id not in originals:
            tools.append(_message_tool(source, skill))
        elif isinstance(original := originals[skill_id], Tool):
            server = next(iter(skill.tags), "")  # a bridge's first tag is the server
            tools.append(_original(source, skill.id, server, original, work))
        else:
            unread.append((source.key, original))
    return [*tools, *_app_tools(source, rules, work, unread)]


def _app_tools(
    source: ToolSource, rules: ToolRules, work: SchemaBudget, unread: list[tuple[str, UnservableTool]]
) -> Iterator[AgentTool]:
    """The tools that only apps may call. They are no skills of the card. Apps need the single tools, so there are none
    where tools stand for whole agents or are searched."""
    if rules.granularity != "skill":
        return
    for declared in declared_app_tools(source.card.capabilities.extensions)[: rules.skills_most]:
        if isinstance(tool := _tool_from(declared.id, declared.listed, work), Tool):
            made = _original(source, declared.id, declared.server, tool, work)
            yield replace(made, is_for_apps=True)
        else:
            unread.append((source.key, tool))


def _originals(card: AgentCard, work: SchemaBudget) -> Mapping[str, Tool | UnservableTool] | None:
    """The tools behind the skills, by skill id. None without the extension."""
    for extension in card.capabilities.extensions or ():
        listed = (extension.params or {}).get("tools") if extension.uri == URI else None
        if isinstance(listed, dict):
            return {skill_id: _tool_from(skill_id, fields, work) for skill_id, fields in listed.items()}
    return None


def _tool_from(skill_id: str, listed: JsonValue, work: SchemaBudget) -> Tool | UnservableTool:
    """A tool that hosts can read, or the reason why they cannot. One unreadable tool makes a host reject the whole
    list."""
    tools, left_out = tools_from([listed], work)
    if not tools:
        return replace(left_out[0], name=skill_id)
    try:
        types.Tool.model_validate(tools[0].listed)
    except ValidationError as exc:
        where = ".".join(str(step) for step in exc.errors()[0]["loc"])
        return UnservableTool(skill_id, f"its {where} is not valid in MCP")
    return tools[0]


def _original(source: ToolSource, skill_id: str, server: str, tool: Tool, work: SchemaBudget) -> AgentTool:
    listed = {key: value for key, value in tool.listed.items() if key not in ("execution", "outputSchema")}
    schema, output = listed["inputSchema"], _output_of(tool, work)
    assert isinstance(schema, dict)  # tools_from takes no other
    listed["inputSchema"] = shown_input(schema)
    if output.schema is not None:
        listed["outputSchema"] = output.schema
    return AgentTool(
        tool.name,
        source.key,
        skill_id,
        listed,
        tool,
        tool.input_schema,
        output.validator,
        notes=(*tool.odd, *([output.why] if output.why else [])),
        far_names=(f"{server}_{tool.name}",) if server else (),
        server=server,
    )


def _output_of(tool: Tool, work: SchemaBudget) -> ShownOutput:
    """The output schema that hosts see. A schema that is too costly to examine is not shown."""
    if tool.output_schema is None:
        return ShownOutput()
    if not work.takes(tool.output_schema):
        return ShownOutput(why="its output schema is left out: the schemas of its agent hold too many values")
    return shown_output(tool.output_schema)


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


def _called(tool: AgentTool, name: str, wanted: ToolToName) -> AgentTool:
    far = [
        other for far_id in tool.far_names for other in (far_id, *names_of(replace(wanted, skill_id=far_id)))
    ]
    far += [
        other for far_id in tool.far_names for other in names_of(replace(wanted, skill_id=far_id, exact=None))
    ]
    tool = replace(
        tool,
        every_name=names_of(wanted),
        qualified=qualified_name(wanted),
        far_names=tuple(dict.fromkeys(far)),
    )
    if tool.original is None:
        return replace(tool, name=name, listed={**tool.listed, "name": name})
    listed = {key: _seen(value, key) for key, value in tool.listed.items()}
    if isinstance(icons := listed.get("icons"), list):
        listed["icons"] = [
            icon for icon in icons if isinstance(icon, dict) and icon_link(str(icon.get("src")))
        ]
    return replace(tool, name=name, listed={**listed, "name": name})


def _seen(value: JsonValue, key: str) -> JsonValue:
    """The value of a key in a tool, with invisible characters removed from its words."""
    if isinstance(value, str):
        return without_hidden_characters(value) if key in _SAID else value
    if isinstance(value, dict) and key not in _VALUES:
        return {name: _seen(inner, "" if key in _BY_NAME else name) for name, inner in value.items()}
    if isinstance(value, list) and key not in _VALUES:
        return [_seen(inner, key) for inner in value]
    return value
