# ruff: noqa: S608 - every statement is a text of this module; values are bound
"""The outbox of a SQLite store. See `Outbox`.

Writes run on the writer's thread, in order with the changes of tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bridge.errors import StoreConflictError
from bridge.store.outbox import WebhookLimitError
from bridge.store.sqlite_batch import webhook_row
from bridge.store.sqlite_reader import count_webhooks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from bridge.store.outbox import (
        OnRows,
        OutboxRow,
        WaitingWebhook,
        Webhook,
        WebhookKey,
        WebhookLimits,
    )
    from bridge.store.sqlite_reader import Reader
    from bridge.store.sqlite_writer import Writer

_NO_TASK, _TOO_MANY_OF_TASK, _TOO_MANY_OF_OWNER, _RUNS, _ENDED = range(5)
"""The outcomes of adding a webhook, as numbers because the writer's jobs return numbers."""

_OF_KEY: Final = " WHERE task_id = ? AND webhook_id = ?"


class SQLiteOutbox:
    """The webhooks of the tasks in a file, and the events still to be sent to them."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    def listen(self, on_rows: OnRows) -> None:
        """See `Outbox.listen`."""
        self._writer.on_rows = on_rows

    async def add(self, webhook: Webhook, limits: WebhookLimits) -> bool:
        """See `Outbox.add`."""
        job = partial(_add, webhook=webhook, limits=limits)
        outcome = await self._writer.run(job, hooks=webhook.key.task_id)
        if outcome == _NO_TASK:
            raise StoreConflictError(f"task {webhook.key.task_id} is not stored")
        if outcome == _TOO_MANY_OF_TASK:
            raise WebhookLimitError(f"the task has {limits.each_task} webhooks already")
        if outcome == _TOO_MANY_OF_OWNER:
            raise WebhookLimitError(f"you have {limits.each_owner} webhooks already")
        self._writer.on_rows({webhook.key.task_id})
        return outcome == _ENDED

    async def put(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.put`."""
        await self._writer.run(partial(_put, key=key, row=row))
        self._writer.on_rows({key.task_id})

    async def of_task(self, task_id: str) -> Sequence[Webhook]:
        """See `Outbox.of_task`."""
        return self._reader.webhooks(task_id)

    async def count_of(self, owner: str) -> int:
        """See `Outbox.count_of`."""
        return self._reader.count_webhooks(owner)

    async def remove(self, key: WebhookKey) -> bool:
        """See `Outbox.remove`."""
        return bool(await self._writer.run(partial(_remove, key=key)))

    async def waiting(self, task_ids: Collection[str] | None = None) -> Sequence[WaitingWebhook]:
        """See `Outbox.waiting`."""
        return self._reader.waiting_webhooks(task_ids)

    async def first(self, key: WebhookKey) -> OutboxRow | None:
        """See `Outbox.first`."""
        return self._reader.first_row(key)

    async def sent(self, key: WebhookKey, seq: int) -> None:
        """See `Outbox.sent`."""
        await self._writer.run(partial(_sent, key=key, seq=seq))

    async def failed(self, key: WebhookKey, attempts: int, due_ms: int, failure: str) -> None:
        """See `Outbox.failed`."""
        await self._writer.run(partial(_note, key=key, cells=(attempts, due_ms, failure)))

    async def give_up(self, key: WebhookKey, failure: str) -> None:
        """See `Outbox.give_up`."""
        await self._writer.run(partial(_give_up, key=key, failure=failure))

    async def fold(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.fold`."""
        await self._writer.run(partial(_fold, key=key, row=row))


def _add(connection: sqlite3.Connection, *, webhook: Webhook, limits: WebhookLimits) -> int:
    task_row = connection.execute("SELECT ended FROM tasks WHERE task_id = ?", webhook.key[:1]).fetchone()
    if task_row is None:
        return _NO_TASK
    others = "SELECT count(*) FROM webhooks WHERE task_id = ? AND webhook_id <> ? AND is_given_up = 0"
    (of_task,) = connection.execute(others, webhook.key).fetchone()
    if of_task >= limits.each_task:
        return _TOO_MANY_OF_TASK
    same = "SELECT count(*) FROM webhooks" + _OF_KEY + " AND is_given_up = 0"
    (is_there,) = connection.execute(same, webhook.key).fetchone()
    if count_webhooks(connection, webhook.owner) - is_there >= limits.each_owner:
        return _TOO_MANY_OF_OWNER
    marks = ", ".join("?" * len(row := webhook_row(webhook)))
    connection.execute(f"REPLACE INTO webhooks VALUES ({marks})", row)
    return _ENDED if task_row[0] else _RUNS


def _put(connection: sqlite3.Connection, *, key: WebhookKey, row: OutboxRow) -> int:
    sql = "INSERT INTO outbox SELECT ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM outbox" + _OF_KEY
    return connection.execute(sql + " AND seq >= ?)", (*key, *row, *key, row.seq)).rowcount


def _remove(connection: sqlite3.Connection, *, key: WebhookKey) -> int:
    connection.execute("DELETE FROM outbox" + _OF_KEY, key)
    return connection.execute("DELETE FROM webhooks" + _OF_KEY, key).rowcount


def _sent(connection: sqlite3.Connection, *, key: WebhookKey, seq: int) -> int:
    connection.execute("DELETE FROM outbox" + _OF_KEY + " AND seq = ?", (*key, seq))
    sql = "UPDATE webhooks SET attempts = 0, due_ms = 0, failure = NULL" + _OF_KEY
    return connection.execute(sql + " AND failure IS NOT NULL", key).rowcount


def _note(connection: sqlite3.Connection, *, key: WebhookKey, cells: tuple[int, int, str]) -> int:
    sql = "UPDATE webhooks SET attempts = ?, due_ms = ?, failure = ?" + _OF_KEY
    return connection.execute(sql, (*cells, *key)).rowcount


def _give_up(connection: sqlite3.Connection, *, key: WebhookKey, failure: str) -> int:
    connection.execute("DELETE FROM outbox" + _OF_KEY, key)
    sql = "UPDATE webhooks SET failure = ?, is_given_up = 1" + _OF_KEY
    return connection.execute(sql, (failure, *key)).rowcount


def _fold(connection: sqlite3.Connection, *, key: WebhookKey, row: OutboxRow) -> int:
    sql = "DELETE FROM outbox" + _OF_KEY + " AND seq <= ? AND seq > (SELECT min(seq) FROM outbox" + _OF_KEY
    if not (deleted := connection.execute(sql + ")", (*key, row.seq, *key)).rowcount):
        return 0
    connection.execute("INSERT INTO outbox VALUES (?, ?, ?, ?)", (*key, *row))
    return deleted
