"""Lets a visitor try a skill of an agent or a tool of an MCP server: by a form made from the schema, by the same call
as lines for a shell, and by the call itself.

For the pages both are a `Target`. The bridge calls a skill as a client of its agent does: the call is a task. It calls
a tool as a host of MCP 2026-07-28 does: the call waits for the result, and shows the progress meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import JsonValue
from starlette.types import ASGIApp

from bridge.a2a.model.objects import Message, Part, Role
from bridge.agents_as_tools.tools import PublishedTool
from bridge.assembly.bridge import Bridge
from bridge.assembly.call_lines import a2a_line
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.published_agent import PublishedAgent
from bridge.assembly.routes import MCP
from bridge.concurrency import done_slowly
from bridge.console.call_lines import command_line, mcp_line
from bridge.console.console_access import Visit
from bridge.console.forms import WrongValuesError, fields_of, form_problems, tool_problems
from bridge.console.live_trials import LiveTrial
from bridge.console.operations import operations_on
from bridge.console.pages import json_response
from bridge.console.paging import Paging
from bridge.console.parts import shown_result
from bridge.console.paths import path_of
from bridge.console.questions import questions_of_result
from bridge.console.tab_streams import TabStreams
from bridge.console.task_pages import call_of, path_of_task
from bridge.errors import AuditAwayError
from bridge.http.request_checks import API_KEY_HEADER, RefusedError
from bridge.identity.callers.verifiers import Scheme
from bridge.mcp.server.face import IncomingCall, McpRefusal, ReportProgress
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.skills import Skill
from bridge.translate.examples import example_of
from bridge.translate.extensions.bridge import SKILL

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
"""The annotations of a tool in words. The server makes these claims."""

_OwnerT = TypeVar("_OwnerT", PublishedAgent, OfferedServer)
_OfferT = TypeVar("_OfferT", Skill, PublishedTool)


@dataclass(frozen=True)
class Target(Generic[_OwnerT, _OfferT]):
    """A skill or a tool that a visitor may call."""

    owner: _OwnerT
    """The agent of the skill, or the MCP server of the tool."""
    offer: _OfferT
    id: str
    """The id of the skill, or the name of the tool."""
    line: JsonObject
    """Its entry in a list: its name and description, and the path of its page."""
    schema: JsonObject
    """The schema of its arguments."""
    protocol: str
    """The protocol in which a client calls it: A2A or MCP."""
    url_path: str
    """The path at which a client calls it."""
    curl: Callable[[str, str, JsonObject, str], str | None]
    """Makes the call as a curl command, from the URL, the id, the arguments and the option that sends the token."""
    calls: str
    """The tool behind the skill, or the skill behind the tool."""
    calls_at: str
    """The configured name of the tool server or the remote agent behind it."""
    unchecked: str | None = None
    """Why the schema is not fully checked before a call; None if it is."""

    def page(
        self, visit: Visit, values: JsonObject | None = None, example: JsonObject | None = None
    ) -> JsonObject:
        """The page of the target. The form holds `values`; without values the lines to copy show the example."""
        return {
            **self.line,
            "agent": self.owner.name,
            "tool": self.calls,
            "server": self.calls_at,
            "fields": fields_of(self.schema, values),
            "schema": self.schema,
            "unchecked": self.unchecked,
            "lines": self.lines(visit, (example or {}) if values is None else values),
            "lines_are": "the example" if values is None and example else "",
        }

    def lines(self, visit: Visit, arguments: JsonObject) -> JsonObject:
        """The same call as lines for a shell. A variable of the shell stands for the token."""
        url = f"{visit.base_url}{self.url_path}"
        option: Sequence[str] = ()
        header = ""
        if not visit.is_open and visit.session.secret:
            option = (_OPTIONS[visit.session.scheme], f"env:{_VARIABLE}")
            header = f'-H "{_HEADERS[visit.session.scheme]}${_VARIABLE}"'
        return {
            "call": command_line(url, self.id, arguments, option),
            "curl": self.curl(url, self.id, arguments, header),
            "protocol": self.protocol,
        }


SkillTarget: TypeAlias = Target[PublishedAgent, Skill]
ToolTarget: TypeAlias = Target[OfferedServer, PublishedTool]


def skill_target(agent: PublishedAgent, skill: Skill) -> SkillTarget:
    """A skill as a target."""
    return Target(
        owner=agent,
        offer=skill,
        id=skill.id,
        line=_skill_line(agent, skill),
        schema=skill.tool.input_schema,
        protocol="A2A",
        url_path=agent.path,
        curl=a2a_line,
        calls=skill.tool.name,
        calls_at=skill.source_key,
        unchecked=skill.tool.unchecked,
    )


def _skill_line(agent: PublishedAgent, skill: Skill) -> JsonObject:
    return {
        "id": skill.id,
        "name": skill.shown.name,
        "description": skill.shown.description,
        "path": path_of("try", agent.name, skill.id),
        "hints": [words for hint, words in _HINTS.items() if skill.tool.annotations.get(hint) is True],
    }


def tool_target(server: OfferedServer, tool: PublishedTool) -> ToolTarget:
    """A tool as a target."""
    schema = tool.listed.get("inputSchema")
    return Target(
        owner=server,
        offer=tool,
        id=tool.name,
        line=_tool_line(server, tool),
        schema=schema if isinstance(schema, dict) else {},
        protocol="MCP",
        url_path=f"{MCP}/{quote(server.name, safe='')}",
        curl=mcp_line,
        calls=tool.skill_id or "",
        calls_at=tool.agent_key,
    )


def _tool_line(server: OfferedServer, tool: PublishedTool) -> JsonObject:
    return {
        "id": tool.name,
        "name": str(tool.listed.get("title") or tool.name),
        "description": str(tool.listed.get("description") or ""),
        "path": path_of("try", "mcp", server.name, tool.name),
        "hints": [],
    }


def _usable_skills(visit: Visit, agent: PublishedAgent) -> list[Skill]:
    may_use = visit.who.in_face(agent.name).may_use
    return [skill for skill in _skills_of(agent) if may_use(skill.names)]


def _skills_of(agent: PublishedAgent) -> Sequence[Skill]:
    """The skills that can be tried. Those of remote agents have no arguments to fill in."""
    return () if agent.tools is None else agent.tools.published


def _usable_tools(visit: Visit, server: OfferedServer) -> list[PublishedTool]:
    may_use = visit.who.in_face(server.name).may_use
    return [tool for tool in server.face.published if may_use(tool.names)]


def skill_of(visit: Visit, agent: PublishedAgent, skill_id: str) -> SkillTarget:
    """A skill that the visitor may call.

    Raises:
        RefusedError: 404, there is no such skill for the visitor.
    """
    may_use = visit.who.in_face(agent.name).may_use
    for skill in _skills_of(agent):
        if skill.id == skill_id and may_use(skill.names):
            return skill_target(agent, skill)
    raise RefusedError(404, "There is no such skill, or it is not for you")


def tool_of(bridge: Bridge, visit: Visit, name: str, tool_name: str) -> ToolTarget:
    """A tool that the visitor may call, by the name of its server.

    Raises:
        RefusedError: 404, there is no such tool for the visitor.
    """
    may_use = visit.who.in_face(name).may_use
    for server in bridge.offered:
        for tool in server.face.published if server.name == name else ():
            if tool.name == tool_name and may_use(tool.names):
                return tool_target(server, tool)
    raise RefusedError(404, "There is no such tool, or it is not for you")


def try_list(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page of everything that the visitor may call: the skills of each agent and the tools of each MCP server."""
    paging = Paging.asked("/try", visit.query)
    alone = len(bridge.published) + len(bridge.offered) == 1
    groups: list[JsonValue] = []

    def add(
        kind: str,
        name: str,
        noun: str,
        offers: Sequence[_OfferT],
        line_of: Callable[[_OfferT], JsonObject],
        down: Iterable[str],
    ) -> None:
        part = f"{kind}/{name}"
        if paging.shows(part) and (offers or visit.reads_all):
            entries, shown = paging.entries(part, offers, line_of, alone=alone)
            explain = path_of("explain", name) if kind == "agent" and entries else ""
            group: JsonObject = {"name": name, "noun": noun, "entries": entries, "paging": shown}
            groups.append({**group, "down": [*down], "explain": explain})

    for agent in bridge.published:
        down = [state.key for state in agent.agent.sources if state.down is not None]
        skills, skill_line = _usable_skills(visit, agent), partial(_skill_line, agent)
        add("agent", agent.name, "skill", skills, skill_line, down)
    for server in bridge.offered:
        down = [state.key for state in server.face.sources if state.down is not None]
        tools, tool_line = _usable_tools(visit, server), partial(_tool_line, server)
        add("mcp", server.name, "tool", tools, tool_line, down)
    return {"groups": groups}


async def skill_page(bridge: Bridge, visit: Visit, name: str, skill_id: str) -> JsonObject:
    """The page of one skill. With `task` in the query, its form has the arguments of that task."""
    operations = operations_on(bridge, visit, name)
    target = skill_of(visit, operations.agent, skill_id)
    values: JsonObject | None = None
    if task_id := visit.query.get("task"):
        task = await operations.task(task_id)
        call = None if operations.withholds(task) else call_of(task, operations.agent.agent)
        values = call.arguments if call is not None and call.skill_id == skill_id else None
    return target.page(visit, values, example_of(target.offer.tool))


def tool_page(bridge: Bridge, visit: Visit, server: str, tool: str) -> JsonObject:
    """The page of one tool."""
    return tool_of(bridge, visit, server, tool).page(visit)


def typed_lines(visit: Visit, target: Target[Any, Any], body: JsonObject) -> JsonObject:
    """The values of a form as lines for a shell, even if they do not fit the schema.

    Raises:
        RefusedError: 400, there are no arguments.
    """
    return target.lines(visit, _arguments_in(body))


def _arguments_in(body: JsonObject) -> JsonObject:
    arguments = body.get("arguments")
    if not isinstance(arguments, dict):
        raise RefusedError(400, "Send the arguments of the call as a JSON object")
    return arguments


async def explained(bridge: Bridge, visit: Visit, name: str, body: JsonObject) -> JsonObject:
    """What an agent makes of a text of the visitor, and by which rule. Nothing is run.

    Raises:
        RefusedError: 404, there is no such agent; 400, there is no text.
        A2AError: the agent refuses the message.
    """
    text = body.get("text")
    if not isinstance(text, str):
        raise RefusedError(400, "Send the `text` to explain")
    return {"explained": await operations_on(bridge, visit, name).explanation(text)}


async def call_skill(bridge: Bridge, visit: Visit, name: str, skill_id: str, body: JsonObject) -> str:
    """Call a skill. Returns the path of the page of its task.

    Raises:
        RefusedError: 404, there is no such skill for the visitor; 400, there are no arguments.
        WrongValuesError: the arguments do not fit the schema.
        A2AError: the call is refused.
    """
    operations = operations_on(bridge, visit, name)
    target, arguments = skill_of(visit, operations.agent, skill_id), _arguments_in(body)
    if problems := await done_slowly(partial(tool_problems, target.offer.tool, arguments)):
        raise WrongValuesError(problems)
    data: JsonObject = {"skill": skill_id, "arguments": arguments}
    task = await operations.send(
        Message(
            message_id=str(uuid4()),
            role=Role.USER,
            parts=(Part(data=data, media_type="application/json"),),
            metadata={SKILL: skill_id},
        )
    )
    return path_of_task(name, task.id)


async def call_tool(
    bridge: Bridge, tabs: TabStreams, visit: Visit, server: str, name: str, body: JsonObject
) -> ASGIApp:
    """Call a tool and wait for its result. With `live` in the form, the answer is a stream that shows the tool's
    progress, too. A tool that asks questions returns them as forms. The page then calls the tool again with the
    answers, and with the `state` and the schemas that came with the questions.

    Raises:
        RefusedError: 404, there is no such tool for the visitor; 400, the call is refused; 503, the audit cannot be
            written, or too many streams are open.
        WrongValuesError: the arguments do not fit the schema.
    """
    target, arguments = tool_of(bridge, visit, server, name), _arguments_in(body)
    if problems := await done_slowly(partial(form_problems, target.schema, arguments)):
        raise WrongValuesError(problems)
    answers = await done_slowly(partial(_answers_in, body))
    call = partial(_call_result, target, visit, arguments, answers)
    if body.get("live") is True:
        return LiveTrial(tabs.take(visit), call)
    return json_response(await call(_report_to_nobody))


def _report_to_nobody(
    progress: float | None, total: float | None = None, message: str | None = None
) -> None: ...


@dataclass(frozen=True)
class _GivenAnswers:
    """The answers to the questions of a tool, if it has asked."""

    responses: JsonObject | None = None
    state: str | None = None


def _answers_in(body: JsonObject) -> _GivenAnswers:
    """The answers in a form.

    Raises:
        RefusedError: 400, the answers come without a state.
        WrongValuesError: the answers do not fit the schemas of the questions. The page sends the schemas back. A page
            that changes them evades this check only: the agent checks the answers again.
    """
    answers, state, asked = body.get("answers"), body.get("state"), body.get("asked")
    if not isinstance(answers, dict):
        return _GivenAnswers()
    if not isinstance(state, str):
        raise RefusedError(400, "Send the answers with the `state` of the questions")
    schemas = asked if isinstance(asked, dict) else {}
    problems: list[JsonObject] = []
    for key, given in answers.items():
        schema, content = schemas.get(key), given.get("content") if isinstance(given, dict) else None
        if isinstance(schema, dict) and isinstance(content, dict):
            problems += [{**problem, "question": key} for problem in form_problems(schema, content)]
    if problems:
        raise WrongValuesError(problems)
    return _GivenAnswers(answers, state)


async def _call_result(
    target: ToolTarget,
    visit: Visit,
    arguments: JsonObject,
    answers: _GivenAnswers,
    report: ReportProgress,
) -> JsonObject:
    who = visit.who.in_face(target.owner.name)
    incoming = IncomingCall(
        target.id,
        arguments,
        principal=who.name,
        may_use=who.may_use,
        may_see=who.may_see,
        caller=who.token,
        is_modern=True,
        takes_forms=True,
        takes_urls=True,
        input_responses=answers.responses,
        request_state=answers.state,
        report=report,
    )
    try:
        result = await target.owner.server.called(incoming)
    except McpRefusal as exc:
        raise RefusedError(400, exc.message) from exc
    except AuditAwayError as exc:
        raise RefusedError(503, "The bridge cannot write its audit at the moment") from exc
    return {**shown_result(result), "asks": questions_of_result(result)}
