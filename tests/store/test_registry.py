"""The list of replicas in PostgreSQL: who lives, at which address, and with which plan."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import anyio
import psycopg
import pytest

from bridge.errors import StoreError, UsageError
from bridge.store.postgres.registry_rows import PostgresRegistry
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import Namespace
from bridge.store.registry import ReplicaEntry
from bridge.telemetry.database_sight import DatabaseSight
from tests.support.postgres import BOUNDS, database_url, new_agent, new_database_url
from tests.support.postgres_cluster import Gate, gate_before, socket_of

WAIT_SECONDS = 30


@dataclass
class Listed:
    """A replica in the list, and its connection to the database."""

    registry: PostgresRegistry
    gate: Gate
    starts: dict[int, UUID]
    """The starts of its epochs."""

    def entry(self, address: str | None = None, *plans: bytes) -> ReplicaEntry:
        """The entry of its epoch that the others see, some heartbeats after the epoch began."""
        epoch = self.registry.epoch
        return ReplicaEntry(address, b"proof %d" % epoch, self.starts[epoch], frozenset(plans), b"")

    async def until(self, holds: Callable[[PostgresRegistry], bool]) -> None:
        """Wait until a condition holds for what it sees."""
        with anyio.fail_after(WAIT_SECONDS):
            while not holds(self.registry):
                await anyio.sleep(0.01)


@asynccontextmanager
async def listed(url: str, address: str | None = None) -> AsyncIterator[Listed]:
    """A replica that is in the list while this context is open."""
    behind = socket_of(database_url())
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-") as folder:
        gate = Gate(Path(folder), behind)
        await gate.start()
        own = url.replace(f"host={Path(behind).parent}", f"host={folder}")
        starts = {}

        def entry_of(epoch: int, start: UUID) -> ReplicaEntry:
            starts[epoch] = start
            return ReplicaEntry(address, b"proof %d" % epoch, start)

        try:
            async with PostgresRegistry(own, BOUNDS, entry_of) as registry:
                yield Listed(registry, gate, starts)
                gate.open()
        finally:
            await gate.stop()


async def test_replicas_see_the_entries_of_each_other() -> None:
    url = new_database_url()
    async with listed(url, "http://one") as one, listed(url) as two:
        first, second = one.registry.epoch, two.registry.epoch
        one.registry.publish(frozenset({b"a", b"b"}))
        await two.until(lambda registry: registry.others == {first: one.entry("http://one", b"a", b"b")})
        await one.until(lambda registry: registry.others == {second: two.entry()})
        assert one.registry.is_mine(first)
        assert not one.registry.is_mine(second)


def told_of(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if words in one.getMessage() and one.name.startswith("bridge.") and one.levelno >= logging.INFO
    ]


async def test_a_replica_that_is_gone_is_logged_once_with_its_url(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.store")
    url = new_database_url()
    async with listed(url) as one, listed(url, "http://two.example") as two:
        epoch = two.registry.epoch
        await one.until(lambda registry: epoch in registry.others)
        two.gate.refuse()
        await one.until(lambda registry: epoch not in registry.others)
        (line,) = told_of(caplog, "http://two.example")
        assert line == (
            f"the replica at http://two.example (epoch {epoch}) is gone; this or another replica continues its tasks"
        )


async def test_a_replica_that_stops_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.store")
    url = new_database_url()
    async with listed(url) as one:
        async with listed(url, "http://two.example") as two:
            epoch = two.registry.epoch
            await one.until(lambda registry: epoch in registry.others)
        await one.until(lambda registry: epoch not in registry.others)
    (line,) = (one for one in caplog.records if "http://two.example" in one.getMessage())
    assert (line.levelno, "has stopped" in line.getMessage()) == (logging.INFO, True)


async def test_an_outage_of_the_database_gets_one_line_at_its_start_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bridge.telemetry")
    sight = DatabaseSight()
    async with gate_before(socket_of(database_url())) as gate, AsyncExitStack() as stack:
        users: list[PostgresRegistry | PostgresStore] = [
            await stack.enter_async_context(PostgresStore(gate.url, new_agent(), BOUNDS, sight=sight))
            for _ in range(3)
        ]
        nowhere = partial(ReplicaEntry, None, b"")
        registry = PostgresRegistry(gate.url, BOUNDS, lambda _, start: nowhere(start), sight=sight)
        users.append(await stack.enter_async_context(registry))
        for _ in range(2):
            caplog.clear()
            gate.refuse()
            with anyio.fail_after(WAIT_SECONDS):
                while any(user.failure is None for user in users):
                    await anyio.sleep(0.01)
            (line,) = told_of(caplog, "")
            assert "this replica is out of service, and nothing is acknowledged until it is back" in line
            gate.accept()
            with anyio.fail_after(WAIT_SECONDS):
                while any(user.failure is not None for user in users):
                    await anyio.sleep(0.01)
            assert told_of(caplog, "the database is back") == [
                "the database is back: this replica serves again"
            ]


async def test_outages_are_published_at_a_heartbeat_when_they_change() -> None:
    url = new_database_url()
    async with listed(url) as one, listed(url) as two:
        first, changes = one.registry.epoch, list[ReplicaEntry | None]()
        two.registry.on_change = lambda: changes.append(two.registry.others.get(first))
        await two.until(lambda registry: registry.others == {first: one.entry()})
        one.registry.outages = lambda: b"crm"
        await two.until(lambda registry: registry.others[first].outages == b"crm")
        await one.until(lambda registry: registry.own is not None and registry.own.outages == b"crm")
        one.registry.publish(frozenset({b"a"}))
        await two.until(lambda registry: registry.others[first].plans == frozenset({b"a"}))
        one.registry.outages = lambda: b""
        await two.until(lambda registry: registry.others[first].outages == b"")
        told = [entry.outages for entry in changes if entry is not None]
        assert told[-4:] == [b"", b"crm", b"crm", b""]


async def test_stored_values_are_shared_outlive_the_replica_and_are_bounded() -> None:
    url = new_database_url()
    async with listed(url) as one:
        one.registry.remember(b"a", b"old")
        with anyio.fail_after(WAIT_SECONDS):
            while await one.registry.recall([b"a"]) is None:
                await anyio.sleep(0.01)
        one.registry.remember(b"a", b"new")
        with anyio.fail_after(WAIT_SECONDS):
            while await one.registry.recall([b"x", b"a"]) != (b"a", b"new"):
                await anyio.sleep(0.01)
    async with listed(url) as two:
        assert await two.registry.recall([b"x"]) is None
        assert await two.registry.recall([b"a"]) == (b"a", b"new")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as database:
            schema = Namespace.of_replicas().name
            await database.execute(
                f"INSERT INTO {schema}.kept SELECT i::text::bytea, '', now() + interval '1 day'"  # type: ignore[arg-type]
                " FROM generate_series(1, 300) i"
            )
        two.registry.remember(b"b", b"later")
        with anyio.fail_after(WAIT_SECONDS):
            while await two.registry.recall([b"a"]) is not None:
                await anyio.sleep(0.01)


async def test_a_hint_reaches_the_other_replicas_and_not_its_sender() -> None:
    url = new_database_url()
    async with listed(url) as one, listed(url) as two:
        heard: list[tuple[str, str]] = []
        one.registry.on_hint = lambda word: heard.append(("one", word))
        two.registry.on_hint = lambda word: heard.append(("two", word))
        with anyio.fail_after(WAIT_SECONDS):
            while ("two", "moved") not in heard:  # it may not listen yet
                one.registry.hint("moved")
                await anyio.sleep(0.01)
            two.registry.hint("back")
            while ("one", "back") not in heard:
                await anyio.sleep(0.01)
        assert set(heard) - {("one", ""), ("two", "")} == {("two", "moved"), ("one", "back")}


async def test_a_new_replica_is_found_at_once_and_a_gone_one_is_not() -> None:
    url = new_database_url()
    async with listed(url) as one:
        async with listed(url) as two:
            epoch = two.registry.epoch
            found = await one.registry.find(epoch)
            assert found is not None
            assert replace(found, outages=b"") == two.entry()
        with anyio.fail_after(WAIT_SECONDS):
            await one.registry.gone(epoch)
        assert await one.registry.find(epoch) is None
        assert await one.registry.find(epoch + 100) is None


async def test_a_killed_replica_is_gone_and_a_silent_one_is_listed_again() -> None:
    url = new_database_url()
    async with listed(url) as one, listed(url) as two:
        before = two.registry.epoch
        await one.until(lambda registry: before in registry.others)
        two.gate.shut()
        with anyio.fail_after(WAIT_SECONDS):
            await one.registry.gone(before)
        two.gate.open()
        await two.until(lambda registry: registry.epoch != before)
        await one.until(lambda registry: two.registry.epoch in registry.others)
        assert two.registry.is_mine(before)
        assert two.registry.is_mine(two.registry.epoch)
        two.gate.end()
        with anyio.fail_after(WAIT_SECONDS):
            await one.registry.gone(two.registry.epoch)


async def test_a_replica_without_the_database_considers_no_replica_gone() -> None:
    url = new_database_url()
    async with listed(url) as one, listed(url) as two:
        epoch = two.registry.epoch
        await one.until(lambda registry: epoch in registry.others)
        one.gate.refuse()
        await one.until(lambda registry: registry.failure is not None)
        assert await one.registry.find(epoch) is not None
        with pytest.raises(StoreError):
            await one.registry.find(epoch + 1)
        one.gate.accept()
        await one.until(lambda registry: registry.failure is None)


async def test_replicas_share_the_clock_of_the_database() -> None:
    url = new_database_url()
    async with listed(url) as one, listed(url) as two:
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        assert row is not None
        for replica in (one, two):
            assert abs(replica.registry.now_seconds() - row[0]) < WAIT_SECONDS


async def test_entries_of_the_dead_are_deleted() -> None:
    url = new_database_url()
    for _ in range(3):
        async with listed(url):
            pass
    async with listed(url) as one:
        place = Namespace.of_replicas()
        with psycopg.connect(url) as connection:
            for table in ("members", "beats", "epochs"):
                found = connection.execute(f"SELECT epoch FROM {place.name}.{table}").fetchall()
                assert found == [(one.registry.epoch,)], table


async def test_an_unreachable_database_ends_the_start() -> None:
    with pytest.raises(UsageError, match="the database cannot be reached"):
        async with PostgresRegistry(
            "postgresql:///x?host=/nowhere", BOUNDS, lambda _, start: ReplicaEntry(None, b"", start)
        ):
            pass
