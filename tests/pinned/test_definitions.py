"""What counts of a definition, and how two definitions differ."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.pinned.definitions import (
    prompt_definition,
    skill_definition,
    template_definition,
    tool_definition,
)
from bridge.pinned.differences import Difference, difference_of, differences

SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Arguments",
    "properties": {
        "title": {"type": "string", "description": "The title", "title": "Title"},
        "mode": {"enum": ["b", "a"], "default": {"title": "kept"}},
        "_meta": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["title", "mode"],
    "$defs": {"icons": {"type": ["null", "string"]}},
}
TOOL: dict[str, Any] = {
    "name": "book",
    "title": "Book",
    "description": "Books a  trip.\nAsks first.",
    "inputSchema": SCHEMA,
    "annotations": {"title": "Book!", "readOnlyHint": False},
    "icons": [{"src": "https://example.com/a.png"}],
    "_meta": {"ui": {}},
}


def changed(**fields: Any) -> dict[str, Any]:
    """The tool with other fields."""
    return {**TOOL, **fields}


@pytest.mark.parametrize(
    "same",
    [
        changed(title="Another title"),
        changed(icons=[]),
        changed(_meta={}),
        changed(description="Books a trip. Asks   first."),
        changed(annotations={"readOnlyHint": False}),
        changed(inputSchema={**SCHEMA, "title": "Other"}),
        changed(inputSchema={**SCHEMA, "required": ["mode", "title"]}),
        changed(inputSchema=dict(reversed(SCHEMA.items()))),
        changed(
            inputSchema={
                **SCHEMA,
                "properties": {
                    **SCHEMA["properties"],
                    "mode": {"enum": ["a", "b"], "default": {"title": "kept"}},
                },
            }
        ),
        changed(inputSchema={**SCHEMA, "$defs": {"icons": {"type": ["string", "null"]}}}),
        changed(outputSchema=None),
    ],
    ids=[
        "title",
        "icons",
        "meta",
        "white-space",
        "title-of-annotations",
        "title-of-schema",
        "order-of-required",
        "order-of-keys",
        "order-of-enum",
        "order-of-types",
        "null",
    ],
)
def test_what_never_counts_of_a_tool(same: dict[str, Any]) -> None:
    assert tool_definition(same) == tool_definition(TOOL)


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (changed(description="Books a trip. Asks never."), "description"),
        (changed(annotations={"readOnlyHint": True}), "annotations.readOnlyHint"),
        (changed(annotations={"readOnlyHint": 0}), "annotations.readOnlyHint"),
        (
            changed(
                inputSchema={**SCHEMA, "properties": {**SCHEMA["properties"], "title": {"type": "number"}}}
            ),
            "inputSchema.properties.title.description",
        ),
        (
            changed(
                inputSchema={
                    **SCHEMA,
                    "properties": {
                        **SCHEMA["properties"],
                        "mode": {"enum": ["b", "a"], "default": {"title": "new"}},
                    },
                }
            ),
            "inputSchema.properties.mode.default.title",
        ),
        (
            changed(inputSchema={**SCHEMA, "properties": {"title": SCHEMA["properties"]["title"]}}),
            "inputSchema.properties._meta",
        ),
        (changed(outputSchema={"type": "object"}), "outputSchema"),
    ],
    ids=[
        "description",
        "hint",
        "zero-is-not-false",
        "type",
        "title-in-a-default",
        "argument",
        "output-schema",
    ],
)
def test_what_counts_of_a_tool(other: dict[str, Any], path: str) -> None:
    difference = difference_of("tools", "book", tool_definition(TOOL), tool_definition(other))
    assert difference is not None
    assert difference.edits[0].path == path


def test_what_counts_of_prompts_templates_and_skills() -> None:
    prompt = {
        "name": "poem",
        "arguments": [{"name": "a", "required": True}, {"name": "b", "description": "B"}],
    }
    turned = {**prompt, "title": "Poem", "arguments": [*reversed(prompt["arguments"])]}  # type: ignore[call-overload]
    assert prompt_definition(prompt) == prompt_definition(turned)
    assert prompt_definition(prompt) != prompt_definition({**prompt, "arguments": [{"name": "a"}]})

    template = {
        "uriTemplate": "x://{a}",
        "name": "x",
        "annotations": {"lastModified": "2026-01-01", "priority": 1},
    }
    later = {**template, "annotations": {"lastModified": "2026-02-02", "priority": 1}}
    assert template_definition(template) == template_definition(later)
    assert template_definition(template) != template_definition({**template, "mimeType": "text/html"})

    skill = {"id": "s", "name": "S", "description": "Does s", "tags": ["b", "a"]}
    assert skill_definition(skill, None) == skill_definition({**skill, "tags": ["a", "b"]}, None)
    assert skill_definition(skill, None) != skill_definition(skill, TOOL)


def test_definitions_are_compared_by_kind_and_name() -> None:
    locked = {"tools": {"a": {"description": "A"}, "b": {"description": "B"}}, "prompts": {"p": {}}}
    present = {"tools": {"a": {"description": "A!"}, "c": {"description": "C"}}}
    told = [(item.name, item.change) for item in differences(locked, present)]  # type: ignore[arg-type]
    assert told == [("a", "changed"), ("b", "gone"), ("c", "new")], "prompts were not read, so none is gone"


def test_a_difference_shows_what_a_person_cannot_see() -> None:
    long = "x" * 500
    difference = difference_of(
        "tools", "a\u202eb", {"description": f"{long}. End"}, {"description": f"{long}\u200b. End\x1b[2J"}
    )
    assert difference is not None
    shown = "\n".join(difference.lines())
    assert "\\u202e" in shown
    assert "\\u200b" in shown, "the excerpt stands around the first difference"
    assert "\\x1b" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 300


def test_many_differences_are_bounded() -> None:
    before = {"inputSchema": {"properties": {str(number): 1 for number in range(1000)}}}
    after = {"inputSchema": {"properties": {str(number): 2 for number in range(1000)}}}
    difference = difference_of("tools", "a", before, after)  # type: ignore[arg-type]
    assert isinstance(difference, Difference)
    lines = [*difference.lines()]
    assert lines[-1].strip() == "and 980 more"
    assert len(difference.summary) < 400
