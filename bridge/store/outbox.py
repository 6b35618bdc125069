"""Webhooks of tasks, and the outbox: the events still to be sent to the webhooks.

A webhook belongs to a task. The store writes an event of the task together with an outbox row for each webhook. The
sender takes the first row of a webhook, and the next row only after the first is gone, which keeps the order. A row
outlives the process. Its number is the sequence number of the event, and no two rows of a webhook that were ever tried
have the same number.

With replicas, a single replica sends for a webhook. When it is gone, another replica continues. From then on the first
replica finds no rows, and its reports about rows are ignored.

The store knows only bytes: the creator of a webhook seals its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bridge.errors import StoreError


class WebhookLimitError(StoreError):
    """The task or the owner has the maximum number of webhooks already."""


class WebhookKey(NamedTuple):
    """The key of a webhook."""

    task_id: str
    webhook_id: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook, and the state of the attempts to send to it."""

    key: WebhookKey
    owner: str
    made_ms: int
    config: bytes
    """Its configuration, sealed."""
    attempts: int = 0
    """The number of failed attempts to send its first row."""
    due_ms: int = 0
    """The earliest time of the next attempt to send the first row."""
    failure: str | None = None
    """Why the last attempt failed; None if it succeeded."""
    is_given_up: bool = False
    """Whether sending to it has stopped for good."""


class OutboxRow(NamedTuple):
    """An event still to be sent."""

    seq: int
    event: bytes


@dataclass(frozen=True, slots=True)
class WaitingWebhook:
    """A webhook with rows to send, and their number."""

    webhook: Webhook
    rows: int


@dataclass(frozen=True, slots=True)
class KeptWebhook:
    """A webhook with its rows, in the form that moves from one store to another."""

    webhook: Webhook
    rows: tuple[OutboxRow, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """The most webhooks. Only webhooks with events to send, now or later, count."""

    each_task: int
    each_owner: int
    ended_bytes: int = 16 * 1024 * 1024
    """For webhooks that an owner creates on ended tasks: the most bytes of those tasks that are sent in a minute."""


OnRows = Callable[[Collection[str] | None], None]
"""Called in an async task with the ids of tasks that may have new rows; None means any task."""


class Outbox(Protocol):
    """The webhooks of the tasks in a store. A webhook and its rows are deleted with the task, which is kept while rows
    wait.

    All methods raise StoreError if the store cannot be read or written.
    """

    def listen(self, on_rows: OnRows) -> None:
        """Call `on_rows` from now on when there are new rows for this replica to send."""
        ...

    async def add(self, webhook: Webhook, limits: WebhookLimits) -> bool:
        """Add a webhook, or replace the webhook with the same key and keep its rows. Returns whether the task has
        ended, which means that no further event adds a row.

        Raises:
            WebhookLimitError: there are too many webhooks.
            StoreConflictError: there is no such task.
        """
        ...

    async def put(self, key: WebhookKey, row: OutboxRow) -> None:
        """Add a row, unless a row with the same or a higher number waits."""
        ...

    async def of_task(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        ...

    async def count_of(self, owner: str) -> int:
        """The number of an owner's webhooks with events to send, now or later."""
        ...

    async def remove(self, key: WebhookKey) -> bool:
        """Remove a webhook with its rows. Returns whether it existed."""
        ...

    async def waiting(self, task_ids: Collection[str] | None = None) -> Sequence[WaitingWebhook]:
        """The webhooks with waiting rows that this replica sends to, for these tasks or for all tasks."""
        ...

    async def first(self, key: WebhookKey) -> OutboxRow | None:
        """The first row of a webhook; None if there is none or another replica sends to the webhook."""
        ...

    async def sent(self, key: WebhookKey, seq: int) -> None:
        """Delete a row that was sent, and reset the failures of the webhook."""
        ...

    async def failed(self, key: WebhookKey, attempts: int, due_ms: int, failure: str) -> None:
        """Note the failed attempts to send the first row."""
        ...

    async def give_up(self, key: WebhookKey, failure: str) -> None:
        """Stop sending to a webhook, and delete its rows. The webhook stays, with the reason in `failure`."""
        ...

    async def fold(self, key: WebhookKey, row: OutboxRow) -> None:
        """Replace the rows up to this row by this row. The first row stays, because it may be being sent."""
        ...
