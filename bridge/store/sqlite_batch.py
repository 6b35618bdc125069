"""Writes a batch of changes to the tables of a SQLite store with few statements.

This module knows the tables and what a change does to them. It must not know threads, nor begin or end a transaction.

Every statement releases the interpreter lock and has to win it back from the event loop. That can take far longer than
the statement if the loop never pauses. So a batch is folded in Python, and then each table gets one statement for up to
64 rows. An executemany does not help: it releases the lock once for each row. Events that a later snapshot in the batch
covers are never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bridge.store.records import TaskPosition, position_after

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from bridge.store.records import Change, WholeTask

Cell: TypeAlias = "str | int | bytes | None"
SqlRow: TypeAlias = "tuple[Cell, ...]"

ROWS_PER_STATEMENT: Final = 64
"""The most rows of one statement. A larger one saves nothing measurable, and takes longer to prepare."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL over `{rows}`: a VALUES list of rows of `width` cells."""

    sql: str
    width: int

    def run(self, connection: sqlite3.Connection, rows: Sequence[SqlRow]) -> int:
        """Run the statement for these rows, and return the number of stored rows that it changed."""
        return sum(connection.execute(sql, cells).rowcount for sql, cells in self._prepared(rows))

    def fetch(self, connection: sqlite3.Connection, rows: Sequence[SqlRow]) -> Iterator[tuple[Any, ...]]:
        """The rows that the statement selects for these rows."""
        for sql, cells in self._prepared(rows):
            yield from connection.execute(sql, cells).fetchall()

    def _prepared(self, rows: Sequence[SqlRow]) -> Iterator[tuple[str, list[Cell]]]:
        """The SQL text and its cells, for up to 64 rows each.

        Lists are padded with rows of NULL to a power of two. So seven texts serve every length, and stay in the
        connection's statement cache. Every statement below ignores a row of NULL.
        """
        marks = f"({','.join('?' * self.width)})"
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            size = 1 << (len(chunk) - 1).bit_length()
            cells: list[Cell] = [cell for row in chunk for cell in row]
            cells += [None] * (self.width * (size - len(chunk)))
            yield self.sql.format(rows=",".join([marks] * size)), cells


_INTO: Final = "INTO {table} SELECT * FROM (VALUES {{rows}}) WHERE column1 IS NOT NULL"
# With OR ROLLBACK, SQLite needs no journal to undo half a statement; the transaction is given up anyway.
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
_UPDATE_HEADS: Final = Statement(
    "UPDATE tasks SET state = v.column2, ended = v.column3, status_ms = v.column4"
    " FROM (VALUES {rows}) AS v WHERE task_id = v.column1",
    4,
)

_DELETE: Final = "DELETE FROM {table} WHERE task_id IN (VALUES {{rows}})"
_DELETE_EVENTS: Final = Statement(_DELETE.format(table="events"), 1)
_DELETE_TASKS: Final = Statement(_DELETE.format(table="tasks"), 1)
_DELETE_THE_REST: Final = tuple(
    Statement(_DELETE.format(table=table), 1) for table in ("snapshots", "privates", "messages")
)

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
    """The positions of those of the tasks that are stored."""
    rows = _POSITIONS.fetch(connection, [(task_id,) for task_id in task_ids])
    return {
        task_id: TaskPosition(owner, seq, snapshot_seq, bool(ended))
        for task_id, owner, seq, snapshot_seq, ended in rows
    }


def read_context_owners(connection: sqlite3.Connection, context_ids: Iterable[str]) -> dict[str, str]:
    """The owners of those of the contexts that have a task."""
    return dict(_CONTEXT_OWNERS.fetch(connection, [(context_id,) for context_id in context_ids]))


def delete_tasks(connection: sqlite3.Connection, task_ids: Iterable[str]) -> int:
    """Delete tasks and all their rows, and return the number of deleted tasks."""
    rows = [(task_id,) for task_id in task_ids]
    for statement in (_DELETE_EVENTS, *_DELETE_THE_REST):
        statement.run(connection, rows)
    return _DELETE_TASKS.run(connection, rows)


def insert_tasks(connection: sqlite3.Connection, tasks: Iterable[WholeTask]) -> None:
    """Insert tasks of another store, in the open transaction.

    Raises:
        sqlite3.Error: a row cannot be written, or is there.
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
    for statement, its_rows in rows.items():
        statement.run(connection, its_rows)


@dataclass(slots=True)
class Batch:
    """The rows of a batch of changes, collected change by change and written once."""

    positions: dict[str, TaskPosition]
    """The stored positions of the batch's tasks, updated with each added change."""
    context_owners: dict[str, str]
    """The stored owners of the batch's contexts, updated with each added change."""
    _tasks: dict[str, SqlRow] = field(default_factory=dict)
    _heads: dict[str, SqlRow] = field(default_factory=dict)
    _snapshots: dict[str, SqlRow] = field(default_factory=dict)
    _privates: dict[str, SqlRow] = field(default_factory=dict)
    _events: dict[str, list[SqlRow]] = field(default_factory=dict)
    _messages: dict[tuple[str, str], SqlRow] = field(default_factory=dict)
    _folded: dict[str, SqlRow] = field(default_factory=dict)

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
        """Write all rows, in the open transaction.

        Raises:
            sqlite3.Error: a row cannot be written.
        """
        _INSERT_TASKS.run(connection, [*self._tasks.values()])
        _UPDATE_HEADS.run(connection, [*self._heads.values()])
        _KEEP_SNAPSHOTS.run(connection, [*self._snapshots.values()])
        _REPLACE_PRIVATES.run(connection, [*self._privates.values()])
        _DELETE_EVENTS.run(connection, [*self._folded.values()])
        _INSERT_EVENTS.run(connection, [row for rows in self._events.values() for row in rows])
        _REPLACE_MESSAGES.run(connection, [*self._messages.values()])
