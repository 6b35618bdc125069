"""Webhooks of tasks, and the outbox: the events that are still to be sent to them.

A webhook belongs to a task. An event of its task becomes a row of the outbox, one for each webhook, in the step in
which the event is stored. Whoever sends takes the first row of a webhook, and the next one only once that is gone, so
that the order is kept. A row outlives the process. Its number is that of the event, and no two rows of a webhook that
were ever tried have the same number.

With replicas, one of them sends for a webhook. Another one goes on once that one is gone; from then on the first one
finds no rows, and nothing that it says of them is kept.

The store knows bytes alone: what a webhook is, is sealed by whoever adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bridge.errors import StoreError


class WebhookLimitError(StoreError):
    """A task or an owner has too many webhooks for one more."""


class WebhookKey(NamedTuple):
    """The key of a webhook."""

    task_id: str
    webhook_id: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook, and how sending to it goes."""

    key: WebhookKey
    owner: str
    made_ms: int
    config: bytes
    """What it is, sealed."""
    attempts: int = 0
    """How often its first row was tried in vain."""
    due_ms: int = 0
    """Before this time the first row is not tried again."""
    failure: str | None = None
    """Why the last attempt failed, in words; None if it did not."""
    is_given_up: bool = False
    """Whether nothing more is sent to it."""


class OutboxRow(NamedTuple):
    """An event that is to be sent."""

    seq: int
    event: bytes


@dataclass(frozen=True, slots=True)
class WaitingWebhook:
    """A webhook that rows wait for."""

    webhook: Webhook
    rows: int


@dataclass(frozen=True, slots=True)
class KeptWebhook:
    """A webhook with its rows, as it goes from one store to another."""

    webhook: Webhook
    rows: tuple[OutboxRow, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """How many webhooks there may be. Those count to which something is or will be sent."""

    each_task: int
    each_owner: int
    ended_bytes: int = 16 * 1024 * 1024
    """What of ended tasks is sent in a minute for the webhooks that one owner creates on them, in bytes."""


OnRows = Callable[[Collection[str] | None], None]
"""Called in an async task with the tasks for whose webhooks rows may have been added; None stands for any task."""


class Outbox(Protocol):
    """The webhooks of the tasks of a store. A webhook and its rows go with its task, which stays while rows wait.

    All methods raise StoreError if the store cannot be read or written.
    """

    def tell(self, on_rows: OnRows) -> None:
        """Call with new rows that this replica is to send, from now on."""
        ...

    async def add(self, webhook: Webhook, limits: WebhookLimits) -> bool:
        """Add a webhook, or replace the one of its key, whose rows then wait for this one. Returns whether the task
        has ended, so that no event will make a row.

        Raises:
            WebhookLimitError: there are too many.
            StoreConflictError: there is no such task.
        """
        ...

    async def put(self, key: WebhookKey, row: OutboxRow) -> None:
        """Add a row, unless one waits that is as late."""
        ...

    async def of_task(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, the oldest first."""
        ...

    async def count_of(self, owner: str) -> int:
        """The number of webhooks of an owner to which something is or will be sent."""
        ...

    async def remove(self, key: WebhookKey) -> bool:
        """Remove a webhook with its rows. Returns whether it was there."""
        ...

    async def waiting(self, task_ids: Collection[str] | None = None) -> Sequence[WaitingWebhook]:
        """The webhooks that rows wait for and that this replica sends to: those of some tasks, or of all."""
        ...

    async def first(self, key: WebhookKey) -> OutboxRow | None:
        """The first row of a webhook that this replica sends to; None if there is none."""
        ...

    async def sent(self, key: WebhookKey, seq: int) -> None:
        """Delete a row that was sent, and forget the failures before it."""
        ...

    async def failed(self, key: WebhookKey, attempts: int, due_ms: int, failure: str) -> None:
        """Note how the attempts of the first row went."""
        ...

    async def give_up(self, key: WebhookKey, failure: str) -> None:
        """Send nothing more to a webhook, and delete its rows. The webhook stays, and says why."""
        ...

    async def fold(self, key: WebhookKey, row: OutboxRow) -> None:
        """Replace the rows up to this one, except the first, which may be under way, by this one."""
        ...
