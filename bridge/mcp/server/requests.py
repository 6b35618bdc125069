"""Reads a request of a client. Knows nothing about answers.

The SDK has checked the request. Its models are not used here, since they drop unknown fields.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from bridge import trace
from bridge.identity.callers.principals import LOCAL, Principal
from bridge.identity.tokens.caller_token import CLIENT_CHARACTERS
from bridge.mcp.apps import shows_apps
from bridge.mcp.server.back_channel import DeclaredCapabilities, LegacyElicitation, ProgressSender
from bridge.mcp.server.endpoint import REVOKED
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal
from bridge.text.jsonvalues import JsonObject, is_deeper

Context = ServerRequestContext[Any, Any]


def is_modern(context: Context) -> bool:
    """Whether the request came from a client of 2026-07-28 or later."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def param(context: Context, name: str) -> Any:
    """A parameter of the request, which the SDK has checked; None if it is absent."""
    return (context.params or {}).get(name)


def principal_of(context: Context) -> Principal:
    """The principal of the request. Over stdio, the only client is the user of this machine."""
    if context.request is None:
        return LOCAL
    principal: Principal = context.request.user.principal
    return principal


def intent_of(context: Context) -> int:
    """The number of the audit's entry for the request's intent; 0 if there is none."""
    return 0 if context.request is None else int(context.request.user.intent)


def note_heard(context: Context) -> None:
    """Note that a hop reports the request, so that the endpoint need not."""
    if context.request is not None:
        context.request.user.is_heard = True


def require_admitted(context: Context) -> None:
    """Refuse a request if its principal's access was revoked while the request was read.

    Raises:
        MCPError: INVALID_REQUEST.
    """
    if context.request is not None and context.request.user.is_revoked:
        raise MCPError(INVALID_REQUEST, REVOKED)


def begin_trace(context: Context) -> None:
    """Begin the trace of this request. `_meta` names the trace (2026-07-28), or else the headers do."""
    headers = {} if context.request is None else trace.in_headers(context.request.headers.raw)
    meta = param(context, "_meta")  # the request is not checked yet
    trace.begin(meta if isinstance(meta, dict) else {}, headers)


def require_readable(context: Context, depth: int) -> None:
    """Refuse parameters that could not be traversed or written as JSON.

    Raises:
        McpRefusal: the parameters are nested too deeply, or have a number that is not finite.
    """
    params: JsonObject = dict(context.params or {})
    if is_deeper(params, depth):
        raise McpRefusal(INVALID_PARAMS, f"The parameters are nested deeper than {depth} levels")
    if not _is_finite(params):
        raise McpRefusal(INVALID_PARAMS, "A number in the parameters is out of range")


def incoming_of(context: Context, reports: ProgressSender) -> IncomingCall:
    """A tools/call request as the value that a `Face` takes, in either generation of MCP."""
    modern, meta = is_modern(context), param(context, "_meta") or {}
    principal = principal_of(context)
    declared = DeclaredCapabilities.in_capabilities(context.session.client_capabilities, is_modern=modern)
    more: dict[str, Any] = {"report": reports} if asks_for_progress(context) else {}
    if not modern:
        more["ask"] = more["ask_here"] = LegacyElicitation(context, declared)
    return IncomingCall(
        name=param(context, "name"),
        arguments=param(context, "arguments") or {},
        meta=meta,
        principal=principal.name,
        may_use=principal.may_use,
        may_see=principal.may_see,
        caller=principal.token,
        client=_client_of(context),
        is_modern=modern,
        takes_forms=declared.forms,
        takes_urls=declared.urls,
        takes_tasks=declared.tasks,
        input_responses=param(context, "inputResponses"),
        request_state=param(context, "requestState"),
        **more,
    )


def takes_apps(context: Context) -> bool:
    """Whether the client shows MCP Apps, so that it gets the tools that only apps may call."""
    capabilities = context.session.client_capabilities
    return capabilities is not None and shows_apps(capabilities.extensions)


def without_null_token(context: Context) -> Context:
    """The request without a progress token that is null, since some hosts write every field."""
    params = context.params or {}
    meta = params.get("_meta")
    if not isinstance(meta, dict) or meta.get("progressToken", "") is not None:
        return context
    rest = {key: value for key, value in meta.items() if key != "progressToken"}
    return replace(context, params={**params, "_meta": rest})


def _client_of(context: Context) -> str:
    params = context.session.client_params
    if params is None:
        return ""
    return f"{params.client_info.name} {params.client_info.version}"[:CLIENT_CHARACTERS]


def asks_for_progress(context: Context) -> bool:
    """Whether the request has a progress token."""
    return (param(context, "_meta") or {}).get("progressToken") is not None


def _is_finite(value: JsonValue) -> bool:
    if isinstance(value, dict | list):
        return all(_is_finite(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
