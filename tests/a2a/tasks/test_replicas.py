"""Several engines on one store: a client may ask any of them, also when one is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from bridge.a2a.layers.replica_commands import ElsewhereReply, SendCommand, command_bytes, reply_from
from bridge.a2a.model.errors import (
    FORBIDDEN,
    INVALID_PARAMS,
    OVERLOADED,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    A2AError,
)
from bridge.a2a.model.objects import ListTasksRequest, Task, text_of_parts
from bridge.a2a.model.operators import ANSWERED_BY, CANCELED_BY
from bridge.a2a.tasks.agent import Job, Turn
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.draft import BriefWork
from bridge.a2a.tasks.idempotency import REPEATED
from bridge.a2a.tasks.watcher import Watcher
from bridge.identity.callers.principals import OperatorRole, Principal
from tests.support.agents import ALICE, Scripted, asked, give, say
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.fleet import (
    AT_ONCE,
    AUTH,
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
    pair,
    refused,
    shape,
    task_of,
    texts,
    words,
)
from tests.support.replicas import ReplicaStore

BOB = CallContext(Principal("bob"))

pytestmark = pytest.mark.proves("replicas-one-agent")


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


# What clients see


async def test_a_task_of_one_replica_is_got_listed_and_watched_at_another() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        await work.began.wait()
        assert await two.tasks.get(task.id, None, ALICE) == await one.tasks.get(task.id, None, ALICE)
        (listed,) = (await two.tasks.list(ListTasksRequest(), ALICE)).tasks
        assert (listed.id, listed.status.state) == (task.id, W)
        async with refused(TASK_NOT_FOUND):
            await two.tasks.get(task.id, None, BOB)
        stream = await two.tasks.subscribe(task.id, ALICE)
        work.go()
        work.go()
        assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert texts(await two.tasks.get(task.id, None, ALICE)) == ["piece 0"]
        await anyio.wait_all_tasks_blocked()
        assert not list(one.engine.registry)
        assert not list(two.engine.registry)
        assert two.store.followed == []


async def test_a_list_is_in_order_though_the_clocks_of_the_replicas_are_hours_apart() -> None:
    async with fleet(finish) as found:
        replicas = [await found.start(ahead_ms=ahead_ms) for ahead_ms in (0, 3_600_000, -3_600_000)]
        tasks = []
        for replica in (*replicas, *replicas):
            found.clock.pass_ms(10)
            tasks.append((await task_of(replica.tasks, asked())).id)
        for replica in replicas:
            listed = await replica.tasks.list(ListTasksRequest(), ALICE)
            assert [task.id for task in listed.tasks] == tasks[::-1]


async def test_a_get_has_every_event_of_another_replica_and_no_stream_misses_one() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        await work.began.wait()
        stream = await two.tasks.subscribe(task.id, ALICE)
        two.store.hold_feed()
        watched = await one.tasks.subscribe(task.id, ALICE)
        work.go()
        work.go()
        assert (await shape(watched))[-1] == "statusUpdate COMPLETED"
        assert (await two.tasks.get(task.id, None, ALICE)).status.state is C
        async with refused(UNSUPPORTED_OPERATION):
            await two.tasks.subscribe(task.id, ALICE)
        assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]


async def test_a_stream_whose_events_were_folded_before_they_were_told_goes_on_with_the_whole_task() -> None:
    work = Steps()
    async with fleet(work) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        await work.began.wait()
        stream = await two.tasks.subscribe(task.id, ALICE)
        two.store.hold_feed()
        watched = await one.tasks.subscribe(task.id, ALICE)
        work.go()
        work.go()
        await shape(watched)
        found.shared.forget_events(task.id)
        two.store.let_feed()
        assert await shape(stream) == ["task WORKING", "task COMPLETED"]


# Messages


async def test_an_answer_to_a_task_at_rest_is_worked_on_where_it_arrives() -> None:
    async with pair(ask_then_finish) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        assert (task.status.state, words(task)) == (INPUT, "Which?")
        watched = await one.tasks.subscribe(task.id, ALICE)
        done = await task_of(two.tasks, asked({"text": "this"}, taskId=task.id), ALICE)
        assert (done.status.state, texts(done)) == (C, ["this"])
        assert (one.turns, two.turns) == (["go"], ["this"])
        assert await shape(watched) == [
            "task INPUT_REQUIRED",
            "statusUpdate WORKING",
            "artifactUpdate",
            "statusUpdate COMPLETED",
        ]
        assert await one.tasks.get(task.id, None, ALICE) == done


@pytest.mark.parametrize("delayed", [True, False])
async def test_the_first_of_two_concurrent_answers_runs_and_the_other_is_held_or_refused(
    delayed: bool,
) -> None:
    gate = anyio.Event()

    async def work(job: Job) -> None:
        if job.turn.task is None:
            return await say(job, INPUT, "Which?")
        await gate.wait()
        await give(job, text_of_parts(job.turn.message.parts))
        return await say(job, C)

    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        answers: dict[str, Task] = {}

        async def answer(replica: Replica, text: str) -> None:
            answers[text] = await task_of(replica.tasks, asked({"text": text}, taskId=task.id), ALICE)

        if delayed:
            one.store.hold_writes()
            two.store.hold_writes()
        async with anyio.create_task_group() as group:
            group.start_soon(answer, one, "this")
            group.start_soon(answer, two, "that")
            await anyio.wait_all_tasks_blocked()
            two.store.let_writes()
            one.store.let_writes()
            await anyio.wait_all_tasks_blocked()
            gate.set()
        task = await one.tasks.get(task.id, None, ALICE)
        said = [text_of_parts(message.parts) for message in task.history or ()]
        assert sorted(said) == ["Which?", "go", "that", "this"]
        (winner,) = texts(task)
        assert answers[winner] == task


async def test_an_answer_at_a_replica_whose_stream_has_just_ended_is_worked_on_there() -> None:
    gate = anyio.Event()

    async def work(job: Job) -> None:
        if job.turn.task is None:
            await say(job, W)
            await asks.wait()
            return await say(job, INPUT, "Which?")
        await gate.wait()
        return await say(job, C)

    asks = anyio.Event()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        stream = await two.tasks.subscribe(task.id, ALICE)
        two.store.hold_feed()
        asks.set()
        await anyio.wait_all_tasks_blocked()
        answered = await two.tasks.stream(asked({"text": "this"}, taskId=task.id), ALICE)
        assert await shape(stream) == ["task WORKING", "statusUpdate INPUT_REQUIRED"]
        answered.close()
        held = await task_of(two.tasks, asked({"text": "and that"}, taskId=task.id), ALICE, AT_ONCE)
        assert held.status.state is W
        (live,) = two.engine.registry
        assert live.running is not None
        assert len(live.running.held) == 1
        gate.set()


async def test_an_answer_goes_with_what_was_kept_last_also_if_the_feed_overtakes_a_read() -> None:
    kept: list[bytes] = []

    async def work(job: Job) -> None:
        kept.append(job.turn.kept)
        if len(kept) < 3:
            return await job.status(AUTH, keep=b"round %d" % len(kept))
        return await say(job, C)

    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        await anyio.wait_all_tasks_blocked()
        answers: list[Task] = []

        async def answer() -> None:
            answers.append(await task_of(two.tasks, asked({"text": "last"}, taskId=task.id), ALICE))

        waiting = await two.tasks.subscribe(task.id, ALICE)
        async with anyio.create_task_group() as group:
            two.store.hold_reads()
            group.start_soon(answer)
            await anyio.wait_all_tasks_blocked()
            await task_of(one.tasks, asked({"text": "next"}, taskId=task.id), ALICE)
            await anyio.wait_all_tasks_blocked()
            two.store.let_reads()
        waiting.close()
        assert kept == [b"", b"round 1", b"round 2"]
        assert answers[0].status.state is C


async def test_a_message_to_a_working_task_reaches_the_replica_that_works_on_it() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        await work.began.wait()
        held = await task_of(two.tasks, asked({"text": "and that"}, taskId=task.id), ALICE)
        assert held.status.state is W
        assert [text_of_parts(message.parts) for message in held.history or ()] == ["go", "and that"]
        (live,) = one.engine.registry
        assert live.running is not None
        assert [text_of_parts(message.turn.message.parts) for message in live.running.held] == ["and that"]
        assert two.turns == []


async def test_an_answer_to_an_open_call_reaches_it_and_its_refusal_comes_back() -> None:
    work = Listening()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        assert task.status.state is INPUT
        with pytest.raises(A2AError) as caught:
            await two.tasks.send(asked({"text": "no"}, taskId=task.id), ALICE)
        assert (caught.value.kind, str(caught.value)) == (INVALID_PARAMS, "That is no answer")
        assert caught.value.headers == {"X-Why": "no"}
        stream = await two.tasks.stream(asked({"text": "this"}, taskId=task.id), ALICE)
        seen = await shape(stream)
        assert seen[0].startswith("task ")
        assert seen[-1].endswith(" COMPLETED")
        assert texts(await two.tasks.get(task.id, None, ALICE)) == ["this"]
        assert work.runs == 1


async def test_an_owner_checks_who_asks_as_for_its_own_clients() -> None:
    async with pair(Listening()) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        for tasks in (one.tasks, two.tasks):
            async with refused(TASK_NOT_FOUND):
                await tasks.send(asked({"text": "this"}, taskId=task.id), BOB)
            async with refused(TASK_NOT_FOUND):
                await tasks.cancel(task.id, BOB)


@pytest.mark.proves("ops-role", "ops-named")
async def test_an_operator_answers_and_cancels_from_any_replica() -> None:
    operator = CallContext(Principal("ops"), operator=OperatorRole.ANSWER, sees_contents=True)
    async with pair(Listening()) as (one, two):
        task, other = await task_of(one.tasks, asked(), ALICE), await task_of(one.tasks, asked(), ALICE)
        async with refused(FORBIDDEN):
            await two.tasks.cancel(other.id, replace(operator, operator=OperatorRole.READ))
        await two.tasks.cancel(other.id, operator)
        canceled = await one.tasks.get(other.id, None, ALICE)
        assert canceled.status.message is not None
        assert canceled.status.message.metadata == {CANCELED_BY: "ops"}
        await two.tasks.send(asked({"text": "this"}, taskId=task.id), operator)
        done = await one.tasks.get(task.id, None, ALICE)
        assert texts(done) == ["this"]
        assert [(message.metadata or {}).get(ANSWERED_BY) for message in done.history or ()][-1] == "ops"


async def test_a_replica_asked_about_a_task_that_the_message_is_not_for_does_nothing() -> None:
    async with pair(finish) as (one, two):
        for request in (asked(), asked(contextId="talk")):
            reply = await two.store.ask(
                one.store.epoch, command_bytes(SendCommand(request, ALICE, "another"))
            )
            assert reply_from(reply) == ElsewhereReply()
        assert one.turns == []
        assert (await one.tasks.list(ListTasksRequest(), ALICE)).tasks == ()


async def test_a_message_to_a_task_that_ended_elsewhere_is_refused() -> None:
    async with pair(finish) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        async with refused(UNSUPPORTED_OPERATION):
            await two.tasks.send(asked(taskId=task.id), ALICE)


# Cancelling


async def test_a_task_is_canceled_from_any_replica() -> None:
    async with pair(never) as (one, two):
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        canceled = await two.tasks.cancel(task.id, ALICE)
        assert canceled.status.state is X
        assert await one.tasks.get(task.id, None, ALICE) == canceled
        assert one.engine.running == 0
        for replica in (one, two):
            async with refused(TASK_NOT_CANCELABLE):
                await replica.tasks.cancel(task.id, ALICE)


async def test_a_task_at_rest_is_canceled_from_any_replica() -> None:
    async with pair(ask_then_finish) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        assert (await two.tasks.cancel(task.id, ALICE)).status.state is X
        async with refused(UNSUPPORTED_OPERATION):
            await one.tasks.send(asked(taskId=task.id), ALICE)


async def test_a_cancellation_that_an_answer_overtook_cancels_the_work_on_the_answer() -> None:
    async def work(job: Job) -> None:
        if job.turn.task is None:
            return await say(job, INPUT, "Which?")
        return await never(job)

    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        await anyio.wait_all_tasks_blocked()
        one.store.hold_writes()
        canceled: list[Task] = []

        async def cancel() -> None:
            canceled.append(await one.tasks.cancel(task.id, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await anyio.wait_all_tasks_blocked()
            answered = await task_of(two.tasks, asked({"text": "this"}, taskId=task.id), ALICE, AT_ONCE)
            assert answered.status.state is W
            one.store.let_writes()
        assert canceled[0].status.state is X
        assert two.engine.running == 0
        assert await two.tasks.get(task.id, None, ALICE) == canceled[0]


async def test_a_cancellation_succeeds_whose_end_is_stored_while_its_task_is_read() -> None:
    stores: list[ReplicaStore] = []

    async def work(job: Job) -> None:
        try:
            await never(job)
        finally:
            for store in stores:
                store.hold_writes()
                store.hold_reads()

    async with pair(work) as (one, _):
        task = await task_of(one.tasks, asked(configuration=AT_ONCE), ALICE)
        stores.append(one.store)
        canceled: list[Task] = []

        async def cancel() -> None:
            canceled.append(await one.tasks.cancel(task.id, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes()
            await anyio.wait_all_tasks_blocked()
            one.store.let_reads()
        assert canceled[0].status.state is X


async def test_the_first_of_a_concurrent_cancellation_and_answer_wins() -> None:
    async with pair(ask_then_finish) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE)
        await anyio.wait_all_tasks_blocked()
        one.store.hold_writes()
        two.store.hold_writes()
        outcomes: dict[str, Any] = {}

        async def cancel() -> None:
            outcomes["cancel"] = await one.tasks.cancel(task.id, ALICE)

        async def answer() -> None:
            async with refused(UNSUPPORTED_OPERATION):
                await two.tasks.send(asked({"text": "late"}, taskId=task.id), ALICE)

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            group.start_soon(answer)
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes()
            await anyio.wait_all_tasks_blocked()
            two.store.let_writes()
        assert outcomes["cancel"].status.state is X
        assert await two.tasks.get(task.id, None, ALICE) == outcomes["cancel"]
        assert two.engine.running == 0


# The same message twice


async def test_one_of_two_equal_messages_at_two_replicas_is_worked_on() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        one.store.hold_writes()
        two.store.hold_writes()
        request, found = asked(), []

        async def send(replica: Replica) -> None:
            found.append(await task_of(replica.tasks, request, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(send, one)
            group.start_soon(send, two)
            await anyio.wait_all_tasks_blocked()
            two.store.let_writes()
            one.store.let_writes()
            work.go()
            work.go()
        assert found[0] == found[1]
        assert work.runs == 1
        (listed,) = (await one.tasks.list(ListTasksRequest(), ALICE)).tasks
        assert listed.id == found[0].id


async def test_two_equal_streams_at_two_replicas_show_the_same_task() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        request = asked()
        streams: list[Watcher] = []

        async def open_at(replica: Replica) -> None:
            streams.append(await replica.tasks.stream(request, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(open_at, one)
            group.start_soon(open_at, two)
        work.go()
        work.go()
        ids = {(await first_of(stream))["task"]["id"] for stream in streams}
        assert len(ids) == 1
        assert [(await shape(stream))[-1] for stream in streams] == ["statusUpdate COMPLETED"] * 2
        assert work.runs == 1


async def test_a_repeat_at_another_replica_finds_the_task_while_it_works() -> None:
    work = Steps()
    async with fleet(work, repeat_seconds=10) as found:
        one, two = await found.start(), await found.start()
        request = asked(configuration=AT_ONCE)
        task = await task_of(one.tasks, request, ALICE)
        await work.began.wait()
        found.clock.pass_ms(60_000)
        assert (await task_of(two.tasks, request, ALICE)).id == task.id
        assert work.runs == 1


async def test_a_repeat_is_judged_by_one_clock_whatever_the_clocks_of_the_replicas_say() -> None:
    async with fleet(finish, repeat_seconds=10, repeat_answered_seconds=5) as found:
        one = await found.start()
        two = await found.start()
        request = asked()
        task = await task_of(one.tasks, request, ALICE)
        found.clock.now_ms += 3_600_000
        assert (await task_of(two.tasks, request, ALICE)).id == task.id
        found.clock.pass_ms(11_000)
        three = await found.start()
        assert (await task_of(three.tasks, request, ALICE)).id != task.id


async def test_a_message_that_was_answered_elsewhere_is_a_repeat_for_a_short_time() -> None:
    async with fleet(finish, repeat_seconds=100, repeat_answered_seconds=5) as found:
        one, two = await found.start(), await found.start()
        request = asked()
        task = await task_of(one.tasks, request, ALICE)
        one.engine.written(request, ALICE)
        await anyio.wait_all_tasks_blocked()
        repeated = await task_of(two.tasks, request, ALICE)
        assert repeated.id == task.id
        assert REPEATED in (repeated.metadata or {})
        found.clock.pass_ms(6_000)
        again = await task_of(two.tasks, request, ALICE)
        assert again.id != task.id


async def test_idempotent_work_that_was_answered_elsewhere_is_done_again() -> None:
    async def work(job: Job) -> None:
        job.allow_repeats()
        await say(job, C)

    async with pair(work) as (one, two):
        request = asked()
        task = await task_of(one.tasks, request, ALICE)
        one.engine.written(request, ALICE)
        await anyio.wait_all_tasks_blocked()
        assert (await task_of(two.tasks, request, ALICE)).id != task.id


async def test_the_answer_of_a_task_that_another_replica_works_on_counts_as_written() -> None:
    async with fleet(Listening(), repeat_seconds=100, repeat_answered_seconds=5) as found:
        one, two = await found.start(), await found.start()
        task = await task_of(one.tasks, asked(), ALICE)
        request = asked({"text": "this"}, taskId=task.id)
        done = await task_of(two.tasks, request, ALICE)
        two.engine.written(request, ALICE)
        await anyio.wait_all_tasks_blocked()
        for replica in (one, two):
            repeated = await task_of(replica.tasks, request, ALICE)
            assert (repeated.id, REPEATED in (repeated.metadata or {})) == (done.id, True)
        found.clock.pass_ms(6_000)
        for replica in (one, two):
            async with refused(UNSUPPORTED_OPERATION):
                await replica.tasks.send(request, ALICE)


async def test_other_content_under_the_same_id_is_a_new_message_at_any_replica() -> None:
    async with pair(finish) as (one, two):
        message_id = "always-the-same"
        tasks = [
            await task_of(replica.tasks, asked({"text": str(number)}, messageId=message_id), ALICE)
            for number, replica in enumerate((one, two, one, two))
        ]
        assert len({task.id for task in tasks}) == 4


async def test_a_message_whose_id_another_replica_uses_meanwhile_does_not_end_the_work_on_its_task() -> None:
    work = Steps()
    async with pair(work) as (one, two):
        task = await task_of(one.tasks, asked(), ALICE, AT_ONCE)
        await work.began.wait()
        one.store.hold_writes()
        held: list[Task] = []

        async def say_more() -> None:
            held.append(
                await task_of(one.tasks, asked({"text": "more"}, taskId=task.id, messageId="same"), ALICE)
            )

        async with anyio.create_task_group() as group:
            group.start_soon(say_more)
            await anyio.wait_all_tasks_blocked()
            other = await task_of(two.tasks, asked({"text": "else"}, messageId="same"), ALICE, AT_ONCE)
            one.store.let_writes()
        assert held[0].id == task.id != other.id
        streams = [await two.tasks.subscribe(task_id, ALICE) for task_id in (task.id, other.id)]
        for _ in range(4):
            work.go()
        assert [(await shape(stream))[-1] for stream in streams] == ["statusUpdate COMPLETED"] * 2


async def test_brief_work_that_fails_at_two_replicas_makes_one_task() -> None:
    gate = anyio.Event()

    async def fail(job: Job) -> None:
        await gate.wait()
        await say(job, F, "It failed")

    class Brief(Scripted):
        def plan(self, turn: Turn) -> BriefWork:
            return BriefWork(super().plan(turn))

    async with fleet(fail) as found:
        one, two = await found.start(), await found.start()
        one.engine._intake._agent = Brief(fail)
        two.engine._intake._agent = Brief(fail)
        request, answers = asked(), []

        async def send(replica: Replica) -> None:
            answers.append(await task_of(replica.tasks, request, ALICE))

        async with anyio.create_task_group() as group:
            group.start_soon(send, one)
            group.start_soon(send, two)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert answers[0] == answers[1]
        (listed,) = (await one.tasks.list(ListTasksRequest(), ALICE)).tasks
        assert listed.id == answers[0].id


# Contexts, names, bounds


async def test_a_context_that_two_principals_begin_at_once_belongs_to_one_of_them() -> None:
    async with pair(finish) as (one, two):
        one.store.hold_writes()
        two.store.hold_writes()
        outcomes: list[str] = []

        async def send(replica: Replica, caller: CallContext) -> None:
            try:
                await replica.tasks.send(asked(contextId="talk"), caller)
                outcomes.append("taken")
            except A2AError as refusal:
                outcomes.append(refusal.kind.reason)

        async with anyio.create_task_group() as group:
            group.start_soon(send, one, ALICE)
            group.start_soon(send, two, BOB)
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes()
            two.store.let_writes()
        assert sorted(outcomes) == ["INVALID_PARAMS", "taken"]


async def test_a_name_that_a_client_gives_at_two_replicas_is_of_one_task() -> None:
    caller = replace(ALICE, names_tasks=True)
    gate = anyio.Event()

    async def work(job: Job) -> None:
        await say(job, W)
        await gate.wait()
        await say(job, C)

    async with pair(work) as (one, two):
        one.store.hold_writes()
        two.store.hold_writes()
        tasks: list[Task] = []

        async def send(replica: Replica, text: str) -> None:
            request = asked({"text": text}, taskId="mine", configuration=AT_ONCE)
            tasks.append(await task_of(replica.tasks, request, caller))

        async with anyio.create_task_group() as group:
            group.start_soon(send, one, "first")
            group.start_soon(send, two, "second")
            await anyio.wait_all_tasks_blocked()
            one.store.let_writes()
            two.store.let_writes()
        assert tasks[0].id == tasks[1].id
        assert await two.engine.is_named("mine", caller)
        gate.set()
        done = await task_of(two.tasks, asked(taskId="mine", configuration=AT_ONCE), caller)
        task = await one.tasks.get("mine", None, caller)
        assert task.id == done.id


async def test_the_bound_on_open_tasks_holds_over_all_replicas() -> None:
    async with fleet(ask_then_finish, open_tasks=3) as found:
        one, two = await found.start(), await found.start()
        tasks = [await task_of(replica.tasks, asked(), ALICE) for replica in (one, two, one)]
        found.clock.pass_ms(1_001)
        for replica in (one, two):
            async with refused(OVERLOADED):
                await replica.tasks.send(asked(), ALICE)
        await task_of(two.tasks, asked(taskId=tasks[0].id), ALICE)
        assert (await task_of(one.tasks, asked(), ALICE)).status.state is INPUT


async def test_a_message_of_a_context_answers_the_task_that_another_replica_holds() -> None:
    class Taking(Scripted):
        def takes_as_answer(self, turn: Turn) -> bool:
            return text_of_parts(turn.message.parts) == "this"

    work = Listening()
    async with pair(work) as (one, two):
        for replica in (one, two):
            replica.engine._intake._addressing._agent = Taking(work)
        task = await task_of(one.tasks, asked(contextId="talk"), ALICE)
        other = await task_of(two.tasks, asked({"text": "else"}, contextId="talk"), ALICE)
        assert other.id != task.id
        assert (await two.tasks.cancel(other.id, ALICE)).status.state is X
        done = await task_of(two.tasks, asked({"text": "this"}, contextId="talk"), ALICE)
        assert (done.id, done.status.state, texts(done)) == (task.id, C, ["this"])


class AsksOrWorks(Scripted):
    """Works for ever on "busy", and asks about all else. Takes "this" as an answer."""

    def __init__(self) -> None:
        super().__init__(self._work)

    def takes_as_answer(self, turn: Turn) -> bool:
        return text_of_parts(turn.message.parts) == "this"

    async def _work(self, job: Job) -> None:
        if text_of_parts(job.turn.message.parts) == "busy":
            await say(job, W)
            await anyio.sleep_forever()
        await say(job, C if job.turn.task else INPUT)


@asynccontextmanager
async def asking_and_working() -> AsyncIterator[tuple[Replica, Replica, Task]]:
    """Two replicas, and a task that asks in the context "talk"."""
    agent = AsksOrWorks()
    async with pair(agent.script) as (one, two):
        for replica in (one, two):
            replica.engine._intake._addressing._agent = agent
        yield one, two, await task_of(one.tasks, asked({"text": "first"}, contextId="talk"), ALICE)


@pytest.mark.proves("a2a-in-context")
async def test_a_message_of_a_context_is_no_answer_while_another_task_there_is_at_work() -> None:
    async with asking_and_working() as (one, two, asking):
        busy = await task_of(
            one.tasks, asked({"text": "busy"}, contextId="talk", configuration=AT_ONCE), ALICE
        )
        elsewhere = asked({"text": "busy"}, contextId="elsewhere", configuration=AT_ONCE)
        await task_of(two.tasks, elsewhere, ALICE)
        for replica in (one, two):
            new = await task_of(replica.tasks, asked({"text": "this"}, contextId="talk"), ALICE)
            assert (new.status.state, new.id in (asking.id, busy.id)) == (INPUT, False)
            await replica.tasks.cancel(new.id, ALICE)
        await two.tasks.cancel(busy.id, ALICE)
        done = await task_of(two.tasks, asked({"text": "this"}, contextId="talk"), ALICE)
        assert (done.id, done.status.state) == (asking.id, C)


@pytest.mark.proves("a2a-in-context")
async def test_a_task_that_is_not_stored_yet_is_at_work_too() -> None:
    async with asking_and_working() as (one, _, asking):
        one.store.hold_writes()
        tasks: list[Task] = []

        async def send(text: str) -> None:
            request = asked({"text": text}, contextId="talk", configuration=AT_ONCE)
            tasks.append(await task_of(one.tasks, request, ALICE))

        async with anyio.create_task_group() as group:
            for text in ("busy", "this"):
                group.start_soon(send, text)
                await anyio.wait_all_tasks_blocked()
            one.store.let_writes()
        assert len({asking.id, *(task.id for task in tasks)}) == 3


async def test_work_that_another_replica_began_first_gives_back_what_was_kept_for_it() -> None:
    class Reserved:
        """Work for which something is kept from its plan on."""

        calls = drops = 0

        async def __call__(self, job: Job) -> None:
            self.calls += 1
            await say(job, C)

        def drop(self) -> None:
            self.drops += 1

    async with pair(finish) as (one, two):
        works = one.agent.script, two.agent.script = Reserved(), BriefWork(late := Reserved())
        two.store.hold_writes()
        request, late_tasks = asked(configuration=AT_ONCE), []

        async def send() -> None:
            late_tasks.append(await task_of(two.tasks, request))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            task = await task_of(one.tasks, request)
            two.store.let_writes()
        assert [found.id for found in late_tasks] == [task.id]
        assert (works[0].calls, works[0].drops, late.calls, late.drops) == (1, 0, 0, 1)
