"""One agent over several tool servers: which skill belongs to which server, what is down, and what changes during
calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from bridge.a2a.model.objects import AgentCard, TaskState
from bridge.tools_as_agent.resume_state import FollowedTask
from bridge.tools_as_agent.run import Conclusion
from bridge.translate.extensions.availability import (
    unavailable_skills,
)
from bridge.translate.overrides import SkillOverride
from tests.peers.py_client import PyClient
from tests.support.asking import asking_command, asking_url
from tests.support.limits import server_settings, url_at
from tests.support.running import call_part, message, texts
from tests.support.several import Team, chosen, said_by, source, state, team, words
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.proves("map-servers")

TEXT = {"type": "string"}
DEADLINE = 20
GIVEN_UP_SOON = {"settings": server_settings(connect_seconds=3)}
"""Limits of a server in this process, whose end a call waits for."""
NOWHERE = url_at("http://127.0.0.1:1/mcp")


def desk() -> ToolServer:
    return ToolServer("desk", [listed("search", text=TEXT), listed("file"), listed("hold")], "Papers.")


def lab() -> ToolServer:
    return ToolServer("lab", [listed("search", text=TEXT), listed("measure"), listed("hold")])


@asynccontextmanager
async def both(**changes: Any) -> AsyncIterator[tuple[ToolServer, ToolServer, Team]]:
    """Both servers and their agent."""
    async with (
        desk().run() as one,
        lab().run() as other,
        team({"desk": one.target, "lab": other.target}, **changes) as served,
    ):
        yield one, other, served


@pytest.mark.proves("map-servers")
async def test_one_agent_has_the_skills_of_several_servers_and_calls_go_to_the_right_server() -> None:
    async with both() as (_, _, served):
        skills = await served.skills()
        assert list(skills) == [
            "desk_search",
            "file",
            "desk_hold",
            "lab_search",
            "measure",
            "lab_hold",
        ]
        assert skills["file"]["tags"] == ["desk"]
        assert skills["lab_search"]["tags"] == ["lab"]
        for skill, said in {
            "desk_search": ["desk", "search", {"text": "a"}],
            "lab_search": ["lab", "search", {"text": "a"}],
        }.items():
            assert said_by(await served.rpc.send(call_part(skill, text="a"))) == said
        assert said_by(await served.rpc.send(call_part("measure"))) == ["lab", "measure", {}]
        asked = await served.rpc.send(call_part("search", text="a"))
        assert state(asked) == "INPUT_REQUIRED"
        assert words(asked).startswith("There is no skill 'search'.")


async def test_the_card_of_several_servers_combines_their_descriptions() -> None:
    async with desk().run() as one, lab().run() as other:
        async with team({"desk": one.target, "lab": other.target}) as served:
            card, _ = await served.card()
            assert (card["name"], card["version"]) == ("desk, lab", "desk 1.0, lab 1.0")
            assert card["description"] == "desk: Papers.\n\nThe tools of lab"
            tools = card["capabilities"]["extensions"][0]["params"]["tools"]
            assert tools["lab_search"]["name"] == "search"
        async with team({"desk": one.target, "lab": other.target}, agent={"name": "Both"}) as served:
            assert (await served.card())[0]["name"] == "Both"


@pytest.mark.proves("map-servers")
async def test_a_server_that_is_down_leaves_the_skills_of_the_others() -> None:
    async with desk().run() as one, team({"desk": one.target, "gone": NOWHERE}) as served:
        assert list(await served.skills()) == ["search", "file", "hold"]
        card, _ = await served.card()
        assert card["description"].endswith("Without the tools of gone, which cannot be reached")
        up, down = served.agent.sources
        assert (up.key, up.down) == ("desk", None)
        assert down.key == "gone"
        assert down.down
        assert down.since_ms > 0
        assert said_by(await served.rpc.send(call_part("file"))) == ["desk", "file", {}]


async def test_with_every_server_down_one_placeholder_names_them() -> None:
    async with team({"one": NOWHERE, "other": NOWHERE}) as served:
        (skill,) = (await served.skills()).values()
        assert skill["id"] == "unavailable"
        assert skill["tags"] == ["one", "other", "unavailable"]
        assert "its tool server one cannot be reached" in skill["description"]
        assert "its tool server other cannot be reached" in skill["description"]


async def test_the_skills_of_a_server_that_went_down_stay_and_their_calls_fail() -> None:
    one, stop, gone = desk(), anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks, lab().run() as other:
        await tasks.start(until, one, stop, gone)
        async with team({"desk": one.target, "lab": other.target}, limits=GIVEN_UP_SOON) as served:
            before = list(await served.skills())
            stop.set()
            with anyio.fail_after(DEADLINE):
                await gone.wait()
            failed = await served.rpc.send(call_part("file"))
            assert state(failed) == "FAILED"
            assert served.agent.sources[0].down
            assert list(await served.skills()) == before
            assert said_by(await served.rpc.send(call_part("measure"))) == ["lab", "measure", {}]


@pytest.mark.proves("map-overload", "map-servers")
async def test_a_server_with_too_many_calls_does_not_affect_another_server() -> None:
    async with both(limits={"queue": 0}) as (one, _, served):
        at_once = {"returnImmediately": True}
        for _ in range(8):
            await served.rpc.send(call_part("desk_hold"), configuration=at_once)
        with anyio.fail_after(DEADLINE):
            await one.holding(6)  # the last quarter is for others
        refused = await served.rpc.post("SendMessage", message(call_part("file")))
        assert refused.headers["retry-after"] == "1"
        assert said_by(await served.rpc.send(call_part("measure"))) == ["lab", "measure", {}]
        one.released.set()


@pytest.mark.proves("reload-agent")
async def test_an_update_changes_the_card_and_no_running_call() -> None:
    async with desk().run() as one, lab().run() as other, AsyncExitStack() as stack:
        served = await stack.enter_async_context(team({"desk": one.target}))
        _, tag = await served.card()
        running = await served.rpc.send(call_part("hold"), configuration={"returnImmediately": True})
        with anyio.fail_after(DEADLINE):
            await one.holding(1)
        late = await source(stack, "lab", other.target, served.changes)
        renamed = {"search": SkillOverride(id="look", name="Look it up")}
        served.agent.update([late], chosen(name="Lab"), renamed)
        card, new_tag = await served.card()
        assert new_tag != tag
        assert (card["name"], [skill["id"] for skill in card["skills"]]) == (
            "Lab",
            ["look", "measure", "hold"],
        )
        one.released.set()
        with anyio.fail_after(DEADLINE):
            await served.sources[0].upstream.idle()
            assert said_by(await ended(served, running)) == ["desk", "hold", {}]
        assert said_by(await served.rpc.send(call_part("look", text="a"))) == ["lab", "search", {"text": "a"}]


@pytest.mark.proves("reload-agent")
async def test_a_question_that_stays_open_through_an_update_is_answered_with_the_new_tools() -> None:
    async with desk().run() as one, lab().run() as other, AsyncExitStack() as stack:
        one.tools[1] = listed("file", "paper", paper=TEXT)
        served = await stack.enter_async_context(team({"desk": one.target}))
        asked, gone = [await served.rpc.send(call_part("file")) for _ in range(2)]
        assert state(asked) == "INPUT_REQUIRED"
        defaults = {"file": SkillOverride(call_timeout_seconds=20)}
        served.agent.update(served.sources, chosen(), defaults)
        assert said_by(await served.on(asked, {"text": "A4"})) == ["desk", "file", {"paper": "A4"}]
        late = await source(stack, "lab", other.target, served.changes)
        served.agent.update([late], chosen())
        again = await served.on(gone, {"text": "A4"})
        assert state(again) == "INPUT_REQUIRED"
        assert words(again).startswith("Which skill do you mean?")


@pytest.mark.proves("reload-agent", "map-rounds")
@pytest.mark.parametrize(
    ("overrides", "end"),
    [
        ({}, "COMPLETED"),
        ({"ask-one": SkillOverride(id="renamed")}, "COMPLETED"),
        ({"ask-two": SkillOverride(id="ask-one"), "ask-one": SkillOverride(id="other")}, "COMPLETED"),
        ({"ask-one": SkillOverride(hidden=True)}, "FAILED"),
    ],
)
async def test_an_answer_reaches_the_tool_that_asked_even_after_a_rename(overrides: Any, end: str) -> None:
    async with team({"s": asking_command("modern")}) as served:
        asked = await served.rpc.send(call_part("ask-one"))
        assert state(asked) == "INPUT_REQUIRED"
        served.agent.update(served.sources, served.chosen, overrides)
        answered = await served.on(asked, {"text": "yes"})
        assert state(answered) == end
        if end == "COMPLETED":
            assert texts(answered["artifacts"][0]["parts"]) == ['accept {"sure": true}']
        else:
            assert words(answered) == "The server no longer lists the tool ask-one"


@pytest.mark.proves("reload-agent", "map-server-tasks")
@pytest.mark.parametrize("source_key", ["gone", ""])
async def test_a_task_of_a_removed_server_fails(source_key: str) -> None:
    """Without a key it was kept by an agent of one server; which of several that was cannot be told."""
    kept = FollowedTask("job", "t-1", is_legacy=False, source_key=source_key).to_bytes()
    async with both() as (_, _, served):
        assert isinstance(served.agent.resume(kept, TaskState.WORKING, "ann"), Conclusion)


@pytest.mark.proves("restart-goes-on", "map-server-tasks", "map-servers")
async def test_a_task_of_a_server_goes_on_after_a_restart_on_its_own_server(tmp_path: Path) -> None:
    store = str(tmp_path / "tasks.db")
    with asking_url("modern") as url:
        async with lab().run() as other:
            targets = {"lab": other.target, "s": url_at(url)}
            async with team(targets, store=store) as served:
                task = await served.rpc.send(call_part("task-job", ask=True))
                assert state(task) == "INPUT_REQUIRED"
            async with team(targets, store=store) as served:
                answered = await served.on(task, {"text": "Ada"})
                assert state(answered) == "COMPLETED"


async def test_an_agent_without_servers_has_a_complete_card() -> None:
    async with desk().run() as one, team({"desk": one.target}) as served:
        served.agent.update([], chosen(name="Team"))
        (skill,) = (await served.skills()).values()
        assert skill["description"] == "This agent has no skills at the moment: it has no tool server"
        assert state(await served.rpc.send({"text": "hello"})) == "INPUT_REQUIRED"


async def test_a_changed_tool_list_changes_the_ids_that_collide() -> None:
    """Both get their source before their name, also the one that was there first."""
    async with desk().run() as one, lab().run() as other:
        other.tools = [listed("measure")]
        async with AsyncExitStack() as stack:
            served = await stack.enter_async_context(team({"desk": one.target, "lab": other.target}))
            assert "search" in await served.skills()
            other.tools.append(listed("search"))
            late = await source(stack, "lab", other.target, served.changes)
            served.agent.update([served.sources[0], late], chosen())
            assert {"desk_search", "lab_search"} < (await served.skills()).keys()


@pytest.mark.proves("map-servers")
async def test_the_official_client_calls_the_skills_of_both_servers() -> None:
    async with both() as (_, _, served), PyClient(served.base_url) as client:
        answers = [
            await client.send(message(call_part(skill, text="a"))) for skill in ("desk_search", "lab_search")
        ]
        assert [said_by(answer["task"])[0] for answer in answers] == ["desk", "lab"]


async def ended(served: Team, task: dict[str, Any]) -> dict[str, Any]:
    """The task once it has ended."""
    events = await served.rpc.client.post(
        served.base_url,
        json={"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task["id"]}},
        headers=served.rpc.headers,
    )
    assert events.status_code == 200
    return await served.rpc.call("GetTask", {"id": task["id"]})


async def until(
    server: ToolServer,
    stop: anyio.Event,
    gone: anyio.Event,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    """Serve until it is told to stop."""
    async with server.run():
        task_status.started()
        await stop.wait()
    gone.set()


async def unavailable(served: Team) -> list[tuple[str, list[str]]]:
    """The unavailable skills on the card."""
    card = AgentCard.model_validate((await served.card())[0])
    found = dict[str, list[str]]()
    for skill, (why, since_ms) in unavailable_skills(card).items():
        assert since_ms is not None
        assert since_ms % 60_000 == 0
        found.setdefault(why, []).append(skill)
    return list(found.items())


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, [("unreachable", ["desk_search", "file", "desk_hold"])]), (3600, [])]
)
async def test_the_card_lists_unavailable_skills_after_a_while(
    seconds: float, said: list[tuple[str, list[str]]]
) -> None:
    one, stop, gone = desk(), anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks, lab().run() as other:
        await tasks.start(until, one, stop, gone)
        targets = {"desk": one.target, "lab": other.target}
        options = {"unavailable_after_seconds": seconds}
        async with team(targets, agent=options, limits=GIVEN_UP_SOON) as served:
            before, (_, tag) = await served.skills(), await served.card()
            assert await unavailable(served) == []
            stop.set()
            with anyio.fail_after(DEADLINE):
                await gone.wait()
            assert state(await served.rpc.send(call_part("file"))) == "FAILED"
            assert await unavailable(served) == said
            assert await served.skills() == before
            assert ((await served.card())[1] != tag) is bool(said)
