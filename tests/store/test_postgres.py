"""A store in PostgreSQL beyond the promises of every store: its bounds, its schemas, and its faults."""

from __future__ import annotations

import re
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID, uuid4

import anyio
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bridge.assembly.ids import clock_of, now_ms
from bridge.errors import HolderGoneError, StoreConflictError, StoreError, UsageError
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.store.postgres.bounds import Lease
from bridge.store.postgres.clock import ClockOffset
from bridge.store.postgres.connections import StoreTasks, with_defaults
from bridge.store.postgres.evictions import sweep
from bridge.store.postgres.registry_rows import PostgresRegistry
from bridge.store.postgres.store import PostgresStore
from bridge.store.postgres.table_steps import Namespace
from bridge.store.postgres.takeover import HAS_ORPHANS
from bridge.store.records import Change, MessageKey, Query, Quota, TaskHead
from bridge.store.registry import ReplicaEntry
from tests.store.changes import first, keep, keep_all
from tests.support.certificates import served_as
from tests.support.command import ROOT
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.pages import blocks_of
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import BOUNDS, bounds_with, database_url, new_agent, new_database_url
from tests.support.postgres_cluster import KEYS, PROOFS, Gate, PostgresCluster, socket_of
from tests.support.replicas import Recorder


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    """A connection to the database that can be shut."""
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-gate-") as folder:
        made = Gate(Path(folder), socket_of(database_url()))
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


def execute(text: str) -> None:
    with psycopg.connect(database_url(), autocommit=True) as connection:
        connection.execute(text)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql:///a", None),
        ("postgresql://localhost/a", None),
        ("postgresql://127.0.0.1/a", None),
        ("postgresql://[::1]/a", None),
        ("postgresql:///a?host=/run/postgresql", None),
        ("postgresql://db.example/a", "verify-full"),
        ("postgresql://localhost,db.example/a", "verify-full"),
        ("postgresql://10.1.2.3/a", "verify-full"),
        ("postgresql://db.example/a?sslmode=require", "require"),
        ("postgresql://localhost/a?hostaddr=10.1.2.3", "verify-full"),
        ("postgresql://localhost/a?hostaddr=127.0.0.1", None),
        ("postgresql:///a?service=production", "verify-full"),
        ("postgresql://localhost/a?service=production", "verify-full"),
        ("postgresql:///a?service=production&sslmode=require", "require"),
    ],
)
def test_a_server_on_another_machine_must_prove_its_identity(url: str, mode: str | None) -> None:
    assert conninfo_to_dict(with_defaults(url)).get("sslmode") == mode


@pytest.mark.parametrize(
    ("name", "value", "url", "mode"),
    [
        ("PGHOST", "db.example", "postgresql:///a", "verify-full"),
        ("PGHOST", "db.example", "postgresql://localhost/a", None),
        ("PGHOSTADDR", "10.1.2.3", "postgresql://localhost/a", "verify-full"),
        ("PGHOSTADDR", "10.1.2.3", "postgresql://localhost/a?hostaddr=127.0.0.1", None),
        ("PGHOSTADDR", "127.0.0.1", "postgresql://localhost/a", None),
        ("PGSERVICE", "production", "postgresql://localhost/a", "verify-full"),
        ("PGSSLMODE", "disable", "postgresql://db.example/a", "verify-full"),
    ],
)
def test_a_variable_of_libpq_does_not_bypass_verification(
    name: str, value: str, url: str, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert conninfo_to_dict(with_defaults(url)).get("sslmode") == mode


async def test_agents_whose_names_differ_only_in_punctuation_have_their_own_schemas() -> None:
    names = ["a-b", "a_b", "A_b", "x" * 80, "x" * 81]
    assert len({Namespace.of(name).name for name in names}) == len(names)
    assert all(len(Namespace.of(name).name.encode()) <= 63 for name in names)


async def test_text_that_cannot_be_stored_is_refused_alone() -> None:
    async with PostgresStore(database_url(), new_agent(), BOUNDS) as store:
        answers = await keep_all(
            store,
            first("t1"),
            first("t\0", context_id="b"),
            first("\ud800", context_id="c"),
            Change("t1", 2, b"two"),
            first("t2", message=MessageKey("m\0", b"", 1)),
            Change("t2", 2, b"two"),
        )
        kinds = [type(answer) for answer in answers]
        none = type(None)
        assert kinds == [none, StoreError, StoreError, none, StoreError, StoreConflictError]
        assert store.failure is None


async def test_a_commit_whose_answer_is_lost_is_stored_once(gate: Gate) -> None:
    async with PostgresStore(gate.url, new_agent(), BOUNDS) as store:
        await keep(store, first("t1"))
        for seq in range(2, 14):
            answers: list[Exception | None] = []
            store.submit(Change("t1", seq, b"%d" % seq), answers.append)
            for _ in range(seq):  # another moment of the commit each time
                await anyio.lowlevel.checkpoint()
            gate.refuse()
            gate.accept()
            while not answers:
                await anyio.sleep(0.001)
            assert answers == [None]
        found = await store.load("t1")
        assert found is not None
        assert found.events == tuple(b"%d" % seq for seq in range(2, 14))


async def test_a_silent_database_is_given_up_and_does_not_delay_the_end(gate: Gate) -> None:
    bounds = bounds_with(statement_seconds=0.2, close_seconds=0.3, patience_seconds=0.1)
    answers: list[Exception | None] = []
    async with PostgresStore(gate.url, new_agent(), bounds) as store:
        await keep(store, first("t1"))
        gate.shut()
        store.submit(Change("t1", 2, b"two"), answers.append)
        with pytest.raises(StoreError):
            await store.load("t1")
    (answer,) = answers
    assert isinstance(answer, StoreError)


async def test_changes_that_wait_for_the_database_are_bounded_and_answered_in_order(gate: Gate) -> None:
    async with PostgresStore(gate.url, new_agent(), bounds_with(waiting_limit_bytes=1000)) as store:
        await keep(store, first("t1"))
        gate.shut()
        answers: list[Exception | None] = []
        store.submit(Change("t1", 2, b"x"), answers.append)
        await anyio.lowlevel.checkpoint()
        store.submit(Change("t1", 3, b"x" * 900), answers.append)
        store.submit(Change("t1", 4, b"x" * 900), answers.append)
        store.submit(Change("t1", 5, b"x"), answers.append)
        assert answers == []
        gate.open()
        while len(answers) < 4:
            await anyio.sleep(0.001)
        assert [type(answer) for answer in answers] == [
            type(None),
            type(None),
            StoreError,
            StoreConflictError,
        ]


async def test_a_newer_schema_that_this_release_cannot_read_is_refused() -> None:
    agent = new_agent()
    async with PostgresStore(database_url(), agent, BOUNDS):
        pass
    execute(f"UPDATE {Namespace.of(agent).name}.store SET version = 7, readable_by = 7")
    with pytest.raises(UsageError, match="written by a newer release"):
        async with PostgresStore(database_url(), agent, BOUNDS):
            pass


async def test_a_newer_schema_that_this_release_can_read_is_used_as_it_is() -> None:
    agent = new_agent()
    async with PostgresStore(database_url(), agent, BOUNDS) as store:
        await keep(store, first("t1"))
    execute(f"UPDATE {Namespace.of(agent).name}.store SET version = 7, readable_by = 1")
    async with PostgresStore(database_url(), agent, BOUNDS) as store:
        await keep(store, first("t2"))
        assert await store.load("t1") is not None


async def test_an_unreachable_database_ends_the_start_with_a_message() -> None:
    with pytest.raises(UsageError, match="the database cannot be reached"):
        async with PostgresStore("postgresql://postgres@/a?host=/nowhere", new_agent(), BOUNDS):
            pass


def test_a_malformed_url_is_not_repeated_in_the_message() -> None:
    with pytest.raises(UsageError) as refused:
        PostgresStore("postgresql://u:hunter2@h/a?nonsense=1", new_agent(), BOUNDS)
    assert "hunter2" not in str(refused.value)


def nowhere(_: int, start: UUID) -> ReplicaEntry:
    """The entry of a replica without an address."""
    return ReplicaEntry(None, b"", start)


async def test_a_role_that_may_only_read_and_write_rows_can_use_existing_tables() -> None:
    agent, whole = new_agent(), new_database_url()
    place = Namespace.of(agent).name
    async with PostgresStore(whole, agent, BOUNDS), PostgresRegistry(whole, BOUNDS, nowhere):
        pass
    (least,) = (block.text for block in blocks_of(ROOT / "docs" / "replicas.md") if block.language == "sql")
    with psycopg.connect(whole, autocommit=True) as connection:
        connection.execute(least.replace("mcp_a2a_files", place).replace("bridge", place))
    url = whole.replace("postgres@", f"{place}@")
    async with (
        PostgresStore(url, agent, BOUNDS, keys=KEYS) as store,
        PostgresRegistry(url, BOUNDS, nowhere) as one,
        PostgresRegistry(url, BOUNDS, nowhere) as other,
    ):
        one.publish(frozenset({b"plan"}))
        while [entry.plans for entry in other.others.values()] != [frozenset({b"plan"})]:
            await anyio.sleep(0.01)
        store.replicas.start(Recorder())
        await keep(store, first("t1"), Change("t1", 2, b"two", head=TaskHead("ended", True, 30)))
        assert await store.replicas.ask(store.replicas.epoch, b"please") == b"done: please"
        assert await store.evict(100, Quota(0, 0)) == 1
        while not store.replicas.leads:
            await anyio.sleep(0.01)


async def test_only_a_command_that_a_replica_wrote_for_this_holder_is_executed() -> None:
    cluster, engine, request, command = PostgresCluster(), Recorder(), uuid4(), b"cancel as ann"
    place = Namespace.of(cluster.agent)
    async with cluster.replica() as one, cluster.replica() as two:
        one.replicas.start(engine)
        said = [place.name.encode(), one.replicas.epoch.encode(), request.bytes, command]
        others = [b"mcp_a2a_other", two.replicas.epoch.encode(), uuid4().bytes, b"cancel as bob"]
        false = [[*said[:at], other, *said[at + 1 :]] for at, other in enumerate(others)]
        proofs = [
            None,  # as an earlier release writes it
            b"",
            Proofs([b"o" * 40]).proof(ProofPurpose.COMMAND, *said),
            PROOFS.proof(ProofPurpose.ADDRESS, *said),
            *(PROOFS.proof(ProofPurpose.COMMAND, *one) for one in false),
        ]
        add = place.sql("INSERT INTO {ns}.commands (request, holder, command, proof) VALUES (%s, %s, %s, %s)")
        left = place.sql("SELECT count(*) FROM {ns}.commands WHERE request = %s")
        with psycopg.connect(database_url(), autocommit=True) as connection:
            for proof in proofs:
                connection.execute(add, (request, int(one.replicas.epoch), command, proof))
                assert await two.replicas.ask(one.replicas.epoch, b"please") == b"done: please"
                assert connection.execute(left, (request,)).fetchone() == (0,)
    assert engine.asked == [b"please"] * len(proofs)


async def test_thousands_of_forged_commands_get_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    cluster, engine = PostgresCluster(), Recorder()
    place = Namespace.of(cluster.agent)
    async with cluster.replica() as one, cluster.replica() as two:
        add = place.sql(
            "INSERT INTO {ns}.commands (request, holder, command, proof)"
            " SELECT gen_random_uuid(), %s, 'x', '' FROM generate_series(1, 7000)"
        )
        left = place.sql("SELECT count(*) FROM {ns}.commands")
        with (
            psycopg.connect(database_url(), autocommit=True) as connection,
            anyio.fail_after(PATIENCE_SECONDS),
        ):
            connection.execute(add, (int(one.replicas.epoch),))
            one.replicas.start(engine)
            while connection.execute(left).fetchone() != (0,):
                await anyio.sleep(0.01)
            assert await two.replicas.ask(one.replicas.epoch, b"please") == b"done: please"
            connection.execute(add, (int(one.replicas.epoch),))
            while connection.execute(left).fetchone() != (0,):
                await anyio.sleep(0.01)
            assert await two.replicas.ask(one.replicas.epoch, b"please") == b"done: please"
    told = [one.getMessage() for one in caplog.records if "not from a replica with our" in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("deleted 7000 commands in ")


async def test_a_command_restored_after_its_reply_is_not_executed_again() -> None:
    cluster, engine, request = PostgresCluster(), Recorder(), uuid4()
    place = Namespace.of(cluster.agent)
    async with cluster.replica() as one, cluster.replica() as two:
        one.replicas.start(engine)
        said = (place.name.encode(), one.replicas.epoch.encode(), request.bytes, b"once")
        row = (request, int(one.replicas.epoch), b"once", PROOFS.proof(ProofPurpose.COMMAND, *said))
        add = place.sql("INSERT INTO {ns}.commands (request, holder, command, proof) VALUES (%s, %s, %s, %s)")
        take = place.sql("DELETE FROM {ns}.commands WHERE request = %s AND reply IS NOT NULL RETURNING reply")
        left = place.sql("SELECT count(*) FROM {ns}.commands WHERE request = %s")
        with (
            psycopg.connect(database_url(), autocommit=True) as connection,
            anyio.fail_after(PATIENCE_SECONDS),
        ):
            connection.execute(add, row)
            while connection.execute(take, (request,)).fetchone() != (b"done: once",):
                await anyio.sleep(0.01)
            connection.execute(add, row)
            assert await two.replicas.ask(one.replicas.epoch, b"please") == b"done: please"
            assert connection.execute(left, (request,)).fetchone() == (0,)
    assert engine.asked == [b"once", b"please"]


async def test_a_replica_with_other_keys_learns_that_nothing_was_executed() -> None:
    agent, engine = new_agent(), Recorder()
    async with (
        PostgresStore(database_url(), agent, BOUNDS, keys=KEYS) as one,
        PostgresStore(database_url(), agent, BOUNDS, keys=[b"o" * 40]) as other,
    ):
        one.replicas.start(engine)
        with anyio.fail_after(PATIENCE_SECONDS), pytest.raises(HolderGoneError, match="has other `keys`"):
            await other.replicas.ask(one.replicas.epoch, b"please")
    assert engine.asked == []


async def test_a_stopped_replica_begins_no_epoch_and_adopts_no_task() -> None:
    agent = new_agent()
    async with PostgresStore(database_url(), agent, BOUNDS) as store:
        await keep(store, first("t1"))
        engine = Recorder()
        store.replicas.start(engine)
        epoch = store.replicas.epoch
        await store.replicas.epochs.end()
        await anyio.sleep(5 * BOUNDS.lease.beat_seconds)
        assert (store.replicas.epoch, engine.adopted, engine.fences) == (epoch, [], 0)


async def test_work_that_starts_more_work_while_the_store_ends_fails_silently() -> None:
    tasks = StoreTasks()
    await tasks.begin()
    refused: list[StoreError] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            try:
                tasks.start(anyio.sleep_forever)
            except StoreError as exc:
                refused.append(exc)
                raise

    tasks.start(work)
    await anyio.wait_all_tasks_blocked()
    tasks.stop()
    await tasks.join()
    assert len(refused) == 1


async def test_replicas_with_wrong_clocks_use_the_time_of_the_database() -> None:
    agent, hour_ms = new_agent(), 3_600_000

    def clock(ahead_ms: int) -> Callable[[], int]:
        return lambda: now_ms() + ahead_ms

    async with (
        PostgresStore(database_url(), agent, BOUNDS, now_ms=clock(hour_ms)) as ahead,
        PostgresStore(database_url(), agent, BOUNDS, now_ms=clock(-hour_ms)) as behind,
    ):
        told = [
            clock_of(ahead, clock(hour_ms))() - now_ms(),
            clock_of(behind, clock(-hour_ms))() - now_ms(),
        ]
    assert [round(milliseconds / hour_ms) for milliseconds in told] == [0, 0]


@pytest.mark.parametrize(
    ("measured", "offset"),
    [
        ([(1000, 5010, 1020)], 4000),
        ([(1000, 5010, 1020), (2000, 9999, 9000)], 4000),
        ([(1000, 5010, 1020), (2000, 6030, 2010)], 4020),
        ([(1000, 5010, 1020), (2000, 5970, 2010)], 3970),
    ],
    ids=["the middle", "an answer that was late", "ahead", "behind"],
)
def test_the_clock_offset_changes_as_little_as_necessary(
    measured: list[tuple[int, int, int]], offset: int
) -> None:
    clock = ClockOffset()
    for before_ms, database_ms, after_ms in measured:
        clock.measured(before_ms, database_ms, after_ms)
    assert clock.milliseconds == offset


async def test_the_search_for_orphaned_tasks_reads_few_pages() -> None:
    agent = new_agent()
    place = Namespace.of(agent)
    async with PostgresStore(database_url(), agent, BOUNDS) as store:
        with psycopg.connect(database_url(), autocommit=True) as connection:
            connection.execute(
                place.sql(
                    "INSERT INTO {ns}.tasks SELECT 'task-' || n, 'c', 'ann', n, 'working', false, n, 1, 1, 9, %s"
                    " FROM generate_series(1, 20000) n"
                ),
                (int(store.replicas.epoch),),
            )
            rows = connection.execute(place.sql("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + HAS_ORPHANS))
            ((plan,),) = rows.fetchall()
    top = plan[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 50


@pytest.mark.proves("replicas-one-agent", "replicas-nothing-lost")
async def test_replicas_work_behind_a_transaction_pool() -> None:
    direct = Path(socket_of(database_url())).parent
    with anyio.fail_after(PATIENCE_SECONDS), pgbouncer(direct) as pool_url:
        cluster = PostgresCluster(pool_url=pool_url)
        async with cluster.replica() as one, cluster.replica() as two:
            engine, told = Recorder(), anyio.Event()
            two.replicas.start(engine)
            one.replicas.start(Recorder())
            # More often than a connection that is direct needs for a statement to be prepared.
            for number in range(20):
                await keep(one, first(f"t{number}", context_id=f"c{number}"))
            assert (await two.list(Query("ann", 50))).total == 20
            unfollow = two.replicas.follow("t0", 1, lambda events: told.set())
            await keep(one, Change("t0", 2, b"two"))
            await told.wait()
            unfollow()
            assert (await one.replicas.ask(two.replicas.epoch, b"do")) == b"done: do"
            assert (await one.replicas.claim_session("files", 60)).owner == one.replicas.epoch
            cluster.kill(one)
            await engine.until(lambda engine: len(engine.adopted) == 20)
            assert (await two.replicas.claim_session("files", 60)).is_lost


@pytest.mark.parametrize(
    ("name", "trusted", "words"),
    [
        ("db.example", "mine/both.pem", None),
        ("db.example", "other/both.pem", "certificate verify failed. Name the authority"),
        ("db.example", "none.pem", 'none.pem" does not exist. Name the authority'),
        (
            "else.example",
            "mine/both.pem",
            "Use the host name of the server's certificate in the URL of the store",
        ),
    ],
)
async def test_a_server_on_another_machine_needs_a_trusted_certificate(
    tmp_path: Path, name: str, trusted: str, words: str | None
) -> None:
    for folder in ("mine", "other"):
        (tmp_path / folder).mkdir()
    served_as("db.example", tmp_path / "other")
    gate = Gate(tmp_path, socket_of(database_url()))
    port = await gate.start_with_tls(served_as("db.example", tmp_path / "mine"))
    where = f"hostaddr=127.0.0.1&sslrootcert={tmp_path / trusted}"
    store = PostgresStore(
        f"postgresql://postgres:hunter2@{name}:{port}/postgres?{where}", new_agent(), BOUNDS
    )
    try:
        if words is None:
            async with store:
                await keep(store, first("t1"))
                assert await store.load("t1")
        else:
            with pytest.raises(UsageError, match=re.escape(words)) as refused:
                await store.__aenter__()
            assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    finally:
        await gate.stop()


async def test_a_read_only_server_is_refused_with_a_hint() -> None:
    url = f"{database_url()}&options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(
        UsageError, match=r"session is read-only\. This server is a standby, or refuses writes"
    ):
        await PostgresStore(url, new_agent(), BOUNDS).__aenter__()


@pytest.mark.proves("replicas-sessions")
async def test_a_lost_session_is_remembered_for_its_idle_time() -> None:
    agent = new_agent()
    place = Namespace.of(agent)
    async with PostgresStore(database_url(), agent, BOUNDS) as one:
        await one.replicas.claim_session("brief", 0)
        await one.replicas.claim_session("long", 3600)
    async with PostgresStore(database_url(), agent, BOUNDS) as two:
        await two.replicas.claim_session("living", 0)
        async with await psycopg.AsyncConnection.connect(database_url(), autocommit=True) as connection:
            for _ in range(2):  # the first one sees that they are lost
                await sweep(connection, place, int(two.replicas.epoch), 60)
            found = await connection.execute(place.sql("SELECT name FROM {ns}.sessions ORDER BY name"))
            assert await found.fetchall() == [("living",), ("long",)]
        assert (await two.replicas.claim_session("long", 3600)).is_lost
        assert not (await two.replicas.claim_session("brief", 0)).is_lost


async def test_a_replica_with_a_blocked_loop_still_sends_heartbeats() -> None:
    agent, bounds = new_agent(), bounds_with(lease=Lease(0.02, 0.1, 0.4))
    beat_of = Namespace.of(agent).sql("SELECT beat FROM {ns}.beats WHERE epoch = %s")
    async with PostgresStore(database_url(), agent, bounds) as store:
        epoch, stand_in = store.replicas.epoch, store.replicas.epochs.stand_in
        with psycopg.connect(database_url(), autocommit=True) as other:

            def beat() -> int:
                row = other.execute(beat_of, (int(epoch),)).fetchone()
                assert row is not None
                return int(row[0])

            until = time.monotonic() + PATIENCE_SECONDS
            while stand_in.beats < 2 and time.monotonic() < until:  # nothing here awaits: the loop is held
                before = beat()
            while beat() <= before and time.monotonic() < until:
                pass
            assert beat() > before
        with anyio.fail_after(PATIENCE_SECONDS):
            while stand_in.is_needed:
                await anyio.sleep(0.01)
        assert store.replicas.epoch == epoch
