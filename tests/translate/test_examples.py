"""Arguments that a tool would take: made of its schema, and checked against it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.translate.examples import example_of
from bridge.translate.overrides import ArgumentRule, SkillOverride, overridden
from bridge.translate.pattern_examples import text_for
from bridge.translate.skills import skill_from
from tests.support.tools import tool_of

pytestmark = pytest.mark.proves("map-skill")

TEXT = {"type": "string"}
POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": TEXT}, "required": ["x"]}
DEFINITIONS = {
    "colour": {"type": "string", "enum": ["red", "blue"]},
    "point": POINT,
    "tree": {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["children"],
    },
    "endless": {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/endless"}},
        "required": ["next"],
    },
}
KEY = "^[A-Z][A-Z0-9_]+-\\d+(?:-\\d+)*$"


def taking(schema: Any) -> Any:
    """A tool whose one argument is of this schema."""
    whole = {"type": "object", "$defs": DEFINITIONS, "properties": {"p": schema}, "required": ["p"]}
    return tool_of({"name": "t", "inputSchema": whole})


EXAMPLES: list[tuple[Any, Any]] = [
    ({"type": "integer", "minimum": 3}, 3),
    ({"type": "integer", "exclusiveMinimum": 3}, 4),
    ({"type": "integer", "minimum": 3, "multipleOf": 5}, 5),
    ({"type": "integer", "maximum": -2}, -2),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
    ({"minimum": 2}, 2),
    ({"type": ["boolean", "null"]}, True),
    ({"type": "null"}, None),
    ({"default": 0}, 0),
    ({"default": None, "type": "string"}, "text"),
    ({"const": "x"}, "x"),
    ({"enum": ["b", "a"]}, "b"),
    ({"enum": ["b", 2], "type": "integer"}, 2),
    ({"examples": ["e"], "type": "string"}, "e"),
    ({"type": "string", "format": "uri"}, "https://example.com"),
    ({"type": "string", "minLength": 6}, "textte"),
    ({"type": "string", "maxLength": 2}, "te"),
    ({"type": "string", "pattern": KEY, "description": "The key (e.g. 'PROJ-123')"}, "PROJ-123"),
    ({"type": "string", "pattern": KEY, "description": "Not 'proj'"}, "AA-1"),
    ({"type": "string", "pattern": "^[a-z]*$", "minLength": 3}, "aaa"),
    ({"type": "array", "items": {"type": "number"}}, [1]),
    ({"type": "array", "items": TEXT, "minItems": 2}, ["text", "text"]),
    ({"type": "array", "items": TEXT, "maxItems": 0}, []),
    ({"type": "array", "prefixItems": [{"type": "integer"}, TEXT], "items": False}, [1, "text"]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
    ({"anyOf": [{"type": "string", "pattern": "(?=x)y"}, {"type": "null"}]}, None),
    ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["b"]}]}, {"b": "text"}),
    ({"type": "object", "properties": {"a": TEXT}, "minProperties": 1}, {"a": "text"}),
    (POINT, {"x": 1}),
    ({"$ref": "#/$defs/colour"}, "red"),
    ({"$ref": "#/$defs/colour", "default": "blue"}, "blue"),
    ({"allOf": [{"$ref": "#/$defs/point"}, {"required": ["y"]}]}, {"x": 1, "y": "text"}),
    ({"type": "array", "items": {"$ref": "#/$defs/point"}}, [{"x": 1}]),
]


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize(("schema", "example"), EXAMPLES)
def test_an_example_is_the_plainest_value_that_fits(schema: Any, example: Any) -> None:
    assert example_of(taking(schema)) == {"p": example}


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?=x)y"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"not": {}},
        {"$ref": "#/$defs/endless"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
    ],
)
def test_an_example_that_would_not_fit_is_left_out(schema: Any) -> None:
    assert example_of(taking(schema)) is None
    assert skill_from(taking(schema), "t", "key").examples is None


def test_an_example_is_for_callers_and_leaves_out_what_they_do_not_see() -> None:
    both = tool_of(
        {
            "name": "t",
            "inputSchema": {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
        }
    )
    rules = {"b": ArgumentRule(hidden=True, default="ours")}
    assert example_of(overridden(both, SkillOverride(arguments=rules))) == {"a": "text"}


def test_an_example_of_a_schema_that_refers_to_itself_ends() -> None:
    example: Any = example_of(taking({"$ref": "#/$defs/tree"}))
    assert taking({"$ref": "#/$defs/tree"}).validator.is_valid(example)


def test_a_schema_whose_choices_fan_out_is_given_up() -> None:
    both = [{"$ref": "#/$defs/fan"}] * 8
    schema = {"$defs": {"fan": {"allOf": both, "anyOf": both}}, "properties": {"p": {"$ref": "#/$defs/fan"}}}
    tool = tool_of({"name": "t", "inputSchema": {"type": "object", "required": ["p"], **schema}})
    assert example_of(tool) is None


PATTERNS: list[tuple[str, str | None]] = [
    ("^abc$", "abc"),
    ("", ""),
    ("a|b", "a"),
    ("^(?:x|y){2}z?$", "xx"),
    ("^(?<year>\\d{4})-\\d\\d$", "1111-11"),
    ("^[^a-z]+$", "1"),
    ("^[\\w.-]+@[a-z]+\\.(com|org)$", "a@a.com"),
    ("^[a\\]-]{2,3}$", "aa"),
    ("^#[0-9A-Fa-f]{6}$", "#000000"),
    ("^\\u0041\\x42\\/\\t$", "AB/\t"),
    ("^\\D\\S$", "aa"),
    ("\\bx+?\\b", "x"),
    ("(?=a)b", None),
    ("(a)\\1", None),
    ("\\p{L}", None),
    ("[a", None),
    ("(a", None),
    ("a)", None),
    ("\\", None),
    ("[]", None),
    ("a{100000}", None),
    ("(" * 200 + ")" * 200, None),
    ("a" * 501, None),
]


@pytest.mark.parametrize(("pattern", "text"), PATTERNS, ids=range(len(PATTERNS)))
def test_a_pattern_gives_a_text_that_it_matches_or_none(pattern: str, text: str | None) -> None:
    assert text_for(pattern) == text


@given(st.text("ab[](){}|?*+.^$\\\\d,-1<:=", max_size=30), st.integers(0, 3))
def test_no_pattern_is_too_odd_to_be_read(pattern: str, more: int) -> None:
    assert len(text_for(pattern, more) or "") <= 1000
