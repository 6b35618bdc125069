"""The card of an agent that this process publishes, for the MCP servers of this process that are made of the agent.

The card needs no request, so a start neither waits for it nor needs a listening socket. It names the address at which
the process reaches itself, whatever address others are given. Its users hear of a change at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from bridge.a2a.client.card import FoundCard, found_card
from bridge.a2a.model.objects import AgentCard
from bridge.concurrency import Signal


class OwnCard:
    """Implements `bridge.agents_as_tools.remote_agent.CardProvider`. Compared by identity."""

    def __init__(self, base_url: str, card: Callable[[str], AgentCard]) -> None:
        """`card` gives the card of the agent at a base URL."""
        self._base_url = base_url
        self._card = card
        self._news = Signal()

    def look(self) -> None:
        """Tell the watchers that the card may have changed."""
        self._news.tell()

    def cached(self) -> FoundCard:
        """The card."""
        return found_card(self._base_url, self._card(self._base_url).to_json())

    async def refresh(self) -> FoundCard:
        """The card."""
        return self.cached()

    async def watch(self, on_change: Callable[[FoundCard], Awaitable[None]]) -> NoReturn:
        """Call `on_change` with each changed card, for ever."""
        known = self.cached().text
        while True:
            news = self._news.next
            found = self.cached()
            if found.text != known:
                known = found.text
                await on_change(found)
            else:
                await news.wait()
