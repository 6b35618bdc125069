"""The whole content of a store in PostgreSQL, in a transaction in which no replica uses the store. See `StoreContents`.

Unfinished tasks are added as handed over, so the first replica that starts adopts them. Rows that name an epoch name
`NOBODY` here, which is never an epoch.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from bridge.errors import StoreError, UsageError
from bridge.store.outbox import KeptWebhook, OutboxRow, WebhookKey
from bridge.store.postgres import reads
from bridge.store.postgres.append import NOBODY
from bridge.store.postgres.connections import first_line
from bridge.store.postgres.occupancy import alone
from bridge.store.postgres.outbox import HOOK_TASKS, KEEP_WEBHOOKS, OF_TASKS, webhook_from, webhook_row
from bridge.store.postgres.upgrade import NO_TABLES, prepare, require_known, version_of
from bridge.store.records import MessageKey, StoredMessage, WholeTask, WrittenAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from typing import LiteralString

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import Lease
    from bridge.store.postgres.table_steps import Namespace, Tables

_IDS_AT_ONCE: Final = 256
_READ_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that one statement reads, unless a single task is larger."""

_IDS: Final = """SELECT task_id FROM {ns}.tasks ORDER BY task_id COLLATE "C" """
_SIZES: Final = """
    SELECT t.task_id, t.weight + coalesce((
        SELECT sum(octet_length(e.event)) FROM {ns}.events e WHERE e.task_id = t.task_id AND e.seq > t.snapshot_seq
    ), 0)::bigint FROM {ns}.tasks t WHERE t.task_id = ANY(%s)"""
_MESSAGES: Final = """
    SELECT task_id, message_id, digest, accepted_ms, (extract(epoch FROM now() - stored_at) * 1000)::bigint, answer_ms,
        is_repeatable, (extract(epoch FROM now() - answered_at) * 1000)::bigint
    FROM {ns}.messages WHERE task_id = ANY(%s) ORDER BY message_id COLLATE "C" """

# The planner has no statistics for tables that this transaction fills, and would scan them for each group of tasks.
_BY_INDEX: Final = """
    SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
        set_config('enable_mergejoin', 'off', true)"""
# Without it, the planner takes a store that was just filled for empty. It skips tables that another role owns.
_ANALYZE: Final = """
    ANALYZE {ns}.tasks, {ns}.snapshots, {ns}.privates, {ns}.events, {ns}.messages, {ns}.counts, {ns}.webhooks,
        {ns}.outbox"""
_OUTBOX: Final = """
    SELECT task_id, webhook_id, seq, event FROM {ns}.outbox WHERE task_id = ANY(%s) ORDER BY task_id, webhook_id, seq"""
_ADD_OUTBOX: Final = """
    INSERT INTO {ns}.outbox (task_id, webhook_id, seq, event)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[])"""
_ADD_CONTEXTS: Final = """
    INSERT INTO {ns}.contexts (context_id, owner) SELECT DISTINCT * FROM unnest(%s::text[], %s::text[])
    ON CONFLICT DO NOTHING"""
_ADD_TASKS: Final = """
    INSERT INTO {ns}.tasks (task_id, context_id, owner, created_ms, state, ended, status_ms, seq, snapshot_seq, weight,
        holder)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::boolean[], %s::bigint[],
        %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[])"""
_ADD_SNAPSHOTS: Final = """
    INSERT INTO {ns}.snapshots (task_id, snapshot) SELECT * FROM unnest(%s::text[], %s::bytea[])"""
_ADD_PRIVATES: Final = """
    INSERT INTO {ns}.privates (task_id, private) SELECT * FROM unnest(%s::text[], %s::bytea[])"""
_ADD_EVENTS: Final = """
    INSERT INTO {ns}.events (task_id, seq, event, epoch)
    SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bytea[], %s::integer[])"""
# A message without an age gets the age by the clock of the process that accepted it.
_ADD_MESSAGES: Final = """
    INSERT INTO {ns}.messages (owner, message_id, task_id, digest, accepted_ms, stored_at, answered_at, answer_ms,
        is_repeatable)
    SELECT v.owner, v.message_id, v.task_id, v.digest, v.accepted_ms,
        coalesce(now() - v.age_ms * interval '1 millisecond', least(now(), to_timestamp(v.accepted_ms / 1000.0))),
        now() - v.answer_age_ms * interval '1 millisecond', v.answer_ms, v.is_repeatable
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
        %s::boolean[])
        AS v(owner, message_id, task_id, digest, accepted_ms, age_ms, answer_age_ms, answer_ms, is_repeatable)"""
_COUNT: Final = """
    INSERT INTO {ns}.counts AS c (owner, state, ended, epoch, tasks, weight)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::boolean[], %s::integer[], %s::bigint[], %s::bigint[])
    ON CONFLICT (owner, state, ended, epoch)
    DO UPDATE SET tasks = c.tasks + excluded.tasks, weight = c.weight + excluded.weight"""


@asynccontextmanager
async def contents(
    connection: AsyncConnection, place: Namespace, tables: Tables, lease: Lease, *, create: bool
) -> AsyncIterator[PostgresContents]:
    """See `Store.contents`.

    Raises:
        StoreLockedError: there are live replicas.
        UsageError: the tables do not exist, or are not those of this release.
    """
    if create:
        await prepare(connection, place, tables)
    else:
        version = await version_of(connection, place)
        require_known(version, place, tables)
        if version == NO_TABLES:
            raise UsageError(f"there is no store {place.name} in this database")
        if version.version < tables.version:
            raise UsageError(
                f"the tables of {place.name} are of an older release: run `mcp-a2a store migrate FILE` first"
            )
    async with alone(connection, place, lease, fences=create):
        await connection.execute(_BY_INDEX)
        yield PostgresContents(connection, place)
        if create:
            await connection.execute(place.sql(_ANALYZE))


class PostgresContents:
    """The contents, on a connection in a transaction. See `StoreContents`."""

    def __init__(self, connection: AsyncConnection, place: Namespace) -> None:
        self._connection = connection
        self._place = place

    async def count(self) -> int:
        """The number of tasks."""
        with self._as_store_errors():
            cursor = await self._connection.execute(self._place.sql("SELECT count(*) FROM {ns}.tasks"))
            row = await cursor.fetchone()
        return 0 if row is None else int(row[0])

    async def tasks(self) -> AsyncIterator[WholeTask]:
        """Yield every task, ordered by the code points of the ids, whatever the database's collation."""
        with self._as_store_errors():
            async with self._connection.cursor(name="contents") as cursor:
                await cursor.execute(self._place.sql(_IDS))
                while task_ids := [task_id for (task_id,) in await cursor.fetchmany(_IDS_AT_ONCE)]:
                    for group in await self._groups(task_ids):
                        for whole in await self._whole(group):
                            yield whole

    @contextmanager
    def _as_store_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as exc:
            raise StoreError(f"the store {self._place.name} cannot be read: {first_line(exc)}") from exc

    async def _groups(self, task_ids: Sequence[str]) -> list[list[str]]:
        """These ids in groups, each small enough for one statement."""
        cursor = await self._connection.execute(self._place.sql(_SIZES), (task_ids,))
        sizes: dict[str, int] = dict(await cursor.fetchall())
        groups: list[list[str]] = []
        left = 0
        for task_id in task_ids:
            if left <= 0:
                groups.append([])
                left = _READ_BYTES
            groups[-1].append(task_id)
            left -= sizes[task_id]
        return groups

    async def _whole(self, task_ids: Sequence[str]) -> list[WholeTask]:
        tasks = {task.task_id: task for task in await reads.tasks(self._connection, self._place, task_ids)}
        messages: dict[str, list[StoredMessage]] = {}
        rows = await self._connection.execute(self._place.sql(_MESSAGES), (task_ids,))
        for task_id, *cells in await rows.fetchall():
            messages.setdefault(task_id, []).append(_message(task_id, cells))
        webhooks = await self._webhooks(task_ids)
        return [
            WholeTask(
                replace(tasks[task_id], holder=None),
                tuple(messages.get(task_id, ())),
                tuple(webhooks.get(task_id, ())),
            )
            for task_id in task_ids
        ]

    async def _webhooks(self, task_ids: Sequence[str]) -> dict[str, list[KeptWebhook]]:
        ordered = OF_TASKS + ' ORDER BY w.webhook_id COLLATE "C"'
        webhook_rows = await (
            await self._connection.execute(self._place.sql(ordered), (task_ids,))
        ).fetchall()
        rows: dict[WebhookKey, list[OutboxRow]] = {}
        if webhook_rows:
            sent = await self._connection.execute(self._place.sql(_OUTBOX), (task_ids,))
            for task_id, webhook_id, *cells in await sent.fetchall():
                rows.setdefault(WebhookKey(task_id, webhook_id), []).append(OutboxRow(*cells))
        webhooks: dict[str, list[KeptWebhook]] = {}
        for webhook in map(webhook_from, webhook_rows):
            webhook_with_rows = KeptWebhook(webhook, tuple(rows.get(webhook.key, ())))
            webhooks.setdefault(webhook.key.task_id, []).append(webhook_with_rows)
        return webhooks

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add tasks with new ids.

        Raises:
            StoreError: the database cannot keep them.
        """
        try:
            async with self._connection.pipeline():
                for text, rows in _rows_of(tasks).items():
                    await self._connection.execute(
                        self._place.sql(text), [list(column) for column in zip(*rows, strict=True)]
                    )
        except (psycopg.Error, UnicodeError) as exc:
            first, last = tasks[0].task.task_id, tasks[-1].task.task_id
            raise StoreError(f"one of the tasks {first} to {last} cannot be kept: {first_line(exc)}") from exc


def _message(task_id: str, cells: Sequence[Any]) -> StoredMessage:
    message_id, digest, accepted_ms, age_ms, answer_ms, is_repeatable, answer_age_ms = cells
    answer = None if answer_ms is None else WrittenAnswer(answer_ms, is_repeatable, answer_age_ms)
    return StoredMessage(task_id, MessageKey(message_id, digest, accepted_ms), age_ms, answer)


def _rows_of(tasks: Sequence[WholeTask]) -> dict[LiteralString, list[tuple[object, ...]]]:
    """The rows that each statement inserts."""
    rows: dict[LiteralString, list[tuple[object, ...]]] = {}

    def add(text: LiteralString, *cells: object) -> None:
        rows.setdefault(text, []).append(cells)

    for whole in tasks:
        task, origin, head = whole.task, whole.task.origin, whole.task.head
        task_id, snapshot_seq = task.task_id, task.seq - len(task.events)
        add(_ADD_CONTEXTS, origin.context_id, origin.owner)
        columns = (origin.context_id, origin.owner, origin.created_ms, head.state, head.ended, head.status_ms)
        holder = None if head.ended else NOBODY
        add(_ADD_TASKS, task_id, *columns, task.seq, snapshot_seq, len(task.snapshot), holder)
        add(_ADD_SNAPSHOTS, task_id, task.snapshot)
        if task.private:
            add(_ADD_PRIVATES, task_id, task.private)
        for seq, event in enumerate(task.events, snapshot_seq + 1):
            add(_ADD_EVENTS, task_id, seq, event, NOBODY)
        for message in whole.messages:
            add(_ADD_MESSAGES, *_message_row(origin.owner, message))
        for webhook in whole.webhooks:
            add(KEEP_WEBHOOKS, *webhook_row(webhook.webhook, NOBODY))
            for pushed in webhook.rows:
                add(_ADD_OUTBOX, *webhook.webhook.key, *pushed)
    if hooked := [(whole.task.task_id,) for whole in tasks if whole.webhooks]:
        rows[HOOK_TASKS] = [*hooked]
    rows[_COUNT] = _count_rows(tasks)
    return rows


def _count_rows(tasks: Sequence[WholeTask]) -> list[tuple[object, ...]]:
    weights: dict[tuple[str, str, bool], list[int]] = {}
    for whole in tasks:
        task = whole.task
        key = task.origin.owner, task.head.state, task.head.ended
        weights.setdefault(key, []).append(len(task.snapshot))
    return [(*key, NOBODY, len(sizes), sum(sizes)) for key, sizes in weights.items()]


def _message_row(owner: str, message: StoredMessage) -> tuple[object, ...]:
    key, answer = message.key, message.answer
    answered = (None, None, None) if answer is None else (answer.age_ms, answer.at_ms, answer.is_repeatable)
    return owner, key.message_id, message.task_id, key.digest, key.accepted_ms, message.age_ms, *answered
