"""What every answer of our A2A face is, whatever it was asked."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from a2a.types import a2a_pb2
from google.protobuf import json_format

from bridge.a2a.model import objects
from tests.hostile.asgi import Answered, events_in

SETTLED: Final = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"})

_HTTP_LEVEL: Final = frozenset({400, 401, 403, 405, 413, 415, 421, 503})
_REST: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 421, 503})
_CODES: Final = frozenset({-32700, *range(-32603, -32599), *range(-32009, -32000)})


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def strict_json(text: bytes) -> Any:
    """A text as JSON, for which NaN and halves of characters are none."""
    return json.loads(text.decode("utf-8"), parse_constant=_no_constant)


def require_error_details(details: Any) -> None:
    """Each detail has a type, and one of them says the reason."""
    assert isinstance(details, list)
    infos = [detail for detail in details if detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
    assert len(infos) == 1, details
    assert all(isinstance(value, str) for value in infos[0].get("metadata", {}).values())


def require_jsonrpc(answer: Answered) -> Any:
    """An answer of the JSON-RPC binding; its results."""
    if answer.media_type == "text/event-stream":
        assert answer.status == 200
        return [_result_of(strict_json(data)) for data in events_in(answer.body)]
    assert answer.media_type == "application/json", answer
    assert answer.status == 200 or answer.status in _HTTP_LEVEL, answer
    body = strict_json(answer.body)
    assert body["jsonrpc"] == "2.0"
    if "error" not in body:
        assert answer.status == 200
        return [_result_of(body)]
    assert set(body) == {"jsonrpc", "id", "error"}
    error = body["error"]
    assert error["code"] in _CODES, error
    assert error["code"] != -32603 or answer.status == 503, error
    assert isinstance(error["message"], str)
    assert "Traceback" not in error["message"]
    require_error_details(error["data"])
    return []


def _result_of(body: Any) -> Any:
    assert set(body) == {"jsonrpc", "id", "result"}, body
    return body["result"]


def require_rest(answer: Answered) -> Any:
    """An answer of the HTTP+JSON binding; its results."""
    if answer.media_type == "text/event-stream":
        assert answer.status == 200
        return [strict_json(data) for data in events_in(answer.body)]
    assert answer.media_type in ("application/a2a+json", "application/json"), answer
    body = strict_json(answer.body)
    if answer.status == 200:
        return [body]
    assert answer.status in _REST, answer
    assert set(body) == {"error"}
    assert body["error"]["code"] == answer.status
    assert "Traceback" not in body["error"]["message"]
    require_error_details(body["error"]["details"])
    return []


def require_readable(result: Any) -> None:
    """A result as two readers see it: ours, and one that shares nothing with it."""
    if "tasks" in result:
        objects.ListTasksResponse.model_validate(result)
        _read(result, a2a_pb2.ListTasksResponse())
    elif "status" in result:
        require_task(result)
    else:
        objects.StreamResponse.model_validate(result)
        _read(result, a2a_pb2.StreamResponse())


def require_task(task: Any) -> str:
    """A task that can be read; its state."""
    objects.Task.model_validate(task)
    _read(task, a2a_pb2.Task())
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def _read(result: Any, into: Any) -> None:
    json_format.ParseDict(result, into, ignore_unknown_fields=True)


def require_readable_echo(result: Any) -> None:
    """The same of what holds a client's own message, which it may have made too deep for the other reader."""
    try:
        require_readable(result)
    except json_format.ParseError as exc:
        if "too deep" not in str(exc):
            raise
