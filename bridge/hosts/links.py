"""The links that add an MCP server to a host: the host shows the entry, asks its user, and writes the entry. Pure.

Everybody who sees a link sees the entry, so an entry for a link has no secret.

Sources: cursor.com/docs/mcp/install-links; code.visualstudio.com/api/extension-guides/ai/mcp, "Create an MCP
installation URL".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

from bridge.text.jsonvalues import JsonObject


def _cursor(name: str, entry: JsonObject) -> str:
    config = base64.b64encode(_compact(entry).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"


def _vscode(name: str, entry: JsonObject) -> str:
    return f"vscode:mcp/install?{quote(_compact({'name': name, **entry}), safe='')}"


HOSTS: Final[Mapping[str, Callable[[str, JsonObject], str]]] = {"cursor": _cursor, "vscode": _vscode}
"""The hosts that have such links."""


def link_to(host: str, name: str, entry: JsonObject) -> str:
    """The link that adds a server with this entry to a host of `HOSTS`."""
    return HOSTS[host](name, entry)


def links_to_url(name: str, url: str) -> Mapping[str, str]:
    """For each host of `HOSTS`: the link that adds the MCP server at a URL."""
    entries: Mapping[str, JsonObject] = {"cursor": {"url": url}, "vscode": {"type": "http", "url": url}}
    return {host: link_to(host, name, entries[host]) for host in HOSTS}


def _compact(entry: JsonObject) -> str:
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
