"""The outbox of a store in memory. See `Outbox`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from bridge.errors import StoreConflictError
from bridge.store.outbox import OnRows, OutboxRow, WaitingWebhook, Webhook, WebhookKey, WebhookLimitError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bridge.store.outbox import WebhookLimits
    from bridge.store.records import TaskHead, TaskOrigin


@dataclass(slots=True)
class HeldWebhook:
    """A webhook with its rows."""

    webhook: Webhook
    rows: dict[int, bytes] = field(default_factory=dict)
    """The events still to be sent, by sequence number in ascending order."""


class HookedTask(Protocol):
    """The parts of a task that the outbox uses."""

    origin: TaskOrigin
    head: TaskHead
    webhooks: dict[str, HeldWebhook]


class MemoryOutbox:
    """The webhooks of tasks in memory. See `Outbox`."""

    def __init__(self, tasks: Mapping[str, HookedTask]) -> None:
        self._tasks = tasks
        self._on_rows: OnRows = lambda _: None

    def listen(self, on_rows: OnRows) -> None:
        """See `Outbox.listen`."""
        self._on_rows = on_rows

    def keep(self, webhook: Webhook) -> None:
        """Add a webhook, or replace the webhook with the same key and keep its rows."""
        held = self._tasks[webhook.key.task_id].webhooks
        rows = held[webhook.key.webhook_id].rows if webhook.key.webhook_id in held else {}
        held[webhook.key.webhook_id] = HeldWebhook(webhook, rows)

    def push(self, task_id: str, row: OutboxRow) -> None:
        """Add a row for each webhook of a task."""
        for held in self._tasks[task_id].webhooks.values():
            if not held.webhook.is_given_up:
                held.rows[row.seq] = row.event
        self._on_rows({task_id})

    async def add(self, webhook: Webhook, limits: WebhookLimits) -> bool:
        """See `Outbox.add`."""
        task = self._tasks.get(webhook.key.task_id)
        if task is None:
            raise StoreConflictError(f"task {webhook.key.task_id} is not stored")
        others = [
            other.webhook.key
            for other in task.webhooks.values()
            if _is_live(other) and other.webhook.key != webhook.key
        ]
        if len(others) >= limits.each_task:
            raise WebhookLimitError(f"the task has {limits.each_task} webhooks already")
        before = self._held(webhook.key)
        is_there = before is not None and _is_live(before)
        if self._count(webhook.owner) - is_there >= limits.each_owner:
            raise WebhookLimitError(f"you have {limits.each_owner} webhooks already")
        self.keep(webhook)
        self._on_rows({webhook.key.task_id})
        return task.head.ended

    async def put(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.put`."""
        held = self._held(key)
        if held is not None and max(held.rows, default=0) < row.seq:
            held.rows[row.seq] = row.event
            self._on_rows({key.task_id})

    async def of_task(self, task_id: str) -> Sequence[Webhook]:
        """See `Outbox.of_task`."""
        task = self._tasks.get(task_id)
        webhooks = [] if task is None else [held.webhook for held in task.webhooks.values()]
        return sorted(webhooks, key=lambda webhook: (webhook.made_ms, webhook.key.webhook_id))

    async def count_of(self, owner: str) -> int:
        """See `Outbox.count_of`."""
        return self._count(owner)

    def _count(self, owner: str) -> int:
        return sum(
            _is_live(held) and (not task.head.ended or bool(held.rows))
            for task in self._tasks.values()
            if task.origin.owner == owner
            for held in task.webhooks.values()
        )

    async def remove(self, key: WebhookKey) -> bool:
        """See `Outbox.remove`."""
        task = self._tasks.get(key.task_id)
        return task is not None and task.webhooks.pop(key.webhook_id, None) is not None

    async def waiting(self, task_ids: Collection[str] | None = None) -> Sequence[WaitingWebhook]:
        """See `Outbox.waiting`."""
        wanted = self._tasks.keys() if task_ids is None else self._tasks.keys() & task_ids
        return [
            WaitingWebhook(held.webhook, len(held.rows))
            for task_id in sorted(wanted)
            for _, held in sorted(self._tasks[task_id].webhooks.items())
            if held.rows
        ]

    async def first(self, key: WebhookKey) -> OutboxRow | None:
        """See `Outbox.first`."""
        held = self._held(key)
        return None if held is None or not held.rows else OutboxRow(*next(iter(held.rows.items())))

    async def sent(self, key: WebhookKey, seq: int) -> None:
        """See `Outbox.sent`."""
        if (held := self._held(key)) is not None:
            held.rows.pop(seq, None)
            held.webhook = replace(held.webhook, attempts=0, due_ms=0, failure=None)

    async def failed(self, key: WebhookKey, attempts: int, due_ms: int, failure: str) -> None:
        """See `Outbox.failed`."""
        if (held := self._held(key)) is not None:
            held.webhook = replace(held.webhook, attempts=attempts, due_ms=due_ms, failure=failure)

    async def give_up(self, key: WebhookKey, failure: str) -> None:
        """See `Outbox.give_up`."""
        if (held := self._held(key)) is not None:
            held.webhook = replace(held.webhook, failure=failure, is_given_up=True)
            held.rows.clear()

    async def fold(self, key: WebhookKey, row: OutboxRow) -> None:
        """See `Outbox.fold`."""
        if (held := self._held(key)) is None:
            return
        folded = [seq for seq in [*held.rows][1:] if seq <= row.seq]
        later = {seq: event for seq, event in held.rows.items() if seq > row.seq}
        if folded:
            first = next(iter(held.rows))
            held.rows = {first: held.rows[first], row.seq: row.event, **later}

    def _held(self, key: WebhookKey) -> HeldWebhook | None:
        task = self._tasks.get(key.task_id)
        return None if task is None else task.webhooks.get(key.webhook_id)


def _is_live(held: HeldWebhook) -> bool:
    return not held.webhook.is_given_up
