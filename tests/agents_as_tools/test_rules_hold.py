"""Rules and rights hold for the same skills, whichever agents are known: (configuration, who is known, what must not be
served). The agents `painter` and `painter2` are those of the face; of one that is not known, no card was ever read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.agents_as_tools.tools import Tools, published_tools, tool_remarks
from bridge.identity.callers.principals import Principal
from bridge.translate.overrides import ToolOverride
from bridge.translate.skill_tools import ToolSource, tools_of_agents
from bridge.translate.tool_names import slug
from tests.support.limits import tool_rules
from tests.translate.test_skill_tools import card, skill

pytestmark = pytest.mark.proves("map-rules-hold")

HIDDEN, SHOWN = ToolOverride(hidden=True), ToolOverride(hidden=False)
AGENTS = ("painter", "painter2")
LONG = "paint the whole of a very long wall in many colours"


def tools(
    overrides: Any, known: str, unread: tuple[str, ...] = (), ids: tuple[str, ...] = ("paint",), **rules: Any
) -> Tools:
    sources = [ToolSource(key, card(*map(skill, ids), skill(f"only-{key}"))) for key in known.split()]
    found = tools_of_agents(sources, replace(tool_rules(), **rules))
    unknown = [key for key in AGENTS if key not in known.split()]
    return published_tools(found, overrides, (*unknown, *unread))


def served(found: Tools) -> set[str]:
    return {f"{one.agent_key}/{one.skill_id}" for one in found.published}


each_known = pytest.mark.parametrize("known", ["painter", "painter2", "painter painter2"])
each_rules = pytest.mark.parametrize(
    "rules", [{}, {"always_prefixed": True}, {"granularity": "search"}], ids=str
)


@each_known
@each_rules
@pytest.mark.parametrize(
    ("pattern", "never"),
    [
        ("painter2_paint", {"painter2/paint"}),
        ("painter_paint", {"painter/paint"}),
        ("paint", {"painter/paint", "painter2/paint"}),
        ("painter2_*", {"painter2/paint", "painter2/only-painter2"}),
        ("painter?_paint", {"painter2/paint"}),
        ("*_paint", {"painter/paint", "painter2/paint"}),
        ("only-painter", {"painter/only-painter"}),
        ("only_painter", {"painter/only-painter"}),
    ],
)
def test_a_hidden_tool_is_hidden_whichever_others_are_known(
    pattern: str, never: set[str], known: str, rules: Any
) -> None:
    assert not served(tools({pattern: HIDDEN}, known, **rules)) & never
    assert not served(tools({pattern: HIDDEN, "*": ToolOverride(title="All")}, known, **rules)) & never


@each_known
def test_an_agent_as_a_whole_is_hidden_by_any_of_its_names(known: str) -> None:
    for name in ("painter2", "painter2_painter2"):
        found = tools({name: HIDDEN}, known, granularity="agent")
        assert "painter2" not in {one.agent_key for one in found.published}


@each_known
def test_a_tool_with_a_long_name_is_hidden_whether_the_name_is_cut_or_not(known: str) -> None:
    whole = tools({}, "painter painter2", ids=(LONG,))
    shown = next(one.name for one in whole.published if one.key == ("painter2", LONG))
    for name in (shown, LONG, slug(LONG)[:20] + "*"):
        assert f"painter2/{LONG}" not in served(tools({name: HIDDEN}, known, ids=(LONG,)))


@pytest.mark.parametrize("known", ["painter2", "painter painter2"])
def test_a_tool_is_renamed_by_its_qualified_name(known: str) -> None:
    found = tools({"painter2_paint": ToolOverride(name="draw")}, known)
    assert found.by_name["draw"].key == ("painter2", "paint")


@pytest.mark.parametrize(
    ("pattern", "known", "there"),
    [
        ("painter2_paint", "painter2", {"painter2/paint"}),
        ("painter2_paint", "painter painter2", {"painter2/paint"}),
        ("painter2_*", "painter2", set()),
        ("painter2_*", "painter painter2", {"painter2/paint"}),
        ("paint", "painter2", {"painter2/paint"}),
    ],
)
def test_a_rule_lifts_restrictions_only_for_the_tools_that_it_names(
    pattern: str, known: str, there: set[str]
) -> None:
    assert served(tools({"*": HIDDEN, pattern: SHOWN}, known)) == there


@pytest.mark.parametrize(
    ("globs", "known", "unread", "usable"),
    [
        (["paint"], "painter2", (), set()),
        (["paint"], "painter painter2", (), set()),
        (["painter_paint"], "painter2", (), set()),
        (["painter_*"], "painter2", (), set()),
        (["painter2_paint"], "painter2", (), {"painter2/paint"}),
        (["painter2_paint"], "painter painter2", (), {"painter2/paint"}),
        (["paint*"], "painter2", (), {"painter2/paint"}),
        (["paint", "painter2_*"], "painter2", (), {"painter2/paint"}),
        (["only_painter"], "painter painter2", (), {"painter/only-painter"}),
        # The agents of a catalog that was never read may have any skill.
        (["only_painter"], "painter painter2", ("partner",), set()),
        (["painter_only_painter"], "painter painter2", ("partner",), {"painter/only-painter"}),
    ],
)
def test_a_right_applies_to_every_name_that_a_tool_may_get(
    globs: list[str], known: str, unread: tuple[str, ...], usable: set[str]
) -> None:
    eve = Principal("eve", skills=tuple(globs))
    found = tools({}, known, unread)
    assert {f"{one.agent_key}/{one.skill_id}" for one in found.published if eve.may_use(one.names)} == usable


def test_names_that_are_always_prefixed_do_not_wait_for_other_agents() -> None:
    eve = Principal("eve", skills=("painter2_paint*",))
    found = tools({}, "painter2", always_prefixed=True)
    assert [one.name for one in found.published if eve.may_use(one.names)] == ["painter2_paint"]


def test_a_rule_that_matches_a_name_that_is_not_shown_gets_no_remark() -> None:
    rules = {"painter_only_painter": HIDDEN, "painter3_paint": HIDDEN}
    found = tool_remarks(tools(rules, "painter painter2"), rules, are_known=True)
    assert [str(one) for one in found] == ["tools.painter3_paint: there is no such tool"]
