"""Configured rules for single skills, through the bridge: what clients see, and what servers get."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bridge.translate.overrides import ArgumentRule, SkillOverride
from tests.support.running import EXTENSION, call_part
from tests.support.several import said_by, state, team, words
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.proves("map-overrides")

TEXT = {"type": "string"}
DEADLINE = 20
ACTIVE = {"A2A-Extensions": EXTENSION}
RULES = {
    "*": SkillOverride(tags=("team",)),
    "open": SkillOverride(
        id="open_issue",
        name="Open an issue",
        description="Writes it down",
        examples=("Open an issue: it is broken",),
        text_into="title",
        arguments={
            "repo": ArgumentRule(default="acme/site", hidden=True),
            "label": ArgumentRule(default="bug", description="What kind"),
        },
    ),
    "wipe*": SkillOverride(hidden=True),
}


def tracker() -> ToolServer:
    opening = listed("open", "repo title label", repo=TEXT, title=TEXT, label={**TEXT, "description": "Kind"})
    return ToolServer("tracker", [opening, listed("wipe_all"), listed("fail"), listed("hold")])


@pytest.mark.proves("map-overrides", "map-hidden")
async def test_the_card_shows_skills_as_configured() -> None:
    async with tracker().run() as server, team({"tracker": server.target}, RULES) as served:
        skills = await served.skills()
        assert list(skills) == ["open_issue", "fail", "hold"]
        assert skills["open_issue"] == {
            "id": "open_issue",
            "name": "Open an issue",
            "description": "Writes it down",
            "tags": ["tracker", "team"],
            "examples": ["Open an issue: it is broken"],
            "inputModes": ["application/json", "text/plain"],
            "outputModes": ["text/plain", "*/*"],
        }
        card, _ = await served.card()
        shown = card["capabilities"]["extensions"][0]["params"]["tools"]
        assert list(shown) == ["open_issue", "fail", "hold"]
        assert shown["fail"] == server.tools[2]
        assert shown["open_issue"] == {
            "name": "open_issue",
            "title": "Open an issue",
            "description": "Writes it down",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "title": TEXT,
                    "label": {"type": "string", "description": "What kind", "default": "bug"},
                },
                "required": ["title"],
            },
        }


@pytest.mark.proves("map-overrides")
@pytest.mark.parametrize(
    ("part", "label"),
    [
        (call_part("open_issue", title="It broke"), "bug"),
        (call_part("open_issue", title="It broke", label="idea"), "idea"),
        ({"text": 'open_issue title="It broke"'}, "bug"),
    ],
)
@pytest.mark.parametrize("headers", [{}, ACTIVE])
async def test_a_call_gets_the_configured_arguments(part: Any, label: str, headers: Any) -> None:
    async with (
        tracker().run() as server,
        team({"tracker": server.target}, RULES, headers=headers) as served,
    ):
        said = said_by(await served.rpc.send(part))
        assert said[:2] == ["tracker", "open"]
        assert said[2] == {"title": "It broke", "label": label, "repo": "acme/site"}


async def test_plain_text_goes_into_the_configured_argument() -> None:
    tool = listed("note", "title body", title=TEXT, body=TEXT)
    rules = {"note": SkillOverride(text_into="body", arguments={"title": ArgumentRule(default="Note")})}
    async with ToolServer("s", [tool]).run() as server, team({"s": server.target}, rules) as served:
        said = said_by(await served.rpc.send({"text": "buy milk"}))
        assert said == ["s", "note", {"title": "Note", "body": "buy milk"}]


@pytest.mark.proves("map-hidden")
@pytest.mark.parametrize("skill", ["open", "wipe_all"])
@pytest.mark.parametrize("headers", [{}, ACTIVE])
async def test_hidden_skills_and_old_ids_are_unknown(skill: str, headers: Any) -> None:
    async with (
        tracker().run() as server,
        team({"tracker": server.target}, RULES, headers=headers) as served,
    ):
        asked = await served.rpc.send(call_part(skill))
        unknown = await served.rpc.send(call_part("unheard-of"))
        assert words(asked) == words(unknown).replace("unheard-of", skill)
        assert state(asked) == state(unknown) == "INPUT_REQUIRED"
        assert "wipe_all" not in words(unknown)
        assert server.calls == []


@pytest.mark.proves("map-hidden")
async def test_a_hidden_argument_that_a_caller_sets_is_refused_like_an_unknown_one() -> None:
    async with tracker().run() as server, team({"tracker": server.target}, RULES) as served:
        asked = await served.rpc.send(call_part("open_issue", title="x", repo="evil/repo"))
        assert state(asked) == "INPUT_REQUIRED"
        assert words(asked) == "open_issue has no argument repo. Your answer runs it without it."
        assert "acme" not in str(asked)
        again = await served.on(asked, {"data": {"repo": "evil/repo"}})
        assert state(again) == "INPUT_REQUIRED"
        assert server.calls == []
        assert said_by(await served.on(again, {"data": {}}))[2]["repo"] == "acme/site"


@pytest.mark.proves("map-hidden")
async def test_a_client_that_knows_the_schema_is_refused_a_hidden_argument_too() -> None:
    async with (
        tracker().run() as server,
        team({"tracker": server.target}, RULES, headers=ACTIVE) as served,
    ):
        refused = await served.rpc.send(call_part("open_issue", title="x", repo="evil/repo"))
        assert state(refused) == "REJECTED"
        assert words(refused) == "open_issue has no argument repo"
        assert server.calls == []


async def test_the_client_is_not_asked_for_a_configured_value_that_the_tool_refuses() -> None:
    wrong = {"open": SkillOverride(arguments={"repo": ArgumentRule(default=7, hidden=True)})}
    async with tracker().run() as server, team({"tracker": server.target}, wrong) as served:
        failed = await served.rpc.send(call_part("open", title="x", label="y"))
        assert state(failed) == "FAILED"
        assert words(failed).startswith("The bridge's configuration of open does not fit the tool's schema")
        assert "repo" not in words(failed)
        assert tuple(map(str, served.agent.remarks)) == (
            "skills.open.arguments.repo.default: 7 is not of type 'string'",
        )


@pytest.mark.proves("map-hidden")
async def test_no_error_reveals_a_hidden_argument() -> None:
    """The schema's own words on arguments that do not go together repeat all of them."""
    tool = listed("pay", key=TEXT, a=TEXT, b=TEXT)
    tool["inputSchema"]["oneOf"] = [{"required": ["a"]}, {"required": ["b"]}]
    rules = {"pay": SkillOverride(arguments={"key": ArgumentRule(default="s3cret", hidden=True)})}
    async with ToolServer("s", [tool]).run() as server, team({"s": server.target}, rules) as served:
        asked = await served.rpc.send(call_part("pay", a="1", b="2"))
        assert state(asked) == "INPUT_REQUIRED"
        assert "the combination of arguments does not fit" in words(asked)
        assert "s3cret" not in str(asked)
        assert "s3cret" not in str(await served.card())


@pytest.mark.proves("map-overrides")
async def test_a_skill_has_a_timeout_of_its_own() -> None:
    rules = {"hold": SkillOverride(call_timeout_seconds=0.1)}
    async with tracker().run() as server, team({"tracker": server.target}, rules) as served:
        failed = await served.rpc.send(call_part("hold"))
        assert words(failed) == "The tool gave no answer in 0.1 s and was cancelled"


@pytest.mark.proves("map-overrides")
async def test_the_configuration_limits_the_concurrent_calls_of_a_skill() -> None:
    rules = {"hold": SkillOverride(concurrency=2)}
    async with tracker().run() as server, team({"tracker": server.target}, rules) as served:
        tasks = [
            await served.rpc.send(call_part("hold"), configuration={"returnImmediately": True})
            for _ in range(5)
        ]
        with anyio.fail_after(DEADLINE):
            await server.holding(2)
            assert state(await served.rpc.send(call_part("fail"))) == "FAILED"
        server.released.set()
        with anyio.fail_after(DEADLINE):
            await served.sources[0].upstream.idle()
        for task in tasks:
            assert state(await served.rpc.call("GetTask", {"id": task["id"]})) == "COMPLETED"
        assert server.most == 2


async def test_a_call_that_waits_too_long_for_a_concurrency_limit_is_given_up() -> None:
    rules = {"hold": SkillOverride(concurrency=1)}
    quick = {"queue_timeout_seconds": 0.1}
    async with tracker().run() as server, team({"tracker": server.target}, rules, agent=quick) as served:
        await served.rpc.send(call_part("hold"), configuration={"returnImmediately": True})
        with anyio.fail_after(DEADLINE):
            await server.holding(1)
        given_up = await served.rpc.send(call_part("hold"))
        assert (state(given_up), words(given_up)) == (
            "REJECTED",
            "hold was busy for 0.1 s, so the call was given up",
        )
        server.released.set()


async def test_an_update_changes_the_concurrency_limit_and_counts_running_calls() -> None:
    async with (
        tracker().run() as server,
        team({"tracker": server.target}, {"hold": SkillOverride(concurrency=1)}) as served,
    ):
        at_once = {"returnImmediately": True}
        for _ in range(3):
            await served.rpc.send(call_part("hold"), configuration=at_once)
        with anyio.fail_after(DEADLINE):
            await server.holding(1)
            served.agent.update(served.sources, served.chosen, {"hold": SkillOverride(concurrency=2)})
            await server.holding(2)
        server.released.set()
        with anyio.fail_after(DEADLINE):
            await served.sources[0].upstream.idle()
        assert server.most == 2
