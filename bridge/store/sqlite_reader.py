# ruff: noqa: S608 - every statement is a text of this module; values are bound
"""Reads a SQLite store: rows to records, on a read-only connection.

This module knows the queries. Each read is one transaction, so that a task and its events are consistent. No cursor
stays open after a read, because an open cursor would keep SQLite from reusing the write-ahead log.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from bridge.errors import StoreError
from bridge.store.outbox import KeptWebhook, OutboxRow, WaitingWebhook, Webhook, WebhookKey
from bridge.store.records import (
    MessageKey,
    Query,
    StoredMessage,
    StoredTask,
    TaskHead,
    TaskOrigin,
    TaskPage,
    WholeTask,
)
from bridge.store.retention import EndedTask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

_TASKS: Final = (
    "SELECT task_id, context_id, owner, created_ms, state, ended, status_ms, seq, snapshot, private"
    " FROM tasks JOIN snapshots USING (task_id) LEFT JOIN privates USING (task_id)"
)
_NEWEST_FIRST: Final = "status_ms DESC, task_id DESC"
_OLDEST_FIRST: Final = "status_ms, task_id"
_OF_STATE: Final = "FROM tasks WHERE owner = ? AND state = ?"
# Each owner and each state takes one look-up in the index, however many tasks it has.
_PAIRS: Final = """
pairs(owner, state) AS (
    SELECT owner, '' FROM owners WHERE owner IS NOT NULL
    UNION ALL
    SELECT owner, (SELECT min(t.state) FROM tasks AS t WHERE t.owner = pairs.owner AND t.state > pairs.state)
    FROM pairs WHERE state IS NOT NULL
)
"""
_STATES_OF: Final = (
    f"WITH RECURSIVE owners(owner) AS (VALUES (?)), {_PAIRS} SELECT state FROM pairs WHERE state <> ''"
)
# An unfinished state is a state without a count, because the counts are of ended tasks.
_UNFINISHED: Final = f"""
WITH RECURSIVE
owners(owner) AS (
    SELECT min(owner) FROM tasks
    UNION ALL
    SELECT (SELECT min(t.owner) FROM tasks AS t WHERE t.owner > owners.owner) FROM owners WHERE owner IS NOT NULL
),
{_PAIRS}
SELECT task_id FROM pairs CROSS JOIN tasks USING (owner, state)
WHERE NOT EXISTS (SELECT 1 FROM counts AS c WHERE c.owner = pairs.owner AND c.state = pairs.state)
ORDER BY created_ms, task_id
"""
# The condition is that of the index `tasks_waiting`.
_WAITING: Final = (
    "SELECT task_id, status_ms FROM tasks"
    " WHERE ended = 0 AND state NOT IN ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING')"
)
_IDS: Final = "SELECT task_id FROM tasks WHERE task_id > ? ORDER BY task_id LIMIT ?"
_MESSAGES_OF: Final = (
    "SELECT message_id, digest, accepted_ms FROM messages WHERE task_id = ? ORDER BY message_id"
)
_EVENTS: Final = "SELECT event FROM events WHERE task_id = ? ORDER BY seq"

_WEIGHT: Final = (
    "SELECT length(snapshot) + coalesce((SELECT sum(length(event)) FROM events WHERE task_id = :task_id), 0)"
    " FROM snapshots WHERE task_id = :task_id"
)
_NOTHING_TO_SEND: Final = "task_id NOT IN (SELECT task_id FROM outbox)"
_ENDED: Final = f"FROM counts CROSS JOIN tasks USING (owner, state) WHERE {_NOTHING_TO_SEND}"
# This scans all snapshots, because their lengths are stored before them. A look-up by key would read whole snapshots.
_ENDED_SIZES: Final = (
    "SELECT status_ms, task_id, owner, length(snapshot)"
    f" FROM snapshots CROSS JOIN tasks USING (task_id) WHERE ended = 1 AND {_NOTHING_TO_SEND}"
)
_WEBHOOKS: Final = (
    "SELECT task_id, webhook_id, owner, made_ms, config, attempts, due_ms, failure, is_given_up FROM webhooks"
)
_TO_SEND: Final = "SELECT task_id, webhook_id, count(*) FROM outbox{} GROUP BY task_id, webhook_id"
_COUNTED: Final = (
    "SELECT count(*) FROM webhooks AS w JOIN tasks USING (task_id) WHERE w.owner = ? AND is_given_up = 0"
    " AND (ended = 0 OR EXISTS (SELECT 1 FROM outbox AS o"
    " WHERE o.task_id = w.task_id AND o.webhook_id = w.webhook_id))"
)


class Reader:
    """A read-only connection. Its methods block; a lock admits one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open the connection.

        Raises:
            sqlite3.Error: the file does not exist or cannot be read.
        """
        uri = f"{path.absolute().as_uri()}?mode=ro"
        self._path = path
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _moment(self) -> Iterator[sqlite3.Connection]:
        """The connection, inside one read transaction.

        Raises:
            StoreError: the file cannot be read.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN")
                try:
                    yield self._connection
                finally:
                    self._connection.execute("ROLLBACK")
            except sqlite3.Error as exc:
                raise StoreError(f"{self._path} cannot be read: {exc}") from exc

    def weigh(self, task_id: str) -> int | None:
        """The bytes of a task's snapshot and events; None if there is no such task."""
        with self._moment() as connection:
            row = connection.execute(_WEIGHT, {"task_id": task_id}).fetchone()
        return None if row is None else int(row[0])

    def task(self, task_id: str) -> StoredTask | None:
        """The task with this id; None if there is none."""
        with self._moment() as connection:
            row = connection.execute(f"{_TASKS} WHERE task_id = ?", (task_id,)).fetchone()
            return None if row is None else _stored(connection, row)

    def listing(self, query: Query) -> TaskPage:
        """A page of the owner's tasks, or of the tasks of all owners."""
        with self._moment() as connection:
            read = _by_context if query.owner is None or query.context_id is not None else _by_state
            total, ids = read(connection, query)
            rows = _tasks_with(connection, ids[: query.limit], _NEWEST_FIRST)
            tasks = tuple(_stored(connection, row) for row in rows)
        return TaskPage(tasks=tasks, total=total, more=len(ids) > query.limit)

    def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        with self._moment() as connection:
            sql = "SELECT owner FROM tasks WHERE context_id = ? LIMIT 1"
            row = connection.execute(sql, (context_id,)).fetchone()
        return None if row is None else str(row[0])

    def message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        with self._moment() as connection:
            sql = "SELECT task_id, digest, accepted_ms FROM messages WHERE owner = ? AND message_id = ?"
            row = connection.execute(sql, (owner, message_id)).fetchone()
        return None if row is None else StoredMessage(row[0], MessageKey(message_id, row[1], row[2]))

    def unfinished(self) -> Sequence[str]:
        """The ids of the unfinished tasks, oldest first."""
        with self._moment() as connection:
            return [task_id for (task_id,) in connection.execute(_UNFINISHED).fetchall()]

    def tasks(self, task_ids: Sequence[str]) -> Sequence[StoredTask]:
        """The tasks with these ids, oldest first."""
        with self._moment() as connection:
            rows = _tasks_with(connection, task_ids, "created_ms, task_id")
            return [_stored(connection, row) for row in rows]

    def waiting(self, states: Collection[str]) -> dict[str, int]:
        """The ids of the unfinished tasks in one of these states, in which no work runs, each with its `status_ms`."""
        sql = f"{_WAITING} AND state IN ({_marks(states)})"
        with self._moment() as connection:
            return dict(connection.execute(sql, (*states,)).fetchall())

    def aged(self, ended_before_ms: int, limit: int) -> Sequence[str]:
        """The ids of up to `limit` tasks that ended before a time."""
        sql = f"SELECT task_id {_ENDED} AND status_ms < ? LIMIT ?"
        with self._moment() as connection:
            return [task_id for (task_id,) in connection.execute(sql, (ended_before_ms, limit)).fetchall()]

    def count_ended(self) -> dict[str, int]:
        """The number of ended tasks of each owner."""
        with self._moment() as connection:
            return dict(connection.execute(f"SELECT owner, count(*) {_ENDED} GROUP BY owner").fetchall())

    def ended_sizes(self) -> list[EndedTask]:
        """The ended tasks with their sizes in bytes."""
        with self._moment() as connection:
            return [EndedTask(*row) for row in connection.execute(_ENDED_SIZES).fetchall()]

    def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        sql = f"{_WEBHOOKS} WHERE task_id = ? ORDER BY made_ms, webhook_id"
        with self._moment() as connection:
            return [webhook_from(row) for row in connection.execute(sql, (task_id,)).fetchall()]

    def count_webhooks(self, owner: str) -> int:
        """The number of an owner's webhooks with events to send, now or later."""
        with self._moment() as connection:
            return count_webhooks(connection, owner)

    def waiting_webhooks(self, task_ids: Collection[str] | None) -> Sequence[WaitingWebhook]:
        """The webhooks with waiting rows, for these tasks or for all tasks."""
        ids = sorted(task_ids or ())
        some = "" if task_ids is None else f" WHERE task_id IN ({_marks(ids)})"
        webhooks = []
        with self._moment() as connection:
            for task_id, webhook_id, rows in connection.execute(_TO_SEND.format(some), ids).fetchall():
                sql = f"{_WEBHOOKS} WHERE task_id = ? AND webhook_id = ?"
                row = connection.execute(sql, (task_id, webhook_id)).fetchone()
                webhooks.append(WaitingWebhook(webhook_from(row), rows))
        return webhooks

    def first_row(self, key: WebhookKey) -> OutboxRow | None:
        """The first row of a webhook; None if there is none."""
        sql = "SELECT seq, event FROM outbox WHERE task_id = ? AND webhook_id = ? ORDER BY seq LIMIT 1"
        with self._moment() as connection:
            row = connection.execute(sql, key).fetchone()
        return None if row is None else OutboxRow(*row)

    def hooked(self) -> set[str]:
        """The unfinished tasks with webhooks."""
        sql = "SELECT DISTINCT task_id FROM webhooks JOIN tasks USING (task_id) WHERE ended = 0"
        with self._moment() as connection:
            return {task_id for (task_id,) in connection.execute(sql).fetchall()}

    def oldest_ended(self, owner: str, limit: int) -> Sequence[str]:
        """The ids of up to `limit` tasks of an owner that ended first."""
        with self._moment() as connection:
            states = connection.execute("SELECT state FROM counts WHERE owner = ?", (owner,)).fetchall()
            selection = _Found(owner, [state for (state,) in states], f" AND {_NOTHING_TO_SEND}", ())
            return selection.first(connection, _OLDEST_FIRST, limit)


def read_whole_tasks(
    connection: sqlite3.Connection, after: str, limit: int, most_bytes: int
) -> list[WholeTask]:
    """Tasks with all that is kept for them, ordered by id, after the id `after`: at most `limit`, and no more tasks
    after they have `most_bytes`."""
    tasks: list[WholeTask] = []
    size = 0
    for (task_id,) in connection.execute(_IDS, (after, limit)).fetchall():
        task = _stored(connection, connection.execute(f"{_TASKS} WHERE task_id = ?", (task_id,)).fetchone())
        messages = (
            StoredMessage(task_id, MessageKey(*row)) for row in connection.execute(_MESSAGES_OF, (task_id,))
        )
        tasks.append(WholeTask(task, tuple(messages), tuple(_kept_webhooks(connection, task_id))))
        size += tasks[-1].size
        if size >= most_bytes:
            break
    return tasks


def count_webhooks(connection: sqlite3.Connection, owner: str) -> int:
    """The number of an owner's webhooks with events to send, now or later."""
    (number,) = connection.execute(_COUNTED, (owner,)).fetchone()
    return int(number)


def webhook_from(row: tuple[Any, ...]) -> Webhook:
    """The webhook in a row."""
    task_id, webhook_id, owner, made_ms, config, attempts, due_ms, failure, is_given_up = row
    key = WebhookKey(task_id, webhook_id)
    return Webhook(key, owner, made_ms, config, attempts, due_ms, failure, bool(is_given_up))


def _kept_webhooks(connection: sqlite3.Connection, task_id: str) -> Iterator[KeptWebhook]:
    sql = f"{_WEBHOOKS} WHERE task_id = ? ORDER BY webhook_id"
    for webhook in map(webhook_from, connection.execute(sql, (task_id,)).fetchall()):
        text = "SELECT seq, event FROM outbox WHERE task_id = ? AND webhook_id = ? ORDER BY seq"
        rows = connection.execute(text, webhook.key).fetchall()
        yield KeptWebhook(webhook, tuple(OutboxRow(*row) for row in rows))


@dataclass(frozen=True, slots=True)
class _Found:
    """An owner's tasks in some states that meet more conditions. The index has the tasks of each state in order, so
    those of several states are merged."""

    owner: str
    states: Sequence[str]
    more: str
    cells: Sequence[str | int]

    def first(self, connection: sqlite3.Connection, order: str, limit: int) -> Sequence[str]:
        """The ids of the first `limit` tasks in an order."""
        select = f"SELECT * FROM (SELECT task_id, status_ms {_OF_STATE}{self.more} ORDER BY {order} LIMIT ?)"
        if not self.states:
            return []
        cells = [cell for state in self.states for cell in (self.owner, state, *self.cells, limit)]
        sql = f"{' UNION ALL '.join([select] * len(self.states))} ORDER BY {order} LIMIT ?"
        return [task_id for task_id, _ in connection.execute(sql, [*cells, limit]).fetchall()]

    def count(self, connection: sqlite3.Connection) -> int:
        """The number of the tasks."""
        sql = f"SELECT count(*) {_OF_STATE}{self.more}"
        cells = [(self.owner, state, *self.cells) for state in self.states]
        return sum(connection.execute(sql, each).fetchone()[0] for each in cells)


def _by_state(connection: sqlite3.Connection, query: Query) -> tuple[int, Sequence[str]]:
    """The number of an owner's tasks that match a query, and the ids of one more than its page."""
    owner, states = query.owner or "", [query.state] if query.state is not None else []
    if query.state is None:
        states = [state for (state,) in connection.execute(_STATES_OF, (owner,)).fetchall()]
    more, counts = "", {}
    cells: tuple[str | int, ...] = ()
    if query.status_from_ms is None:
        sql = "SELECT state, tasks FROM counts WHERE owner = ?"
        counts = dict(connection.execute(sql, (owner,)).fetchall())
    else:
        more, cells = " AND status_ms >= ?", (query.status_from_ms,)
    total = sum(counts.get(state, 0) for state in states)
    total += _Found(owner, [state for state in states if state not in counts], more, cells).count(connection)
    if query.after is not None:
        more += " AND (status_ms, task_id) < (?, ?)"
        cells = (*cells, query.after.status_ms, query.after.task_id)
    return total, _Found(owner, states, more, cells).first(connection, _NEWEST_FIRST, query.limit + 1)


def _by_context(connection: sqlite3.Connection, query: Query) -> tuple[int, Sequence[str]]:
    """Like `_by_state`, for the tasks of a context or of all owners, of which only the ids are sorted."""
    # The plus keeps the query planner from reading all tasks of the owner to find the tasks of a context.
    conditions: list[tuple[str, str | int | None]] = [
        ("+owner = ?", query.owner),
        ("context_id = ?", query.context_id),
        ("state = ?", query.state),
        ("status_ms >= ?", query.status_from_ms),
    ]
    used = [(sql, cell) for sql, cell in conditions if cell is not None]
    matches, cells = " AND ".join(sql for sql, _ in used) or "TRUE", [cell for _, cell in used]
    (total,) = connection.execute(f"SELECT count(*) FROM tasks WHERE {matches}", cells).fetchone()
    if query.after is not None:
        matches += " AND (status_ms, task_id) < (?, ?)"
        cells += [query.after.status_ms, query.after.task_id]
    sql = f"SELECT task_id FROM tasks WHERE {matches} ORDER BY {_NEWEST_FIRST} LIMIT ?"
    return total, [task_id for (task_id,) in connection.execute(sql, [*cells, query.limit + 1]).fetchall()]


def _tasks_with(connection: sqlite3.Connection, task_ids: Sequence[str], order: str) -> list[tuple[Any, ...]]:
    sql = f"{_TASKS} WHERE task_id IN ({_marks(task_ids)}) ORDER BY {order}"
    return connection.execute(sql, task_ids).fetchall()


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _stored(connection: sqlite3.Connection, row: tuple[Any, ...]) -> StoredTask:
    task_id, context_id, owner, created_ms, state, ended, status_ms, seq, snapshot, private = row
    events = tuple(event for (event,) in connection.execute(_EVENTS, (task_id,)).fetchall())
    return StoredTask(
        task_id=task_id,
        origin=TaskOrigin(context_id, owner, created_ms),
        head=TaskHead(state, bool(ended), status_ms),
        seq=seq + len(events),
        snapshot=snapshot,
        events=events,
        private=private or b"",
    )
