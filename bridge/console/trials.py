"""A call to try: a form made of the schema of a skill, and what a person would type elsewhere for the same call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Role
from bridge.assembly.bridge import Bridge
from bridge.assembly.call_lines import a2a_line, command_line
from bridge.assembly.published_agent import PublishedAgent
from bridge.concurrency import done_slowly
from bridge.console.console_access import Visit
from bridge.console.forms import WrongValuesError, fields_of, tool_problems
from bridge.console.operations import operations_on
from bridge.console.paging import Paging
from bridge.console.paths import path_of
from bridge.console.task_pages import call_of, path_of_task
from bridge.http.request_checks import API_KEY_HEADER, RefusedError
from bridge.identity.callers.verifiers import Scheme
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.skills import Skill
from bridge.translate.examples import example_of
from bridge.translate.extension import SKILL

_VARIABLE: Final = "MCP_A2A_TOKEN"
"""The variable that holds the caller's token in the lines to copy."""

_OPTIONS: Final = {Scheme.BEARER: "--bearer", Scheme.API_KEY: "--api-key"}
_HEADERS: Final = {Scheme.BEARER: "Authorization: Bearer ", Scheme.API_KEY: f"{API_KEY_HEADER}: "}

_HINTS: Final = {
    "readOnlyHint": "only reads",
    "destructiveHint": "may destroy",
    "idempotentHint": "may be repeated",
    "openWorldHint": "reaches the world outside",
}
"""What the annotations of a tool say, which are its server's word."""


def skill_list(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page with all skills that the visitor may use, by agent."""
    paging = Paging.asked("/try", visit.query)
    alone = len(bridge.published) + len(bridge.offered) == 1
    agents: list[JsonValue] = []
    for agent in bridge.published:
        usable, part = _usable(agent, visit), f"agent/{agent.name}"
        if paging.shows(part) and (usable or visit.reads_all):
            skills, shown = paging.entries(part, usable, partial(_line, agent=agent), alone=alone)
            down: list[JsonValue] = [state.key for state in agent.agent.sources if state.down is not None]
            agents.append({"name": agent.name, "skills": skills, "paging": shown, "down": down})
    return {"agents": agents}


def _usable(agent: PublishedAgent, visit: Visit) -> list[Skill]:
    here = visit.who.in_face(agent.name)
    return [skill for skill in agent.agent.published if here.may_use(skill.names)]


def _line(skill: Skill, agent: PublishedAgent) -> JsonObject:
    return {
        "id": skill.id,
        "name": skill.shown.name,
        "description": skill.shown.description,
        "path": path_of("try", agent.name, skill.id),
        "hints": [words for hint, words in _HINTS.items() if skill.tool.annotations.get(hint) is True],
    }


async def skill_page(bridge: Bridge, visit: Visit, name: str, skill_id: str) -> JsonObject:
    """The page of one skill. With `task` in the query, its form has the arguments of that task."""
    one = operations_on(bridge, visit, name)
    skill = _skill(one.agent, visit, skill_id)
    values: JsonObject | None = None
    if task_id := visit.query.get("task"):
        task = await one.task(task_id)
        call = None if one.withholds(task) else call_of(task, one.agent.agent)
        values = call.arguments if call is not None and call.skill_id == skill_id else None
    example = example_of(skill.tool) or {}
    return {
        **_line(skill, one.agent),
        "agent": name,
        "tool": skill.tool.name,
        "server": skill.source_key,
        "fields": fields_of(skill.tool.input_schema, values),
        "schema": skill.tool.input_schema,
        "unchecked": skill.tool.unchecked,
        "lines": lines_for(visit, one.agent, skill.id, example if values is None else values),
        "lines_are": "the example" if values is None and example else "",
    }


def _skill(agent: PublishedAgent, visit: Visit, skill_id: str) -> Skill:
    for skill in _usable(agent, visit):
        if skill.id == skill_id:
            return skill
    raise RefusedError(404, "There is no such skill, or it is not for you")


def lines_for(visit: Visit, agent: PublishedAgent, skill_id: str, arguments: JsonObject) -> JsonObject:
    """The same call as lines for a shell. A token stands there as a variable."""
    url = f"{visit.base_url}{agent.path}"
    return {
        "call": command_line(url, skill_id, arguments, secret_option(visit)),
        "curl": a2a_line(url, skill_id, arguments, secret_header(visit)),
        "protocol": "A2A",
    }


def secret_option(visit: Visit) -> Sequence[str]:
    """The option of `mcp-a2a call` with which a visitor shows who it is; it takes the secret from a variable."""
    if visit.is_open or not visit.session.secret:
        return ()
    return (_OPTIONS[visit.session.scheme], f"env:{_VARIABLE}")


def secret_header(visit: Visit) -> str:
    """The same for curl."""
    if visit.is_open or not visit.session.secret:
        return ""
    return f'-H "{_HEADERS[visit.session.scheme]}${_VARIABLE}"'


def typed_lines(bridge: Bridge, visit: Visit, name: str, skill_id: str, body: JsonObject) -> JsonObject:
    """The lines for what stands in the form of a skill, whether it fits the schema or not.

    Raises:
        RefusedError: 404, there is no such skill for the visitor; 400, there are no arguments.
    """
    one = operations_on(bridge, visit, name)
    _skill(one.agent, visit, skill_id)
    return lines_for(visit, one.agent, skill_id, arguments_in(body))


def arguments_in(body: JsonObject) -> JsonObject:
    """The arguments in a form.

    Raises:
        RefusedError: 400, there are none.
    """
    arguments = body.get("arguments")
    if not isinstance(arguments, dict):
        raise RefusedError(400, "A call has arguments, which may be none")
    return arguments


async def run(bridge: Bridge, visit: Visit, name: str, skill_id: str, body: JsonObject) -> str:
    """Call a skill. Returns the path of the page of its task.

    Raises:
        RefusedError: 404, there is no such skill for the visitor; 400, there are no arguments.
        WrongValuesError: the arguments do not fit the schema.
        A2AError: the call is refused.
    """
    one = operations_on(bridge, visit, name)
    skill, arguments = _skill(one.agent, visit, skill_id), arguments_in(body)
    if problems := await done_slowly(partial(tool_problems, skill.tool, arguments)):
        raise WrongValuesError(problems)
    data: JsonObject = {"skill": skill_id, "arguments": arguments}
    task = await one.send(
        Message(
            message_id=str(uuid4()),
            role=Role.USER,
            parts=(Part(data=data, media_type="application/json"),),
            metadata={SKILL: skill_id},
        )
    )
    return path_of_task(name, task.id)
