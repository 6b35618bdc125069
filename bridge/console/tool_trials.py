"""A tool of an MCP server to try: a form made of its schema, and its result as a host would get it."""

from __future__ import annotations

import json
from functools import partial
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue

from bridge.agents_as_tools.tools import PublishedTool
from bridge.assembly.bridge import Bridge
from bridge.assembly.call_lines import command_line, mcp_line
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.routes import MCP
from bridge.console.forms import WrongValuesError, fields_of, form_problems
from bridge.console.gate import Visit
from bridge.console.paging import Paging
from bridge.console.parts import IMAGES, shown_value
from bridge.console.paths import path_of
from bridge.console.trials import arguments_in, secret_header, secret_option
from bridge.errors import AuditAwayError
from bridge.http.request_checks import RefusedError
from bridge.jsonvalues import JsonObject
from bridge.mcp.server.face import IncomingCall, McpRefusal
from bridge.safe_text import web_link, with_visible_characters

_FILE: Final = "application/octet-stream"


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
    return [tool for tool in one.face.published if here.may_use(tool.name)]


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


async def call_tool(bridge: Bridge, visit: Visit, server: str, name: str, body: JsonObject) -> JsonObject:
    """Call a tool and wait for its result, as an MCP host does that takes no questions.

    Raises:
        RefusedError: 404, there is no such tool for it; 400, the call is refused; 503, it cannot be written down.
        WrongValuesError: the arguments do not fit the schema.
    """
    one, tool = _tool(bridge, visit, server, name)
    arguments = arguments_in(body)
    if problems := form_problems(_schema(tool), arguments):
        raise WrongValuesError(problems)
    here = visit.who.in_face(one.name)
    incoming = IncomingCall(
        tool.name,
        arguments,
        principal=here.name,
        may_use=here.may_use,
        may_see=here.may_see,
        caller=here.token,
    )
    try:
        result = await one.server.called(incoming)
    except McpRefusal as exc:
        raise RefusedError(400, exc.message) from exc
    except AuditAwayError as exc:
        raise RefusedError(503, "The bridge cannot write its audit at the moment") from exc
    return {
        "failed": result.get("isError") is True,
        "parts": _parts(result),
        "raw": json.dumps(result, indent=2),
    }


def _parts(result: JsonObject) -> list[JsonValue]:
    content = result.get("content")
    shown: list[JsonValue] = [shown_block(block) for block in (content if isinstance(content, list) else [])]
    if "structuredContent" in result:
        shown.append(shown_value(result["structuredContent"]))
    return shown


def shown_block(block: JsonValue) -> JsonObject:
    """A content block as a page shows it; its file comes with it, since the call keeps none."""
    match block:
        case {"type": "text", "text": str() as text} | {
            "type": "resource",
            "resource": {"text": str() as text},
        }:
            return {"is": "text", "text": with_visible_characters(text)}
        case {"type": "image", "data": str() as data, "mimeType": str() as kind} if kind in IMAGES:
            return {"is": "image", "name": kind, "file": f"data:{kind};base64,{data}"}
        case {"type": "image" | "audio" as what, "data": str() as data}:
            return {"is": "file", "name": what, "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource", "resource": {"blob": str() as data, "uri": str() as uri}}:
            return {"is": "file", "name": with_visible_characters(uri), "file": f"data:{_FILE};base64,{data}"}
        case {"type": "resource_link", "uri": str() as uri}:
            return {"is": "link", "url": with_visible_characters(uri), "web": web_link(uri)}
    return shown_value(block)
