"""Counting the values of a JSON text without parsing it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.text.jsonvalues import holds_more_values

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def counted(value: Any) -> int:
    """The number of values and keys; an empty array or object counts twice."""
    if isinstance(value, dict):
        return 1 + sum(1 + counted(inner) for inner in value.values()) + (not value)
    if isinstance(value, list):
        return 1 + sum(map(counted, value)) + (not value)
    return 1


@given(ANY_JSON, st.booleans())
def test_values_and_keys_are_counted_on_the_bytes(value: Any, ascii_only: bool) -> None:
    text, count = json.dumps(value, ensure_ascii=ascii_only).encode(), counted(value)
    assert holds_more_values(text, count - 1)
    assert not holds_more_values(text, count)


@pytest.mark.parametrize(
    "said",
    ["A" * 10_000, ",:[{" * 1000, '"' * 5000, "\\" * 5000, '\\"' * 2500, '",' * 2500, '\\",\\' * 999],
)
def test_characters_inside_a_string_do_not_count(said: str) -> None:
    text = json.dumps({"a": said, "b": [said]}).encode()
    assert not holds_more_values(text, 6)
    assert holds_more_values(text, 5)


def test_a_text_that_is_not_utf_8_hides_no_values_in_a_string() -> None:
    text = json.dumps(["\u2200", *range(100)], ensure_ascii=False)
    assert holds_more_values(text.encode("utf-16"), 50)
    assert holds_more_values(text.encode("utf-32"), 50)
