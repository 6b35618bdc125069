"""The promises of every store with replicas, beyond those of every store, tested on each such store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
import pytest

from bridge.errors import HolderGoneError, RepeatedMessageError, StoreConflictError
from bridge.store.contract import Store
from bridge.store.records import Change, MessageKey, Query, StoredTask, TaskHead, WrittenAnswer
from bridge.store.replicas import ForeignEvent, Replicas
from tests.store.changes import first, keep, keep_all
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.postgres_cluster import PostgresCluster
from tests.support.replicas import Recorder, SharedMemory

WORKING = TaskHead("working", ended=False, status_ms=20)
COMPLETED = TaskHead("completed", ended=True, status_ms=30)
KEY = MessageKey("m1", b"digest", 10)


class Cluster(Protocol):
    """Several replicas on one store, and their faults."""

    def replica(self) -> AbstractAsyncContextManager[Store]:
        """Another replica, not yet entered."""
        ...

    def kill(self, store: Any) -> None:
        """End a replica as `kill -9` does. Another replica notices it within the lease."""
        ...

    def pause(self, store: Any) -> None:
        """Pause a replica as SIGSTOP does."""
        ...

    def notice(self, store: Any) -> None:
        """Let the lease of a paused replica expire."""
        ...

    def resume(self, store: Any) -> None:
        """Continue a paused replica."""
        ...

    def forget_events(self, task_id: str) -> None:
        """Fold the events of a task, also for followers that have not got them yet."""
        ...


@dataclass
class Member:
    """A replica, with an engine that records calls."""

    store: Store
    engine: Recorder = field(default_factory=Recorder)

    @property
    def replicas(self) -> Replicas:
        """The other replicas, as this replica knows them."""
        assert self.store.replicas is not None
        return self.store.replicas


FACTORIES: dict[str, Callable[[], Cluster]] = {"memory": SharedMemory, "postgres": PostgresCluster}


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """Bound the time of each test."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@pytest.fixture(params=sorted(FACTORIES))
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return FACTORIES[request.param]()


@pytest.fixture
async def members(cluster: Cluster) -> AsyncIterator[tuple[Member, Member, Member]]:
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(3):
            member = Member(await stack.enter_async_context(cluster.replica()))
            member.replicas.start(member.engine)
            found.append(member)
        yield found[0], found[1], found[2]


Members = tuple[Member, Member, Member]


async def loaded(member: Member, task_id: str) -> StoredTask:
    task = await member.store.load(task_id)
    assert task is not None
    return task


async def refusal_of(member: Member, change: Change) -> Exception | None:
    return (await keep_all(member.store, change))[0]


async def released(member: Member, task_id: str, seq: int) -> None:
    """Let a task rest, and wait until it does."""
    member.replicas.release(task_id, seq)
    while (await loaded(member, task_id)).holder is not None:
        await anyio.sleep(0.001)


class Heard:
    """The events that a follower got."""

    def __init__(self) -> None:
        self.events: list[ForeignEvent] = []
        self._moved = anyio.Event()

    def __call__(self, events: tuple[ForeignEvent, ...]) -> None:
        self.events.extend(events)
        self._moved.set()
        self._moved = anyio.Event()

    async def up_to(self, seq: int) -> list[ForeignEvent]:
        """All delivered events, after the event of this number has come."""
        while not self.events or self.events[-1].seq < seq:
            await self._moved.wait()
        return self.events


pytestmark = pytest.mark.proves("replicas-one-holder")


async def test_the_creator_of_a_task_holds_it(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    assert (await loaded(two, "t1")).holder == one.replicas.epoch
    (listed,) = (await two.store.list(Query("ann", 5))).tasks
    assert listed == await loaded(one, "t1")


async def test_a_change_to_a_task_of_another_replica_is_refused(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    before = await loaded(two, "t1")
    assert isinstance(await refusal_of(two, Change("t1", 2, b"mine", head=COMPLETED)), StoreConflictError)
    assert await loaded(two, "t1") == before
    await keep(one.store, Change("t1", 2, b"two"))


async def test_a_task_that_has_ended_has_no_holder(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"), Change("t1", 2, b"end", head=COMPLETED, snapshot=b"whole"))
    assert (await loaded(two, "t1")).holder is None
    assert isinstance(await refusal_of(two, Change("t1", 3, b"late")), StoreConflictError)


async def test_a_released_task_is_claimed_by_the_first_change(members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"))
    await released(one, "t1", 1)
    await keep(two.store, Change("t1", 2, b"two"))
    assert (await loaded(one, "t1")).holder == two.replicas.epoch
    assert isinstance(await refusal_of(three, Change("t1", 3, b"three")), StoreConflictError)


async def test_of_two_claims_at_once_one_is_stored(members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"))
    await released(one, "t1", 1)
    answers: dict[str, Exception | None] = {}

    async def claim(member: Member) -> None:
        answers[member.replicas.epoch] = await refusal_of(member, Change("t1", 2, b"two"))

    async with anyio.create_task_group() as group:
        for member in (two, three):
            group.start_soon(claim, member)
    (winner,) = (epoch for epoch, error in answers.items() if error is None)
    assert (await loaded(one, "t1")).holder == winner
    (error,) = (error for error in answers.values() if error is not None)
    assert isinstance(error, StoreConflictError)


async def test_a_release_that_another_change_followed_does_nothing(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    one.replicas.release("t1", 1)
    await keep(one.store, Change("t1", 2, b"two"))
    one.replicas.release("t1", 1)
    await keep(one.store, Change("t1", 3, b"three"))
    assert (await loaded(two, "t1")).holder == one.replicas.epoch


async def test_changes_after_a_refused_change_are_refused(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    await released(one, "t1", 1)
    await keep(two.store, Change("t1", 2, b"two"))
    await released(two, "t1", 2)
    answers = await keep_all(one.store, Change("t1", 2, b"mine"), Change("t1", 3, b"mine, too"))
    assert [type(answer) for answer in answers] == [StoreConflictError, StoreConflictError]
    assert (await loaded(two, "t1")).events == (b"two",)
    await keep(one.store, Change("t1", 3, b"three"))


# Those who are gone


async def test_another_replica_adopts_the_tasks_of_a_dead_one(cluster: Cluster, members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"), first("t2"), Change("t2", 2, b"end", head=COMPLETED), first("t3"))
    await released(one, "t3", 1)
    cluster.kill(one.store)
    async with anyio.create_task_group() as group:
        for member in (two, three):
            group.start_soon(_first_adopted, member, group.cancel_scope)
    (heir,) = (member for member in (two, three) if member.engine.adopted)
    assert heir.engine.adopted == [await loaded(heir, "t1")]
    assert (await loaded(heir, "t1")).holder == heir.replicas.epoch
    assert (await loaded(heir, "t3")).holder is None
    await keep(heir.store, Change("t1", 2, b"on"))


async def test_an_adopted_task_is_readable_when_the_engine_has_it(cluster: Cluster, members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"), first("t2", context_id="other", head=COMPLETED))
    for member in (two, three):
        member.engine.may_adopt = anyio.Event()
    order: list[str] = []

    async def read(member: Member) -> None:
        assert (await loaded(member, "t1")).holder == member.replicas.epoch
        order.append("read")

    cluster.kill(one.store)
    async with anyio.create_task_group() as group:
        for member in (two, three):
            group.start_soon(_first_adopted, member, group.cancel_scope)
    (heir,) = (member for member in (two, three) if member.engine.adopted)
    async with anyio.create_task_group() as group:
        group.start_soon(read, heir)
        for _ in range(20):  # reads that nothing holds up, in which that one would come back
            await loaded(heir, "t2")
        order.append("given")
        heir.engine.may_adopt.set()
    assert order == ["given", "read"]


async def _first_adopted(member: Member, scope: anyio.CancelScope) -> None:
    await member.engine.until(lambda engine: engine.adopted)
    scope.cancel()


async def test_a_fenced_epoch_stores_nothing_and_a_new_one_begins(cluster: Cluster, members: Members) -> None:
    one, two, three = members
    await keep(two.store, first("t1"))
    epoch = two.replicas.epoch
    cluster.pause(two.store)
    late: list[Exception | None] = []
    told = anyio.Event()

    def answered(error: Exception | None) -> None:
        late.append(error)
        assert two.engine.fences == 1
        told.set()

    two.store.submit(Change("t1", 2, b"late"), answered)
    two.store.submit(first("t2", context_id="other"), answered)
    cluster.notice(two.store)
    async with anyio.create_task_group() as group:
        for member in (one, three):
            group.start_soon(_first_adopted, member, group.cancel_scope)
    cluster.resume(two.store)
    await two.engine.until(lambda engine: engine.fences)
    await told.wait()
    while len(late) < 2:
        await anyio.sleep(0.001)
    assert [type(error) for error in late] == [StoreConflictError, StoreConflictError]
    assert two.replicas.epoch != epoch
    assert (await loaded(one, "t1")).seq == 1
    assert await one.store.load("t2") is None
    await keep(two.store, first("t3"))
    assert (await loaded(one, "t3")).holder == two.replicas.epoch


async def test_a_starting_replica_adopts_orphaned_tasks(cluster: Cluster) -> None:
    async with cluster.replica() as alone:
        await keep(alone, first("t1"))
        cluster.kill(alone)
        async with cluster.replica() as store:
            heir = Member(store)
            heir.replicas.start(heir.engine)
            await heir.engine.until(lambda engine: engine.adopted)
            assert heir.engine.adopted == [await loaded(heir, "t1")]


async def test_a_task_that_is_handed_over_is_adopted_by_another(members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"))
    one.replicas.hand_over("t1", 1)
    async with anyio.create_task_group() as group:
        for member in (two, three):
            group.start_soon(_first_adopted, member, group.cancel_scope)
    assert not one.engine.adopted
    assert (await loaded(one, "t1")).holder in (two.replicas.epoch, three.replicas.epoch)


async def test_one_replica_leads_and_another_succeeds_it(cluster: Cluster, members: Members) -> None:
    while sum(member.replicas.leads for member in members) != 1:
        await anyio.sleep(0.01)
    (leader,) = (member for member in members if member.replicas.leads)
    cluster.kill(leader.store)
    while sum(member.replicas.leads for member in members if member is not leader) != 1:
        await anyio.sleep(0.01)


# The feed


async def test_a_follower_gets_each_event_in_order(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"), Change("t1", 2, b"two"))
    heard = Heard()
    unfollow = two.replicas.follow("t1", 1, heard)
    for seq in range(3, 40):
        await keep(one.store, Change("t1", seq, b"%d" % seq))
    assert await heard.up_to(39) == [
        ForeignEvent(2, event=b"two"),
        *(ForeignEvent(seq, event=b"%d" % seq) for seq in range(3, 40)),
    ]
    unfollow()
    later = Heard()
    two.replicas.follow("t1", 39, later)
    await keep(one.store, Change("t1", 40, b"end", head=COMPLETED, snapshot=b"whole"))
    assert await later.up_to(40) == [ForeignEvent(40, event=b"end")]
    assert len(heard.events) == 38


async def test_a_follower_of_folded_events_gets_the_snapshot(cluster: Cluster, members: Members) -> None:
    one, two, _ = members
    await keep(
        one.store, first("t1"), Change("t1", 2, b"two"), Change("t1", 3, b"three", snapshot=b"at three")
    )
    await keep(one.store, Change("t1", 4, b"four"))
    cluster.forget_events("t1")
    heard = Heard()
    two.replicas.follow("t1", 1, heard)
    assert await heard.up_to(4) == [ForeignEvent(3, snapshot=b"at three"), ForeignEvent(4, event=b"four")]


async def test_events_for_followers_can_be_read_at_once(cluster: Cluster, members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"), Change("t1", 2, b"two"), Change("t1", 3, b"three", snapshot=b"whole"))
    told = [ForeignEvent(2, event=b"two"), ForeignEvent(3, event=b"three")]
    assert [*await two.replicas.events_after("t1", 1)] == told
    assert [*await two.replicas.events_after("t1", 3)] == []
    assert [*await two.replicas.events_after("t9", 0)] == []
    cluster.forget_events("t1")
    assert [*await two.replicas.events_after("t1", 1)] == [ForeignEvent(3, snapshot=b"whole")]


async def test_the_feed_continues_after_a_replica_was_fenced(cluster: Cluster, members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    heard = Heard()
    two.replicas.follow("t1", 1, heard)
    cluster.pause(two.store)
    cluster.notice(two.store)
    cluster.resume(two.store)
    await two.engine.until(lambda engine: engine.fences)
    await keep(one.store, Change("t1", 2, b"two"))
    assert await heard.up_to(2) == [ForeignEvent(2, event=b"two")]


# Commands


async def test_a_command_reaches_the_holder_and_its_reply_comes_back(members: Members) -> None:
    one, two, _ = members
    assert await two.replicas.ask(one.replicas.epoch, b"please") == b"done: please"
    assert one.engine.asked == [b"please"]


async def test_a_slow_command_delays_no_other(members: Members) -> None:
    one, two, three = members
    one.engine.may_answer = anyio.Event()
    async with anyio.create_task_group() as group:
        for member in (two, three):
            group.start_soon(member.replicas.ask, one.replicas.epoch, b"please")
        await one.engine.until(lambda engine: len(engine.asked) == 2)
        await keep(one.store, first("t1"))
        one.engine.may_answer.set()


async def test_a_command_to_a_dying_holder_fails(cluster: Cluster, members: Members) -> None:
    one, two, _ = members
    one.engine.may_answer = anyio.Event()
    epoch = one.replicas.epoch
    caught: list[BaseException] = []

    async def ask() -> None:
        with pytest.raises(HolderGoneError) as found:
            await two.replicas.ask(epoch, b"please")
        caught.append(found.value)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await one.engine.until(lambda engine: engine.asked)
        cluster.kill(one.store)
    assert caught
    with pytest.raises(HolderGoneError):
        await two.replicas.ask(epoch, b"please")


# Messages, contexts, counts


async def test_of_two_equal_messages_at_once_one_is_stored(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1", message=KEY))
    error = await refusal_of(two, first("t2", context_id="other", message=KEY))
    assert isinstance(error, RepeatedMessageError)
    assert await two.store.load("t2") is None
    found = await two.store.find_message("ann", "m1")
    assert found is not None
    assert (found.task_id, found.key, found.answer) == ("t1", KEY, None)


async def test_a_message_may_replace_a_message_that_its_writer_knows(members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1", message=KEY))
    await keep(two.store, replace(first("t2", context_id="other", message=KEY), replaces="t1"))
    error = await refusal_of(three, replace(first("t3", context_id="third", message=KEY), replaces="t1"))
    assert isinstance(error, RepeatedMessageError)
    found = await three.store.find_message("ann", "m1")
    assert found is not None
    assert found.task_id == "t2"


async def test_the_message_of_a_released_task_is_refused_like_that_of_a_new_one(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1", message=KEY), first("t2"))
    await released(one, "t2", 1)
    error = await refusal_of(two, Change("t2", 2, b"two", message=KEY))
    assert isinstance(error, RepeatedMessageError)
    assert (await loaded(two, "t2")).holder is None


async def test_the_message_of_a_holder_is_kept_whatever_task_had_its_id(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1"))
    await keep(two.store, first("t2", context_id="other", message=KEY))
    await keep(one.store, Change("t1", 2, b"two", message=KEY), Change("t1", 3, b"three"))
    found = await two.store.find_message("ann", "m1")
    assert found is not None
    assert found.task_id == "t1"


async def test_a_written_answer_is_seen_by_all_until_the_message_goes_elsewhere(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1", message=KEY))
    two.replicas.note_answer("ann", "m1", "t0", WrittenAnswer(50, is_repeatable=True))
    two.replicas.note_answer("ann", "m1", "t1", WrittenAnswer(60, is_repeatable=False))
    await keep(two.store, first("t2"))
    found = await one.store.find_message("ann", "m1")
    assert found is not None
    assert found.age_ms is not None
    assert found.answer is not None
    assert (found.answer.at_ms, found.answer.is_repeatable) == (60, False)
    await keep(two.store, replace(first("t3", message=KEY), replaces="t1"))
    found = await one.store.find_message("ann", "m1")
    assert found is not None
    assert found.answer is None


async def test_a_context_has_one_owner_on_all_replicas(members: Members) -> None:
    one, two, _ = members
    await keep(one.store, first("t1", owner="ann", context_id="talk"))
    error = await refusal_of(two, first("t2", owner="bob", context_id="talk"))
    assert isinstance(error, StoreConflictError)
    assert await two.store.context_owner("talk") == "ann"


async def test_unfinished_tasks_are_counted_over_all_replicas(members: Members) -> None:
    one, two, three = members
    await keep(one.store, first("t1"), first("t2"), Change("t2", 2, b"end", head=COMPLETED))
    await keep(two.store, first("t3"), first("t4", owner="bob", context_id="other"))
    assert await three.replicas.open_of("ann") == 2
    assert await three.replicas.open_of("nobody") == 0


async def test_a_session_has_one_owner_which_claims_it_again(members: Members) -> None:
    one, two, _ = members
    mine = await one.replicas.claim_session("files:ann", 60)
    assert (mine.owner, mine.is_lost) == (one.replicas.epoch, False)
    theirs = await two.replicas.claim_session("files:ann", 60)
    assert (theirs.owner, theirs.is_lost) == (one.replicas.epoch, False)
    other = await two.replicas.claim_session("files:bob", 60)
    assert (other.owner, other.is_lost) == (two.replicas.epoch, False)
    again = await one.replicas.claim_session("files:ann", 60)
    assert (again.owner, again.is_lost) == (one.replicas.epoch, False)


async def test_an_ended_session_has_no_owner_unless_claimed_again(members: Members) -> None:
    one, two, _ = members
    old = await one.replicas.claim_session("files:ann", 60)
    new = await one.replicas.claim_session("files:ann", 60)
    one.replicas.end_session(old)
    for _ in range(20):
        assert (await two.replicas.claim_session("files:ann", 60)).owner == one.replicas.epoch
    one.replicas.end_session(new)
    while (claimed := await two.replicas.claim_session("files:ann", 60)).owner != two.replicas.epoch:
        await anyio.sleep(0.001)
    assert not claimed.is_lost


async def test_a_session_of_a_replica_that_is_gone_is_lost_and_its_late_end_changes_nothing(
    cluster: Cluster, members: Members
) -> None:
    one, two, three = members
    before = await one.replicas.claim_session("files:ann", 60)
    cluster.pause(one.store)
    cluster.notice(one.store)
    lost = await two.replicas.claim_session("files:ann", 60)
    assert (lost.owner, lost.is_lost) == (two.replicas.epoch, True)
    cluster.resume(one.store)
    await one.engine.until(lambda engine: engine.fences)
    one.replicas.end_session(before)
    late = await one.replicas.claim_session("files:ann", 60)
    assert late.owner == two.replicas.epoch
    assert (await three.replicas.claim_session("files:ann", 60)).owner == two.replicas.epoch
