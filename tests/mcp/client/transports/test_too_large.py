"""To which call a message belongs that was too large to be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import RequestId

from bridge.mcp.client.faults import id_of_cut_message

pytestmark = pytest.mark.proves("mcp-bounded")

BIG = {"content": [{"type": "text", "text": 'x"id":5}' * 100}]}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("message", "id_"),
    [
        ({"jsonrpc": "2.0", "id": 7, "result": BIG}, 7),
        ({"result": BIG, "jsonrpc": "2.0", "id": 7}, 7),
        ({"result": BIG, "id": 7, "jsonrpc": "2.0"}, 7),
        ({"id": "a-1", "jsonrpc": "2.0", "error": {"code": 1, "message": "m", "data": BIG}}, "a-1"),
        ({"jsonrpc": "2.0", "error": {"data": BIG}, "id": "a-1"}, "a-1"),
        ({"jsonrpc": "2.0", "result": {**BIG, "id": 5}}, None),
        ({"jsonrpc": "2.0", "id": None, "error": {"data": BIG}}, None),
        ({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": BIG}, None),
        ({"method": "sampling/createMessage", "params": BIG, "jsonrpc": "2.0", "id": 7}, None),
        ({"params": BIG, "method": "sampling/createMessage", "jsonrpc": "2.0", "id": 7}, None),
        ({"jsonrpc": "2.0", "id": 7, "x": BIG, "result": {}}, None),
        ({"jsonrpc": "2.0", "method": "notifications/message", "params": BIG}, None),
    ],
)
def test_the_id_of_a_cut_answer_is_found_at_either_end(
    message: dict[str, Any], id_: RequestId | None, indent: int | None
) -> None:
    text = json.dumps(message, indent=indent).encode()
    assert id_of_cut_message(text[:200], text[-200:]) == id_


@pytest.mark.parametrize(
    "head", [b"", b"[", b"hello", b'{"id":', b'{"id":7', b'{"result"', b'{"id":true,"result":{']
)
def test_in_what_is_no_answer_no_id_is_found(head: bytes) -> None:
    assert id_of_cut_message(head, b"x") is None
