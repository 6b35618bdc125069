"""Keeps a subscription to changes of resources and prompts open, as the work of a task.

The task is WORKING while the subscription is open. Changes wait until the next status update: each change once, at most
one update in a second by default. So a server that reports changes without end costs its subscribers, and the store, no
more than that. A change is passed on only if the subscriber may use the resource then.

The subscription ends with the connection to the server. Its subscriber opens another and treats everything as changed.

Spec: MCP 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from bridge.a2a.model.errors import UNSUPPORTED_OPERATION, A2AError
from bridge.a2a.model.objects import Message, Part, TaskState
from bridge.a2a.tasks.agent import Commit, Job, Turn
from bridge.concurrency import Signal
from bridge.errors import BusyError, PeerError
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.messages import is_within
from bridge.text.jsonvalues import JsonObject
from bridge.translate.extensions.mcp_requests import (
    ACKNOWLEDGED,
    LIST_CHANGES,
    UPDATED,
    URI,
    McpError,
    Subscription,
    acknowledgment,
    part_of_answer,
    part_of_notifications,
    subscription_from,
)

logger = logging.getLogger(__name__)

_RIGHTS_SECONDS: Final = 60.0
"""How often it is checked that the subscriber may still use what it hears of, if nothing changes."""
_PARTS_MOST: Final = 1000
"""The most parts of subscribed resources whose changes wait. Beyond, the whole resource counts as changed."""
_META: Final = "io.modelcontextprotocol/subscriptionId"
_ANEW: Final = "Subscribe again, and treat everything as changed"


@dataclass(frozen=True)
class SubscriptionRules:
    """What a subscription is about, and how long it may go on."""

    wanted: Subscription
    why_end: Callable[[], str]
    """Says why the subscription must end now; "" if it may go on."""
    may_see: Callable[[str], bool]
    """Whether the subscriber may hear of a resource now."""
    login: Callable[[Job], Awaitable[float | None]] | None
    """Gives the time of the subscriber's login, and asks for one if there is none; None if the server wants no login of
    each caller. Its own result is None if the task has ended, or waits for a message."""
    begin_seconds: float
    """How long the server may take to begin."""
    update_seconds: float
    """The shortest pause between two status updates."""
    life_seconds: float
    """How long the subscription may be open."""


class SubscriptionRun:
    """One subscription."""

    def __init__(
        self, upstream: Upstream, rules: SubscriptionRules, on_end: Callable[[SubscriptionRun], None]
    ) -> None:
        """`on_end` is called once the subscription has ended."""
        self._upstream = upstream
        self._rules = rules
        self._on_end = on_end
        self._begun: Subscription | None = None
        """What the server has agreed to; None until it has."""
        self._pending: dict[tuple[str, str], JsonObject] = {}
        """The changes that the subscriber was not told of, by method and URI."""
        self._end: tuple[TaskState, Part] | None = None
        self._moved = Signal()

    def judge(self) -> None:
        """End the subscription if it may not go on."""
        if self._end is None and (why := self._rules.why_end()):
            self._finish(TaskState.FAILED, Part(text=f"{why}. {_ANEW}"))

    def drop(self) -> None:
        """Forget the subscription. Call this if it is not started."""
        self._on_end(self)

    async def __call__(self, job: Job) -> None:
        """Pass changes on until the subscription ends."""
        job.running.is_standing = True  # also if it goes on in a task that waited for a login
        try:
            since = None
            if self._rules.login is not None and (since := await self._rules.login(job)) is None:
                return
            job.listen(_refuse)
            await job.accepted
            if self._rules.wanted:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, job, since)
                    await self._pass_on(job)
                    tasks.cancel_scope.cancel()
            else:
                await self._tell(job, [acknowledgment(self._rules.wanted)])
                self._finish(TaskState.COMPLETED, Part(text="Nothing of this can be subscribed to"))
            assert self._end is not None
            state, part = self._end
            await job.status(state, _message(job, part), keep=b"")
        except (PeerError, BusyError) as exc:  # the stored logins cannot be read
            await job.status(TaskState.FAILED, _message(job, Part(text=f"{exc}. {_ANEW}")), keep=b"")
        finally:
            self._on_end(self)

    async def _listen(self, job: Job, since: float | None) -> None:
        principal = job.turn.principal
        try:
            async with self._upstream.queue(
                principal.name, job.events.context_id, principal.token, since
            ) as queue:
                job.sent(self._upstream.name)
                with anyio.move_on_after(self._rules.life_seconds):
                    await queue.session.listen(self._rules.wanted.to_filter(), self._hear)
                    return self._finish(TaskState.COMPLETED, Part(text="The server ended the subscription"))
            self._finish(TaskState.COMPLETED, Part(text=f"The subscription was open for long. {_ANEW}"))
        except ServerRefusedError as exc:
            self._finish(TaskState.FAILED, part_of_answer(McpError(exc.code, str(exc), exc.data)))
        except (PeerError, BusyError) as exc:
            self._finish(TaskState.FAILED, Part(text=f"{exc}. {_ANEW}"))

    def _hear(self, method: str, params: JsonObject) -> None:
        if method == ACKNOWLEDGED:
            agreed, wanted = subscription_from(params), self._rules.wanted
            self._begun = Subscription(
                agreed.lists & wanted.lists, tuple(uri for uri in wanted.uris if uri in agreed.uris)
            )
        elif (key := self._key_of(method, params)) is not None:
            self._pending[key] = _passed(method, params, key[1])
        self._moved.notify()

    def _key_of(self, method: str, params: JsonObject) -> tuple[str, str] | None:
        """Which change a notification reports; None if it was not asked for."""
        begun = self._begun
        if begun is None:
            return None
        if method != UPDATED:
            is_wanted = any(LIST_CHANGES[name] == method for name in begun.lists)
            return (method, "") if is_wanted else None
        uri = params.get("uri")
        if not isinstance(uri, str):
            return None
        whole = next((known for known in begun.uris if is_within(uri, known)), None)
        if whole is None:
            return None
        is_full = len(self._pending) >= _PARTS_MOST and (method, uri) not in self._pending
        return method, whole if is_full else uri

    async def _pass_on(self, job: Job) -> None:
        """Tell the subscriber of changes, until the subscription has ended and all changes were told."""
        with anyio.move_on_after(self._rules.begin_seconds):
            while self._begun is None and self._end is None:
                await self._moved.wait()
        if self._begun is None:
            words = f"{self._upstream.name} did not begin the subscription in {self._rules.begin_seconds:g} s"
            return self._finish(TaskState.FAILED, Part(text=words))
        await self._tell(job, [acknowledgment(self._begun)])
        while True:
            with anyio.move_on_after(_RIGHTS_SECONDS):
                while not self._pending and self._end is None:
                    await self._moved.wait()
            self.judge()
            if self._end is not None and self._end[0] is not TaskState.COMPLETED:
                return None
            pending, self._pending = self._pending, {}
            told = [change for (_, uri), change in pending.items() if not uri or self._rules.may_see(uri)]
            if told:
                await self._tell(job, told)
            if self._end is not None:
                return None
            if told:
                await self._paused()

    async def _paused(self) -> None:
        with anyio.move_on_after(self._rules.update_seconds):
            while self._end is None:
                await self._moved.wait()

    async def _tell(self, job: Job, notifications: list[JsonObject]) -> None:
        await job.status(TaskState.WORKING, _message(job, part_of_notifications(notifications)))

    def _finish(self, state: TaskState, part: Part) -> None:
        if self._end is None:
            self._end = state, part
            self._moved.notify()


def _message(job: Job, part: Part) -> Message:
    return job.message((part,)).changed(extensions=(URI,))


def _passed(method: str, params: JsonObject, uri: str) -> JsonObject:
    """A notification as its subscriber gets it: without the number of the bridge's own subscription."""
    meta = params.get("_meta")
    left = {key: value for key, value in meta.items() if key != _META} if isinstance(meta, dict) else {}
    passed = {key: value for key, value in params.items() if key != "_meta"}
    if uri:
        passed["uri"] = uri
    if left:
        passed["_meta"] = left
    return {"method": method, "params": passed} if passed else {"method": method}


def _refuse(_: Turn) -> Callable[[Commit], None]:
    raise A2AError(
        UNSUPPORTED_OPERATION, "The task is a subscription and takes no messages; cancel it to end it"
    )
