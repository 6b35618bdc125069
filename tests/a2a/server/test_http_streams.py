"""Streams on the wire: framing, order, readers that leave, and readers that stop reading."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from tests.support.agents import give, say, serving
from tests.support.drivers import (
    DRIVERS,
    PATIENCE_SECONDS,
    Driver,
    Events,
    JsonRpcDriver,
    new_client,
    shape_of,
    state_of,
)
from tests.support.first_driver import FirstDriver, is_in_it
from tests.support.limits import agent_limits
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import (
    VERSION,
    Running,
    call_part,
    config_for,
    message,
    profile_with,
    raw_command,
    running,
    texts,
)
from tests.support.stores import SlowReadStore

pytestmark = pytest.mark.smoke("JSONRPC*", "HTTP+JSON*")

WAIT = call_part("wait")
AWKWARD = "next\u0085line\u2028separator\u2029paragraph\r\n\ttab \\u2028 \x7f\x00 \ufeff🎈"


@pytest.fixture(scope="module")
async def bridge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    profile = profile_with(streams={"heartbeat_seconds": 0.02})
    file = str(tmp_path_factory.mktemp("store") / "tasks.db")
    async with running(config_for(raw_command(), profile=profile, store=file)) as bridge:
        yield bridge


@pytest.fixture(params=(*EVERY_DRIVER, FirstDriver), ids=name_of)
async def driver(request: pytest.FixtureRequest, bridge: Running) -> AsyncIterator[Driver]:
    if request.param is FirstDriver and not is_in_it(request):
        pytest.skip("the first generation does otherwise")
    async with new_client() as client:
        yield request.param(client, bridge.base_url)


# Framing


@pytest.mark.proves("sse-heartbeat")
async def test_a_silent_stream_has_heartbeats(driver: Driver) -> None:
    async with driver.working(WAIT) as (task_id, events):
        for _ in range(3):
            await events.heartbeat()
        await driver.cancel(task_id)
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


@pytest.mark.proves("sse-heartbeat")
async def test_a_silent_subscription_by_get_has_heartbeats(driver: Driver) -> None:
    url = f"{driver.base_url}/tasks"
    async with driver.working(WAIT) as (task_id, _):
        with anyio.fail_after(PATIENCE_SECONDS):
            request = driver.client.build_request("GET", f"{url}/{task_id}:subscribe", headers=driver.headers)
            response = await driver.client.send(request, stream=True)
        with anyio.fail_after(PATIENCE_SECONDS):
            seen = b""
            async for chunk in response.aiter_raw():
                seen += chunk
                if seen.count(b"\n: \n\n") + seen.count(b": \n\n") > 3:
                    break
            else:
                pytest.fail(f"the stream has ended: {seen!r}")
        await response.aclose()
        await driver.cancel(task_id)


@pytest.mark.proves("sse-escapes")
async def test_characters_that_some_readers_take_for_line_ends_are_escaped(driver: Driver) -> None:
    params = message(call_part("echo", text=AWKWARD))
    async with driver.stream("SendStreamingMessage", **params) as events:
        seen = await events.rest()
    assert texts(seen[2]["artifactUpdate"]["artifact"]["parts"]) == [AWKWARD]
    for raw in ("\u0085", "\u2028", "\u2029", "\r"):
        assert raw.encode() not in events.raw
    assert events.raw.decode().count("\n") == events.raw.count(b"\n\n") * 2
    assert len(events.raw.decode().splitlines()) == events.raw.count(b"\n")


@pytest.mark.proves("a2a-3.1.2-stream")
async def test_a_stream_is_an_event_stream_that_no_proxy_may_buffer(driver: Driver) -> None:
    async with driver.stream("SendStreamingMessage", **message(call_part("echo", text="a"))) as events:
        await events.rest()
    assert events.headers["content-type"] == "text/event-stream"
    assert events.headers["x-accel-buffering"] == "no"
    assert "no-cache" in events.headers["cache-control"]


# How streams end


@pytest.mark.proves("a2a-11.7-input-closes")
async def test_a_stream_closes_when_the_task_asks_for_input(driver: Driver) -> None:
    async with driver.stream("SendStreamingMessage", **message(call_part("add", a=1))) as events:
        assert shape_of(await events.rest()) == ["task SUBMITTED", "statusUpdate INPUT_REQUIRED"]


@pytest.mark.proves("a2a-3.1.2-stream", "map-arguments")
async def test_the_stream_of_an_answer_begins_with_the_task(driver: Driver) -> None:
    task = await driver.send(call_part("add", a=1))
    answer = message({"data": {"b": 2}}, taskId=task["id"])
    async with driver.stream("SendStreamingMessage", **answer) as events:
        seen = await events.rest()
    assert shape_of(seen) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
    assert [said["role"] for said in seen[0]["task"]["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


@pytest.mark.proves("a2a-3.1.2-stream", "map-is-error", "map-mcp-error")
@pytest.mark.parametrize(
    ("part", "end"),
    [(call_part("fail"), "FAILED"), (call_part("refuse", code=-32602), "REJECTED")],
    ids=["failed", "rejected"],
)
async def test_a_stream_closes_at_a_failure(driver: Driver, part: dict[str, Any], end: str) -> None:
    async with driver.stream("SendStreamingMessage", **message(part)) as events:
        seen = await events.rest()
    assert shape_of(seen) == ["task SUBMITTED", "statusUpdate WORKING", f"statusUpdate {end}"]


@pytest.mark.proves("a2a-3.5.2-order", "map-progress", "a2a-3.1.2-progress")
async def test_progress_is_streamed_in_order_and_a_flood_keeps_its_last(driver: Driver) -> None:
    async with driver.stream("SendStreamingMessage", **message(call_part("flood", steps=1000))) as events:
        seen = await events.rest()
    shape = shape_of(seen)
    assert shape[-2:] == ["artifactUpdate", "statusUpdate COMPLETED"]
    steps = [
        event["statusUpdate"]["metadata"]["urn:mcp-a2a:tool:v1/progress"]["progress"]
        for event in seen
        if "metadata" in event.get("statusUpdate", {})
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 1000


# Several readers


@pytest.mark.proves("a2a-3.5.2-order")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_every_reader_gets_the_same_events_in_the_same_order(kind: type[Driver]) -> None:
    go = anyio.Event()

    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        await go.wait()
        for number in range(50):
            say(job, TaskState.WORKING, f"step {number}")
            give(job, f"artifact {number}")
            await anyio.lowlevel.checkpoint()
        say(job, TaskState.COMPLETED)

    async with serving(work) as (url, _), new_client() as client:
        driver = kind(client, url)
        async with (
            driver.working({"text": "go"}) as (task_id, first),
            subscribed(driver, task_id) as second,
            subscribed(driver, task_id) as third,
        ):
            async with subscribed(driver, task_id):
                pass  # one that leaves before anything happens
            go.set()
            seen = await first.rest()
            assert await second.rest() == seen
            assert await third.rest() == seen
    assert len(seen) == 101
    steps = [words_of(event) for event in seen[:-1]]
    assert steps == [f"{what} {number}" for number in range(50) for what in ("step", "artifact")]


@asynccontextmanager
async def subscribed(driver: Driver, task_id: str) -> AsyncIterator[Events]:
    """A subscription that has given its snapshot."""
    async with driver.stream("SubscribeToTask", id=task_id) as events:
        assert shape_of([await events.next()]) == ["task WORKING"]
        yield events


def words_of(event: Any) -> str:
    update = event.get("statusUpdate")
    carrier = update["status"]["message"] if update else event["artifactUpdate"]["artifact"]
    return texts(carrier["parts"])[0]


@pytest.mark.proves("sse-gone", "a2a-3.5.2-order")
async def test_a_client_that_goes_away_affects_neither_the_task_nor_other_readers(driver: Driver) -> None:
    async with new_client() as other:
        leaving = type(driver)(other, driver.base_url)
        async with leaving.working(WAIT) as (task_id, _):
            pass
    async with driver.stream("SubscribeToTask", id=task_id) as events:
        assert shape_of([await events.next()]) == ["task WORKING"]
        await events.heartbeat()
        assert state_of(await driver.cancel(task_id)) == "CANCELED"
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


@pytest.mark.proves("sse-gone")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_the_slot_of_a_client_that_went_away_is_free_again(kind: type[Driver]) -> None:
    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        await anyio.sleep_forever()

    async with (
        serving(work, agent_limits(open=1, heartbeat_seconds=0.01)) as (url, _),
        new_client() as client,
    ):
        driver = kind(client, url)
        async with driver.working({"text": "go"}) as (task_id, _):
            assert await refuses_streams(driver)
        with anyio.fail_after(PATIENCE_SECONDS):
            while await refuses_streams(driver):
                pass
        async with driver.stream("SubscribeToTask", id=task_id) as events:
            assert shape_of([await events.next()]) == ["task WORKING"]


@pytest.mark.proves("a2a-3.1.2-stream")
@pytest.mark.parametrize("kind", DRIVERS, ids=lambda kind: kind.binding)
async def test_concurrent_requests_for_streams_get_no_more_than_the_limit(kind: type[Driver]) -> None:
    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        await anyio.sleep_forever()

    answers: list[str] = []
    all_answered = anyio.Event()
    limits = agent_limits(open=2)
    async with serving(work, limits, store=SlowReadStore()) as (url, _), new_client() as client:
        driver = kind(client, url)

        async def listen() -> None:
            request = driver.request("SendStreamingMessage", message({"text": "go"}))
            response = await client.send(request, stream=True)
            answers.append(response.headers["content-type"])
            if len(answers) == 6:
                all_answered.set()
            with anyio.fail_after(PATIENCE_SECONDS):
                await all_answered.wait()
            await response.aclose()

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(listen)
    assert answers.count("text/event-stream") == 2


# Readers that do not read


@asynccontextmanager
async def never_reading(url: str, path: str, params: Any) -> AsyncIterator[socket.socket]:
    """A connection that sends a request, sees that it is answered, and reads no further."""
    where = urlsplit(url)
    body = json.dumps(params).encode()
    head = [f"POST {where.path}{path} HTTP/1.1", f"Host: {where.netloc}", "Connection: close"]
    head += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in VERSION.items())]
    head += [f"Content-Length: {len(body)}", "", ""]
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.setblocking(False)
        await anyio.to_thread.run_sync(client.connect_ex, (where.hostname, where.port))
        await anyio.wait_writable(client)
        client.sendall("\r\n".join(head).encode() + body)
        with anyio.fail_after(PATIENCE_SECONDS):
            await anyio.wait_readable(client)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        yield client


async def read_to_end(client: socket.socket) -> bytes:
    """All that still comes until the server closes the connection."""
    seen = b""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            await anyio.wait_readable(client)
            try:
                chunk = client.recv(65536)
            except ConnectionResetError:
                return seen
            if not chunk:
                return seen
            seen += chunk


@pytest.mark.proves("a2a-3.5.2-order")
async def test_events_that_are_at_hand_together_are_written_together() -> None:
    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        for step in range(50):
            say(job, TaskState.WORKING, str(step))
        await say(job, TaskState.COMPLETED)

    async with serving(work) as (url, _), new_client() as client:
        headers = JsonRpcDriver(client, url).headers
        body = message({"text": "go"})
        request = client.build_request("POST", f"{url}/message:stream", json=body, headers=headers)
        response = await client.send(request, stream=True)
        with anyio.fail_after(PATIENCE_SECONDS):
            seen = [chunk async for chunk in response.aiter_raw()]
        await response.aclose()
    assert b"".join(seen).count(b"data: ") == 53
    assert max(chunk.count(b"data: ") for chunk in seen) > 40


class Flood:
    """Work that gives more than any buffer between it and a client holds, once it is told to."""

    def __init__(self) -> None:
        self.go = anyio.Event()

    async def __call__(self, job: Job) -> None:
        say(job, TaskState.WORKING)
        await self.go.wait()
        for _ in range(80):
            say(job, TaskState.WORKING, "x" * 100_000)
            await anyio.lowlevel.checkpoint()
        await say(job, TaskState.COMPLETED)


@pytest.mark.proves("sse-slow")
async def test_a_reader_that_never_reads_is_cut_off_and_the_task_completes() -> None:
    flood, params = Flood(), message({"text": "go"})
    async with serving(flood, watch_events=4) as (url, engine), new_client() as client:
        driver = JsonRpcDriver(client, url)
        async with never_reading(url, "/message:stream", params) as stuck:
            flood.go.set()
            task = (await driver.call("SendMessage", **params))["task"]
            assert state_of(task) == "COMPLETED"
            assert not list(engine.registry)
            seen = await read_to_end(stuck)
    assert task["id"].encode() in seen
    assert b"TASK_STATE_COMPLETED" not in seen


@pytest.mark.proves("sse-slow")
async def test_a_reader_that_stalls_does_not_keep_its_slot() -> None:
    flood, params = Flood(), message({"text": "go"})
    async with (
        serving(flood, agent_limits(open=1, heartbeat_seconds=0.01, stall_seconds=0.05)) as (url, _),
        new_client() as client,
    ):
        driver = JsonRpcDriver(client, url)
        async with never_reading(url, "/message:stream", params):
            assert await refuses_streams(driver)
            flood.go.set()
            await driver.call("SendMessage", **params)
            with anyio.fail_after(PATIENCE_SECONDS):
                while await refuses_streams(driver):
                    pass


async def refuses_streams(driver: Driver) -> bool:
    """Whether a stream more is one too many."""
    return (await driver.refused("SubscribeToTask", id="none")).reason == "UNAVAILABLE"
