"""Tools with odd schemas, as hosts see them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mcp.host_schemas import (
    for_legacy,
    is_read_by_all,
    result_for_legacy,
    shown_input,
    shown_output,
)

pytestmark = pytest.mark.proves("mcp-schema-listed")

STRING = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, {"type": "object"}),
        ({"type": "object", "properties": None}, {"type": "object"}),
        ({"type": "object", "properties": []}, {"type": "object"}),
        ({"type": "object", "required": None}, {"type": "object"}),
        ({"type": "object", "required": True}, {"type": "object"}),
        ({"type": "object", "required": ["a", 1]}, {"type": "object", "required": ["a"]}),
        ({"type": "object", "$schema": 5}, {"type": "object"}),
        (of(a=True, b=STRING), of(a={}, b=STRING)),
        (of(a=False), of(a={"not": {}})),
        (of(a=None), of(a={})),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": of()}},
            {"type": "object", "$ref": "#/$defs/x", "$defs": {"x": of()}},
        ),
    ],
)
def test_an_input_schema_has_the_root_that_hosts_read(schema: Any, shown: Any) -> None:
    assert shown_input(schema) == shown


def test_an_input_schema_without_a_fault_stays_the_object_that_it_is() -> None:
    schema = of(a={"type": "any"}, b={"$ref": "#/gone"})
    assert shown_input(schema) is schema


@pytest.mark.parametrize(
    ("schema", "shown", "why"),
    [
        (of(a=STRING), of(a=STRING), None),
        ({"type": "array", "items": STRING}, {"type": "array", "items": STRING}, None),
        (of(a={"nullable": True}), of(a={}), None),
        (of(a={"id": "x", **STRING}, id=STRING), of(a=STRING, id=STRING), None),
        (of(a=True), of(a={}), None),
        (
            of(a={"$ref": "#/gone"}),
            of(a={}),
            "a part of its output schema is left out: its schema refers to #/gone",
        ),
        (
            of(a={"type": "any"}),
            of(a={}),
            "a part of its output schema is left out: its schema is not valid at",
        ),
        (
            of(a={**STRING, "pattern": r"^[\w-.]+$"}),
            of(a=STRING),
            "a part of its output schema is left out: hosts",
        ),
        (
            of(a={**STRING, "enum": []}),
            of(a=STRING),
            "a part of its output schema is left out: hosts cannot read an",
        ),
        ({"$ref": "#/gone"}, None, "its output schema is left out: its schema refers to #/gone"),
        (
            {"$ref": "https://x.test/s"},
            None,
            "its output schema is left out: its schema refers to https://x.test/s",
        ),
        ({"type": 5}, None, "its output schema is left out: its schema is not valid at type"),
        (
            of(a={"not": {"pattern": "(?i)a"}}),
            None,
            "its output schema is left out: hosts cannot read the pattern",
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
            None,
            "its output schema is left out: hosts do not know its dialect",
        ),
    ],
)
def test_an_output_schema_is_shown_as_far_as_every_host_can_compile_it(
    schema: Any, shown: Any, why: str | None
) -> None:
    output = shown_output(schema)
    assert output.schema == shown
    assert (output.validator is None) == (shown is None)
    assert (output.why or "").startswith(why or "")
    assert (output.why is None) == (why is None)


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "object"}, {"type": "object"}),
        ({"required": ["a"]}, {"required": ["a"], "type": "object"}),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": of()}},
            {"$ref": "#/$defs/x", "$defs": {"x": of()}, "type": "object"},
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": STRING}}, None),
        ({"type": "array"}, None),
        ({"type": ["object", "null"]}, None),
        ({"anyOf": [of(), {"type": "null"}]}, None),
        ({}, None),
    ],
)
def test_a_legacy_host_is_shown_only_output_schemas_of_objects(schema: Any, shown: Any) -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    assert for_legacy({**tool, "outputSchema": schema}) == {
        **tool,
        **({} if shown is None else {"outputSchema": shown}),
    }
    assert for_legacy(tool) is tool


@pytest.mark.parametrize(
    ("given", "got"),
    [({"a": 1}, {"a": 1}), ([1], {"result": [1]}), ("x", {"result": "x"}), (None, {"result": None})],
)
def test_structured_content_reaches_a_legacy_host_in_an_object(given: Any, got: Any) -> None:
    assert result_for_legacy({"structuredContent": given}) == {"structuredContent": got}
    assert result_for_legacy({"content": []}) == {"content": []}


@pytest.mark.parametrize(
    ("pattern", "is_read"),
    [
        ("^[A-Za-z0-9_-]{1,64}$", True),
        (r"^\d{4}-\d{2}-\d{2}$", True),
        (r"^(?!\s*$)[^@]+@[^@]+\.[a-z]+$", True),
        (r"[\x00-\x7f]*", True),
        (r"^[\w.-]+$", True),
        ("^a|b+?$", True),
        (r"^[\w-.]+$", False),
        (r"\A\d\Z", False),
        (r"a\-b", False),
        ("(?i)a", False),
        ("(?P<x>a)", False),
        ("a++", False),
        ("a{,3}", False),
        ("a{3,1}", False),
        ("[z-a]", False),
        ("(a", False),
        ("a)", False),
        ("*", False),
        ("[[:alpha:]]", False),
        ("(?=a)*", False),
        ("\\", False),
    ],
)
def test_a_pattern_is_shown_only_when_each_engine_reads_it(pattern: str, is_read: bool) -> None:
    assert is_read_by_all(pattern) is is_read
