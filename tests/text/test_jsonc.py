"""JSON with comments: its values and their positions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.text.jsonc import JsonNode, parse_jsonc

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=10,
)
GAPS = st.sampled_from(["", " ", "\r\n", "\t", "// said\n", "/* , */", "/* a\n*/ // }\n"])


def written(value: object, draw: st.DrawFn) -> str:
    """A value as text with comments between its tokens, and now and then a trailing comma."""

    def gap() -> str:
        return draw(GAPS)

    match value:
        case dict():
            entries = [
                f"{gap()}{json.dumps(key)}{gap()}:{written(inner, draw)}" for key, inner in value.items()
            ]
            brackets = "{}"
        case list():
            entries, brackets = [written(inner, draw) for inner in value], "[]"
        case _:
            return f"{gap()}{json.dumps(value)}{gap()}"
    last = "," if entries and draw(st.booleans()) else ""
    return f"{gap()}{brackets[0]}{','.join(entries)}{last}{gap()}{brackets[1]}{gap()}"


@st.composite
def texts(draw: st.DrawFn) -> tuple[object, str]:
    value = draw(VALUES)
    return value, written(value, draw)


def nodes(node: JsonNode) -> Iterator[JsonNode]:
    yield node
    for inner in (*(member.node for member in node.members), *node.elements):
        yield from nodes(inner)


@given(texts())
def test_comments_do_not_change_the_value_and_each_value_keeps_its_position(
    given: tuple[object, str],
) -> None:
    value, text = given
    root = parse_jsonc(text)
    assert root.value == value
    for node in nodes(root):
        assert parse_jsonc(text[node.start : node.end]).value == node.value
        held = {member.key: member.node.value for member in node.members}
        assert (held or [element.value for element in node.elements] or node.value) == node.value
        for member in node.members:
            assert json.loads(text[member.start : member.key_end]) == member.key
            assert member.comma is None or text[member.comma] == ","


@given(VALUES)
def test_plain_json_is_read_with_comments_allowed_or_not(value: object) -> None:
    text = json.dumps(value, indent=1)
    assert parse_jsonc(text).value == parse_jsonc(text, comments=False).value == value


def test_a_repeated_key_has_two_members_and_the_last_one_counts() -> None:
    root = parse_jsonc('{"a": 1, "a": {"b": 2}}')
    assert root.value == {"a": {"b": 2}}
    assert [(member.key, member.start, member.node.value) for member in root.members] == [
        ("a", 1, 1),
        ("a", 9, {"b": 2}),
    ]
    assert root.member("a") is root.members[1]
    assert root.member("b") is None


@pytest.mark.parametrize(
    ("text", "said", "at"),
    [
        ("", "Expecting value", 0),
        ('{"a": 1 "b": 2}', "a comma or } is expected", 8),
        ("[1 2]", "a comma or ] is expected", 3),
        ('{"a" 1}', "a colon is expected", 5),
        ("{a: 1}", "a key in quotes is expected", 1),
        ("{,}", "a key in quotes is expected", 1),
        ('{"a": [1, {"b": nope}]}', "Expecting value", 16),
        ('{"a": 1} x', "unexpected text after its end", 9),
        ('{"a": -Infinity}', "-Infinity is not a number in JSON", 6),
        ('{"a": /* 1}', "Expecting value", 6),
    ],
)
def test_invalid_json_is_refused_with_its_position(text: str, said: str, at: int) -> None:
    for comments in (True, False):
        with pytest.raises(json.JSONDecodeError) as refused:
            parse_jsonc(text, comments=comments)
        assert (refused.value.msg, refused.value.pos) == (said, at)


@pytest.mark.parametrize(
    ("text", "at"), [('{"a": 1, // one\n "b": 2}', 9), ('{"a": 1,}', 8), ("[1, 2, ]", 7), ("/**/ 1", 0)]
)
def test_comments_and_trailing_commas_are_refused_where_they_are_not_allowed(text: str, at: int) -> None:
    parse_jsonc(text)
    with pytest.raises(json.JSONDecodeError) as refused:
        parse_jsonc(text, comments=False)
    assert refused.value.pos == at
