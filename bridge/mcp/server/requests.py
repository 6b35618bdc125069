"""What stands in one request of a client of ours, as it was sent. Knows nothing of answers.

The SDK has checked the shape of it; its models are passed by, as they drop what they do not know.
"""

from __future__ import annotations

import math
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from bridge import trace
from bridge.access.principals import LOCAL, Principal
from bridge.jsonvalues import JsonObject, is_deeper
from bridge.mcp.server.back_channel import DeclaredCapabilities, LegacyElicitation, ProgressSender
from bridge.mcp.server.endpoint import LET_GO
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal

Context = ServerRequestContext[Any, Any]


def is_modern(context: Context) -> bool:
    """Whether it came from a client of 2026-07-28 or later."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def param(context: Context, name: str) -> Any:
    """One of its parameters, which the SDK has checked; None when it was not given."""
    return (context.params or {}).get(name)


def principal_of(context: Context) -> Principal:
    """Who sent it. Over stdio there is one client, whose machine this is."""
    if context.request is None:
        return LOCAL
    principal: Principal = context.request.user.principal
    return principal


def require_admitted(context: Context) -> None:
    """Refuse a request whose principal was let in no more while it was read.

    Raises:
        MCPError: it was.
    """
    if context.request is not None and context.request.user.is_let_go:
        raise MCPError(INVALID_REQUEST, LET_GO)


def begin_trace(context: Context) -> None:
    """What runs from now on works for this request. `_meta` names the trace (2026-07-28), else headers do."""
    headers = {} if context.request is None else trace.in_headers(context.request.headers.getlist)
    trace.begin(param(context, "_meta") or {}, headers)


def require_readable(context: Context, depth: int) -> None:
    """Refuse what could not be walked, or not be written as JSON again.

    Raises:
        McpRefusal: it is nested too deeply, or a number is none.
    """
    params: JsonObject = dict(context.params or {})
    if is_deeper(params, depth):
        raise McpRefusal(INVALID_PARAMS, f"The parameters are nested deeper than {depth} levels")
    if not _is_finite(params):
        raise McpRefusal(INVALID_PARAMS, "A number in the parameters is out of range")


def incoming_of(context: Context, reports: ProgressSender) -> IncomingCall:
    """A tools/call as the face is asked it."""
    modern, meta = is_modern(context), param(context, "_meta") or {}
    principal = principal_of(context)
    declared = DeclaredCapabilities.in_capabilities(context.session.client_capabilities, is_modern=modern)
    more: dict[str, Any] = {"report": reports} if asks_for_progress(context) else {}
    if not modern:
        more["ask"] = LegacyElicitation(context, declared)
    return IncomingCall(
        name=param(context, "name"),
        arguments=param(context, "arguments") or {},
        meta=meta,
        principal=principal.name,
        may_use=principal.may_use,
        is_modern=modern,
        takes_forms=declared.forms,
        takes_urls=declared.urls,
        takes_tasks=declared.tasks,
        input_responses=param(context, "inputResponses"),
        request_state=param(context, "requestState"),
        **more,
    )


def asks_for_progress(context: Context) -> bool:
    """Whether it names a token for reports."""
    return (param(context, "_meta") or {}).get("progressToken") is not None


def _is_finite(value: JsonValue) -> bool:
    if isinstance(value, dict | list):
        return all(_is_finite(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
