"""The promises of replicas over gRPC: a client may call any of them, also when one is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from bridge.a2a.tasks.agent import Job
from tests.support.drivers import PATIENCE_SECONDS, shape_of
from tests.support.fleet import (
    C,
    Fleet,
    Listening,
    Replica,
    Script,
    Steps,
    W,
    ask_then_finish,
    finish,
    fleet,
    give,
    never,
    say,
)
from tests.support.grpc_agents import served_at, service_of
from tests.support.grpc_driver import GrpcDriver, OlderGrpcDriver, new_channel
from tests.support.running import message

pytestmark = pytest.mark.proves("replicas-one-agent", "a2a-10.1-grpc")

GO, AT_ONCE = {"text": "go"}, {"configuration": {"returnImmediately": True}}
DRIVERS = pytest.mark.parametrize("driver", [GrpcDriver, OlderGrpcDriver], ids=["1.0", "0.3"])


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@asynccontextmanager
async def replicas(
    script: Script, count: int, driver: type[GrpcDriver] = GrpcDriver
) -> AsyncIterator[tuple[Fleet, list[Replica], list[Any]]]:
    """Replicas of one agent, and a client of each."""
    async with fleet(script) as found, AsyncExitStack() as stack:
        started = [await found.start() for _ in range(count)]
        clients = []
        for replica in started:
            service = service_of(replica.engine, replica.tasks)
            port = await stack.enter_async_context(served_at(replica.agent, service))
            clients.append(driver(await stack.enter_async_context(new_channel(port))))
        yield found, started, clients


async def begun(client: Any, **more: Any) -> str:
    """The id of a task whose message was answered at once."""
    answer = await client.call("SendMessage", **message(GO, **more), **AT_ONCE)
    return str(answer["task"]["id"])


@DRIVERS
async def test_a_task_of_one_replica_is_read_and_followed_at_another(driver: type[GrpcDriver]) -> None:
    work = Steps()
    async with replicas(work, 2, driver) as (_, _, (one, two)):
        async with one.stream("SendStreamingMessage", **message(GO)) as events:
            task_id = (await events.next())["task"]["id"]
            await work.began.wait()
            assert (await two.get(task_id))["status"]["state"] == "TASK_STATE_WORKING"
            async with two.stream("SubscribeToTask", id=task_id) as elsewhere:
                first = await elsewhere.next()
                work.go()
                work.go()
                rest = await elsewhere.rest()
            assert shape_of([first, *rest]) == [
                "task WORKING",
                "artifactUpdate",
                "statusUpdate COMPLETED",
            ]
            assert shape_of(await events.rest())[-1] == "statusUpdate COMPLETED"
        assert (await two.get(task_id))["artifacts"] == (await one.get(task_id))["artifacts"]


async def test_tasks_of_all_replicas_are_listed_at_each() -> None:
    async with replicas(finish, 2) as (found, _, clients):
        ids = []
        for client in (*clients, *clients):
            found.clock.pass_ms(10)
            ids.append((await client.send(GO))["id"])
        for client in clients:
            assert await client.listed() == ids[::-1]


@DRIVERS
async def test_a_task_is_cancelled_at_another_replica(driver: type[GrpcDriver]) -> None:
    async with (
        replicas(never, 2, driver) as (_, _, (one, two)),
        one.stream("SendStreamingMessage", **message(GO)) as events,
    ):
        task_id = (await events.next())["task"]["id"]
        assert (await two.cancel(task_id))["status"]["state"] == "TASK_STATE_CANCELED"
        assert shape_of(await events.rest())[-1] == "statusUpdate CANCELED"


@pytest.mark.parametrize("script", [ask_then_finish, Listening], ids=["at rest", "open call"])
async def test_an_answer_reaches_its_task_at_any_replica(script: Any) -> None:
    work = script() if script is Listening else script
    async with replicas(work, 2) as (_, _, (one, two)):
        task = await one.send(GO)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answer = message({"text": "blue"}, taskId=task["id"], contextId=task["contextId"])
        ended = (await two.call("SendMessage", **answer))["task"]
        assert ended["artifacts"][0]["parts"][0]["text"] == "blue"
        refused = await one.refused(
            "SendMessage", **answer | {"message": {**answer["message"], "messageId": "x"}}
        )
        assert refused.reason == "UNSUPPORTED_OPERATION"


async def test_the_same_message_at_two_replicas_is_one_task() -> None:
    work = Steps(0)
    async with replicas(work, 2) as (_, _, (one, two)):
        request = {**message(GO, messageId="same"), **AT_ONCE}
        first = (await one.call("SendMessage", **request))["task"]["id"]
        assert (await two.call("SendMessage", **request))["task"]["id"] == first
        work.go()
    assert work.runs == 1


async def test_those_who_follow_a_task_of_a_killed_replica_elsewhere_are_told() -> None:
    async with replicas(never, 2) as (found, (dead, _), (one, two)):
        task_id = await begun(one)
        async with two.stream("SubscribeToTask", id=task_id) as events:
            await events.until("WORKING")
            found.shared.kill(dead.store)
            assert shape_of(await events.rest()) == ["statusUpdate FAILED"]


async def test_work_that_can_be_resumed_goes_on_at_the_other_replica() -> None:
    gate, runs = anyio.Event(), []

    async def work(job: Job) -> None:
        runs.append(job)
        if len(runs) == 1:
            await job.status(W, keep=b"resume")
            await anyio.sleep_forever()
        await gate.wait()
        await give(job, "from the other")
        await say(job, C)

    async with replicas(work, 2) as (found, (dead, _), (one, two)):
        task_id = await begun(one)
        async with two.stream("SubscribeToTask", id=task_id) as events:
            await events.until("WORKING")
            found.shared.kill(dead.store)
            gate.set()
            assert shape_of(await events.rest()) == ["artifactUpdate", "statusUpdate COMPLETED"]
        (artifact,) = (await two.get(task_id))["artifacts"]
        assert artifact["parts"] == [{"text": "from the other"}]
