"""The JSON-RPC 2.0 envelope: parsed JSON to a call, results and errors to bytes. Pure; knows no method.

Results are given as JSON text, so that an event is encoded once for all streams that carry it.

Spec: A2A 1.0 section 9; JSON-RPC 2.0.
"""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from bridge.a2a.model.errors import INVALID_REQUEST, A2AError
from bridge.frozen import frozen
from bridge.text.jsonvalues import JsonObject

RequestId = str | int | float | None


@frozen
class JsonRpcCall:
    """A request: its method, its parameters, and the id that the answer repeats."""

    id: RequestId
    method: str
    params: JsonValue


def id_of(payload: JsonValue) -> RequestId:
    """The id of a request, even of an invalid one; None if it has no valid id."""
    if isinstance(payload, dict):
        request_id = payload.get("id")
        if isinstance(request_id, str | int | float) and not isinstance(request_id, bool):
            return request_id
    return None


def call_from(payload: JsonValue) -> JsonRpcCall:
    """The call in a parsed request.

    Raises:
        A2AError: INVALID_REQUEST, the value is not a single JSON-RPC 2.0 request. Batches and notifications are not
            part of A2A.
    """
    if isinstance(payload, list):
        raise A2AError(INVALID_REQUEST, "Batches are not part of A2A: send one request at a time")
    if not isinstance(payload, dict) or payload.get("jsonrpc") != "2.0":
        raise A2AError(INVALID_REQUEST, 'Not a JSON-RPC 2.0 request: "jsonrpc" must be "2.0"')
    method, params = payload.get("method"), payload.get("params", {})
    if not isinstance(method, str):
        raise A2AError(INVALID_REQUEST, '"method" must be a string')
    request_id = id_of(payload)
    if request_id is None:
        raise A2AError(INVALID_REQUEST, '"id" must be a string or a number: A2A has no notifications')
    return JsonRpcCall(request_id, method, {} if params is None else params)


def result_bytes(request_id: RequestId, result: bytes) -> bytes:
    """The answer with a result. The result is given as JSON text."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(request_id), result)


def error_bytes(request_id: RequestId, error: JsonObject) -> bytes:
    """The answer with an error."""
    return to_json({"jsonrpc": "2.0", "id": request_id, "error": error})
