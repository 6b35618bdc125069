"""Example arguments for a tool: made from its schema, and checked against it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.translate.examples import example_of
from bridge.translate.overrides import ArgumentRule, SkillOverride, overridden
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
    ({"type": "string", "pattern": KEY, "examples": ["PROJ-7"]}, "PROJ-7"),
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
def test_an_example_is_the_simplest_value_that_fits(schema: Any, example: Any) -> None:
    assert example_of(taking(schema)) == {"p": example}


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?=x)y"},
        {"type": "string", "pattern": KEY, "description": "Not 'proj'"},
        {"type": "string", "pattern": "^[a-z]*$"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"not": {}},
        {"$ref": "#/$defs/endless"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
    ],
)
def test_an_example_that_would_not_fit_is_left_out(schema: Any) -> None:
    assert example_of(taking(schema)) is None
    assert skill_from(taking(schema), "t", "key").examples is None


def test_an_example_leaves_out_hidden_arguments() -> None:
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
