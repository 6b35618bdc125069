"""The tables of a SQLite store, and their versions.

`user_version` in the file holds the number of steps that made its tables. A later release adds a step at the end of
`STEPS`. A released step never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.errors import UsageError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

APPLICATION_ID: Final = 0x6D326132
"""The application id in the file's header: "m2a2"."""

_FIRST: Final = """
-- Small rows that change in place; what is large stands apart, so that a new state does not rewrite it.
-- Task ids ascend with time, so new rows go to the end of every table but messages.
CREATE TABLE tasks (
    task_id TEXT NOT NULL PRIMARY KEY,
    context_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    ended INTEGER NOT NULL,
    status_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tasks_listed ON tasks (owner, status_ms, task_id, state);
CREATE INDEX tasks_of_context ON tasks (context_id, owner);
CREATE INDEX tasks_unfinished ON tasks (created_ms, task_id) WHERE ended = 0;
CREATE INDEX tasks_ended ON tasks (status_ms, task_id) WHERE ended = 1;

-- A task's last sequence number is not stored: it is its snapshot's plus one for each event after it.
CREATE TABLE snapshots (
    task_id TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL,
    snapshot BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE events (
    task_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event BLOB NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;
CREATE TABLE privates (
    task_id TEXT NOT NULL PRIMARY KEY,
    private BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
    owner TEXT NOT NULL,
    message_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    accepted_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, message_id)
) WITHOUT ROWID;
CREATE INDEX messages_of_task ON messages (task_id);
"""

# The index and the counts avoid reading all tasks of an owner (40 ms for 500,000) to list a state that no task has, or
# to count the owner's tasks. In a table without row ids, a snapshot of more than 1,000 bytes took a whole page: 4,700
# bytes for 1,200, and three times the time to write and to read.
_FOR_MANY: Final = """
CREATE TABLE snapshots_by_row (
    task_id TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL,
    snapshot BLOB NOT NULL
);
INSERT INTO snapshots_by_row SELECT * FROM snapshots ORDER BY task_id;
DROP TABLE snapshots;
ALTER TABLE snapshots_by_row RENAME TO snapshots;
CREATE INDEX tasks_listed_by_state ON tasks (owner, state, status_ms, task_id);
CREATE TABLE counts (
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (owner, state)
) WITHOUT ROWID;
INSERT INTO counts SELECT owner, state, count(*) FROM tasks GROUP BY owner, state;
CREATE TRIGGER task_made AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (new.owner, new.state, 1)
    ON CONFLICT (owner, state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF state ON tasks WHEN old.state <> new.state BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE owner = old.owner AND state = old.state;
    INSERT INTO counts VALUES (new.owner, new.state, 1)
    ON CONFLICT (owner, state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_gone AFTER DELETE ON tasks BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE owner = old.owner AND state = old.state;
    DELETE FROM counts WHERE owner = old.owner AND state = old.state AND tasks = 0;
END;
"""

_OUTBOX: Final = """
CREATE TABLE webhooks (
    task_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    made_ms INTEGER NOT NULL,
    config BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    failure TEXT,
    is_given_up INTEGER NOT NULL,
    PRIMARY KEY (task_id, webhook_id)
) WITHOUT ROWID;
CREATE INDEX webhooks_of_owner ON webhooks (owner) WHERE is_given_up = 0;
CREATE TABLE outbox (
    task_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event BLOB NOT NULL,
    PRIMARY KEY (task_id, webhook_id, seq)
) WITHOUT ROWID;
"""

# Each table and each index that a commit changes costs at least one page of the log. So there is one index to list by,
# and only ended tasks are counted: unfinished tasks are found as the tasks whose owner and state have no count. The
# index of waiting tasks leaves out the tasks at work, because each call would change the index twice.
_FEWER_PAGES: Final = """
DROP INDEX tasks_listed;
DROP INDEX tasks_unfinished;
DROP INDEX tasks_ended;
CREATE INDEX tasks_waiting ON tasks (state, status_ms, task_id)
    WHERE ended = 0 AND state NOT IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING');
DROP TRIGGER task_made;
DROP TRIGGER task_moved;
DROP TRIGGER task_gone;
DELETE FROM counts;
INSERT INTO counts SELECT owner, state, count(*) FROM tasks WHERE ended = 1 GROUP BY owner, state;
CREATE TRIGGER ended_task_made AFTER INSERT ON tasks WHEN new.ended = 1 BEGIN
    INSERT INTO counts VALUES (new.owner, new.state, 1)
    ON CONFLICT (owner, state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_ended AFTER UPDATE OF ended ON tasks WHEN old.ended = 0 AND new.ended = 1 BEGIN
    INSERT INTO counts VALUES (new.owner, new.state, 1)
    ON CONFLICT (owner, state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER ended_task_gone AFTER DELETE ON tasks WHEN old.ended = 1 BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE owner = old.owner AND state = old.state;
    DELETE FROM counts WHERE owner = old.owner AND state = old.state AND tasks = 0;
END;
"""

STEPS: Final = (_FIRST, _FOR_MANY, _OUTBOX, _FEWER_PAGES)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a file's tables; 0 for an empty file.

    Raises:
        UsageError: the file was written by a newer release, or is not a store.
        sqlite3.Error: the file cannot be read.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise UsageError(f"{path} is a SQLite file but not a store of this bridge: name another file")
    if version > len(STEPS):
        raise UsageError(
            f"{path} was written by a newer release (schema {version}, this release reads up to {len(STEPS)}):"
            " install that release again, or name another file"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Update a file's tables to this release's version, in one transaction.

    Raises:
        UsageError: the file was written by a newer release, or is not a store.
        sqlite3.Error: the file cannot be read or written.
    """
    version = version_of(connection, path)
    if version < len(STEPS):
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(STEPS)};"
        connection.executescript(f"BEGIN IMMEDIATE; {''.join(STEPS[version:])} {marks} COMMIT;")


def touch(connection: sqlite3.Connection) -> int:
    """Write the file's version again: the smallest possible write. Returns 0."""
    connection.execute(f"PRAGMA user_version = {len(STEPS)}")
    return 0
