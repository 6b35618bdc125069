"""Agents, options and overrides that are replaced while an MCP server runs: what goes on, what ends, who is
notified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp_types import ToolListChangedNotification

from bridge.translate.overrides import ToolOverride
from tests.support.agent_faces import OPTIONS, Agents, Served, serving, words_in
from tests.support.foreign import foreign_agent
from tests.support.limits import face_options
from tests.support.mcp_tasks import TaskClient, accepted, task_client

pytestmark = pytest.mark.proves("map-tools-follow")

WAIT_SECONDS = 30
CALLS = 20
AT_ONCE = face_options(task_after_seconds=0)
NOT_HERE = "This handle does not work"


def one(url: str, **named: Any) -> Any:
    """A face of one agent."""

    def made(agents: Agents) -> list[Any]:
        return [agents(url, **named)]

    return made


async def names_of(host: Any) -> list[str]:
    """What a client is shown, without the follow-up tools."""
    return [tool.name for tool in (await host.list_tools()).tools if not tool.name.startswith("task_")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.smoke("auto")
async def test_calls_in_flight_keep_the_old_agents_and_options(mode: str, tmp_path: Path) -> None:
    results: list[str] = []
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            foreign_agent("Other") as other,
            serving(tmp_path, one(agent.url)) as there,
            there.client(mode) as host,
            anyio.create_task_group() as tasks,
        ):

            async def call(number: int) -> None:
                results.append(words_in(await host.call_tool("slow", {"message": str(number)})))

            for number in range(CALLS):
                tasks.start_soon(call, number)
            while len(agent.seen.tasks) < CALLS:
                await anyio.sleep(0.001)
            hidden = {"slow": ToolOverride(hidden=True)}
            new = there.agents(other.url, key="new")
            there.face.update([new], face_options(answer_within_seconds=0.01), hidden)
            with pytest.raises(MCPError, match="Unknown tool"):
                await host.call_tool("slow", {"message": "late"})
            agent.seen.released.set()
        assert len(agent.seen.canceled) == 0
    assert [words.splitlines()[0] for words in results] == ["Slow but sure"] * CALLS


async def test_an_agent_that_stays_keeps_its_client_and_a_new_one_is_read_in_the_background(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            foreign_agent("Other") as other,
            serving(tmp_path, one(agent.url, key="first")) as there,
            there.client() as host,
            host.listen(tools_list_changed=True) as changes,
        ):
            told = aiter(changes)
            assert "plain" in await names_of(host)
            (stays,) = there.made
            client = stays.client
            there.face.update([stays, there.agents(other.url, key="second")], OPTIONS)
            await anext(told)
            while "second_plain" not in await names_of(host):
                await anext(told)
            assert stays.client is client
            assert "You said: hi" in words_in(await host.call_tool("first_plain", {"message": "hi"}))
            assert "You said: ho" in words_in(await host.call_tool("second_plain", {"message": "ho"}))
            there.face.update([stays], OPTIONS)
            await anext(told)
            assert "plain" in await names_of(host)


async def test_a_legacy_client_is_notified_of_an_update_unless_nothing_changes(
    tmp_path: Path,
) -> None:
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.set()

    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url)) as there,
            there.client("legacy", message_handler=hear) as host,
        ):
            await host.list_tools()
            there.face.update(there.made, face_options(outage_seconds=7))
            assert not there.changes
            there.face.update(there.made, OPTIONS, {"plain": ToolOverride(name="repeat")})
            await told.wait()
            assert "repeat" in await names_of(host)
            assert len(there.changes) == 1


async def test_new_clients_get_the_new_title_and_instructions(tmp_path: Path) -> None:
    async with foreign_agent() as agent, serving(tmp_path, one(agent.url)) as there:
        async with there.client() as host:
            assert host.server_info is not None
            assert host.server_info.title == "Behaviours"
        there.face.update(
            there.made,
            face_options(title="The Team", instructions="Ask them, not me."),
        )
        for mode in ("auto", "legacy"):
            async with there.client(mode) as host:
                assert host.server_info is not None
                assert (host.server_info.title, host.instructions) == ("The Team", "Ask them, not me.")


# What hosts come back with


async def late(client: TaskClient) -> Any:
    """A call that has become a task."""
    task = await client.call("slow", message="go")
    assert task["resultType"] == "task"
    return task


def tasks_at(there: Served) -> Any:
    """A client of a face that takes tasks."""
    return task_client(there)  # type: ignore[arg-type]  # it has a url too


@pytest.mark.parametrize(
    "said", [{"slow": ToolOverride(name="renamed")}, {"slow": ToolOverride(hidden=True)}, {}]
)
async def test_a_task_that_began_before_an_update_goes_on_after_it(
    said: dict[str, ToolOverride], tmp_path: Path
) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), options=AT_ONCE) as there,
            tasks_at(there) as client,
        ):
            task = await late(client)
            # Another object for the same agent, as when its table was edited; and a neighbour that renames its tools.
            same = there.agents(agent.url, key="again")
            there.face.update([same, there.agents(agent.url, key="beside", account="b")], AT_ONCE, said)
            assert (await client.get(task))["status"] == "working"
            agent.seen.released.set()
            ended = await client.end(task)
            texts = [block["text"] for block in ended["result"]["content"]]
            assert (ended["status"], texts[0]) == ("completed", "Slow but sure")
            # Its tool was found: only that of a skill has conversations.
            assert "To go on with this conversation" in texts[-1]


async def test_a_task_can_be_answered_across_an_update(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), options=AT_ONCE) as there,
            tasks_at(there) as client,
        ):
            task = await client.call("ask_late", message="go")
            agent.seen.released.set()
            (first,) = await client.asked(task)
            there.face.update([there.agents(agent.url)], AT_ONCE, {"ask_late": ToolOverride(name="other")})
            await client.answer(task, **{first: accepted(answer="red")})
            (second,) = await client.asked(task, first)
            there.face.update(there.made, AT_ONCE)
            await client.answer(task, **{second: accepted(count=3)})
            ended = await client.end(task)
            assert ended["result"]["content"][0]["text"].startswith("Ordered 3")


async def test_a_watched_task_is_reported_to_its_end_across_updates(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            serving(tmp_path, one(agent.url), options=AT_ONCE) as there,
            tasks_at(there) as client,
        ):
            task = await late(client)
            async with client.listening(taskIds=[task["taskId"]]) as messages:
                await anext(messages)
                there.face.update([], AT_ONCE)
                agent.seen.released.set()
                async for message in messages:
                    if message["params"].get("status") == "completed":
                        break
                else:
                    pytest.fail("the stream has ended before the task")


@pytest.mark.proves("map-handles")
async def test_handles_to_removed_agents_are_refused_like_unknown_handles(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent() as agent,
            foreign_agent("Other") as other,
            serving(tmp_path, one(agent.url), options=AT_ONCE) as there,
            there.client("legacy") as host,
            tasks_at(there) as client,
        ):
            task = await late(client)
            asked = words_in(await host.call_tool("ask", {"message": "go"}))
            handle = asked.partition("with this handle: ")[2].split()[0]
            there.face.update([there.agents(other.url)], AT_ONCE)
            for tool, more in (("task_result", {}), ("task_reply", {"message": "x"}), ("task_cancel", {})):
                gone = words_in(await host.call_tool(tool, {"handle": handle, **more}))
                unknown = words_in(await host.call_tool(tool, {"handle": "made-up", **more}))
                assert gone == unknown
                assert NOT_HERE in gone
            for method in ("tasks/get", "tasks/cancel"):
                gone_task = await client.send(method, {"taskId": task["taskId"]})
                unknown_task = await client.send(method, {"taskId": "made-up"})
                assert gone_task["error"] == unknown_task["error"]
            there.face.update([there.agents(agent.url)], AT_ONCE)
            assert (await client.get(task))["status"] == "working"
            done = await host.call_tool("task_reply", {"handle": handle, "message": "red"})
            assert words_in(done).startswith("How many in red?")


# Several entries for one agent


async def test_two_entries_with_the_same_url_have_different_names_and_handles(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent:

            def made(agents: Agents) -> list[Any]:
                return [agents(agent.url, key="a", account="x"), agents(agent.url, key="b", account="y")]

            async with (
                serving(tmp_path, made, options=AT_ONCE) as there,
                tasks_at(there) as client,
            ):
                first, second = there.made
                assert first.mark != second.mark
                task = await client.call("a_slow", message="go")
                there.face.update([second], AT_ONCE)
                assert (
                    NOT_HERE
                    in (await client.send("tasks/get", {"taskId": task["taskId"]}))["error"]["message"]
                )
                there.face.update([second, first], AT_ONCE)
                assert (await client.get(task))["status"] == "working"


async def test_the_same_agent_may_be_given_twice(tmp_path: Path) -> None:
    async with foreign_agent() as agent:

        def made(agents: Agents) -> list[Any]:
            same = agents(agent.url)
            return [agents(agent.url), agents(agent.url, key="behaviours"), same, same]

        async with serving(tmp_path, made) as there, there.client() as host:
            names = await names_of(host)
            assert [name for name in names if name.endswith("_plain")] == [
                "behaviours_2_plain",
                "behaviours_plain",
                "behaviours_3_plain",
            ]
            assert "You said: hi" in words_in(await host.call_tool("behaviours_plain", {"message": "hi"}))
            assert len(set(names)) == len(names)


# How the agents are


@pytest.mark.proves("map-agent-down")
async def test_sources_say_which_agents_are_down_and_since_when(tmp_path: Path) -> None:
    clock = [1000]
    with anyio.fail_after(WAIT_SECONDS):
        async with foreign_agent() as agent, foreign_agent() as away:
            away.die()

            def made(agents: Agents) -> list[Any]:
                return [agents(url, key=key, now_ms=lambda: clock[0]) for key, url in urls.items()]

            urls = {"here": agent.url, "away": away.url}
            clock[0] = 2000
            async with serving(tmp_path, made) as there:
                here, gone = there.face.sources
                assert (here.key, here.down, here.since_ms) == ("here", None, 2000)
                assert (gone.key, gone.since_ms) == ("away", 2000)
                assert gone.down is not None
                clock[0] = 3000
                new = there.agents(away.url, key="new", now_ms=lambda: clock[0])
                there.face.update([there.made[0], new], OPTIONS)
                while there.face.sources[1].down in (None, "its card has not been read yet"):
                    await anyio.sleep(0.001)
                assert [(one.key, one.since_ms) for one in there.face.sources] == [
                    ("here", 2000),
                    ("new", 3000),
                ]


async def test_an_mcp_server_may_lose_all_agents_and_be_updated_before_and_after_it_runs(
    tmp_path: Path,
) -> None:
    async with foreign_agent() as agent, serving(tmp_path, one(agent.url)) as there, there.client() as host:
        there.face.update([], OPTIONS)
        assert await names_of(host) == []
        assert there.face.instructions is None
    there.face.update(there.made, OPTIONS, {"plain": ToolOverride(name="repeat")})
    assert "repeat" in [tool.name for tool in there.face.published]
