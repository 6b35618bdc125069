"""A call of a tool as a stream: its progress while it runs, and then its result.

The call is canceled when the page is closed, as when a host disconnects, and when the visitor loses the right to see
it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from starlette.types import Receive, Scope, Send

from bridge.console.tab_streams import TabStream
from bridge.http.request_checks import RefusedError
from bridge.http.sse import frame
from bridge.mcp.server.face import ReportProgress
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters

logger = logging.getLogger(__name__)

_WAITING_MOST: Final = 100
"""The most reports that wait for a slow browser. Further reports are dropped, because a later report replaces them."""

_WORDS: Final = 500
"""The most characters of the text of one report."""


class LiveTrial:
    """The response that streams a call."""

    def __init__(self, tab: TabStream, call: Callable[[ReportProgress], Awaitable[JsonObject]]) -> None:
        """`call` calls the tool, and passes on its progress reports."""
        self._tab = tab
        self._call = call

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Call the tool until the call ends, the page is closed, or the visitor loses the right to see it."""
        told, reports = anyio.create_memory_object_stream[JsonObject](_WAITING_MOST)
        async with self._tab.held(receive, send) as group, reports:
            group.start_soon(self._run, told)
            async for event in reports:
                await self._tab.send(send, frame(json.dumps(event).encode()))

    async def _run(self, told: MemoryObjectSendStream[JsonObject]) -> None:
        def report(progress: float | None, total: float | None = None, message: str | None = None) -> None:
            words = with_visible_characters((message or "")[:_WORDS])
            try:
                told.send_nowait({"progress": {"at": progress, "of": total, "words": words}})
            except anyio.WouldBlock:
                logger.debug("a report of progress is left out: the browser reads too slowly")
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                logger.debug("a report of progress is left out: its call has been answered")

        async with told:
            try:
                end: JsonObject = {"result": await self._call(report)}
            except RefusedError as exc:
                end = {"refused": {"status": exc.status, "message": str(exc)}}
            except Exception:
                logger.exception("a call from the console failed")
                end = {
                    "refused": {"status": 500, "message": "The bridge failed in this call; its log says why"}
                }
            await told.send(end)
