"""Holds back prompts and resource templates whose definitions are not approved, where an agent shares them.

A list loses its unapproved entries. Before a prompt is sent or an argument is completed, the server is asked for its
list again: the definition that counts is the one of this moment. Contents of resources are no definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from bridge.errors import PeerError
from bridge.mcp.client.session import Session
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.client.values import Approver, SharedItemKind
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.mcp_requests import COMPLETE, McpError, McpRequest

_LISTS: Final[Mapping[str, tuple[SharedItemKind, str, str]]] = {
    "prompts/list": ("prompts", "prompts", "name"),
    "resources/templates/list": ("templates", "resourceTemplates", "uriTemplate"),
}
"""By the request that lists them: the kind of the items, the field that holds them, and the field that names each."""
_LISTED_BY: Final = {kind: method for method, (kind, _, _) in _LISTS.items()}


def approved_entries(method: str, result: JsonObject, approver: Approver) -> JsonObject:
    """The result of a request without the entries that are held back."""
    if method not in _LISTS or not isinstance(entries := result.get(_LISTS[method][1]), list):
        return result
    kind, field, name_key = _LISTS[method]
    kept: list[JsonValue] = [
        entry
        for entry in entries
        if not (
            approver.refusal(kind, str(entry.get(name_key)), entry)
            if isinstance(entry, dict)
            else approver.refuses
        )
    ]
    return result if len(kept) == len(entries) else {**result, field: kept}


async def refusal_of(
    request: McpRequest, session: Session, upstream: Upstream, approver: Approver
) -> McpError | None:
    """Why a request about a prompt or a template must not be sent; None if it may.

    Raises:
        PeerError: the server does not give the list that has the definition.
    """
    named = _named_by(request)
    if named is None or not approver.refuses:
        return None
    # Imported only where changes are refused.
    from bridge.mcp.client.as_tools.entries import ListBounds, entries_of

    kind, name = named
    method = _LISTED_BY[kind]
    _, field, name_key = _LISTS[method]
    bounds = ListBounds(upstream.settings.tools_most, upstream.settings.tools_limit_bytes)
    listed = await entries_of(session.request, method, field, bounds)
    entry = next((entry for entry in listed.entries if entry.get(name_key) == name), None)
    if entry is None and listed.odd:
        raise PeerError(f"the answer of {upstream.name} to {method} is not whole: {listed.odd}")
    words = approver.refusal(kind, name, entry)
    return McpError(INVALID_PARAMS, words) if words else None


def _named_by(request: McpRequest) -> tuple[SharedItemKind, str] | None:
    params = request.params
    if request.method == "prompts/get":
        return "prompts", str(params.get("name"))
    ref = params.get("ref") if request.method == COMPLETE else None
    if not isinstance(ref, dict):
        return None
    if ref.get("type") == "ref/prompt":
        return "prompts", str(ref.get("name"))
    return "templates", str(ref.get("uri"))
