"""Which tasks go on after the bridge was stopped or killed during a question, with the same store file."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.support.asking import ASKING_SERVER, asking_url
from tests.support.asking_bridge import (
    AT_ONCE,
    asking,
    given_up,
    keys_of,
    outcome,
    question_of,
    said,
    words_of,
)
from tests.support.command import Wrapping, wrapping
from tests.support.drivers import shape_of, state_of
from tests.support.limits import url_at
from tests.support.running import VERSION, call_part, message

GONE: Final = "The bridge restarted while the tool waited for an answer, so its call was lost"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """One store file for all bridges of a test."""
    return str(tmp_path / "tasks.db")


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[HttpTarget]:
    """The asking server over HTTP, which outlives the bridges."""
    with asking_url(request.param) as url:
        yield url_at(url)


modern_server = pytest.mark.parametrize("served", ["modern"], indirect=True)
legacy_server = pytest.mark.parametrize("served", ["legacy"], indirect=True)


# Rounds


@pytest.mark.proves("restart-goes-on", "map-rounds", "mcp26-state-returned")
@pytest.mark.parametrize("tool", ["ask-one", "ask-expired", "ask-stateless"])
@pytest.mark.smoke("ask-one")
async def test_a_round_goes_on_with_the_servers_request_state(store: str, tool: str) -> None:
    """The server is another process, too: all its state is in the requestState."""
    async with asking("modern", store=store) as client:
        task = await client.ask(tool)
    async with asking("modern", store=store) as client:
        assert await client.get(task["id"]) == task
        assert outcome(await client.answer_to(task, "yes")) == 'accept {"sure": true}'
        assert json.loads(await client.text("requests"))["tools/call"] == 2


@pytest.mark.proves("restart-goes-on", "map-elicitation-both")
async def test_the_answers_that_a_round_already_has_are_kept(store: str) -> None:
    async with asking("modern", store=store) as client:
        task = await client.ask("ask-two")
        await client.answer_to(task, {"second": {"second": "Byron"}})
    async with asking("modern", store=store) as client:
        done = await client.answer_to(task, "Ada")
        assert outcome(done) == 'accept {"first": "Ada"}; accept {"second": "Byron"}'


@pytest.mark.proves("restart-goes-on", "map-elicitation-url")
@pytest.mark.parametrize(("era", "tool", "said_by_it"), [("modern", "ask-url", "accept")])
async def test_a_url_goes_on_and_its_streams_stay_open(
    store: str, era: str, tool: str, said_by_it: str
) -> None:
    async with asking(era, store=store) as client:
        task = await client.ask(tool)
    async with asking(era, store=store) as client, client.watching(task) as events:
        assert outcome(await client.answer_to(task, "done")) == said_by_it
        rest = ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert shape_of(await events.rest()) == rest


@pytest.mark.proves("restart-goes-on", "map-elicitation-url")
@legacy_server
async def test_a_call_that_was_refused_for_a_url_is_made_again(store: str, served: HttpTarget) -> None:
    async with asking("legacy", target=served, store=store) as client:
        task = await client.ask("need-url")
    async with asking("legacy", target=served, store=store) as client:
        assert outcome(await client.answer_to(task, "done")) == "connected"


@pytest.mark.proves("restart-says-why-not")
async def test_a_request_state_that_another_server_refuses_is_reported(store: str) -> None:
    async with asking("modern", store=store) as client:
        unsafe, safe = await client.ask("ask-unsafe"), await client.ask("ask")
    async with asking("modern", "--key", "another", store=store) as client:
        failed = await client.answer_to(unsafe, {"name": "Ada"})
        assert state_of(failed) == "FAILED"
        assert "requestState is not what was given" in words_of(failed)
        assert outcome(await client.answer_to(safe, {"name": "Ada"})).startswith("accept {")
        assert len(await client.server_saw()) == 1


# Open calls


@pytest.mark.proves("restart-goes-on")
async def test_an_open_repeatable_call_is_made_again_without_asking_twice(store: str) -> None:
    async with asking("legacy", store=store) as client:
        task = await client.ask("ask")
    async with asking("legacy", store=store) as client:
        assert await client.get(task["id"]) == task
        wrong = await client.answer_to(task, {"name": "A"})
        assert state_of(wrong) == "INPUT_REQUIRED"
        done = await client.answer_to(task, {"name": "Ada"})
        assert outcome(done).startswith("accept {")
        assert [one["content"]["name"] for one in await client.server_saw()] == ["Ada"]
        assert [one["role"] for one in done["history"]].count("ROLE_USER") == 3


@pytest.mark.proves("restart-goes-on", "map-refuse")
async def test_a_refusal_after_the_restart_reaches_the_server(store: str) -> None:
    async with asking("legacy", store=store) as client:
        task = await client.ask("ask")
    async with asking("legacy", store=store) as client:
        assert outcome(await client.refuse(task, "decline")) == "decline"


@pytest.mark.proves("restart-says-why-not")
@pytest.mark.parametrize("tool", ["ask-unsafe", "ask-one", "ask-url"])
@pytest.mark.smoke("ask-unsafe")
async def test_an_open_call_that_may_not_be_repeated_has_failed_and_says_so(store: str, tool: str) -> None:
    async with asking("legacy", store=store) as client:
        task = await client.ask(tool)
    async with asking("legacy", store=store) as client:
        failed = await client.ended(task)
        assert state_of(failed) == "FAILED"
        assert words_of(failed).startswith(GONE)
        fault = await client.refused("SendMessage", **message(*said("yes"), taskId=task["id"]))
        assert fault.reason == "UNSUPPORTED_OPERATION"
        assert await client.server_saw() == []


# Tasks of the server


@pytest.mark.proves("restart-goes-on", "map-server-tasks")
@modern_server
async def test_a_task_of_the_server_goes_on_and_its_question_is_asked_again(
    store: str, served: HttpTarget
) -> None:
    async with asking("modern", target=served, store=store) as client:
        task = await client.ask("task-job", ask=True)
    async with asking("modern", target=served, store=store) as client:
        assert state_of(again := await client.get(task["id"])) in ("INPUT_REQUIRED", "WORKING"), again
        done = await client.answer_to(task, "Ada")
        assert outcome(done) == '2 steps; name-1: accept {"name": "Ada"}'
        assert "tasks/cancel" not in json.loads(await client.text("requests"))


@pytest.mark.proves("restart-goes-on", "map-server-tasks")
@legacy_server
async def test_a_legacy_task_of_the_server_goes_on_too(store: str, served: HttpTarget) -> None:
    async with asking("legacy", target=served, store=store) as client:
        task = await client.ask("job", ask=True)
        (before,) = keys_of(task)
    async with asking("legacy", target=served, store=store) as client:
        async with client.stream("SubscribeToTask", id=task["id"]) as events:
            while True:
                event = await events.next()
                assert event is not None
                found = await client.get(task["id"])
                if state_of(found) == "INPUT_REQUIRED" and keys_of(found) != [before]:
                    break
        done = await client.answer_to(task, "Ada")
        assert outcome(done) == '2 steps; accept {"name": "Ada"}'
        assert [one["content"] for one in await client.server_saw()] == [{"name": "Ada"}]


@pytest.mark.proves("restart-goes-on", "map-server-tasks")
@modern_server
async def test_a_task_that_the_server_finished_meanwhile_gives_its_result(
    store: str, served: HttpTarget
) -> None:
    """The answer reached the server from elsewhere, so that nothing is left to be asked."""
    async with asking("modern", target=served, store=store) as client:
        task = await client.ask("task-job", ask=True)
    task_id = json.loads(kept_of(store, task["id"]))["task_id"]
    await tell(served, "tasks/update", task_id, {"name-1": {"action": "accept", "content": {"name": "Eve"}}})
    async with asking("modern", target=served, store=store) as client:
        assert outcome(await client.ended(task)).endswith('name-1: accept {"name": "Eve"}')


@pytest.mark.proves("restart-goes-on", "map-server-tasks")
@modern_server
async def test_a_working_task_of_the_server_goes_on_after_the_bridge_stops(
    store: str, served: HttpTarget
) -> None:
    """Whoever waits for the task gets its status, and the server gets no cancellation."""
    async with asking("modern", target=served, store=store) as client, anyio.create_task_group() as tasks:
        told: list[Any] = []

        async def wait_for_it(sent: Any) -> None:
            told.append(await client.send(*sent["parts"], messageId=sent["messageId"]))

        sent = message(call_part("task-job", never=True, poll_ms=10))["message"]
        task = await client.send(*sent["parts"], messageId=sent["messageId"], configuration=AT_ONCE)
        async with client.watching(task) as events:
            while not kept_of(store, task["id"]):
                await events.next()
            tasks.start_soon(wait_for_it, sent)
            assert client.bridge is not None
            await client.bridge.bridge.engine.drain(0)
            while await events.next() is not None:
                pass
    assert [state_of(one) for one in told] in ([], ["WORKING"])
    async with asking("modern", target=served, store=store) as client:
        assert state_of(await client.get(task["id"])) == "WORKING"
        seen = json.loads(await client.text("requests"))
        assert "tasks/cancel" not in seen
        canceled = await client.call("CancelTask", id=task["id"])
        assert state_of(canceled) == "CANCELED"
        assert json.loads(await client.text("requests"))["tasks/cancel"] == 1


def kept_of(store: str, task_id: str) -> bytes:
    """The resume state that a bridge stored with a task."""
    with closing(sqlite3.connect(store)) as file:
        found = file.execute("SELECT private FROM privates WHERE task_id = ?", (task_id,)).fetchone()
        return bytes(found[0]) if found else b""


async def tell(server: HttpTarget, method: str, task_id: str, responses: Any) -> None:
    """Another client of the same server."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "other", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    params = {"taskId": task_id, "inputResponses": responses, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": "other-1", "method": method, "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": task_id,
    }
    async with httpx2.AsyncClient() as http:
        answer = (await http.post(server.url, json=body, headers=headers)).json()
    assert "result" in answer, answer


@pytest.mark.proves("restart-says-why-not", "map-server-tasks")
async def test_a_task_that_was_lost_with_its_server_fails_and_says_so(store: str) -> None:
    async with asking("modern", store=store) as client:
        task = await client.ask("task-job", ask=True)
    async with asking("modern", store=store) as client:
        failed = await client.ended(task)
        assert state_of(failed) == "FAILED"
        assert "no longer knows the task" in words_of(failed)


# What the bridge itself asks


@pytest.mark.proves("restart-keeps-waiting", "restart-goes-on")
async def test_questions_of_the_bridge_go_on(store: str) -> None:
    async with asking("modern", store=store) as client:
        arguments = await client.ask("echo")
        which = await client.send({"text": "do something"})
        assert question_of(which)["key"] == "which-skill"
    async with asking("modern", store=store) as client:
        assert outcome(await client.answer_to(arguments, "hello")) == "hello"
        assert outcome(await client.answer_to(which, {"skill": "echo", "arguments": {"text": "hi"}})) == "hi"


# Time


@pytest.mark.proves("map-input-timeout", "restart-goes-on")
@pytest.mark.parametrize(("era", "tool"), [("modern", "ask"), ("legacy", "ask"), ("modern", "ask-url")])
@pytest.mark.smoke("legacy-ask")
async def test_a_waiting_task_still_times_out_after_a_restart(store: str, era: str, tool: str) -> None:
    async with asking(era, store=store) as client:
        task = await client.ask(tool)
    async with asking(era, store=store, run={"input_timeout_seconds": 0.2}) as client:
        failed = await client.ended(task)
        assert words_of(failed) == "This agent's question was not answered within 0.2 s"
        assert await client.server_saw() == []


@pytest.mark.proves("map-input-timeout", "map-server-tasks")
@modern_server
async def test_a_task_of_the_server_still_times_out_after_a_restart(store: str, served: HttpTarget) -> None:
    async with asking("modern", target=served, store=store) as client:
        task = await client.ask("task-job", ask=True)
    async with asking("modern", target=served, store=store, run={"input_timeout_seconds": 0.3}) as client:
        failed = await client.ended(task)
        assert words_of(failed) == given_up(0.3)
        assert await client.server_saw() == [{"action": "cancel"}]


# How the first bridge ends


@pytest.mark.proves("restart-goes-on", "cli-stop")
async def test_the_drain_does_not_wait_for_tasks_that_ask(store: str) -> None:
    async with asking("legacy", store=store, run={"drain_seconds": 60.0}) as client:
        task = await client.ask("ask")
        assert client.bridge is not None
        await client.bridge.bridge.engine.drain(60)
    async with asking("legacy", store=store) as client:
        assert outcome(await client.answer_to(task, {"name": "Ada"})).startswith("accept")


@pytest.mark.proves("restart-goes-on")
async def test_a_bridge_that_was_cancelled_leaves_its_questions_too(store: str) -> None:
    tasks = []
    with anyio.CancelScope() as scope:
        async with asking("modern", store=store) as client:
            tasks.append(await client.ask("ask-one"))
            scope.cancel()
            await anyio.sleep_forever()
    async with asking("modern", store=store) as client:
        assert outcome(await client.answer_to(tasks[0], "yes")) == 'accept {"sure": true}'


@pytest.mark.proves("restart-goes-on")
async def test_three_restarts_lose_nothing(store: str) -> None:
    async with asking("modern", store=store) as client:
        task = await client.ask("ask-twice")
    async with asking("modern", store=store) as client:
        task = await client.answer_to(task, "Ada")
    async with asking("modern", store=store) as client:
        assert await client.get(task["id"]) == task
    async with asking("modern", store=store) as client:
        done = await client.answer_to(task, "Byron")
        assert outcome(done) == 'accept {"first": "Ada"}; accept {"second": "Byron"}'


# A process that is killed


class Caller:
    """A client of a bridge that is another process."""

    def __init__(self, bridge: Wrapping, client: httpx2.Client) -> None:
        self._url, self._client = bridge.url, client

    def call(self, operation: str, params: Any) -> Any:
        """The result of an operation."""
        body = {"jsonrpc": "2.0", "id": 1, "method": operation, "params": params}
        answer = self._client.post(self._url, json=body, headers=VERSION).json()
        assert "result" in answer, answer
        return answer["result"]

    def send(self, part: Any, **fields: Any) -> Any:
        """SendMessage; the task."""
        return self.call("SendMessage", message(part, **fields))["task"]


@contextmanager
def started(folder: Path, era: str) -> Iterator[tuple[Wrapping, Caller]]:
    """`python -m bridge wrap` with a store file in the folder and its own asking server."""
    client = httpx2.Client(timeout=30, verify=False)
    server = (sys.executable, str(ASKING_SERVER), "--era", era, "--jobs", str(folder / "jobs.json"))
    options = ("--era", era, "--store", str(folder / "tasks.db"))
    with wrapping(*options, state=folder / "state", server=server) as bridge, client:
        yield bridge, Caller(bridge, client)


@pytest.mark.slow
@pytest.mark.proves("restart-goes-on", "restart-says-why-not", "store-kill")
@pytest.mark.parametrize(("tool", "is_repeatable"), [("ask", True), ("ask-unsafe", False)])
def test_an_open_call_of_a_killed_bridge_is_made_again_or_has_failed(
    tool: str, is_repeatable: bool, tmp_path: Path
) -> None:
    with started(tmp_path, "legacy") as (bridge, caller):
        task = caller.send(call_part(tool))
        kill(bridge)
    with started(tmp_path, "legacy") as (_, caller):
        if is_repeatable:
            done = caller.send({"data": {"name": "Ada"}}, taskId=task["id"])
            assert outcome(done).startswith("accept {")
        else:
            assert words_of(caller.call("GetTask", {"id": task["id"]})).startswith(GONE)


@pytest.mark.slow
@pytest.mark.proves("restart-goes-on", "store-kill", "map-server-tasks")
def test_a_killed_bridge_goes_on_with_rounds_and_tasks_of_the_server(tmp_path: Path) -> None:
    with started(tmp_path, "modern") as (bridge, caller):
        asks, job = caller.send(call_part("ask-one")), caller.send(call_part("task-job", ask=True))
        works = caller.send(call_part("task-job", steps=3, seconds=0.5), configuration=AT_ONCE)
        while not kept_of(str(tmp_path / "tasks.db"), works["id"]):
            assert state_of(caller.call("GetTask", {"id": works["id"]})) in ("SUBMITTED", "WORKING")
        kill(bridge)
    with started(tmp_path, "modern") as (_, caller):
        assert outcome(caller.send({"text": "yes"}, taskId=asks["id"])) == 'accept {"sure": true}'
        assert outcome(caller.send({"text": "Ada"}, taskId=job["id"])).endswith('accept {"name": "Ada"}')
        while state_of(works := caller.call("GetTask", {"id": works["id"]})) == "WORKING":
            assert caller.call("ListTasks", {})["totalSize"] == 3
        assert outcome(works) == "3 steps"


def kill(bridge: Wrapping) -> None:
    """Kill the process, without a chance to clean up."""
    bridge.process.send_signal(signal.SIGKILL)
    assert bridge.process.wait(30) == -signal.SIGKILL
