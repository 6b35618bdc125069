"""A tool as a skill: its words, its tags, its examples and its media types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.a2a.model.objects import AgentSkill
from bridge.translate.overrides import SkillOverride
from bridge.translate.skills import accepts_any, skill_from, skill_ids
from tests.support.tools import tool, tool_of

pytestmark = pytest.mark.proves("map-skill")

SAY = {"type": "string", "default": "hello there"}


@pytest.mark.proves("map-skill")
def test_a_skill_takes_its_description_from_its_tool() -> None:
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
def test_only_explicit_annotations_become_tags(hints: Any, tags: tuple[str, ...]) -> None:
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


@pytest.mark.parametrize(("skill_id", "name"), [("two words", "p"), ("t", "two words"), ("t", "it's")])
def test_a_call_that_text_cannot_express_has_no_example_in_text(skill_id: str, name: str) -> None:
    named = tool_of(
        {"name": "t", "inputSchema": {"type": "object", "properties": {name: {}}, "required": [name]}}
    )
    assert len(skill_from(named, skill_id, "key").examples or ()) == 1


def test_without_an_output_schema_the_result_may_have_any_type() -> None:
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
def test_accepted_modes_match_with_wildcards(
    accepted: tuple[str, ...], offered: tuple[str, ...], fits: bool
) -> None:
    assert accepts_any(accepted, offered) is fits


@pytest.mark.proves("map-skill", "map-servers")
@pytest.mark.parametrize(
    ("places", "ids"),
    [
        (["a/x"], ["x"]),
        (["a/x", "a/y", "b/z"], ["x", "y", "z"]),
        (["a/x", "b/x", "b/y"], ["a_x", "b_x", "y"]),
        (["a/A tool, äöü/1", "b/x"], ["A tool, äöü/1", "x"]),
        (["a/x", "b/x", "c/a_x"], ["a_x", "b_x", "c_a_x"]),
        (["a/x", "b/x", "a/a_x"], ["a_x", "b_x", "a_a_x"]),
    ],
)
def test_an_id_is_the_tools_name_prefixed_by_the_source_if_names_collide(
    places: list[str], ids: list[str]
) -> None:
    split = [(place.partition("/")[0], place.partition("/")[2]) for place in places]
    assert list(skill_ids(split).values()) == ids
    backwards = skill_ids(reversed(split))
    assert [backwards[place] for place in split] == ids


@given(st.lists(st.tuples(st.sampled_from("ab_"), st.text("ab_", max_size=4)), unique=True, max_size=12))
def test_no_two_tools_have_the_same_id(places: list[tuple[str, str]]) -> None:
    ids = skill_ids(places)
    assert len(set(ids.values())) == len(ids) == len(places)


@pytest.mark.proves("map-overrides")
def test_configured_tags_are_added_and_configured_examples_replace() -> None:
    said = SkillOverride(tags=("mine", "read-only"), examples=("Say hello",))
    listed = {"annotations": {"readOnlyHint": True}}
    skill = skill_from(tool("t", listed=listed), "t", "key", said)
    assert (skill.tags, skill.examples) == (("key", "read-only", "mine"), ("Say hello",))
