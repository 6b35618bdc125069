"""Webhooks and the outbox, tested on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from bridge.errors import StoreConflictError
from bridge.store.contract import Store
from bridge.store.moving import move
from bridge.store.outbox import OutboxRow, Webhook, WebhookKey, WebhookLimitError, WebhookLimits
from bridge.store.postgres.store import PostgresStore
from bridge.store.records import Change, Quota, TaskHead
from bridge.store.sqlite import SQLiteStore
from tests.store.changes import first, keep, keep_all
from tests.store.test_store import STORES
from tests.support.postgres import BOUNDS, database_url, new_agent
from tests.support.postgres_cluster import PostgresCluster
from tests.support.replicas import Recorder

LIMITS: Final = WebhookLimits(each_task=2, each_owner=3)
COMPLETED: Final = TaskHead("completed", ended=True, status_ms=30)
ALL_GONE: Final = Quota(0, 0)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path) as made:
        yield made


def webhook(task_id: str = "t1", webhook_id: str = "w1", *, owner: str = "ann", made_ms: int = 10) -> Webhook:
    return Webhook(WebhookKey(task_id, webhook_id), owner, made_ms, b"sealed " + webhook_id.encode())


def event(seq: int, task_id: str = "t1") -> Change:
    return Change(task_id, seq, b"event %d" % seq)


def end(seq: int, task_id: str = "t1") -> Change:
    return Change(task_id, seq, b"the end", head=COMPLETED, snapshot=b"task as it ended")


async def rows_of(store: Store, key: WebhookKey) -> list[OutboxRow]:
    """The rows of a webhook. Reading removes them."""
    rows = []
    while (row := await store.outbox.first(key)) is not None:
        rows.append(row)
        await store.outbox.sent(key, row.seq)
    return rows


async def waiting(store: Store) -> dict[WebhookKey, int]:
    return {one.webhook.key: one.rows for one in await store.outbox.waiting()}


async def test_an_event_waits_for_each_webhook_of_its_task(store: Store) -> None:
    one, other = webhook(), webhook(webhook_id="w2", made_ms=11)
    await keep(store, replace(first("t1"), webhook=one), first("t2"))
    assert await store.outbox.add(other, LIMITS) is False
    await keep(store, event(2), event(2, "t2"), end(3))
    assert await store.outbox.of_task("t1") == [one, other]
    assert await waiting(store) == {one.key: 3, other.key: 2}
    assert await rows_of(store, one.key) == [(1, b"made"), (2, b"event 2"), (3, b"the end")]
    assert await rows_of(store, other.key) == [(2, b"event 2"), (3, b"the end")]
    assert await store.outbox.of_task("t2") == []


async def test_a_refused_event_waits_for_no_webhook(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    (error,) = await keep_all(store, event(3))
    assert isinstance(error, StoreConflictError)
    assert await waiting(store) == {webhook().key: 1}


async def test_new_rows_are_reported_with_their_tasks(store: Store) -> None:
    told: list[set[str] | None] = []
    heard = anyio.Event()

    def on_rows(task_ids: object) -> None:
        told.append(None if task_ids is None else set(task_ids))  # type: ignore[call-overload]
        if task_ids is not None:
            heard.set()

    store.outbox.listen(on_rows)
    await keep(store, first("t2"), replace(first("t1"), webhook=webhook()))
    with anyio.fail_after(30):
        await heard.wait()
    assert [task_ids for task_ids in told if task_ids is not None] == [{"t1"}]


async def test_a_webhook_of_an_ended_task_gets_a_put_row_once(store: Store) -> None:
    await keep(store, first("t1"), end(2))
    assert await store.outbox.add(webhook(), LIMITS) is True
    await store.outbox.put(webhook().key, OutboxRow(2, b"the whole task"))
    await store.outbox.put(webhook().key, OutboxRow(2, b"the same again"))
    assert await rows_of(store, webhook().key) == [(2, b"the whole task")]


async def test_a_webhook_of_an_unknown_task_is_refused(store: Store) -> None:
    with pytest.raises(StoreConflictError):
        await store.outbox.add(webhook(), LIMITS)


async def test_a_webhook_replaces_another_with_its_id_and_keeps_the_rows(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    await store.outbox.failed(webhook().key, 3, 99, "it said 500")
    newer = replace(webhook(), config=b"newer")
    await store.outbox.add(newer, LIMITS)
    assert await store.outbox.of_task("t1") == [newer]
    assert await rows_of(store, newer.key) == [(1, b"made")]


async def test_webhooks_of_a_task_and_of_an_owner_are_bounded(store: Store) -> None:
    await keep(store, *map(first, ("t1", "t2", "t3")), first("u1", owner="ben", context_id="ben's"))
    for each in ("w1", "w2", "w2"):
        await store.outbox.add(webhook(webhook_id=each), LIMITS)
    with pytest.raises(WebhookLimitError, match="the task has 2"):
        await store.outbox.add(webhook(webhook_id="w3"), LIMITS)
    await store.outbox.add(webhook("t2"), LIMITS)
    with pytest.raises(WebhookLimitError, match="you have 3"):
        await store.outbox.add(webhook("t3"), LIMITS)
    await store.outbox.add(webhook("u1", owner="ben"), LIMITS)
    assert await store.outbox.count_of("ann") == 3
    await keep(store, end(2, "t2"))
    await rows_of(store, webhook("t2").key)
    assert await store.outbox.count_of("ann") == 2
    await store.outbox.add(webhook("t3"), LIMITS)


async def test_removing_a_webhook_removes_its_rows(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    assert await store.outbox.remove(webhook().key) is True
    assert await store.outbox.remove(webhook().key) is False
    await keep(store, event(2))
    assert await waiting(store) == {}
    assert await store.outbox.first(webhook().key) is None


async def test_failures_are_noted_until_a_row_is_sent(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    await store.outbox.failed(webhook().key, 2, 5000, "it cannot be reached")
    failed = replace(webhook(), attempts=2, due_ms=5000, failure="it cannot be reached")
    assert await store.outbox.of_task("t1") == [failed]
    await store.outbox.sent(webhook().key, 1)
    assert await store.outbox.of_task("t1") == [webhook()]


async def test_a_webhook_that_is_given_up_gets_no_rows_and_keeps_the_reason(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    await store.outbox.give_up(webhook().key, "it said 410")
    await keep(store, event(2))
    assert await waiting(store) == {}
    given_up = replace(webhook(), failure="it said 410", is_given_up=True)
    assert await store.outbox.of_task("t1") == [given_up]


async def test_rows_are_folded_after_the_first_row(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()), *(event(seq) for seq in range(2, 7)))
    await store.outbox.fold(webhook().key, OutboxRow(5, b"the task as of 5"))
    assert await rows_of(store, webhook().key) == [
        (1, b"made"),
        (5, b"the task as of 5"),
        (6, b"event 6"),
    ]


async def test_a_first_row_alone_is_never_folded(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()))
    await store.outbox.fold(webhook().key, OutboxRow(1, b"the task as of 1"))
    assert await rows_of(store, webhook().key) == [(1, b"made")]


async def test_an_ended_task_stays_while_its_events_are_to_be_sent(store: Store) -> None:
    await keep(store, replace(first("t1"), webhook=webhook()), first("t2"), end(2), end(2, "t2"))
    assert await store.evict(1000, ALL_GONE) == 1
    assert await store.load("t1") is not None
    await rows_of(store, webhook().key)
    assert await store.evict(1000, ALL_GONE) == 1
    assert await store.outbox.of_task("t1") == []


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_the_outbox_moves_with_its_tasks(name: str, tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "first.db") as store:
        await keep(store, replace(first("t1"), webhook=webhook()), event(2))
        await store.outbox.failed(webhook().key, 1, 40, "it said 500")
    target = {
        "sqlite": lambda: SQLiteStore(tmp_path / "second.db"),
        "postgres": lambda: PostgresStore(database_url(), new_agent(), BOUNDS),
    }[name]()
    source = SQLiteStore(tmp_path / "first.db")
    async with source.contents(create=False) as given, target.contents(create=True) as taken:
        await move(given, taken)
    async with target as store:
        assert await store.outbox.of_task("t1") == [
            replace(webhook(), attempts=1, due_ms=40, failure="it said 500")
        ]
        with anyio.fail_after(30):
            while not await waiting(store):  # until this replica has claimed what nobody had
                await anyio.sleep(0.01)
        assert await rows_of(store, webhook().key) == [(1, b"made"), (2, b"event 2")]


async def test_a_reopened_file_has_its_outbox(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        await keep(store, replace(first("t1"), webhook=webhook()))
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        await keep(store, event(2))
        assert await rows_of(store, webhook().key) == [(1, b"made"), (2, b"event 2")]


@pytest.mark.proves("replicas-one-holder")
async def test_another_replica_sends_to_the_webhooks_of_a_dead_replica() -> None:
    cluster = PostgresCluster()
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(cluster.replica()) for _ in range(2)]
        for member in (one, two):
            assert member.replicas is not None
            member.replicas.start(Recorder())
        await keep(one, replace(first("t1"), webhook=webhook()), end(2))
        assert await waiting(one) == {webhook().key: 2}
        assert await waiting(two) == {}
        cluster.kill(one)
        with anyio.fail_after(30):
            while not await waiting(two):
                await anyio.sleep(0.01)
        assert await rows_of(two, webhook().key) == [(1, b"made"), (2, b"the end")]


@pytest.mark.proves("replicas-one-holder")
async def test_a_fenced_replica_finds_no_rows_and_changes_none() -> None:
    cluster = PostgresCluster()
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(cluster.replica()) for _ in range(2)]
        for member in (one, two):
            assert member.replicas is not None
            member.replicas.start(Recorder())
        await keep(one, replace(first("t1"), webhook=webhook()), end(2))
        cluster.pause(one)
        cluster.notice(one)
        with anyio.fail_after(30):
            while not await waiting(two):
                await anyio.sleep(0.01)
        cluster.resume(one)
        assert await one.outbox.first(webhook().key) is None
        await one.outbox.sent(webhook().key, 1)
        await one.outbox.failed(webhook().key, 5, 5, "it said 500")
        await one.outbox.give_up(webhook().key, "it said 410")
        assert await two.outbox.of_task("t1") == [webhook()]
        assert await rows_of(two, webhook().key) == [(1, b"made"), (2, b"the end")]


async def test_a_replica_is_notified_of_rows_that_another_replica_stored() -> None:
    cluster = PostgresCluster()
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(cluster.replica()) for _ in range(2)]
        heard = anyio.Event()
        await keep(one, first("t1"))
        await two.outbox.add(webhook(), LIMITS)
        two.outbox.listen(lambda task_ids: heard.set() if task_ids else None)
        await keep(one, event(2))
        with anyio.fail_after(30):
            await heard.wait()
        assert await waiting(two) == {webhook().key: 1}
