"""Treats push notifications of agents as hints: knows who waits for which task, and whose notifications arrive.

A notification says only that a task may have changed. Whoever waits for the task then reads it. A waiter also reads the
task after a while without a notification, because a notification may be lost. A process knows only its own waiters: a
notification that nobody waits for changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from bridge.agents_as_tools.handles import FarWebhook
from bridge.settings import AgentSettings

PUSH_PATH: Final = "/push"
"""The path to which agents send notifications."""

_MARK_DIGITS: Final = 16
"""The length of the mark of an agent, see `agent_mark`."""


class HintWaiter:
    """Waits for hints about a task. A hint that arrives while the task is being read is kept for the next wait."""

    def __init__(self, look_seconds: float, longest: Callable[[float], float]) -> None:
        self._look_seconds = look_seconds
        self._longest = longest
        self._news = anyio.Event()
        self._next_at = -math.inf

    def note_hint(self) -> None:
        """Take a hint."""
        self._news.set()

    async def hint(self) -> None:
        """Wait for a hint, and at least `look_seconds` since the last one."""
        await self._news.wait()
        await anyio.sleep_until(self._next_at)
        self._news, self._next_at = anyio.Event(), anyio.current_time() + self._look_seconds

    async def pause(self, seconds: float) -> None:
        """Wait for a hint, at most `seconds`; longer while the agent is known to send notifications."""
        with anyio.move_on_after(self._longest(seconds)):
            await self.hint()


class PushHints:
    """The hints of all agents of a process, and the waiters for them."""

    def __init__(self, base_url: str | None = None) -> None:
        """`base_url` is the address at which agents reach this bridge; without it, no agent is asked for
        notifications."""
        self.url = f"{base_url}{PUSH_PATH}" if base_url else None
        self.pass_on: Callable[[str], None] = _tell_nobody
        """Called for each hint, with a word that other replicas take with `take_word`."""
        self._waiting: dict[str, set[HintWaiter]] = {}
        self._in_place: set[str] = set()
        """The keys of the webhooks that agents have accepted."""
        self._heard: set[str] = set()
        """The marks of the agents whose notifications arrive."""

    def take(self, webhook: FarWebhook) -> None:
        """Take a notification, and pass it on to the other replicas."""
        self._heard.add(webhook.agent)
        self.wake(webhook.key)
        self.pass_on(f"{webhook.agent}{webhook.key}")

    def take_word(self, word: str) -> None:
        """Take a hint from another replica. The empty word is a hint for all tasks, since hints may have been lost."""
        for key in () if word else tuple(self._waiting):
            self.wake(key)
        agent, key = word[:_MARK_DIGITS], word[_MARK_DIGITS:]
        if key in self._waiting:
            self._heard.add(agent)
            self.wake(key)

    @contextmanager
    def waiting(self, webhook: FarWebhook, settings: AgentSettings) -> Iterator[HintWaiter]:
        """Wait for hints of a task while the context is open."""

        def longest(seconds: float) -> float:
            is_told = webhook.key in self._in_place and webhook.agent in self._heard
            return max(seconds, settings.push_poll_seconds) if is_told else seconds

        waiter = HintWaiter(settings.push_look_seconds, longest)
        self._waiting.setdefault(webhook.key, set()).add(waiter)
        try:
            yield waiter
        finally:
            waiters = self._waiting[webhook.key]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[webhook.key]

    @contextmanager
    def in_place(self, webhook: FarWebhook) -> Iterator[None]:
        """Rely on the notifications of a task while the context is open. The task is read at once, for changes before
        that."""
        self._in_place.add(webhook.key)
        self.wake(webhook.key)
        try:
            yield
        finally:
            self._in_place.discard(webhook.key)
            self.wake(webhook.key)

    def count(self, webhook: FarWebhook) -> int:
        """The number of waiters for a task."""
        return len(self._waiting.get(webhook.key, ()))

    def wake(self, key: str) -> None:
        """Give a hint to everyone who waits for a task."""
        for waiter in self._waiting.get(key, ()):
            waiter.note_hint()


def _tell_nobody(_: str) -> None: ...
