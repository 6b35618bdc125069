"""The mapping page: each tool beside its skill, each skill beside its tool, and what is changed, hidden or lost.

A caller does not see what the configuration hides or replaces, such as an argument or a description: the left side
shows the tool as the bridge offers it. An operator sees the tool as the peer lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields

from pydantic import JsonValue

from bridge.agents_as_agent.skills import ForwardedSkill
from bridge.agents_as_tools.tools import PublishedTool
from bridge.assembly.bridge import Bridge
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.published_agent import PublishedAgent
from bridge.console.console_access import Visit
from bridge.console.paging import Paging
from bridge.console.paths import path_of
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import without_hidden_characters
from bridge.tools_as_agent.skills import Skill
from bridge.translate.overrides import ABSENT, ArgumentRule, Remark, SkillOverride, ToolOverride


def mapping(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page: each endpoint with its rows. Only operators see hidden entries, remarks, and endpoints that offer them
    nothing."""
    paging = Paging.asked("/mapping", visit.query)
    alone = len(bridge.published) + len(bridge.offered) == 1
    faces = [
        *(_agent(one, visit, paging, alone=alone) for one in bridge.published),
        *(_server(one, visit, paging, alone=alone) for one in bridge.offered),
    ]
    return {"faces": [face for face in faces if face is not None]}


def _agent(one: PublishedAgent, visit: Visit, paging: Paging, *, alone: bool) -> JsonObject | None:
    """An agent with the requested rows; None if the visitor may not see it, or did not ask for it."""
    here, agent, part = visit.who.in_face(one.name), one.agent, f"agent/{one.name}"
    usable = [skill for skill in agent.published if here.may_use(skill.names)]
    if not paging.shows(part) or not (usable or visit.reads_all):
        return None
    rows, shown = paging.entries(part, usable, lambda skill: _row_of(skill, one, visit), alone=alone)
    told: JsonObject = {"kind": "agent", "name": one.name, "rows": rows, "paging": shown}
    if not visit.reads_all:
        return told
    hidden = paging.entries(
        f"{part}/hidden",
        [*agent.skill_set.hidden.items()],
        lambda entry: {"from": entry[0][1], "of": entry[0][0] or one.name, "to": entry[1]},
    )
    upstreams = {} if one.tools is None else one.tools.upstreams
    lost = paging.entries(
        f"{part}/lost",
        [(key, tool) for key, upstream in upstreams.items() for tool in upstream.listing.left_out],
        lambda entry: f"{entry[0]}: the tool {entry[1].name} is not served: {entry[1].reason}",
    )
    remarks = paging.entries(
        f"{part}/remarks", agent.remarks, lambda remark: _words(one.table, one.name, remark)
    )
    return {**told, **_lists(hidden=hidden, lost=lost, remarks=remarks)}


def _lists(**lists: tuple[list[JsonValue], JsonObject]) -> JsonObject:
    """The lists for operators, each with its paging."""
    told: JsonObject = {}
    for name, (entries, shown) in lists.items():
        told |= {name: entries, f"{name}_paging": shown}
    return told


def _row_of(skill: Skill | ForwardedSkill, one: PublishedAgent, visit: Visit) -> JsonObject:
    if isinstance(skill, Skill):
        return _skill_row(skill, one, visit)
    theirs = next((other for other in one.remote_skills(skill.agent) if other.id == skill.remote_id), None)
    return {
        "from": skill.remote_id,
        "of": skill.agent,
        "to": skill.id,
        "title": skill.shown.name,
        "path": path_of("try", one.name, skill.id),
        "changed": [*_changes(skill.override, visit)],
        "lossy": [],
        "left": None if theirs is None else theirs.to_object(),
        "right": skill.shown.to_object(),
    }


def _skill_row(skill: Skill, one: PublishedAgent, visit: Visit) -> JsonObject:
    tool = skill.tool
    listed = (skill.listed if visit.reads_all else tool).listed
    return {
        "from": tool.name,
        "of": skill.source_key or one.name,
        "to": skill.id,
        "title": skill.shown.name,
        "path": path_of("try", one.name, skill.id),
        "changed": [
            *_changes(skill.override, visit),
            *([f"has the id {skill.id}"] if skill.id != skill.default_id else []),
        ],
        "lossy": [*_losses(skill, listed)],
        "left": listed,
        "right": skill.shown.to_object(),
    }


def _losses(skill: Skill, listed: JsonObject) -> Iterator[str]:
    """The properties of the tool that a client of the skill does not get, as the visitor sees the tool."""
    if skill.tool.unchecked:
        yield f"not all of its arguments are checked before a call: {skill.tool.unchecked}"
    if skill.tool.output_schema is not None:
        yield "the schema of its result reaches only clients that activate our extension"
    if not skill.tool.text("description"):
        yield "it has no description, so a model knows only its name"
    if _has_hidden(listed):
        yield "its texts have invisible characters, or characters that reverse text"


def _server(one: OfferedServer, visit: Visit, paging: Paging, *, alone: bool) -> JsonObject | None:
    """An MCP server, as `_agent` for an agent."""
    here, face, part = visit.who.in_face(one.name), one.face, f"mcp/{one.name}"
    usable = [tool for tool in face.published if here.may_use(tool.names)]
    if not paging.shows(part) or not (usable or visit.reads_all):
        return None
    cards = {agent.key: agent for agent in one.remote_agents if agent.has_card}
    rows, shown = paging.entries(
        part, usable, lambda tool: _tool_row(tool, _skill_of(tool, cards), visit), alone=alone
    )
    told: JsonObject = {"kind": "mcp", "name": one.name, "rows": rows, "paging": shown}
    if not visit.reads_all:
        return told
    hidden = paging.entries(
        f"{part}/hidden",
        face.listing.tools.hidden,
        lambda tool: {"from": tool.skill_id or "", "of": tool.source_key, "to": tool.name},
    )
    lost = paging.entries(
        f"{part}/lost",
        [
            f"{key}: {words}"
            for key, agent in cards.items()
            for words in (*agent.deviations, *agent.extension_notes)
        ],
        str,
    )
    remarks = paging.entries(
        f"{part}/remarks", face.remarks, lambda remark: _words("agents_as_tools", one.name, remark)
    )
    return {**told, **_lists(hidden=hidden, lost=lost, remarks=remarks)}


def _skill_of(tool: PublishedTool, agents: Mapping[str, RemoteAgent]) -> JsonObject | None:
    """The skill of a tool on its agent's card; None if the tool is for the whole agent, or there is no card."""
    skills = agents[tool.agent_key].card.skills if tool.agent_key in agents else ()
    return next((skill.to_object() for skill in skills if skill.id == tool.skill_id), None)


def _tool_row(tool: PublishedTool, skill: JsonObject | None, visit: Visit) -> JsonObject:
    if not visit.reads_all and tool.override != ToolOverride():
        skill = None
    own_name = [f"has the name {tool.name}"] if tool.name != tool.default_name else []
    return {
        "from": tool.skill_id or "",
        "of": tool.agent_key,
        "to": tool.name,
        "title": str(tool.listed.get("title") or ""),
        "path": None,
        "changed": [*_changes(tool.override, visit), *own_name],
        "lossy": [*_losses_of_skill(tool, skill or {})],
        "left": skill,
        "right": tool.listed,
    }


def _losses_of_skill(tool: PublishedTool, skill: JsonObject) -> Iterator[str]:
    """The properties of the skill that a host does not get."""
    if tool.tool.original is None:
        yield "a skill has no schema: its tool takes a message in words"
    if _has_hidden(skill):
        yield "its texts have invisible characters; hosts get the texts without them"


def _changes(override: SkillOverride | ToolOverride, visit: Visit) -> Iterator[str]:
    """What the configuration changes, one line for each key. Only operators see hidden arguments."""
    named = {"id"} if isinstance(override, SkillOverride) else {"name"}  # the row shows the name itself
    for key in fields(override):
        value = getattr(override, key.name)
        if value is None or key.name in named:
            continue
        if key.name == "arguments":
            shown = ((name, rule) for name, rule in value.items() if visit.reads_all or not rule.hidden)
            yield from _argument_changes(shown)
        elif isinstance(value, str | tuple):
            yield f"has its own {key.name}"
        else:
            yield f"{key.name} = {str(value).lower()}"


def _argument_changes(rules: Iterable[tuple[str, ArgumentRule]]) -> Iterator[str]:
    for name, rule in rules:
        if rule.hidden:
            yield f"the argument {name} is hidden" + (" and set" if rule.default is not ABSENT else "")
        elif rule.default is not ABSENT:
            yield f"the argument {name} has a default"
        elif rule.description is not None:
            yield f"the argument {name} has its own description"


def _has_hidden(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_has_hidden, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_has_hidden, value))
    return isinstance(value, str) and without_hidden_characters(value) != value


def _words(table: str, face: str, remark: Remark) -> str:
    return f"{table}.{face}.{remark}"
