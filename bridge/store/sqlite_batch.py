"""Writes a batch of changes to the tables of a SQLite store with few statements.

This module knows the tables and what a change does to them. It must not know threads, and never begins or ends a
transaction.

Every statement releases the interpreter lock and has to get it back from the event loop, which can take far longer than
the statement if the loop is busy. So Python combines the changes of a batch first, and then each table gets one
statement for up to 64 rows. `executemany` would not help: it releases the lock for each row. Events that a later
snapshot in the batch covers are never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bridge.store.records import TaskPosition, position_after

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from bridge.store.outbox import Webhook, WebhookKey
    from bridge.store.records import Change, WholeTask

Cell: TypeAlias = "str | int | bytes | None"
SqlRow: TypeAlias = "tuple[Cell, ...]"

ROWS_PER_STATEMENT: Final = 64
"""The most rows of a statement. A larger statement saves nothing measurable, and takes longer to prepare."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL in which `{rows}` stands for a VALUES list of rows with `width` cells each."""

    sql: str
    width: int

    def run(self, connection: sqlite3.Connection, rows: Sequence[SqlRow]) -> int:
        """Run the statement with these rows, and return the number of stored rows that it changed."""
        return sum(connection.execute(sql, cells).rowcount for sql, cells in self._prepared(rows))

    def fetch(self, connection: sqlite3.Connection, rows: Sequence[SqlRow]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that the statement selects, given `rows`."""
        for sql, cells in self._prepared(rows):
            yield from connection.execute(sql, cells).fetchall()

    def _prepared(self, rows: Sequence[SqlRow]) -> Iterator[tuple[str, list[Cell]]]:
        """Yield the SQL text and its cells, for up to 64 rows at a time.

        The lists are padded to a power of two with rows of NULL, so that seven texts serve every length and stay in the
        connection's statement cache. Every statement below ignores rows of NULL.
        """
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            size = 1 << (len(chunk) - 1).bit_length()
            cells: list[Cell] = [cell for row in chunk for cell in row]
            cells += [None] * (self.width * (size - len(chunk)))
            yield _text_of(self.sql, self.width, size), cells


@lru_cache(maxsize=256)
def _text_of(sql: str, width: int, size: int) -> str:
    marks = f"({','.join('?' * width)})"
    return sql.format(rows=",".join([marks] * size))


_INTO: Final = "INTO {table} SELECT * FROM (VALUES {{rows}}) WHERE column1 IS NOT NULL"
# With OR ROLLBACK, SQLite needs no journal to undo a part of a statement; a fault ends the transaction anyway.
_INSERT_TASKS: Final = Statement("INSERT OR ROLLBACK " + _INTO.format(table="tasks"), 7)
_KEEP_SNAPSHOTS: Final = Statement(
    "INSERT OR ROLLBACK "
    + _INTO.format(table="snapshots")
    + " ON CONFLICT (task_id) DO UPDATE SET seq = excluded.seq, snapshot = excluded.snapshot",
    3,
)
_REPLACE_PRIVATES: Final = Statement("REPLACE " + _INTO.format(table="privates"), 2)
_INSERT_EVENTS: Final = Statement("INSERT OR ROLLBACK " + _INTO.format(table="events"), 3)
_REPLACE_MESSAGES: Final = Statement("REPLACE " + _INTO.format(table="messages"), 5)
_REPLACE_WEBHOOKS: Final = Statement("REPLACE " + _INTO.format(table="webhooks"), 9)
_KEEP_OUTBOX: Final = Statement("INSERT OR ROLLBACK " + _INTO.format(table="outbox"), 4)
_PUT_INTO_OUTBOX: Final = Statement(
    "INSERT OR ROLLBACK INTO outbox SELECT v.column1, webhook_id, v.column2, v.column3 FROM (VALUES {rows}) AS v"
    " JOIN webhooks ON task_id = v.column1 AND is_given_up = 0",
    3,
)
_UPDATE_HEADS: Final = Statement(
    "UPDATE tasks SET state = v.column2, ended = v.column3, status_ms = v.column4"
    " FROM (VALUES {rows}) AS v WHERE task_id = v.column1",
    4,
)

_DELETE: Final = "DELETE FROM {table} WHERE task_id IN (VALUES {{rows}})"
_DELETE_EVENTS: Final = Statement(_DELETE.format(table="events"), 1)
_DELETE_TASKS: Final = Statement(_DELETE.format(table="tasks"), 1)
_DELETE_THE_REST: Final = tuple(
    Statement(_DELETE.format(table=table), 1)
    for table in ("snapshots", "privates", "messages", "webhooks", "outbox")
)

_WITH_ROWS: Final = Statement("SELECT DISTINCT task_id FROM outbox WHERE task_id IN (VALUES {rows})", 1)

_POSITIONS: Final = Statement(
    "SELECT task_id, owner, coalesce("
    "(SELECT max(seq) FROM events WHERE events.task_id = tasks.task_id), snapshots.seq), snapshots.seq, ended"
    " FROM tasks JOIN snapshots USING (task_id) WHERE task_id IN (VALUES {rows})",
    1,
)
_CONTEXT_OWNERS: Final = Statement(
    "SELECT v.column1, tasks.owner FROM (VALUES {rows}) AS v JOIN tasks"
    " ON task_id = (SELECT task_id FROM tasks WHERE context_id = v.column1 LIMIT 1)",
    1,
)


def read_positions(connection: sqlite3.Connection, task_ids: Iterable[str]) -> dict[str, TaskPosition]:
    """The positions of these tasks, without the tasks that are not stored."""
    rows = _POSITIONS.fetch(connection, [(task_id,) for task_id in task_ids])
    return {
        task_id: TaskPosition(owner, seq, snapshot_seq, bool(ended))
        for task_id, owner, seq, snapshot_seq, ended in rows
    }


def read_context_owners(connection: sqlite3.Connection, context_ids: Iterable[str]) -> dict[str, str]:
    """The owners of these contexts, without the contexts that have no task."""
    return dict(_CONTEXT_OWNERS.fetch(connection, [(context_id,) for context_id in context_ids]))


def delete_tasks(connection: sqlite3.Connection, task_ids: Iterable[str]) -> int:
    """Delete tasks and all their rows, and return the number of deleted tasks. Tasks with events still to be sent
    stay."""
    rows = [(task_id,) for task_id in task_ids]
    rows_with_events = set(_WITH_ROWS.fetch(connection, rows))
    rows = [row for row in rows if row not in rows_with_events]
    for statement in (_DELETE_EVENTS, *_DELETE_THE_REST):
        statement.run(connection, rows)
    return _DELETE_TASKS.run(connection, rows)


def insert_tasks(connection: sqlite3.Connection, tasks: Iterable[WholeTask]) -> None:
    """Insert tasks of another store, in the open transaction.

    Raises:
        sqlite3.Error: a row cannot be written, or exists already.
    """
    rows: dict[Statement, list[SqlRow]] = {}
    for whole in tasks:
        task, origin, head = whole.task, whole.task.origin, whole.task.head
        task_id, snapshot_seq = task.task_id, task.seq - len(task.events)
        columns = (head.state, head.ended, head.status_ms)
        row = (task_id, origin.context_id, origin.owner, origin.created_ms, *columns)
        rows.setdefault(_INSERT_TASKS, []).append(row)
        rows.setdefault(_KEEP_SNAPSHOTS, []).append((task_id, snapshot_seq, task.snapshot))
        if task.private:
            rows.setdefault(_REPLACE_PRIVATES, []).append((task_id, task.private))
        for seq, event in enumerate(task.events, snapshot_seq + 1):
            rows.setdefault(_INSERT_EVENTS, []).append((task_id, seq, event))
        for message in whole.messages:
            key = message.key
            cells = (origin.owner, key.message_id, task_id, key.digest, key.accepted_ms)
            rows.setdefault(_REPLACE_MESSAGES, []).append(cells)
        for webhook in whole.webhooks:
            rows.setdefault(_REPLACE_WEBHOOKS, []).append(webhook_row(webhook.webhook))
            for pushed in webhook.rows:
                rows.setdefault(_KEEP_OUTBOX, []).append((*webhook.webhook.key, *pushed))
    for statement, its_rows in rows.items():
        statement.run(connection, its_rows)


def webhook_row(webhook: Webhook) -> SqlRow:
    """The cells of a webhook."""
    how = (webhook.attempts, webhook.due_ms, webhook.failure, webhook.is_given_up)
    return (*webhook.key, webhook.owner, webhook.made_ms, webhook.config, *how)


@dataclass(slots=True)
class Batch:
    """The rows of a batch of changes, collected change by change and written together."""

    positions: dict[str, TaskPosition]
    """The stored positions of the batch's tasks, updated with each added change."""
    context_owners: dict[str, str]
    """The stored owners of the batch's contexts, updated with each added change."""
    hooked: set[str] = field(default_factory=set)
    """The tasks that may have webhooks, updated with each added change."""
    pushed: set[str] = field(default_factory=set)
    """The tasks that may have new rows in the outbox."""
    _tasks: dict[str, SqlRow] = field(default_factory=dict)
    _heads: dict[str, SqlRow] = field(default_factory=dict)
    _snapshots: dict[str, SqlRow] = field(default_factory=dict)
    _privates: dict[str, SqlRow] = field(default_factory=dict)
    _events: dict[str, list[SqlRow]] = field(default_factory=dict)
    _messages: dict[tuple[str, str], SqlRow] = field(default_factory=dict)
    _folded: dict[str, SqlRow] = field(default_factory=dict)
    _webhooks: dict[WebhookKey, SqlRow] = field(default_factory=dict)
    _outbox: list[SqlRow] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Add a change.

        Raises:
            StoreConflictError: the change does not follow. Nothing is added.
        """
        task_id, origin = change.task_id, change.origin
        before = self.positions.get(task_id)
        context_owner = None if origin is None else self.context_owners.get(origin.context_id)
        after = position_after(change, before, context_owner)
        self.positions[task_id] = after
        self._add_head(change)
        if change.snapshot is None:
            self._events.setdefault(task_id, []).append((task_id, change.seq, change.event))
        else:
            self._snapshots[task_id] = (task_id, change.seq, change.snapshot)
            self._events.pop(task_id, None)
            if before is not None and before.seq > before.snapshot_seq:
                self._folded[task_id] = (task_id,)
        if change.private is not None:
            self._privates[task_id] = (task_id, change.private)
        if change.message is not None:
            key = change.message
            row = (after.owner, key.message_id, task_id, key.digest, key.accepted_ms)
            self._messages[after.owner, key.message_id] = row
        if change.webhook is not None:
            self._webhooks[change.webhook.key] = webhook_row(change.webhook)
            self.hooked.add(task_id)
        if task_id in self.hooked:
            self.pushed.add(task_id)
            self._outbox.append((task_id, change.seq, change.event))

    def _add_head(self, change: Change) -> None:
        task_id, origin, head = change.task_id, change.origin, change.head
        if head is None:
            return
        columns = (head.state, head.ended, head.status_ms)
        if origin is not None:
            self._tasks[task_id] = (task_id, origin.context_id, origin.owner, origin.created_ms, *columns)
            self.context_owners[origin.context_id] = origin.owner
        elif task_id in self._tasks:
            self._tasks[task_id] = (*self._tasks[task_id][:4], *columns)
        else:
            self._heads[task_id] = (task_id, *columns)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows, in the open transaction. Most batches have rows for few of the tables.

        Raises:
            sqlite3.Error: a row cannot be written.
        """
        for statement, its_rows in (
            (_INSERT_TASKS, self._tasks.values()),
            (_UPDATE_HEADS, self._heads.values()),
            (_KEEP_SNAPSHOTS, self._snapshots.values()),
            (_REPLACE_PRIVATES, self._privates.values()),
            (_DELETE_EVENTS, self._folded.values()),
            (_INSERT_EVENTS, [row for rows in self._events.values() for row in rows]),
            (_REPLACE_MESSAGES, self._messages.values()),
            (_REPLACE_WEBHOOKS, self._webhooks.values()),
            (_PUT_INTO_OUTBOX, self._outbox),
        ):
            if its_rows:
                statement.run(connection, [*its_rows])
