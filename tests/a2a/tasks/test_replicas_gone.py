"""Several engines on one store of which one dies, stands still, or stops: what its tasks and its clients become."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import anyio
import pytest

from bridge.a2a.model.errors import UNAVAILABLE, A2AError
from bridge.a2a.model.objects import ListTasksRequest, Message, Role, Task, text_of_parts
from bridge.a2a.tasks.agent import Job, Turn
from bridge.a2a.tasks.draft import BriefWork
from bridge.store.records import Quota
from bridge.store.retention import Retention
from tests.support.agents import ALICE, Scripted, asked, give, say
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.fleet import (
    AT_ONCE,
    INPUT,
    C,
    F,
    Listening,
    Replica,
    Steps,
    W,
    X,
    ask_then_finish,
    finish,
    first_of,
    fleet,
    never,
    refused,
    shape,
    task_of,
    texts,
    words,
)

pytestmark = pytest.mark.proves("replicas-nothing-lost")


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds. A store that is away is tried all the time, so that tasks never rest meanwhile."""
    while not holds():
        await anyio.sleep(0.001)


# Killed


async def test_a_task_whose_replica_is_killed_fails_and_those_who_wait_elsewhere_are_told() -> None:
    async with fleet(never) as found:
        one, two, three = await found.start(), await found.start(), await found.start()
        request = asked()
        task = await task_of(one.tasks, request, ALICE, AT_ONCE)
        stream = await two.tasks.subscribe(task.id, ALICE)
        answers: list[Task] = []

        async def wait() -> None:
            answers.append(await task_of(three.tasks, request))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        assert await shape(stream) == ["task WORKING", "statusUpdate FAILED"]
        assert (answers[0].id, answers[0].status.state) == (task.id, F)
        assert "replica" in words(answers[0])


async def test_work_that_can_be_resumed_goes_on_at_another_replica() -> None:
    gate = anyio.Event()
    runs: list[str] = []

    async def work(job: Job) -> None:
        runs.append(text_of_parts(job.turn.message.parts))
        if len(runs) == 1:
            await job.status(W, keep=b"resume")
            await anyio.sleep_forever()
        await gate.wait()
        await give(job, "from the other")
        await say(job, C)

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        stream = await two.tasks.subscribe(task.id, ALICE)
        found.shared.kill(one.store)
        gate.set()
        assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert runs == ["go", "go"]
        assert texts(await two.tasks.get(task.id, None, ALICE)) == ["from the other"]


async def test_a_task_that_waits_goes_on_waiting_when_its_replica_is_killed() -> None:
    async with fleet(Listening()) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        found.shared.kill(one.store)
        await anyio.wait_all_tasks_blocked()
        assert await two.tasks.get(task.id, None, ALICE) == task
        assert found.shared.holder_of(task.id) is None


async def test_an_answer_that_comes_while_its_task_is_taken_over_does_not_run_the_tool_again() -> None:
    runs: list[str] = []

    async def work(job: Job) -> None:
        runs.append(text_of_parts(job.turn.message.parts))
        if len(runs) == 1:
            await job.status(INPUT, keep=b"resume")
            await anyio.sleep_forever()
        await job.status(W)
        await anyio.sleep_forever()

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        two.store.hold_adoptions()
        found.shared.kill(one.store)
        async with anyio.create_task_group() as group:
            answer = asked({"text": "answer"}, taskId=task.id)
            group.start_soon(task_of, two.tasks, answer, ALICE, AT_ONCE)
            await anyio.wait_all_tasks_blocked()
            assert runs == ["go"]
            two.store.let_adoptions()
        assert runs == ["go", "go"]


async def test_a_request_to_a_replica_that_dies_is_repeated_and_answered() -> None:
    async with fleet(ask_then_finish) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        one.store.hold_writes()
        answers: list[Task] = []

        async def answer(replica: Replica) -> None:
            answers.append(await task_of(replica.tasks, asked({"text": "this"}, taskId=task.id), ALICE))

        found.shared.pause(one.store)
        async with anyio.create_task_group() as group:
            group.start_soon(answer, two)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        assert (answers[0].status.state, texts(answers[0])) == (C, ["this"])


async def test_an_answer_that_the_dead_replica_accepted_is_not_accepted_twice() -> None:
    """The owner stored the answer and died before it replied."""
    work = Listening()
    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        request = asked({"text": "this"}, taskId=task.id, configuration=AT_ONCE)
        answers: list[Task] = []

        async def answer() -> None:
            answers.append(await task_of(two.tasks, request, ALICE))

        async with anyio.create_task_group() as group:
            one.store.hold_writes()
            group.start_soon(answer)
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes(1)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        said = [text_of_parts(message.parts) for message in answers[0].history or ()]
        assert said.count("this") == 1


async def test_a_cancellation_that_the_dead_replica_made_is_a_success() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        one.store.hold_replies()
        canceled: list[Task] = []

        async def cancel() -> None:
            canceled.append(await two.tasks.cancel(task.id, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        assert canceled[0].status.state is X


async def test_a_message_without_an_id_is_not_sent_twice_when_the_asked_replica_is_gone() -> None:
    caller = replace(ALICE, names_tasks=True)
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        request = asked(taskId="mine", configuration=AT_ONCE)
        await task_of(one.tasks, request, caller)
        one.store.hold_replies()

        async def send() -> None:
            async with refused(UNAVAILABLE):
                await two.tasks.send(request, caller)

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        task = await two.tasks.get("mine", None, caller)
        assert len([said for said in task.history or () if said.role is Role.USER]) == 2


async def test_brief_work_of_which_nothing_is_stored_goes_on_when_its_replica_is_fenced() -> None:
    gate = anyio.Event()

    async def work(job: Job) -> None:
        await gate.wait()
        await give(job, "brief")
        await say(job, C)

    class Brief(Scripted):
        def plan(self, turn: Turn) -> BriefWork:
            return BriefWork(super().plan(turn))

    async with fleet(work) as found:
        one, _ = await found.start(), await found.start()
        one.engine._intake._agent = Brief(work)
        answers: list[Task | Message] = []

        async def send() -> None:
            answers.append(await one.tasks.send(asked(), ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            found.fence(one)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert isinstance(answers[0], Message)
        assert text_of_parts(answers[0].parts) == "brief"


@pytest.mark.parametrize("stored", range(5))
async def test_a_kill_at_each_point_of_a_message_leaves_one_task_and_one_end(stored: int) -> None:
    """The client sends the same message again, to another replica, when its own is gone."""
    runs: list[str] = []

    async def work(job: Job) -> None:
        runs.append(job.turn.message.message_id)
        await say(job, W)
        await give(job, "done")
        await say(job, C)

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        request = asked()
        one.store.hold_writes()
        async with anyio.create_task_group() as group:
            group.start_soon(task_of, one.tasks, request)
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes(stored)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        task = await task_of(two.tasks, request)
        assert task.status.state is (F if 0 < stored < 4 else C)
        (listed,) = (await two.tasks.list(ListTasksRequest(), ALICE)).tasks
        assert listed.id == task.id
        assert len(runs) == 1
        assert await two.tasks.get(task.id, None, ALICE) == task


# Taken for dead


async def test_a_stalled_replica_adds_no_event_and_its_clients_see_the_end_of_another() -> None:
    work = Steps()
    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        stream = await one.tasks.stream(asked(), ALICE)
        task_id = (await first_of(stream))["task"]["id"]
        await work.began.wait()
        found.shared.pause(one.store)
        work.go()
        await anyio.wait_all_tasks_blocked()
        found.shared.notice(one.store)
        await anyio.wait_all_tasks_blocked()
        failed = await two.tasks.get(task_id, None, ALICE)
        assert (failed.status.state, failed.artifacts) == (F, None)
        found.shared.resume(one.store)
        assert await shape(stream) == ["statusUpdate WORKING", "statusUpdate FAILED"]
        assert await one.tasks.get(task_id, None, ALICE) == failed
        assert one.engine.running == 0
        await anyio.wait_all_tasks_blocked()
        assert not list(one.engine.registry)
        again = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        assert found.shared.holder_of(again.id) == one.store.epoch


async def test_a_send_whose_message_was_not_stored_before_the_fence_is_taken_in_after_it() -> None:
    async with fleet(finish) as found:
        one, two = await found.start(), await found.start()
        answers: list[Task] = []

        async def send() -> None:
            answers.append(await task_of(one.tasks, asked(), ALICE))

        async with anyio.create_task_group() as group:
            one.store.hold_writes()
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            found.fence(one)
            one.store.let_writes()
        assert answers[0].status.state is C
        (listed,) = (await two.tasks.list(ListTasksRequest(), ALICE)).tasks
        assert listed.id == answers[0].id


@pytest.mark.parametrize("pending", [True, False])
async def test_a_replica_that_is_fenced_and_alone_goes_on_with_its_own_tasks(pending: bool) -> None:
    work = Steps()
    async with fleet(work) as found:
        one = await found.start()
        stream = await one.tasks.stream(asked(), ALICE)
        task_id = (await first_of(stream))["task"]["id"]
        await work.began.wait()
        await anyio.wait_all_tasks_blocked()
        if pending:
            one.store.hold_writes()
            work.go()
            await anyio.wait_all_tasks_blocked()
        found.fence(one)
        await anyio.wait_all_tasks_blocked()
        one.store.let_writes()
        await anyio.wait_all_tasks_blocked()
        task = await one.tasks.get(task_id, None, ALICE)
        assert (task.status.state, task.artifacts) == (F, None)
        seen = await shape(stream)
        assert seen == ["statusUpdate WORKING", "statusUpdate FAILED"]
        assert not list(one.engine.registry)


async def test_a_replica_whose_database_was_away_ends_no_task_that_another_one_let_rest_meanwhile() -> None:
    async with fleet(Listening()) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        one.store.is_away = True
        async with refused(UNAVAILABLE):
            await one.tasks.send(asked({"text": "this"}, taskId=task.id), ALICE)
        assert not one.engine.ready
        one.store.looks = False
        found.shared.notice(one.store)
        await until(lambda: found.shared.holder_of(task.id) is None)
        epoch = one.store.epoch
        one.store.look()
        await until(lambda: one.store.epoch != epoch)
        one.store.is_away = False
        await until(lambda: one.engine.ready)
        await anyio.wait_all_tasks_blocked()
        assert await two.tasks.get(task.id, None, ALICE) == task
        done = await task_of(one.tasks, asked({"text": "that"}, taskId=task.id), ALICE)
        assert done.id == task.id


async def test_a_task_whose_events_could_not_be_stored_is_ended_by_its_replica_once_it_can_store_again() -> (
    None
):
    work = Steps()
    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await work.began.wait()
        stream = await two.tasks.subscribe(task.id, ALICE)
        one.store.is_away = True
        work.go()
        await until(lambda: not one.engine.ready)
        one.store.is_away = False
        assert await shape(stream) == ["task WORKING", "statusUpdate FAILED"]


async def test_a_send_that_waits_at_a_fenced_replica_is_answered_with_the_end_of_another() -> None:
    async with fleet(never) as found:
        one, _ = await found.start(), await found.start()
        answers: list[Task] = []

        async def send() -> None:
            answers.append(await task_of(one.tasks, asked(), ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            found.fence(one)
        assert (answers[0].status.state, "replica" in words(answers[0])) == (F, True)


async def test_a_late_event_of_fenced_work_is_not_stored_as_a_claim_of_a_task_at_rest() -> None:
    release = anyio.Event()

    async def work(job: Job) -> None:
        job.listen(lambda turn: lambda commit: None)
        await say(job, INPUT, "Which?")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await release.wait()
                say(job, C)

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        found.fence(one)
        await anyio.wait_all_tasks_blocked()
        assert found.shared.holder_of(task.id) is None
        release.set()
        await anyio.wait_all_tasks_blocked()
        assert await two.tasks.get(task.id, None, ALICE) == task


async def test_a_get_at_a_stalled_replica_waits_until_it_has_caught_up() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        found.shared.pause(one.store)
        found.shared.notice(one.store)
        await anyio.wait_all_tasks_blocked()
        failed = await two.tasks.get(task.id, None, ALICE)
        assert failed.status.state is F
        got: list[Task] = []

        async def get() -> None:
            got.append(await one.tasks.get(task.id, None, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(get)
            found.shared.resume(one.store, unaware=True)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            one.store.look()
        assert got == [failed]


async def test_a_cancellation_at_a_stalled_replica_gets_the_end_of_the_task() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        found.shared.pause(one.store)
        found.shared.notice(one.store)
        await anyio.wait_all_tasks_blocked()
        caught: list[A2AError] = []

        async def cancel() -> None:
            with pytest.raises(A2AError) as refusal:
                await one.tasks.cancel(task.id, ALICE)
            caught.append(refusal.value)

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await anyio.wait_all_tasks_blocked()
            found.shared.resume(one.store)
        assert caught[0].kind.reason == "TASK_NOT_CANCELABLE"
        assert (await two.tasks.get(task.id, None, ALICE)).status.state is F


# One does it for all


async def test_a_task_that_nobody_answers_is_ended_once_by_one_replica() -> None:
    async with fleet(ask_then_finish, input_timeout_seconds=0.02) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(two.tasks, asked(), ALICE)
        stream = await two.tasks.subscribe(task.id, ALICE)
        found.clock.pass_ms(1_000)
        seen = await shape(stream)
        assert seen == ["task INPUT_REQUIRED", "statusUpdate FAILED"]
        failed = await one.tasks.get(task.id, None, ALICE)
        assert "was not answered within" in words(failed)
        await anyio.wait_all_tasks_blocked()
        assert (one.engine.running, two.engine.running) == (0, 0)


async def test_ended_tasks_are_evicted_by_the_replica_that_leads() -> None:
    async with fleet(finish) as found:
        leading = await found.start()
        kept = Retention(age_seconds=0, quota=Quota(0, 0), every_seconds=0.01)
        other = await found.start(retention=kept)
        task = await task_of(leading.tasks, asked(), ALICE)
        await anyio.sleep(0.05)
        assert await other.tasks.get(task.id, None, ALICE) == task
        found.shared.kill(leading.store)
        while found.shared.has(task.id):
            await anyio.sleep(0.01)


# Stopping


async def test_a_stopping_replica_hands_over_resumable_tasks_at_once() -> None:
    runs = 0

    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            job.outlive()
            await job.status(W, keep=b"resume")
            await anyio.sleep_forever()
        await give(job, f"left {job.is_left()}")
        await say(job, C)

    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        stream = await two.tasks.subscribe(task.id, ALICE)
        async with anyio.create_task_group() as group:
            group.start_soon(one.engine.drain, PATIENCE_SECONDS)
            assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert runs == 2


async def test_a_stopping_replica_lets_a_task_rest_whose_call_waits_for_its_client() -> None:
    work = Listening()
    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        async with anyio.create_task_group() as group:
            group.start_soon(one.engine.drain, PATIENCE_SECONDS)
        await anyio.wait_all_tasks_blocked()
        assert found.shared.holder_of(task.id) is None
        assert await two.tasks.get(task.id, None, ALICE) == task


async def test_a_task_that_cannot_be_resumed_ends_with_its_replica() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        stream = await two.tasks.subscribe(task.id, ALICE)
        await one.engine.drain(0)
        assert await shape(stream) == ["task WORKING", "statusUpdate FAILED"]
        assert "was stopped" in words(await two.tasks.get(task.id, None, ALICE))


async def test_a_stopping_replica_ends_the_streams_of_foreign_tasks() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        stream = await two.tasks.subscribe(task.id, ALICE)
        await two.engine.drain(PATIENCE_SECONDS)
        assert await shape(stream) == ["task WORKING"]
        async with refused(UNAVAILABLE):
            await two.tasks.send(asked(), ALICE)
        assert (await one.tasks.cancel(task.id, ALICE)).status.state is X
