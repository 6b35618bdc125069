"""The stream of a tab: what changes while a page is open. One connection for each tab, and none for what it shows.

It tells numbers of the whole bridge now and then, and each event of the task that the page is about as it happens. What
it tells was chosen by the rights that its visitor had when it was opened. So it ends as soon as the visitor is another
one, has other rights, has signed out, or its sign-in is over; nothing is sent before that is known.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from starlette.types import Receive, Scope, Send

from bridge.a2a.model.objects import StreamResponse
from bridge.a2a.server.service import Stream
from bridge.access.principals import Principal
from bridge.access.verifiers import Access
from bridge.console.gate import Visit
from bridge.console.pages import HEADERS
from bridge.errors import StoreAwayError
from bridge.http.request_checks import RefusedError
from bridge.http.sse import HEARTBEAT, frame
from bridge.jsonvalues import JsonObject
from bridge.safe_text import with_visible_characters

STREAMS_MOST: Final = 100
"""Open tabs. A tab beyond that shows its page without news."""

LOOK_SECONDS: Final = 3.0
"""Between looks at the numbers: nothing tells when one changes."""

_HEARTBEAT_LOOKS: Final = 5
"""Looks without a change after which a heartbeat is sent."""

_JUDGE_SECONDS: Final = 15.0
"""Between judgements of a visitor: an issuer that is asked about a token does not tell when it takes it back."""

_STALL_SECONDS: Final = 30.0
"""How long one write may wait for a tab that takes nothing in. Then its place is for another one."""

_LAST_SECONDS: Final = 2.0
"""The same for the end of a stream, which nobody has to read."""

_WORDS: Final = 500
"""Characters of the words of one event that are told."""


@dataclass
class NewsDesk:
    """All open streams of one bridge."""

    access: Access
    numbers: Callable[[Visit], Awaitable[JsonObject]]
    """The numbers that every page shows, for one visitor."""
    principal_of: Callable[[Visit], Awaitable[Principal | None]]
    """Who a visitor is now; None once it may no longer see anything. RefusedError: that cannot be judged now."""
    open: set[NewsStream] = field(default_factory=set)

    def take(self, visit: Visit, watched: Stream | None) -> NewsStream:
        """A stream for a tab, with the events of a task.

        Raises:
            RefusedError: 503, there are too many.
        """
        if len(self.open) >= STREAMS_MOST:
            if watched is not None:
                watched.close()
            raise RefusedError(503, "Too many pages are open", {"Retry-After": "30"})
        return NewsStream(self, visit, watched)

    def end(self, mark: str) -> None:
        """End the streams of all tabs of the browser whose session has this mark."""
        for stream in self.open:
            if stream.visit.session.mark == mark:
                stream.end()


class NewsStream:
    """The news of one tab, as a response."""

    def __init__(self, desk: NewsDesk, visit: Visit, watched: Stream | None) -> None:
        self.visit = visit
        self._desk = desk
        self._watched = watched
        self._sending = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._judged_at: int | None = None
        """`Access.changes` when the visitor was judged last; None before."""

    def end(self) -> None:
        """Tell nothing more."""
        self._scope.cancel()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send news until the tab is closed or its visitor may see no more."""
        raw = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        raw += [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        self._desk.open.add(self)
        self._scope.deadline = anyio.current_time() + self.visit.seconds_left
        try:
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            with self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._tell_numbers, send)
                    group.start_soon(self._tell_events, send)
                    group.start_soon(self._until_let_go)
                    await _gone(receive)
                    self.end()
            with anyio.move_on_after(_LAST_SECONDS):  # without it the server closes the connection
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._desk.open.discard(self)
            if self._watched is not None:
                self._watched.close()

    async def _until_let_go(self) -> None:
        while True:
            changed = self._desk.access.changed.next
            if not await self._is_let_in():
                break
            with anyio.move_on_after(_JUDGE_SECONDS):
                await changed.wait()
        self.end()

    async def _is_let_in(self) -> bool:
        """Whether the visitor is the one for whom the stream was opened, with the same rights."""
        while True:
            changes = self._desk.access.changes
            try:
                now = await self._desk.principal_of(self.visit)
            except RefusedError:  # it cannot be judged now: the tab asks anew
                return False
            if now is None or now != self.visit.principal:
                return False
            if changes == self._desk.access.changes:
                self._judged_at = changes
                return True

    async def _tell_numbers(self, send: Send) -> None:
        told, silent = None, 0
        while True:
            try:
                numbers = await self._desk.numbers(self.visit)
            except StoreAwayError:
                numbers = told or {}
            silent = 0 if numbers != told else silent + 1
            if silent == 0:
                await self._send(send, frame(json.dumps({"numbers": numbers}).encode()))
            elif silent % _HEARTBEAT_LOOKS == 0:
                await self._send(send, HEARTBEAT)
            told = numbers
            await anyio.sleep(LOOK_SECONDS)

    async def _tell_events(self, send: Send) -> None:
        while self._watched is not None and (seen := await self._watched.next()) is not None:
            event = told_event(StreamResponse.model_validate_json(seen.text))
            await self._send(send, frame(json.dumps({"event": event}).encode()))

    async def _send(self, send: Send, body: bytes) -> None:
        async with self._sending:
            if self._judged_at != self._desk.access.changes and not await self._is_let_in():
                self.end()
                return
            with anyio.move_on_after(_STALL_SECONDS) as patience:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if patience.cancelled_caught:
                self.end()


def told_event(event: StreamResponse) -> JsonObject:
    """An event in few words, all of them text."""
    if event.artifact_update is not None:
        artifact = event.artifact_update.artifact
        words = " ".join(part.text for part in artifact.parts if part.text is not None)
        return {"what": "result", "words": _short(words or artifact.name or "")}
    status = event.task.status if event.task is not None else None
    status = event.status_update.status if event.status_update is not None else status
    if status is None:
        return {"what": "message", "words": ""}
    words = " ".join(part.text for part in (status.message.parts if status.message else ()) if part.text)
    first = event.task is not None
    return {
        "what": "now" if first else "state",
        "state": status.state.word,
        "at": status.timestamp or "",
        "words": _short(words),
    }


def _short(words: str) -> str:
    return with_visible_characters(words[:_WORDS] + ("…" if len(words) > _WORDS else ""))


async def _gone(receive: Receive) -> None:
    """Wait until the tab is closed."""
    while (await receive())["type"] != "http.disconnect":
        pass
