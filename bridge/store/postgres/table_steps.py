"""The tables of a store in PostgreSQL, as the steps that make them. `upgrade.py` decides when a step is taken.

Each agent has its own schema (`Namespace`), as it has its own file with SQLite. The list of replicas has a schema too.
Statements name the schema, because a connection pool in front of the database forgets the settings of a session.

- `store`: the version of the tables, and the oldest version whose releases can read and write them.
- `epochs`: a row for each start of a replica. `gone` is its fence: an append locks the row FOR SHARE, and a take-over
  sets `gone`, so that they wait for each other.
- `beats`: a replica's heartbeats. They are separate from `epochs`, because appends lock the rows there.
- `tasks`: the columns by which queries find tasks, and `holder`, the epoch that may append.
- `events`: an event stays for a while after a snapshot replaced it, for replicas that have not read it yet.
- `counts`: the number of tasks of each owner in each state, with a row per epoch, so that writers do not wait for each
  other.
- `commands`: the commands of one replica to another, with the proof that a replica wrote them, and the reply.
- `webhooks` and `outbox`: the targets of events, the epoch that sends to them, and the events still to be sent.
  `tasks.hooked` says that a task has or had a webhook, so that an append need not look.
- `sessions`: the epoch that has a session with a tool server. `lost_at` is the time at which the epoch was found gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, LiteralString

from psycopg import sql

_MOST_NAME: Final = 63
"""The longest name in bytes. PostgreSQL truncates longer names without an error."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The part of a database for an agent's tasks, the list of replicas, or logins: a schema, a NOTIFY channel of the
    same name, and a number for locks."""

    name: str

    @classmethod
    def of(cls, agent: str) -> Namespace:
        """The namespace of an agent. A name that PostgreSQL would truncate or change gets a hash at its end."""
        plain = re.sub(r"[^a-z0-9_]", "_", agent.lower())
        name = f"mcp_a2a_{plain}"
        if plain != agent or len(name) > _MOST_NAME:
            name = f"{name[: _MOST_NAME - 9]}_{blake2b(agent.encode(), digest_size=4).hexdigest()}"
        return cls(name)

    @classmethod
    def of_replicas(cls) -> Namespace:
        """The namespace of the list of replicas. No agent can have it."""
        return cls("mcp_a2a")

    @classmethod
    def of_logins(cls) -> Namespace:
        """The namespace of logins, which all replicas of a database share. No agent can have it."""
        return cls("mcp_a2a__logins")

    @property
    def lock(self) -> int:
        """The first key of this namespace's advisory locks, a signed number of 32 bits."""
        return int.from_bytes(blake2b(self.name.encode(), digest_size=4).digest(), signed=True)

    def sql(self, text: LiteralString) -> sql.SQL:
        """A statement in which `{ns}` stands for the schema."""
        return _statement(self, text)


@lru_cache(maxsize=1024)  # composing takes as long as sending
def _statement(place: Namespace, text: LiteralString) -> sql.SQL:
    return sql.SQL(sql.SQL(text).format(ns=sql.Identifier(place.name)).as_string(None))


@dataclass(frozen=True, slots=True)
class Step:
    """The statements that make the next version of the tables. A released step never changes.

    A step without `is_breaking` runs while older replicas write. So it may add only tables, columns with a default at
    the end of a table, and indexes on small tables. It waits at most a second for a table that it changes.
    """

    statements: LiteralString
    is_breaking: bool = False
    """Whether releases for an earlier version can no longer read and write the tables."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a release."""

    steps: tuple[Step, ...]

    @property
    def version(self) -> int:
        """The version that this release makes."""
        return len(self.steps)

    @property
    def readable_by(self) -> int:
        """The oldest version whose releases can read and write these tables."""
        return max((number for number, step in enumerate(self.steps, 1) if step.is_breaking), default=1)

    def breaks(self, version: int) -> bool:
        """Whether a step after `version` is breaking. Version 0 has no tables, so nothing breaks."""
        return 0 < version < self.readable_by


EPOCHS: Final = """
    CREATE TABLE {ns}.epochs (
        epoch integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        start uuid NOT NULL UNIQUE,
        begun_at timestamptz NOT NULL DEFAULT now(),
        gone boolean NOT NULL DEFAULT false
    );
    CREATE TABLE {ns}.beats (epoch integer PRIMARY KEY, beat bigint NOT NULL) WITH (fillfactor = 50);
    """
"""The tables that `epochs.py` needs, in every namespace."""

_FIRST: Final = """
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
    CREATE INDEX ON {ns}.tasks (holder, task_id) WHERE holder IS NOT NULL;
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
    CREATE TABLE {ns}.sessions (
        name text PRIMARY KEY,
        epoch integer NOT NULL,
        token uuid NOT NULL,
        idle_seconds double precision NOT NULL,
        is_lost boolean NOT NULL DEFAULT false,
        lost_at timestamptz
    );
    """

_OUTBOX: Final = """
    CREATE TABLE {ns}.webhooks (
        task_id text NOT NULL,
        webhook_id text NOT NULL,
        owner text NOT NULL,
        made_ms bigint NOT NULL,
        config bytea NOT NULL,
        attempts integer NOT NULL,
        due_ms bigint NOT NULL,
        failure text,
        is_given_up boolean NOT NULL,
        sender integer NOT NULL,
        PRIMARY KEY (task_id, webhook_id)
    ) WITH (fillfactor = 80);
    CREATE INDEX ON {ns}.webhooks (owner) WHERE NOT is_given_up;
    CREATE INDEX ON {ns}.webhooks (sender);
    CREATE TABLE {ns}.outbox (
        task_id text NOT NULL,
        webhook_id text NOT NULL,
        seq bigint NOT NULL,
        event bytea NOT NULL,
        PRIMARY KEY (task_id, webhook_id, seq)
    );
    ALTER TABLE {ns}.tasks ADD COLUMN hooked boolean NOT NULL DEFAULT false;
    """

AGENT: Final = Tables(
    (
        Step(EPOCHS + _FIRST),
        Step("ALTER TABLE {ns}.commands ADD COLUMN proof bytea;"),
        Step(_OUTBOX),
    )
)
"""The tables of an agent."""

REPLICAS: Final = Tables(
    (
        Step(
            EPOCHS
            + """
    CREATE TABLE {ns}.members (
        epoch integer PRIMARY KEY,
        address text,
        proof bytea NOT NULL,
        plans bytea[] NOT NULL
    );
    """
        ),
        Step("ALTER TABLE {ns}.members ADD COLUMN outages bytea;"),
        Step(
            "CREATE TABLE {ns}.kept (name bytea PRIMARY KEY, kept bytea NOT NULL, kept_at timestamptz NOT NULL);"
        ),
    )
)
"""The tables of the list of replicas. `members` has the entry of each epoch, `kept` the values that outlive epochs."""

LOGINS: Final = Tables(
    (Step("CREATE TABLE {ns}.logins (id text PRIMARY KEY, sealed bytea NOT NULL);"),),
)
"""The table of logins. A row is unreadable without a key of the bridge."""
