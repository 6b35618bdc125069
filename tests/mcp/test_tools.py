"""Listed tools: which can be served, which cannot and why, and their schemas."""

from __future__ import annotations

import socket
from itertools import product
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from bridge.mcp.schema_fast_path import _DIALECTS, _PLAIN, is_plain, is_plainly_valid, plainly_accepts
from bridge.mcp.schemas import MAX_SCHEMA_DEPTH, validator_of
from bridge.mcp.tools import SchemaBudget, UnservableTool, tools_from
from tests.support.tools import tool_of

pytestmark = pytest.mark.proves("mcp-bad-tool")

GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    while levels > 1:
        schema, levels = ({"items": schema}), levels - 1
    return schema


def with_property(schema: Any) -> Any:
    return {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": schema}}}


BAD: list[tuple[Any, str, str]] = [
    ("no object", "number 2", "it is no object"),
    (None, "number 2", "it is no object"),
    ({"inputSchema": {"type": "object"}}, "number 2", "it has no name"),
    ({"name": "", "inputSchema": {}}, "number 2", "it has no name"),
    ({"name": 5, "inputSchema": {}}, "number 2", "it has no name"),
    ({"name": "bad"}, "bad", "its inputSchema is no object"),
    ({"name": "bad", "inputSchema": True}, "bad", "its inputSchema is no object"),
    ({"name": "bad", "inputSchema": {"type": "array"}}, "bad", "its inputSchema has the type 'array'"),
    ({"name": "bad", "inputSchema": {"type": ["object", "null"]}}, "bad", "its inputSchema has the type"),
    (with_property(nested(MAX_SCHEMA_DEPTH)), "bad", f"its schema is nested deeper than {MAX_SCHEMA_DEPTH}"),
    ({**GOOD}, "good", "an earlier tool has this name"),
]


@pytest.mark.proves("mcp-bad-tool")
@pytest.mark.parametrize(("bad", "name", "reason"), BAD)
def test_a_bad_tool_is_left_out_and_named_and_the_others_stay(bad: Any, name: str, reason: str) -> None:
    last = {"name": "last", "inputSchema": {}}
    tools, (left_out,) = tools_from([GOOD, bad, last])
    assert [tool.listed for tool in tools] == [GOOD, last]
    assert left_out.name == name
    assert left_out.reason.startswith(reason)


REFERRING: list[tuple[Any, str]] = [
    ({"$ref": "https://x.test/s"}, "its schema refers to https://x.test/s, which is not in the schema"),
    ({"$ref": "other.json"}, "its schema refers to other.json"),
    ({"$ref": "file:///etc/passwd"}, "its schema refers to file:///etc/passwd"),
    ({"$ref": "#/$defs/gone"}, "its schema refers to #/$defs/gone"),
    ({"$dynamicRef": "#gone"}, "its schema refers to #gone"),
    ({"items": {"allOf": [{"$ref": "#/nowhere"}]}}, "its schema refers to #/nowhere"),
    ({"$ref": "#/required"}, "its schema refers to #/required, which is not a schema"),
    ({"type": "any", "$ref": "#/gone"}, "its schema is not valid at properties/a/type"),
]


@pytest.mark.proves("mcp-bad-tool")
@pytest.mark.parametrize(("schema", "why"), REFERRING)
def test_a_tool_whose_schema_refers_to_what_it_does_not_hold_is_served_and_checked_by_the_rest(
    schema: Any, why: str
) -> None:
    tool = tool_of({"name": "t", "inputSchema": unsound(schema)})
    assert tool.unchecked is not None
    assert tool.unchecked.startswith(why)
    assert tool.validator.is_valid({"a": object, "b": 1})
    assert not tool.validator.is_valid({"b": "no integer"})


def test_of_a_schema_that_refers_elsewhere_nothing_is_checked_where_less_would_accept_less() -> None:
    tool = tool_of({"name": "t", "inputSchema": unsound({"not": {"$ref": "#/gone"}})})
    assert tool.unchecked is not None
    assert tool.validator.is_valid({"b": "no integer"})


@pytest.mark.parametrize("named", [5, {}, None])
def test_a_schema_whose_dialect_is_no_text_is_read_as_2020_12(named: Any) -> None:
    tool = tool_of({"name": "t", "inputSchema": {"$schema": named, "required": ["a"]}})
    assert tool.unchecked == "its schema is not valid at $schema: the value is not a string"
    assert not tool.validator.is_valid({})


def unsound(schema: Any, **more: Any) -> Any:
    """The schema of a tool, in which one property is not described as JSON Schema wants it."""
    properties = {"a": schema, "b": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["b"], **more}


UNSOUND: list[tuple[Any, str, Any, Any]] = [
    (unsound({"type": "any"}), "properties/a/type", {"a": [1], "b": 1}, {"a": 1}),
    (
        unsound({"type": "nonsense", "maxLength": 2}),
        "properties/a/type",
        {"a": "xx", "b": 1},
        {"a": "xxx", "b": 1},
    ),
    (
        unsound({"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        "properties/a/exclusiveMinimum",
        {"a": 0, "b": 1},
        {"a": -1, "b": 1},
    ),
    (unsound({"minLength": "3"}), "properties/a/minLength", {"a": "", "b": 1}, {"b": "x"}),
    (
        unsound({"type": "string", "required": True}),
        "properties/a/required",
        {"a": "x", "b": 1},
        {"a": 1, "b": 1},
    ),
    (
        unsound({"enum": {"x": 1}, "type": "string"}),
        "properties/a/enum",
        {"a": "y", "b": 1},
        {"a": 1, "b": 1},
    ),
    (unsound("string", additionalProperties=False), "properties/a", {"a": 1, "b": 1}, {"b": 1, "c": 1}),
    (unsound({"anyOf": [{"type": "null"}, "any"]}), "properties/a/anyOf/1", {"a": 1, "b": 1}, {"b": "x"}),
    (unsound({"items": [{"type": "null"}]}), "properties/a/items", {"a": [1], "b": 1}, {"b": "x"}),
    (unsound({}, required=["b", 1]), "required/1", {}, {"b": "x"}),
    (unsound({"type": "any"}, properties=[], additionalProperties=False), "properties", {"x": 1, "b": 1}, {}),
    (unsound({}, required="b"), "required", {}, {"b": "x"}),
    (
        unsound({"$ref": "#/$defs/n"}, **{"$defs": {"n": {"type": "any"}}}),
        "$defs/n/type",
        {"a": 1, "b": 1},
        {"b": "x"},
    ),
    (
        unsound({"oneOf": [{"type": "any"}, {"const": 1}]}),
        "properties/a/oneOf/0/type",
        {"a": 1, "b": "x"},
        None,
    ),
    (unsound({"not": {"type": "any"}}), "properties/a/not/type", {"a": 1}, None),
]


@pytest.mark.proves("mcp-unsound-schema")
@pytest.mark.parametrize(("schema", "where", "taken", "refused"), UNSOUND)
def test_a_tool_whose_schema_is_not_valid_is_served_and_checked_by_what_is_left_of_it(
    schema: Any, where: str, taken: Any, refused: Any
) -> None:
    (tool,), left_out = tools_from([{"name": "t", "inputSchema": schema}])
    assert left_out == ()
    assert tool.listed["inputSchema"] is schema
    assert (tool.unchecked or "").startswith(f"its schema is not valid at {where}: ")
    assert tool.validator.is_valid(taken)
    assert refused is None or not tool.validator.is_valid(refused)
    assert tool_of(GOOD).unchecked is None


def many(name: str, count: int, **more: Any) -> Any:
    """A tool whose schema has so many values within, and two more."""
    properties: dict[str, Any] = {f"p{number}": True for number in range(count - 1)}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, **more}}


@pytest.mark.proves("mcp-unsound-schema")
def test_a_tool_whose_schema_would_take_too_long_to_compile_is_served_and_its_arguments_are_not_checked() -> (
    None
):
    listed = [many("first", 60, required=["p0"]), many("second", 60, required=["p0"]), many("third", 10)]
    tools, left_out = tools_from(listed, SchemaBudget(100))
    assert left_out == ()
    assert [tool.listed for tool in tools] == listed
    assert [tool.unchecked for tool in tools] == [
        None,
        "the schemas of all tools hold more than 100 values: `schema_values` is the limit",
        None,
    ]
    assert [tool.validator.is_valid({}) for tool in tools] == [False, True, True]


def test_a_schema_that_its_dialect_has_to_judge_counts_a_hundred_times() -> None:
    odd = many("odd", 3, **{"$id": "urn:x"})
    assert [tool.unchecked is None for tool in tools_from([odd], SchemaBudget(700))[0]] == [True]
    assert [tool.unchecked is None for tool in tools_from([odd], SchemaBudget(599))[0]] == [False]


KEYWORDS = sorted({*_PLAIN, "default", "const", "x-own"})
VALUES: tuple[Any, ...] = (
    *(
        "string",
        "any",
        "",
        "#/$defs/a",
        DRAFT_7,
        0,
        1,
        -1,
        0.5,
        True,
        False,
        None,
        [],
        {},
        [[]],
        [1],
        ["a", "a"],
    ),
    *(
        ["a", "b"],
        ["string", "null"],
        ["string", "any"],
        [{}],
        [{"type": 5}],
        {"a": {}},
        {"a": 1},
        {"a": True},
    ),
    *(
        {"type": "null"},
        {"minimum": "1"},
        {"a": ["b"]},
        {"required": "b"},
        [True, {"enum": 1}],
        {"a": {"not": 1}},
    ),
)


@pytest.mark.parametrize("kind", sorted(_DIALECTS, key=str), ids=lambda kind: kind.__name__)
def test_what_is_plainly_valid_is_valid_for_its_dialect(kind: type[Validator]) -> None:
    meta = kind(kind.META_SCHEMA)
    for keyword, value in product(KEYWORDS, VALUES):
        for schema in (
            {keyword: value},
            {"properties": {"a": {keyword: value}}},
            {"anyOf": [{keyword: value}]},
        ):
            assert not is_plain(schema) or meta.is_valid(schema), schema


def test_the_schemas_that_tools_have_are_plainly_valid() -> None:
    inner = {"type": ["string", "null"], "minLength": 1, "pattern": "^a", "enum": ["a", None], "default": "a"}
    schema: Any = {
        "$schema": DRAFT_7,
        "type": "object",
        "title": "T",
        "properties": {
            "a": inner,
            "b": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "examples": [1]},
        },
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5, "description": "n"}},
    }
    assert is_plainly_valid(schema)
    assert is_plainly_valid({**schema, "$schema": DRAFT_2020})
    assert not is_plainly_valid({**schema, "$schema": "http://json-schema.org/draft-04/schema#"})


@pytest.mark.proves("mcp26-ref")
def test_a_schema_that_is_not_valid_is_never_fetched_from_elsewhere_either() -> None:
    tool = tool_of(with_property({"type": "any", "$ref": "https://x.test/s"}))
    assert tool.unchecked is not None
    assert tool.validator.is_valid({"a": 1})


def test_each_bad_tool_is_reported() -> None:
    _, left_out = tools_from(["a", GOOD, GOOD, {"name": "b"}])
    assert left_out == (
        UnservableTool("number 1", "it is no object"),
        UnservableTool("good", "an earlier tool has this name"),
        UnservableTool("b", "its inputSchema is no object"),
    )


@pytest.mark.proves("mcp-raw")
def test_a_tool_is_kept_as_it_was_listed() -> None:
    listed = {
        **GOOD,
        "title": "",
        "outputSchema": {"type": "object"},
        "tomorrow": None,
    }
    tool = tool_of(listed)
    assert tool.listed is listed
    assert (tool.text("title"), tool.text("description"), tool.annotations) == (None, None, {})
    assert tool.output_schema == {"type": "object"}
    assert tool_of(GOOD).output_schema is None


def test_the_deepest_schema_that_is_allowed_is_served() -> None:
    tool_of({"name": "deep", "inputSchema": nested(MAX_SCHEMA_DEPTH) | {"type": "object"}})


TUPLE = {"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}
PREFIX = {"type": "object", "properties": {"a": {"prefixItems": [{"type": "string"}]}}}


@pytest.mark.proves("mcp-schema-dialect")
@pytest.mark.parametrize(
    ("schema", "arguments", "valid"),
    [
        (PREFIX, {"a": [1]}, False),
        ({**PREFIX, "$schema": DRAFT_2020}, {"a": [1]}, False),
        ({**PREFIX, "$schema": "https://example.com/unheard"}, {"a": [1]}, False),
        ({**PREFIX, "$schema": DRAFT_7}, {"a": [1]}, True),
        ({**TUPLE, "$schema": DRAFT_7}, {"a": [1]}, False),
        ({**TUPLE, "$schema": DRAFT_7}, {"a": ["x"]}, True),
    ],
)
def test_the_dialect_is_the_one_that_the_schema_names(schema: Any, arguments: Any, valid: bool) -> None:
    assert validator_of(schema).is_valid(arguments) is valid


@pytest.mark.proves("mcp-schema-unknown")
def test_a_tool_whose_schema_is_of_an_unknown_dialect_is_served_and_that_is_said() -> None:
    unheard = "https://example.com/unheard"
    (tool,), left_out = tools_from([{"name": "t", "inputSchema": {**PREFIX, "$schema": unheard}}])
    assert left_out == ()
    assert tool.unchecked == (f"its schema has an unknown dialect and is read as 2020-12: {unheard}")
    assert not tool.validator.is_valid({"a": [1]})


@pytest.mark.proves("mcp-schema-dialect")
def test_a_schema_of_one_dialect_is_no_schema_of_another() -> None:
    with pytest.raises(ValueError, match="not valid at properties/a/items"):
        validator_of(TUPLE)


INTEGER = {"n": {"type": "integer"}}
HOME = "https://x.test/tool"
REFERENCES: list[tuple[Any, Any, bool]] = [
    ({"$defs": INTEGER, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": "x"}, False),
    (
        {"$schema": DRAFT_7, "definitions": INTEGER, "properties": {"a": {"$ref": "#/definitions/n"}}},
        {"a": "x"},
        False,
    ),
    (
        {"$defs": {"n": {"$anchor": "n", "type": "null"}}, "properties": {"a": {"$ref": "#n"}}},
        {"a": 1},
        False,
    ),
    ({"$id": HOME, "$defs": INTEGER, "properties": {"a": {"$ref": f"{HOME}#/$defs/n"}}}, {"a": "x"}, False),
    ({"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}}, {"a": {"a": {"b": "x"}}}, False),
    ({"properties": {"a": {"default": {"$ref": "https://x.test/s"}, "type": "object"}}}, {"a": {}}, True),
    ({"properties": {"a": {"enum": [{"$ref": "https://x.test/s"}]}}}, {"a": 1}, False),
    ({"properties": {"$ref": {"type": "integer"}}}, {"$ref": "x"}, False),
]


@pytest.mark.parametrize(("schema", "arguments", "valid"), REFERENCES)
def test_a_reference_into_the_schema_itself_is_followed(schema: Any, arguments: Any, valid: bool) -> None:
    assert tool_of({"name": "t", "inputSchema": schema}).validator.is_valid(arguments) is valid


@pytest.mark.proves("mcp-bad-tool", "mcp26-ref")
def test_a_reference_elsewhere_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        tools, _ = tools_from([with_property({"$ref": url}), {"name": "t", "inputSchema": {"$schema": url}}])
        assert [tool.name for tool in tools] == ["bad", "t"]
        assert all(tool.validator.is_valid({"a": 1}) for tool in tools)
        with pytest.raises(BlockingIOError):
            server.accept()


_ITEMS = (None, True, 1, 1.0, 1.5, "a", [], {}, ["a"])
_OF_PROPERTIES: tuple[Any, ...] = (
    *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null", "array", "object")),
    *({"type": ["string", "null"]}, {"type": "string", "maxLength": 0}, {}, True, False),
    {"type": "string", "title": "T", "description": "d", "default": 1},
)


def test_what_is_plainly_accepted_is_accepted_by_the_library() -> None:
    accepted = 0
    for prop, item in product(_OF_PROPERTIES, _ITEMS):
        for required, more in product((None, [], ["a"], ["a", "b"]), (None, True, False, {"type": "null"})):
            schema: dict[str, Any] = {"type": "object", "properties": {"a": prop}}
            schema |= {} if required is None else {"required": required}
            schema |= {} if more is None else {"additionalProperties": more}
            for value in ({}, {"a": item}, {"a": item, "b": item}, {"b": item}, item):
                if plainly_accepts(schema, value):
                    accepted += 1
                    assert Draft202012Validator(schema).is_valid(value), (schema, value)
    assert accepted > 1000
    assert plainly_accepts(
        {"$schema": DRAFT_2020, "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"a": "hello"},
    )


@pytest.mark.parametrize(
    "keyword", ["allOf", "$ref", "minProperties", "patternProperties", "unevaluatedProperties"]
)
def test_what_asks_for_more_than_types_is_left_to_the_library(keyword: str) -> None:
    assert not plainly_accepts({"type": "object", "properties": {}, keyword: {}}, {})
