"""A message run to where its task settles: over both bindings, against our server and the official SDK's, and with
every break that a connection can have."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import FoundCard, fetch_card
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.follow import (
    OutcomeUnknownError,
    TaskListener,
    TaskLostError,
    converse,
    wait_until_settled,
)
from bridge.a2a.client.http import NotReachedError
from bridge.a2a.model.objects import (
    Artifact,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    text_of_parts,
)
from bridge.a2a.tasks.agent import Job
from tests.peers.echo_agent import REST_PREFIX, build_app
from tests.support.agents import found_at, give, say, serving
from tests.support.faults import RESET, RESET_AFTER_HEAD, SWALLOWED, cut_after
from tests.support.limits import client_options, deadlines, pace_of
from tests.support.proxy import Proxy, proxy_to
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-call-followed", "a2a03-7.9-resubscribe")

BINDINGS = ("JSONRPC", "HTTP+JSON", "0.3 JSONRPC", "0.3 HTTP+JSON")
THEIRS = BINDINGS[:2]
"""What the agent on a2a-sdk 1.3.0 declares."""
SEND = dict(
    zip(
        BINDINGS,
        (b"SendStreamingMessage", b"message:stream", b"message/stream", b"message:stream"),
        strict=True,
    )
)
SUBSCRIBE = dict(
    zip(BINDINGS, (b"SubscribeToTask", b":subscribe", b"tasks/resubscribe", b":subscribe"), strict=True)
)
GET = dict(zip(BINDINGS, (b'"GetTask"', b"GET /tasks/", b'"tasks/get"', b"GET /v1/tasks/"), strict=True))
PACE = pace_of(first_seconds=0.01, most_seconds=0.05)


def saying(words: str = "go", **fields: Any) -> SendMessageRequest:
    part = Part(text=words)
    return SendMessageRequest(
        message=Message(message_id=str(uuid4()), role=Role.USER, parts=(part,), **fields)
    )


def without_history(task: Task | Message) -> Task:
    """A task as far as all know the same of it: who reads it is shown its last words in its history as well."""
    assert isinstance(task, Task)
    return task.model_copy(update={"history": None})


def port_of(url: str) -> int:
    return httpx2.URL(url).port or 0


def texts(task: Task | Message) -> list[str]:
    """The text of each part of each artifact."""
    assert isinstance(task, Task)
    return [part.text or "" for artifact in task.artifacts or () for part in artifact.parts]


async def chunk(job: Job, text: str, **more: Any) -> None:
    await job.artifact(Artifact(artifact_id="a", parts=(Part(text=text),)), append=True, **more)


async def chunks_to(job: Job, count: int) -> None:
    await say(job, TaskState.WORKING)
    for number in range(count):
        await chunk(job, f"chunk {number}")
    await say(job, TaskState.COMPLETED, "done")


class Ear:
    """A listener that remembers, and says when something came."""

    def __init__(self) -> None:
        self.events: list[StreamResponse] = []
        self.tasks: list[str] = []
        self._moved = anyio.Event()

    @property
    def listener(self) -> TaskListener:
        return TaskListener(self._hear, self.tasks.append)

    def _hear(self, event: StreamResponse) -> None:
        self.events.append(event)
        self._moved.set()
        self._moved = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(20):
            while len(self.events) < count:
                await self._moved.wait()

    @property
    def chunks(self) -> list[str]:
        return [
            text_of_parts(event.artifact_update.artifact.parts)
            for event in self.events
            if event.artifact_update
        ]


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    async with proxy_to(port_of(url)) as proxy:
        yield proxy


def client_at(http: httpx2.AsyncClient, url: str, binding: str = "JSONRPC", **more: Any) -> AgentClient:
    return AgentClient(http, found_at(url, binding, **more), client_options())


NO_STREAMS = {"capabilities": {"streaming": False}}


# Without breaks


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_message_is_followed_to_its_end_and_every_event_reported_once(
    binding: str, http: httpx2.AsyncClient
) -> None:
    async def script(job: Job) -> None:
        await chunks_to(job, 3)

    ear = Ear()
    async with serving(script) as (url, _), proxied(url) as proxy:
        client = client_at(http, proxy.url(""), binding)
        task = await converse(client, saying(), ear.listener, pace=PACE)
        assert without_history(await client.get(task.id)) == without_history(task)
        assert proxy.count(SUBSCRIBE[binding]) == 0
    assert texts(task) == ear.chunks == ["chunk 0", "chunk 1", "chunk 2"]
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert ear.tasks == [task.id]


@pytest.mark.proves("a2a-3.7-unreliable")
@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_without_streams_is_polled(binding: str, http: httpx2.AsyncClient) -> None:
    ear, looked = Ear(), anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await looked.wait()
        await give(job, "done")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxied(url) as proxy, anyio.create_task_group() as tasks:

        async def release() -> None:
            await proxy.until(lambda: proxy.count(GET[binding]) >= 2)
            looked.set()

        tasks.start_soon(release)
        client = client_at(http, proxy.url(""), binding, **NO_STREAMS)
        with anyio.fail_after(20):
            task = await converse(client, saying(), ear.listener, pace=PACE)
        at_once = b'"blocking":false' if binding.startswith("0.3") else b'"returnImmediately":true'
        assert proxy.count(at_once) == 1
        assert proxy.count(SEND[binding]) == proxy.count(SUBSCRIBE[binding]) == 0
    assert texts(task) == ["done"]
    assert all(event.task for event in ear.events)
    assert len({event.to_json() for event in ear.events}) == len(ear.events)


async def test_a_question_settles_and_its_answer_goes_on_although_the_task_still_shows_it(
    http: httpx2.AsyncClient,
) -> None:
    async def script(job: Job) -> None:
        if job.turn.task is None:
            await say(job, TaskState.INPUT_REQUIRED, "Which?")
            return
        await give(job, text_of_parts(job.turn.message.parts))
        await say(job, TaskState.COMPLETED)

    for more in ({}, NO_STREAMS):
        async with serving(script) as (url, _):
            client = client_at(http, url, **more)
            asking = await converse(client, saying(), pace=PACE)
            assert isinstance(asking, Task)
            assert asking.status.state is TaskState.INPUT_REQUIRED
            answer = saying("that one", task_id=asking.id, context_id=asking.context_id)
            with anyio.fail_after(20):
                done = await converse(client, answer, pace=PACE, answered=asking.status)
        assert texts(done) == ["that one"]


@pytest.mark.parametrize("more", [{}, NO_STREAMS])
async def test_auth_required_leaves_its_stream_and_can_be_waited_beyond(
    more: dict[str, Any], http: httpx2.AsyncClient
) -> None:
    authorised = anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.AUTH_REQUIRED, "Log in")
        await authorised.wait()
        await give(job, "secret")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxied(url) as proxy:
        client = client_at(http, proxy.url(""), **more)
        words = SUBSCRIBE["JSONRPC"] if client.streams else GET["JSONRPC"]
        with anyio.fail_after(20):
            task = await converse(client, saying(), pace=PACE)
            assert isinstance(task, Task)
            assert task.status.state is TaskState.AUTH_REQUIRED
            assert (
                await wait_until_settled(client, task.id, pace=PACE)
            ).status.state is TaskState.AUTH_REQUIRED
        before = proxy.count(words)

        async def authorise() -> None:
            await proxy.until(lambda: proxy.count(words) > before)
            authorised.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(authorise)
            with anyio.fail_after(20):
                done = await wait_until_settled(client, task.id, pace=PACE, answered=task.status)
    assert texts(done) == ["secret"]


@pytest.mark.proves("a2a-3.4.2-existing")
async def test_a_known_task_is_read_first(http: httpx2.AsyncClient) -> None:
    async def script(job: Job) -> None:
        await chunks_to(job, 2)

    async with serving(script) as (url, _), proxied(url) as proxy:
        client = client_at(http, proxy.url(""))
        task = await converse(client, saying(), pace=PACE)
        assert isinstance(task, Task)
        ear = Ear()
        read = await wait_until_settled(client, task.id, ear.listener, pace=PACE)
        assert without_history(read) == without_history(task)
        assert proxy.count(SUBSCRIBE["JSONRPC"]) == 0
        assert [event.task for event in ear.events] == [read]
        with pytest.raises(AgentRefusedError, match="TASK_NOT_FOUND"):
            await wait_until_settled(client, "no-such-task", pace=PACE)


async def test_the_far_task_outlives_the_coroutine_and_is_cancelled_by_its_id(
    http: httpx2.AsyncClient,
) -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await anyio.sleep_forever()

    ear = Ear()
    async with serving(script) as (url, _):
        client = client_at(http, url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(converse, pace=PACE), client, saying(), ear.listener)
            await ear.until(2)
            tasks.cancel_scope.cancel()
        [task_id] = ear.tasks
        assert (await client.get(task_id)).status.state is TaskState.WORKING
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.cancel, task_id)
            with anyio.fail_after(20):
                assert (
                    await wait_until_settled(client, task_id, pace=PACE)
                ).status.state is TaskState.CANCELED


async def test_a_question_that_stays_open_counts_as_asked_again(http: httpx2.AsyncClient) -> None:
    task = {"id": "t", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}

    async def forgetful(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": task}))(scope, receive, send)

    async with listening(forgetful) as url:
        asked = Task.model_validate(task)
        client = client_at(http, url, **NO_STREAMS)
        with anyio.fail_after(20):
            pace = replace(PACE, stale_seconds=0.05)
            assert await converse(client, saying(task_id="t"), pace=pace, answered=asked.status) == asked
        with anyio.move_on_after(0.2) as scope:
            await wait_until_settled(client, "t", pace=pace, answered=asked.status)
        assert scope.cancelled_caught


# With breaks


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_that_breaks_between_two_chunks_loses_and_repeats_no_chunk(
    binding: str, http: httpx2.AsyncClient
) -> None:
    go_on, ear = anyio.Event(), Ear()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await chunk(job, "before")
        await go_on.wait()
        await chunk(job, "after")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxied(url) as proxy, anyio.create_task_group() as tasks:

        async def break_off() -> None:
            await ear.until(3)
            proxy.drop_all()
            await proxy.until(lambda: proxy.count(SUBSCRIBE[binding]) == 1)
            go_on.set()

        tasks.start_soon(break_off)
        with anyio.fail_after(20):
            task = await converse(client_at(http, proxy.url(""), binding), saying(), ear.listener, pace=PACE)
        assert proxy.count(SEND[binding]) == 1
    assert texts(task) == ["before", "after"]
    assert ear.chunks.count("before") == 1
    assert len(ear.tasks) == 1


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("streams_lost", [1, 3])
@pytest.mark.smoke("1-JSONRPC", "3-0.3 HTTP+JSON")
async def test_a_stream_that_is_cut_anywhere_gives_the_same_task(
    streams_lost: int, binding: str, http: httpx2.AsyncClient
) -> None:
    async def script(job: Job) -> None:
        await chunks_to(job, 4)

    async with serving(script) as (url, _), proxied(url) as proxy:
        client = client_at(http, proxy.url(""), binding)
        for cut_at in (350, 500, 650, 800, 1000, 1200, 1500):
            proxy.on(SEND[binding], cut_after(cut_at))
            for _ in range(streams_lost - 1):
                proxy.on(SUBSCRIBE[binding], RESET_AFTER_HEAD)
            with anyio.fail_after(20):
                task = await converse(client, saying(), pace=PACE)
            assert texts(task) == ["chunk 0", "chunk 1", "chunk 2", "chunk 3"]
            assert without_history(await client.get(task.id)) == without_history(task)
        assert proxy.count(SEND[binding]) == 7


async def test_a_task_whose_streams_always_break_is_polled(http: httpx2.AsyncClient) -> None:
    go_on, ear = anyio.Event(), Ear()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await chunk(job, "before")
        await go_on.wait()
        await chunk(job, "after")
        await say(job, TaskState.COMPLETED)

    async with serving(script) as (url, _), proxied(url) as proxy, anyio.create_task_group() as tasks:
        proxy.on(SUBSCRIBE["JSONRPC"], RESET, times=1000)
        proxy.on(GET["JSONRPC"], RESET, times=2)

        async def break_off() -> None:
            await ear.until(3)
            proxy.drop_all()
            await proxy.until(lambda: proxy.count(SUBSCRIBE["JSONRPC"]) >= 3)
            go_on.set()

        tasks.start_soon(break_off)
        with anyio.fail_after(20):
            task = await converse(client_at(http, proxy.url("")), saying(), ear.listener, pace=PACE)
        assert proxy.count(SEND["JSONRPC"]) == 1
    assert texts(task) == ["before", "after"]


async def test_an_agent_without_subscriptions_is_polled(http: httpx2.AsyncClient) -> None:
    states = iter(["WORKING", "WORKING", "COMPLETED"])
    methods: list[str] = []

    async def simple(scope: Scope, receive: Receive, send: Send) -> None:
        methods.append((await Request(scope, receive).json())["method"])
        if methods[-1] == "SubscribeToTask":
            await Response("Not here", 404)(scope, receive, send)
            return
        task = {"id": "t", "status": {"state": f"TASK_STATE_{next(states)}"}}
        result = task if methods[-1] == "GetTask" else {"task": task}
        await Response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))(scope, receive, send)

    async with listening(simple) as url:
        with anyio.fail_after(20):
            task = await converse(client_at(http, url), saying(), pace=PACE)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert methods == ["SendStreamingMessage", "SubscribeToTask", "GetTask", "GetTask"]


@pytest.mark.proves("map-call-once")
@pytest.mark.parametrize(
    ("fault", "delivered"), [(RESET, 1), (RESET_AFTER_HEAD, 1), (SWALLOWED, 0), (cut_after(20), 1)]
)
@pytest.mark.parametrize("more", [{}, NO_STREAMS])
async def test_a_message_without_an_answer_is_not_sent_again(
    fault: Any, delivered: int, more: dict[str, Any], http: httpx2.AsyncClient
) -> None:
    async def script(job: Job) -> None:
        await chunks_to(job, 1)

    async with serving(script) as (url, _), proxied(url) as proxy:
        client = client_at(http, proxy.url(""), **more)
        proxy.on(b'"message"', fault)
        with anyio.fail_after(20), pytest.raises(OutcomeUnknownError, match="unknown; it is not sent again"):
            await converse(client, saying(), pace=PACE)
        assert proxy.met == [fault]
        assert len(proxy.delivered) == delivered


@pytest.mark.proves("map-call-once")
@pytest.mark.outside
async def test_a_message_that_never_left_says_so(http: httpx2.AsyncClient) -> None:
    with pytest.raises(NotReachedError, match="cannot be reached: Connection refused"):
        await converse(client_at(http, "http://127.0.0.1:1"), saying(), pace=PACE)


async def test_a_task_whose_agent_is_gone_is_given_up_with_what_was_known(
    http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await chunk(job, "before")
        await anyio.sleep_forever()

    async with serving(script) as (url, _), proxied(url) as proxy, anyio.create_task_group() as tasks:

        async def vanish() -> None:
            await ear.until(3)
            proxy.refuse()
            proxy.drop_all()

        tasks.start_soon(vanish)
        with anyio.fail_after(20), pytest.raises(TaskLostError, match="been out of reach") as lost:
            await converse(
                client_at(http, proxy.url("")), saying(), ear.listener, pace=replace(PACE, outage_seconds=0.1)
            )
    assert lost.value.task is not None
    assert texts(lost.value.task) == ["before"]
    assert [lost.value.task_id] == ear.tasks
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [words.partition(": http")[0] for words in told] == [
        f"task {lost.value.task_id} is read again for up to 0.1 s"
    ]


async def test_a_stream_that_falls_silent_is_taken_up_again(http: httpx2.AsyncClient) -> None:
    async def script(job: Job) -> None:
        await chunks_to(job, 2)

    async with serving(script) as (url, _), proxied(url) as proxy:
        found = found_at(proxy.url(""))
        client = AgentClient(http, found, client_options(deadlines=deadlines(silence_seconds=0.1)))
        silent = replace(cut_after(400), end=type(RESET.end).NEVER)
        proxy.on(SEND["JSONRPC"], silent)
        with anyio.fail_after(20):
            task = await converse(client, saying(), pace=PACE)
        assert proxy.met == [silent]
    assert texts(task) == ["chunk 0", "chunk 1"]


async def test_a_stream_that_lacks_a_notified_change_is_abandoned(
    http: httpx2.AsyncClient,
) -> None:
    goes_on, notified = anyio.Event(), anyio.Event()

    async def script(job: Job) -> None:
        await say(job, TaskState.WORKING)
        await goes_on.wait()
        await say(job, TaskState.COMPLETED, "done")
        notified.set()

    async def pause(seconds: float) -> None:
        if math.isinf(seconds):
            await notified.wait()
        else:
            await anyio.sleep(seconds)

    async with serving(script) as (url, _), proxied(url) as proxy, anyio.create_task_group() as tasks:
        client = client_at(http, proxy.url(""))
        request = saying().changed(configuration=SendMessageConfiguration(return_immediately=True))
        begun = await client.send(request)
        assert isinstance(begun, Task)
        proxy.on(SUBSCRIBE["JSONRPC"], replace(RESET_AFTER_HEAD, end=type(RESET.end).NEVER))

        async def go_on() -> None:
            await proxy.until(lambda: bool(proxy.met))
            goes_on.set()

        tasks.start_soon(go_on)
        with anyio.fail_after(20):
            pace = replace(PACE, late_seconds=0.01)
            done = await wait_until_settled(client, begun.id, pace=pace, pause=pause)
    assert done.status.state is TaskState.COMPLETED


# A stranger


class Late:
    """An application that is known only when its URL is."""

    app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@asynccontextmanager
async def stranger() -> AsyncIterator[Proxy]:
    """The echo agent of the official SDK behind a proxy."""
    late = Late()
    async with listening(late) as url, proxied(url) as proxy:
        late.app = build_app(proxy.url(""))
        yield proxy


async def stranger_client(http: httpx2.AsyncClient, proxy: Proxy, binding: str) -> AgentClient:
    found = await fetch_card(http, proxy.url(""))
    listed = [one for one in found.card.supported_interfaces if one.protocol_binding == binding]
    card = found.card.model_copy(update={"supported_interfaces": tuple(listed)})
    return AgentClient(http, FoundCard(found.url, b"", card), client_options())


@pytest.mark.parametrize("binding", THEIRS)
async def test_a_foreign_agent_is_followed_asked_and_cancelled(
    binding: str, http: httpx2.AsyncClient
) -> None:
    async with stranger() as proxy:
        client = await stranger_client(http, proxy, binding)
        assert client.interface.url.endswith(REST_PREFIX if binding == "HTTP+JSON" else "/")
        with anyio.fail_after(30):
            assert texts(await converse(client, saying("hello there"), pace=PACE)) == ["hello there"]
            assert isinstance(await converse(client, saying("say hi"), pace=PACE), Message)
            asking = await converse(client, saying("ask me"), pace=PACE)
            assert isinstance(asking, Task)
            assert asking.status.state is TaskState.INPUT_REQUIRED
            answer = saying("blue", task_id=asking.id, context_id=asking.context_id)
            assert texts(await converse(client, answer, pace=PACE, answered=asking.status)) == ["blue"]
            failed = await converse(client, saying("fail now"), pace=PACE)
            assert isinstance(failed, Task)
            assert failed.status.state is TaskState.FAILED
            with pytest.raises(AgentRefusedError) as refused:
                await wait_until_settled(client, "no-such-task", pace=PACE)
            assert (refused.value.code, refused.value.reason) == (-32001, "TASK_NOT_FOUND")
            ear = Ear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(converse, pace=PACE), client, saying("wait"), ear.listener)
                await ear.until(2)
                assert (await client.cancel(ear.tasks[0])).status.state is TaskState.CANCELED
            assert (
                await wait_until_settled(client, ear.tasks[0], pace=PACE)
            ).status.state is TaskState.CANCELED


@pytest.mark.parametrize("binding", THEIRS)
async def test_a_foreign_agents_broken_stream_gives_the_same_task(
    binding: str, http: httpx2.AsyncClient
) -> None:
    async with stranger() as proxy:
        client = await stranger_client(http, proxy, binding)
        for cut_at in (500, 900, 1400, 2000):
            proxy.on(SEND[binding], cut_after(cut_at))
            with anyio.fail_after(20):
                task = await converse(client, saying("hello there"), pace=PACE)
            assert texts(task) == ["hello there"], cut_at
            assert isinstance(task, Task)
            assert task.status.state is TaskState.COMPLETED
        assert proxy.count(SEND[binding]) == len(proxy.met)


async def test_a_foreign_task_is_taken_up_again_while_it_works(http: httpx2.AsyncClient) -> None:
    async with stranger() as proxy:
        client = await stranger_client(http, proxy, "JSONRPC")
        ear = Ear()

        async def break_off() -> None:
            await ear.until(2)
            proxy.drop_all()
            await proxy.until(lambda: proxy.count(SUBSCRIBE["JSONRPC"]) == 1)
            await client.cancel(ear.tasks[0])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(break_off)
            with anyio.fail_after(20):
                task = await converse(client, saying("wait"), ear.listener, pace=PACE)
        assert isinstance(task, Task)
        assert task.status.state is TaskState.CANCELED
