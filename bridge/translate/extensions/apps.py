"""MCP Apps over A2A: the tools that only apps call, and the links of tools to their apps. Pure.

Tools that only apps may call are no skills. An agent that shares apps declares them with the extension `URI`, in the
form in which their server lists them. A client that has activated the extension calls such a tool by its id, as it
would call a skill. The page of an app is a resource; see `mcp_requests.py`.

Spec: A2A 1.0 section 4.6 (extensions); MCP Apps 2026-01-26 (SEP-1865), resource discovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import AgentExtension
from bridge.mcp.apps import FLAT_LINK
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.bridge import declared_tool

URI: Final = "urn:mcp-a2a:apps:v1"


@dataclass(frozen=True, slots=True)
class AppTool:
    """A declared tool that only apps may call."""

    id: str
    server: str
    """The key of its server at the agent."""
    listed: JsonValue
    """The tool as its server lists it. Any agent may have written it."""


def declaration(tools: Iterable[tuple[str, str, Tool]]) -> AgentExtension | None:
    """The declaration on the card. `tools` are ids, keys of servers, and tools that only apps may call; None if there
    are none."""
    listed: JsonObject = {
        tool_id: {"server": server, "tool": declared_tool(tool)} for tool_id, server, tool in tools
    }
    if not listed:
        return None
    return AgentExtension(
        uri=URI, description="Tools that only MCP Apps may call", required=False, params={"tools": listed}
    )


def declared_app_tools(extensions: Iterable[AgentExtension] | None) -> list[AppTool]:
    """The tools that a card declares. Entries in another form are skipped."""
    params = next((extension.params for extension in extensions or () if extension.uri == URI), None) or {}
    tools = params.get("tools")
    app_tools = []
    for tool_id, entry in tools.items() if isinstance(tools, dict) else ():
        server = entry.get("server") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(server, str):
            app_tools.append(AppTool(tool_id, server, entry.get("tool")))
    return app_tools


def with_app_link(tool: JsonObject, to_host: Callable[[str], str] | None) -> JsonObject:
    """A listed tool whose links to its app are those that a host can read; the same object if nothing changes.

    `to_host` turns a URI of the server into the URI that hosts read; None if hosts cannot read resources of the server.
    A host then shows the text of the tool.
    """
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return tool
    changed = _linked(meta, FLAT_LINK, to_host)
    if isinstance(ui := meta.get("ui"), dict) and ui:
        if linked := _linked(ui, "resourceUri", to_host):
            changed = {**changed, "ui": linked}
        else:
            del changed["ui"]
    if changed == meta:
        return tool
    return {**tool, "_meta": changed} if changed else {key: tool[key] for key in tool if key != "_meta"}


def _linked(
    values: Mapping[str, JsonValue], key: str, to_host: Callable[[str], str] | None
) -> dict[str, JsonValue]:
    link = values.get(key)
    if isinstance(link, str) and to_host is not None:
        return {**values, key: to_host(link)}
    return {name: value for name, value in values.items() if name != key or to_host is not None}
