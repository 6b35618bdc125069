"""Sends the notifications in the outbox of a store to their webhooks, until they arrive or are given up.

Sending never delays an event. A store reports the tasks that have new rows. The sender reads these rows, and makes one
attempt at a time for each webhook. The number of attempts at the same time is bounded, in all and for each receiver. A
row is deleted once its receiver has it. So after a process was killed, only the notifications that were being sent are
sent again.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import anyio
import anyio.abc

from bridge.a2a.push.webhook_client import Attempt
from bridge.a2a.tasks.rows import text_of
from bridge.a2a.tasks.webhooks import SealedWebhook, WebhookRecords, place_of
from bridge.errors import StoreError
from bridge.notices import Notify, PushAttempt, ignore_notice
from bridge.seal import SealedRecordError
from bridge.store.outbox import Outbox, OutboxRow, WaitingWebhook, Webhook, WebhookKey

logger = logging.getLogger(__name__)

_STORE_AGAIN_MS: Final = 5_000
"""The pause after the store could not be read or written."""
_BROKEN_AGAIN_MS: Final = 600_000
"""The pause after an attempt failed with an unexpected exception: at most 144 tracebacks a day."""

_LATER_SECONDS: Final = 1.0
"""The most time until the sender reads new rows of a webhook that already has waiting rows."""

_LOOKS_TO_FOLD: Final = 4
"""How many times the rows of a webhook are read while `folded_rows` events arrive."""

_CLOSE_SECONDS: Final = 2.0
"""How long attempts under way may take when the sender stops."""

_OF_THE_CLIENT: Final = b'{"message":'
"""The beginning of an event that is a message of the client. It is not sent back to the client (`life.py`)."""

_KEY_IS_GONE: Final = "the key that sealed this config is gone: create it again"


class Notifier(Protocol):
    """Makes the attempts."""

    async def send(self, webhook: SealedWebhook, task_id: str, row: OutboxRow) -> Attempt:
        """Try once to send a row. It does not raise: what goes wrong is a failed attempt."""
        ...


class PushClock(Protocol):
    """Gives the time, and waits for a time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    async def until(self, due_ms: int | None, woken: anyio.Event) -> None:
        """Wait for a time or an event, whichever comes first; without a time, only for the event."""
        ...


@dataclass(frozen=True)
class WallClock:
    """The clock of the machine."""

    now: Callable[[], int]

    def now_ms(self) -> int:
        """See `PushClock.now_ms`."""
        return self.now()

    async def until(self, due_ms: int | None, woken: anyio.Event) -> None:
        """See `PushClock.until`."""
        seconds = None if due_ms is None else max(0.0, (due_ms - self.now()) / 1000)
        with anyio.move_on_after(seconds):
            await woken.wait()


@dataclass(frozen=True)
class PushPace:
    """The pauses between attempts, and the bounds on attempts at the same time."""

    retry_seconds: tuple[float, ...]
    """The pauses before the second and each later attempt. After the last attempt the bridge gives the webhook up."""
    jitter: float
    """The fraction by which a pause may be lengthened at random."""
    each_host: int
    """The most attempts at the same time for one `host:port`."""
    at_once: int
    """The most attempts at the same time in all."""
    folded_rows: int
    """The most rows that wait for a webhook. When there are more, the task itself replaces all rows after the first."""


@dataclass(eq=False, slots=True)
class _Line:
    """A webhook that has waiting rows."""

    webhook: Webhook
    opened: SealedWebhook | None
    """The opened webhook; None if the key that sealed it is gone."""
    place: str
    due_ms: int
    since_ms: int
    """When the webhook began to wait for its next notification, as far as this process knows."""
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class PushBacklog:
    """The notifications that wait to be sent."""

    rows: int
    """The number of notifications."""
    oldest_seconds: float
    """The longest wait of a webhook for its next notification, counted from the start of the process at the
    earliest."""
    backed_off: int
    """The number of webhooks whose last attempt failed."""


class PushSender:
    """Sends the notifications of one agent. Enter it to run."""

    def __init__(
        self,
        outbox: Outbox,
        records: WebhookRecords,
        notifier: Notifier,
        pace: PushPace,
        clock: PushClock,
        row_of: Callable[[str], Awaitable[OutboxRow | None]],
        shown: Callable[[bytes, frozenset[str]], bytes] = lambda event, _: event,
        chance: Callable[[], float] = random.random,
        close_seconds: float = _CLOSE_SECONDS,
        notify: Notify = ignore_notice,
        face: str = "",
    ) -> None:
        """`row_of` gives the present task, and `shown` filters an event for a client with these extensions. `notify` is
        called with each attempt, in which `face` is the name of the agent."""
        self._notify = notify
        self._face = face
        self._outbox = outbox
        self._records = records
        self._notifier = notifier
        self._pace = pace
        self._clock = clock
        self._row_of = row_of
        self._shown = shown
        self._chance = chance
        self._close_seconds = close_seconds
        self._lines: dict[WebhookKey, _Line] = {}
        self._busy: Counter[str] = Counter()
        """The number of attempts under way, by `host:port`."""
        self._news: set[str] = set()
        self._is_all_news = True
        self._known: set[str] = set()
        """The tasks of `_lines`. Their new rows are read after an attempt has ended."""
        self._later: Counter[str] = Counter()
        """The number of reports of new rows of these tasks since then."""
        self._looks_later = False
        self._wake = anyio.Event()
        self._closing = False
        self._idle = anyio.Event()

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        self._outbox.listen(self._on_rows)
        self._group.start_soon(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._outbox.listen(lambda _: None)
        if self._busy.total():
            with anyio.move_on_after(self._close_seconds, shield=True):
                await self._idle.wait()
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)

    def _on_rows(self, task_ids: Collection[str] | None) -> None:
        self._is_all_news = self._is_all_news or task_ids is None
        for task_id in task_ids or ():
            if task_id in self._known:
                self._later[task_id] += 1
            if task_id not in self._known or self._later[task_id] * _LOOKS_TO_FOLD >= self._pace.folded_rows:
                self._news.add(task_id)
        if self._later and not self._looks_later:
            self._looks_later = True
            self._group.start_soon(self._look_later)
        if self._news or self._is_all_news:
            self._wake.set()

    async def _look_later(self) -> None:
        await anyio.sleep(_LATER_SECONDS)
        self._looks_later = False
        self._news.update(self._later)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake = anyio.Event()
            again_ms = None
            try:
                await self._read_outbox()
            except StoreError as exc:
                logger.warning("the outbox cannot be read; trying again: %s", exc)
                self._is_all_news, again_ms = True, self._clock.now_ms() + _STORE_AGAIN_MS
            due_ms = self._begin_what_is_due()
            await self._clock.until(
                min((at_ms for at_ms in (due_ms, again_ms) if at_ms), default=None), self._wake
            )

    async def _read_outbox(self) -> None:
        """Read the outbox for the tasks with new rows."""
        while self._news or self._is_all_news:
            task_ids = None if self._is_all_news else self._news
            self._news, self._is_all_news = set(), False
            for task_id in [*self._later] if task_ids is None else task_ids:
                del self._later[task_id]
            deliveries = await self._outbox.waiting(task_ids)
            there = {delivery.webhook.key for delivery in deliveries}
            for key in [key for key in self._lines if task_ids is None or key.task_id in task_ids]:
                if key not in there and not self._lines[key].is_busy:
                    del self._lines[key]
                    if key.task_id in self._later:
                        self._news.add(key.task_id)
            for delivery in deliveries:
                await self._note(delivery)
            self._known = {key.task_id for key in self._lines}

    async def _note(self, waiting: WaitingWebhook) -> None:
        webhook = waiting.webhook
        line = self._lines.get(webhook.key)
        if line is None or line.webhook.config != webhook.config:
            before = line
            line = self._lines[webhook.key] = self._line(webhook)
            if before is not None:
                line.is_busy, line.since_ms = before.is_busy, before.since_ms
        line.webhook, line.due_ms = webhook, webhook.due_ms
        if waiting.rows > self._pace.folded_rows:
            row = await self._row_of(webhook.key.task_id)
            if row is not None:
                await self._outbox.fold(webhook.key, row)

    def _line(self, webhook: Webhook) -> _Line:
        now_ms = self._clock.now_ms()
        try:
            opened = self._records.opened(webhook)
        except SealedRecordError:
            return _Line(webhook, None, "", 0, now_ms)
        return _Line(webhook, opened, place_of(urlsplit(opened.config.url)), webhook.due_ms, now_ms)

    async def backlog(self) -> PushBacklog:
        """The notifications that wait to be sent by this replica.

        Raises:
            StoreError: the store cannot be read.
        """
        waiting = await self._outbox.waiting()
        now_ms, lines = self._clock.now_ms(), self._lines.values()
        return PushBacklog(
            sum(delivery.rows for delivery in waiting),
            max((now_ms - line.since_ms for line in lines), default=0) / 1000,
            sum(delivery.webhook.attempts > 0 for delivery in waiting),
        )

    def _begin_what_is_due(self) -> int | None:
        """Begin the attempts that are due, within the bounds. Returns the time of the next attempt."""
        now_ms, next_ms = self._clock.now_ms(), None
        for line in sorted(self._lines.values(), key=lambda line: line.due_ms):
            if line.is_busy:
                continue
            if line.due_ms > now_ms:
                next_ms = line.due_ms
                break
            if self._closing or self._busy.total() >= self._pace.at_once:
                break
            if self._busy[line.place] < self._pace.each_host:
                line.is_busy = True
                self._busy[line.place] += 1
                self._group.start_soon(self._attempt, line, line.place)
        return next_ms

    async def _attempt(self, line: _Line, place: str) -> None:
        key = line.webhook.key
        try:
            await self._send_first(line)
        except StoreError as exc:
            logger.warning("the store cannot note a push notification, so it is sent again: %s", exc)
            line.due_ms = self._clock.now_ms() + _STORE_AGAIN_MS
        except Exception:  # a fault in one client's webhook must not end the notifications of all clients
            logger.exception("a push notification to %s failed, and is tried again later", line.place)
            line.due_ms = self._clock.now_ms() + _BROKEN_AGAIN_MS
        else:
            self._news.add(key.task_id)
        finally:
            if (now := self._lines.get(key)) is not None:
                now.is_busy = False
            self._busy[place] -= 1
            if not self._busy.total():
                self._busy.clear()
                self._idle.set()
                self._idle = anyio.Event()
            self._wake.set()

    async def _send_first(self, line: _Line) -> None:
        key = line.webhook.key
        row = await self._outbox.first(key)
        if row is None:
            return
        if line.opened is None:
            await self._give_up(line, _KEY_IS_GONE)
        elif (text := text_of(row.event)).startswith(_OF_THE_CLIENT):
            await self._outbox.sent(key, row.seq)
        else:
            if line.opened.gets_tasks and (now := await self._row_of(key.task_id)) is not None:
                text = now.event
            event = self._shown(text, line.opened.extensions)
            attempt = await self._notifier.send(line.opened, key.task_id, OutboxRow(row.seq, event))
            if attempt.failure is None:
                self._notify(PushAttempt(self._face, "delivered", key.task_id, line.place))
                line.since_ms = self._clock.now_ms()
                await self._outbox.sent(key, row.seq)
            else:
                await self._failed(line, attempt, attempt.failure)

    async def _failed(self, line: _Line, attempt: Attempt, failure: str) -> None:
        attempts, pauses = line.webhook.attempts + 1, self._pace.retry_seconds
        if attempt.is_final or attempts > len(pauses):
            times = "once" if attempts == 1 else f"{attempts} times"
            await self._give_up(line, f"{failure} (tried {times})")
            return
        pause = pauses[attempts - 1] * (1 + self._pace.jitter * self._chance())
        held = min(attempt.wait_seconds, max(pauses))
        self._notify(PushAttempt(self._face, "failed", line.webhook.key.task_id, line.place))
        due_ms = self._clock.now_ms() + round(max(pause, held) * 1000)
        logger.info("webhook %s of task %s: %s", *reversed(line.webhook.key), failure)
        await self._outbox.failed(line.webhook.key, attempts, due_ms, failure)

    async def _give_up(self, line: _Line, failure: str) -> None:
        task_id, webhook_id = line.webhook.key
        self._notify(PushAttempt(self._face, "given_up", task_id, line.place))
        logger.warning(
            "nothing more is sent to webhook %s (%s) of task %s: %s", webhook_id, line.place, task_id, failure
        )
        await self._outbox.give_up(line.webhook.key, failure)
