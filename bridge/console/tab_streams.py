"""Streams to open tabs: their number, their end, and the rights of their visitors.

A stream begins with the present rights of its visitor. It ends when the visitor or the rights change, the visitor signs
out, or the sign-in expires; the bridge checks this before each message. It also ends if the tab reads nothing, so that
another tab gets its place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc
from starlette.types import Receive, Send

from bridge.console.console_access import Visit
from bridge.console.pages import HEADERS
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access

STREAMS_OF_ONE: Final = 100
"""The most open streams of one principal. A further tab shows its page without news, and follows no call."""

STREAMS_MOST: Final = 1000
"""The most open streams of all principals. One principal alone cannot use all of them."""

_JUDGE_SECONDS: Final = 15.0
"""The interval of checks of a visitor: an issuer does not report that it has revoked an introspected token."""

_STALL_SECONDS: Final = 30.0
"""How long one write may wait for a tab that reads nothing."""

_LAST_SECONDS: Final = 2.0
"""How long the last write of a stream may wait."""


@dataclass
class TabStreams:
    """All open streams of one bridge."""

    access: Access
    principal_of: Callable[[Visit], Awaitable[Principal | None]]
    """The current principal of a visitor; None if the sign-in is not valid. RefusedError: it cannot be checked."""
    open: set[TabStream] = field(default_factory=set)

    def take(self, visit: Visit) -> TabStream:
        """A stream for the tab of a visitor.

        Raises:
            RefusedError: 503, this visitor or all visitors have too many streams.
        """
        own = sum(1 for stream in self.open if stream.visit.principal == visit.principal)
        if own >= STREAMS_OF_ONE:
            raise RefusedError(503, "You have too many pages open", {"Retry-After": "30"})
        if len(self.open) >= STREAMS_MOST:
            raise RefusedError(503, "Too many pages are open", {"Retry-After": "30"})
        return TabStream(self, visit)

    def end(self, mark: str) -> None:
        """End the streams of all tabs of the browser whose session has this mark."""
        for stream in self.open:
            if stream.visit.session.mark == mark:
                stream.end()


class TabStream:
    """A stream to one tab."""

    def __init__(self, streams: TabStreams, visit: Visit) -> None:
        self.visit = visit
        self._streams = streams
        self._sending = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._judged_at: int | None = None
        """`Access.changes` at the last check of the visitor; None before the first."""

    def end(self) -> None:
        """End the stream."""
        self._scope.cancel()

    @asynccontextmanager
    async def held(self, receive: Receive, send: Send) -> AsyncIterator[anyio.abc.TaskGroup]:
        """Answer a request with this stream while the context is open. When the tab is closed or the stream has to end,
        the body of the context is cancelled, with the task group that it yields."""
        raw = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        raw += [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        self._streams.open.add(self)
        self._scope.deadline = anyio.current_time() + self.visit.seconds_left
        try:
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            with self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._until_refused)
                    group.start_soon(self._until_closed, receive)
                    yield group
                    group.cancel_scope.cancel()
            with anyio.move_on_after(
                _LAST_SECONDS
            ):  # without a last message, the server closes the connection
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.open.discard(self)

    async def send(self, send: Send, body: bytes) -> None:
        """Send a frame to the tab, if its visitor still has the same rights."""
        async with self._sending:
            if self._judged_at != self._streams.access.changes and not await self._is_let_in():
                self.end()
                return
            with anyio.move_on_after(_STALL_SECONDS) as patience:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if patience.cancelled_caught:
                self.end()

    async def _until_refused(self) -> None:
        while True:
            changed = self._streams.access.changed.next
            if not await self._is_let_in():
                break
            with anyio.move_on_after(_JUDGE_SECONDS):
                await changed.wait()
        self.end()

    async def _until_closed(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()

    async def _is_let_in(self) -> bool:
        """Whether the visitor still has the principal and the rights with which the stream was opened."""
        while True:
            changes = self._streams.access.changes
            try:
                now = await self._streams.principal_of(self.visit)
            except RefusedError:  # it cannot be checked now: the tab opens a new stream
                return False
            if now is None or now != self.visit.principal:
                return False
            if changes == self._streams.access.changes:
                self._judged_at = changes
                return True
