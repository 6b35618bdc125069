"""Rules and rights hold for the same tools, whichever servers are known: (configuration, who is known, what must not be
served). The servers `a` and `b` are those of the agent; a server that is not known was never reached."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.identity.callers.principals import Principal
from bridge.tools_as_agent.skills import Skills, skill_remarks, skills_of
from bridge.translate.overrides import ArgumentRule, SkillOverride
from tests.support.tools import options_with, tool

pytestmark = pytest.mark.proves("map-rules-hold")

HIDDEN, SHOWN = SkillOverride(hidden=True), SkillOverride(hidden=False)
CONFIRM, FREE = SkillOverride(confirm=True), SkillOverride(confirm=False)
SERVERS = {"a": ("read", "delete"), "b": ("read", "delete", "list")}
LIKE = {"a": ("b_c", "x"), "a_b": ("c", "y")}
"""Servers with two tools that have one qualified name."""


def skills(
    overrides: Any, known: str, servers: Any = SERVERS, before: Skills | None = None, **tools: Any
) -> Skills:
    """The skills while these servers are known, some with other tools than usual."""
    names = known.split()
    listed = [(key, tool(name, text={})) for key in names for name in tools.get(key, servers[key])]
    return skills_of(listed, overrides, before, unknown=[key for key in servers if key not in names])


def served(found: Skills) -> set[str]:
    return {"/".join(skill.key) for skill in found.skills}


@pytest.mark.parametrize("known", ["a", "b", "a b"])
@pytest.mark.parametrize(
    ("overrides", "never"),
    [
        ({"a_delete": HIDDEN, "b_delete": HIDDEN}, {"a/delete", "b/delete"}),
        ({"b_delete": HIDDEN}, {"b/delete"}),
        ({"delete": HIDDEN}, {"a/delete", "b/delete"}),
        ({"*_delete": HIDDEN}, {"a/delete", "b/delete"}),
        ({"b_*": HIDDEN}, {"b/read", "b/delete", "b/list"}),
        ({"[ab]_delete": HIDDEN}, {"a/delete", "b/delete"}),
        ({"*": SHOWN, "b_delete": HIDDEN}, {"b/delete"}),
        ({"b_*": HIDDEN, "*": SkillOverride(tags=("all",))}, {"b/read", "b/delete", "b/list"}),
        ({"b_delete": HIDDEN, "delete": SHOWN}, {"b/delete"}),
        ({"b_delete": replace(HIDDEN, id="remove")}, {"b/delete"}),
        ({"b_*": HIDDEN, "b_delete": SkillOverride(id="remove")}, {"b/read", "b/delete", "b/list"}),
    ],
)
def test_a_hidden_tool_is_hidden_whichever_others_are_known(
    overrides: Any, known: str, never: set[str]
) -> None:
    assert not served(skills(overrides, known)) & never


@pytest.mark.parametrize("known", ["a", "b", "a b"])
@pytest.mark.parametrize(
    ("overrides", "asked"),
    [
        ({"b_delete": CONFIRM}, {"b/delete"}),
        ({"*_delete": CONFIRM}, {"a/delete", "b/delete"}),
        ({"b_delete": CONFIRM, "*": FREE}, {"b/delete"}),
        ({"b_delete": CONFIRM, "delete": FREE}, {"b/delete"}),
    ],
)
def test_a_confirmed_tool_is_confirmed_whichever_servers_are_known(
    overrides: Any, known: str, asked: set[str]
) -> None:
    found = skills(overrides, known)
    confirmed = {"/".join(one.key) for one in found.skills if one.override.confirm}
    assert confirmed == asked & served(found)


@pytest.mark.parametrize("known", ["b", "a b"])
def test_every_key_of_a_rule_applies_by_the_qualified_name(known: str) -> None:
    text = ArgumentRule(default="x", hidden=True)
    rules = {"b_delete": SkillOverride(id="remove", public=False, arguments={"text": text})}
    skill = skills(rules, known).by_key["b", "delete"]
    assert skill.id == "remove"
    assert skill.override.public is False
    assert skill.override.arguments == {"text": text}


@pytest.mark.parametrize(
    ("overrides", "known", "there"),
    [
        # A name that is exactly SERVER_TOOL gives, and so does a tool's own name. A glob gives by what is shown.
        ({"*": HIDDEN, "b_delete": SHOWN}, "b", {"b/delete"}),
        ({"*": HIDDEN, "b_delete": SHOWN}, "a b", {"b/delete"}),
        ({"*": HIDDEN, "delete": SHOWN}, "b", {"b/delete"}),
        ({"*": HIDDEN, "delete": SHOWN}, "a b", {"a/delete", "b/delete"}),
        ({"*": HIDDEN, "b_*": SHOWN}, "b", set()),
        ({"*": HIDDEN, "b_*": SHOWN}, "a b", {"b/read", "b/delete"}),
    ],
)
def test_a_rule_lifts_restrictions_only_for_the_tools_that_it_names(
    overrides: Any, known: str, there: set[str]
) -> None:
    assert served(skills(overrides, known)) == there


@pytest.mark.parametrize("known", ["a", "a_b", "a a_b"])
def test_a_rule_for_a_name_of_two_tools_hides_both_and_lifts_nothing(known: str) -> None:
    assert not served(skills({"a_b_c": HIDDEN}, known, LIKE)) & {"a/b_c", "a_b/c"}
    if known != "a":  # `a` has a tool `b_c`, whether that is known or not
        assert "a_b/c" not in served(skills({"*": HIDDEN, "a_b_c": SHOWN}, known, LIKE))
        usable = skills({}, known, LIKE).usable_by(Principal("eve", skills=("a_b_c",)))
        assert "a_b/c" not in served(usable)


@pytest.mark.parametrize(
    ("globs", "known", "usable"),
    [
        # What callers see of `delete` while `a` is not known may be `b_delete` once it is.
        (["delete"], "b", set()),
        (["delete"], "a", set()),
        (["delete"], "a b", set()),
        (["d*"], "b", set()),
        (["delete", "a_delete"], "b", set()),
        (["a_delete"], "b", set()),
        (["a_*"], "b", set()),
        (["b_delete"], "b", {"b/delete"}),
        (["b_delete"], "a b", {"b/delete"}),
        (["b_list"], "a b", {"b/list"}),
        (["*delete*"], "b", {"b/delete"}),
        (["delete", "*_delete"], "b", {"b/delete"}),
        (["b_*"], "b", set()),
        (["b_*"], "a b", {"b/read", "b/delete"}),
        (["list"], "b", set()),
        (["list"], "a b", {"b/list"}),
        (["*"], "b", {"b/read", "b/delete", "b/list"}),
    ],
)
def test_a_right_applies_to_every_name_that_a_tool_may_get(
    globs: list[str], known: str, usable: set[str]
) -> None:
    found = skills({}, known)
    eve = Principal("eve", skills=tuple(globs))
    assert served(found.usable_by(eve)) == usable
    assert served(found.seen_by(eve)) == usable
    scoped = Principal("eve", skills=(), scopes=(("scope", tuple(globs)),))
    assert served(found.seen_by(scoped)) == usable
    assert found.usable_by(scoped).skills == ()


@pytest.mark.parametrize(("known", "usable"), [("b", False), ("a b", True)])
def test_a_right_by_a_configured_id_waits_since_another_tool_may_get_that_name(
    known: str, usable: bool
) -> None:
    found = skills({"b_delete": SkillOverride(id="remove")}, known)
    assert (("b", "delete") in found.usable_by(Principal("eve", skills=("remove",))).by_key) is usable
    taken = skills({"b_delete": SkillOverride(id="remove")}, "a b", a=("remove",))
    assert served(taken.usable_by(Principal("eve", skills=("remove",)))) == {"a/remove"}


def test_an_agent_of_one_server_waits_for_no_other_server() -> None:
    only = {"b": SERVERS["b"]}
    assert served(skills({}, "b", only).usable_by(Principal("eve", skills=("delete",)))) == {"b/delete"}


def test_rules_stay_in_force_while_servers_with_other_tools_come_up() -> None:
    """A skill of an earlier time, which is taken over where nothing changed, has the rules and rights of now."""
    rules, eve = {"a_delete": HIDDEN, "b_delete": HIDDEN}, Principal("eve", skills=("list", "read"))
    before, times = None, (("b", {}), ("a b", {}), ("a b", {"a": ("list",)}), ("a b", {"a": ()}), ("a", {}))
    expected: list[set[str]] = [set(), {"b/list"}, {"b/read"}, {"b/list", "b/read"}, set()]
    for (known, tools), usable in zip(times, expected, strict=True):
        before = skills(rules, known, SERVERS, before, **tools)
        assert not served(before) & {"a/delete", "b/delete"}
        assert served(before.usable_by(eve)) == usable


def test_no_glob_matches_the_hash_in_a_name() -> None:
    servers = {"b": tuple(f"t{number}" for number in range(40))}
    rules = {f"*{digit}": HIDDEN for digit in "abcdef"}
    assert len(skills(rules, "b", servers).skills) == 40


def test_the_default_skill_is_always_the_tool_that_was_meant() -> None:
    for known, name, key in (
        ("b", "delete", None),
        ("b", "b_delete", ("b", "delete")),
        ("a b", "b_delete", ("b", "delete")),
        ("a b", "list", ("b", "list")),
        ("a b", "delete", None),
    ):
        found = skills({}, known).named(name)
        assert (found and found.key) == key


def test_a_rule_that_matches_a_name_that_is_not_shown_gets_no_remark() -> None:
    rules = {"b_list": HIDDEN, "b_l*": HIDDEN, "c_list": HIDDEN}
    found = skill_remarks(skills(rules, "a b"), options_with(), rules, are_known=True)
    assert [str(one) for one in found] == ["skills.c_list: there is no such tool"]


_NAMES = ["read", "delete", "a_delete", "b", "x_b"]
_PATTERNS = ["delete", "a_delete", "b_delete", "a_*", "b_*", "*delete", "*_b", "a_b", "b_b", "b"]


@given(
    st.dictionaries(st.sampled_from(["a", "b", "a_b"]), st.lists(st.sampled_from(_NAMES), unique=True)),
    st.dictionaries(st.sampled_from(_PATTERNS), st.sampled_from([HIDDEN, CONFIRM, SkillOverride(id="new")])),
    st.lists(st.sampled_from(_PATTERNS), max_size=3),
)
@example({"a": ["read", "delete"], "b": ["read", "a_delete"]}, {}, ["a_delete"])
def test_unknown_servers_never_lift_a_restriction_that_holds_once_all_are_known(
    servers: Any, rules: Any, globs: list[str]
) -> None:
    """With any of the servers known, nothing is served, free, or usable that is not with all of them.

    One right is left out: SERVER_TOOL, if a tool of another server has just this name of its own. The right belongs to
    the tool that it names until that other tool is known, and then to the other tool, which is shown under the name.
    """
    eve = Principal("eve", skills=tuple(globs))
    every = list(servers)
    own_names = {name for names in servers.values() for name in names}
    whole = skills(rules, " ".join(every), servers)
    confirmed = {skill.key for skill in whole.skills if skill.override.confirm}
    for number in range(len(every) + 1):
        for known in combinations(every, number):
            found = skills(rules, " ".join(known), servers)
            assert found.by_key.keys() <= whole.by_key.keys()
            assert {one.key for one in found.skills if not one.override.confirm}.isdisjoint(confirmed)
            usable = {key for key in found.usable_by(eve).by_key if "_".join(key) not in own_names}
            assert usable <= whole.usable_by(eve).by_key.keys()
