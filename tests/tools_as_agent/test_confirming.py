"""Calls that need a confirmation, through the bridge: nothing runs without a yes, and each yes is for one call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest

from bridge.translate.extensions.bridge import ANSWER, ARGUMENTS, QUESTION, SKILL
from bridge.translate.overrides import ArgumentRule, SkillOverride
from tests.peers.py_client import PyClient
from tests.support.asking import asking_command
from tests.support.drivers import shape_of
from tests.support.exposing import answering, exposing
from tests.support.running import (
    EXTENSION,
    Rpc,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
)
from tests.support.several import Team, chosen, said_by, state, team, words
from tests.support.tool_server import ToolServer, listed

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
DESTRUCTIVE = {"confirm": "destructive"}
DONE = {"text": "done"}


def notes(*more: dict[str, Any]) -> ToolServer:
    wipe = listed("wipe", "note", hints={"destructive": True}, note=NUMBER)
    read = listed("read", hints={"readOnly": True})
    return ToolServer("notes", [wipe, read, listed("write"), *more])


@pytest.mark.proves("map-confirm", "a2a-7.6.1-auth-required")
@pytest.mark.parametrize("headers", [{}, {"A2A-Extensions": EXTENSION}])
async def test_a_destructive_call_runs_once_it_is_confirmed(headers: Any) -> None:
    async with (
        notes().run() as server,
        team({"notes": server.target}, agent=DESTRUCTIVE, headers=headers) as served,
    ):
        asked = await served.rpc.send(call_part("wipe", note=5))
        assert state(asked) == "AUTH_REQUIRED"
        assert words(asked).splitlines() == [
            "wipe is run once you confirm it (its server says that it may destroy something), with:",
            "- note: 5",
            'Answer "yes" to go ahead, or "no" to refuse. Anything else is taken for neither.',
        ]
        assert asked["status"]["message"]["metadata"][ARGUMENTS] == {"note": 5}
        assert server.calls == []
        assert said_by(await served.on(asked, DONE)) == ["notes", "wipe", {"note": 5}]
        assert server.calls == [("wipe", {"note": 5})]
        assert said_by(await served.rpc.send(call_part("write"))) == ["notes", "write", {}]


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize(
    ("options", "override", "asked"),
    [
        ({}, None, []),
        (DESTRUCTIVE, None, ["wipe"]),
        ({"confirm": "strict"}, None, ["wipe", "write"]),
        (DESTRUCTIVE, SkillOverride(confirm=False), []),
        ({}, SkillOverride(confirm=True), ["wipe", "read", "write"]),
    ],
)
async def test_which_calls_wait_for_a_confirmation(options: Any, override: Any, asked: list[str]) -> None:
    rules = {"*": override} if override else {}
    async with notes().run() as server, team({"notes": server.target}, rules, agent=options) as served:
        states = {
            name: state(await served.rpc.send(call_part(name, **given)))
            for name, given in (("wipe", {"note": 1}), ("read", {}), ("write", {}))
        }
        assert [name for name, one in states.items() if one == "AUTH_REQUIRED"] == asked


@pytest.mark.proves("map-confirm", "map-refuse")
@pytest.mark.parametrize(
    ("part", "metadata", "end"),
    [
        (DONE, {ANSWER: "decline"}, "REJECTED"),
        (DONE, {ANSWER: "cancel"}, "CANCELED"),
        ({"data": {"action": "decline"}}, None, "REJECTED"),
        ({"data": {"action": "cancel"}}, None, "CANCELED"),
        ({"text": "No!"}, None, "REJECTED"),
    ],
)
async def test_a_refusal_ends_the_task_and_nothing_runs(part: Any, metadata: Any, end: str) -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        fields = {"metadata": metadata} if metadata else {}
        assert state(await served.on(asked, part, **fields)) == end
        assert server.calls == []


@pytest.mark.proves("map-confirm", "a2a-7.6.4-scope")
@pytest.mark.parametrize(
    "part",
    [
        {"data": {"note": 6}},
        call_part("wipe", note=6),
        {"text": "note=6"},
        {"text": '{"note": 6}'},
        {"data": {"action": "accept", "note": 6}},
    ],
)
async def test_other_arguments_after_a_yes_need_another_confirmation(part: Any) -> None:
    """Even if the arguments come with the yes."""
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        again = await served.on(asked, part)
        assert state(again) == "AUTH_REQUIRED"
        assert "- note: 6" in words(again)
        assert server.calls == []
        done = said_by(await served.on(again, DONE, metadata={ANSWER: "accept"}))
        assert done[2]["note"] == 6


@pytest.mark.proves("map-confirm")
async def test_arguments_in_metadata_count_as_arguments() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        other = await served.on(asked, DONE, metadata={SKILL: "wipe", ARGUMENTS: {"note": 6}})
        assert state(other) == "AUTH_REQUIRED"
        assert "- note: 6" in words(other)
        elsewhere = await served.on(asked, DONE, metadata={SKILL: "write", ARGUMENTS: {}})
        assert said_by(elsewhere) == ["notes", "write", {}]
        assert server.calls == [("write", {})]
        asked = await served.rpc.send(call_part("wipe", note=5))
        echoed = asked["status"]["message"]["metadata"]
        assert said_by(await served.on(asked, DONE, metadata=echoed))[2] == {"note": 5}


@pytest.mark.proves("map-confirm")
async def test_a_yes_with_the_same_arguments_confirms_the_call() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        again = await served.on(asked, call_part("wipe", note=5))
        assert again["status"]["message"]["metadata"] == asked["status"]["message"]["metadata"]
        assert server.calls == []
        done = await served.on(again, call_part("wipe", note=5), metadata={ANSWER: "accept"})
        assert said_by(done)[2] == {"note": 5}
        assert len(server.calls) == 1


@pytest.mark.proves("map-confirm")
async def test_a_yes_to_a_question_that_was_replaced_is_refused() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        first = await served.rpc.send(call_part("wipe", note=5))
        key = first["status"]["message"]["metadata"][QUESTION]
        await served.on(first, {"data": {"note": 6}})
        late = message(DONE, taskId=first["id"], metadata={QUESTION: key, ANSWER: "accept"})
        error = await served.rpc.error("SendMessage", late)
        assert error["code"] == -32602
        assert server.calls == []


@pytest.mark.proves("map-confirm", "a2a-3.3.1-idempotent", "a2a-7.6.4-scope")
async def test_a_yes_that_is_sent_twice_runs_the_call_once() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe", note=5))
        yes = message(DONE, taskId=asked["id"])
        first, second = [(await served.rpc.call("SendMessage", yes))["task"] for _ in range(2)]
        assert first["id"] == second["id"]
        assert len(server.calls) == 1
        more = await served.rpc.error("SendMessage", message(DONE, taskId=asked["id"]))
        assert more["data"][0]["reason"] == "UNSUPPORTED_OPERATION"
        assert len(server.calls) == 1


@pytest.mark.proves("map-confirm")
async def test_missing_arguments_are_asked_for_before_the_confirmation() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        asked = await served.rpc.send(call_part("wipe"))
        assert state(asked) == "INPUT_REQUIRED"
        confirm = await served.on(asked, {"text": "5"})
        assert state(confirm) == "AUTH_REQUIRED"
        assert server.calls == []
        assert said_by(await served.on(confirm, DONE))[2] == {"note": 5}


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize("change", ["tool", "default", "server", "none"])
async def test_a_yes_is_valid_only_for_the_tool_as_it_was_shown(change: str) -> None:
    """A changed description, another default, or another server under the same id makes a yes invalid."""
    async with notes().run() as server, notes().run() as other:
        other.name = "other"
        team_of = {"notes": server.target, "other": other.target}
        rules = {"other_*": SkillOverride(hidden=True)}
        async with team(team_of, rules, agent=DESTRUCTIVE) as served:
            asked = await served.rpc.send(call_part("notes_wipe", note=5))
            secret = {"note": ArgumentRule(default=1), "all": ArgumentRule(default=True)}
            options, mine, its = chosen(**DESTRUCTIVE), *served.sources
            match change:
                case "tool":
                    served.agent.update(
                        [mine, its], options, {**rules, "notes_wipe": SkillOverride(description="!")}
                    )
                case "default":
                    served.agent.update(
                        [mine, its], options, {**rules, "notes_wipe": SkillOverride(arguments=secret)}
                    )
                case "server":
                    swapped = {
                        "notes_*": SkillOverride(hidden=True),
                        "other_wipe": SkillOverride(id="notes_wipe"),
                    }
                    served.agent.update([mine, its], options, swapped)
            answer = await served.on(asked, DONE)
            assert state(answer) == ("COMPLETED" if change == "none" else "AUTH_REQUIRED")
            assert len(server.calls + other.calls) == (change == "none")


@pytest.mark.proves("map-confirm", "map-hidden")
async def test_a_confirmation_does_not_show_hidden_arguments() -> None:
    rules = {
        "wipe": SkillOverride(
            confirm=True,
            arguments={"note": ArgumentRule(default=5), "key": ArgumentRule(default="s3cret", hidden=True)},
        )
    }
    wipe = listed("wipe", "note", note=NUMBER, key=TEXT)
    async with ToolServer("n", [wipe]).run() as server, team({"n": server.target}, rules) as served:
        asked = await served.rpc.send(call_part("wipe"))
        assert "- note: 5" in words(asked)
        assert "s3cret" not in str(asked)
        assert said_by(await served.on(asked, DONE))[2] == {"note": 5, "key": "s3cret"}


@pytest.mark.proves("map-confirm", "restart-keeps-waiting")
async def test_a_confirmation_survives_a_restart(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    async with notes().run() as server:
        async with team({"notes": server.target}, agent=DESTRUCTIVE, store=store) as served:
            yes, no = [await served.rpc.send(call_part("wipe", note=5)) for _ in range(2)]
        async with team({"notes": server.target}, agent=DESTRUCTIVE, store=store) as served:
            assert await served.rpc.call("GetTask", {"id": yes["id"]}) == yes
            assert said_by(await served.on(yes, DONE))[2] == {"note": 5}
            assert state(await served.on(no, {"text": "no"})) == "REJECTED"
            assert len(server.calls) == 1


@pytest.mark.proves("map-confirm", "map-rounds")
async def test_a_servers_question_in_a_confirmed_call_needs_no_second_confirmation() -> None:
    rules = {"ask-one": SkillOverride(confirm=True)}
    async with team({"s": asking_command("modern")}, rules) as served:
        confirm = await served.rpc.send(call_part("ask-one"))
        assert state(confirm) == "AUTH_REQUIRED"
        asked = await served.on(confirm, DONE)
        assert state(asked) == "INPUT_REQUIRED"
        assert state(await served.on(asked, {"text": "yes"})) == "COMPLETED"


@pytest.mark.proves("map-confirm")
async def test_a_profile_says_which_calls_are_confirmed() -> None:
    config = config_for(raw_command(), profile=profile_with(run={"confirm": "strict"}))
    async with running(config) as bridge, httpx2.AsyncClient() as http:
        rpc = Rpc(http, bridge.base_url)
        assert state(await rpc.send(call_part("echo", text="a"))) == "COMPLETED"
        assert state(await rpc.send(call_part("add", a=1, b=2))) == "AUTH_REQUIRED"


@pytest.mark.proves("map-confirm")
async def test_through_a_second_bridge_a_call_is_confirmed_in_words(tmp_path: Path) -> None:
    """For a host that cannot ask its user. A URL among the arguments is not taken for a URL to visit."""
    link = listed("link", "url", hints={"destructive": True}, url=TEXT)
    async with (
        notes(link).run() as server,
        team({"notes": server.target}, agent=DESTRUCTIVE) as served,
        exposing(tmp_path, served.base_url) as face,
        face.client("auto") as client,
    ):
        asked = await client.call_tool("link", {"url": "https://evil.example/login"})
        assert "link is run once you confirm it" in asked.content[0].text
        assert server.calls == []
        (handle,) = re.findall(r"with this handle: (\S+)", asked.content[0].text)
        done = await client.call_tool("task_reply", {"handle": handle, "message": "yes"})
        assert json.loads(done.content[0].text) == ["notes", "link", {"url": "https://evil.example/login"}]
        assert len(server.calls) == 1


@pytest.mark.proves("map-confirm")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_through_a_second_bridge_a_host_asks_its_user_to_confirm(
    mode: str, action: Any, tmp_path: Path
) -> None:
    """By a form without fields, even if a URL is among the arguments."""
    link = listed("link", "url", hints={"destructive": True}, url=TEXT)
    answer = answering(types.ElicitResult(action=action))
    async with (
        notes(link).run() as server,
        team({"notes": server.target}, agent=DESTRUCTIVE) as served,
        exposing(tmp_path, served.base_url) as face,
        face.client(mode, elicitation_callback=answer) as client,
    ):
        with anyio.fail_after(20):
            done = await client.call_tool("link", {"url": "https://evil.example/login"})
        (asked,) = answer.seen
        assert (asked.mode, asked.requested_schema) == ("form", {"type": "object", "properties": {}})
        assert "link is run once you confirm it" in asked.message
        assert done.is_error is (action != "accept")
        assert len(server.calls) == (action == "accept")


@pytest.mark.proves("map-confirm", "a2a-7.6.1-auth-open")
async def test_a_stream_stays_open_while_a_call_waits_for_its_confirmation() -> None:
    async with notes().run() as server, team({"notes": server.target}, agent=DESTRUCTIVE) as served:
        seen: list[Any] = []
        async with anyio.create_task_group() as tasks, PyClient(served.base_url) as client:
            with anyio.fail_after(20):
                async for event in client.stream(message(call_part("wipe", note=5))):
                    seen.append(event)
                    if "AUTH_REQUIRED" in str(event):
                        tasks.start_soon(confirm, served, event)
        assert shape_of(seen) == [
            "task SUBMITTED",
            "statusUpdate AUTH_REQUIRED",
            "statusUpdate WORKING",
            "artifactUpdate",
            "statusUpdate COMPLETED",
        ]
        assert len(server.calls) == 1


async def confirm(served: Team, event: dict[str, Any]) -> None:
    await served.rpc.send(DONE, taskId=event["statusUpdate"]["taskId"])
