"""The news stream of a tab: the changes while its page is open. Each tab has one stream.

It sends numbers of the whole bridge at intervals, and the events of the page's task as they happen.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from pydantic import JsonValue
from starlette.types import Receive, Scope, Send

from bridge.a2a.model.objects import StreamResponse
from bridge.a2a.model.progress import PROGRESS
from bridge.a2a.server.service import Stream
from bridge.console.console_access import Visit
from bridge.console.tab_streams import TabStream
from bridge.errors import StoreAwayError
from bridge.http.sse import HEARTBEAT, frame
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters

LOOK_SECONDS: Final = 3.0
"""The interval at which the numbers are read: no event reports that a number has changed."""

_HEARTBEAT_LOOKS: Final = 5
"""A heartbeat is sent after this many intervals without a change."""

_WORDS: Final = 500
"""The most characters of the text of one event."""


class NewsStream:
    """The response that streams the news of one tab."""

    def __init__(
        self, tab: TabStream, numbers: Callable[[Visit], Awaitable[JsonObject]], watched: Stream | None
    ) -> None:
        """`numbers` gives the numbers of every page, for one visitor. `watched` has the events of a task, if the page
        is about a task; it is closed with this stream."""
        self._tab = tab
        self._numbers = numbers
        self._watched = watched

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send news until the tab is closed, or the visitor loses the right to see it."""
        try:
            async with self._tab.held(receive, send) as group:
                group.start_soon(self._send_events, send)
                await self._send_numbers(send)
        finally:
            if self._watched is not None:
                self._watched.close()

    async def _send_numbers(self, send: Send) -> None:
        told, silent = None, 0
        while True:
            try:
                numbers = await self._numbers(self._tab.visit)
            except StoreAwayError:
                numbers = told or {}
            silent = 0 if numbers != told else silent + 1
            if silent == 0:
                await self._tab.send(send, frame(json.dumps({"numbers": numbers}).encode()))
            elif silent % _HEARTBEAT_LOOKS == 0:
                await self._tab.send(send, HEARTBEAT)
            told = numbers
            await anyio.sleep(LOOK_SECONDS)

    async def _send_events(self, send: Send) -> None:
        while self._watched is not None and not self._watched.is_over:
            await self._watched.wait()
            if (seen := self._watched.take()) is None:
                continue
            event = told_event(StreamResponse.model_validate_json(seen.text))
            await self._tab.send(send, frame(json.dumps({"event": event}).encode()))


def told_event(event: StreamResponse) -> JsonObject:
    """An event in short, for the page."""
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
        "progress": progress_words(_numbers_in(event)),
    }


def _numbers_in(event: StreamResponse) -> JsonValue:
    """The progress numbers in an event. A task has its last numbers."""
    holder = event.status_update or event.task
    return ((holder.metadata if holder else None) or {}).get(PROGRESS)


def progress_words(numbers: JsonValue) -> str:
    """Progress numbers in words: `3 of 5`, or `3`; "" if there are none."""
    if not isinstance(numbers, dict):
        return ""
    given = [numbers.get("progress"), numbers.get("total")]
    return " of ".join(f"{number:g}" for number in given if isinstance(number, int | float))


def _short(words: str) -> str:
    return with_visible_characters(words[:_WORDS] + ("…" if len(words) > _WORDS else ""))
