"""Arguments checked against a schema: the faults, the form that asks for them, and how typed text is read."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.concurrency import done_at_once
from bridge.mcp.schemas import validator_of
from bridge.translate.arguments import (
    MAX_PROBLEMS,
    UNKNOWN_ARGUMENT,
    Problem,
    coerced,
    coerced_fields,
    describe,
    form_for,
    problems_of,
    type_words,
    without_nulls,
)
from tests.support.tools import tool, tool_of

pytestmark = pytest.mark.proves("map-arguments")

TEXT = {"type": "string"}
OPTIONAL_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


COLOUR = {"type": "string", "enum": ["red", "blue"], "description": "Which colour"}
ROOT: Any = {
    "type": "object",
    "$defs": {
        "colour": COLOUR,
        "alias": {"$ref": "#/$defs/colour"},
        "point": POINT,
        "many": [TEXT, {"type": "integer"}],
        "a/b c": {"type": "boolean"},
        "circle": {"$ref": "#/$defs/circle"},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
}


def referring(**properties: Any) -> Any:
    """A tool that requires these properties, which may refer to the definitions above."""
    definitions = {"colour": COLOUR, "point": POINT}
    schema = {"type": "object", "$defs": definitions, "properties": properties, "required": [*properties]}
    return tool_of({"name": "referring", "inputSchema": schema})


def closed(**properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return tool_of({"name": "closed", "inputSchema": schema})


@pytest.mark.proves("map-arguments")
def test_every_property_at_fault_is_named_in_the_order_of_the_schema() -> None:
    asked = tool(required="c a b", a=TEXT, b={"type": "integer"}, c=POINT)
    assert problems_of(asked, {"b": "many", "c": {"x": "no"}}) == (
        Problem("a", "missing"),
        Problem("b", "'many' is not of type 'integer'"),
        Problem("c", "at x: 'no' is not of type 'number'"),
    )


def test_arguments_that_fit_have_no_problems() -> None:
    assert problems_of(tool(required="a", a=TEXT), {"a": "", "unknown": [1]}) == ()


def test_a_fault_of_the_arguments_as_a_whole_has_no_property() -> None:
    schema = {"type": "object", "minProperties": 1}
    (problem,) = problems_of(tool_of({"name": "t", "inputSchema": schema}), {})
    assert problem.name == ""
    assert describe(tool(), problem) == problem.message


def test_an_argument_that_the_schema_forbids_is_named() -> None:
    schema = {"type": "object", "patternProperties": {"^x-": {}}, "additionalProperties": False}
    asked = tool_of({"name": "t", "inputSchema": schema})
    assert problems_of(asked, {"x-ok": 1, "limit": 2}) == (Problem("limit", UNKNOWN_ARGUMENT),)


def test_the_number_of_named_problems_is_limited() -> None:
    many = tool(required=" ".join(f"p{n}" for n in range(100)))
    assert len(problems_of(many, {})) == MAX_PROBLEMS


def test_a_long_value_is_cut_in_the_message() -> None:
    (problem,) = problems_of(tool(a={"type": "integer"}), {"a": "x" * 10_000})
    assert len(problem.message) < 300
    assert problem.message.endswith("is not of type 'integer'")


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"properties": {"a": {"$ref": "#/properties/a"}}}])
def test_arguments_of_an_endlessly_recursive_schema_are_checked_by_the_server_only(schema: Any) -> None:
    asked = tool_of({"name": "t", "inputSchema": schema})
    assert done_at_once(lambda: problems_of(asked, {"a": 1})) == ()


FORMS: list[tuple[Any, Any]] = [
    (TEXT, TEXT),
    ({"type": "integer", "minimum": 1, "title": "N"}, {"type": "integer", "minimum": 1, "title": "N"}),
    ({"enum": ["a", "b"]}, {"enum": ["a", "b"]}),
    (
        {"type": "array", "items": {"enum": ["a"], "type": "string"}},
        {"type": "array", "items": {"enum": ["a"], "type": "string"}},
    ),
    ({**POINT, "title": "P"}, {"type": "string", "title": "P", "description": "object, as JSON"}),
    (
        {"type": "array", "items": {"type": "number"}, "description": "Some numbers", "default": [1]},
        {"type": "string", "description": "Some numbers (as JSON)", "default": "[1]"},
    ),
    (OPTIONAL_INTEGER, {"type": "string", "description": "integer or null, as JSON"}),
    ({}, {"type": "string", "description": "any value, as JSON"}),
]


@pytest.mark.proves("map-arguments")
@pytest.mark.parametrize(("prop", "field"), FORMS)
def test_a_form_asks_for_flat_properties_as_they_are_and_for_others_as_json(prop: Any, field: Any) -> None:
    asked = tool(required="p", p=prop, other=TEXT)
    assert form_for(asked, [Problem("p", "missing"), Problem("", "whole"), Problem("gone", "extra")]) == {
        "type": "object",
        "properties": {"p": field},
        "required": ["p"],
    }


@pytest.mark.parametrize(
    ("prop", "required", "line"),
    [
        (TEXT, "p", "p (string, required) [missing]"),
        ({**TEXT, "title": "P", "description": "Why"}, "", "p (string): Why [missing]"),
        ({"enum": ["a", 1], "title": "Kind"}, "", 'p (one of "a", 1) Kind [missing]'),
        ({"const": None}, "", "p (null) [missing]"),
    ],
)
def test_a_problem_is_one_line_for_a_person(prop: Any, required: str, line: str) -> None:
    assert describe(tool(required=required, p=prop), Problem("p", "missing")) == line


@pytest.mark.proves("map-arguments")
def test_questions_resolve_references_in_words_and_forms() -> None:
    asked = referring(
        c={"$ref": "#/$defs/colour"},
        cs={"type": "array", "items": {"$ref": "#/$defs/colour"}},
        p={"$ref": "#/$defs/point", "description": "Where"},
    )
    problems = problems_of(asked, {})
    assert [describe(asked, problem) for problem in problems] == [
        'c (one of "red", "blue", required): Which colour [missing]',
        'cs (array of one of "red", "blue", required) [missing]',
        "p (object, required): Where [missing]",
    ]
    assert form_for(asked, problems)["properties"] == {
        "c": COLOUR,
        "cs": {"type": "array", "items": COLOUR},
        "p": {"type": "string", "description": "Where (as JSON)"},
    }
    answer: Any = {"c": "red", "cs": '["blue"]', "p": '{"x": 1}'}
    assert problems_of(asked, coerced_fields(answer, asked)) == ()


def test_an_invalid_subschema_is_asked_for_as_any_value_and_typed_text_is_read() -> None:
    asked = tool(required="p n", p={"type": "any"}, n={"type": "integer", "exclusiveMinimum": True})
    problems = problems_of(asked, {})
    assert [describe(asked, problem) for problem in problems] == [
        "p (any value, required) [missing]",
        "n (integer, required) [missing]",
    ]
    form = form_for(asked, problems)
    assert validator_of(form).is_valid({"p": "[1]", "n": 1})
    assert [coerced("5", name, asked) for name in ("p", "n")] == ["5", 5]


def test_an_unknown_argument_is_described_without_a_type() -> None:
    assert describe(tool(), Problem("x", "is no argument")) == "x: is no argument"
    assert describe(tool(), Problem("x" * 201, "is none")) == f"{'x' * 200}...: is none"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": ["string", "null"]}, "string or null"),
        ({"type": "array", "items": {"type": "array", "items": TEXT}}, "array of array of string"),
        ({"type": "array", "items": {}}, "array"),
        ({"oneOf": [TEXT, {"type": "array"}]}, "string or array"),
        ({"anyOf": []}, "any value"),
        ({"$ref": "#/$defs/gone"}, "any value"),
        ({"$ref": "#/$defs/colour"}, 'one of "red", "blue"'),
        ({"$ref": "#/$defs/alias"}, 'one of "red", "blue"'),
        ({"$ref": "#/$defs/many/1"}, "integer"),
        ({"$ref": "#/$defs/a~1b%20c"}, "boolean"),
        ({"$ref": "https://x.test/s"}, "any value"),
        ({"$ref": "#anchor"}, "any value"),
        ({"$ref": "#/$defs/circle"}, "any value"),
        ({"type": "array", "items": {"$ref": "#/$defs/colour"}}, 'array of one of "red", "blue"'),
        ({"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}, 'one of "red", "blue" or null'),
        ({"$ref": "#/$defs/tree"}, "array of array of array of array of array"),
        ({"$ref": "#"}, "object"),
    ],
)
def test_a_type_in_words(schema: Any, words: str) -> None:
    assert type_words(schema, ROOT) == words


TYPED: list[tuple[Any, str, Any]] = [
    (TEXT, "5", "5"),
    (TEXT, "true", "true"),
    (TEXT, '{"a": 1}', '{"a": 1}'),
    ({**TEXT, "minLength": 9}, "5", "5"),
    ({"type": "integer"}, " 5 ", 5),
    ({"type": "integer"}, "five", "five"),
    ({"type": "integer", "maximum": 3}, "5", 5),
    ({"type": "number"}, "NaN", "NaN"),
    ({"type": "number"}, "1e999", "1e999"),
    ({"type": "boolean"}, "Yes", True),
    ({"type": "boolean"}, "false", False),
    ({"type": "boolean"}, "maybe", "maybe"),
    ({"enum": [1, 2]}, "2", 2),
    ({"enum": ["1", "2"]}, "2", "2"),
    ({"type": "array"}, "[1]", [1]),
    ({"type": "object"}, '{"a":' * 200 + "1" + "}" * 200, '{"a":' * 200 + "1" + "}" * 200),
    (OPTIONAL_INTEGER, "5", 5),
    (OPTIONAL_INTEGER, "null", None),
    ({"type": ["string", "null"]}, "null", "null"),
    ({}, "5", "5"),
]


@pytest.mark.proves("map-arguments")
@pytest.mark.parametrize(("prop", "text", "value"), TYPED)
def test_typed_text_is_converted_to_the_type_of_the_property(prop: Any, text: str, value: Any) -> None:
    found = coerced(text, "p", tool(p=prop))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("prop", "text", "value"),
    [
        (TEXT, '"5"', '"5"'),
        ({"type": ["string", "null"]}, '"5"', "5"),
        ({"type": ["string", "null"]}, "plain", "plain"),
        (OPTIONAL_INTEGER, "5", 5),
        (POINT, '{"x": 1}', {"x": 1}),
        ({"$ref": "#/properties/point"}, '{"x": 1}', {"x": 1}),
        ({}, "[1]", [1]),
    ],
)
def test_a_field_that_was_asked_for_as_json_is_read_as_json(prop: Any, text: str, value: Any) -> None:
    assert coerced_fields({"p": text, "n": 1}, tool(p=prop, point=POINT)) == {"p": value, "n": 1}


def test_only_names_that_the_schema_excludes_are_called_unknown() -> None:
    assert problems_of(closed(a=TEXT), {"a": 1, "b": 2}) == (
        Problem("a", "1 is not of type 'string'"),
        Problem("b", UNKNOWN_ARGUMENT),
    )


@pytest.mark.parametrize(
    ("schema", "arguments", "wrong"),
    [
        (
            {"properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}},
            {"text": "a" * 50 + "!"},
            "text",
        ),
        ({"properties": {"text": {"pattern": "^(?=a)b$"}}}, {"text": "zz"}, None),
        ({"patternProperties": {"^(x+)+$": {"type": "integer"}}}, {"x" * 50 + "!": 1}, None),
        ({"patternProperties": {"^(x+)+$": {"type": "integer"}}}, {"xx": "no number"}, "xx"),
        (
            {"patternProperties": {"^(x+)+$": {}}, "additionalProperties": False},
            {"x" * 50 + "!": 1},
            "x" * 50 + "!",
        ),
        ({"additionalProperties": {"type": "integer"}}, {"a": "no number"}, "a"),
        ({"patternProperties": {"^(?=a)": {}}, "additionalProperties": False}, {"a": 1}, None),
    ],
    ids=["exponential", "only-JavaScript", "name", "matches", "additional", "additional-schema", "not-told"],
)
def test_patterns_take_time_in_proportion_to_the_text(
    schema: dict[str, Any], arguments: dict[str, Any], wrong: str | None
) -> None:
    checked = tool_of({"name": "t", "inputSchema": {"type": "object", **schema}})
    assert [problem.name for problem in problems_of(checked, arguments)] == ([wrong] if wrong else [])


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"a": "x", "b": None}, {"a": "x"}),
        ({"a": None, "b": None}, {"a": None}),
        ({"a": "x", "maybe": None}, {"a": "x", "maybe": None}),
        ({"a": "x", "any": None}, {"a": "x", "any": None}),
        ({"a": "x", "unknown": None}, {"a": "x", "unknown": None}),
        ({"a": "x", "b": 0, "point": None}, {"a": "x", "b": 0}),
        ({"a": "x", "b": {"x": None}}, {"a": "x", "b": {"x": None}}),
    ],
)
def test_a_null_that_no_schema_takes_means_left_out(arguments: Any, left: Any) -> None:
    asked = tool(required="a", a=TEXT, b={"type": "integer"}, maybe=OPTIONAL_INTEGER, any={}, point=POINT)
    assert without_nulls(asked, arguments) == left
