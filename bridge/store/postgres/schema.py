"""The tables of a store in PostgreSQL, and how an older schema becomes this one.

Each agent has a schema of its own (`Namespace`), as it has a file of its own with SQLite. The list of replicas has one,
too. Statements name it, since a connection pool in front of the database forgets what a session has set.

- `epochs`: a row for each start of a replica. `gone` is its fence: an append locks the row FOR SHARE, and a take-over
  sets it, so that one waits for the other.
- `beats`: what a replica changes to show that it lives. It stands apart, because the fence's row is locked by appends.
- `tasks`: the columns that tasks are found by, and `holder`, the epoch that may append.
- `events`: each event is kept for a while, also when a snapshot has it, for replicas that have not read it yet.
- `counts`: how many tasks each owner has in each state, a row for each epoch: writers do not wait for each other.
- `commands`: what one replica asks of another, and the reply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg
from psycopg import sql

from bridge.errors import StoreError, UsageError
from bridge.store.postgres.connections import bounded, close, connect, first_line

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from bridge.store.postgres.connections import DatabaseAddress

_MIGRATE_SECONDS: Final = 600.0
"""How long the tables may take to be made or changed, with the wait for another replica that does it."""

_MOST_NAME: Final = 63
"""PostgreSQL cuts longer names without an error."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one kind of namespace."""

    steps: tuple[LiteralString, ...]
    """Each step makes the next version of the schema. Their number is the version that this release writes."""
    readable_by: int
    """The oldest schema version whose releases can read and write what this one makes."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A place in a database, for the tasks of one agent or for the list of replicas: a schema, a channel of the same
    name, and a number for locks."""

    name: str

    @classmethod
    def of(cls, agent: str) -> Namespace:
        """The namespace of an agent. A name that PostgreSQL would cut or change has a hash at its end."""
        plain = re.sub(r"[^a-z0-9_]", "_", agent.lower())
        name = f"mcp_a2a_{plain}"
        if plain != agent or len(name) > _MOST_NAME:
            name = f"{name[: _MOST_NAME - 9]}_{blake2b(agent.encode(), digest_size=4).hexdigest()}"
        return cls(name)

    @classmethod
    def of_replicas(cls) -> Namespace:
        """The namespace of the list of replicas. No agent has it."""
        return cls("mcp_a2a")

    @property
    def lock(self) -> int:
        """The first number of this namespace's advisory locks, of 32 bits with a sign."""
        return int.from_bytes(blake2b(self.name.encode(), digest_size=4).digest(), signed=True)

    def sql(self, text: LiteralString) -> sql.SQL:
        """A statement in which `{ns}` stands for the schema."""
        return _statement(self, text)


@lru_cache(maxsize=1024)  # composing takes as long as sending
def _statement(place: Namespace, text: LiteralString) -> sql.SQL:
    return sql.SQL(sql.SQL(text).format(ns=sql.Identifier(place.name)).as_string(None))


EPOCHS: Final = """
    CREATE TABLE {ns}.epochs (
        epoch integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        start uuid NOT NULL UNIQUE,
        gone boolean NOT NULL DEFAULT false
    );
    CREATE TABLE {ns}.beats (epoch integer PRIMARY KEY, beat bigint NOT NULL) WITH (fillfactor = 50);
    """
"""The tables that `epochs.py` needs, in every namespace."""

_STEPS: Final = (
    EPOCHS
    + """
    CREATE TABLE {ns}.tasks (
        task_id text PRIMARY KEY,
        context_id text NOT NULL,
        owner text NOT NULL,
        created_ms bigint NOT NULL,
        state text NOT NULL,
        ended boolean NOT NULL,
        status_ms bigint NOT NULL,
        seq bigint NOT NULL,
        snapshot_seq bigint NOT NULL,
        weight bigint NOT NULL,
        holder integer
    ) WITH (fillfactor = 80);
    CREATE INDEX ON {ns}.tasks (owner, status_ms DESC, task_id DESC);
    CREATE INDEX ON {ns}.tasks (owner, state, status_ms DESC, task_id DESC);
    CREATE INDEX ON {ns}.tasks (context_id, status_ms DESC, task_id DESC);
    CREATE INDEX ON {ns}.tasks (status_ms, task_id) WHERE ended;
    CREATE INDEX ON {ns}.tasks (holder) WHERE holder IS NOT NULL;
    CREATE INDEX ON {ns}.tasks (created_ms, task_id) WHERE NOT ended;
    CREATE TABLE {ns}.snapshots (task_id text PRIMARY KEY, snapshot bytea NOT NULL);
    CREATE TABLE {ns}.privates (task_id text PRIMARY KEY, private bytea NOT NULL);
    CREATE TABLE {ns}.events (
        task_id text NOT NULL,
        seq bigint NOT NULL,
        event bytea NOT NULL,
        epoch integer NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (task_id, seq)
    );
    CREATE INDEX ON {ns}.events (stored_at);
    CREATE TABLE {ns}.messages (
        owner text NOT NULL,
        message_id text NOT NULL,
        task_id text NOT NULL,
        digest bytea NOT NULL,
        accepted_ms bigint NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now(),
        answered_at timestamptz,
        answer_ms bigint,
        is_repeatable boolean,
        PRIMARY KEY (owner, message_id)
    );
    CREATE INDEX ON {ns}.messages (task_id);
    CREATE TABLE {ns}.contexts (context_id text PRIMARY KEY, owner text NOT NULL);
    CREATE TABLE {ns}.counts (
        owner text NOT NULL,
        state text NOT NULL,
        ended boolean NOT NULL,
        epoch integer NOT NULL,
        tasks bigint NOT NULL,
        weight bigint NOT NULL,
        PRIMARY KEY (owner, state, ended, epoch)
    ) WITH (fillfactor = 50);
    CREATE TABLE {ns}.commands (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        request uuid NOT NULL UNIQUE,
        holder integer NOT NULL,
        command bytea NOT NULL,
        reply bytea,
        asked_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX ON {ns}.commands (holder) WHERE reply IS NULL;
    """,
)

AGENT: Final = Tables(_STEPS, readable_by=1)
"""The tables of an agent."""

REPLICAS: Final = Tables(
    (
        EPOCHS
        + """
    CREATE TABLE {ns}.members (
        epoch integer PRIMARY KEY,
        address text,
        proof bytea NOT NULL,
        plans bytea[] NOT NULL
    );
    """,
    ),
    readable_by=1,
)
"""The tables of the list of replicas. `members` has what each epoch tells of itself."""


async def prepare(address: DatabaseAddress, place: Namespace, tables: Tables, seconds: float) -> None:
    """Make or update the tables. Connecting may take some seconds.

    Raises:
        UsageError: the database cannot be reached or refuses, or the tables are of a newer release.
    """
    try:
        connection = await connect(address.url, seconds, is_direct=address.is_direct)
        try:
            with bounded(connection, _MIGRATE_SECONDS):
                await _migrate(connection, place, tables)
        finally:
            await close(connection)
    except StoreError as exc:
        raise UsageError(str(exc)) from exc
    except psycopg.Error as exc:
        raise UsageError(f"the store {place.name} cannot be made: {first_line(exc)}") from exc


async def _migrate(connection: AsyncConnection, place: Namespace, tables: Tables) -> None:
    """Make or update the tables, one replica at a time.

    Raises:
        UsageError: a newer release has changed the tables in a way that this one cannot read.
        psycopg.Error: the database refuses.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (place.lock,))
        # What is there is not made: a role that may only read and write rows is enough from then on.
        there = await connection.execute(
            "SELECT to_regnamespace(%(ns)s), to_regclass(%(ns)s || '.store')", {"ns": place.name}
        )
        has_schema, has_store = await there.fetchone() or (None, None)
        if has_schema is None:
            await connection.execute(place.sql("CREATE SCHEMA {ns}"))
        if has_store is None:
            await connection.execute(
                place.sql("CREATE TABLE {ns}.store (version integer NOT NULL, readable_by integer NOT NULL)")
            )
        row = await (
            await connection.execute(place.sql("SELECT version, readable_by FROM {ns}.store"))
        ).fetchone()
        version, readable_by = (0, 0) if row is None else row
        newest = len(tables.steps)
        if readable_by > newest:
            raise UsageError(
                f"the store {place.name} was written by a newer release: its tables are of version {version},"
                f" and a release for version {readable_by} or later can read them. Start that release, or restore"
                " a backup of before."
            )
        for step in tables.steps[version:]:
            await connection.execute(place.sql(step))
        if row is None:
            await connection.execute(
                place.sql("INSERT INTO {ns}.store VALUES (%s, %s)"), (newest, tables.readable_by)
            )
        elif version < newest:
            await connection.execute(
                place.sql("UPDATE {ns}.store SET version = %s, readable_by = %s"),
                (newest, tables.readable_by),
            )
