"""Names of tools: valid for every host, unique, and independent of the order."""

from __future__ import annotations

import random
import re

import pytest

from bridge.translate.tool_names import RESERVED, ToolToName, slug, tool_names

pytestmark = pytest.mark.proves("map-tool-names")


def names(*tools: ToolToName, always_prefixed: bool = False) -> list[str]:
    found = tool_names(tools, always_prefixed=always_prefixed)
    return [found[tool] for tool in tools]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("get-weather", "get_weather"),
        ("Get  Weather!", "get_weather"),
        ("Überprüfung", "uberprufung"),
        ("web.search/v2", "web_search_v2"),
        ("2fast", "skill_2fast"),
        ("天気", "skill"),
        ("", "skill"),
    ],
)
def test_a_name_has_only_characters_that_all_hosts_accept(text: str, expected: str) -> None:
    assert slug(text) == expected


@pytest.mark.parametrize("exact", ["getWeather", "get-weather", "A" * 64, "1st"])
def test_the_original_name_of_a_tool_is_kept(exact: str) -> None:
    assert names(ToolToName("src", exact, exact)) == [exact]


@pytest.mark.parametrize(
    ("skill_id", "expected"),
    [
        ("7c5865b5-0e10-5c5f-8442-9225c0215d23", "plan_a_trip"),
        ("7c5865b5-0e10-5c5f-8442-9225c0215d23-main", "plan_a_trip"),
        ("skill_7C5865B50E105C5F84429225C0215D23", "plan_a_trip"),
        ("trip-planner", "trip_planner"),
        ("7c5865b5-0e10", "skill_7c5865b5_0e10"),
    ],
)
def test_a_skill_whose_id_is_a_uuid_is_named_after_its_name(skill_id: str, expected: str) -> None:
    assert names(ToolToName("src", skill_id, title="Plan a trip")) == [expected]


def test_skills_with_the_same_name_and_uuids_as_ids_get_different_names() -> None:
    one, two, three = (f"7c5865b5-0e10-5c5f-8442-9225c0215d2{end}" for end in "123")
    found = names(
        ToolToName("a", one, title="Trip"),
        ToolToName("a", two, title="Trip"),
        ToolToName("b", three, title="Trip"),
    )
    assert found[2] == "b_trip"
    assert all(re.fullmatch("a_trip_[0-9a-f]{8}", name) for name in found[:2])
    assert found[0] != found[1]


@pytest.mark.parametrize("exact", ["web.search", "a b", "a\n", "é", "A" * 65])
def test_a_name_that_hosts_refuse_is_replaced(exact: str) -> None:
    (name,) = names(ToolToName("src", exact, exact))
    assert re.fullmatch(r"[a-z0-9_]{1,40}", name)


def test_names_that_collide_are_all_prefixed_by_their_source() -> None:
    one, two, alone = ToolToName("a", "search", "search"), ToolToName("b", "search"), ToolToName("a", "other")
    assert names(one, two, alone) == ["a_search", "b_search", "other"]


def test_names_that_still_collide_end_with_a_hash() -> None:
    found = names(
        ToolToName("a", "b.c"), ToolToName("a", "b c"), ToolToName("a_b", "c"), ToolToName("x", "c")
    )
    assert len(set(found)) == 4
    assert all(name.startswith("a_b_c_") for name in found[:3])
    assert found[3] == "x_c"


def test_the_names_of_the_bridges_own_tools_are_reserved() -> None:
    assert {name for key in sorted(RESERVED) for name in names(ToolToName("s", key, key))} == {
        f"s_{key}" for key in RESERVED
    }


def test_a_long_name_is_cut_and_ends_with_a_hash() -> None:
    long, longer = names(ToolToName("a", "x" * 50), ToolToName("a", "x" * 51))
    assert long != longer
    assert re.fullmatch(r"x{31}_[0-9a-f]{8}", long)


def test_prefixed_names_do_not_depend_on_other_tools() -> None:
    (alone,) = names(ToolToName("a", "search", "search"), always_prefixed=True)
    assert names(ToolToName("a", "search", "search"), ToolToName("b", "search"), always_prefixed=True) == [
        alone,
        "b_search",
    ]
    assert alone == "a_search"


WORDS = [
    "",
    "a",
    "b",
    "a_b",
    "a b",
    "a.b",
    "A",
    "task_result",
    "x" * 45,
    "x" * 46,
    "天",
    "é",
    "e",
    "1",
    "a-b",
    "a_a",
]


@pytest.mark.parametrize("always_prefixed", [False, True])
def test_names_are_valid_unique_and_the_same_in_any_order(always_prefixed: bool) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        drawn = {
            ToolToName(chance.choice(WORDS), chance.choice(WORDS), chance.choice([None, *WORDS]))
            for _ in range(chance.randrange(1, 40))
        }
        tools = list({(tool.source_key, tool.skill_id): tool for tool in sorted(drawn, key=repr)}.values())
        found = tool_names(tools, always_prefixed=always_prefixed)
        assert len(set(found.values())) == len(tools), seed
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found.values()), seed
        assert not RESERVED & set(found.values()), seed
        chance.shuffle(tools)
        assert tool_names(tools, always_prefixed=always_prefixed) == found, seed
