"""A tool of an MCP server to try: a form made of its schema, and its result as a host would get it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue
from starlette.types import ASGIApp

from bridge.agents_as_tools.tools import PublishedTool
from bridge.assembly.bridge import Bridge
from bridge.assembly.call_lines import command_line, mcp_line
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.routes import MCP
from bridge.concurrency import done_slowly
from bridge.console.console_access import Visit
from bridge.console.forms import WrongValuesError, fields_of, form_problems
from bridge.console.live_trials import LiveTrial
from bridge.console.pages import json_response
from bridge.console.paging import Paging
from bridge.console.parts import IMAGES, SOUNDS, TEXT_MOST, shown_value
from bridge.console.paths import path_of
from bridge.console.questions import form_of, schema_in
from bridge.console.tab_streams import TabStreams
from bridge.console.trials import arguments_in, secret_header, secret_option
from bridge.errors import AuditAwayError, counted
from bridge.http.request_checks import RefusedError
from bridge.mcp.server.face import IncomingCall, McpRefusal, ReportProgress
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import spelled_as_json, web_link, with_visible_characters
from bridge.translate.content import filename_in, filename_of

_FILE: Final = "application/octet-stream"

_BLOCKS_MOST: Final = 100
"""Blocks of one result that a page shows."""

_INLINE_MOST: Final = 16 << 20
"""Characters of all images, sounds and files of one result that a page shows, as base64."""


def tool_list(bridge: Bridge, visit: Visit) -> JsonObject:
    """The tools that the visitor may use, by MCP server."""
    paging = Paging.asked("/try", visit.query)
    alone = len(bridge.published) + len(bridge.offered) == 1
    servers: list[JsonValue] = []
    for one in bridge.offered:
        usable, part = _usable(one, visit), f"mcp/{one.name}"
        if paging.shows(part) and (usable or visit.reads_all):
            tools, shown = paging.entries(part, usable, partial(_line, one=one), alone=alone)
            down: list[JsonValue] = [state.key for state in one.face.sources if state.down is not None]
            servers.append({"name": one.name, "tools": tools, "paging": shown, "down": down})
    return {"servers": servers}


def _usable(one: OfferedServer, visit: Visit) -> list[PublishedTool]:
    here = visit.who.in_face(one.name)
    return [tool for tool in one.face.published if here.may_use(tool.names)]


def _line(tool: PublishedTool, one: OfferedServer) -> JsonObject:
    return {
        "id": tool.name,
        "name": str(tool.listed.get("title") or tool.name),
        "description": str(tool.listed.get("description") or ""),
        "path": path_of("try", "mcp", one.name, tool.name),
        "hints": [],
    }


def tool_page(bridge: Bridge, visit: Visit, server: str, name: str) -> JsonObject:
    """The page of one tool."""
    one, tool = _tool(bridge, visit, server, name)
    schema = _schema(tool)
    return {
        **_line(tool, one),
        "agent": one.name,
        "tool": tool.skill_id or "",
        "server": tool.agent_key,
        "fields": fields_of(schema),
        "schema": schema,
        "unchecked": None,
        "lines": _lines_for(visit, one, tool, {}),
        "lines_are": "",
    }


def typed_lines(bridge: Bridge, visit: Visit, server: str, name: str, body: JsonObject) -> JsonObject:
    """The same call as lines for a shell, for what stands in the form of a tool.

    Raises:
        RefusedError: 404, there is no such tool for the visitor; 400, there are no arguments.
    """
    return _lines_for(visit, *_tool(bridge, visit, server, name), arguments_in(body))


def _lines_for(visit: Visit, one: OfferedServer, tool: PublishedTool, arguments: JsonObject) -> JsonObject:
    url = f"{visit.base_url}{MCP}/{quote(one.name, safe='')}"
    return {
        "call": command_line(url, tool.name, arguments, secret_option(visit)),
        "curl": mcp_line(url, tool.name, arguments, secret_header(visit)),
        "protocol": "MCP",
    }


def _tool(bridge: Bridge, visit: Visit, server: str, name: str) -> tuple[OfferedServer, PublishedTool]:
    for one in bridge.offered:
        for tool in _usable(one, visit) if one.name == server else ():
            if tool.name == name:
                return one, tool
    raise RefusedError(404, "There is no such tool, or it is not for you")


def _schema(tool: PublishedTool) -> JsonObject:
    schema = tool.listed.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


async def call_tool(
    bridge: Bridge, tabs: TabStreams, visit: Visit, server: str, name: str, body: JsonObject
) -> ASGIApp:
    """Call a tool and wait for its result, as an MCP host of 2026-07-28 does. With `live` in the form, the answer is a
    stream that tells the tool's progress, too. A tool that asks gives its questions as forms; the page calls it again
    with the answers, and with the `state` and the schemas that came with the questions.

    Raises:
        RefusedError: 404, there is no such tool for it; 400, the call is refused; 503, it cannot be written down, or
            too many streams are open.
        WrongValuesError: the arguments do not fit the schema.
    """
    one, tool = _tool(bridge, visit, server, name)
    arguments = arguments_in(body)
    if problems := await done_slowly(partial(form_problems, _schema(tool), arguments)):
        raise WrongValuesError(problems)
    call = partial(_called, one, visit, tool.name, arguments, await done_slowly(partial(_answers_in, body)))
    if body.get("live") is True:
        return LiveTrial(tabs.take(visit), call)
    return json_response(await call(_report_to_nobody))


def _report_to_nobody(
    progress: float | None, total: float | None = None, message: str | None = None
) -> None: ...


@dataclass(frozen=True)
class _GivenAnswers:
    """The answers to what a tool asked, if it did."""

    responses: JsonObject | None = None
    state: str | None = None


def _answers_in(body: JsonObject) -> _GivenAnswers:
    """The answers in a form.

    Raises:
        RefusedError: 400, there is no state with them.
        WrongValuesError: they do not fit the schemas of the questions. The page sends the schemas back: a page that
            changes them escapes this check alone, since the agent checks the answers again.
    """
    answers, state, asked = body.get("answers"), body.get("state"), body.get("asked")
    if not isinstance(answers, dict):
        return _GivenAnswers()
    if not isinstance(state, str):
        raise RefusedError(400, "Answers come with the state of their questions")
    schemas = asked if isinstance(asked, dict) else {}
    found: list[JsonObject] = []
    for key, given in answers.items():
        schema, content = schemas.get(key), given.get("content") if isinstance(given, dict) else None
        if isinstance(schema, dict) and isinstance(content, dict):
            found += [{**one, "question": key} for one in form_problems(schema, content)]
    if found:
        raise WrongValuesError(found)
    return _GivenAnswers(answers, state)


async def _called(
    one: OfferedServer,
    visit: Visit,
    name: str,
    arguments: JsonObject,
    answered: _GivenAnswers,
    report: ReportProgress,
) -> JsonObject:
    here = visit.who.in_face(one.name)
    incoming = IncomingCall(
        name,
        arguments,
        principal=here.name,
        may_use=here.may_use,
        may_see=here.may_see,
        caller=here.token,
        is_modern=True,
        takes_forms=True,
        takes_urls=True,
        input_responses=answered.responses,
        request_state=answered.state,
        report=report,
    )
    try:
        result = await one.server.called(incoming)
    except McpRefusal as exc:
        raise RefusedError(400, exc.message) from exc
    except AuditAwayError as exc:
        raise RefusedError(503, "The bridge cannot write its audit at the moment") from exc
    return shown_result(result)


def shown_result(result: JsonObject) -> JsonObject:
    """A result as a page shows it, and the whole of it as JSON. What the tool asks is in `asks`, as forms."""
    return {
        "asks": _asked_in(result),
        "failed": result.get("isError") is True,
        "parts": _parts(result),
        "raw": _json_text(result),
    }


def _asked_in(result: JsonObject) -> JsonObject | None:
    requests, state = result.get("inputRequests"), result.get("requestState")
    if result.get("resultType") != "input_required" or not isinstance(requests, dict):
        return None
    elicitations = {
        key: params
        for key, request in requests.items()
        if isinstance(request, dict) and isinstance(params := request.get("params"), dict)
    }
    questions: list[JsonValue] = [
        {**form_of(key, params), "schema": schema_in(params)} for key, params in elicitations.items()
    ]
    return {"state": state, "questions": questions}


def _parts(result: JsonObject) -> list[JsonValue]:
    """The blocks and the value of a result, within bounds. The page has the whole result as one file besides."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    shown: list[JsonValue] = []
    left_bytes = _INLINE_MOST
    for block in blocks[:_BLOCKS_MOST]:
        part = shown_block(block)
        size = len(str(part.get("file", "")))
        left_bytes -= size
        if left_bytes < 0 and size:
            left_bytes += size
            part = {"is": "left", "name": f"{part['name']}, {size} characters"}
        shown.append(part)
    if len(blocks) > _BLOCKS_MOST:
        shown.append({"is": "left", "name": counted(len(blocks) - _BLOCKS_MOST, "more part")})
    if "structuredContent" in result:
        shown.append(_bounded(result["structuredContent"]))
    return shown


def shown_block(block: JsonValue) -> JsonObject:
    """A content block as a page shows it; its file comes with it, since the call keeps none."""
    given = filename_of(block) if isinstance(block, dict) else None
    name = with_visible_characters(given or "")
    match block:
        case {"type": "text", "text": str() as text} | {
            "type": "resource",
            "resource": {"text": str() as text},
        }:
            return _text(text)
        case {"type": "image", "data": str() as data, "mimeType": str() as kind} if kind in IMAGES:
            return {"is": "image", "name": name or kind, "file": f"data:{kind};base64,{data}"}
        case {"type": "audio", "data": str() as data, "mimeType": str() as kind} if kind in SOUNDS:
            return {"is": "audio", "name": name or kind, "file": f"data:{kind};base64,{data}"}
        case {"type": "image" | "audio" as what, "data": str() as data}:
            return {"is": "file", "name": name or what, "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource", "resource": {"blob": str() as data, "uri": str() as uri}}:
            name = name or with_visible_characters(filename_in(uri) or uri)
            return {"is": "file", "name": name, "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource_link", "uri": str() as uri}:
            return {"is": "link", "url": with_visible_characters(uri), "web": web_link(uri)}
    return _bounded(block)


def _text(text: str) -> JsonObject:
    cut = {"cut": len(text) - TEXT_MOST} if len(text) > TEXT_MOST else {}
    return {"is": "text", "text": with_visible_characters(text[:TEXT_MOST]), **cut}


def _bounded(value: JsonValue) -> JsonObject:
    """A value as a table or as JSON. A table has its first rows; other JSON that is long is a text that is cut.

    All of it is text by now, because a script would change long numbers.
    """
    match shown_value(value):
        case {"is": "table", "columns": list() as columns, "rows": list() as rows, "left": left}:
            cells: list[JsonValue] = [[_cell(cell) for cell in row] for row in rows if isinstance(row, list)]
            names: list[JsonValue] = [_cell(name) for name in columns]
            return {"is": "table", "columns": names, "rows": cells, "left": left}
    text = _json_text(value)
    return {"is": "json", "text": text} if len(text) <= TEXT_MOST else _text(text)


def _cell(value: JsonValue) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else with_visible_characters(value)
    return _json_text(value)


def _json_text(value: JsonValue) -> str:
    return spelled_as_json(json.dumps(value, indent=2, ensure_ascii=False))
