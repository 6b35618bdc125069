"""Hermes agents behind tools: requests go to their paths, and their answers come back completely."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from bridge.mcp.client.eras import Era
from tests.support.drivers import new_client
from tests.support.exposing import exposing
from tests.support.hermes_agent import HermesAgent, HermesTask, Work
from tests.support.hermes_client import HermesClient, HermesOrchestrator, said, texts_in
from tests.support.limits import url_at
from tests.support.running import config_for, profile_with, running

pytestmark = pytest.mark.proves("map-hermes")

WAIT_SECONDS = 20
PICTURE = {"type": "file", "file": {"bytes": "iVBORw0KGgo=", "mimeType": "image/png", "name": "a.png"}}


async def obeying(task: HermesTask) -> None:
    """Do what the last message says."""
    match task.messages[-1]["parts"][0]["text"]:
        case "ask":
            task.say("How many?")
            task.go("input-required", 0.5)
        case "fail":
            task.say("It broke")
            task.go("failed", 0.5)
        case "wait":
            task.go("working", 0.25)
        case words:
            for progress in (0.25, 0.75):
                task.go("working", progress)
                await anyio.wait_all_tasks_blocked()
            task.give({"type": "text", "text": f"done: {words}"})
            task.give(PICTURE, {"type": "data", "data": {"n": 1}})
            task.go("completed", 1.0)


each_way = pytest.mark.parametrize("streams", [True, False], ids=["streamed", "polled"])


@asynccontextmanager
async def offered(
    folder: Path, work: Work = obeying, *, streams: bool = True, **options: Any
) -> AsyncIterator[tuple[HermesAgent, Client]]:
    """An agent, and a host that has it as a tool."""
    agent = HermesAgent(work, streams=streams)
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            agent.served() as url,
            exposing(folder, url, dialect="hermes") as there,
            there.client("auto", **options) as host,
        ):
            yield agent, host


@each_way
async def test_a_task_is_created_followed_and_read_with_all_its_artifacts(
    streams: bool, tmp_path: Path
) -> None:
    async with offered(tmp_path, streams=streams) as (agent, host):
        result = await host.call_tool("act", {"message": "go"})
    assert not result.is_error
    assert [block.type for block in result.content[:2]] == ["text", "image"]
    assert result.content[0].text == "done: go"
    assert ("GET", "/tasks/task-1/stream", None) in agent.heard or not streams
    assert [verb for verb, path, _ in agent.heard if path == "/tasks"] == ["POST"]
    assert ("GET", "/tasks/task-1/artifacts", None) in agent.heard
    assert all("a2a-version" not in headers for headers in agent.headers)
    [made] = agent.tasks.values()
    assert made.asked["message"]["role"] == "user"
    assert made.asked["message"]["parts"] == [{"type": "text", "text": "go"}]


@each_way
async def test_a_question_among_the_messages_is_asked_and_answered(streams: bool, tmp_path: Path) -> None:
    async with offered(tmp_path, streams=streams) as (agent, host):
        asked = await host.call_tool("act", {"message": "ask"})
        words = asked.content[0].text
        assert words.startswith("How many?")
        handle = words.partition("handle: ")[2].split()[0]
        done = await host.call_tool("task_reply", {"handle": handle, "message": "three"})
    assert done.content[0].text == "done: three"
    words = [body["message"]["parts"][0]["text"] for verb, _, body in agent.heard if verb == "POST"]
    assert words == ["ask", "three"]
    assert len(agent.tasks) == 1


@each_way
async def test_a_task_that_failed_is_an_error_with_its_words(streams: bool, tmp_path: Path) -> None:
    async with offered(tmp_path, streams=streams) as (_, host):
        result = await host.call_tool("act", {"message": "fail"})
    assert result.is_error
    assert "It broke" in result.content[0].text


async def test_the_progress_of_a_task_is_reported(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []
    has_come = {progress: anyio.Event() for progress in (0.25, 0.75)}

    async def script(task: HermesTask) -> None:
        for progress, event in has_come.items():
            task.go("working", progress)
            await event.wait()
        task.go("completed", 1.0)

    async def see(*progress: Any) -> None:
        seen.append(progress)
        has_come[progress[0]].set()

    async with offered(tmp_path, script) as (_, host):
        await host.call_tool("act", {"message": "go"}, progress_callback=see)
    assert seen == [(0.25, 1.0, None), (0.75, 1.0, None)]


@each_way
async def test_a_call_that_is_given_up_cancels_its_task(streams: bool, tmp_path: Path) -> None:
    async with offered(tmp_path, streams=streams) as (agent, host):
        async with anyio.create_task_group() as calls:
            calls.start_soon(host.call_tool, "act", {"message": "wait"})
            while not agent.tasks:
                await anyio.wait_all_tasks_blocked()
            [task] = agent.tasks.values()
            await task.until("working")
            calls.cancel_scope.cancel()
        await task.until("canceled")
    assert ("PUT", "/tasks/task-1/cancel", None) in agent.heard


@asynccontextmanager
async def there_and_back(folder: Path, era: str) -> AsyncIterator[tuple[HermesAgent, HermesClient]]:
    """An agent of Hermes, made a tool, made an agent again, and a client of Hermes there."""
    agent = HermesAgent(obeying)
    profile = profile_with(card={"hermes": True})
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            agent.served() as url,
            exposing(folder, url, dialect="hermes") as there,
            running(config_for(url_at(there.url), profile=profile, era=Era(era))) as bridge,
            new_client() as http,
        ):
            yield agent, HermesClient(http, bridge.base_url)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_of_hermes_has_an_agent_of_hermes_do_its_task(era: str, tmp_path: Path) -> None:
    asking = {"type": "data", "data": {"skill": "act", "arguments": {"message": "ask"}}}
    questions: list[str] = []

    def answer(asked: Any) -> Any:
        questions.extend(texts_in([asked]))
        return said("three")

    async with there_and_back(tmp_path, era) as (agent, client):
        orchestrator = HermesOrchestrator(client, answer)
        task, texts = await orchestrator.done(said(asking))
        parts = [part for one in await client.artifacts(task["id"]) for part in one["parts"]]
    assert any("How many?" in words for words in questions)
    assert (task["status"]["state"], task["status"]["progress"]) == ("completed", 1.0)
    assert "done: three" in texts
    [file] = [part["file"] for part in parts if part["type"] == "file"]
    assert file["bytes"] == PICTURE["file"]["bytes"]
    assert [one.state for one in agent.tasks.values()] == ["completed"]


@pytest.mark.parametrize(("words", "state"), [("fail", "failed"), ("wait", "canceled")])
async def test_other_ends_of_a_hermes_task_come_through(words: str, state: str, tmp_path: Path) -> None:
    call = {"type": "data", "data": {"skill": "act", "arguments": {"message": words}}}
    async with there_and_back(tmp_path, "legacy") as (agent, client):
        task = await client.create(said(call))
        if words == "wait":
            while not agent.tasks:
                await anyio.wait_all_tasks_blocked()
            [mine] = agent.tasks.values()
            await mine.until("working")
            await client.cancel(task["id"])
            await mine.until("canceled")
        events = await client.events(task["id"])
    assert events[-1]["type"] == state
    [mine] = agent.tasks.values()
    assert mine.state == state
