"""The first connections of a start: which are waited for, and who is told how they go."""

from __future__ import annotations

from typing import Protocol

import anyio

from bridge.errors import PeerError, UsageError
from bridge.mcp.client.upstream import Upstream


class StartObserver(Protocol):
    """Who is told how far a start has come."""

    def connecting(self, key: str, target: object) -> None:
        """A tool server is being started or called."""
        ...

    def connected(self, key: str, upstream: Upstream) -> None:
        """It is there."""
        ...

    def failed(self, key: str, why: str) -> None:
        """It is not, and is tried again."""
        ...


class FirstConnections:
    """Waits until one of some servers is up, or none of them is going to be soon."""

    def __init__(self, watching: StartObserver | None) -> None:
        self.seen = anyio.Event()
        self._left = 0
        self._watching = watching
        self._looking: list[anyio.CancelScope] = []

    def expect(self, number: int) -> None:
        """So many servers are waited for."""
        self._left = number

    def give_up(self) -> None:
        """Look no longer."""
        for scope in self._looking:
            scope.cancel()

    async def require(self, key: str, upstream: Upstream) -> None:
        """Raises what keeps a server from being up."""
        await upstream.ready()
        self._is_up(key, upstream)

    async def look(self, key: str, upstream: Upstream) -> None:
        """Take note of whether a server is up."""
        try:
            with anyio.CancelScope() as scope:
                self._looking.append(scope)
                await upstream.ready()
            if scope.cancelled_caught:
                return
        except (PeerError, UsageError) as exc:
            self._left -= 1
            if self._watching:
                self._watching.failed(key, str(exc))
            if not self._left:
                self.seen.set()
        else:
            self._is_up(key, upstream)

    def _is_up(self, key: str, upstream: Upstream) -> None:
        if self._watching:
            self._watching.connected(key, upstream)
        self.seen.set()
