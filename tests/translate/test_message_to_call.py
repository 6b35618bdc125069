"""Which tool a message means: each rule, the order of the rules, and cases where no rule may guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.a2a.model.objects import Message, Part
from bridge.translate.extensions.bridge import ARGUMENTS, SKILL
from bridge.translate.message_to_call import (
    RouteRules,
    SkillCall,
    UnclearCall,
    answer_in,
    call_from_message,
    skill_asked_for_in,
    skill_named_in,
)
from bridge.translate.skills import skill_from
from tests.support.tools import skills, tool

pytestmark = pytest.mark.proves("map-route")

KEYS = ("skillId", "skill_id", "skill", "toolName", "tool")
RULES = RouteRules(KEYS)
ECHO = tool("echo", "text", text={"type": "string"}, times={"type": "integer"})
ADD = tool("add", "a b", a={"type": "number"}, b={"type": "number"})
NONE = tool("now")
SET = tool("set", config={"type": "object"}, list={"type": "array"}, on={"type": "boolean"})
UPLOAD = tool("upload", "file", file={"type": "string", "contentEncoding": "base64"})
ALL = skills(ECHO, ADD, NONE, UPLOAD, SET)


def part(value: Any) -> Part:
    return Part(text=value) if isinstance(value, str) else Part.model_validate(value)


def message(*parts: Any, metadata: Any = None) -> Message:
    return Message(
        message_id="m", role="ROLE_USER", parts=tuple(part(one) for one in parts), metadata=metadata
    )


def data(value: Any) -> dict[str, Any]:
    return {"data": value}


RULE_1: list[tuple[Any, Any]] = [
    ({"skill": "add", "arguments": {"a": 1}}, SkillCall("add", {"a": 1})),
    ({"tool": "add", "arguments": {"a": 1}}, SkillCall("add", {"a": 1})),
    ({"skill": "now"}, SkillCall("now", {})),
    ({"skill": "gone", "arguments": {}}, UnclearCall("gone")),
    ({"skill": "add", "tool": "add"}, UnclearCall()),
    ({"skill": "add", "arguments": [1, 2]}, UnclearCall()),
    ({"skill": "add", "arguments": {}, "more": 1}, UnclearCall()),
    ({"skill": 7}, UnclearCall()),
    ({"arguments": {"a": 1}}, UnclearCall()),
    ([{"skill": "add"}], UnclearCall()),
    (None, UnclearCall()),
]


@pytest.mark.proves("map-route")
@pytest.mark.parametrize(("value", "found"), RULE_1)
def test_rule_1_a_data_part_names_the_skill_by_its_exact_form(value: Any, found: Any) -> None:
    assert call_from_message(message(data(value)), {}, ALL, RULES) == found


RULE_2: list[tuple[Any, list[Any], Any]] = [
    ({SKILL: "add"}, [data({"a": 1}), data({"b": 2})], SkillCall("add", {"a": 1, "b": 2})),
    ({"skillId": "add"}, ['{"a": 1, "b": 2}'], SkillCall("add", {"a": 1, "b": 2})),
    ({"skill_id": "add"}, ["a=1 b=2.5"], SkillCall("add", {"a": 1, "b": 2.5})),
    ({"skill": "echo"}, ["say this"], SkillCall("echo", {"text": "say this"})),
    ({"toolName": "echo"}, ['{"arguments": {"text": "x"}}'], SkillCall("echo", {"text": "x"})),
    ({"tool": "now"}, ["please"], SkillCall("now", {})),
    ({"tool": "add"}, ["one and two"], SkillCall("add", {})),
    ({SKILL: "add", ARGUMENTS: {"a": 3}}, ["echo hello"], SkillCall("add", {"a": 3})),
    ({SKILL: "gone"}, ["x"], UnclearCall("gone")),
    ({SKILL: "", "skillId": 5, "tool": "now"}, ["x"], SkillCall("now", {})),
    ({"unheard": "echo"}, ["x"], UnclearCall()),
]


@pytest.mark.proves("map-route")
@pytest.mark.parametrize(("metadata", "parts", "found"), RULE_2)
def test_rule_2_metadata_names_the_skill(metadata: Any, parts: list[Any], found: Any) -> None:
    assert call_from_message(message(*parts, metadata=metadata), {}, ALL, RULES) == found
    assert call_from_message(message(*parts), metadata, ALL, RULES) == found


def test_metadata_keys_count_in_their_order_and_the_messages_own_before_the_requests() -> None:
    keys = (SKILL, *KEYS)
    for place, key in enumerate(keys):
        metadata = dict.fromkeys(keys[place:], "echo") | {key: "now"}
        assert call_from_message(message("x", metadata=metadata), {}, ALL, RULES) == SkillCall("now", {})
    said = message("x", metadata={SKILL: "now"})
    assert call_from_message(said, {SKILL: "echo"}, ALL, RULES) == SkillCall("now", {})


RULE_3: list[tuple[str, Any]] = [
    ('{"skill": "add", "arguments": {"a": 1}}', SkillCall("add", {"a": 1})),
    ('add {"a": 1, "b": 2}', SkillCall("add", {"a": 1, "b": 2})),
    ('add\n{"a": 1, "b": 2}', SkillCall("add", {"a": 1, "b": 2})),
    ("add a=1 b=-2", SkillCall("add", {"a": 1, "b": -2})),
    ("echo text='two words' times=3", SkillCall("echo", {"text": "two words", "times": 3})),
    ("echo text=a=b", SkillCall("echo", {"text": "a=b"})),
    ("echo text=", SkillCall("echo", {"text": ""})),
    ('set config={"a":1} list=["q"]', SkillCall("set", {"config": {"a": 1}, "list": ["q"]})),
    (
        'set config={"a": "b c", "d": [1, 2]} on=true',
        SkillCall("set", {"config": {"a": "b c", "d": [1, 2]}, "on": True}),
    ),
    (
        'set\n config={"it\'s": "\\"x\\""}\n list=[]',
        SkillCall("set", {"config": {"it's": '"x"'}, "list": []}),
    ),
    ("set config='{\"a\": 1}' list='[\"q\"]'", SkillCall("set", {"config": {"a": 1}, "list": ["q"]})),
    ('echo text={"a":1}', SkillCall("echo", {"text": '{"a":1}'})),
    ('echo text=["q"] times=2', SkillCall("echo", {"text": '["q"]', "times": 2})),
    ("echo text=[x]", SkillCall("echo", {"text": "[x]"})),
    ('echo text={"a":1}b', SkillCall("echo", {"text": "{a:1}b"})),
    ("echo text={open", SkillCall("echo", {"text": "{open"})),
    ('echo text="#1 {a}"', SkillCall("echo", {"text": "#1 {a}"})),
    ('set config={"a":1} more', UnclearCall()),
    ("set list=" + "[" * 5000, SkillCall("set", {"list": "[" * 5000})),
    ("  now  ", SkillCall("now", {})),
    ("echo hello", UnclearCall()),
    ("echo colour=red", UnclearCall()),
    ("echo text='open", UnclearCall()),
    ("Echo text=x", UnclearCall()),
    ("nobody a=1", UnclearCall()),
    ('{"a": 1}', UnclearCall()),
    ('{"skill": "add"', UnclearCall()),
    ('{"skill": "add", "arguments": {"a": NaN}}', UnclearCall()),
    ('{"a":' * 5000, UnclearCall()),
    ("", UnclearCall()),
]


@pytest.mark.proves("map-route")
@pytest.mark.parametrize(("text", "found"), RULE_3)
def test_rule_3_text_calls_by_name(text: str, found: Any) -> None:
    assert call_from_message(message(text), {}, ALL, RULES) == found


OTHERS = (  # google-adk 2.13.0, RemoteA2aAgent as a sub-agent: what it sends beside the user's words
    "For context: below is a transcript of what another agent did, quoted between <<<BEGIN_QUOTED_AGENT_CONTENT>>> and"
    " <<<END_QUOTED_AGENT_CONTENT>>>.",
    "[root] called tool `transfer_to_agent` with parameters:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n"
    "{'agent_name': 'tools'}\n<<<END_QUOTED_AGENT_CONTENT>>>",
)
FORM = '{"skill": "add", "arguments": {"a": 1, "b": 2}}'

PARTS: list[tuple[Any, list[Any], Any]] = [
    (None, ["add a=1 b=2", *OTHERS], SkillCall("add", {"a": 1, "b": 2})),
    (None, [*OTHERS, FORM, *OTHERS], SkillCall("add", {"a": 1, "b": 2})),
    (None, ["now", *OTHERS], SkillCall("now", {})),
    (None, ["hello", *OTHERS], UnclearCall()),
    (None, ["add", '{"a": 1, "b": 2}'], SkillCall("add", {"a": 1, "b": 2})),
    (None, ["add a=1", "b=2"], SkillCall("add", {"a": 1, "b": 2})),
    (None, [FORM, "add a=1 b=2"], SkillCall("add", {"a": 1, "b": 2})),
    (None, [FORM, "echo text=hi"], UnclearCall(several=("add", "echo"))),
    (None, ["add", '{"skill": "echo"}'], UnclearCall(several=("add", "echo"))),
    (None, ["add a=1 b=2", "add a=2 b=2"], UnclearCall(several=("add",))),
    (None, ["add a=1 b=2", "add a=true b=2"], UnclearCall(several=("add",))),
    (None, [FORM, '{"skill": "gone"}'], UnclearCall(several=("add", "gone"))),
    (None, [data({"skill": "add"}), data({"tool": "now"})], UnclearCall(several=("add", "now"))),
    (None, [data({"skill": "now"}), data({"tool": "now"})], SkillCall("now", {})),
    ({SKILL: "add"}, [*OTHERS, "a=1 b=2"], SkillCall("add", {"a": 1, "b": 2})),
    ({"skillId": "add"}, [*OTHERS, '{"a": 1}', "b=2"], SkillCall("add", {"a": 1, "b": 2})),
    ({"skillId": "add"}, ['{"a": 1}', '{"colour": "red"}'], SkillCall("add", {"a": 1})),
    ({"skillId": "echo"}, ["say", "this"], SkillCall("echo", {"text": "say\nthis"})),
]


@pytest.mark.proves("map-route")
@pytest.mark.parametrize(("metadata", "parts", "found"), PARTS)
def test_each_text_part_is_read_alone_and_two_calls_in_one_message_are_asked_about(
    metadata: Any, parts: list[Any], found: Any
) -> None:
    assert call_from_message(message(*parts, metadata=metadata), {}, ALL, RULES) == found


def test_an_answer_that_names_two_skills_names_neither() -> None:
    both = message(data({"skill": "add"}), data({"skill": "now"}))
    assert skill_named_in(both) == UnclearCall(several=("add", "now"))
    assert skill_asked_for_in(message("add", "now"), ALL, RULES) == UnclearCall(several=("add", "now"))


RULE_4_5: list[tuple[Any, RouteRules, list[Any], Any]] = [
    (skills(ECHO), RULES, ["hello there"], SkillCall("echo", {"text": "hello there"})),
    (skills(ECHO), RULES, ["one", "two"], SkillCall("echo", {"text": "one\ntwo"})),
    (skills(ECHO), RULES, ["text=hi times=2"], SkillCall("echo", {"text": "hi", "times": 2})),
    (skills(ECHO), RULES, [data({"text": "d"}), "said beside it"], SkillCall("echo", {"text": "d"})),
    (skills(ADD), RULES, ["three"], SkillCall("add", {})),
    (skills(ADD), RULES, [data([1, 2])], SkillCall("add", {})),
    (ALL, RouteRules(KEYS, "echo"), ["hello"], SkillCall("echo", {"text": "hello"})),
    (ALL, RouteRules(KEYS, "add", {"add": "a"}), ["hello"], SkillCall("add", {"a": "hello"})),
    (ALL, RouteRules(KEYS, "gone"), ["hello"], UnclearCall("gone")),
    (skills(), RULES, ["hello"], UnclearCall()),
    (
        skills(tool("two", "a b", a={"type": "string"}, b={"type": "string"})),
        RULES,
        ["x"],
        SkillCall("two", {}),
    ),
    (skills(tool("may", a={"type": "string"})), RULES, ["x"], SkillCall("may", {})),
    (
        skills(tool("may", a={"type": "string"})),
        RouteRules(KEYS, None, {"may": "a"}),
        ["x"],
        SkillCall("may", {"a": "x"}),
    ),
]


@pytest.mark.proves("map-route")
@pytest.mark.parametrize(("known", "rules", "parts", "found"), RULE_4_5)
def test_rules_4_and_5_the_only_or_default_skill_takes_plain_text(
    known: Any, rules: RouteRules, parts: list[Any], found: Any
) -> None:
    assert call_from_message(message(*parts), {}, known, rules) == found


@pytest.mark.proves("map-route")
def test_an_earlier_rule_wins_over_a_later_one() -> None:
    form, rules = data({"skill": "add"}), RouteRules(KEYS, "upload")
    ours = message(form, "now", metadata={SKILL: "echo", "skillId": "upload"})
    assert call_from_message(ours, {}, ALL, rules) == SkillCall("echo", {"skill": "add"})
    theirs = message(form, "now", metadata={"skillId": "upload"})
    assert call_from_message(theirs, {}, ALL, rules) == SkillCall("add", {})
    assert call_from_message(message("now", metadata={SKILL: "echo"}), {}, ALL, rules) == SkillCall(
        "echo", {"text": "now"}
    )
    assert call_from_message(message("now"), {}, ALL, rules) == SkillCall("now", {})
    assert call_from_message(message("else"), {}, ALL, rules) == SkillCall("upload", {"file": "else"})


@pytest.mark.proves("map-files")
def test_files_become_arguments_and_files_that_fit_no_property_are_returned() -> None:
    file, link = {"raw": "AAAA", "mediaType": "image/png"}, {"url": "https://example.com/x"}
    assert call_from_message(message("upload", file, link), {}, ALL, RULES) == SkillCall(
        "upload", {"file": "AAAA"}, (part(link),)
    )


def test_a_very_long_text_is_not_split_into_pairs() -> None:
    text = "text=" + "a b " * 1_000_000
    assert call_from_message(message(text), {}, skills(ECHO), RULES) == SkillCall("echo", {"text": text})


@pytest.mark.proves("map-skill")
@pytest.mark.parametrize("called", ALL.values(), ids=lambda one: one.name)
def test_the_examples_on_the_card_call_their_skill(called: Any) -> None:
    for example in skill_from(called, called.name, "key").examples or ():
        for parts in ([example], [data(json.loads(example))] if example.startswith("{") else [example]):
            found = call_from_message(message(*parts), {}, ALL, RULES)
            assert isinstance(found, SkillCall)
            assert found.skill_id == called.name
            assert called.validator.is_valid(found.arguments)


DEEP = tool("deep", "config n", config={"type": "object"}, n={"type": "integer"}, text={"type": "string"})
WRAPPED = tool("wrapped", "arguments", arguments={"type": "object"}, tool={"type": "string"})

ANSWERS: list[tuple[Any, tuple[str, ...], list[Any], Any]] = [
    (DEEP, ("n",), ["5"], {"n": "5"}),
    (DEEP, ("n",), ["n=5"], {"n": 5}),
    (DEEP, ("n",), ['{"n": 5, "text": "x"}'], {"n": 5, "text": "x"}),
    (DEEP, ("config",), ['{"x": 1}'], {"config": '{"x": 1}'}),
    (DEEP, ("config", "n"), ['{"x": 1}'], {"x": 1}),
    (DEEP, ("config", "n"), ["five, and none"], {}),
    (DEEP, ("text",), ["no"], {"text": "no"}),
    (DEEP, ("text",), ["no", "5"], {"text": "no\n5"}),
    (DEEP, ("n",), ["For context: 7 seats", "5"], {"n": "5"}),
    (DEEP, ("n",), ["7", "5"], {"n": "7\n5"}),
    (DEEP, ("config",), ["For context: [1]", '{"x": 1}'], {"config": '{"x": 1}'}),
    (DEEP, ("config", "n"), ["For context: [1]", "5"], {}),
    (DEEP, ("n",), [data({"n": 5}), "there you are"], {"n": 5}),
    (DEEP, ("n",), [data({"skill": "deep", "arguments": {"n": 5}})], {"n": 5}),
    (DEEP, ("n",), [data({"arguments": {"n": 5}})], {"n": 5}),
    (DEEP, ("n",), [data({}), "ok"], {}),
    (DEEP, ("n",), [data({"n": 1}), data({"n": 2})], {"n": 2}),
    (WRAPPED, ("arguments",), [data({"arguments": {"x": 1}})], {"arguments": {"x": 1}}),
    (WRAPPED, ("tool",), [data({"tool": "hammer"})], {"tool": "hammer"}),
    (DEEP, ("n",), [{"url": "https://example.com"}], {}),
]


@pytest.mark.proves("map-arguments")
@pytest.mark.parametrize(("asked", "fields", "parts", "given"), ANSWERS)
def test_data_answers_any_fields_and_text_only_the_requested_field(
    asked: Any, fields: tuple[str, ...], parts: list[Any], given: Any
) -> None:
    assert answer_in(message(*parts).parts, asked, fields) == given
