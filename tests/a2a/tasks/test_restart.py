"""Tasks after the bridge stops, crashes or is killed, and starts again on the same file."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command import Wrapping, children_of, gone, wrapping
from tests.support.drivers import JsonRpcDriver, new_client, shape_of, state_of
from tests.support.running import (
    VERSION,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
    texts,
)

ECHO, ADD_ONE, WAIT = call_part("echo", text="hello"), call_part("add", a=1), call_part("wait")
AT_ONCE = {"returnImmediately": True}


@asynccontextmanager
async def bridged(store: Path) -> AsyncIterator[JsonRpcDriver]:
    """A bridge of this process on a file."""
    config = config_for(raw_command(), store=str(store), profile=profile_with(run={"drain_seconds": 0.0}))
    async with running(config) as bridge, new_client() as client:
        yield JsonRpcDriver(client, bridge.base_url)


def copy_as_a_crash_leaves_it(store: Path, to: Path) -> None:
    """What is stored at this moment, while the bridge goes on."""
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


@pytest.mark.proves("a2a-3.1.3-get", "a2a-3.1.4-list")
async def test_tasks_that_ended_are_whole_after_a_restart(tmp_path: Path) -> None:
    parts = [ECHO, call_part("every-block"), call_part("fail"), call_part("progress", steps=5)]
    async with bridged(tmp_path / "tasks.db") as driver:
        before = [await driver.send(part, contextId="mine") for part in parts]
        page = await driver.call("ListTasks", contextId="mine", includeArtifacts=True)
    async with bridged(tmp_path / "tasks.db") as driver:
        assert [await driver.get(task["id"]) for task in before] == before
        assert await driver.call("ListTasks", contextId="mine", includeArtifacts=True) == page
        for task in before:
            assert (await driver.refused("CancelTask", id=task["id"])).reason == "TASK_NOT_CANCELABLE"
            assert (await driver.refused("SubscribeToTask", id=task["id"])).reason == "UNSUPPORTED_OPERATION"


@pytest.mark.proves("restart-keeps-waiting", "map-arguments")
async def test_a_task_that_waits_for_arguments_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with bridged(tmp_path / "tasks.db") as driver:
        waiting, other = await driver.send(ADD_ONE), await driver.send(ADD_ONE)
    async with bridged(tmp_path / "tasks.db") as driver:
        assert await driver.get(waiting["id"]) == waiting
        async with driver.stream("SubscribeToTask", id=waiting["id"]) as events:
            assert await events.next() == {"task": waiting}
            done = await driver.send({"data": {"b": 41}}, taskId=waiting["id"])
            assert shape_of(await events.rest())[-1] == "statusUpdate COMPLETED"
        assert json.loads(done["artifacts"][0]["parts"][-1]["text"]) == {"sum": 42}
        assert [said["role"] for said in done["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]
        assert state_of(await driver.cancel(other["id"])) == "CANCELED"


@pytest.mark.proves("restart-keeps-waiting", "map-arguments")
async def test_answers_are_kept_over_two_restarts(tmp_path: Path) -> None:
    async with bridged(tmp_path / "tasks.db") as driver:
        task = await driver.send(call_part("add"))
    async with bridged(tmp_path / "tasks.db") as driver:
        asks_again = await driver.send({"data": {"a": 40}}, taskId=task["id"])
        assert state_of(asks_again) == "INPUT_REQUIRED"
    async with bridged(tmp_path / "tasks.db") as driver:
        done = await driver.send({"data": {"b": 2}}, taskId=task["id"])
        assert json.loads(done["artifacts"][0]["parts"][-1]["text"]) == {"sum": 42}


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_finds_its_task_after_a_restart(tmp_path: Path) -> None:
    params = message(ECHO)
    async with bridged(tmp_path / "tasks.db") as driver:
        first = await driver.call("SendMessage", **params)
    async with bridged(tmp_path / "tasks.db") as driver:
        assert await driver.call("SendMessage", **params) == first
        assert len(await driver.listed()) == 1


@pytest.mark.proves("a2a-3.1.4-list")
async def test_a_page_token_holds_over_a_restart(tmp_path: Path) -> None:
    async with bridged(tmp_path / "tasks.db") as driver:
        for _ in range(5):
            await driver.send(ECHO)
        ids = await driver.listed()
        page = await driver.call("ListTasks", pageSize=2)
    async with bridged(tmp_path / "tasks.db") as driver:
        rest = await driver.listed(pageToken=page["nextPageToken"])
        assert [task["id"] for task in page["tasks"]] + rest == ids


@pytest.mark.proves("cli-stop")
async def test_a_task_that_ran_when_the_bridge_was_stopped_is_failed_and_says_so(tmp_path: Path) -> None:
    async with bridged(tmp_path / "tasks.db") as driver:
        task = await driver.send(WAIT, configuration=AT_ONCE)
    async with bridged(tmp_path / "tasks.db") as driver:
        assert "was stopped" in failure_of(await driver.get(task["id"]))


@pytest.mark.proves("restart-fails-running", "restart-keeps-waiting")
async def test_a_task_that_ran_when_the_bridge_crashed_is_failed_and_says_so(tmp_path: Path) -> None:
    async with bridged(tmp_path / "tasks.db") as driver:
        ended, waiting = await driver.send(ECHO), await driver.send(ADD_ONE)
        async with driver.working(WAIT) as (running_id, _):
            copy_as_a_crash_leaves_it(tmp_path / "tasks.db", tmp_path / "crashed.db")
    async with bridged(tmp_path / "crashed.db") as driver:
        task = await driver.get(running_id)
        assert "restarted" in failure_of(task)
        assert (await driver.refused("CancelTask", id=running_id)).reason == "TASK_NOT_CANCELABLE"
        assert await driver.get(ended["id"]) == ended
        assert await driver.get(waiting["id"]) == waiting
    async with bridged(tmp_path / "crashed.db") as driver:
        assert await driver.get(running_id) == task


def failure_of(task: Any) -> str:
    """What a task that failed says."""
    assert state_of(task) == "FAILED"
    return " ".join(texts(task["status"]["message"]["parts"]))


# A process that is killed


class Caller:
    """A client of a bridge that is another process."""

    def __init__(self, bridge: Wrapping, client: httpx2.Client) -> None:
        self._url = bridge.url
        self._client = client

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
def started(folder: Path) -> Iterator[tuple[Wrapping, Caller]]:
    """`python -m bridge wrap` on a file of the folder, with a tool server of its own."""
    client = httpx2.Client(timeout=30, verify=False)
    with wrapping("--store", str(folder / "tasks.db"), state=folder / "state") as bridge, client:
        yield bridge, Caller(bridge, client)


@pytest.mark.proves("store-kill", "restart-fails-running", "restart-keeps-waiting", "mcp-no-leak")
def test_a_killed_bridge_loses_no_acknowledged_event_and_leaves_no_process(tmp_path: Path) -> None:
    with started(tmp_path) as (bridge, caller):
        ended = [caller.send(ECHO), caller.send(call_part("every-block")), caller.send(call_part("fail"))]
        waiting = caller.send(ADD_ONE)
        ran = [caller.send(WAIT, configuration=AT_ONCE)["id"] for _ in range(5)]
        children = children_of(bridge.process.pid)
        assert children
        bridge.process.send_signal(signal.SIGKILL)
        assert bridge.process.wait(30) == -signal.SIGKILL
        assert gone(children)
    with started(tmp_path) as (bridge, caller):
        for task in (*ended, waiting):
            assert caller.call("GetTask", {"id": task["id"]}) == task
        for task_id in ran:
            assert "restarted" in failure_of(caller.call("GetTask", {"id": task_id}))
        done = caller.send({"data": {"b": 2}}, taskId=waiting["id"])
        assert json.loads(done["artifacts"][0]["parts"][-1]["text"]) == {"sum": 3}
        assert caller.call("ListTasks", {})["totalSize"] == len(ended) + 1 + len(ran)
        children = children_of(bridge.process.pid)
        assert bridge.stop(signal.SIGTERM) == 0
        assert gone(children)
