"""The skills of an agent: their ids, hidden tools, and configured rules without effect."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.tools_as_agent.skills import skill_remarks, skills_of
from bridge.translate.message_to_call import RouteRules
from bridge.translate.overrides import ArgumentRule, SkillOverride
from tests.support.tools import options_with, tool

pytestmark = pytest.mark.proves("map-overrides")

TEXT = {"type": "string"}
HIDDEN = SkillOverride(hidden=True)


def renamed(skill_id: str) -> SkillOverride:
    return SkillOverride(id=skill_id)


def listed(*places: str) -> list[tuple[str, Any]]:
    return [(place.partition("/")[0], tool(place.partition("/")[2], text=TEXT)) for place in places]


@pytest.mark.proves("map-overrides", "map-hidden")
@pytest.mark.parametrize(
    ("places", "overrides", "ids"),
    [
        (["a/x", "a/y"], {"x": renamed("z")}, ["z", "y"]),
        (["a/x", "a/y"], {"x": renamed("y"), "y": renamed("x")}, ["y", "x"]),
        (["a/x", "a/y"], {"x": renamed("y")}, ["x", "y"]),
        (["a/x", "a/y", "a/z"], {"x": renamed("y"), "z": renamed("x")}, ["x", "y", "z"]),
        (["a/x", "a/y"], {"*": renamed("one")}, ["x", "y"]),
        (["a/x", "a/y"], {"x": HIDDEN}, ["y"]),
        (["a/x", "a/y"], {"x": HIDDEN, "y": renamed("x")}, ["x"]),
        (["a/x", "b/x"], {"a_x": HIDDEN}, ["b_x"]),
        (["a/x", "b/x"], {"x": HIDDEN}, []),
        (["a/x", "b/x"], {"b_x": renamed("x")}, ["a_x", "x"]),
        (["a/x", "b/x"], {"x": HIDDEN, "b_x": SkillOverride(hidden=False)}, ["b_x"]),
    ],
)
def test_the_skills_and_their_ids(places: Any, overrides: Any, ids: list[str]) -> None:
    skills = skills_of(listed(*places), overrides)
    assert [skill.id for skill in skills.skills] == ids
    assert [skill.shown.id for skill in skills.skills] == ids
    assert [*skills.by_id] == [*skills.tools] == ids


def test_an_id_that_could_not_be_assigned_is_not_shown() -> None:
    skills = skills_of(listed("a/x", "a/y"), {"x": SkillOverride(id="y", name="X")})
    assert skills.tools["x"].listed["name"] == "x"
    assert skills.tools["x"].listed["title"] == "X"
    assert skills.refused_ids == {"x": "y"}


def test_unchanged_skills_are_reused() -> None:
    tools = listed("a/x", "b/y")
    before = skills_of(tools, {"x": SkillOverride(name="X")})
    after = skills_of([*tools, *listed("c/y")], {"*": SkillOverride(), "x": SkillOverride(name="X")}, before)
    assert [skill.id for skill in after.skills] == ["x", "b_y", "c_y"]
    assert after.skills[0] is before.skills[0]
    assert after.skills[1] is not before.skills[1]
    renamed_now = skills_of(tools, {"x": SkillOverride(name="Y")}, before)
    assert [new is old for new, old in zip(renamed_now.skills, before.skills, strict=True)] == [False, True]


def remarks(overrides: Any, *places: str, are_known: bool = True, **options: Any) -> list[str]:
    skills = skills_of(listed(*places) if places else [("a", ECHO)], overrides)
    return [
        str(one) for one in skill_remarks(skills, options_with(**options), overrides, are_known=are_known)
    ]


ECHO = tool("echo", "text", listed={"annotations": {"readOnlyHint": False}}, text=TEXT)


def arguments(name: str, rule: ArgumentRule) -> dict[str, SkillOverride]:
    return {"echo": SkillOverride(arguments={name: rule})}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"echo": SkillOverride(name="Echo")}, []),
        ({"eho": HIDDEN}, ["skills.eho: there is no such tool"]),
        ({"eh?": HIDDEN}, ["skills.eh?: it matches no tool"]),
        (arguments("text", ArgumentRule(default="x")), []),
        (arguments("text", ArgumentRule(default="x", hidden=True)), []),
        (
            arguments("txt", ArgumentRule(default="x")),
            ["skills.echo.arguments.txt: the tool has no such argument"],
        ),
        ({"*": SkillOverride(arguments={"tenant": ArgumentRule(default="x")})}, []),
        (
            arguments("text", ArgumentRule(default=1)),
            ["skills.echo.arguments.text.default: 1 is not of type 'string'"],
        ),
        (
            arguments("text", ArgumentRule(hidden=True)),
            [
                "skills.echo.arguments.text: it is hidden and required, and has no default, so that no call can succeed"
            ],
        ),
        (
            {"echo": SkillOverride(reply="message")},
            [
                "skills.echo.reply: its calls are tasks, since the server does not say that it only reads or can be"
                " repeated"
            ],
        ),
        ({"*": SkillOverride(reply="message")}, []),
        ({"echo": SkillOverride(text_into="text")}, []),
    ],
)
def test_configured_rules_without_effect_and_faults_get_remarks(overrides: Any, said: list[str]) -> None:
    assert remarks(overrides) == said


def test_a_rule_for_a_hidden_tool_has_an_effect() -> None:
    assert remarks({"x": HIDDEN}, "a/x", "a/y") == []
    assert remarks({"a_x": HIDDEN}, "a/x", "b/x") == []


def test_an_id_that_cannot_be_assigned_gets_a_remark() -> None:
    (said,) = remarks({"x": renamed("y")}, "a/x", "a/y")
    assert said == "skills.x.id: another skill has or wants the id 'y', so it stays 'x'"


def test_missing_tools_get_a_remark_once_every_server_has_listed_its_tools() -> None:
    route = RouteRules((), default_skill="no", text_into={"nor": "a"})
    overrides = {"eho": HIDDEN}
    assert remarks(overrides, are_known=False, route=route) == []
    assert remarks(overrides, route=route) == [
        "skills.eho: there is no such tool",
        "route.default_skill: there is no skill 'no'",
        "route.text_into: there is no skill 'nor'",
    ]
