"""A tool as a skill: its words, its tags, its examples and its media types."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.models import AgentSkill
from bridge.translate.skills import accepts_any, skill_from
from tests.support.tools import tool

SAY = {"type": "string", "default": "hello there"}


@pytest.mark.proves("map-skill")
def test_a_skill_has_what_its_tool_says_of_itself() -> None:
    listed = {
        "title": "Echo",
        "description": "Gives it back",
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": "yes"},
        "outputSchema": {"type": "object"},
    }
    assert skill_from(tool("echo", "text", listed=listed, text=SAY), "my-echo", "demo") == AgentSkill(
        id="my-echo",
        name="Echo",
        description="Gives it back",
        tags=("demo", "read-only", "non-destructive"),
        examples=(
            '{"skill": "my-echo", "arguments": {"text": "hello there"}}',
            "my-echo text='hello there'",
        ),
        input_modes=("application/json", "text/plain"),
        output_modes=("application/json", "text/plain"),
    )


@pytest.mark.parametrize(
    ("listed", "name", "description"),
    [
        ({}, "t", "t"),
        ({"title": "T"}, "T", "T"),
        ({"annotations": {"title": "A"}}, "A", "A"),
        ({"title": "T", "annotations": {"title": "A"}, "description": "D"}, "T", "D"),
        ({"title": "", "description": ""}, "t", "t"),
        ({"title": 5, "description": None, "annotations": "no object"}, "t", "t"),
    ],
)
def test_a_skill_always_has_a_name_and_a_description(listed: Any, name: str, description: str) -> None:
    skill = skill_from(tool("t", listed=listed), "t", "key")
    assert (skill.name, skill.description, skill.tags) == (name, description, ("key",))


@pytest.mark.parametrize(
    ("hints", "tags"),
    [
        ({"readOnlyHint": True}, ("read-only",)),
        ({"readOnlyHint": False}, ()),
        ({"destructiveHint": True}, ("destructive",)),
        ({"idempotentHint": True, "openWorldHint": False}, ("idempotent", "closed-world")),
        ({"idempotentHint": False, "openWorldHint": True}, ("open-world",)),
        ({"readOnlyHint": 1, "destructiveHint": None}, ()),
    ],
)
def test_only_what_a_server_says_explicitly_becomes_a_tag(hints: Any, tags: tuple[str, ...]) -> None:
    assert skill_from(tool(listed={"annotations": hints}), "t", "key").tags == ("key", *tags)


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize(
    ("properties", "modes"),
    [
        ({"a": {"type": "string"}}, ()),
        ({"a": {"contentMediaType": "image/png"}, "b": {"contentMediaType": "image/png"}}, ("image/png",)),
        ({"a": {"contentEncoding": "base64"}}, ("*/*",)),
        ({"a": {"type": "array", "items": {"format": "uri"}}}, ("*/*",)),
    ],
)
def test_input_modes_name_the_files_that_a_schema_asks_for(properties: Any, modes: tuple[str, ...]) -> None:
    assert skill_from(tool(**properties), "t", "key").input_modes == (
        "application/json",
        "text/plain",
        *modes,
    )


def test_a_skill_that_needs_nested_arguments_has_no_example_in_text() -> None:
    nested = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert skill_from(tool("t", "p", p=nested), "t", "key").examples == (
        '{"skill": "t", "arguments": {"p": {"x": 1}}}',
    )


def test_without_an_output_schema_anything_may_come() -> None:
    assert skill_from(tool(), "t", "key").output_modes == ("text/plain", "*/*")


MATCHES: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = [
    ((), ("image/png",), True),
    (("text/plain",), ("text/plain",), True),
    (("TEXT/Plain; charset=utf-8",), ("text/plain",), True),
    (("text",), ("text/plain",), True),
    (("text/*",), ("text/plain",), True),
    (("*/*",), ("image/png",), True),
    (("*",), ("image/png",), True),
    (("image/png",), ("text/plain", "*/*"), True),
    (("image/png",), ("text/plain", "application/json"), False),
    (("text/html",), ("text/plain",), False),
    (("image/*",), ("text/plain",), False),
    (("audio/wav", "application/json"), ("application/json", "text/plain"), True),
]


@pytest.mark.proves("a2a-accepted-modes")
@pytest.mark.parametrize(("accepted", "offered", "fits"), MATCHES)
def test_accepted_modes_match_as_wide_as_they_look(
    accepted: tuple[str, ...], offered: tuple[str, ...], fits: bool
) -> None:
    assert accepts_any(accepted, offered) is fits
