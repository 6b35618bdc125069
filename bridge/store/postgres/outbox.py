# ruff: noqa: S608 - every statement is a text of this module; values are bound
"""The outbox of a store in PostgreSQL: which replica sends to which webhook, and the state of the attempts.

A webhook names the epoch that sends to it, at first the epoch of the replica that added it. When that epoch is gone,
another replica claims the webhook. Statements that note an attempt change nothing if another epoch owns the webhook, or
if the epoch is gone.

A replica reads the outbox when it has stored an event of a task with one of its webhooks, when a hint says that another
replica has, and at each poll, because hints may be lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from bridge.bounded_map import BoundedMap
from bridge.errors import StoreConflictError, StoreError
from bridge.store.outbox import OutboxRow, WaitingWebhook, Webhook, WebhookKey, WebhookLimitError
from bridge.store.postgres.feed import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import LiteralString, NoReturn

    from psycopg import AsyncConnection

    from bridge.store.outbox import OnRows, WebhookLimits
    from bridge.store.postgres.connections import DatabaseConnections
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.records import Change

logger = logging.getLogger(__name__)

REMEMBERED_TASKS: Final = 10_000
"""The most tasks that a replica remembers as having its webhooks. The next poll finds rows of other tasks."""

_CLAIMED_AT_ONCE: Final = 256

COLUMNS: Final = """
    w.task_id, w.webhook_id, w.owner, w.made_ms, w.config, w.attempts, w.due_ms, w.failure, w.is_given_up"""
OF_TASKS: Final = f"SELECT {COLUMNS} FROM {{ns}}.webhooks w WHERE w.task_id = ANY(%s)"
_MINE: Final = """
    w.sender = %(epoch)s AND EXISTS (SELECT FROM {ns}.epochs WHERE epoch = %(epoch)s AND NOT gone)"""
_OF_KEY: Final = "task_id = %(task)s AND webhook_id = %(webhook)s"
_WAITING: Final = f"""
    SELECT {COLUMNS}, o.rows FROM {{ns}}.webhooks w JOIN (
        SELECT task_id, webhook_id, count(*) AS rows FROM {{ns}}.outbox
        WHERE %(tasks)s::text[] IS NULL OR task_id = ANY(%(tasks)s) GROUP BY task_id, webhook_id
    ) o USING (task_id, webhook_id) WHERE {_MINE} ORDER BY w.task_id, w.webhook_id"""
_COUNTED: Final = """
    SELECT count(*) FROM {ns}.webhooks w JOIN {ns}.tasks t USING (task_id)
    WHERE w.owner = %(owner)s AND NOT w.is_given_up
    AND (w.task_id, w.webhook_id) IS DISTINCT FROM (%(task)s::text, %(webhook)s::text)
    AND (
        NOT t.ended OR EXISTS (
            SELECT FROM {ns}.outbox o WHERE o.task_id = w.task_id AND o.webhook_id = w.webhook_id))"""
_OTHERS: Final = """
    SELECT count(*) FROM {ns}.webhooks
    WHERE task_id = %(task)s AND webhook_id <> %(webhook)s AND NOT is_given_up"""
_FIRST: Final = f"""
    SELECT o.seq, o.event FROM {{ns}}.outbox o JOIN {{ns}}.webhooks w USING (task_id, webhook_id)
    WHERE task_id = %(task)s AND webhook_id = %(webhook)s AND {_MINE} ORDER BY o.seq LIMIT 1"""
_LOCKED: Final = f"SELECT FROM {{ns}}.webhooks w WHERE {_OF_KEY} AND {_MINE} FOR UPDATE"
_CLAIM: Final = """
    UPDATE {ns}.webhooks SET sender = %(epoch)s WHERE (task_id, webhook_id) IN (
        SELECT w.task_id, w.webhook_id FROM {ns}.webhooks w
        WHERE w.sender <> ALL (ARRAY(SELECT epoch FROM {ns}.epochs WHERE NOT gone))
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) AND EXISTS (SELECT FROM {ns}.epochs WHERE epoch = %(epoch)s AND NOT gone) RETURNING task_id"""
# One index step per sender, regardless of the number of webhooks.
_HAS_ORPHANS: Final = """
    WITH RECURSIVE senders AS (
        (SELECT sender FROM {ns}.webhooks ORDER BY sender LIMIT 1)
        UNION ALL
        SELECT (SELECT w.sender FROM {ns}.webhooks w WHERE w.sender > s.sender ORDER BY w.sender LIMIT 1)
        FROM senders s WHERE s.sender IS NOT NULL
    )
    SELECT EXISTS (
        SELECT FROM senders s WHERE sender IS NOT NULL
        AND NOT EXISTS (SELECT FROM {ns}.epochs e WHERE e.epoch = s.sender AND NOT e.gone))"""

KEEP_WEBHOOKS: Final = """
    INSERT INTO {ns}.webhooks AS w (task_id, webhook_id, owner, made_ms, config, attempts, due_ms, failure, is_given_up,
        sender)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::integer[], %s::bigint[],
        %s::text[], %s::boolean[], %s::integer[])
    ON CONFLICT (task_id, webhook_id) DO UPDATE SET made_ms = excluded.made_ms, config = excluded.config,
        attempts = excluded.attempts, due_ms = excluded.due_ms, failure = excluded.failure,
        is_given_up = excluded.is_given_up"""
HOOK_TASKS: Final = "UPDATE {ns}.tasks SET hooked = true WHERE task_id = ANY(%s) AND NOT hooked"
PUSH: Final = """
    INSERT INTO {ns}.outbox (task_id, webhook_id, seq, event)
    SELECT v.task_id, w.webhook_id, v.seq, v.event
    FROM unnest(%s::text[], %s::bigint[], %s::bytea[]) AS v(task_id, seq, event)
    JOIN {ns}.webhooks w ON w.task_id = v.task_id AND NOT w.is_given_up"""


class PostgresOutbox:
    """See `Outbox`. Runs in the tasks of its store."""

    def __init__(
        self,
        connections: DatabaseConnections,
        place: Namespace,
        epoch: Callable[[], int],
        poll_seconds: float,
        hint: Callable[[str], None],
    ) -> None:
        """`epoch` returns this replica's epoch. `hint` sends a word to the other replicas."""
        self._connections = connections
        self._place = place
        self._epoch = epoch
        self._poll_seconds = poll_seconds
        self._hint = hint
        self._on_rows: OnRows = lambda _: None
        self._mine = BoundedMap[str, str](REMEMBERED_TASKS)
        """The tasks with webhooks of this replica, by their hints."""
        self._wake = anyio.Event()

    def listen(self, on_rows: OnRows) -> None:
        """See `Outbox.listen`."""
        self._on_rows = on_rows
        self.catch_up()

    async def run(self) -> NoReturn:
        """At each poll, claim the webhooks of dead replicas, and ask the sender to read rows."""
        while True:
            try:
                await self._claim()
                if self._mine:
                    self._on_rows(None)
            except StoreError as exc:
                logger.debug("the outbox cannot be read now: %s", exc)
            with anyio.move_on_after(self._poll_seconds):
                await self._wake.wait()
            self._wake = anyio.Event()

    def catch_up(self) -> None:
        """Poll at once: hints may have been lost, or a replica is gone."""
        self._wake.set()

    def stored(self, changes: Iterable[Change]) -> None:
        """Called with changes that this replica has stored."""
        for change in changes:
            if change.webhook is not None:
                self._remember(change.task_id)
        self.wake_for({hint_of(change.task_id) for change in changes} if self._mine else ())

    def wake_for(self, words: Iterable[str]) -> None:
        """Report the tasks with our webhooks among these hints as having new rows."""
        if task_ids := {self._mine[word] for word in words if word in self._mine}:
            self._on_rows(task_ids)

    def _remember(self, task_id: str) -> None:
        self._mine[hint_of(task_id)] = task_id

    async def _claim(self) -> None:
        place, cells = self._place, {"epoch": self._epoch(), "most": _CLAIMED_AT_ONCE}

        async def claim(connection: AsyncConnection) -> list[str]:
            ((has_orphans,),) = await (await connection.execute(place.sql(_HAS_ORPHANS))).fetchall()
            if not has_orphans:
                return []
            cursor = await connection.execute(place.sql(_CLAIM), cells)
            return [task_id for (task_id,) in await cursor.fetchall()]

        while claimed := await self._connections.run(claim):
            for task_id in claimed:
                self._remember(task_id)

    async def add(self, webhook: Webhook, limits: WebhookLimits) -> bool:
        """See `Outbox.add`."""
        job = partial(_add, place=self._place, webhook=webhook, limits=limits, epoch=self._epoch())
        has_ended = await self._connections.run(job)
        self._remember(webhook.key.task_id)
        self._on_rows({webhook.key.task_id})
        self._hint(hint_of(webhook.key.task_id))
        return has_ended

    async def put(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.put`."""
        await self._execute(
            f"""INSERT INTO {{ns}}.outbox (task_id, webhook_id, seq, event)
            SELECT %(task)s, %(webhook)s, %(seq)s, %(event)s
            WHERE NOT EXISTS (SELECT FROM {{ns}}.outbox WHERE {_OF_KEY} AND seq >= %(seq)s)
            AND EXISTS (SELECT FROM {{ns}}.webhooks WHERE {_OF_KEY})""",
            key,
            seq=row.seq,
            event=row.event,
        )
        self._on_rows({key.task_id})
        self._hint(hint_of(key.task_id))

    async def of_task(self, task_id: str) -> Sequence[Webhook]:
        """See `Outbox.of_task`."""
        rows = await self._fetch(OF_TASKS + " ORDER BY w.made_ms, w.webhook_id", ([task_id],))
        return [webhook_from(row) for row in rows]

    async def count_of(self, owner: str) -> int:
        """See `Outbox.count_of`."""
        ((number,),) = await self._fetch(_COUNTED, {"owner": owner, "task": None, "webhook": None})
        return int(number)

    async def remove(self, key: WebhookKey) -> bool:
        """See `Outbox.remove`."""
        removed = f"""
            WITH gone AS (DELETE FROM {{ns}}.outbox WHERE {_OF_KEY})
            DELETE FROM {{ns}}.webhooks WHERE {_OF_KEY}"""
        return bool(await self._execute(removed, key))

    async def waiting(self, task_ids: Collection[str] | None = None) -> Sequence[WaitingWebhook]:
        """See `Outbox.waiting`."""
        cells = {"tasks": None if task_ids is None else sorted(task_ids), "epoch": self._epoch()}
        return [WaitingWebhook(webhook_from(row[:-1]), row[-1]) for row in await self._fetch(_WAITING, cells)]

    async def first(self, key: WebhookKey) -> OutboxRow | None:
        """See `Outbox.first`."""
        rows = await self._fetch(_FIRST, self._cells(key))
        return OutboxRow(*rows[0]) if rows else None

    async def sent(self, key: WebhookKey, seq: int) -> None:
        """See `Outbox.sent`."""
        await self._execute(
            f"""WITH mine AS ({_LOCKED}), gone AS (
                DELETE FROM {{ns}}.outbox WHERE {_OF_KEY} AND seq = %(seq)s AND EXISTS (TABLE mine))
            UPDATE {{ns}}.webhooks SET attempts = 0, due_ms = 0, failure = NULL
            WHERE {_OF_KEY} AND failure IS NOT NULL AND EXISTS (TABLE mine)""",
            key,
            seq=seq,
        )

    async def failed(self, key: WebhookKey, attempts: int, due_ms: int, failure: str) -> None:
        """See `Outbox.failed`."""
        await self._execute(
            f"""WITH mine AS ({_LOCKED}) UPDATE {{ns}}.webhooks
            SET attempts = %(attempts)s, due_ms = %(due_ms)s, failure = %(failure)s
            WHERE {_OF_KEY} AND EXISTS (TABLE mine)""",
            key,
            attempts=attempts,
            due_ms=due_ms,
            failure=failure,
        )

    async def give_up(self, key: WebhookKey, failure: str) -> None:
        """See `Outbox.give_up`."""
        await self._execute(
            f"""WITH mine AS ({_LOCKED}), gone AS (
                DELETE FROM {{ns}}.outbox WHERE {_OF_KEY} AND EXISTS (TABLE mine))
            UPDATE {{ns}}.webhooks SET failure = %(failure)s, is_given_up = true
            WHERE {_OF_KEY} AND EXISTS (TABLE mine)""",
            key,
            failure=failure,
        )

    async def fold(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.fold`."""
        await self._execute(
            f"""WITH mine AS ({_LOCKED}), gone AS (
                DELETE FROM {{ns}}.outbox WHERE {_OF_KEY} AND seq < %(seq)s AND EXISTS (TABLE mine)
                AND seq > (SELECT min(seq) FROM {{ns}}.outbox WHERE {_OF_KEY}) RETURNING seq)
            INSERT INTO {{ns}}.outbox AS o (task_id, webhook_id, seq, event)
            SELECT %(task)s, %(webhook)s, %(seq)s, %(event)s
            WHERE EXISTS (TABLE gone) OR EXISTS (
                SELECT FROM {{ns}}.outbox WHERE {_OF_KEY} AND seq = %(seq)s AND EXISTS (TABLE mine)
                AND seq > (SELECT min(seq) FROM {{ns}}.outbox WHERE {_OF_KEY}))
            ON CONFLICT (task_id, webhook_id, seq) DO UPDATE SET event = excluded.event""",
            key,
            seq=row.seq,
            event=row.event,
        )

    def _cells(self, key: WebhookKey) -> dict[str, object]:
        return {"task": key.task_id, "webhook": key.webhook_id, "epoch": self._epoch()}

    async def _fetch(self, text: LiteralString, cells: Any) -> list[tuple[Any, ...]]:
        place = self._place

        async def fetch(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(place.sql(text), cells)).fetchall()

        return await self._connections.run(fetch)

    async def _execute(self, text: LiteralString, key: WebhookKey, **cells: object) -> int:
        place, every = self._place, {**self._cells(key), **cells}

        async def execute(connection: AsyncConnection) -> int:
            return (await connection.execute(place.sql(text), every)).rowcount

        return await self._connections.run(execute)


async def _add(
    connection: AsyncConnection, *, place: Namespace, webhook: Webhook, limits: WebhookLimits, epoch: int
) -> bool:
    key = webhook.key
    cells = {"task": key.task_id, "webhook": key.webhook_id, "owner": webhook.owner}
    async with connection.transaction():
        # An append locks this row too. So either a final event gets an outbox row, or this sees that the task ended.
        locked = await connection.execute(
            place.sql("SELECT ended FROM {ns}.tasks WHERE task_id = %(task)s FOR UPDATE"), cells
        )
        if (row := await locked.fetchone()) is None:
            raise StoreConflictError(f"task {key.task_id} is not stored")
        ((of_task,),) = await (await connection.execute(place.sql(_OTHERS), cells)).fetchall()
        if of_task >= limits.each_task:
            raise WebhookLimitError(f"the task has {limits.each_task} webhooks already")
        ((of_owner,),) = await (await connection.execute(place.sql(_COUNTED), cells)).fetchall()
        if of_owner >= limits.each_owner:
            raise WebhookLimitError(f"you have {limits.each_owner} webhooks already")
        columns = [[cell] for cell in webhook_row(webhook, epoch)]
        await connection.execute(place.sql(KEEP_WEBHOOKS), columns)
        await connection.execute(place.sql(HOOK_TASKS), ([key.task_id],))
    return bool(row[0])


def webhook_row(webhook: Webhook, sender: int) -> tuple[object, ...]:
    """The cells of a webhook to which the epoch `sender` sends."""
    how = (webhook.attempts, webhook.due_ms, webhook.failure, webhook.is_given_up)
    return (*webhook.key, webhook.owner, webhook.made_ms, webhook.config, *how, sender)


def webhook_from(row: Sequence[Any]) -> Webhook:
    """The webhook in a row."""
    task_id, webhook_id, *cells = row
    return Webhook(WebhookKey(task_id, webhook_id), *cells)
