"""Replicas pass on requests of callers through the database, which must never contain the callers' access tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import anyio
import psycopg
import pytest

from bridge.a2a.layers.chain import shared_tasks
from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Commit, Job, Turn
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.intake import CallContext
from bridge.identity.callers.principals import Principal
from bridge.identity.tokens.caller_token import CallerToken
from bridge.store.postgres.table_steps import Namespace
from tests.support.agents import PACE, Clock, Scripted, asked, say
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.fleet import task_of
from tests.support.limits import engine_limits
from tests.support.postgres import database_url
from tests.support.postgres_cluster import PostgresCluster

TOKEN = CallerToken("https://login.example.com", "ann", "eyJ-a-token-that-opens-all-of-ann", 4_000_000_000.0)
ANN = CallContext(Principal("corp:ann", expires_at=TOKEN.expires_at, token=TOKEN))

pytestmark = pytest.mark.outside


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    """Bound the time of each test."""
    with anyio.fail_after(PATIENCE_SECONDS):
        yield


@contextmanager
def written_rows(place: Namespace) -> Iterator[list[str]]:
    """Every row that is written to any table meanwhile, also if it is deleted later. Read it at the end."""
    rows: list[str] = []
    with psycopg.connect(database_url(), autocommit=True) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (place.name,))
        connection.execute(place.sql("CREATE TABLE {ns}.written (cells text)"))
        connection.execute(
            place.sql(
                "CREATE FUNCTION {ns}.note() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN EXECUTE format('INSERT INTO %I.written VALUES ($1)', TG_TABLE_SCHEMA)"
                " USING TG_TABLE_NAME || ' ' || row_to_json(NEW)::text; RETURN NEW; END $$"
            )
        )
        for (name,) in names.fetchall():
            connection.execute(
                psycopg.sql.SQL(
                    "CREATE TRIGGER note AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {note}()"
                ).format(
                    table=psycopg.sql.Identifier(place.name, name),
                    note=psycopg.sql.Identifier(place.name, "note"),
                )
            )
        yield rows
        rows += [cells for (cells,) in connection.execute(place.sql("SELECT cells FROM {ns}.written"))]


class Asking:
    """Work that asks a question while its call is open, and records who answered."""

    def __init__(self) -> None:
        self.tokens: list[CallerToken | None] = []

    async def __call__(self, job: Job) -> None:
        answered = anyio.Event()

        def hear(turn: Turn) -> Callable[[Commit], None]:
            self.tokens.append(turn.principal.token)
            return lambda _: answered.set()

        job.listen(hear)
        await say(job, TaskState.INPUT_REQUIRED, "Which?")
        await answered.wait()
        job.listen(None)
        await say(job, TaskState.COMPLETED)


async def test_no_row_of_the_database_contains_the_token_of_a_caller() -> None:
    cluster = PostgresCluster()
    work, clock = Asking(), Clock()
    limits = engine_limits(cancel_grace_seconds=5, drain_seconds=0, store_pace=PACE)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(cluster.replica()) for _ in range(2)]
        one, two = [
            shared_tasks(
                await stack.enter_async_context(Engine(Scripted(work), store, clock.ids, limits)), store
            )
            for store in stores
        ]
        with written_rows(Namespace.of(cluster.agent)) as rows:
            answered, canceled = [await task_of(one, asked({"text": "go"}), ANN) for _ in range(2)]
            await two.send(asked({"text": "this"}, taskId=answered.id), ANN)
            await two.cancel(canceled.id, ANN)
            ended = [(await one.get(task.id, None, ANN)).status.state for task in (answered, canceled)]
    assert ended == [TaskState.COMPLETED, TaskState.CANCELED]
    assert work.tokens == [TOKEN], "it came with the message"
    assert len([row for row in rows if row.startswith("commands ")]) >= 2
    shown = [TOKEN.value, TOKEN.value.encode().hex()]
    assert [row for row in rows if any(one in row for one in shown)] == []
