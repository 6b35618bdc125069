"""The extended card: the skills that a caller may use or could use, and skills that the public card omits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.translate.overrides import SkillOverride
from tests.assembly.test_admission import ADA, guarded
from tests.assembly.test_bridge import agent
from tests.assembly.test_issuers import trusting
from tests.support.drivers import Driver
from tests.support.issuer import bearer
from tests.support.mcp_wire import MODERN, Http
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import VERSION

CARD = "/agents/a/.well-known/agent-card.json"
PRIVATE = {"published": {"a": agent("one", overrides={"hold": SkillOverride(public=False)})}}
SCOPES = (("tools:read", ("echo",)), ("tools:write", ("hold",)))
BOB = Credential(Principal("bob", skills=("echo",)), "bob-token")
EVE = Credential(Principal("eve", skills=("nothing",)), "eve-token")


def ids(card: Any) -> list[str]:
    """The skills on a card."""
    return [skill["id"] for skill in card["skills"]]


@pytest.mark.proves("a2a-13.3-extended", "a2a-5.1-equivalent", "web-skills")
@pytest.mark.parametrize("kind", EVERY_DRIVER, ids=name_of)
async def test_each_caller_sees_its_own_skills_and_the_public_card_omits_some(
    kind: Any, tmp_path: Path
) -> None:
    async with guarded(tmp_path, ADA, BOB, EVE) as (there, _), httpx2.AsyncClient(timeout=30) as client:
        await there.apply(**PRIVATE)
        public = await there.json(CARD)
        assert ids(public) == ["echo"]
        assert public["capabilities"]["extendedAgentCard"] is True
        assert "hold" not in str(public)
        driver: Driver = kind(client, f"{there.url}/agents/a")
        answer = await driver.answer("GetExtendedAgentCard", {})
        assert answer.http.status_code == 401
        for who, skills in ((ADA, ["echo", "hold"]), (BOB, ["echo"]), (EVE, ["unavailable"])):
            caller = driver.with_headers(Authorization=f"Bearer {who.token}")
            http = await client.send(caller.request("GetExtendedAgentCard", {}))
            assert http.status_code == 200
            assert http.headers["cache-control"] == "private, no-cache"
            told = http.json()
            card = told.get("result", told)
            assert ids(card) == skills
            assert card["name"] == public["name"]
            assert {one["url"] for one in card["supportedInterfaces"]} == {f"{there.url}/agents/a"}
        assert "this caller may use none of its skills" in card["skills"][0]["description"]


@pytest.mark.proves("a2a-13.3-extended", "oauth-scopes")
async def test_the_extended_card_has_the_skills_of_further_scopes(tmp_path: Path) -> None:
    async with trusting(tmp_path, scopes=SCOPES) as there:
        await there.live.apply(**PRIVATE)
        token = there.issuer.token("api://a", scope="")
        url = f"{there.live.url}/agents/a/extendedAgentCard"
        card = (await there.live.client.get(url, headers={**VERSION, **bearer(token)})).json()
        assert ids(card) == ["echo", "hold"]
        assert ids(await there.live.json(CARD)) == ["echo"]
        listed = await there.live.client.get(
            f"{there.live.url}/agents", headers=bearer(there.issuer.token("api://a"))
        )
        assert "hold" not in listed.text


@pytest.mark.proves("web-skills")
async def test_a_server_made_of_an_agent_has_its_skills_that_are_not_public(tmp_path: Path) -> None:
    async with guarded(tmp_path, ADA) as (there, _):
        await there.apply(**PRIVATE)
        http = Http(there.client, f"{there.url}/mcp/m", MODERN)
        listed = await http.post(http.message(1, "tools/list"), authorization=f"Bearer {ADA.token}")
        assert {"echo", "hold"} <= {tool["name"] for tool in listed.json()["result"]["tools"]}


@pytest.mark.proves("web-skills")
async def test_the_card_that_a_server_gives_as_a_resource_tells_each_caller_of_its_own_skills(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, ADA, BOB) as (there, _):
        await there.apply(**PRIVATE)
        http = Http(there.client, f"{there.url}/mcp/m", MODERN)
        cards = {}
        for who in (ADA, BOB):
            message = http.message(1, "resources/read", {"uri": "a2a://a/card"})
            answer = await http.post(message, authorization=f"Bearer {who.token}")
            result = answer.json()["result"]
            assert result["cacheScope"] == "private"
            cards[who] = json.loads(result["contents"][0]["text"])
        assert ids(cards[ADA]) == ["echo", "hold"]
        assert "hold" in str(cards[ADA]["capabilities"])
        assert ids(cards[BOB]) == ["echo"]
        assert "hold" not in str(cards[BOB])
        (tools,) = (one["params"]["tools"] for one in cards[BOB]["capabilities"]["extensions"])
        assert [*tools] == ["echo"]


@pytest.mark.proves("a2a-3.3.4-extended", "a2a03-7.10-card")
async def test_without_distinct_callers_there_is_no_extended_card(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (there, _):
        card = await there.json(CARD)
        assert not card["capabilities"].get("extendedAgentCard")
        refused = await there.client.get(f"{there.url}/agents/a/extendedAgentCard", headers=VERSION)
        assert refused.status_code == 400
        assert "no extended card" in refused.text
