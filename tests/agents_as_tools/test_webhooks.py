"""Webhooks at foreign agents: when they are created, used and deleted."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from bridge.concurrency import Signal
from tests.support.agent_faces import OPTIONS
from tests.support.exposing import exposing
from tests.support.foreign import Foreign, foreign_agent
from tests.support.mcp_tasks import TaskClient, task_client
from tests.support.ports import free_port
from tests.support.scripted_agent import Json, scripted_agent

pytestmark = [pytest.mark.outside, pytest.mark.proves("a2a-4.3.3-received")]

WAIT_SECONDS = 30
CREATES = {
    "1.0": "CreateTaskPushNotificationConfig",
    "0.3": "tasks/pushNotificationConfig/set",
    "0.1": "tasks/pushNotification/set",
}
DELETES = {"1.0": "DeleteTaskPushNotificationConfig", "0.3": "tasks/pushNotificationConfig/delete"}
REFUSED = {"error": {"code": -32003, "message": "Push Notification is not supported"}}


@asynccontextmanager
async def notified_tasks(
    folder: Path, *, push: bool = True, declared: bool = True, at_public_url: bool = True, **options: Any
) -> AsyncIterator[tuple[TaskClient, Foreign]]:
    """A client that takes tasks, of an agent of a2a-sdk that notifies."""
    options = {"task_after_seconds": 0, "push_poll_seconds": 3600, "push_look_seconds": 0, **options}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            foreign_agent(streaming=False, push=declared) as agent,
            exposing(folder, agent.url, push=push, at_public_url=at_public_url, **options) as exposed,
            task_client(exposed) as client,
        ):
            yield client, agent


async def test_the_webhook_of_a_task_is_deleted_when_its_agent_says_that_the_task_ended(
    tmp_path: Path,
) -> None:
    async with notified_tasks(tmp_path) as (client, agent):
        task = await client.call("slow", message="go")
        assert task["resultType"] == "task"
        await agent.seen.webhook_set.wait()
        assert [url.endswith("/push") for url in agent.seen.webhooks] == [True]
        agent.seen.released.set()
        await agent.seen.webhook_deleted.wait()
        assert (await client.get(task))["status"] == "completed"


async def test_no_webhook_is_created_if_webhooks_are_off_or_the_bridge_has_no_address(tmp_path: Path) -> None:
    for name, options in (
        ("off", {"push": False}),
        ("undeclared", {"declared": False}),
        ("nowhere", {"at_public_url": False}),
        ("quick", {"task_after_seconds": WAIT_SECONDS}),
    ):
        async with notified_tasks(tmp_path / name, **options) as (client, agent):
            agent.seen.released.set()
            answer = await client.call("slow" if name != "quick" else "plain", message="go")
            ended = await client.end(answer) if answer["resultType"] == "task" else answer
            assert "result" in ended or "content" in ended
            assert agent.seen.webhooks == [], name


async def handle_of_task(client: TaskClient) -> str:
    """The handle of a call whose agent has named a task in time."""
    while True:
        words = json.dumps(await client.call("slow", message="go"))
        if "valid only while this server runs" not in words:
            found = re.search(r"with this handle: ([\w-]+)", words)
            assert found, words
            return found[1]


async def test_a_handle_has_a_webhook_which_wakes_the_host_that_comes_back(tmp_path: Path) -> None:
    async with notified_tasks(tmp_path, task_after_seconds=3600, answer_within_seconds=0.2) as (
        client,
        agent,
    ):
        handle = await handle_of_task(client)
        await agent.seen.webhook_set.wait()
        async with anyio.create_task_group() as group:
            results: list[Any] = []

            async def come_back() -> None:
                results.append(await client.call("task_result", handle=handle))

            group.start_soon(come_back)
            agent.seen.released.set()
        assert "Slow but sure" in results[0]["content"][0]["text"]
        await agent.seen.webhook_deleted.wait()


@dataclass
class Notifying:
    """An agent of a generation that works until a test says that it is done, and takes webhooks."""

    generation: str
    refuses: bool = False
    state: str = "working"
    created: list[Json] = field(default_factory=list)
    deleted: list[Json] = field(default_factory=list)
    reads: int = 0
    """How often its task was read since the webhook was asked for."""
    news: Signal = field(default_factory=Signal)
    """Told after each request."""

    def __call__(self, method: str, params: Json) -> list[Json]:
        self.news.notify()
        if method == CREATES[self.generation]:
            self.created.append(params)
            return [REFUSED if self.refuses else params]
        if method == DELETES.get(self.generation):
            self.deleted.append(params)
            return [{}]
        if method in ("GetTask", "tasks/get"):
            self.reads += bool(self.created)
            return [self._task(params["id"])]
        held = self._task(params["message"]["messageId"] if self.generation != "0.1" else params["id"])
        return [{"task": held} if self.generation == "1.0" else held]

    def _task(self, task_id: str) -> Json:
        state = f"TASK_STATE_{self.state.upper()}" if self.generation == "1.0" else self.state
        context = {"sessionId": "c-1"} if self.generation == "0.1" else {"contextId": "c-1"}
        kind = {"kind": "task"} if self.generation == "0.3" else {}
        return {**kind, "id": task_id, **context, "status": {"state": state}}

    @property
    def webhook(self) -> Json:
        """The webhook that it was asked for first, as its generation spells it."""
        params = self.created[0]
        found: Json = params.get("pushNotificationConfig", params)
        return found

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        while not is_so():
            await self.news.wait()


@asynccontextmanager
async def scripted(agent: Notifying, folder: Path, **options: Any) -> AsyncIterator[TaskClient]:
    """A client that takes tasks, of an agent of a generation."""
    options = {"task_after_seconds": 0, "push_poll_seconds": 3600, "push_look_seconds": 0, **options}
    card = {"capabilities": {"streaming": False, "pushNotifications": True}}
    older = {"is_older": agent.generation == "0.3", "is_first": agent.generation == "0.1"}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            scripted_agent(agent, card, **older) as url,
            exposing(folder, url, at_public_url=True, **options) as exposed,
            task_client(exposed) as client,
        ):
            yield client


@pytest.mark.parametrize("generation", [*CREATES])
async def test_a_webhook_is_created_in_the_agents_protocol_version(generation: str, tmp_path: Path) -> None:
    agent = Notifying(generation)
    async with scripted(agent, tmp_path) as client, httpx2.AsyncClient() as http:
        task = await client.call("act", message="go")
        assert task["resultType"] == "task"
        await agent.until(lambda: bool(agent.created))
        asked = agent.webhook
        schemes = {"scheme": "Bearer"} if generation == "1.0" else {"schemes": ["Bearer"]}
        assert asked["authentication"] == {**schemes, "credentials": asked["token"]}
        agent.state = "completed"
        answer = await http.post(asked["url"], headers={"Authorization": f"Bearer {asked['token']}"})
        assert answer.status_code == 204
        assert (await client.end(task))["status"] == "completed"
        if generation in DELETES:
            await agent.until(lambda: bool(agent.deleted))
            [gone] = agent.deleted
            assert asked["id"] in gone.values()


async def test_a_watcher_learns_of_a_change_from_the_notification_and_not_from_a_poll(
    tmp_path: Path,
) -> None:
    agent = Notifying("1.0")
    async with scripted(agent, tmp_path) as client, httpx2.AsyncClient() as http:

        async def notify() -> None:
            token = {"X-A2A-Notification-Token": agent.webhook["token"]}
            assert (await http.post(agent.webhook["url"], headers=token)).status_code == 204

        task = await client.call("act", message="go")
        await agent.until(lambda: agent.reads > 0)  # the webhook is in place
        await notify()
        async with client.listening(taskIds=[task["taskId"]]) as messages:
            while (await anext(messages))["params"].get("status") != "working":
                pass
            reads = agent.reads
            await agent.until(lambda: agent.reads > reads)  # it pauses now
            agent.state = "completed"
            await notify()
            while (await anext(messages))["params"].get("status") != "completed":
                pass


async def test_an_agent_that_refuses_webhooks_is_polled_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Notifying("1.0", refuses=True)

    def told() -> list[str]:
        return [one.message for one in caplog.records if "takes no webhook" in one.message]

    async with scripted(agent, tmp_path) as client:
        for number in range(3):
            agent.state = "working"
            task = await client.call("act", message="go")
            await agent.until(lambda count=number + 1: len(agent.created) >= count)  # type: ignore[misc]
            agent.state = "completed"
            assert (await client.end(task))["status"] == "completed"
        while not told():
            await anyio.lowlevel.checkpoint()
    [words] = told()
    assert words.startswith("scripted takes no webhook, so its tasks are polled: ")


async def test_a_notification_of_a_task_that_has_ended_causes_no_request(tmp_path: Path) -> None:
    agent = Notifying("1.0")
    async with scripted(agent, tmp_path) as client, httpx2.AsyncClient() as http:
        task = await client.call("act", message="go")
        await agent.until(lambda: bool(agent.created))
        asked, agent.state = agent.webhook, "completed"
        await client.end(task)
        await agent.until(lambda: bool(agent.deleted))
        requests = agent.news.next
        for _ in range(20):
            answer = await http.post(asked["url"], headers={"X-A2A-Notification-Token": asked["token"]})
            assert answer.status_code == 204
        assert not requests.is_set()


async def test_the_oldest_webhook_makes_room_for_a_new_webhook(tmp_path: Path) -> None:
    agent = Notifying("1.0")
    async with scripted(agent, tmp_path, push_tasks=1) as client:
        for _ in range(2):
            await client.call("act", message="go")
        await agent.until(lambda: bool(agent.deleted))
        assert agent.deleted[0]["id"] == agent.webhook["id"]


async def test_the_webhooks_at_a_removed_agent_are_deleted(tmp_path: Path) -> None:
    agent = Notifying("1.0")
    card = {"capabilities": {"streaming": False, "pushNotifications": True}}
    with anyio.fail_after(WAIT_SECONDS):
        async with (
            scripted_agent(agent, card) as url,
            exposing(tmp_path, url, at_public_url=True, task_after_seconds=0) as exposed,
            task_client(exposed) as client,
        ):
            await client.call("act", message="go")
            await agent.until(lambda: bool(agent.created))
            exposed.exposure.face.update([], OPTIONS)
            await agent.until(lambda: bool(agent.deleted))
            assert [one["id"] for one in agent.deleted] == [agent.webhook["id"]]


async def test_a_webhook_is_valid_after_a_restart_of_the_bridge(tmp_path: Path) -> None:
    agent, port = Notifying("1.0"), free_port()
    card = {"capabilities": {"streaming": False, "pushNotifications": True}}
    options: dict[str, Any] = {"at_public_url": True, "port": port, "task_after_seconds": 0}
    with anyio.fail_after(WAIT_SECONDS):
        async with scripted_agent(agent, card) as url:
            async with exposing(tmp_path, url, **options) as exposed, task_client(exposed) as client:
                task = await client.call("act", message="go")
                await agent.until(lambda: bool(agent.created))
            asked, agent.state = agent.webhook, "completed"
            async with (
                exposing(tmp_path, url, **options) as exposed,
                task_client(exposed) as client,
                httpx2.AsyncClient() as http,
            ):
                answer = await http.post(asked["url"], headers={"X-A2A-Notification-Token": asked["token"]})
                assert answer.status_code == 204
                assert (await client.get(task))["status"] == "completed"
