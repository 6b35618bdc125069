"""The contents of a store: every store reads and writes them, and they move from one store to another."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import psycopg
import pytest

from bridge.errors import StoreError, StoreLockedError, UsageError
from bridge.store import moving
from bridge.store.contract import Store, StoreContents
from bridge.store.moving import Moved
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import Namespace
from bridge.store.records import (
    Change,
    MessageKey,
    Query,
    StoredMessage,
    StoredTask,
    TaskHead,
    TaskOrigin,
    WholeTask,
    WrittenAnswer,
)
from bridge.store.sqlite import SQLiteStore
from bridge.store.sqlite_schema import APPLICATION_ID, STEPS
from tests.store.changes import first, keep, keep_all
from tests.store.test_store import STORES
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.postgres import BOUNDS, database_url, new_agent
from tests.support.replicas import Recorder

LASTING: Final = ("sqlite", "postgres")
WAITING: Final = TaskHead("input-required", ended=False, status_ms=25)


def whole(
    task_id: str,
    head: TaskHead = WAITING,
    *,
    owner: str = "ann",
    events: Sequence[bytes] = (b"two", b"three"),
    messages: Sequence[str] = ("m1",),
) -> WholeTask:
    task = StoredTask(
        task_id=task_id,
        origin=TaskOrigin(f"talk of {owner}", owner, 10),
        head=head,
        seq=7 + len(events),
        snapshot=b"\x00 as of seven",
        events=tuple(events),
        private=b"\xff of the worker",
    )
    said = (StoredMessage(task_id, MessageKey(f"{task_id} {name}", b"\x01 digest", 11)) for name in messages)
    return WholeTask(task, tuple(said))


WHOLE: Final = (
    whole("B", messages=("M", "a", "\u00e9")),
    whole("_", TaskHead("completed", ended=True, status_ms=30), events=()),
    whole("a", TaskHead("failed", ended=True, status_ms=31), owner="bob", messages=()),
    replace(whole("b"), task=replace(whole("b").task, private=b"")),
    whole("\u00e9", TaskHead("working", ended=False, status_ms=26), events=[b"%d" % n for n in range(300)]),
    whole("\uffef"),
    whole("\U0001f98a", owner="bob"),
)
"""Tasks ordered by the code points of their ids, which no language orders so."""


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """Bound the time of each test."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Store]:
    """Makes new stores of a kind, each separate and not yet entered."""
    places: list[Path] = []

    def made(kind: str) -> Store:
        places.append(tmp_path / f"{len(places)}")
        return STORES[kind](places[-1])

    return made


async def filled(store: Store, tasks: Sequence[WholeTask] = WHOLE) -> Store:
    async with store.contents(create=True) as contents:
        await contents.add(tasks)
    return store


async def moved(
    source: Store, target: Store, progress: Callable[[str, int], None] = lambda *_: None
) -> Moved:
    async with target.contents(create=True) as new, source.contents(create=False) as old:
        return await moving.move(old, new, progress)


async def read(store: Store) -> list[WholeTask]:
    """The contents of a store, without the data that stores without replicas drop."""
    async with store.contents(create=False) as contents:
        tasks = [task async for task in contents.tasks()]
        assert await contents.count() == len(tasks)
    return [as_kept_by_all(task) for task in tasks]


def as_kept_by_all(task: WholeTask) -> WholeTask:
    messages = (replace(message, age_ms=None, answer=None) for message in task.messages)
    return replace(task, messages=tuple(messages))


@pytest.mark.proves("store-contract")
async def test_tasks_move_between_stores_unchanged(make: Callable[[str], Store]) -> None:
    stores = [await filled(make("memory"))]
    for kind in ("sqlite", "postgres", "sqlite", "memory"):
        stores.append(make(kind))
        for is_repeat in (False, True):
            assert await moved(stores[-2], stores[-1]) == Moved(len(WHOLE), 5, is_repeat)
    assert [await read(store) for store in stores] == [[*WHOLE]] * len(stores)


@pytest.mark.parametrize("kind", STORES)
async def test_submitted_tasks_are_read_complete(kind: str, make: Callable[[str], Store]) -> None:
    store = make(kind)
    async with store:
        await keep(
            store,
            first("t1", message=MessageKey("m1", b"one", 5)),
            Change("t1", 2, b"two", snapshot=b"at two", private=b"mine"),
            Change("t1", 3, b"three", head=WAITING, message=MessageKey("m2", b"two", 6)),
            first("t2", message=MessageKey("m1", b"again", 7), replaces="t1"),
        )
    one, two = await read(store)
    assert one == WholeTask(
        StoredTask("t1", TaskOrigin("talk", "ann", 10), WAITING, 3, b"at two", (b"three",), b"mine"),
        (StoredMessage("t1", MessageKey("m2", b"two", 6)),),
    )
    assert two.messages == (StoredMessage("t2", MessageKey("m1", b"again", 7)),)


@pytest.mark.parametrize("kind", STORES)
async def test_a_store_continues_added_tasks(kind: str, make: Callable[[str], Store]) -> None:
    async with await filled(make(kind)) as store:
        if store.replicas is not None:
            engine = Recorder()
            store.replicas.start(engine)
            await engine.until(lambda one: len(one.adopted) == 5)
            assert await store.replicas.open_of("ann") == 4
        loaded = await store.load("B")
        assert loaded is not None
        assert replace(loaded, holder=None) == WHOLE[0].task
        page = await store.list(Query("ann", 2, state="input-required"))
        assert ([task.task_id for task in page.tasks], page.total) == (["\uffef", "b"], 3)
        found = await store.find_message("ann", "B M")
        assert found is not None
        assert (found.task_id, found.key) == ("B", MessageKey("B M", b"\x01 digest", 11))
        assert await store.context_owner("talk of bob") == "bob"
        assert await store.waiting(["input-required"]) == dict.fromkeys(
            ("B", "b", "\uffef", "\U0001f98a"), 25
        )
        await keep(store, Change("B", 10, b"ten", head=TaskHead("completed", ended=True, status_ms=40)))
        assert [type(error) for error in await keep_all(store, Change("_", 8, b"late"))] != [type(None)]
        page = await store.list(Query("ann", 9))
        assert (page.tasks[0].task_id, page.total) == ("B", 5)


@pytest.mark.parametrize("kind", STORES)
async def test_all_added_tasks_are_kept_or_none(kind: str, make: Callable[[str], Store]) -> None:
    store = await filled(make(kind), WHOLE[:1])

    async def add_one_twice() -> None:
        async with store.contents(create=True) as contents:
            await contents.add(WHOLE[1:3])
            await contents.add(WHOLE[:1])

    with pytest.raises(StoreError):
        await add_one_twice()
    assert await read(store) == [WHOLE[0]]


@pytest.mark.parametrize("kind", LASTING)
async def test_a_store_that_a_bridge_uses_is_neither_read_nor_written(
    kind: str, make: Callable[[str], Store], tmp_path: Path
) -> None:
    store, agent = make(kind), new_agent()
    second = SQLiteStore(tmp_path / "0" / "tasks.db") if kind == "sqlite" else None
    if second is None:
        store, second = (PostgresStore(database_url(), agent, BOUNDS) for _ in range(2))
    async with store:
        await keep(store, first("t1"))
        for create in (False, True):
            with pytest.raises(StoreLockedError):
                await second.contents(create=create).__aenter__()
        await keep(store, Change("t1", 2, b"two"))
    assert [task.task.seq for task in await read(second)] == [2]


@pytest.mark.parametrize("kind", LASTING)
async def test_reading_a_missing_store_does_not_create_it(
    kind: str, make: Callable[[str], Store], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="there is no store"):
        await make(kind).contents(create=False).__aenter__()
    assert [*tmp_path.iterdir()] == []


async def test_a_moved_file_stays_unchanged_also_from_an_older_release(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    await filled(SQLiteStore(path))
    older = tmp_path / "older.db"
    with sqlite3.connect(path) as made, sqlite3.connect(older) as connection:
        connection.executescript(
            f"{STEPS[0]} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
        )
        for table in ("tasks", "snapshots", "events", "privates", "messages"):
            rows = made.execute(f"SELECT * FROM {table}").fetchall()
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    made.close()
    connection.close()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert before.keys() == {path, older}
    for file in before:
        assert await read(SQLiteStore(file)) == [*WHOLE]
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


async def test_the_log_that_a_crash_left_is_read(tmp_path: Path) -> None:
    path, crashed = tmp_path / "tasks.db", tmp_path / "crashed.db"
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", f"{crashed}{ending}")
    assert [task.task.task_id for task in await read(SQLiteStore(crashed))] == ["t1"]


async def test_the_target_of_a_move_must_be_empty(make: Callable[[str], Store]) -> None:
    source, target = await filled(make("memory")), await filled(make("sqlite"), WHOLE[:1])
    with pytest.raises(UsageError, match="has a task already: name a store without tasks"):
        await moved(source, target)
    assert await read(target) == [WHOLE[0]]


class Forgetful:
    """A store that changes what it is given."""

    def __init__(self, kept: StoreContents, change: Callable[[WholeTask], list[WholeTask]]) -> None:
        self._kept = kept
        self._change = change
        self.count = kept.count
        self.tasks = kept.tasks

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add the changed tasks."""
        await self._kept.add([made for task in tasks for made in self._change(task)])


CHANGES: Final[dict[str, Callable[[WholeTask], list[WholeTask]]]] = {
    "a lost task": lambda task: [task] if task.task.task_id != "b" else [],
    "a lost last task": lambda task: [task] if task.task.task_id != "\U0001f98a" else [],
    "a task of its own": lambda task: [task, *([whole("z")] if task.task.task_id == "b" else [])],
    "a lost message": lambda task: [replace(task, messages=task.messages[:1])],
    "another event": lambda task: [replace(task, task=replace(task.task, events=task.task.events[:1]))],
    "another state": lambda task: [replace(task, task=replace(task.task, head=WAITING))],
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_move_compares_every_task_and_keeps_nothing_if_one_differs(
    change: str, make: Callable[[str], Store]
) -> None:
    source, target = await filled(make("memory")), make("sqlite")
    with pytest.raises(StoreError, match="nothing was moved"):
        async with source.contents(create=False) as one, target.contents(create=True) as two:
            await moving.move(one, Forgetful(two, CHANGES[change]))
    assert await read(target) == []


async def test_the_memory_of_a_move_is_bounded(make: Callable[[str], Store]) -> None:
    large = [whole(f"t{number}", events=[b"x" * moving.ADDED_BYTES]) for number in range(3)]
    small = [whole(f"u{number:04}") for number in range(moving.ADDED_AT_ONCE + 5)]
    source, target = await filled(make("sqlite"), [*large, *small]), make("memory")
    told: list[tuple[str, int]] = []
    await moved(source, target, lambda *done: told.append(done))
    assert told == [
        *(("added", number) for number in (1, 2, 3, 3 + moving.ADDED_AT_ONCE, 3 + len(small))),
        ("compared", moving.ADDED_AT_ONCE),
    ]


async def test_a_database_has_statistics_right_after_a_move() -> None:
    agent = new_agent()
    await filled(PostgresStore(database_url(), agent, BOUNDS))
    with psycopg.connect(database_url()) as connection:
        tasks = (f"{Namespace.of(agent).name}.tasks",)
        found = connection.execute(
            "SELECT reltuples FROM pg_class WHERE oid = %s::regclass", tasks
        ).fetchone()
    assert found == (len(WHOLE),)


async def test_a_bridge_that_starts_during_a_move_waits_for_its_end() -> None:
    agent = new_agent()
    lock = Namespace.of(agent).lock % 2**32
    adopted: list[StoredTask] = []

    async def start() -> None:
        async with PostgresStore(database_url(), agent, BOUNDS) as store:
            engine = Recorder()
            store.replicas.start(engine)
            await engine.until(lambda one: len(one.adopted) == 5)
            adopted.extend(engine.adopted)

    waits = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND classid::bigint = %s"
    async with (
        anyio.create_task_group() as group,
        PostgresStore(database_url(), agent, BOUNDS).contents(create=True) as contents,
    ):
        await contents.add(WHOLE[:3])
        group.start_soon(start)
        with psycopg.connect(database_url(), autocommit=True) as connection:
            while connection.execute(waits, (lock,)).fetchone() is None:
                await anyio.sleep(0.01)
        await contents.add(WHOLE[3:])
    assert {task.task_id for task in adopted} == {"B", "b", "\u00e9", "\uffef", "\U0001f98a"}


async def test_one_database_is_not_moved_to_itself() -> None:
    agent = new_agent()
    one, two = (PostgresStore(database_url(), agent, BOUNDS) for _ in range(2))
    await filled(one)
    with pytest.raises(StoreLockedError, match="is being changed"):
        await moved(one, two)


async def test_ages_and_answers_of_messages_go_from_one_database_to_another() -> None:
    answer = WrittenAnswer(at_ms=12, is_repeatable=True, age_ms=600_000)
    message = StoredMessage("t", MessageKey("m", b"d", 11), age_ms=900_000, answer=answer)
    stores = [PostgresStore(database_url(), new_agent(), BOUNDS) for _ in range(2)]
    await filled(stores[0], [replace(whole("t"), messages=(message,))])
    await moved(stores[0], stores[1])
    async with stores[1] as store:
        found = await store.find_message("ann", "m")
    assert found is not None
    assert found.answer is not None
    assert found.age_ms is not None
    assert 900_000 <= found.age_ms < 900_000 + PATIENCE_SECONDS * 1000
    assert 600_000 <= found.answer.age_ms < 600_000 + PATIENCE_SECONDS * 1000
    assert (found.answer.at_ms, found.answer.is_repeatable) == (12, True)
