"""Timelines of tasks as they are kept: with the events that they came with, over restarts, and for nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import anyio
import pytest

from bridge import trace
from bridge.a2a.model.objects import ListTasksRequest, TaskState
from bridge.a2a.model.timeline import MOMENTS, TIMELINE_URI, timeline_of
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.identity.callers.principals import Principal
from bridge.store.memory import MemoryStore
from bridge.trace import TraceContext
from tests.support.agents import Clock, asked, engine_of, say
from tests.support.drivers import Driver, new_client
from tests.support.fleet import fleet
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import Running, call_part, config_for, raw_command, running

pytestmark = pytest.mark.proves("ops-timeline")

W, C, INPUT = TaskState.WORKING, TaskState.COMPLETED, TaskState.INPUT_REQUIRED
ANN = CallContext(Principal("ann"), frozenset({TIMELINE_URI}))
START = 1_700_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


async def told(engine: Engine, task_id: str) -> list[tuple[Any, ...]]:
    """A task's moments: what, milliseconds since the start, state, by, peer, and whether it has the trace."""
    task = await engine.get(task_id, None, ANN)
    assert task.metadata is not None
    assert MOMENTS in task.metadata
    timeline = timeline_of(task)
    return [
        (one.kind.value, (one.at_ms or 0) - START, one.state, one.by, one.peer, one.trace == TRACE)
        for one in timeline.moments
    ]


async def test_a_timeline_names_each_event_with_time_principal_and_peer() -> None:
    clock = Clock()

    async def work(job: Job) -> None:
        await job.accepted
        clock.pass_ms(10)
        job.sent("crm")
        await say(job, W)
        clock.pass_ms(10)
        if job.turn.task is None:
            await say(job, INPUT, "Which?")
        else:
            await say(job, C)

    trace.begin({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    async with engine_of(work, clock=clock) as engine:
        asks = await engine.send(asked(), ANN)
        trace.context.set(TraceContext())
        clock.pass_ms(1000)
        done = await engine.send(asked(taskId=asks.id), ANN)
        first, second = (message.message_id for message in done.history or () if message.role == "ROLE_USER")
        timeline = timeline_of(await engine.get(done.id, None, ANN))
        assert [one.message for one in timeline.moments if one.by] == [first, second]
        assert await told(engine, done.id) == [
            ("received", 0, "", "ann", "", True),
            ("sent", 10, "", "", "crm", True),
            ("state", 10, "working", "", "", False),
            ("state", 20, "input_required", "", "", False),
            ("message", 1020, "", "ann", "", False),
            ("state", 1020, "working", "", "", False),
            ("sent", 1030, "", "", "crm", False),
            ("state", 1040, "completed", "", "", False),
        ]
        assert await engine.get(done.id, None, CallContext(ANN.principal)) == done
        assert MOMENTS not in (done.metadata or {})


async def test_a_list_has_timelines_for_those_who_ask() -> None:
    async def work(job: Job) -> None:
        await say(job, C)

    async with engine_of(work) as engine:
        task = await engine.send(asked(), ANN)
        (listed,) = (await engine.list(ListTasksRequest(), ANN)).tasks
        assert timeline_of(listed) == timeline_of(await engine.get(task.id, None, ANN))
        (plain,) = (await engine.list(ListTasksRequest(), CallContext(ANN.principal))).tasks
        assert plain.metadata is None


async def test_who_asked_to_cancel_a_task_is_in_its_timeline() -> None:
    async def work(job: Job) -> None:
        await say(job, INPUT)

    async with engine_of(work) as engine:
        task = await engine.send(asked(), ANN)
        await engine.cancel(task.id, ANN)
        assert [row[0::3] for row in await told(engine, task.id)][-2:] == [("cancel", "ann"), ("state", "")]


async def test_a_timeline_outlives_a_process_that_is_gone_and_tells_of_the_next() -> None:
    store, clock, began, ended = MemoryStore(), Clock(), anyio.Event(), anyio.Event()

    async def first(job: Job) -> None:
        job.sent("crm")
        await job.status(W, keep=b"resume")
        began.set()
        await anyio.sleep_forever()

    async def second(job: Job) -> None:
        await say(job, C)
        ended.set()

    async with engine_of(first, store, clock) as old:
        task = await old.send(asked(configuration={"returnImmediately": True}), ANN)
        await began.wait()
        clock.pass_ms(60)
        async with engine_of(second, deepcopy(store), clock) as new:
            await ended.wait()
            rows = await told(new, task.id)
            assert [row[:3] + row[4:5] for row in rows] == [
                ("received", 0, "", ""),
                ("sent", 0, "", "crm"),
                ("state", 0, "working", ""),
                ("resumed", 60, "", ""),
                ("state", 60, "completed", ""),
            ]


async def test_events_of_another_replica_are_in_the_timeline_everywhere() -> None:
    async def work(job: Job) -> None:
        job.sent("crm")
        await say(job, INPUT if job.turn.task is None else C)

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        asks = await one.engine.send(asked(), ANN)
        with await one.engine.subscribe(asks.id, ANN) as stream:
            await two.engine.send(asked(taskId=asks.id), ANN)
            while (seen := await stream.next()) is not None:
                last = seen
        assert last.state is C
        kinds = [row[0] for row in await told(one.engine, asks.id)]
        assert kinds == [row[0] for row in await told(two.engine, asks.id)]
        assert (kinds.count("sent"), kinds.count("message"), kinds[0]) == (2, 1, "received")


async def test_a_timeline_is_bounded() -> None:
    async def work(job: Job) -> None:
        for _ in range(50):
            job.sent("crm")
        await say(job, C)

    async with engine_of(work, timeline_moments=6) as engine:
        task = await engine.send(asked(), ANN)
        timeline = timeline_of(await engine.get(task.id, None, ANN))
        assert [one.kind.value for one in timeline.moments][-1] == "state"
        assert len(timeline.moments) == 6
        assert timeline.left_out >= 46


# Over the wire


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.mark.parametrize("kind", EVERY_DRIVER, ids=name_of)
async def test_clients_of_each_version_get_timelines_with_the_extension(
    bridge: Running, kind: type[Driver]
) -> None:
    async with new_client() as client:
        plain = kind(client, bridge.base_url)
        asking = plain.with_headers(**{"A2A-Extensions": TIMELINE_URI, "X-A2A-Extensions": TIMELINE_URI})
        task = await plain.send(call_part("echo", text="hello"))
        answer = await asking.answer("GetTask", {"id": task["id"]})
        assert TIMELINE_URI in {answer.http.headers.get(f"{x}A2A-Extensions") for x in ("", "X-")}
        moments = (answer.result or {})["metadata"][MOMENTS]["moments"]
        assert sorted(one["what"] for one in moments) == ["received", "sent", "state", "state"]
        (peer,) = (one["peer"] for one in moments if "peer" in one)
        assert (moments[0]["by"], peer) == ("local", bridge.bridge.upstream.name)
        assert await plain.get(task["id"]) == task
        assert MOMENTS not in task.get("metadata", {})
