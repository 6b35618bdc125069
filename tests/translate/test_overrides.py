"""Configured rules for skills and arguments: which rule applies, what callers see, and what is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mcp.schemas import validator_of
from bridge.translate.overrides import (
    ABSENT,
    ArgumentRule,
    RuleNames,
    SkillOverride,
    ToolOverride,
    declared_arguments,
    hidden_arguments_in,
    overridden,
    override_for,
    shown_schema,
    unmatched_patterns,
    with_default_arguments,
)
from tests.support.tools import tool

pytestmark = pytest.mark.proves("map-overrides")

A, B, C = (SkillOverride(name=name) for name in "abc")
STRING = {"type": "string"}
HIDDEN = ArgumentRule(hidden=True)


# Which rule counts


@pytest.mark.proves("map-overrides")
@pytest.mark.parametrize(
    ("rules", "names", "name"),
    [
        ({"x": A}, ("x",), "a"),
        ({"x": A}, ("y",), None),
        ({"x": A, "*": B}, ("x",), "a"),
        ({"*": B, "x": A}, ("x",), "a"),
        ({"x*": A, "*x": B}, ("xx",), "b"),
        ({"*x": B, "x*": A}, ("xx",), "a"),
        ({"X": A}, ("x",), None),
        ({"[xy]": A}, ("y",), "a"),
        ({"a?": A, "a?b": B}, ("a?",), "a"),
        ({"x": A, "s_x": B}, ("s_x", "x"), "b"),
        ({"s_x": B, "x": A}, ("s_x", "x"), "b"),
        ({"s_*": A, "x": B}, ("s_x", "x"), "b"),
        ({"s_*": A, "*": B}, ("s_x", "x"), "b"),
        ({"s_*": A}, ("s_x", "x"), "a"),
    ],
)
def test_an_exact_name_overrides_a_glob_and_a_later_glob_an_earlier_one(
    rules: Any, names: tuple[str, ...], name: str | None
) -> None:
    found = override_for(rules, RuleNames(names, frozenset(names)))
    assert (found and found.name) == name


@pytest.mark.proves("map-overrides")
def test_rules_that_match_are_merged_key_by_key() -> None:
    rules = {
        "delete_*": SkillOverride(hidden=True, confirm=True, tags=("danger",)),
        "*": SkillOverride(confirm=False, concurrency=2, tags=("all",)),
        "delete_note": SkillOverride(hidden=False, tags=("note",)),
    }
    assert override_for(rules, RuleNames(("delete_note",), frozenset({"delete_note"}))) == SkillOverride(
        hidden=False, confirm=False, concurrency=2, tags=("note",)
    )
    assert override_for(rules, RuleNames(("delete_all",), frozenset({"delete_all"}))) == SkillOverride(
        hidden=True, confirm=False, concurrency=2, tags=("all",)
    )


def test_arguments_merge_by_name_and_each_by_its_own_keys() -> None:
    rules = {
        "*": SkillOverride(
            arguments={"tenant": ArgumentRule(default="acme", hidden=True), "a": ArgumentRule(default=1)}
        ),
        "x": SkillOverride(
            arguments={"tenant": ArgumentRule(default=None), "b": ArgumentRule(description="B")}
        ),
    }
    found = override_for(rules, RuleNames(("x",), frozenset({"x"})))
    assert found is not None
    assert found.arguments == {
        "tenant": ArgumentRule(default=None, hidden=True),
        "a": ArgumentRule(default=1),
        "b": ArgumentRule(description="B"),
    }


def test_rules_for_tools_are_chosen_in_the_same_way() -> None:
    rules = {"*": ToolOverride(concurrency=1, title="T"), "x": ToolOverride(title="X")}
    assert override_for(rules, RuleNames(("x",), frozenset({"x"}))) == ToolOverride(concurrency=1, title="X")


def test_a_rule_that_matches_nothing_is_reported_for_names_and_globs() -> None:
    rules = {"a": A, "b": B, "a*": B, "[ab]": C, "a?": C, "*": A, "x*": A}
    assert unmatched_patterns(rules, [RuleNames((name,), frozenset({name})) for name in "ac"]) == {
        "a?": "it matches no tool",
        "b": "there is no such tool",
        "x*": "it matches no tool",
    }


# What is shown of arguments


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": STRING, "b": {**STRING, "description": "B"}, "c": {"type": "integer"}},
    "required": ["a", "b"],
}


def without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    properties = {name: prop for name, prop in schema["properties"].items() if name not in names}
    return {
        **schema,
        "properties": properties,
        "required": [name for name in schema["required"] if name in properties],
    }


@pytest.mark.proves("map-overrides", "map-hidden")
@pytest.mark.parametrize(
    ("schema", "rules", "shown"),
    [
        (SCHEMA, {}, SCHEMA),
        (SCHEMA, {"b": HIDDEN}, without(SCHEMA, "b")),
        (SCHEMA, {"b": ArgumentRule(default="x", hidden=True)}, without(SCHEMA, "b")),
        (SCHEMA, {"other": ArgumentRule(default=1, hidden=True)}, SCHEMA),
        (
            SCHEMA,
            {"b": ArgumentRule(default="x")},
            {
                **SCHEMA,
                "properties": {**SCHEMA["properties"], "b": {**STRING, "description": "B", "default": "x"}},
                "required": ["a"],
            },
        ),
        (
            SCHEMA,
            {"b": ArgumentRule(description="Better")},
            {**SCHEMA, "properties": {**SCHEMA["properties"], "b": {**STRING, "description": "Better"}}},
        ),
        (
            {**SCHEMA, "anyOf": [{"required": ["b"]}, {"required": ["c"], "properties": {"b": STRING}}]},
            {"b": HIDDEN},
            {
                **without(SCHEMA, "b"),
                "anyOf": [{"required": []}, {"required": ["c"], "properties": {}}],
            },
        ),
        (
            {**SCHEMA, "if": {"required": ["b"]}, "then": {"properties": {"b": STRING, "d": STRING}}},
            {"b": HIDDEN},
            {**without(SCHEMA, "b"), "if": {"required": ["b"]}, "then": {"properties": {"d": STRING}}},
        ),
        (
            {**SCHEMA, "dependentRequired": {"a": ["b", "c"], "b": ["c"]}},
            {"b": HIDDEN},
            {**without(SCHEMA, "b"), "dependentRequired": {"a": ["c"]}},
        ),
        (
            {**SCHEMA, "examples": [{"a": "1", "b": "secret"}], "default": {"b": "secret"}},
            {"b": HIDDEN},
            {**without(SCHEMA, "b"), "examples": [{"a": "1"}], "default": {}},
        ),
    ],
)
def test_callers_see_the_schema_with_its_rules_applied(schema: Any, rules: Any, shown: Any) -> None:
    before = repr(schema)
    assert shown_schema(schema, rules) == shown
    assert repr(schema) == before


def test_the_arguments_of_a_schema_include_those_in_conditional_subschemas() -> None:
    schema: Any = {**SCHEMA, "anyOf": [{"properties": {"d": STRING}}], "then": {"properties": {"e": STRING}}}
    assert declared_arguments(schema) == {"a", "b", "c", "d", "e"}


# What is sent


@pytest.mark.proves("map-overrides", "map-hidden")
@pytest.mark.parametrize(
    ("given", "rules", "sent"),
    [
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1"}, {"b": ArgumentRule(default="x")}, {"a": "1", "b": "x"}),
        ({"b": "mine"}, {"b": ArgumentRule(default="x")}, {"b": "mine"}),
        ({"b": None}, {"b": ArgumentRule(default="x")}, {"b": None}),
        ({"b": "mine"}, {"b": ArgumentRule(default="x", hidden=True)}, {"b": "x"}),
        ({"b": "mine"}, {"b": HIDDEN}, {}),
        ({}, {"c": ArgumentRule(default=None)}, {"c": None}),
        ({}, {"other": ArgumentRule(default="x")}, {}),
        ({"other": "mine"}, {"other": HIDDEN}, {}),
        ({"other": "mine"}, {"other": ArgumentRule(default="x")}, {"other": "mine"}),
        ({}, {"c": ArgumentRule(description="C")}, {}),
    ],
)
def test_the_server_gets_the_arguments_with_defaults(given: Any, rules: Any, sent: Any) -> None:
    assert with_default_arguments(given, SCHEMA, rules) == sent


@pytest.mark.proves("map-hidden")
def test_hidden_arguments_that_a_caller_sets_are_named() -> None:
    rules = {"b": HIDDEN, "c": ArgumentRule(default=1), "zz": HIDDEN}
    assert hidden_arguments_in({"a": "1", "b": "2", "c": 3, "zz": 4}, rules) == ("b", "zz")


NAMES = st.sampled_from("abcd")
RULES = st.dictionaries(
    NAMES,
    st.builds(
        ArgumentRule, default=st.sampled_from([ABSENT, "x", "y"]), hidden=st.sampled_from([None, True, False])
    ),
)


@pytest.mark.proves("map-hidden")
@given(st.dictionaries(NAMES, st.sampled_from(["x", "mine"])), RULES)
def test_a_caller_cannot_change_a_hidden_argument(arguments: Any, rules: Any) -> None:
    schema: Any = {"type": "object", "properties": dict.fromkeys("abc", STRING)}
    sent, unasked = (
        with_default_arguments(arguments, schema, rules),
        with_default_arguments({}, schema, rules),
    )
    for name, rule in rules.items():
        if rule.hidden:
            assert sent.get(name, ABSENT) == unasked.get(name, ABSENT)
            assert name not in shown_schema(schema, rules)["properties"]


@given(RULES)
def test_the_shown_schema_is_valid_and_accepts_the_sent_arguments(rules: Any) -> None:
    schema: Any = {"type": "object", "properties": dict.fromkeys("abc", STRING), "required": ["a", "b"]}
    shown = shown_schema(schema, rules)
    assert validator_of(shown).is_valid(dict.fromkeys(shown["required"], "x"))
    assert validator_of(shown).is_valid(with_default_arguments({"a": "x", "b": "x"}, schema, rules))


# The tool


@pytest.mark.proves("map-overrides")
def test_a_tool_without_rules_stays_the_same_object() -> None:
    one = tool("t", "a", a=STRING)
    said = SkillOverride(tags=("x",), hidden=False, concurrency=1, confirm=True)
    assert overridden(one, said) is one


@pytest.mark.proves("map-overrides")
def test_an_overridden_tool_looks_different_and_is_called_and_checked_as_before() -> None:
    one = tool("t", "a b", listed={"title": "T", "_meta": {"k": 1}}, a=STRING, b=STRING)
    said = SkillOverride(id="i", name="N", description="D", arguments={"b": HIDDEN})
    seen = overridden(one, said)
    schema = without(one.input_schema, "b")
    assert seen.listed == {**one.listed, "name": "i", "title": "N", "description": "D", "inputSchema": schema}
    assert seen.input_schema == schema
    assert seen.name == "t"
    assert seen.validator is one.validator
    assert overridden(one, replace(said, arguments={})).input_schema is one.input_schema
