"""How events are framed."""

from __future__ import annotations

import pytest
from bridge.a2a.wire.sse import HEARTBEAT, frame
from pydantic_core import from_json, to_json

TEXTS = [
    "plain",
    "a\x85b",
    "a\u2028b\u2029c",
    "line\nbreak\r\n",
    "\\\u2028",
    "é中🎈",
    "\u0085" * 3,
    "Â\x80\u2027",
]


@pytest.mark.proves("sse-escapes")
@pytest.mark.parametrize("text", TEXTS)
def test_a_frame_is_one_line_for_every_reader_and_says_the_same(text: str) -> None:
    framed = frame(to_json({"text": text}))
    assert framed.startswith(b"data: ")
    assert framed.endswith(b"\n\n")
    inner = framed[len(b"data: ") : -2]
    assert len(inner.decode().splitlines()) == 1
    assert from_json(inner) == {"text": text}


@pytest.mark.proves("sse-heartbeat")
def test_a_heartbeat_is_a_comment_and_no_event() -> None:
    assert HEARTBEAT.startswith(b":")
    assert HEARTBEAT.endswith(b"\n\n")
    assert b"data" not in HEARTBEAT
