"""Subscriptions to changes of resources and prompts at a server of MCP 2025-11-25 or older.

Such a server has no `subscriptions/listen`: a client subscribes to each resource, and the changes of all subscriptions
come on one connection. The subscribers of a connection share the subscription to a resource.

Spec: MCP 2025-11-25 server/resources (subscriptions), server/prompts (list changed).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from mcp import MCPError

from bridge.mcp.client.faults import fault_of
from bridge.mcp.client.values import OnNews
from bridge.mcp.messages import is_within
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

LISTEN: Final = "subscriptions/listen"

_URIS: Final = "resourceSubscriptions"
_LISTS: Final = {
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
}
"""The fields of the filter that ask for these notifications."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UNSUBSCRIBE_SECONDS: Final = 5.0
"""How long a server may take to end the subscription to a resource."""

AskAbout = Callable[[str, str], Awaitable[object]]
"""Sends a request with a method about a URI, and waits for the answer."""


class LegacySubscriptions:
    """The subscriptions of one connection."""

    def __init__(self) -> None:
        self._subscribers: Counter[str] = Counter()
        """The number of subscribers of each resource."""
        self._changing = anyio.Lock()
        """Held while the server is told, so that a resource is not subscribed to and given up at the same time."""

    async def opened(self, wanted: JsonObject, ask: AskAbout) -> LegacySubscription:
        """Subscribe to what a filter of subscriptions/listen wants. A resource that the server refuses is left out.

        Raises:
            MCPError: the connection has ended.
        """
        listed = wanted.get(_URIS)
        subscription = LegacySubscription(
            frozenset(method for method, name in _LISTS.items() if wanted.get(name) is True)
        )
        try:
            for uri in listed if isinstance(listed, list) else ():
                if isinstance(uri, str) and await self._add(uri, ask):
                    subscription.uris.append(uri)
        except BaseException:
            await self.end(subscription, ask)
            raise
        return subscription

    async def end(self, subscription: LegacySubscription, ask: AskAbout) -> None:
        """Give up the resources that nobody else subscribes to."""
        with anyio.move_on_after(_UNSUBSCRIBE_SECONDS, shield=True):
            for uri in subscription.uris:
                async with self._changing:
                    self._subscribers[uri] -= 1
                    if self._subscribers[uri]:
                        continue
                    del self._subscribers[uri]
                    try:
                        await ask("resources/unsubscribe", uri)
                    except MCPError as exc:
                        logger.debug("the subscription to %s was not given up: %s", uri, exc)

    async def _add(self, uri: str, ask: AskAbout) -> bool:
        async with self._changing:
            if not self._subscribers[uri]:
                del self._subscribers[uri]
                try:
                    await ask("resources/subscribe", uri)
                except MCPError as exc:
                    if fault_of(exc) is not None:
                        raise
                    logger.debug("no subscription to %s: %s", uri, exc)
                    return False
            self._subscribers[uri] += 1
            return True


class LegacySubscription:
    """One subscription: what the server has agreed to."""

    def __init__(self, lists: frozenset[str]) -> None:
        self._lists = lists
        self.uris: list[str] = []

    def passing_to(self, on_news: OnNews) -> OnNews:
        """Passes on only the changes that this subscription is about. The server may report a part of a resource."""

        def told(method: str, params: JsonObject) -> None:
            uri = params.get("uri")
            is_own = isinstance(uri, str) and any(is_within(uri, known) for known in self.uris)
            if method in self._lists or (method not in _LISTS and is_own):
                on_news(method, params)

        return told

    @property
    def acknowledgment(self) -> tuple[str, JsonObject]:
        """The method and the params that a newer server would begin with."""
        agreed: JsonObject = {_LISTS[method]: True for method in _LISTS if method in self._lists}
        if self.uris:
            agreed[_URIS] = [*self.uris]
        return _ACKNOWLEDGED, {"notifications": agreed}
