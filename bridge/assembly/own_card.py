"""The card of an agent that is published by this very process, for the servers here that are made of it.

It is known without being asked for, so a start does not wait for it and needs nobody to listen yet; it names the
address at which the process reaches itself, whatever others are told; and who uses it hears at once when it changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from bridge.a2a.client.card import FoundCard, found_card
from bridge.a2a.model.objects import AgentCard
from bridge.concurrency import Signal


class OwnCard:
    """Implements `bridge.agents_as_tools.remote_agent.Source`. One is equal to itself alone, as its agent is."""

    def __init__(self, base_url: str, card: Callable[[str], AgentCard]) -> None:
        """`card` gives the card of the agent at a base URL."""
        self._base_url = base_url
        self._card = card
        self._news = Signal()

    def look(self) -> None:
        """It may say something else now."""
        self._news.tell()

    def cached(self) -> FoundCard:
        """The card."""
        return found_card(self._base_url, self._card(self._base_url).to_json())

    async def refresh(self) -> FoundCard:
        """The card."""
        return self.cached()

    async def watch(self, on_change: Callable[[FoundCard], Awaitable[None]]) -> NoReturn:
        """Tell of each card that says something new, for ever."""
        known = self.cached().text
        while True:
            news = self._news.next
            found = self.cached()
            if found.text != known:
                known = found.text
                await on_change(found)
            else:
                await news.wait()
