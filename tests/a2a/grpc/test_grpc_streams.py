"""Streams and errors over gRPC, in 1.0 and 0.3: tests of `test_http_streams.py` and `test_http_wire.py`, and what gRPC
does in its own way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import grpc
import pytest
from grpc import aio

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from tests.a2a.server import test_http_streams, test_http_wire
from tests.a2a.server.test_http_streams import subscribed, words_of
from tests.support.agents import give, say
from tests.support.drivers import PATIENCE_SECONDS, Driver, shape_of, state_of
from tests.support.grpc_agents import scripted_over_grpc
from tests.support.grpc_driver import (
    GrpcDriver,
    OlderGrpcDriver,
    named_tests,
    new_channel,
    served_over_grpc,
)
from tests.support.older_drivers import name_of
from tests.support.running import Running, call_part, config_for, profile_with, raw_command, running

KINDS = (GrpcDriver, OlderGrpcDriver)
WAIT = call_part("wait")

globals().update(
    named_tests(
        test_http_streams,
        "a_stream_closes_when_the_task_asks_for_input",
        "the_stream_of_an_answer_begins_with_the_task",
        "a_stream_closes_at_a_failure",
        "progress_is_streamed_in_order_and_a_flood_keeps_its_last",
    )
    | named_tests(test_http_wire, "an_error_about_a_task_names_it")
)


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command(), store="memory:")) as bridge:
        yield bridge


@pytest.fixture(scope="module")
async def port(bridge: Running) -> AsyncIterator[int]:
    async with served_over_grpc(bridge.bridge.whole) as server:
        yield server.port


@pytest.fixture(params=KINDS, ids=name_of)
async def driver(request: pytest.FixtureRequest, port: int) -> AsyncIterator[Driver]:
    async with new_channel(port) as channel:
        yield request.param(channel)


@pytest.mark.proves("a2a-10.6-errors", "a2a-3.3.2-errors")
@pytest.mark.parametrize("case", test_http_wire.ERRORS, ids=lambda case: f"{case[0]}-{case[5]}")
async def test_every_kind_of_error_has_its_code(driver: Driver, case: test_http_wire.Case) -> None:
    operation, make, _, _, code, reason = case
    params = make(driver)
    if not isinstance(params, dict):
        params = {"id": await params}
    fault = await driver.refused(operation, **params)
    assert (fault.reason, fault.code) == (reason, grpc.StatusCode[code].value[0])
    assert fault.message


@pytest.mark.proves("a2a-3.5.2-order", "a2a-10.7-streaming")
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
async def test_every_reader_gets_the_same_events_in_the_same_order(kind: type[GrpcDriver]) -> None:
    go = anyio.Event()

    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        await go.wait()
        for number in range(50):
            say(job, TaskState.WORKING, f"step {number}")
            give(job, f"artifact {number}")
            await anyio.lowlevel.checkpoint()
        say(job, TaskState.COMPLETED)

    async with scripted_over_grpc(work) as port, new_channel(port) as channel:
        driver = kind(channel)
        async with (
            driver.working({"text": "go"}) as (task_id, first),
            subscribed(driver, task_id) as second,
            subscribed(driver, task_id) as third,
        ):
            async with subscribed(driver, task_id):
                pass  # a reader that leaves before anything happens
            go.set()
            seen = await first.rest()
            assert await second.rest() == seen
            assert await third.rest() == seen
    steps = [words_of(event) for event in seen[:-1]]
    assert steps == [f"{what} {number}" for number in range(50) for what in ("step", "artifact")]


@pytest.mark.proves("sse-gone", "a2a-3.5.2-order")
async def test_a_client_that_goes_away_affects_neither_the_task_nor_other_readers(
    driver: Driver, port: int
) -> None:
    async with new_channel(port) as other, type(driver)(other).working(WAIT) as (task_id, _):
        pass
    async with driver.stream("SubscribeToTask", id=task_id) as events:
        assert shape_of([await events.next()]) == ["task WORKING"]
        assert state_of(await driver.cancel(task_id)) == "CANCELED"
        assert shape_of(await events.rest()) == ["statusUpdate CANCELED"]


@pytest.mark.proves("sse-gone")
async def test_the_place_of_a_stream_is_free_again_when_its_client_goes_away() -> None:
    profile = profile_with(streams={"open": 1})
    async with (
        running(config_for(raw_command(), store="memory:", profile=profile)) as bridge,
        served_over_grpc(bridge.bridge.whole) as server,
        new_channel(server.port) as channel,
    ):
        driver = GrpcDriver(channel)

        async def refuses() -> bool:
            return (await driver.refused("SubscribeToTask", id="none")).reason == "UNAVAILABLE"

        async with driver.working(WAIT) as (task_id, _):
            assert await refuses()
        with anyio.fail_after(PATIENCE_SECONDS):
            while await refuses():
                pass
        await driver.cancel(task_id)


@pytest.mark.proves("sse-slow")
async def test_a_reader_that_never_reads_is_cut_off_and_the_task_completes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go = anyio.Event()

    async def work(job: Job) -> None:
        say(job, TaskState.WORKING)
        await go.wait()
        for _ in range(120):
            say(job, TaskState.WORKING, "x" * 100_000)
            await anyio.lowlevel.checkpoint()
        await say(job, TaskState.COMPLETED)

    streams, window = {"stall_seconds": 0.2}, [("grpc.http2.bdp_probe", 0)]  # a window that does not grow
    async with (
        scripted_over_grpc(work, streams) as port,
        aio.insecure_channel(
            f"127.0.0.1:{port}", [*window, ("grpc.use_local_subchannel_pool", 1)]
        ) as channel,
    ):
        driver = GrpcDriver(channel)
        async with driver.working({"text": "go"}) as (task_id, events):
            go.set()
            with anyio.fail_after(PATIENCE_SECONDS):
                while "a client read nothing for 0.2 s" not in caplog.text:
                    await anyio.sleep(0.01)
                while state_of(await driver.get(task_id)) != "COMPLETED":
                    await anyio.sleep(0.01)
            await cut_off(events.call)


async def cut_off(call: Any) -> None:
    """Read what a stream still has, which ends with a refusal."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                assert await call.read() is not aio.EOF
            except aio.AioRpcError:
                break
    assert await call.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.proves("a2a-10.1-grpc")
async def test_a_call_without_its_message_ends_in_time() -> None:
    profile = profile_with(requests={"body_seconds": 0.1})
    async with (
        running(config_for(raw_command(), store="memory:", profile=profile)) as bridge,
        served_over_grpc(bridge.bridge.whole) as server,
        new_channel(server.port) as channel,
    ):
        for path in ("lf.a2a.v1.A2AService/GetTask", "a2a.v1.A2AService/SendStreamingMessage"):
            call = channel.stream_unary(f"/{path}")()
            with anyio.fail_after(PATIENCE_SECONDS):
                assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert await call.details() == "The message did not come within 0.1 s"
            empty = channel.stream_unary(f"/{path}")()
            await empty.done_writing()
            assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT
