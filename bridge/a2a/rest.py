"""The HTTP+JSON binding: a verb and a path to an operation and its parameters, errors to bytes. Pure.

Spec: A2A 1.0 section 11. Both verbs of subscribe are taken: the text says POST, the proto GET.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_json

from bridge.a2a.errors import METHOD_NOT_ALLOWED, METHOD_NOT_FOUND, A2AError, Violation, invalid_params
from bridge.a2a.operations import Operation

MEDIA_TYPE: Final = "application/a2a+json"


@dataclass(frozen=True, slots=True)
class Route:
    """One path, one or more verbs, one operation."""

    verbs: tuple[str, ...]
    pattern: re.Pattern[str]
    operation: Operation


def _route(verbs: str, pattern: str, operation: Operation) -> Route:
    return Route(tuple(verbs.split()), re.compile(pattern), operation)


_TASK: Final = r"/tasks/(?P<id>[^/]+?)"
_CONFIGS: Final = r"/tasks/(?P<taskId>[^/]+)/pushNotificationConfigs"

ROUTES: Final = (
    _route("POST", r"/message:send", Operation.SEND_MESSAGE),
    _route("POST", r"/message:stream", Operation.SEND_STREAMING_MESSAGE),
    _route("GET", r"/tasks", Operation.LIST_TASKS),
    _route("POST", _TASK + r":cancel", Operation.CANCEL_TASK),
    _route("GET POST", _TASK + r":subscribe", Operation.SUBSCRIBE_TO_TASK),
    _route("GET", _TASK, Operation.GET_TASK),
    _route("POST", _CONFIGS, Operation.CREATE_PUSH_CONFIG),
    _route("GET", _CONFIGS, Operation.LIST_PUSH_CONFIGS),
    _route("GET", _CONFIGS + r"/(?P<id>[^/]+)", Operation.GET_PUSH_CONFIG),
    _route("DELETE", _CONFIGS + r"/(?P<id>[^/]+)", Operation.DELETE_PUSH_CONFIG),
    _route("GET", r"/extendedAgentCard", Operation.GET_EXTENDED_AGENT_CARD),
)
"""Section 11.3, tried in this order: the verbs with a colon before the bare id."""

_QUERY: Final[dict[Operation, frozenset[str]]] = {
    Operation.LIST_TASKS: frozenset(
        {
            "contextId",
            "status",
            "pageSize",
            "pageToken",
            "historyLength",
            "statusTimestampAfter",
            "includeArtifacts",
            "tenant",
        }
    ),
    Operation.GET_TASK: frozenset({"historyLength", "tenant"}),
}
"""Which query parameters are fields of the request (section 11.5). Others are passed over."""

_BOOLEANS: Final = {"true": True, "false": False}


def match(verb: str, path: str) -> tuple[Operation, dict[str, str]]:
    """The operation behind a verb and a path, and what the path says.

    Raises:
        A2AError: METHOD_NOT_FOUND (404) for an unknown path, METHOD_NOT_ALLOWED (405) for another verb.
    """
    allowed: list[str] = []
    for route in ROUTES:
        found = route.pattern.fullmatch(path)
        if found is None:
            continue
        if verb in route.verbs:
            return route.operation, found.groupdict()
        allowed += route.verbs
    if allowed:
        verbs = ", ".join(sorted(set(allowed)))
        raise A2AError(
            METHOD_NOT_ALLOWED, f"{verb} is not allowed here, only {verbs}", headers={"Allow": verbs}
        )
    raise A2AError(METHOD_NOT_FOUND, f"There is nothing at {path}")


def params_from(
    operation: Operation, path_params: dict[str, str], query: Iterable[tuple[str, str]], body: JsonValue
) -> JsonValue:
    """The request's parameters: the body's fields, then the query's, then the path's, which win.

    Raises:
        A2AError: INVALID_PARAMS for a body that is no object, or a boolean that is neither true nor false.
    """
    if not isinstance(body, dict):
        raise invalid_params(Violation("", "the body must be a JSON object"))
    params: dict[str, JsonValue] = dict(body)
    known = _QUERY.get(operation, frozenset())
    params.update({name: value for name, value in query if name in known})
    flag = params.get("includeArtifacts")
    if isinstance(flag, str):
        if flag not in _BOOLEANS:
            raise invalid_params(Violation("includeArtifacts", "must be true or false"))
        params["includeArtifacts"] = _BOOLEANS[flag]
    return {**params, **path_params}


def error_bytes(error: A2AError) -> bytes:
    """The answer that says what went wrong, as a google.rpc.Status (section 11.6)."""
    status = {
        "code": error.kind.http_status,
        "status": error.kind.rpc_status,
        "message": str(error),
        "details": error.details(),
    }
    return to_json({"error": status})
