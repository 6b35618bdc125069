"""The engine with small agents of its own: how tasks end, who sees what when, and what a store can do to it."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any
from weakref import ReferenceType, ref

import anyio
import pytest
from pydantic_core import from_json

from bridge.a2a.model.errors import (
    INVALID_PARAMS,
    OVERLOADED,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNAVAILABLE,
    UNSUPPORTED_OPERATION,
    A2AError,
    ErrorKind,
)
from bridge.a2a.model.objects import ListTasksRequest, Part, Task, TaskState, text_of_parts, timestamp
from bridge.a2a.tasks.agent import Commit, Job, RunningWork, Turn
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.idempotency import REPEATED
from bridge.a2a.tasks.task_registry import RESTING_BYTES
from bridge.a2a.tasks.watcher import WatchedEvent, Watcher
from bridge.errors import StoreError
from bridge.identity.callers.principals import Principal
from bridge.store.contract import OnStored
from bridge.store.memory import MemoryStore
from bridge.store.records import Change, StoredTask, TaskHead
from tests.store.changes import first as first_change
from tests.store.changes import keep
from tests.support.agents import ALICE, Clock, asked, engine_of, give, say
from tests.support.drivers import PATIENCE_SECONDS, shape_of
from tests.support.stores import FailingStore, GatedStore, LastingStore, SlowReadStore

W, C, F, X = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED
INPUT, AUTH = TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED
BOB = CallContext(Principal("bob"))


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@asynccontextmanager
async def refused(kind: ErrorKind) -> AsyncIterator[None]:
    with pytest.raises(A2AError) as caught:
        yield
    assert caught.value.kind is kind, caught.value


def words(task: Task) -> str:
    """What the task's status says."""
    return text_of_parts(task.status.message.parts) if task.status.message else ""


async def shape(watcher: Watcher) -> list[str]:
    """The rest of a stream in words."""
    return shape_of([from_json(seen.text) for seen in await all_of(watcher)])


async def all_of(watcher: Watcher) -> list[WatchedEvent]:
    """What a stream still gives."""
    found = []
    with watcher:
        while (seen := await watcher.next()) is not None:
            found.append(seen)
    return found


async def finish(job: Job) -> None:
    say(job, W)
    await say(job, C)


async def never(job: Job) -> None:
    say(job, W)
    await anyio.sleep_forever()


class Gate:
    """Work that says WORKING, waits until it is told to go on, and completes."""

    def __init__(self) -> None:
        self.began, self.go = anyio.Event(), anyio.Event()

    async def __call__(self, job: Job) -> None:
        await say(job, W)
        self.began.set()
        await self.go.wait()
        give(job, "done")
        await say(job, C)


# Ends


@pytest.mark.proves("a2a-7.6.1-auth-open", "a2a-3.2.2-blocking")
async def test_at_auth_required_a_send_answers_and_a_stream_stays_open() -> None:
    granted = anyio.Event()

    async def work(job: Job) -> None:
        say(job, W)
        await say(job, AUTH, "Approve this at https://example.com/approve")
        await granted.wait()  # the credential comes out of band
        say(job, W)
        await say(job, C)

    async with engine_of(work) as engine:
        request = asked()
        stream = await engine.stream(request, ALICE)
        task = await engine.send(request, ALICE)
        assert (task.status.state, words(task)[:7]) == (AUTH, "Approve")
        late = await engine.subscribe(task.id, ALICE)
        granted.set()
        rest = ["statusUpdate WORKING", "statusUpdate COMPLETED"]
        assert await shape(stream) == [
            "task SUBMITTED",
            "statusUpdate WORKING",
            "statusUpdate AUTH_REQUIRED",
            *rest,
        ]
        assert await shape(late) == ["task AUTH_REQUIRED", *rest]


@pytest.mark.proves("a2a-7.6.1-auth-open")
async def test_a_message_goes_on_with_a_task_at_auth_required_on_the_same_streams() -> None:
    async def work(job: Job) -> None:
        await (say(job, C) if job.turn.task else say(job, AUTH, "Approve?"))

    async with engine_of(work) as engine:
        stream = await engine.stream(asked(), ALICE)
        first, waits = [from_json((await stream.next()).text) for _ in range(2)]  # type: ignore[union-attr]
        assert waits["statusUpdate"]["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        task = await engine.send(asked(taskId=first["task"]["id"]), ALICE)
        assert task.status.state is C
        assert await shape(stream) == ["statusUpdate WORKING", "statusUpdate COMPLETED"]


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_a_task_that_completes_while_it_is_being_cancelled_has_completed() -> None:
    began = anyio.Event()

    async def work(job: Job) -> None:
        say(job, W)
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            give(job, "just in time")
            say(job, C)

    async with engine_of(work) as engine:
        stream = await engine.stream(asked(), ALICE)
        await began.wait()
        task_id = from_json((await stream.next()).text)["task"]["id"]  # type: ignore[union-attr]
        async with refused(TASK_NOT_CANCELABLE):
            await engine.cancel(task_id, ALICE)
        task = await engine.get(task_id, None, ALICE)
        assert (task.status.state, len(task.artifacts or ())) == (C, 1)
        assert await shape(stream) == ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_work_that_ignores_cancellation_is_cancelled_after_the_grace_and_its_result_dropped() -> None:
    began, release, over = anyio.Event(), anyio.Event(), anyio.Event()

    async def stubborn(job: Job) -> None:
        say(job, W)
        began.set()
        with anyio.CancelScope(shield=True):
            await release.wait()
            give(job, "too late")
            await say(job, C)
            over.set()

    async with engine_of(stubborn, cancel_grace_seconds=0.01) as engine:
        stream = await engine.stream(asked(), ALICE)
        await began.wait()
        task_id = from_json((await stream.next()).text)["task"]["id"]  # type: ignore[union-attr]
        try:
            canceled = await engine.cancel(task_id, ALICE)
            assert canceled.status.state is X
            assert await shape(stream) == ["statusUpdate WORKING", "statusUpdate CANCELED"]
        finally:
            release.set()  # nothing else ends the work
        await over.wait()
        await anyio.wait_all_tasks_blocked()
        assert await engine.get(task_id, None, ALICE) == canceled
        assert not list(engine.registry)


async def raise_something(job: Job) -> None:
    say(job, W)
    raise RuntimeError("secret detail")


async def say_nothing(job: Job) -> None:
    say(job, W)


async def say_nothing_at_all(job: Job) -> None:
    pass


@pytest.mark.proves("a2a-3.2.2-blocking")
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (raise_something, "its log says why"),
        (say_nothing, "without a result"),
        (say_nothing_at_all, "without"),
    ],
)
async def test_work_that_does_not_end_its_task_ends_as_failed(
    work: Callable[[Job], Awaitable[None]], said: str
) -> None:
    async with engine_of(work) as engine:
        task = await engine.send(asked(), ALICE)
        assert task.status.state is F
        assert said in words(task)
        assert "secret" not in words(task)
        assert not list(engine.registry)


@pytest.mark.proves("a2a-3.1.5-cancel")
@pytest.mark.parametrize("state", [C, F, X, TaskState.REJECTED], ids=lambda state: state.name)
async def test_no_event_follows_an_end(state: TaskState) -> None:
    async def work(job: Job) -> None:
        say(job, state)
        for late in (W, C, F, INPUT):
            await say(job, late)
        await give(job, "late")
        raise RuntimeError("late as well")

    async with engine_of(work) as engine:
        stream = await engine.stream(asked(), ALICE)
        assert await shape(stream) == ["task SUBMITTED", f"statusUpdate {state.name}"]
        (task,) = (await engine.list(ListTasksRequest(include_artifacts=True), ALICE)).tasks
        assert (task.status.state, task.artifacts) == (state, None)


# Stopping


@pytest.mark.proves("cli-stop")
async def test_while_it_drains_running_tasks_end_and_new_ones_are_refused() -> None:
    gate, tasks = Gate(), []
    async with engine_of(gate) as engine, anyio.create_task_group() as group:

        async def send() -> None:
            tasks.append(await engine.send(asked(), ALICE))

        group.start_soon(send)
        await gate.began.wait()
        group.start_soon(engine.drain, PATIENCE_SECONDS)
        await anyio.wait_all_tasks_blocked()
        assert not engine.ready
        for refuse in (engine.send, engine.stream):
            async with refused(UNAVAILABLE):
                await refuse(asked(), ALICE)
        gate.go.set()
    assert [task.status.state for task in tasks] == [C]


@pytest.mark.proves("cli-stop")
async def test_a_task_still_running_after_the_drain_fails_and_says_so() -> None:
    store, clock = MemoryStore(), Clock()
    async with engine_of(never, store, clock) as engine:
        stream = await engine.stream(asked(), ALICE)
        await anyio.wait_all_tasks_blocked()
        await engine.drain(0)
        assert await shape(stream) == ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate FAILED"]
        assert not list(engine.registry)
    async with engine_of(never, store, clock) as engine:
        (task,) = (await engine.list(ListTasksRequest(), ALICE)).tasks
        assert (task.status.state, "was stopped" in words(task)) == (F, True)


@pytest.mark.proves("cli-stop")
async def test_streams_of_tasks_that_wait_do_not_hold_up_the_end() -> None:
    async def ask(job: Job) -> None:
        await say(job, INPUT, "Which?")

    store = MemoryStore()
    async with engine_of(ask, store) as engine:
        task = await engine.send(asked(), ALICE)
        stream = await engine.subscribe(task.id, ALICE)
        await engine.drain(PATIENCE_SECONDS)
        assert await shape(stream) == ["task INPUT_REQUIRED"]
    stored = await store.load(task.id)
    assert stored
    assert stored.head.state == INPUT


@pytest.mark.proves("restart-fails-running", "restart-keeps-waiting")
async def test_a_new_engine_fails_running_tasks_and_keeps_waiting_tasks() -> None:
    """The new one has what was stored in the middle of the old one's work, as after a kill."""
    store, clock, gate = MemoryStore(), Clock(), Gate()

    async def work(job: Job) -> None:
        if text_of_parts(job.turn.message.parts) == "ask":
            return await say(job, INPUT, "Which?")
        return await gate(job)

    async with engine_of(work, store, clock) as old:
        waiting = await old.send(asked({"text": "ask"}), ALICE)
        ran = await old.send(asked(configuration={"returnImmediately": True}), ALICE)
        await gate.began.wait()
        async with engine_of(finish, deepcopy(store), clock) as new:
            task = await new.get(ran.id, None, ALICE)
            assert (task.status.state, "restarted" in words(task)) == (F, True)
            assert await new.get(waiting.id, None, ALICE) == waiting
            assert (await new.send(asked(taskId=waiting.id), ALICE)).status.state is C


# Memory


@pytest.mark.proves("a2a-3.5.2-order")
async def test_ended_tasks_without_readers_leave_memory() -> None:
    async def work(job: Job) -> None:
        say(job, W)
        await say(job, C if job.turn.task else INPUT)

    async with engine_of(work) as engine:
        request = asked()
        task = await engine.send(request, ALICE)
        assert not list(engine.registry)
        stream, again = await engine.subscribe(task.id, ALICE), await engine.subscribe(task.id, ALICE)
        stream.close()
        assert [live.id for live in engine.registry] == [task.id]
        again.close()
        assert not list(engine.registry)
        (await engine.stream(request, ALICE)).close()
        await engine.get(task.id, None, ALICE)
        async with refused(TASK_NOT_FOUND):
            await engine.get(task.id, None, BOB)
        async with refused(INVALID_PARAMS):
            await engine.send(asked(taskId=task.id, contextId="other"), ALICE)
        await anyio.wait_all_tasks_blocked()
        assert not list(engine.registry)
        ended = await engine.send(asked(taskId=task.id), ALICE)
        assert ended.status.state is C
        async with refused(UNSUPPORTED_OPERATION):
            await engine.subscribe(task.id, ALICE)
        (await engine.stream(request, ALICE)).close()
        assert not list(engine.registry)
        assert (
            engine.messages._messages
            == engine.messages._contexts
            == engine.registry._loading
            == engine._intake._taking
            == {}
        )


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_a_cancelled_question_leaves_memory_too() -> None:
    async def ask(job: Job) -> None:
        await say(job, INPUT)

    async with engine_of(ask) as engine:
        task = await engine.send(asked(), ALICE)
        assert (await engine.cancel(task.id, ALICE)).status.state is X
        assert not list(engine.registry)


@pytest.mark.proves("sse-slow")
async def test_only_a_reader_that_is_too_slow_is_cut_off() -> None:
    async def work(job: Job) -> None:
        for number in range(10):
            say(job, W, str(number))
        await say(job, C)

    async with engine_of(work, watch_events=3) as engine:
        request = asked()
        slow = await engine.stream(request, ALICE)
        task = await engine.send(request, ALICE)
        assert (task.status.state, slow.cut_off) == (C, True)
        assert not list(engine.registry)
        assert await shape(slow) == ["task SUBMITTED", "statusUpdate WORKING", "statusUpdate WORKING"]


# The same message again


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_a_message_id_can_be_used_again_after_a_while() -> None:
    clock = Clock()
    async with engine_of(finish, clock=clock, repeat_seconds=600) as engine:
        request = asked()
        first = await engine.send(request, ALICE)
        clock.pass_ms(600_000)
        assert (await engine.send(request, ALICE)).id == first.id
        clock.pass_ms(1)
        second = await engine.send(request, ALICE)
        assert second.id != first.id
        assert (await engine.send(request, ALICE)).id == second.id


@pytest.mark.proves("a2a-3.3.1-idempotent")
@pytest.mark.parametrize("kind", [MemoryStore, SlowReadStore, GatedStore])
@pytest.mark.parametrize("fields", [{}, {"contextId": "mine"}], ids=str)
async def test_the_same_message_at_the_same_moment_is_taken_once(
    kind: type[MemoryStore], fields: dict[str, Any]
) -> None:
    store, found = kind(), []
    async with engine_of(finish, store) as engine, anyio.create_task_group() as group:
        request = asked(**fields)

        async def send() -> None:
            found.append((await engine.send(request, ALICE)).id)

        for _ in range(4):
            group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        if isinstance(store, GatedStore):
            assert found == []
            store.open()
    assert len(found) == 4
    assert len(set(found)) == 1


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_a_message_that_was_refused_can_be_sent_again() -> None:
    async with engine_of(finish) as engine:
        request = asked(taskId="id-unknown")
        for _ in range(2):
            async with refused(TASK_NOT_FOUND):
                await engine.send(request, ALICE)


@pytest.mark.proves("a2a-3.4.1-context", "a2a-13.1-scope")
@pytest.mark.parametrize(("kind", "reason"), [(GatedStore, INVALID_PARAMS), (SlowReadStore, UNAVAILABLE)])
async def test_one_of_two_principals_that_claim_a_context_at_once_gets_it(
    kind: type[MemoryStore], reason: ErrorKind
) -> None:
    store = kind()
    async with engine_of(finish, store) as engine, anyio.create_task_group() as group:
        answers: list[object] = []

        async def claim(caller: CallContext) -> None:
            try:
                answers.append((await engine.send(asked(contextId="wanted"), caller)).status.state)
            except A2AError as exc:
                answers.append(exc.kind)

        group.start_soon(claim, ALICE)
        group.start_soon(claim, BOB)
        await anyio.wait_all_tasks_blocked()
        if isinstance(store, GatedStore):
            store.open()
    assert len(answers) == 2
    assert set(answers) == {C, reason}


# An event is stored before anyone sees it


@pytest.mark.proves("store-visible")
async def test_nobody_sees_an_event_before_it_is_stored() -> None:
    store, seen, answers = GatedStore(), [], []
    async with engine_of(finish, store) as engine, anyio.create_task_group() as group:
        request = asked()
        stream = await engine.stream(request, ALICE)

        async def read() -> None:
            with stream:
                while (event := await stream.next()) is not None:
                    seen.append(from_json(event.text))

        async def send() -> None:
            answers.append((await engine.send(request, ALICE)).status.state)

        group.start_soon(read)
        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        task_id = store.held_back[0][0].task_id
        assert (len(store.held_back), seen, answers) == (3, [], [])
        assert (await engine.list(ListTasksRequest(), ALICE)).tasks == ()
        for expected in ("task SUBMITTED", "statusUpdate WORKING", "statusUpdate COMPLETED"):
            store.let_through(1)
            await anyio.wait_all_tasks_blocked()
            assert shape_of(seen)[-1] == expected
            state = TaskState(f"TASK_STATE_{expected.split()[1]}")
            assert (await engine.get(task_id, None, ALICE)).status.state is state
            (listed,) = (await engine.list(ListTasksRequest(), ALICE)).tasks
            assert listed.status.state is state
            assert answers == ([C] if state is C else [])
    assert len(seen) == 3


@pytest.mark.proves("store-visible")
async def test_a_task_whose_first_event_is_not_stored_is_neither_got_nor_cancelled_nor_subscribed_to() -> (
    None
):
    store, done = GatedStore(), []
    async with engine_of(never, store) as engine, anyio.create_task_group() as group:
        group.start_soon(engine.send, asked(configuration={"returnImmediately": True}), ALICE)
        await anyio.wait_all_tasks_blocked()
        task_id = store.held_back[0][0].task_id

        async def get() -> None:
            done.append((await engine.get(task_id, None, ALICE)).status.state)

        async def subscribe() -> None:
            (await engine.subscribe(task_id, ALICE)).close()
            done.append("subscribed")

        group.start_soon(get)
        group.start_soon(subscribe)
        await anyio.wait_all_tasks_blocked()
        assert done == []
        store.open()
        await anyio.wait_all_tasks_blocked()
        assert len(done) == 2
        await engine.cancel(task_id, ALICE)


@pytest.mark.proves("store-visible", "a2a-3.1.5-cancel", "a2a-3.1.1-terminal")
async def test_an_end_that_is_not_stored_is_not_revealed_by_an_error() -> None:
    store, gate, kinds = GatedStore(), Gate(), []
    store.open()
    async with engine_of(gate, store) as engine, anyio.create_task_group() as group:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        await gate.began.wait()
        store.shut()
        gate.go.set()
        await anyio.wait_all_tasks_blocked()

        async def ask(operation: Callable[..., Awaitable[object]], *arguments: object) -> None:
            with pytest.raises(A2AError) as caught:
                await operation(*arguments)
            kinds.append(caught.value.kind)

        group.start_soon(ask, engine.cancel, task.id, ALICE)
        group.start_soon(ask, engine.send, asked(taskId=task.id), ALICE)
        await anyio.wait_all_tasks_blocked()
        assert kinds == []
        store.open()
    assert {kind.reason for kind in kinds} == {"TASK_NOT_CANCELABLE", "UNSUPPORTED_OPERATION"}


@pytest.mark.proves("store-visible")
async def test_a_task_that_another_process_ended_in_the_store_is_given_up() -> None:
    store, gate = MemoryStore(), Gate()
    async with engine_of(gate, store) as engine:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        await gate.began.wait()
        async with engine_of(finish, store):
            pass  # recovers it, as FAILED
        gate.go.set()
        await until(lambda: not list(engine.registry))
        assert (await engine.get(task.id, None, ALICE)).status.state is F


@pytest.mark.proves("store-visible", "a2a-3.2.2-return-immediately")
async def test_a_send_that_returns_at_once_still_waits_until_its_task_is_stored() -> None:
    store, answers = GatedStore(), []
    async with engine_of(never, store) as engine, anyio.create_task_group() as group:

        async def send() -> None:
            answers.append(await engine.send(asked(configuration={"returnImmediately": True}), ALICE))

        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        store.let_through(1)
        await anyio.wait_all_tasks_blocked()
        assert [task.status.state for task in answers] == [TaskState.SUBMITTED]
        store.open()


@pytest.mark.proves("store-visible", "a2a-3.3.1-idempotent")
async def test_an_answer_sent_again_waits_for_the_first_to_be_stored() -> None:
    async def work(job: Job) -> None:
        await (say(job, C) if job.turn.task else say(job, INPUT, "Which?"))

    store = GatedStore()
    store.open()
    async with engine_of(work, store) as engine, anyio.create_task_group() as group:
        task = await engine.send(asked(), ALICE)
        store.shut()
        answer, shapes = asked(taskId=task.id), []

        async def stream() -> None:
            shapes.append(await shape(await engine.stream(answer, ALICE)))

        group.start_soon(stream)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(stream)
        await anyio.wait_all_tasks_blocked()
        assert (await engine.get(task.id, None, ALICE)).status.state is INPUT
        assert shapes == []
        store.open()
    assert sorted(shapes) == [["task COMPLETED"], ["task WORKING", "statusUpdate COMPLETED"]]


@pytest.mark.proves("store-visible", "a2a-3.1.5-cancel")
async def test_a_cancellation_answers_once_it_is_stored() -> None:
    store, answers = GatedStore(), []
    store.open()
    async with engine_of(never, store) as engine, anyio.create_task_group() as group:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        await anyio.wait_all_tasks_blocked()
        store.shut()

        async def cancel() -> None:
            answers.append((await engine.cancel(task.id, ALICE)).status.state)

        group.start_soon(cancel)
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        assert (await engine.get(task.id, None, ALICE)).status.state is W
        store.open()
    assert answers == [X]


# A store that fails


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.proves("store-visible")
async def test_while_the_store_fails_messages_are_refused_and_running_tasks_fail(late: bool) -> None:
    store, gate = FailingStore(late=late), Gate()
    async with engine_of(gate, store) as engine, anyio.create_task_group() as group:
        request, kinds = asked(), []

        async def send() -> None:
            with pytest.raises(A2AError) as caught:
                await engine.send(request, ALICE)
            kinds.append(caught.value.kind)

        stream = await engine.stream(request, ALICE)
        task_id = from_json((await stream.next()).text)["task"]["id"]  # type: ignore[union-attr]
        group.start_soon(send)
        await gate.began.wait()
        assert engine.ready
        store.broken = True
        gate.go.set()
        await store.probed.wait()
        assert await shape(stream) == ["statusUpdate WORKING"]
        assert not engine.ready
        for refuse in (engine.send, engine.stream):
            async with refused(UNAVAILABLE):
                await refuse(asked(), ALICE)
        assert (await engine.get(task_id, None, ALICE)).status.state is W
        store.broken = False
        await until(lambda: engine.ready and not list(engine.registry))
        task = await engine.get(task_id, None, ALICE)
        assert (task.status.state, "could not store" in words(task)) == (F, True)
        assert (await engine.send(asked(), ALICE)).status.state is C
    assert kinds == [UNAVAILABLE]
    assert not list(engine.registry)


async def until(true: Callable[[], bool]) -> None:
    """Give others their turn until something is true; the test's deadline bounds it."""
    while not true():
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.proves("store-visible", "a2a-3.3.1-idempotent")
async def test_a_message_that_could_not_be_stored_was_not_accepted(late: bool) -> None:
    store, ended = FailingStore(late=late), []

    async def work(job: Job) -> None:
        try:
            say(job, W)
            await anyio.lowlevel.checkpoint()
            await say(job, C)
        finally:
            ended.append(job.events.task_id)

    async with engine_of(work, store) as engine:
        store.broken = True
        request = asked(contextId="mine")
        async with refused(UNAVAILABLE):
            await engine.send(request, ALICE)
        async with refused(UNAVAILABLE):
            await engine.send(request, ALICE)
        store.broken = False
        await until(lambda: engine.ready and not list(engine.registry))
        assert (await engine.list(ListTasksRequest(), ALICE)).tasks == ()
        assert (await engine.send(request, BOB)).context_id == "mine"
        async with refused(INVALID_PARAMS):
            await engine.send(request, ALICE)
        assert len(ended) == 2


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.proves("store-visible")
async def test_a_commit_that_work_waits_for_raises_the_error_of_the_store(late: bool) -> None:
    store, caught = FailingStore(late=late), []

    async def work(job: Job) -> None:
        store.broken = True
        try:
            await say(job, W)
        except StoreError as exc:
            caught.append(str(exc))
            store.broken = False
            raise

    async with engine_of(work, store) as engine:
        async with refused(UNAVAILABLE):
            await engine.send(asked(), ALICE)
        await until(lambda: not list(engine.registry))
        (task,) = (await engine.list(ListTasksRequest(), ALICE)).tasks
        assert task.status.state is F
    assert caught in (["the disk is full"], [])


# Work that hears answers while it goes on


class Listening:
    """Work that asks, hears answers, and completes with the first that it takes."""

    def __init__(self, *refused: str) -> None:
        self.asked, self.heard, self.go = anyio.Event(), anyio.Event(), anyio.Event()
        self.answers: list[str] = []
        self._refused = refused

    async def __call__(self, job: Job) -> None:
        say(job, W)

        def hear(turn: Turn) -> Callable[[Commit], None]:
            said = text_of_parts(turn.message.parts)
            if said in self._refused:
                raise A2AError(INVALID_PARAMS, f"not {said}")

            def accepted(stored: Commit) -> None:
                self.answers.append(said)
                job.listen(None)
                self.heard.set()

            return accepted

        job.listen(hear)
        await say(job, INPUT, "Which?")
        self.asked.set()
        await self.heard.wait()
        await self.go.wait()
        give(job, self.answers[-1])
        await say(job, C)


@pytest.mark.proves("a2a-3.2.2-blocking", "map-answers")
async def test_listening_work_gets_the_answer_without_a_restart() -> None:
    work = Listening()
    work.go.set()
    async with engine_of(work) as engine:
        task = await engine.send(asked(), ALICE)
        assert (task.status.state, engine.running) == (INPUT, 1)
        stream = await engine.stream(asked({"text": "this"}, taskId=task.id), ALICE)
        assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        done = await engine.get(task.id, None, ALICE)
        assert work.answers == ["this"]
        assert [text_of_parts(one.parts) for one in done.history or ()] == ["go", "Which?", "this"]
        assert not list(engine.registry)


@pytest.mark.proves("map-answers")
async def test_an_answer_that_is_refused_leaves_the_task_and_its_streams_unchanged() -> None:
    work = Listening("that")
    work.go.set()
    async with engine_of(work) as engine:
        task = await engine.send(asked(), ALICE)
        watching = await engine.subscribe(task.id, ALICE)
        for send in (engine.send, engine.stream):
            async with refused(INVALID_PARAMS):
                await send(asked({"text": "that"}, taskId=task.id), ALICE)
            assert await engine.get(task.id, None, ALICE) == task
        async with refused(TASK_NOT_FOUND):
            await engine.send(asked({"text": "this"}, taskId=task.id), BOB)
        assert (await engine.send(asked({"text": "this"}, taskId=task.id), ALICE)).status.state is C
        rest = ["statusUpdate WORKING", "artifactUpdate", "statusUpdate COMPLETED"]
        assert await shape(watching) == ["task INPUT_REQUIRED", *rest]
        assert work.answers == ["this"]


@pytest.mark.proves("map-answers")
async def test_the_first_of_two_concurrent_answers_is_delivered_and_the_other_held() -> None:
    work, kinds = Listening(), []
    async with engine_of(work) as engine, anyio.create_task_group() as group:
        task = await engine.send(asked(), ALICE)

        async def answer(text: str) -> None:
            try:
                kinds.append((await engine.send(asked({"text": text}, taskId=task.id), ALICE)).status.state)
            except A2AError as exc:
                kinds.append(exc.kind)

        group.start_soon(answer, "one")
        group.start_soon(answer, "two")
        await anyio.wait_all_tasks_blocked()
        assert kinds == [W]
        work.go.set()
    assert (kinds[1], work.answers) == (C, ["one"])


@pytest.mark.proves("a2a-3.3.1-idempotent")
@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_the_same_message_is_a_new_one_once_its_answer_was_written_where_that_does_no_harm(
    is_repeatable: bool,
) -> None:
    clock = Clock()

    async def work(job: Job) -> None:
        if is_repeatable:
            job.allow_repeats()
        await finish(job)

    async with engine_of(work, clock=clock, repeat_answered_seconds=10) as engine:
        request = asked()
        first = await engine.send(request, ALICE)
        assert await engine.send(request, ALICE) == first, "nobody read its answer"
        engine.written(request, ALICE)
        again = await engine.send(request, ALICE)
        if is_repeatable:
            assert again.id != first.id
            return
        answered = {REPEATED: {"answeredAt": timestamp(clock.now_ms)}}
        assert again == first.model_copy(update={"metadata": answered})
        (snapshot,) = [from_json(one.text) for one in await all_of(await engine.stream(request, ALICE))]
        assert snapshot["task"]["metadata"] == answered
        clock.pass_ms(10_001)
        assert (await engine.send(request, ALICE)).id != first.id


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_the_same_message_finds_its_task_as_long_as_that_runs_whatever_was_written() -> None:
    clock, gate = Clock(), Gate()

    async def work(job: Job) -> None:
        job.allow_repeats()
        await gate(job)

    async with engine_of(work, clock=clock, repeat_seconds=60) as engine:
        request = asked(configuration={"returnImmediately": True})
        first = await engine.send(request, ALICE)
        engine.written(request, ALICE)
        clock.pass_ms(3_600_000)
        assert (await engine.send(request, ALICE)).id == first.id
        gate.go.set()


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_ended_work_leaves_only_the_record_of_its_message() -> None:
    works: list[ReferenceType[RunningWork]] = []

    async def work(job: Job) -> None:
        works.append(ref(job.running))
        await finish(job)

    async with engine_of(work) as engine:
        request = asked()
        first = await engine.send(request, ALICE)
        gc.collect()  # the frames of what has ended
        assert [work() for work in works] == [None]
        assert await engine.send(request, ALICE) == first


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_messages_are_forgotten_once_a_repeat_would_be_new() -> None:
    clock = Clock()
    async with engine_of(finish, clock=clock, repeat_seconds=600, repeat_answered_seconds=10) as engine:
        for _ in range(50):
            await engine.send(asked(), ALICE)
        clock.pass_ms(600_001)
        request = asked()
        first = await engine.send(request, ALICE)
        assert len(engine.messages._records) == 1
        assert await engine.send(request, ALICE) == first


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_after_a_restart_the_same_message_finds_its_task_since_nobody_knows_who_read_its_answer() -> (
    None
):
    store, clock, request = MemoryStore(), Clock(), asked()
    async with engine_of(finish, store, clock) as engine:
        first = await engine.send(request, ALICE)
        engine.written(request, ALICE)
    async with engine_of(finish, store, clock, repeat_seconds=600) as engine:
        clock.pass_ms(599_000)
        assert (await engine.send(request, ALICE)).id == first.id
        clock.pass_ms(2_000)
        assert (await engine.send(request, ALICE)).id != first.id


@pytest.mark.proves("a2a-3.3.1-idempotent")
@pytest.mark.parametrize("set_ms", [-7_200_000, 7_200_000])
async def test_a_changed_wall_clock_neither_doubles_a_message_nor_keeps_its_id(set_ms: int) -> None:
    clock, request = Clock(), asked()
    async with engine_of(finish, clock=clock, repeat_seconds=600) as engine:
        first = await engine.send(request, ALICE)
        clock.now_ms += set_ms
        second = await engine.send(asked(), ALICE)
        assert (await engine.send(request, ALICE)).id == first.id
        clock.now_ms -= set_ms
        assert (await engine.send(request, ALICE)).id == first.id
        clock.elapsed_ms += 600_001
        assert (await engine.send(request, ALICE)).id not in {first.id, second.id}


@pytest.mark.proves("a2a-3.3.1-idempotent")
async def test_after_a_restart_a_message_with_a_future_time_counts_as_new() -> None:
    store, clock, request = MemoryStore(), Clock(), asked()
    async with engine_of(finish, store, clock) as engine:
        first = await engine.send(request, ALICE)
    clock.now_ms -= 7_200_000
    async with engine_of(finish, store, clock, repeat_seconds=600) as engine:
        assert (await engine.send(request, ALICE)).id == first.id
        clock.pass_ms(600_000)
        assert (await engine.send(request, ALICE)).id == first.id
        clock.pass_ms(1)
        assert (await engine.send(request, ALICE)).id != first.id


# How much there may be


async def ask(job: Job) -> None:
    say(job, W)
    await say(job, INPUT, "Which?")


@pytest.mark.proves("a2a-open-tasks")
async def test_the_open_tasks_of_each_principal_are_limited_separately() -> None:
    store, clock = MemoryStore(), Clock()
    async with engine_of(ask, store, clock, open_tasks=3) as engine:
        tasks = [await engine.send(asked(), ALICE) for _ in range(3)]
        async with refused(OVERLOADED):
            await engine.send(asked(), ALICE)
        assert (await engine.send(asked(), BOB)).status.state is INPUT
        assert (await engine.send(asked(taskId=tasks[0].id), ALICE)).status.state is INPUT, "an answer"
        await engine.cancel(tasks[1].id, ALICE)
        tasks[1] = await engine.send(asked(), ALICE)
    async with engine_of(finish, store, clock, open_tasks=3) as engine:
        async with refused(OVERLOADED):
            await engine.send(asked(), ALICE)
        assert (await engine.send(asked(taskId=tasks[1].id), ALICE)).status.state is C
        for _ in range(5):
            assert (await engine.send(asked(), ALICE)).status.state is C


@pytest.mark.proves("a2a-open-tasks")
async def test_a_task_that_could_not_be_stored_is_not_counted() -> None:
    store = FailingStore()
    async with engine_of(finish, store, open_tasks=1) as engine:
        store.broken = True
        async with refused(UNAVAILABLE):
            await engine.send(asked(), ALICE)
        store.broken = False
        await until(lambda: engine.ready and not list(engine.registry))
        assert (await engine.send(asked(), ALICE)).status.state is C


@pytest.mark.proves("a2a-full-history")
@pytest.mark.parametrize("limits", [{"history_messages": 7}, {"history_bytes": 9_000}], ids=str)
async def test_a_task_whose_history_is_full_takes_no_more_answers_and_can_be_canceled(
    limits: dict[str, int],
) -> None:
    store, clock, answer = MemoryStore(), Clock(), {"text": "x" * 2_000}
    async with engine_of(ask, store, clock, **limits) as engine:
        task = await engine.send(asked(), ALICE)
        for _ in range(3):
            await engine.send(asked(answer, taskId=task.id), ALICE)
    async with engine_of(ask, store, clock, **limits) as engine:
        before = await engine.get(task.id, None, ALICE)
        if "history_bytes" in limits:
            before = await engine.send(asked(answer, taskId=task.id), ALICE)
        async with refused(UNSUPPORTED_OPERATION):
            await engine.send(asked(answer, taskId=task.id), ALICE)
        assert await engine.get(task.id, None, ALICE) == before
        assert (await engine.cancel(task.id, ALICE)).status.state is X


class CountingStore(MemoryStore):
    """Counts what it is given to keep, and what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_bytes, self.loads = 0, 0

    def submit(self, change: Change, done: OnStored) -> None:
        self.kept_bytes += len(change.event) + len(change.snapshot or b"")
        super().submit(change, done)

    async def load(self, task_id: str) -> StoredTask | None:
        self.loads += 1
        return await super().load(task_id)


@pytest.mark.proves("a2a-full-history")
async def test_the_cost_of_an_answer_does_not_grow_with_earlier_answers() -> None:
    store, clock = CountingStore(), Clock()
    brief: dict[str, Any] = {"configuration": {"historyLength": 0}}
    async with engine_of(ask, store, clock) as engine:
        task = await engine.send(asked(**brief), ALICE)
        costs = [store.kept_bytes]
        for _ in range(300):
            await engine.send(asked(taskId=task.id, **brief), ALICE)
            costs.append(store.kept_bytes)
        shown = await engine.get(task.id, None, ALICE)
        assert store.loads == 0
    assert costs[300] < 4 * costs[100]
    async with engine_of(ask, store, clock) as engine:
        assert await engine.get(task.id, None, ALICE) == shown


@pytest.mark.proves("a2a-full-history")
async def test_large_answers_to_a_task_that_waits_are_written_once() -> None:
    store, size = CountingStore(), 1_000_000
    async with engine_of(ask, store) as engine:
        task = await engine.send(asked(), ALICE)
        before = store.kept_bytes
        for _ in range(3):
            await engine.send(asked({"text": "x" * size}, taskId=task.id), ALICE)
        assert 3 * size < store.kept_bytes - before < 3.1 * size


@pytest.mark.proves("sse-gone")
async def test_a_resting_task_is_found_again_and_the_oldest_are_dropped() -> None:
    store, clock, large = CountingStore(), Clock(), {"text": "x" * (RESTING_BYTES // 4)}
    async with engine_of(ask, store, clock) as engine:
        tasks = [await engine.send(asked(large), ALICE) for _ in range(6)]
        assert engine.registry._resting_bytes <= RESTING_BYTES
        assert not list(engine.registry)
        shown = [await engine.get(task.id, None, ALICE) for task in reversed(tasks)]
        assert [task.id for task in shown] == [task.id for task in reversed(tasks)]
        assert 0 < store.loads < 6
        for task in tasks:
            await engine.cancel(task.id, ALICE)
        assert (engine.registry._resting_bytes, len(engine.registry._resting)) == (0, 0)


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_a_task_that_is_cancelled_while_it_listens_does_not_rest() -> None:
    work = Listening()
    work.go.set()
    async with engine_of(work) as engine:
        task = await engine.send(asked(), ALICE)
        assert (task.status.state, engine.running) == (INPUT, 1)
        assert (await engine.cancel(task.id, ALICE)).status.state is X
        await anyio.wait_all_tasks_blocked()
        assert (list(engine.registry), dict(engine.registry._resting)) == ([], {})


# Messages to a task at work


@pytest.mark.proves("a2a-held")
async def test_a_message_to_a_task_at_work_is_held_in_its_history_and_answered_with_the_task() -> None:
    gate, jobs = Gate(), list[Job]()

    async def work(job: Job) -> None:
        jobs.append(job)
        await gate(job)

    async with engine_of(work) as engine:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        await gate.began.wait()
        said = asked({"text": "and this"}, taskId=task.id)
        with anyio.fail_after(5):
            held = await engine.send(said, ALICE)
        assert (held.id, held.status.state) == (task.id, W)
        assert [message.message_id for message in held.history or ()][1:] == [said.message.message_id]
        assert [one.turn.message.parts for one in jobs[0].held] == [said.message.parts]
        stream = await engine.stream(asked({"text": "and that"}, taskId=task.id), ALICE)
        gate.go.set()
        assert await shape(stream) == ["task WORKING", "artifactUpdate", "statusUpdate COMPLETED"]


@pytest.mark.proves("a2a-held")
@pytest.mark.parametrize("limits", [{"held_messages": 1}, {"held_bytes": 300}])
async def test_held_messages_are_limited(limits: dict[str, int]) -> None:
    gate = Gate()
    async with engine_of(gate, **limits) as engine:
        task = await engine.send(asked(configuration={"returnImmediately": True}), ALICE)
        await gate.began.wait()
        await engine.send(asked({"text": "a" * 100}, taskId=task.id), ALICE)
        async with refused(UNSUPPORTED_OPERATION):
            await engine.send(asked({"text": "b" * 100}, taskId=task.id), ALICE)
        held = await engine.get(task.id, None, ALICE)
        assert len(held.history or ()) == 2
        gate.go.set()


@pytest.mark.proves("a2a-3.3.1-idempotent", "map-answers")
async def test_the_same_answer_is_delivered_once() -> None:
    work = Listening()
    async with engine_of(work) as engine, anyio.create_task_group() as group:
        task = await engine.send(asked(), ALICE)
        answer, states = asked({"text": "this"}, taskId=task.id), []

        async def send() -> None:
            states.append((await engine.send(answer, ALICE)).status.state)

        for _ in range(3):
            group.start_soon(send)
        await work.heard.wait()
        work.go.set()
    assert (states, work.answers) == ([C, C, C], ["this"])


@pytest.mark.proves("map-answers")
async def test_a_message_waits_until_work_that_has_asked_listens() -> None:
    """It has asked and is about to end, or to hear."""
    wind_up, asked_once = anyio.Event(), anyio.Event()

    async def work(job: Job) -> None:
        if job.turn.task is not None:
            return await say(job, C)
        await say(job, INPUT, "Which?")
        asked_once.set()
        return await wind_up.wait()

    async with engine_of(work) as engine, anyio.create_task_group() as group:
        task, states = await engine.send(asked(), ALICE), []

        async def answer() -> None:
            states.append((await engine.send(asked(taskId=task.id), ALICE)).status.state)

        group.start_soon(answer)
        await anyio.wait_all_tasks_blocked()
        assert states == []
        wind_up.set()
    assert states == [C]


@pytest.mark.proves("a2a-3.1.5-cancel")
async def test_a_task_that_listens_can_be_cancelled() -> None:
    async with engine_of(Listening()) as engine:
        task = await engine.send(asked(), ALICE)
        assert (await engine.cancel(task.id, ALICE)).status.state is X
        assert not list(engine.registry)


@pytest.mark.proves("cli-stop", "restart-goes-on")
async def test_the_drain_does_not_wait_for_listening_work_and_leaves_its_task_waiting() -> None:
    store, left = LastingStore(), []

    async def work(job: Job) -> None:
        if job.turn.task is not None:
            return await say(job, C)
        job.listen(lambda _: lambda _: None)
        await say(job, INPUT, "Which?")
        try:
            return await anyio.sleep_forever()
        finally:
            left.append(job.is_left())

    async with engine_of(work, store) as engine:
        task = await engine.send(asked(), ALICE)
        canceled = await engine.send(asked(), ALICE)
        await engine.cancel(canceled.id, ALICE)
        assert left == [False], "a client that cancels leaves nothing to go on with"
        stream = await engine.subscribe(task.id, ALICE)
        await engine.drain(PATIENCE_SECONDS)
        assert await shape(stream) == ["task INPUT_REQUIRED"]
        assert left == [False, True]
    async with engine_of(work, store) as engine:
        assert await engine.get(task.id, None, ALICE) == task
        assert (await engine.send(asked(taskId=task.id), ALICE)).status.state is C


# Going on after a restart


@pytest.mark.proves("restart-goes-on")
@pytest.mark.parametrize("state", [W, INPUT, AUTH], ids=lambda state: state.name)
async def test_resumable_work_is_resumed_and_knows_its_last_message(state: TaskState) -> None:
    store, clock, began = MemoryStore(), Clock(), anyio.Event()

    async def first(job: Job) -> None:
        await job.status(state, keep=b"resume")
        began.set()
        await anyio.sleep_forever()

    async def second(job: Job) -> None:
        assert job.turn.task is not None
        assert (job.turn.kept, job.turn.principal.name) == (b"resume", ALICE.principal.name)
        await job.accepted
        give(job, text_of_parts(job.turn.message.parts))
        await job.status(C, keep=b"")

    async with engine_of(first, store, clock) as old:
        task = await old.send(asked({"text": "go on"}, configuration={"returnImmediately": True}), ALICE)
        await began.wait()
        copy = deepcopy(store)
        async with engine_of(second, copy, clock) as new:
            await until(lambda: not list(new.registry))
            done = await new.get(task.id, None, ALICE)
            assert done.status.state is C
            assert [text_of_parts(one.parts) for one in done.artifacts or ()] == ["go on"]
        stored = await copy.load(task.id)
        assert stored is not None
        assert stored.private == b""


@pytest.mark.proves("restart-fails-running", "restart-goes-on")
async def test_resumed_work_that_breaks_has_failed() -> None:
    store, clock, began = MemoryStore(), Clock(), anyio.Event()

    async def first(job: Job) -> None:
        await job.status(W, keep=b"resume")
        began.set()
        await anyio.sleep_forever()

    async with engine_of(first, store, clock) as old:
        task = await old.send(asked(configuration={"returnImmediately": True}), ALICE)
        await began.wait()
        async with engine_of(raise_something, deepcopy(store), clock) as new:
            await until(lambda: not list(new.registry))
            failed = await new.get(task.id, None, ALICE)
            assert (failed.status.state, "its log says why" in words(failed)) == (F, True)


# Nobody answers


class Searched(MemoryStore):
    """One that says when it was searched for tasks that wait."""

    searched = 0

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        self.searched += 1
        return await super().waiting(states)

    async def is_searched(self) -> None:
        """A search that begins from now on has come to its end."""
        seen = self.searched
        await until(lambda: self.searched > seen + 1)


@pytest.mark.proves("map-input-timeout")
@pytest.mark.parametrize("state", [INPUT, AUTH], ids=lambda state: state.name)
async def test_a_task_that_nobody_answers_fails_after_its_time(state: TaskState) -> None:
    async def ask(job: Job) -> None:
        await job.status(state, job.message((Part(text="Which?"),)), keep=b"kept")

    store, clock = MemoryStore(), Clock()
    async with engine_of(ask, store, clock, input_timeout_seconds=0.01) as engine:
        task = await engine.send(asked(), ALICE)
        stream = await engine.subscribe(task.id, ALICE)
        clock.pass_ms(10)
        late = await engine.send(asked(), ALICE)
        clock.pass_ms(1)
        assert await shape(stream) == [f"task {state.name}", "statusUpdate FAILED"]
        failed = await engine.get(task.id, None, ALICE)
        assert words(failed) == "This agent's question was not answered within 0.01 s"
        assert (await engine.get(late.id, None, ALICE)).status.state is state
        async with refused(UNSUPPORTED_OPERATION):
            await engine.send(asked(taskId=task.id), ALICE)
        stored = await store.load(task.id)
        assert stored is not None
        assert stored.private == b""


@pytest.mark.proves("map-input-timeout")
async def test_a_changed_wall_clock_neither_ends_nor_extends_a_wait() -> None:
    async def ask(job: Job) -> None:
        await say(job, INPUT, "Which?")

    store, clock = Searched(), Clock()
    async with engine_of(ask, store, clock, input_timeout_seconds=0.1) as engine:
        first = await engine.send(asked(), ALICE)
        await store.is_searched()
        clock.now_ms += 7_200_000
        second = await engine.send(asked(), ALICE)
        await store.is_searched()
        assert [(await engine.get(one.id, None, ALICE)).status.state for one in (first, second)] == [
            INPUT
        ] * 2
        streams = [await engine.subscribe(one.id, ALICE) for one in (first, second)]
        clock.now_ms -= 14_400_000
        clock.elapsed_ms += 101
        for stream in streams:
            assert (await shape(stream))[-1] == "statusUpdate FAILED"


@pytest.mark.proves("map-input-timeout")
async def test_a_task_left_waiting_with_a_future_time_waits_from_now_on() -> None:
    async def ask(job: Job) -> None:
        await say(job, INPUT, "Which?")

    store, clock = Searched(), Clock()
    async with engine_of(ask, store, clock) as engine:
        task = await engine.send(asked(), ALICE)
    clock.now_ms -= 7_200_000
    async with engine_of(ask, store, clock, input_timeout_seconds=0.1) as engine:
        await store.is_searched()
        stream = await engine.subscribe(task.id, ALICE)
        clock.pass_ms(101)
        assert (await shape(stream))[-1] == "statusUpdate FAILED"


@pytest.mark.proves("map-input-timeout")
async def test_a_task_at_work_does_not_time_out() -> None:
    clock, work, over = Clock(), Listening(), anyio.Event()
    work.go.set()

    async def both(job: Job) -> None:
        if text_of_parts(job.turn.message.parts) == "hears":
            return await work(job)
        return await say(job, INPUT, "Which?")

    async with engine_of(both, None, clock, input_timeout_seconds=0.01) as engine:
        hears = await engine.send(asked({"text": "hears"}), ALICE)
        waits = await engine.send(asked(), ALICE)
        stream = await engine.subscribe(waits.id, ALICE)
        clock.pass_ms(1_000_000)
        assert (await shape(stream))[-1] == "statusUpdate FAILED"
        over.set()
        assert (await engine.get(hears.id, None, ALICE)).status.state is INPUT
        assert (await engine.send(asked({"text": "this"}, taskId=hears.id), ALICE)).status.state is C


@pytest.mark.proves("map-input-timeout")
async def test_a_task_that_cannot_be_read_is_left_as_it_is_and_others_still_fail_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(job: Job) -> None:
        await say(job, INPUT, "Which?")

    store, clock = MemoryStore(), Clock()
    head = TaskHead(INPUT.value, ended=False, status_ms=1)
    await keep(store, first_change("broken", head=head))
    async with engine_of(ask, store, clock, input_timeout_seconds=0.01) as engine:
        task = await engine.send(asked(), ALICE)
        stream = await engine.subscribe(task.id, ALICE)
        clock.pass_ms(1_000)
        assert (await shape(stream))[-1] == "statusUpdate FAILED"
        assert engine.ready
    stored = await store.load("broken")
    assert stored is not None
    assert stored.head == head


@pytest.mark.proves("map-input-timeout")
async def test_a_store_that_cannot_be_searched_is_searched_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsOnce(MemoryStore):
        failed = False

        async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
            if not self.failed:
                self.failed = True
                raise StoreError("the disk is gone")
            return await super().waiting(states)

    async def ask(job: Job) -> None:
        await say(job, INPUT, "Which?")

    clock = Clock()
    async with engine_of(ask, FailsOnce(), clock, input_timeout_seconds=0.01) as engine:
        task = await engine.send(asked(), ALICE)
        stream = await engine.subscribe(task.id, ALICE)
        clock.pass_ms(1_000)
        assert (await shape(stream))[-1] == "statusUpdate FAILED"
    assert "trying again later" in caplog.text
