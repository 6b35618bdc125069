"""The folders that the operator names for a tool server (roots): what is declared, and the answer to roots/list.

The folders stand in the configuration. So the bridge answers by itself, the same to every caller, and no caller can add
a folder. A server without folders gets no declaration, and an error if it asks.

Spec: MCP 2025-11-25 client/roots, as a request of the server; 2026-07-28 basic/patterns/mrtr, among `inputRequests`.
Deprecated since 2026-07-28 (SEP-2577).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_types import CLIENT_CAPABILITIES_META_KEY
from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject

LIST: Final = "roots/list"
_DECLARED: Final[JsonObject] = {"roots": {}}
"""Without `listChanged`: the folders stay the same as long as a connection lives."""


def roots_result(roots: Sequence[str]) -> JsonObject:
    """The result of roots/list. `roots` are file URIs."""
    return {"roots": [{"uri": uri} for uri in roots]}


def roots_asked_in(requests: Mapping[str, JsonValue], roots: Sequence[str]) -> dict[str, JsonObject]:
    """The answers to the requests for folders among the `inputRequests` of a server; none without folders."""
    return {
        key: roots_result(roots)
        for key, request in requests.items()
        if roots and isinstance(request, dict) and request.get("method") == LIST
    }


def with_roots_declared(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The params of a handshake with the capability: of `initialize`, or of `server/discover`, which has the
    capabilities in `_meta`."""
    declaring = dict(params or {})
    meta = declaring.get("_meta")
    if "capabilities" in declaring:
        declaring["capabilities"] = {**declaring["capabilities"], **_DECLARED}
    if isinstance(meta, Mapping) and CLIENT_CAPABILITIES_META_KEY in meta:
        declared = {**meta[CLIENT_CAPABILITIES_META_KEY], **_DECLARED}
        declaring["_meta"] = {**meta, CLIENT_CAPABILITIES_META_KEY: declared}
    return declaring


def capabilities_with_roots(capabilities: JsonObject, roots: Sequence[str]) -> JsonObject:
    """The capabilities that each request of 2026-07-28 declares."""
    return {**capabilities, **_DECLARED} if roots else capabilities
