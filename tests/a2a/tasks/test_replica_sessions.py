"""Work in a session of one of several replicas: that replica does the work, whichever replica is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from bridge.a2a.model.errors import OVERLOADED, UNAVAILABLE
from bridge.a2a.model.objects import Message, Task, TaskState
from bridge.a2a.tasks.agent import Job, Turn
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.draft import BriefWork
from bridge.errors import BusyError
from bridge.identity.callers.principals import Principal
from tests.support.agents import ALICE, asked, give, say
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.fleet import INPUT, C, Fleet, Replica, fleet, never, refused, shape, task_of, texts
from tests.support.limits import engine_limits

pytestmark = pytest.mark.proves("replicas-sessions")

SHARED_NAME = CallContext(Principal("everyone", may_list_all=False))


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """No test waits for ever."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@dataclass(eq=False)
class Sessions:
    """The sessions of one replica, which count the work that was done in them."""

    is_full: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    holds: Counter[str] = field(default_factory=Counter)
    on_end: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """By name; only of those that are open."""

    def end(self, name: str) -> None:
        """End a session, as one that is idle ends."""
        self.counts.pop(name, None)
        for told in self.on_end.pop(name, []):
            told()

    async def count(self, job: Job) -> None:
        """Say the next number of the context's session, and whether it is a new one in place of a lost one."""
        context_id = job.events.context_id
        assert self.holds[context_id], "nobody ends it meanwhile"
        self.counts[context_id] += 1
        lost = " lost" if job.turn.lost_session else ""
        await give(job, f"{self.counts[context_id]}{lost}")
        await say(job, C)


@dataclass(frozen=True)
class OneSession:
    """The session of one context at one replica."""

    sessions: Sessions
    name: str
    idle_seconds: float = 60

    def open(self, on_end: Callable[[], None]) -> None:
        """Open it."""
        if self.sessions.is_full:
            raise BusyError("all sessions are in use")
        self.sessions.on_end.setdefault(self.name, []).append(on_end)

    def hold(self) -> Callable[[], None] | None:
        """Count who holds it."""
        if self.name not in self.sessions.on_end:
            return None
        self.sessions.holds[self.name] += 1
        return lambda: self.sessions.holds.subtract([self.name])

    def end(self) -> None:
        """End it."""
        self.sessions.end(self.name)


@asynccontextmanager
async def counting(replicas: int = 2) -> AsyncIterator[tuple[Fleet, list[Replica], list[Sessions]]]:
    """Replicas whose work goes on in a session for each context."""
    async with fleet(never) as found:
        members, kept = [], []
        for _ in range(replicas):
            replica, sessions = await found.start(), Sessions()
            settle(replica, sessions)
            members.append(replica)
            kept.append(sessions)
        yield found, members, kept


def settle(replica: Replica, sessions: Sessions) -> None:
    """Let a replica's work go on in these sessions."""

    def session(_: Turn, context_id: str) -> OneSession:
        return OneSession(sessions, context_id)

    replica.agent.script, replica.agent.session = sessions.count, session


async def said(replica: Replica, context_id: str, caller: CallContext = ALICE) -> str:
    (text,) = texts(await task_of(replica.tasks, asked(contextId=context_id), caller))
    return text


async def test_the_work_of_a_context_goes_on_in_one_session_whichever_replica_is_asked() -> None:
    async with counting(3) as (found, (one, two, three), kept):
        assert [await said(replica, "a") for replica in (two, one, three, two)] == list("1234")
        assert [await said(replica, "b") for replica in (three, two)] == list("12")
        assert [dict(sessions.counts) for sessions in kept] == [{}, {"a": 4}, {"b": 2}]
        assert set(found.shared.sessions) == {"a", "b"}
        assert not any(sessions.holds.total() for sessions in kept)


async def test_a_context_that_is_new_has_its_session_where_its_message_came() -> None:
    async with counting() as (_, (one, two), (first, second)):
        task = await task_of(one.tasks, asked())
        assert (texts(task), task.context_id) == (["1"], next(iter(first.counts)))
        assert task.context_id is not None
        assert await said(two, task.context_id) == "2"
        assert not second.counts


async def test_a_stream_at_another_replica_has_the_events_of_the_work_in_the_session() -> None:
    async with counting() as (_, (one, two), (first, _)):
        await said(one, "a")
        began, may_end = anyio.Event(), anyio.Event()

        async def slow(job: Job) -> None:
            began.set()
            await may_end.wait()
            await first.count(job)

        one.agent.script = slow
        stream = await two.tasks.stream(asked(contextId="a"), ALICE)
        await began.wait()
        may_end.set()
        events = await shape(stream)
        assert (events[0], events[-1]) == ("task SUBMITTED", "statusUpdate COMPLETED")


async def test_the_same_message_at_both_replicas_is_work_once() -> None:
    async with counting() as (_, (one, two), (first, _)):
        await said(one, "a")
        request = asked(contextId="a")
        tasks: list[Task] = []

        async def send(replica: Replica) -> None:
            tasks.append(await task_of(replica.tasks, request))

        async with anyio.create_task_group() as group:
            for replica in (two, one, two):
                group.start_soon(send, replica)
        assert {task.id for task in tasks} == {tasks[0].id}
        assert first.counts["a"] == 2


async def test_an_answer_to_a_task_at_rest_goes_to_the_replica_that_has_the_session() -> None:
    async with counting() as (_, (one, two), (first, _)):

        async def ask(job: Job) -> None:
            if job.turn.task is None:
                await say(job, INPUT, "Which?")
            else:
                await first.count(job)

        await said(one, "a")
        two.agent.session = lambda turn, context_id: None
        two.agent.script = one.agent.script = ask
        task = await task_of(two.tasks, asked(contextId="a"))
        assert task.status.state is INPUT
        settle(two, Sessions())
        answered = await task_of(two.tasks, asked(taskId=task.id))
        assert texts(answered) == ["2"]


async def test_brief_work_in_a_session_of_another_replica_is_a_task() -> None:
    async with counting() as (_, (one, two), (first, second)):
        one.agent.script, two.agent.script = BriefWork(first.count), BriefWork(second.count)
        reply = await one.tasks.send(asked(contextId="a"), ALICE)
        assert isinstance(reply, Message)
        assert await said(two, "a") == "2"


async def test_a_session_that_has_ended_begins_where_the_next_message_comes() -> None:
    async with counting() as (found, (one, two), (first, _)):
        assert await said(one, "a") == "1"
        first.end("a")
        while found.shared.sessions:
            await anyio.lowlevel.checkpoint()
        assert await said(two, "a") == "1"
        assert await said(one, "a") == "2"


async def test_the_session_of_a_dead_replica_begins_anew_and_its_first_task_says_so() -> None:
    async with counting(3) as (found, (one, two, three), _):
        assert await said(one, "a") == "1"
        found.shared.kill(one.store)
        assert [await said(replica, "a") for replica in (two, three, two)] == ["1 lost", "2", "3"]


async def test_a_replica_that_was_taken_for_dead_ends_its_sessions() -> None:
    async with counting() as (found, (one, two), (first, _)):
        assert await said(one, "a") == "1"
        found.fence(one)
        assert await said(two, "a") == "1 lost"
        assert await said(one, "a") == "2"
        assert not first.on_end


async def test_a_message_that_waits_at_a_silent_owner_is_worked_on_once_the_owner_is_gone() -> None:
    async with counting() as (found, (one, two), _):
        assert await said(one, "a") == "1"
        found.shared.pause(one.store)
        heard: list[str] = []

        async def send() -> None:
            heard.append(await said(two, "a"))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            found.shared.kill(one.store)
        assert heard == ["1 lost"]


async def test_the_outcome_of_a_message_that_a_dead_owner_may_have_accepted_is_unknown() -> None:
    async with counting() as (found, (one, two), (first, _)):
        assert await said(one, "a", SHARED_NAME) == "1"
        one.store.hold_replies()
        async with anyio.create_task_group() as group:

            async def send() -> None:
                async with refused(UNAVAILABLE):
                    await said(two, "a", SHARED_NAME)

            group.start_soon(send)
            while first.counts["a"] < 2:
                await anyio.lowlevel.checkpoint()
            found.shared.kill(one.store)


async def test_a_session_that_cannot_be_opened_is_claimed_by_nobody() -> None:
    async with counting() as (found, (one, two), (first, _)):
        first.is_full = True
        async with refused(OVERLOADED):
            await said(one, "a")
        while found.shared.sessions:
            await anyio.lowlevel.checkpoint()
        assert await said(two, "a") == "1"


async def test_a_refused_message_keeps_no_session_and_leaves_the_note_of_its_loss_to_the_next() -> None:
    async with counting() as (found, (one, two), (_, second)):
        assert await said(one, "a") == "1"
        found.shared.kill(one.store)
        usual, two.engine.limits = two.engine.limits, engine_limits(open_tasks=0)
        async with refused(OVERLOADED):
            await said(two, "a")
        two.engine.limits = usual
        assert not second.holds.total()
        assert await said(two, "a") == "1 lost"


async def test_a_server_that_was_replaced_gets_a_session_of_its_own_at_the_same_replica() -> None:
    async with counting() as (_, (one, two), (first, _)):
        assert await said(one, "a") == "1"
        settle(one, newer := Sessions())
        assert await said(two, "a") == "1"
        first.end("a")
        assert await said(two, "a") == "2"
        assert newer.counts["a"] == 2


async def test_work_that_stays_is_given_its_answer_and_ends_with_its_replica() -> None:
    async with fleet(never) as found:
        one, two = await found.start(), await found.start()

        async def ask(job: Job) -> None:
            if job.turn.task is None:
                job.stay()
                await say(job, INPUT, "Which?")
            else:
                await give(job, "answered")
                await say(job, C)

        one.agent.script = ask
        task = await task_of(one.tasks, asked())
        assert texts(await task_of(two.tasks, asked(taskId=task.id))) == ["answered"]
        assert not two.turns
        left = await task_of(one.tasks, asked())
        assert left.status.state is TaskState.INPUT_REQUIRED
        assert found.shared.holder_of(left.id) == one.store.epoch
