"""A message that is followed over gRPC to where its task settles, also where connections break."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import grpc
import httpx2
import pytest
from grpc import aio

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import (
    OutcomeUnknownError,
    TaskListener,
    TaskLostError,
    converse,
    wait_until_settled,
)
from bridge.a2a.client.http import NotReachedError, UnansweredError
from bridge.a2a.model.objects import Message, StreamResponse, Task, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.remotes.grpc_calls import GrpcTransports
from tests.a2a.client.test_follow import PACE, chunk, saying, texts, without_history
from tests.support.agents import found_at, give, say
from tests.support.grpc_agents import PATIENCE_SECONDS, methods_over_grpc, relay_to, scripted_over_grpc
from tests.support.limits import client_options, deadlines

pytestmark = pytest.mark.proves("a2a-10-called", "map-call-followed")

VERSIONS = ("1.0", "0.3")
NO_STREAMS = {"capabilities": {"streaming": False}}


@dataclass
class Follower:
    """A client over gRPC, and what it has sent and heard."""

    agent: AgentClient
    sent: list[str] = field(default_factory=list)
    """The methods of the requests."""
    events: list[StreamResponse] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    moved: anyio.Event = field(default_factory=anyio.Event)

    @property
    def listener(self) -> TaskListener:
        return TaskListener(self._hear, self.tasks.append)

    def _hear(self, event: StreamResponse) -> None:
        self.events.append(event)
        self.move()

    def move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self.moved.wait()

    async def converse(self, **pace: Any) -> Task | Message:
        with anyio.fail_after(PATIENCE_SECONDS):
            return await converse(self.agent, saying(), self.listener, pace=replace(PACE, **pace))


@pytest.fixture
async def follow() -> AsyncIterator[Callable[..., Follower]]:
    async with httpx2.AsyncClient() as http, GrpcTransports() as calls:

        def follower(port: int, version: str = "1.0", more: Any = (), **options: Any) -> Follower:
            def note(direction: str, text: str) -> None:
                if direction == ">":
                    follower.sent.append(json.loads(text)["method"])
                    follower.move()

            found = found_at(f"http://127.0.0.1:{port}", f"{version} GRPC", **dict(more))
            options = {"on_hop": note, "grpc": calls.transports, **options}
            follower = Follower(AgentClient(http, found, client_options(**options)))
            return follower

        yield follower


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stream_is_followed_to_its_end(follow: Callable[..., Follower], version: str) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        for number in range(3):
            await chunk(job, f"chunk {number}")
        await say(job, TaskState.COMPLETED)

    async with scripted_over_grpc(script) as port:
        follower = follow(port, version)
        task = await follower.converse()
        assert without_history(await follower.agent.get(task.id)) == without_history(task)  # type: ignore[union-attr]
    assert texts(task) == ["chunk 0", "chunk 1", "chunk 2"]
    assert follower.sent == ["SendStreamingMessage", "GetTask"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_agent_without_streams_is_polled(follow: Callable[..., Follower], version: str) -> None:
    go_on = anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await go_on.wait()
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with scripted_over_grpc(script) as port, anyio.create_task_group() as group:
        follower = follow(port, version, NO_STREAMS)

        async def release() -> None:
            await follower.until(lambda: follower.sent.count("GetTask") >= 2)
            go_on.set()

        group.start_soon(release)
        task = await follower.converse()
    assert texts(task) == ["done"]
    assert set(follower.sent) == {"SendMessage", "GetTask"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stream_that_breaks_loses_and_repeats_no_chunk(
    follow: Callable[..., Follower], version: str
) -> None:
    go_on = anyio.Event()
    subscribed = {"1.0": "SubscribeToTask", "0.3": "TaskSubscription"}[version]

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await chunk(job, "before")
        await go_on.wait()
        await chunk(job, "after")
        await say(job, TaskState.COMPLETED)

    async with (
        scripted_over_grpc(script) as port,
        relay_to(port) as relay,
        anyio.create_task_group() as group,
    ):
        follower = follow(relay.port, version)

        async def break_off() -> None:
            await follower.until(lambda: len(follower.events) >= 3)
            await relay.drop_all()
            await follower.until(lambda: subscribed in follower.sent)
            go_on.set()

        group.start_soon(break_off)
        task = await follower.converse()
    assert texts(task) == ["before", "after"]
    assert follower.sent.count("SendStreamingMessage") == 1
    assert len(follower.tasks) == 1
    assert relay.accepted >= 2


async def test_a_task_whose_agent_is_gone_is_given_up_with_what_was_known(
    follow: Callable[..., Follower],
) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await chunk(job, "before")
        await anyio.sleep_forever()

    async with (
        scripted_over_grpc(script) as port,
        relay_to(port) as relay,
        anyio.create_task_group() as group,
    ):
        follower = follow(relay.port)

        async def vanish() -> None:
            await follower.until(lambda: len(follower.events) >= 3)
            await relay.drop_all(refuse=True)

        group.start_soon(vanish)
        with pytest.raises(TaskLostError, match="been out of reach") as lost:
            await follower.converse(outage_seconds=0.1)
    assert lost.value.task is not None
    assert texts(lost.value.task) == ["before"]


@pytest.mark.proves("map-call-once")
@pytest.mark.parametrize("more", [{}, NO_STREAMS])
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_a_message_that_may_have_arrived_is_not_sent_again(
    follow: Callable[..., Follower], more: dict[str, Any], code: grpc.StatusCode
) -> None:
    async def refuse(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(code, "lost")

    handlers = {
        "SendMessage": grpc.unary_unary_rpc_method_handler(refuse),
        "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(refuse),
    }
    async with methods_over_grpc(handlers) as port:
        follower = follow(port, more=more)
        with pytest.raises(OutcomeUnknownError, match="unknown; it is not sent again"):
            await follower.converse()
    assert len(follower.sent) == 1


@pytest.mark.proves("map-call-once")
async def test_a_message_is_sent_to_the_next_interface_only_where_nothing_was_taken(
    follow: Callable[..., Follower],
) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    async def refuse(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")

    def listed(*ports: int) -> dict[str, Any]:
        one = {"protocolBinding": "GRPC", "protocolVersion": "1.0"}
        return {"supportedInterfaces": [{**one, "url": f"127.0.0.1:{port}"} for port in ports], **NO_STREAMS}

    handler = {"SendMessage": grpc.unary_unary_rpc_method_handler(refuse)}
    async with (
        scripted_over_grpc(script) as good,
        methods_over_grpc(handler) as taking,
        relay_to(good) as relay,
    ):
        await relay.drop_all(refuse=True)
        reached = follow(1, more=listed(relay.port, good))
        task = await reached.converse()
        assert isinstance(task, Task)
        assert task.status.state is TaskState.COMPLETED
        assert reached.agent.interface.url == f"http://127.0.0.1:{good}"
        lost = follow(1, more=listed(taking, good))
        with pytest.raises(OutcomeUnknownError):
            await lost.converse()
        assert lost.sent == ["SendMessage"]
        gone = follow(1, more=listed(relay.port, relay.port))
        with pytest.raises(NotReachedError):
            await gone.converse()


async def test_the_stream_of_a_task_begins_with_the_task(follow: Callable[..., Follower]) -> None:
    go_on = anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await go_on.wait()
        await say(job, TaskState.COMPLETED)

    for version in VERSIONS:
        async with scripted_over_grpc(script) as port:
            follower = follow(port, version)
            async with aclosing(follower.agent.stream(saying())) as stream:
                first = await anext(stream)
            assert first.task is not None
            task_id = first.task.id
            async with aclosing(follower.agent.subscribe(task_id)) as events:
                begun = await anext(events)
                assert begun.task is not None
                assert begun.task.id == task_id
                go_on.set()
                rest = [event async for event in events]
            assert rest[-1].status_update is not None
            assert rest[-1].status_update.status.state is TaskState.COMPLETED
            ended = await wait_until_settled(follower.agent, task_id, pace=PACE)
            assert ended.status.state is TaskState.COMPLETED
        go_on = anyio.Event()


async def test_cancelling_a_call_of_the_client_leaves_the_task_of_the_agent(
    follow: Callable[..., Follower],
) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await anyio.sleep_forever()

    async with scripted_over_grpc(script) as port:
        follower = follow(port)
        async with anyio.create_task_group() as group:
            group.start_soon(follower.converse)
            await follower.until(lambda: len(follower.events) >= 2)
            group.cancel_scope.cancel()
        (task_id,) = follower.tasks
        assert (await follower.agent.get(task_id)).status.state is TaskState.WORKING
        assert (await follower.agent.cancel(task_id)).status.state is TaskState.CANCELED


@pytest.mark.proves("map-agent-told")
async def test_a_silent_agent_is_given_up_at_the_deadline(follow: Callable[..., Follower]) -> None:
    async def hang(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def begin(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> None:
        await context.write(b"\x1a\x0a\x0a\x01t\x12\x01c\x1a\x02\x08\x02")  # task t is at work
        await anyio.sleep_forever()

    handlers = {
        "GetTask": grpc.unary_unary_rpc_method_handler(hang),
        "SubscribeToTask": grpc.unary_stream_rpc_method_handler(begin),
    }
    async with methods_over_grpc(handlers) as port:
        brief = deadlines(answer_seconds=0.05, silence_seconds=0.05)
        agent = follow(port, deadlines=brief).agent
        with anyio.fail_after(PATIENCE_SECONDS):
            with pytest.raises(UnansweredError, match="did not answer within"):
                await agent.get("t")
            async with aclosing(agent.subscribe("t")) as events:
                assert (await anext(events)).status_update is not None
                with pytest.raises(UnansweredError, match="was silent for"):
                    await anext(events)
