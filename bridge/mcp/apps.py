"""MCP Apps: how a host says that it shows apps, and who a tool is for. Pure.

An app is an HTML page that a server offers as a resource, and that a host shows in a sandbox. The bridge passes the
page on and never reads it.

Spec: MCP Apps 2026-01-26 (SEP-1865), resource discovery and client<>server capability negotiation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.text.jsonvalues import JsonObject

EXTENSION: Final = "io.modelcontextprotocol/ui"
"""The identifier of the extension."""
SCHEME: Final = "ui://"
"""Every URI of an app begins with it. Hosts refuse any other."""
FLAT_LINK: Final = "ui/resourceUri"
"""The deprecated key in `_meta` of a tool with the URI of its app. `_meta.ui.resourceUri` takes precedence."""

_TYPE: Final = "text/html;profile=mcp-app"
"""The only media type that apps have so far."""
DECLARED: Final[Mapping[str, dict[str, Any]]] = {EXTENSION: {"mimeTypes": [_TYPE]}}
"""The `extensions` in the capabilities of a client that shows apps."""


def shows_apps(extensions: Mapping[str, Any] | None) -> bool:
    """Whether a client with these `extensions` in its capabilities shows apps."""
    settings = (extensions or {}).get(EXTENSION)
    types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(types, list) and _TYPE in types


def is_for_model(tool: JsonObject) -> bool:
    """Whether a model may see and call a listed tool."""
    return _is_visible_to("model", tool)


def is_for_app(tool: JsonObject) -> bool:
    """Whether an app of its server may call a listed tool."""
    return _is_visible_to("app", tool)


def _is_visible_to(reader: str, tool: JsonObject) -> bool:
    """A tool without `visibility` is for everyone. A single word counts as a list with this word: its server means to
    limit the tool."""
    meta = tool.get("_meta")
    ui = meta.get("ui") if isinstance(meta, dict) else None
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    if isinstance(visibility, str):
        return visibility == reader
    return not isinstance(visibility, list) or reader in visibility
