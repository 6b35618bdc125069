"""Listings of agents with long cards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

import anyio
import httpx2
import pytest

from bridge.a2a.client.agent_card import FoundCard, card_from
from bridge.agents_as_tools.face import AgentsFace
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.tool_listing import FaceListing, Introduction, listing_of
from bridge.errors import PeerError
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import Seal
from bridge.text.jsonvalues import json_bytes
from tests.hostile.agent_cards import card_of
from tests.support.agent_faces import OPTIONS
from tests.support.limits import client_options, face_options

pytestmark = pytest.mark.proves("map-tools")

URL = "http://127.0.0.1:1/"


class Watched(tuple[Any, ...]):
    """Skills that count how often they are iterated."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).times += 1
        return super().__iter__()


class Remembered:
    """A card that was read in an earlier run."""

    def __init__(self, found: FoundCard) -> None:
        self.found = found

    is_settled = True

    def cached(self) -> FoundCard:
        return self.found

    async def refresh(self) -> FoundCard:
        return self.found

    async def watch(
        self, on_change: Callable[[FoundCard], Awaitable[None]], on_distrust: Any = None
    ) -> NoReturn:
        raise NotImplementedError


async def listed(count: int, most: int = 100, **said: str) -> tuple[FaceListing, type[Watched]]:
    """The listing of an agent with this many skills, and how often its skills were iterated."""

    class Skills(Watched):
        """Those of this card."""

    skills = [
        {"id": f"s{n}", "name": f"S{n}", "description": "", "tags": [], "examples": ["one", "two"]}
        for n in range(count)
    ]
    card, _ = card_from(json_bytes({**card_of(URL), "skills": skills, **said}), URL)
    watched = card.model_copy(update={"skills": Skills(card.skills)})
    async with httpx2.AsyncClient() as http:
        agent = RemoteAgent(URL, Remembered(FoundCard(URL, b"", watched)), http, client_options(), key="big")
        agent.use_remembered_card()
        Skills.times = 0
        return listing_of([agent], face_options(skills_most=most), {}), Skills


async def test_the_number_of_passes_over_a_cards_skills_does_not_depend_on_their_number() -> None:
    (few, of_few), (many, of_many) = await listed(2), await listed(100)
    assert (len(few.examples), len(many.examples)) == (4, 200)
    assert of_few.times == of_many.times


async def test_skills_beyond_the_limit_are_left_out_with_a_remark() -> None:
    found, _ = await listed(5, most=3)
    assert [one.skill_id for one in found.tools.published] == ["s0", "s1", "s2"]
    assert sorted(found.examples) == ["s0_1", "s0_2", "s1_1", "s1_2", "s2_1", "s2_2"]
    (remark,) = found.remarks
    assert (
        str(remark)
        == "from: big has 5 skills, and only the first 3 can be called: `skills_most` is the limit"
    )
    assert (await listed(3, most=3))[0].remarks == ()


async def test_an_agents_introduction_has_only_web_links_and_visible_characters() -> None:
    links = {"documentationUrl": "javascript:alert(1)", "iconUrl": "data:text/html,x"}
    found, _ = await listed(1, name="Gu\u202eide", description="Kno\u200bws", **links)
    assert found.introduction == Introduction("Guide", "Guide: Knows", None, None)
    links = {"documentationUrl": "https://a/docs", "iconUrl": "http://a/icon.png"}
    found, _ = await listed(1, name="Guide", description="Knows", **links)
    assert found.introduction == Introduction("Guide", "Guide: Knows", *links.values())


def found_card(skill: str) -> FoundCard:
    """A card with one skill."""
    skills: Any = [{"id": skill, "name": skill, "description": "", "tags": []}]
    card, _ = card_from(json_bytes({**card_of(URL), "skills": skills}), URL)
    return FoundCard(URL, b"", card)


class Source(Remembered):
    """A card that was read in an earlier run, and what its agent says of it now; None when it does not answer."""

    def __init__(self, found: FoundCard, now: FoundCard | None) -> None:
        super().__init__(found)
        self.now = now

    async def refresh(self) -> FoundCard:
        if self.now is None:
            raise PeerError("it does not answer")
        return self.now

    async def watch(self, on_change: Any, on_distrust: Any = None) -> NoReturn:
        await anyio.sleep_forever()
        raise AssertionError("it has no end")


@pytest.mark.parametrize(("now", "listed_skill"), [("new", "new"), (None, "old")])
async def test_a_start_reads_the_card_of_an_agent_that_is_up_and_uses_a_remembered_card_for_others(
    now: str | None, listed_skill: str
) -> None:
    source = Source(found_card("old"), None if now is None else found_card(now))
    async with httpx2.AsyncClient() as http:
        agent = RemoteAgent(URL, source, http, client_options(), key="one")
        face = AgentsFace([agent], Handles(Seal([b"k" * 32])), OPTIONS, {})
        async with face.run(lambda: None, first_cards_seconds=10):
            assert [tool.skill_id for tool in face.published] == [listed_skill]
