"""The first connections of a start: the waiting for them, and the observer that is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import anyio

from bridge.errors import PeerError, UsageError
from bridge.mcp.client.upstream import Upstream


class StartObserver(Protocol):
    """Is told how the connections of a start go."""

    def connecting(self, key: str, target: object) -> None:
        """A tool server is being started or called."""
        ...

    def connected(self, key: str, upstream: Upstream) -> None:
        """The server is up."""
        ...

    def failed(self, key: str, why: str) -> None:
        """The server is not up; the bridge keeps trying."""
        ...


class FirstConnections:
    """Waits until one of several servers is up, or all have failed once."""

    def __init__(self, observer: StartObserver | None) -> None:
        self.seen = anyio.Event()
        self.missing: set[str] = set()
        """The servers that have not come up yet."""
        self._left = 0
        self._observer = observer
        self._looking: list[anyio.CancelScope] = []

    def expect(self, keys: Iterable[str]) -> None:
        """Wait for these servers."""
        self.missing = set(keys)
        self._left = len(self.missing)

    def give_up(self) -> None:
        """Stop waiting."""
        for scope in self._looking:
            scope.cancel()

    async def require(self, key: str, upstream: Upstream) -> None:
        """Wait until a server is up. Raises the error that keeps it down."""
        await upstream.ready()
        self._is_up(key, upstream)

    async def look(self, key: str, upstream: Upstream) -> None:
        """Note whether a server came up or failed; raise nothing."""
        try:
            with anyio.CancelScope() as scope:
                self._looking.append(scope)
                await upstream.ready()
            if scope.cancelled_caught:
                return
        except (PeerError, UsageError) as exc:
            self._left -= 1
            if self._observer:
                self._observer.failed(key, str(exc))
            if not self._left:
                self.seen.set()
        else:
            self._is_up(key, upstream)

    def _is_up(self, key: str, upstream: Upstream) -> None:
        self.missing.discard(key)
        if self._observer:
            self._observer.connected(key, upstream)
        self.seen.set()
