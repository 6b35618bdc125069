"""Reads a store in PostgreSQL: rows to records. One statement reads a task with its events, so they are consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from bridge.store.records import (
    MessageKey,
    Query,
    StoredMessage,
    StoredTask,
    TaskHead,
    TaskOrigin,
    TaskPage,
    WrittenAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from psycopg import AsyncConnection

    from bridge.store.postgres.table_steps import Namespace

COUNTED_EXACTLY: Final = 10_000
"""The most matches that a listing with a start time counts exactly. Above it, the total is that of the owner."""

_TASKS: Final = """
    SELECT t.task_id, t.context_id, t.owner, t.created_ms, t.state, t.ended, t.status_ms, t.seq, s.snapshot, p.private,
        t.holder,
        ARRAY(SELECT event FROM {ns}.events e WHERE e.task_id = t.task_id AND e.seq > t.snapshot_seq ORDER BY e.seq)
    FROM {ns}.tasks t JOIN {ns}.snapshots s USING (task_id) LEFT JOIN {ns}.privates p USING (task_id)"""
_ONE: Final = _TASKS + " WHERE t.task_id = %s"
_SEVERAL: Final = _TASKS + " WHERE t.task_id = ANY(%s)"
_COUNTED: Final = """
    SELECT coalesce(sum(tasks), 0)::bigint FROM {ns}.counts
    WHERE owner = %(owner)s AND (%(state)s::text IS NULL OR state = %(state)s)"""
_COUNTED_OF_ALL: Final = """
    SELECT coalesce(sum(tasks), 0)::bigint FROM {ns}.counts WHERE %(state)s::text IS NULL OR state = %(state)s"""
_OPEN: Final = "SELECT coalesce(sum(tasks), 0)::bigint FROM {ns}.counts WHERE owner = %s AND NOT ended"
_MESSAGE: Final = """
    SELECT task_id, digest, accepted_ms, (extract(epoch FROM now() - stored_at) * 1000)::bigint, answer_ms,
        is_repeatable, (extract(epoch FROM now() - answered_at) * 1000)::bigint
    FROM {ns}.messages WHERE owner = %s AND message_id = %s"""
_NEWS: Final = """
    SELECT f.task_id, e.seq, e.event FROM unnest(%s::text[], %s::bigint[]) AS f(task_id, seq)
    JOIN {ns}.tasks t ON t.task_id = f.task_id AND t.seq > f.seq
    LEFT JOIN {ns}.events e ON e.task_id = f.task_id AND e.seq > f.seq ORDER BY f.task_id, e.seq LIMIT %s"""
_SNAPSHOTS: Final = """
    SELECT t.task_id, t.snapshot_seq, s.snapshot FROM {ns}.tasks t JOIN {ns}.snapshots s USING (task_id)
    WHERE t.task_id = ANY(%s)"""


async def task(connection: AsyncConnection, place: Namespace, task_id: str) -> StoredTask | None:
    """The task with this id; None if there is none."""
    row = await (await connection.execute(place.sql(_ONE), (task_id,))).fetchone()
    return None if row is None else _stored(row)


async def tasks(connection: AsyncConnection, place: Namespace, task_ids: Sequence[str]) -> list[StoredTask]:
    """The tasks with these ids, in any order."""
    return [
        _stored(row) for row in await (await connection.execute(place.sql(_SEVERAL), (task_ids,))).fetchall()
    ]


async def listing(connection: AsyncConnection, place: Namespace, query: Query) -> TaskPage:
    """A page of the owner's tasks, or of the tasks of all owners, with the number of all matches."""
    matches = _conditions(query)
    page = [*matches, _NOT_YET_SEEN] if query.after is not None else matches
    cells = {
        "owner": query.owner,
        "context": query.context_id,
        "state": query.state,
        "since": query.status_from_ms,
        "limit": query.limit + 1,
        "status": query.after.status_ms if query.after else None,
        "task": query.after.task_id if query.after else None,
    }
    text = place.sql(_TASKS) + sql.SQL(" WHERE ") + sql.SQL(" AND ").join(page)
    ordered = text + sql.SQL(" ORDER BY t.status_ms DESC, t.task_id DESC LIMIT %(limit)s")
    rows = await (await connection.execute(ordered, cells)).fetchall()
    total = await _total(connection, place, query, matches, cells)
    return TaskPage(tuple(map(_stored, rows[: query.limit])), total, len(rows) > query.limit)


async def _total(
    connection: AsyncConnection,
    place: Namespace,
    query: Query,
    matches: Sequence[sql.SQL],
    cells: dict[str, Any],
) -> int:
    all_of_them = place.sql(_COUNTED_OF_ALL if query.owner is None else _COUNTED)
    if query.context_id is None and query.status_from_ms is None:
        return await _number(connection, all_of_them, cells)
    counted = place.sql("SELECT count(*) FROM (SELECT FROM {ns}.tasks t WHERE ") + sql.SQL(" AND ").join(
        matches
    )
    if query.context_id is not None:
        return await _number(connection, counted + sql.SQL(") AS found"), cells)
    most = {**cells, "limit": COUNTED_EXACTLY + 1}
    number = await _number(connection, counted + sql.SQL(" LIMIT %(limit)s) AS found"), most)
    return number if number <= COUNTED_EXACTLY else await _number(connection, all_of_them, cells)


async def _number(connection: AsyncConnection, text: sql.SQL | sql.Composed, cells: dict[str, Any]) -> int:
    row = await (await connection.execute(text, cells)).fetchone()
    return 0 if row is None else int(row[0])


_NOT_YET_SEEN: Final = sql.SQL("(t.status_ms, t.task_id) < (%(status)s, %(task)s)")


def _conditions(query: Query) -> list[sql.SQL]:
    optional = [
        (sql.SQL("t.owner = %(owner)s"), query.owner),
        (sql.SQL("t.context_id = %(context)s"), query.context_id),
        (sql.SQL("t.state = %(state)s"), query.state),
        (sql.SQL("t.status_ms >= %(since)s"), query.status_from_ms),
    ]
    return [text for text, cell in optional if cell is not None] or [sql.SQL("TRUE")]


async def context_owner(connection: AsyncConnection, place: Namespace, context_id: str) -> str | None:
    """The owner of a context; None if it has no task."""
    cursor = await connection.execute(
        place.sql("SELECT owner FROM {ns}.contexts WHERE context_id = %s"), (context_id,)
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def message(
    connection: AsyncConnection, place: Namespace, owner: str, message_id: str
) -> StoredMessage | None:
    """The stored message of this owner with this id; None if there is none."""
    row = await (await connection.execute(place.sql(_MESSAGE), (owner, message_id))).fetchone()
    if row is None:
        return None
    task_id, digest, accepted_ms, age_ms, answer_ms, is_repeatable, answer_age_ms = row
    answer = None if answer_ms is None else WrittenAnswer(answer_ms, is_repeatable, answer_age_ms)
    return StoredMessage(task_id, MessageKey(message_id, digest, accepted_ms), age_ms, answer)


async def open_of(connection: AsyncConnection, place: Namespace, owner: str) -> int:
    """The number of unfinished tasks of an owner."""
    row = await (await connection.execute(place.sql(_OPEN), (owner,))).fetchone()
    return 0 if row is None else int(row[0])


async def waiting(connection: AsyncConnection, place: Namespace, states: Collection[str]) -> dict[str, int]:
    """The ids of the unfinished tasks in one of these states, each with its `status_ms`."""
    cursor = await connection.execute(
        place.sql("SELECT task_id, status_ms FROM {ns}.tasks WHERE NOT ended AND state = ANY(%s)"),
        (sorted(states),),
    )
    return dict(await cursor.fetchall())


async def news(
    connection: AsyncConnection, place: Namespace, seen: Sequence[tuple[str, int]], limit: int
) -> list[tuple[str, int | None, bytes | None]]:
    """At most `limit` events after these (task, seq) pairs: task, seq and event, in the order of each task. A task that
    changed but has no such events any more comes with None."""
    cells = ([task_id for task_id, _ in seen], [seq for _, seq in seen], limit)
    return await (await connection.execute(place.sql(_NEWS), cells)).fetchall()


async def snapshots(
    connection: AsyncConnection, place: Namespace, task_ids: Sequence[str]
) -> dict[str, tuple[int, bytes]]:
    """The snapshots of tasks, each with the sequence number of its last event."""
    rows = await (await connection.execute(place.sql(_SNAPSHOTS), (task_ids,))).fetchall()
    return {task_id: (seq, snapshot) for task_id, seq, snapshot in rows}


def _stored(row: tuple[Any, ...]) -> StoredTask:
    (
        task_id,
        context_id,
        owner,
        created_ms,
        state,
        ended,
        status_ms,
        seq,
        snapshot,
        private,
        holder,
        events,
    ) = row
    return StoredTask(
        task_id=task_id,
        origin=TaskOrigin(context_id, owner, created_ms),
        head=TaskHead(state, ended, status_ms),
        seq=seq,
        snapshot=snapshot,
        events=tuple(events),
        private=private or b"",
        holder=None if holder is None else str(holder),
    )
