"""The promises of every store, tested on each store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.errors import StoreConflictError, StoreError
from bridge.store.contract import Store
from bridge.store.memory import MemoryStore
from bridge.store.postgres.store import PostgresStore
from bridge.store.records import (
    Change,
    Cursor,
    MessageKey,
    Query,
    Quota,
    StoredMessage,
    StoredTask,
    TaskHead,
    TaskOrigin,
)
from bridge.store.retention import Retention, evict_periodically, surplus_of
from bridge.store.sqlite import SQLiteStore
from tests.store.changes import first, keep, keep_all
from tests.support.postgres import BOUNDS, database_url, new_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

WORKING = TaskHead("working", ended=False, status_ms=20)
COMPLETED = TaskHead("completed", ended=True, status_ms=30)
FAILED = TaskHead("failed", ended=True, status_ms=31)


STORES: Mapping[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "tasks.db"),
    "postgres": lambda _: PostgresStore(database_url(), new_agent(), BOUNDS),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path) as made:
        yield made


async def loaded(store: Store, task_id: str) -> StoredTask:
    task = await store.load(task_id)
    assert task is not None
    return task


async def message_of(store: Store, owner: str, message_id: str) -> StoredMessage | None:
    """A stored message as every store returns it: only stores with replicas have its age."""
    found = await store.find_message(owner, message_id)
    return None if found is None else replace(found, age_ms=None)


async def listed(store: Store, query: Query) -> list[str]:
    return [task.task_id for task in (await store.list(query)).tasks]


async def test_a_created_task_is_read_back_complete(store: Store) -> None:
    await keep(store, first("t1"))
    assert replace(await loaded(store, "t1"), holder=None) == StoredTask(
        task_id="t1",
        origin=TaskOrigin("talk", "ann", 10),
        head=TaskHead("submitted", ended=False, status_ms=10),
        seq=1,
        snapshot=b"task as made",
        events=(),
        private=b"",
    )


async def test_an_unknown_task_is_not_found(store: Store) -> None:
    assert await store.load("t1") is None


@pytest.mark.proves("store-contract")
@pytest.mark.parametrize("together", [True, False])
async def test_events_follow_the_snapshot_in_order(store: Store, together: bool) -> None:
    changes = [
        first("t1"),
        Change("t1", 2, b"two", head=WORKING),
        Change("t1", 3, b"three"),
        Change("t1", 4, b"", private=b"x"),
    ]
    if together:
        await keep(store, *changes)
    else:
        for change in changes:
            await keep(store, change)
    task = await loaded(store, "t1")
    assert (task.seq, task.snapshot, task.events) == (4, b"task as made", (b"two", b"three", b""))
    assert (task.head, task.private) == (WORKING, b"x")


@pytest.mark.parametrize("together", [True, False])
async def test_a_snapshot_replaces_the_events_up_to_it(store: Store, together: bool) -> None:
    changes = [
        first("t1"),
        Change("t1", 2, b"two"),
        Change("t1", 3, b"three", snapshot=b"task at three"),
        Change("t1", 4, b"four"),
        Change("t1", 5, b"five", snapshot=b"task at five"),
        Change("t1", 6, b"six"),
    ]
    if together:
        await keep(store, *changes)
    else:
        for change in changes:
            await keep(store, change)
    task = await loaded(store, "t1")
    assert (task.seq, task.snapshot, task.events) == (6, b"task at five", (b"six",))
    await keep(store, Change("t1", 7, b"seven"))
    assert (await loaded(store, "t1")).events == (b"six", b"seven")


@pytest.mark.proves("store-contract")
@pytest.mark.parametrize("seq", [0, 1, 2, 4, 99])
async def test_a_change_with_a_gap_or_a_used_number_is_refused(store: Store, seq: int) -> None:
    await keep(store, first("t1"), Change("t1", 2, b"two"))
    before = await loaded(store, "t1")
    (error,) = await keep_all(store, Change("t1", seq, b"wrong", head=COMPLETED, private=b"wrong"))
    assert isinstance(error, StoreConflictError)
    assert await store.load("t1") == before
    await keep(store, Change("t1", 3, b"three"))


async def test_a_conflict_refuses_its_change_alone(store: Store) -> None:
    answers = await keep_all(
        store,
        first("t1"),
        first("t2"),
        first("t1"),
        Change("unknown", 2, b"two"),
        Change("t2", 2, b"two"),
        Change("t2", 2, b"two again"),
        first("t3"),
    )
    assert [type(answer) for answer in answers] == [
        *(type(None), type(None), StoreConflictError, StoreConflictError),
        *(type(None), StoreConflictError, type(None)),
    ]
    await keep(store, Change("t1", 2, b"two"), Change("t2", 3, b"three"))
    assert (await loaded(store, "t1")).events == (b"two",)
    assert (await loaded(store, "t2")).events == (b"two", b"three")
    assert await store.load("unknown") is None


@pytest.mark.parametrize(
    "change",
    [
        replace(first("t1"), seq=2),
        replace(first("t1"), snapshot=None),
        replace(first("t1"), head=None),
    ],
    ids=["number", "snapshot", "head"],
)
async def test_an_incomplete_change_creates_no_task(store: Store, change: Change) -> None:
    (error,) = await keep_all(store, change)
    assert isinstance(error, StoreConflictError)
    assert await store.load("t1") is None
    assert await store.context_owner("talk") is None


@pytest.mark.proves("store-contract")
@pytest.mark.parametrize("together", [True, False])
async def test_the_first_terminal_state_wins(store: Store, together: bool) -> None:
    await keep(store, first("t1"))
    completes, fails = Change("t1", 2, b"done", head=COMPLETED), Change("t1", 2, b"failed", head=FAILED)
    late = Change("t1", 3, b"late", head=FAILED)
    if together:
        answers = await keep_all(store, completes, fails, late)
    else:
        answers = [answer for change in (completes, fails, late) for answer in await keep_all(store, change)]
    assert answers[0] is None
    assert all(isinstance(answer, StoreConflictError) for answer in answers[1:])
    task = await loaded(store, "t1")
    assert (task.head, task.seq, task.events) == (COMPLETED, 2, (b"done",))


async def test_a_task_may_end_with_its_first_change(store: Store) -> None:
    await keep(store, first("t1", head=COMPLETED))
    (error,) = await keep_all(store, Change("t1", 2, b"late"))
    assert isinstance(error, StoreConflictError)
    assert [task.task_id async for task in store.unfinished()] == []


async def test_private_bytes_are_replaced_left_or_cleared(store: Store) -> None:
    await keep(store, replace(first("t1"), private=b"one"))
    await keep(store, Change("t1", 2, b""))
    assert (await loaded(store, "t1")).private == b"one"
    await keep(store, Change("t1", 3, b"", private=b"two"))
    assert (await loaded(store, "t1")).private == b"two"
    await keep(store, Change("t1", 4, b"", private=b""))
    assert (await loaded(store, "t1")).private == b""


@pytest.mark.proves("store-contract")
async def test_a_message_is_found_by_owner_and_the_newest_wins(store: Store) -> None:
    early, late = MessageKey("m1", b"early", 10), MessageKey("m1", b"late", 11)
    await keep(store, first("t1", message=early), first("t2", owner="bob", context_id="b"))
    assert await message_of(store, "ann", "m1") == StoredMessage("t1", early)
    assert await store.find_message("bob", "m1") is None
    await keep(store, Change("t2", 2, b"", message=early), first("t3", message=late, replaces="t1"))
    assert await message_of(store, "bob", "m1") == StoredMessage("t2", early)
    assert await message_of(store, "ann", "m1") == StoredMessage("t3", late)


async def test_a_message_is_deleted_with_its_task(store: Store) -> None:
    key = MessageKey("m1", b"d", 10)
    await keep(
        store, first("t1", head=COMPLETED, message=key), first("t2", message=replace(key, message_id="m2"))
    )
    assert await store.evict(0, Quota(0, 0)) == 1
    assert await store.find_message("ann", "m1") is None
    assert await store.find_message("ann", "m2") is not None


async def test_a_message_of_a_newer_task_outlives_the_older_task(store: Store) -> None:
    key = MessageKey("m1", b"d", 10)
    await keep(store, first("t1", head=COMPLETED, message=key))
    await keep(store, first("t2", message=key, replaces="t1"))
    assert await store.evict(0, Quota(0, 0)) == 1
    assert await message_of(store, "ann", "m1") == StoredMessage("t2", key)


@pytest.mark.proves("store-contract")
async def test_a_context_has_one_owner_while_it_has_a_task(store: Store) -> None:
    assert await store.context_owner("talk") is None
    taken, refused, second = await keep_all(
        store, first("t1", head=COMPLETED), first("t2", owner="bob"), first("t3")
    )
    assert (taken, second) == (None, None)
    assert isinstance(refused, StoreConflictError)
    assert await store.context_owner("talk") == "ann"
    await keep(store, Change("t3", 2, b"", head=COMPLETED))
    assert await store.evict(0, Quota(1, 1)) == 1
    assert await store.context_owner("talk") == "ann"
    (refused,) = await keep_all(store, first("t4", owner="bob"))
    assert isinstance(refused, StoreConflictError)
    assert await store.evict(0, Quota(0, 0)) == 1
    assert await store.context_owner("talk") is None
    await keep(store, first("t5", owner="bob"))
    assert await store.context_owner("talk") == "bob"


async def test_an_evicted_id_can_be_used_again(store: Store) -> None:
    await keep(store, first("t1", head=COMPLETED), first("t2"), Change("t2", 2, b"", head=COMPLETED))
    assert await store.evict(0, Quota(0, 0)) == 2
    await keep(store, first("t1"), first("t2"), Change("t2", 2, b"two"))
    assert (await loaded(store, "t2")).events == (b"two",)


async def test_a_listing_is_newest_status_first_and_ties_go_by_id_descending(store: Store) -> None:
    await keep(
        store,
        *(
            first(task_id, created_ms=created_ms)
            for task_id, created_ms in [("a", 3), ("b", 5), ("c", 5), ("d", 4)]
        ),
        first("z", owner="bob", context_id="b", created_ms=9),
        Change("a", 2, b"", head=TaskHead("working", ended=False, status_ms=7)),
    )
    listing = await store.list(Query("ann", limit=10))
    assert [task.task_id for task in listing.tasks] == ["a", "c", "b", "d"]
    assert (listing.total, listing.more) == (4, False)
    assert listing.tasks[0] == await store.load("a")
    assert await listed(store, Query("nobody", limit=10)) == []


async def test_a_listing_of_all_owners_has_the_same_order_and_filters(store: Store) -> None:
    runs = TaskHead("working", ended=False, status_ms=4)
    await keep(
        store,
        first("a", created_ms=1),
        first("b", owner="bob", context_id="his", created_ms=3),
        first("c", created_ms=3),
        first("d", owner="cid", context_id="theirs", created_ms=4, head=runs),
    )
    page = await store.list(Query(None, 3))
    assert ([task.task_id for task in page.tasks], page.total, page.more) == (["d", "c", "b"], 4, True)
    assert page.tasks[2] == await store.load("b")
    assert await listed(store, Query(None, 3, after=Cursor(3, "b"))) == ["a"]
    assert await listed(store, Query(None, 9, context_id="his")) == ["b"]
    assert await listed(store, Query(None, 9, state="working")) == ["d"]
    assert await listed(store, Query(None, 9, status_from_ms=3)) == ["d", "c", "b"]
    assert (await store.list(Query(None, 9, status_from_ms=3))).total == 3


async def test_a_listing_is_filtered_by_context_state_and_time(store: Store) -> None:
    await keep(
        store,
        first("a", created_ms=1),
        first("b", created_ms=2, head=TaskHead("working", ended=False, status_ms=2)),
        first("c", created_ms=3, context_id="other"),
        first("d", created_ms=4, context_id="other", head=TaskHead("working", ended=False, status_ms=4)),
    )
    assert await listed(store, Query("ann", 9, context_id="talk")) == ["b", "a"]
    assert await listed(store, Query("ann", 9, state="working")) == ["d", "b"]
    assert await listed(store, Query("ann", 9, status_from_ms=3)) == ["d", "c"]
    assert await listed(store, Query("ann", 9, context_id="other", state="working", status_from_ms=4)) == [
        "d"
    ]
    assert await listed(store, Query("bob", 9, context_id="talk")) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_paging_by_cursor_sees_every_task_once_even_among_ties(store: Store, limit: int) -> None:
    await keep(store, *(first(f"t{number}", created_ms=number // 3) for number in range(7)))
    seen: list[str] = []
    after: Cursor | None = None
    more = True
    while more:
        page = await store.list(Query("ann", limit, after=after))
        assert page.total == 7
        seen += [task.task_id for task in page.tasks]
        after = Cursor(page.tasks[-1].head.status_ms, page.tasks[-1].task_id)
        more = page.more
    assert seen == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]


async def test_a_page_stays_in_place_while_newer_tasks_come_in(store: Store) -> None:
    await keep(store, *(first(f"t{number}", created_ms=5) for number in range(4)))
    page = await store.list(Query("ann", 2))
    await keep(store, first("t9", created_ms=5), first("t8", created_ms=6))
    after = Cursor(page.tasks[-1].head.status_ms, page.tasks[-1].task_id)
    assert await listed(store, Query("ann", 2, after=after)) == ["t1", "t0"]


@pytest.mark.proves("store-retention")
async def test_eviction_is_by_age_then_by_count_and_never_deletes_unfinished_tasks(store: Store) -> None:
    await keep(
        store,
        first("parked", created_ms=1),
        *(
            first(f"t{n}", created_ms=n, head=TaskHead("completed", ended=True, status_ms=n))
            for n in range(1, 7)
        ),
    )
    assert await store.evict(0, Quota(6, 6)) == 0
    assert await store.evict(3, Quota(6, 6)) == 2
    assert await listed(store, Query("ann", 9)) == ["t6", "t5", "t4", "t3", "parked"]
    assert await store.evict(3, Quota(1, 1)) == 3
    assert await listed(store, Query("ann", 9)) == ["t6", "parked"]
    assert await store.evict(100, Quota(0, 0)) == 1
    assert await listed(store, Query("ann", 9)) == ["parked"]


@pytest.mark.proves("store-retention")
async def test_eviction_by_size_deletes_the_owners_oldest_tasks(store: Store) -> None:
    def weighs(task_id: str, size: int, status_ms: int, owner: str = "ann", *, ended: bool = True) -> Change:
        head = TaskHead("completed" if ended else "works", ended=ended, status_ms=status_ms)
        return replace(first(task_id, owner=owner, context_id=owner, head=head), snapshot=b"x" * size)

    await keep(
        store,
        weighs("runs", 100_000, 0, ended=False),
        *(weighs(f"t{number}", 10_000, number) for number in range(1, 7)),
        weighs("b1", 20_000, 1, "bob"),
    )
    assert await store.evict(0, Quota(9, 9, 80_000, 60_000)) == 0
    assert await store.evict(0, Quota(9, 9, 80_000, 45_000)) == 2
    assert await listed(store, Query("ann", 9)) == ["t6", "t5", "t4", "t3", "runs"]
    assert await store.evict(0, Quota(9, 9, 50_000, 45_000)) == 1
    assert await store.evict(0, Quota(2, 1, 50_000, 45_000)) == 2
    assert await listed(store, Query("ann", 9)) == ["t6", "runs"]
    assert await listed(store, Query("bob", 9)) == ["b1"]
    assert await store.evict(0, Quota(9, 9, 0, 0)) == 2
    assert await listed(store, Query("ann", 9)) == ["runs"]


async def test_many_tasks_are_evicted_in_one_call(store: Store) -> None:
    head = TaskHead("completed", ended=True, status_ms=1)
    await keep(store, *(first(f"t{number:04}", head=head) for number in range(600)))
    assert await store.evict(0, Quota(7, 7)) == 593
    assert (await store.list(Query("ann", 1))).total == 7


async def test_unfinished_tasks_are_read_oldest_first_while_they_change(store: Store) -> None:
    await keep(
        store,
        *(first(f"t{number:03}", created_ms=number // 2) for number in range(150)),
        first("ended", head=COMPLETED),
        first("also", created_ms=0),
    )
    if store.replicas is not None:
        pytest.skip("a store with replicas is not asked for unfinished tasks")
    seen = []
    async for task in store.unfinished():
        seen.append(task.task_id)
        await keep(store, Change(task.task_id, 2, b"", head=FAILED))
    assert seen == ["also", *(f"t{number:03}" for number in range(150))]
    assert [task.task_id async for task in store.unfinished()] == []


@pytest.mark.proves("map-input-timeout", "store-contract")
async def test_waiting_tasks_are_found_by_state_with_their_time(store: Store) -> None:
    def asks(status_ms: int, state: str = "asks") -> TaskHead:
        return TaskHead(state, ended=False, status_ms=status_ms)

    await keep(
        store,
        first("old", head=asks(5)),
        first("young", head=asks(20)),
        first("other", owner="bob", context_id="b", head=asks(6, "pays")),
        first("works", head=asks(5, "works")),
        first("ended", head=TaskHead("done", ended=True, status_ms=5)),
        first("answered", head=asks(5)),
        Change("answered", 2, b"", head=asks(7, "works")),
        first("asks again", head=asks(5)),
        Change("asks again", 2, b"", head=asks(30)),
        first("asks now", head=asks(1, "works")),
        Change("asks now", 2, b"", head=asks(9)),
    )
    waiting = {"old": 5, "young": 20, "asks again": 30, "asks now": 9}
    assert await store.waiting(["asks", "pays"]) == {**waiting, "other": 6}
    assert await store.waiting(frozenset({"asks"})) == waiting
    assert await store.waiting([]) == {}
    await keep(store, Change("old", 2, b"", head=FAILED))
    assert await store.waiting(["asks"]) == {"young": 20, "asks again": 30, "asks now": 9}


@pytest.mark.proves("map-input-timeout")
async def test_many_waiting_tasks_are_all_found(store: Store) -> None:
    head = TaskHead("asks", ended=False, status_ms=1)
    await keep(store, *(first(f"t{number:04}", head=head) for number in range(1200)))
    assert len(await store.waiting(["asks"])) == 1200


async def test_answers_come_in_the_order_of_submission(store: Store) -> None:
    order: list[int] = []
    last = anyio.Event()

    def done(seq: int, error: Exception | None) -> None:
        order.append(seq)
        if seq == 100:
            last.set()

    store.submit(first("t1"), partial(done, 1))
    for seq in range(2, 101):
        store.submit(Change("t1", seq, b""), partial(done, seq))
    with anyio.fail_after(10):
        await last.wait()
    assert order == list(range(1, 101))


async def test_a_callback_may_start_a_task_and_read_the_clock(store: Store) -> None:
    began: list[float] = []

    async def begin() -> None:
        began.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        told = anyio.Event()

        def done(_: Exception | None) -> None:
            began.append(anyio.current_time())
            group.start_soon(begin)
            told.set()

        store.submit(first("t1"), done)
        with anyio.fail_after(10):
            await told.wait()
    assert began == sorted(began)
    assert len(began) == 2


async def test_a_change_submitted_by_a_callback_is_stored(store: Store) -> None:
    second = anyio.Event()
    store.submit(first("t1"), lambda _: store.submit(Change("t1", 2, b"two"), lambda _: second.set()))
    with anyio.fail_after(10):
        await second.wait()
    assert (await loaded(store, "t1")).events == (b"two",)


async def test_a_store_that_can_write_has_no_failure(store: Store) -> None:
    assert store.failure is None
    assert await store.probe()
    assert store.failure is None


async def test_a_large_task_is_read_back(store: Store) -> None:
    snapshot, event = b"s" * 100_000, b"e" * 100_000
    await keep(store, replace(first("t1"), snapshot=snapshot), Change("t1", 2, event))
    task = await loaded(store, "t1")
    assert (task.snapshot, task.events) == (snapshot, (event,))


async def test_retention_evicts_until_it_is_cancelled(store: Store) -> None:
    await keep(store, first("t1", head=TaskHead("completed", ended=True, status_ms=1_000)), first("t2"))
    turns: list[int] = []

    def now_ms() -> int:
        turns.append(len(turns))
        if len(turns) == 3:
            tasks.cancel_scope.cancel()
        return 2_500

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await evict_periodically(store, Retention(1, Quota(9, 9), every_seconds=0.001), now_ms)
    assert await listed(store, Query("ann", 9)) == ["t2"]


async def test_retention_continues_after_the_store_failed(caplog: pytest.LogCaptureFixture) -> None:
    class FailsOnce(MemoryStore):
        evictions = 0

        async def evict(self, ended_before_ms: int, quota: Quota) -> int:
            self.evictions += 1
            if self.evictions == 1:
                raise StoreError("the disk is full")
            tasks.cancel_scope.cancel()
            return 0

    store = FailsOnce()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await evict_periodically(store, Retention(1, Quota(1, 1), every_seconds=0.001), lambda: 0)
    assert store.evictions == 2
    assert "the disk is full" in caplog.text


@pytest.mark.proves("store-retention")
async def test_an_owner_with_many_tasks_never_costs_an_owner_with_few(store: Store) -> None:
    def done(task_id: str, owner: str, status_ms: int) -> Change:
        head = TaskHead("completed", ended=True, status_ms=status_ms)
        return first(task_id, owner=owner, context_id=owner, head=head)

    await keep(store, *(done(f"b{number}", "bob", number) for number in range(3)))
    await keep(store, *(done(f"a{number:02}", "ann", 100 + number) for number in range(30)))
    assert await store.evict(0, Quota(total=10, each=30)) == 23
    assert await listed(store, Query("bob", 9)) == ["b2", "b1", "b0"]
    assert await listed(store, Query("ann", 9)) == [f"a{number}" for number in range(29, 22, -1)]
    assert await store.evict(0, Quota(total=10, each=2)) == 6


@pytest.mark.parametrize(
    ("total", "each", "surplus"),
    [
        (100, 100, {}),
        (100, 10, {"ann": 20}),
        (12, 100, {"ann": 24, "bob": 2}),
        (2, 100, {"ann": 29, "bob": 6, "cid": 1}),
        (3, 1, {"ann": 29, "bob": 6}),
        (0, 100, {"ann": 30, "bob": 7, "cid": 1}),
    ],
)
def test_the_owner_with_most_tasks_loses_tasks_first(total: int, each: int, surplus: dict[str, int]) -> None:
    assert surplus_of({"ann": 30, "bob": 7, "cid": 1}, Quota(total, each)) == surplus


@pytest.mark.parametrize(
    "values",
    [
        (-1, Quota(1, 1), 1),
        (1, Quota(-1, 1), 1),
        (1, Quota(1, -1), 1),
        (1, Quota(1, 1), 0),
        (1, Quota(1, 1, 1, -1), 1),
    ],
)
def test_an_invalid_retention_is_refused(values: tuple[float, Quota, float]) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Retention(*values)
