"""The JSON-RPC envelope."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import from_json

from bridge.a2a.model.errors import INVALID_REQUEST, A2AError
from bridge.a2a.wire.jsonrpc import JsonRpcCall, call_from, id_of, result_bytes

REQUEST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}


@pytest.mark.proves("a2a-9.1-jsonrpc")
@pytest.mark.parametrize(
    ("payload", "call"),
    [
        (REQUEST, JsonRpcCall(1, "GetTask", {"id": "t"})),
        ({**REQUEST, "id": "x"}, JsonRpcCall("x", "GetTask", {"id": "t"})),
        ({**REQUEST, "id": ""}, JsonRpcCall("", "GetTask", {"id": "t"})),
        ({**REQUEST, "id": 0}, JsonRpcCall(0, "GetTask", {"id": "t"})),
        ({**REQUEST, "id": 1.5}, JsonRpcCall(1.5, "GetTask", {"id": "t"})),
        ({**REQUEST, "params": None}, JsonRpcCall(1, "GetTask", {})),
        ({key: REQUEST[key] for key in ("jsonrpc", "id", "method")}, JsonRpcCall(1, "GetTask", {})),
        ({**REQUEST, "params": [1]}, JsonRpcCall(1, "GetTask", [1])),
        ({**REQUEST, "more": 1}, JsonRpcCall(1, "GetTask", {"id": "t"})),
    ],
)
def test_a_request_is_its_id_method_and_params(payload: Any, call: JsonRpcCall) -> None:
    assert call_from(payload) == call


@pytest.mark.proves("a2a-9.1-jsonrpc")
@pytest.mark.parametrize(
    ("payload", "answered"),
    [
        ([REQUEST], None),
        ([], None),
        ("text", None),
        (None, None),
        ({}, None),
        ({**REQUEST, "jsonrpc": "1.0"}, 1),
        ({**REQUEST, "jsonrpc": 2.0}, 1),
        ({**REQUEST, "method": 5}, 1),
        ({**REQUEST, "method": None, "id": "x"}, "x"),
        ({**REQUEST, "id": None}, None),
        ({**REQUEST, "id": True}, None),
        ({**REQUEST, "id": [1]}, None),
        ({"jsonrpc": "2.0", "method": "GetTask"}, None),
    ],
)
def test_any_other_body_is_refused_under_its_id_if_it_has_an_id(payload: Any, answered: Any) -> None:
    with pytest.raises(A2AError) as refused:
        call_from(payload)
    assert refused.value.kind is INVALID_REQUEST
    assert id_of(payload) == answered


@pytest.mark.proves("a2a-9.1-jsonrpc")
@pytest.mark.parametrize("request_id", [1, "x", 'quoted "id"', 1.5, None, "é"])
def test_a_result_goes_into_its_envelope_as_it_stands(request_id: Any) -> None:
    written = result_bytes(request_id, b'{"task":{"id":"t"}}')
    assert from_json(written) == {"jsonrpc": "2.0", "id": request_id, "result": {"task": {"id": "t"}}}
