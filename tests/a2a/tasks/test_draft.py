"""Brief work: answered with a Message if a Message can hold the result, else with a task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic_core import from_json

from bridge.a2a.model.objects import ListTasksRequest, Message, Task, TaskState, text_of_parts
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.draft import BriefWork
from bridge.store.sqlite import SQLiteStore
from tests.support.agents import ALICE, asked, engine_of, give, say
from tests.support.drivers import PATIENCE_SECONDS, shape_of

pytestmark = pytest.mark.proves("map-reply")

W, C, F, X = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED
INPUT = TaskState.INPUT_REQUIRED


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


async def quick(job: Job) -> None:
    """As the run of a tool does it: what is accepted is awaited before and after."""
    say(job, W)
    await job.accepted
    give(job, "done")
    await say(job, C)


async def streamed(engine: Any, request: Any) -> list[Any]:
    events = []
    with await engine.stream(request, ALICE) as watcher:
        while (seen := await watcher.next()) is not None:
            events.append(from_json(seen.text))
    return events


async def kept_tasks(engine: Any) -> int:
    return (await engine.list(ListTasksRequest(), ALICE)).total_size


@pytest.mark.proves("map-reply")
async def test_brief_work_that_completes_is_answered_with_a_message_and_stores_nothing() -> None:
    async with engine_of(BriefWork(quick)) as engine:
        reply = await engine.send(asked(), ALICE)
        assert isinstance(reply, Message)
        assert text_of_parts(reply.parts) == "done"
        assert reply.context_id
        assert reply.task_id is None
        assert await kept_tasks(engine) == 0
        assert engine.running == 0


@pytest.mark.proves("map-reply", "a2a-3.1.2-message")
async def test_the_stream_of_brief_work_is_one_message() -> None:
    async with engine_of(BriefWork(quick)) as engine:
        (event,) = await streamed(engine, asked(contextId="mine"))
        assert event["message"]["parts"] == [{"text": "done"}]
        assert event["message"]["contextId"] == "mine"
        assert await kept_tasks(engine) == 0


async def test_the_final_words_of_brief_work_are_part_of_the_message() -> None:
    async def work(job: Job) -> None:
        give(job, "done")
        await say(job, C, "and more")

    async with engine_of(BriefWork(work)) as engine:
        reply = await engine.send(asked(), ALICE)
        assert [part.text for part in reply.parts] == ["done", "and more"]


async def failing(job: Job) -> None:
    say(job, W)
    await say(job, F, "it broke")


async def asking(job: Job) -> None:
    say(job, W)
    await say(job, INPUT, "which?")


async def reporting(job: Job) -> None:
    say(job, W)
    say(job, W, "half of it")
    give(job, "done")
    await say(job, C)


async def breaking(job: Job) -> None:
    say(job, W)
    raise RuntimeError("a fault of the worker")


async def silent(job: Job) -> None:
    say(job, W)


async def empty(job: Job) -> None:
    say(job, W)
    await say(job, C)


async def manifold(job: Job) -> None:
    give(job, "one")
    give(job, "two")
    await say(job, C)


async def followed(job: Job) -> None:
    job.status(W, keep=b"resume")
    give(job, "done")
    await say(job, C)


@pytest.mark.proves("map-reply")
@pytest.mark.parametrize(
    ("work", "state", "shape"),
    [
        (failing, F, ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate FAILED"]),
        (asking, INPUT, ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate INPUT_REQUIRED"]),
        (
            reporting,
            C,
            [
                "task SUBMITTED",
                "statusUpdate WORKING",
                "statusUpdate WORKING",
                "artifactUpdate",
                "statusUpdate COMPLETED",
            ],
        ),
        (breaking, F, ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate FAILED"]),
        (silent, F, ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate FAILED"]),
        (empty, C, ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate COMPLETED"]),
        (manifold, C, ["task SUBMITTED", "artifactUpdate", "artifactUpdate", "statusUpdate COMPLETED"]),
        (
            followed,
            C,
            ["task SUBMITTED", "statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"],
        ),
    ],
)
async def test_a_result_that_a_message_cannot_hold_makes_a_task_with_every_event(
    work: Any, state: TaskState, shape: list[str]
) -> None:
    async with engine_of(BriefWork(work)) as engine:
        request = asked()
        task = await engine.send(request, ALICE)
        assert isinstance(task, Task)
        assert task.status.state is state
        assert await engine.get(task.id, None, ALICE) == task
        again = await engine.send(request, ALICE)
        assert (again.id, await kept_tasks(engine)) == (task.id, 1)
        assert shape_of(await streamed(engine, asked())) == shape


@pytest.mark.proves("map-reply")
async def test_a_client_that_asks_for_a_task_at_once_gets_a_task() -> None:
    async with engine_of(BriefWork(quick)) as engine:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        assert isinstance(task, Task)
        assert await kept_tasks(engine) == 1


@pytest.mark.proves("map-reply", "a2a-3.3.1-idempotent")
async def test_the_same_message_again_is_a_new_call_since_nothing_was_kept() -> None:
    runs = []

    async def work(job: Job) -> None:
        runs.append(job)
        await quick(job)

    async with engine_of(BriefWork(work)) as engine:
        request = asked()
        first, second = [await engine.send(request, ALICE) for _ in range(2)]
        assert isinstance(first, Message)
        assert isinstance(second, Message)
        assert len(runs) == 2


async def test_an_answer_to_a_task_that_began_as_a_draft_goes_on_with_it() -> None:
    async def work(job: Job) -> None:
        await (asking if job.turn.task is None else quick)(job)

    async with engine_of(BriefWork(work)) as engine:
        task = await engine.send(asked(), ALICE)
        done = await engine.send(asked(taskId=task.id), ALICE)
        assert isinstance(done, Task)
        assert (done.id, done.status.state) == (task.id, C)


@pytest.mark.proves("map-reply")
async def test_a_bridge_that_stops_makes_a_task_of_brief_work_that_runs(tmp_path: Any) -> None:
    began = anyio.Event()

    async def work(job: Job) -> None:
        say(job, W)
        began.set()
        await anyio.sleep_forever()

    answers = []

    async def send(engine: Any) -> None:
        answers.append(await engine.send(asked(), ALICE))

    async with (
        SQLiteStore(tmp_path / "tasks.db") as store,
        engine_of(BriefWork(work), store) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(send, engine)
        await began.wait()
        await engine.drain(0)
    (task,) = answers
    assert task.status.state is F
    assert "stopped" in text_of_parts(task.status.message.parts)
    async with SQLiteStore(tmp_path / "tasks.db") as store, engine_of(BriefWork(work), store) as engine:
        assert (await engine.get(task.id, None, ALICE)).status.state is F


async def test_a_client_that_leaves_a_stream_leaves_brief_work_to_its_end() -> None:
    go, ended = anyio.Event(), anyio.Event()

    async def work(job: Job) -> None:
        await go.wait()
        await quick(job)
        ended.set()

    async with engine_of(BriefWork(work)) as engine:
        (await engine.stream(asked(), ALICE)).close()
        go.set()
        await ended.wait()
        assert await kept_tasks(engine) == 0
