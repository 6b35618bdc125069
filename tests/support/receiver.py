"""A receiver of push notifications, which answers as a test says, and a clock that the sender waits by."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.push.sender import PushClock, PushPace, PushSender
from bridge.a2a.push.signatures import PushSigner
from bridge.a2a.push.webhook_client import PushBounds, PushClient
from bridge.a2a.tasks.webhooks import WebhookRecords, WebhookRules, Webhooks
from bridge.concurrency import Signal
from bridge.notices import Notify, ignore_notice
from bridge.store.contract import Store
from bridge.store.outbox import WebhookLimits
from tests.support.agents import Clock
from tests.support.running import listening

KEYS: Final = (b"k" * 40,)
PACE: Final = PushPace(retry_seconds=(5, 300, 1800), jitter=0.0, each_host=4, at_once=64, folded_rows=256)
"""The beginning of the default schedule, without chance."""
LIMITS: Final = WebhookLimits(16, 100)
_PATIENCE_SECONDS: Final = 30


@dataclass(frozen=True)
class Notification:
    """What a receiver got."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        """The StreamResponse."""
        return json.loads(self.body)

    @property
    def said(self) -> str:
        """The event in short: what it is, and its state or its text."""
        ((kind, held),) = self.event.items()
        if kind == "artifactUpdate":
            return "artifact " + "".join(part.get("text", "") for part in held["artifact"]["parts"])
        return f"{kind} {held['status']['state'].removeprefix('TASK_STATE_')}"


Answer = Callable[[Notification], Awaitable[Response] | Response]


def ok(_: Notification) -> Response:
    """What a receiver says that has taken it."""
    return Response(status_code=204)


@dataclass
class Receiver:
    """Keeps what it gets, and answers what the next of `answers` says, or that it has it."""

    root_url: str = ""
    got: list[Notification] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    at_work: int = 0
    most_at_work: int = 0
    _moved: Signal = field(default_factory=Signal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a notification."""
        request = Request(scope, receive)
        taken = Notification(request.url.path, dict(request.headers), await request.body())
        self.got.append(taken)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self._moved.notify()
        try:
            answer = (self.answers.pop(0) if self.answers else ok)(taken)
            response = answer if isinstance(answer, Response) else await answer
        finally:
            self.at_work -= 1
        await response(scope, receive, send)

    def url(self, path: str = "/hook") -> str:
        """Where it is."""
        return f"{self.root_url}{path}"

    @property
    def place(self) -> str:
        """Its host and port."""
        return urlsplit(self.root_url).netloc

    @property
    def said(self) -> list[str]:
        """What it got, in short."""
        return [one.said for one in self.got]

    async def until(self, is_reached: Callable[[Receiver], bool]) -> None:
        """Wait until it has got enough."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while not is_reached(self):
                await self._moved.wait()

    async def has(self, number: int) -> list[Notification]:
        """What it got, once these are so many."""
        await self.until(lambda one: len(one.got) >= number)
        return self.got


@asynccontextmanager
async def receiving(*answers: Answer, port: int = 0) -> AsyncIterator[Receiver]:
    """Listen, by default on a free port."""
    receiver = Receiver(answers=[*answers])
    async with listening(receiver, port) as root_url:
        receiver.root_url = root_url
        yield receiver


class PushClockByHand:
    """The time of a `Clock`, in which the sender waits until it is moved."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.due_ms: int | None = None
        """What the sender waits for."""
        self._moved = Signal()

    def now_ms(self) -> int:
        """See `PushClock`."""
        return self.clock.now_ms

    async def until(self, due_ms: int | None, woken: anyio.Event) -> None:
        """See `PushClock`."""
        self.due_ms = due_ms
        self._moved.notify()
        if due_ms is None:
            await woken.wait()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._wake_at, due_ms, woken)
            await woken.wait()
            group.cancel_scope.cancel()

    async def _wake_at(self, due_ms: int, woken: anyio.Event) -> None:
        while self.clock.now_ms < due_ms:
            await self._moved.wait()
        woken.set()

    async def waits(self) -> float:
        """How many seconds the sender waits for the next attempt, once it does."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while self.due_ms is None or self.due_ms <= self.clock.now_ms:
                await self._moved.wait()
        return (self.due_ms - self.clock.now_ms) / 1000

    async def pass_until_due(self) -> float:
        """Let the time go by until the next attempt; how many seconds that is."""
        seconds = await self.waits()
        self.clock.pass_ms(round(seconds * 1000))
        self._moved.notify()
        return seconds


def webhooks_of(store: Store, ids: IdsAndClock, *allow: str, limits: WebhookLimits = LIMITS) -> Webhooks:
    """The webhooks of the tasks in a store."""
    return Webhooks(store, WebhookRecords(KEYS), WebhookRules(limits, frozenset(allow)), ids)


@asynccontextmanager
async def sending(
    store: Store,
    webhooks: Webhooks,
    clock: PushClock,
    *allow: str,
    pace: PushPace = PACE,
    attempt_seconds: float = 15,
    client: PushClient | None = None,
    close_seconds: float = 2.0,
    notify: Notify = ignore_notice,
    face: str = "",
) -> AsyncIterator[PushSender]:
    """Send what is in the outbox of a store."""
    signer = PushSigner("https://bridge.example.com", KEYS)
    client = client or PushClient(
        signer, PushBounds(attempt_seconds, 4096), clock.now_ms, allow=frozenset(allow)
    )
    sender = PushSender(
        store.outbox,
        WebhookRecords(KEYS),
        client,
        pace,
        clock,
        webhooks.row_of,
        close_seconds=close_seconds,
        notify=notify,
        face=face,
    )
    try:
        async with sender:
            yield sender
    finally:
        await client.aclose()
