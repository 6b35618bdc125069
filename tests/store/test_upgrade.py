"""The tables of a store in PostgreSQL, from one release to the next and back, while replicas write.

The next releases are this one with another list of steps: one that older releases do not notice, and one that they
cannot bear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.abc
import psycopg
import pytest

from bridge.errors import StoreError, StoreLockedError, UsageError, fault_policy_of
from bridge.store.postgres.bounds import Lease
from bridge.store.postgres.connections import DatabaseAddress
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import AGENT, Namespace, Step, Tables
from bridge.store.postgres.upgrade import Migration, migrate
from bridge.store.records import Change
from tests.store.changes import first, keep, keep_all
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.postgres import bounds_with, database_url, new_agent
from tests.support.postgres_cluster import PostgresCluster, gate_before, socket_of
from tests.support.replicas import Recorder

ADDS: Final = Tables(
    (
        *AGENT.steps,
        Step("ALTER TABLE {ns}.tasks ADD COLUMN note text; CREATE TABLE {ns}.notes (note text PRIMARY KEY);"),
    )
)
BREAKS: Final = Tables(
    (*AGENT.steps, Step("ALTER TABLE {ns}.messages RENAME accepted_ms TO taken_ms;", is_breaking=True))
)

PATIENT: Final = bounds_with(lease=Lease(beat_seconds=0.05, grace_seconds=20.0, silence_seconds=20.0))
"""Bounds with which no replica on a busy machine counts as dead."""


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """Bound the time of each test."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


def version_of(agent: str) -> tuple[int, int]:
    with psycopg.connect(database_url()) as connection:
        text = Namespace.of(agent).sql("SELECT version, readable_by FROM {ns}.store")
        row = connection.execute(text).fetchone()
    assert row is not None
    return row[0], row[1]


@dataclass
class Running:
    """A replica that writes to its own task."""

    epoch: int
    _enough: anyio.Event
    _ended: anyio.Event

    async def stop(self) -> None:
        """Stop the replica."""
        self._enough.set()
        await self._ended.wait()


async def migrated(cluster: PostgresCluster) -> Migration:
    """Update the tables of a cluster with a breaking step."""
    address, place = DatabaseAddress.of(database_url(), None), Namespace.of(cluster.agent)
    return await migrate(address, place, BREAKS, cluster.bounds)


class Fleet:
    """Replicas of an agent, each of which writes to its own task while it lives."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self.agent = new_agent()
        self.acknowledged: Counter[str] = Counter()
        self._group = group

    def store(self, tables: Tables = AGENT) -> PostgresStore:
        """The store of another replica, not yet entered."""
        return PostgresStore(database_url(), self.agent, PATIENT, tables=tables)

    async def migrate(
        self,
        tables: Tables,
        *,
        wait_seconds: float = 0.0,
        dry_run: bool = False,
        on_wait: Callable[[StoreLockedError], None] = lambda _: None,
    ) -> Migration:
        """Make or update the tables."""
        return await migrate(
            DatabaseAddress.of(database_url(), None),
            Namespace.of(self.agent),
            tables,
            PATIENT,
            wait_seconds=wait_seconds,
            dry_run=dry_run,
            on_wait=on_wait,
        )

    async def start(self, tables: Tables = AGENT) -> Running:
        """Start another replica, of a release that knows these tables."""
        running: Running = await self._group.start(self._live, tables)
        await self.goes_on()
        return running

    async def _live(self, tables: Tables, *, task_status: anyio.abc.TaskStatus[Running]) -> None:
        enough, ended = anyio.Event(), anyio.Event()
        async with self.store(tables) as store:
            task_status.started(Running(int(store.replicas.epoch), enough, ended))
            task_id = f"task-{store.replicas.epoch}"
            await keep(store, first(task_id, context_id=task_id))
            self.acknowledged[task_id] = 1
            while not enough.is_set():
                seq = self.acknowledged[task_id] + 1
                await keep(store, Change(task_id, seq, b"%d" % seq))
                self.acknowledged[task_id] = seq
        ended.set()

    async def goes_on(self) -> None:
        """Wait until more events are acknowledged."""
        wanted = self.acknowledged.total() + 10
        while self.acknowledged.total() < wanted:
            await anyio.sleep(0.001)

    async def require_all(self, tables: Tables) -> None:
        """Require each acknowledged event exactly once, and in order."""
        async with self.store(tables) as store:
            for task_id, seq in self.acknowledged.items():
                task = await store.load(task_id)
                assert task is not None
                assert task.events == tuple(b"%d" % number for number in range(2, seq + 1))


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with anyio.create_task_group() as group:
        yield Fleet(group)


@pytest.mark.proves("replicas-one-agent")
async def test_two_replicas_roll_forward_and_back_while_they_write(fleet: Fleet) -> None:
    replicas = [await fleet.start(), await fleet.start()]
    for tables in (ADDS, AGENT):
        for old in tuple(replicas):
            await old.stop()
            replicas.remove(old)
            replicas.append(await fleet.start(tables))
        assert version_of(fleet.agent) == (ADDS.version, 1)
    for last in replicas:
        await last.stop()
    await fleet.require_all(AGENT)
    await fleet.require_all(ADDS)


async def test_a_breaking_change_waits_until_no_replica_lives(
    fleet: Fleet,
) -> None:
    one, two = await fleet.start(), await fleet.start()
    with pytest.raises(UsageError, match=r"stop all bridges .* run `mcp-a2a store migrate FILE`"):
        await fleet.store(BREAKS).__aenter__()
    with pytest.raises(StoreLockedError, match=r"^2 bridges use the store .*, since 20.* UTC: stop them"):
        await fleet.migrate(BREAKS)
    assert version_of(fleet.agent) == (AGENT.version, 1)
    await fleet.goes_on()
    in_the_way: list[str] = []

    async def wait() -> None:
        await fleet.migrate(
            BREAKS, wait_seconds=PATIENCE_SECONDS, on_wait=lambda users: in_the_way.append(str(users)[:9])
        )

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        for replica, words in ((one, "2 bridges"), (two, "1 bridge ")):
            while words not in in_the_way:
                await fleet.goes_on()
            await replica.stop()
    assert version_of(fleet.agent) == (BREAKS.version, BREAKS.version)
    await fleet.require_all(BREAKS)


async def test_an_older_release_refuses_newer_tables_with_a_hint(
    fleet: Fleet,
) -> None:
    assert (await fleet.migrate(BREAKS)).after == BREAKS.version
    with pytest.raises(UsageError, match="Start such a release, or restore an earlier backup") as refused:
        await fleet.store().__aenter__()
    assert fault_policy_of(refused.value).exit_code == 2
    with pytest.raises(UsageError, match="written by a newer release"):
        await fleet.migrate(AGENT)


async def test_a_start_without_rights_on_the_tables_names_the_command_to_run(fleet: Fleet) -> None:
    await fleet.migrate(AGENT)
    role = Namespace.of(fleet.agent).name
    with psycopg.connect(database_url(), autocommit=True) as connection:
        for text in ("CREATE ROLE {}", "ALTER ROLE {} LOGIN", "GRANT USAGE ON SCHEMA {} TO {}"):
            connection.execute(text.replace("{}", role))  # type: ignore[call-overload]
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {role} TO {role}")  # type: ignore[call-overload]
    url = database_url().replace("postgres@", f"{role}@")
    with pytest.raises(UsageError, match=r"run `mcp-a2a store migrate FILE --store-url env:NAME`"):
        await PostgresStore(url, fleet.agent, PATIENT, tables=ADDS).__aenter__()
    await fleet.migrate(ADDS)
    async with PostgresStore(url, fleet.agent, PATIENT) as store:
        await keep(store, first("t1"))


@pytest.mark.parametrize(("tables", "is_breaking"), [(ADDS, False), (BREAKS, True)])
async def test_a_dry_run_reports_the_change_and_the_live_replicas(
    fleet: Fleet, tables: Tables, is_breaking: bool
) -> None:
    name = Namespace.of(fleet.agent).name
    assert await fleet.migrate(tables, dry_run=True) == Migration(name, 0, tables.version, is_breaking=False)
    running = await fleet.start()
    said = await fleet.migrate(tables, dry_run=True)
    assert [one.epoch for one in said.living] == ([running.epoch] if is_breaking else [])
    assert replace(said, living=()) == Migration(name, AGENT.version, tables.version, is_breaking)
    assert version_of(fleet.agent) == (AGENT.version, 1)
    await running.stop()


async def test_dead_replicas_do_not_block_a_change() -> None:
    cluster = PostgresCluster()
    async with cluster.replica() as store:
        cluster.kill(store)
        done = await migrated(cluster)
        assert (done.before, done.after) == (AGENT.version, BREAKS.version)


async def test_a_replica_that_stalled_during_a_change_cannot_use_the_tables() -> None:
    cluster = PostgresCluster(bounds_with(lease=Lease(0.05, 0.3, 0.6)))
    async with cluster.replica() as store:
        engine = Recorder()
        store.replicas.start(engine)
        await keep(store, first("t1"))
        epoch = store.replicas.epoch
        cluster.pause(store)
        await migrated(cluster)
        cluster.resume(store)
        (refused,) = await keep_all(store, Change("t1", 2, b"late"))
        assert isinstance(refused, StoreError)
        while store.failure is None:
            await anyio.sleep(0.01)
        assert "a newer release has changed the tables" in store.failure
        assert (store.replicas.epoch, engine.fences) == (epoch, 1)


async def test_too_new_tables_are_logged_also_after_an_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, bounds = new_agent(), bounds_with(lease=Lease(0.05, 0.3, 0.6))
    async with (
        gate_before(socket_of(database_url())) as gate,
        PostgresStore(gate.url, agent, bounds) as store,
    ):
        gate.refuse()
        with anyio.fail_after(PATIENCE_SECONDS):
            while store.failure is None:
                await anyio.sleep(0.01)
        await migrate(DatabaseAddress.of(database_url(), None), Namespace.of(agent), BREAKS, bounds)
        gate.accept()
        with anyio.fail_after(PATIENCE_SECONDS):
            while "a newer release" not in (store.failure or ""):
                await anyio.sleep(0.01)
    told = [one.getMessage() for one in caplog.records if "out of service" in one.getMessage()]
    assert ["a newer release has changed the tables" in one for one in told] == [False, True]
