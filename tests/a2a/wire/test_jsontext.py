"""JSON from the network, with bounds."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.errors import INVALID_REQUEST, PARSE_ERROR, A2AError, ErrorKind
from bridge.a2a.wire.jsontext import DEFAULT_MAX_DEPTH, parse_json
from bridge.text.jsonvalues import is_deeper

pytestmark = pytest.mark.proves("web-json")


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"null", None),
        (b' {"a": [1, 2.5, true, "\\u2028\xc3\xa9"]} ', {"a": [1, 2.5, True, "\u2028é"]}),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (nested(0) + b"5", 5),
    ],
)
def test_json_becomes_plain_values(text: bytes, value: Any) -> None:
    assert parse_json(text) == value


@pytest.mark.proves("web-json")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"{'a': 1}", PARSE_ERROR),
        (b'{"a": 1} more', PARSE_ERROR),
        (b"NaN", PARSE_ERROR),
        (b"[Infinity]", PARSE_ERROR),
        (b"1e999", PARSE_ERROR),
        (b'{"a": [{"b": -1e999}]}', PARSE_ERROR),
        (b'"\\ud800"', PARSE_ERROR),
        (b'"\xff"', PARSE_ERROR),
        (b"1" * 5000, PARSE_ERROR),
        (nested(DEFAULT_MAX_DEPTH + 1), INVALID_REQUEST),
        (nested(100_000), PARSE_ERROR),
    ],
)
def test_invalid_json_and_too_deep_json_are_refused(text: bytes, kind: ErrorKind) -> None:
    with pytest.raises(A2AError) as refused:
        parse_json(text)
    assert refused.value.kind is kind


@pytest.mark.proves("web-json")
def test_the_last_allowed_level_is_allowed() -> None:
    parse_json(nested(DEFAULT_MAX_DEPTH))
    parse_json(nested(8), 8)
    with pytest.raises(A2AError, match="nested deeper than 8 levels"):
        parse_json(nested(9), 8)


@pytest.mark.parametrize(
    ("value", "depth"), [(5, 0), ([], 1), ({}, 1), ([[]], 2), ({"a": [1], "b": 2}, 2), ([1, {"a": [{}]}], 4)]
)
def test_depth_is_counted_in_arrays_and_objects(value: Any, depth: int) -> None:
    assert [is_deeper(value, levels) for levels in range(6)] == [levels < depth for levels in range(6)]
