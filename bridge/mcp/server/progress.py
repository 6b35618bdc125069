"""The progress of one call, on its way to a client that asked for it (notifications/progress).

Spec: MCP 2026-07-28 and 2025-11-25 basic/utilities/progress: each number is greater than the one before.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.server.session import ServerSession

_WAITING_MOST: Final = 256
"""Reports that wait for a client which does not read. Above it the oldest ones are dropped."""


@dataclass(frozen=True, slots=True)
class _Reported:
    progress: float
    total: float | None
    message: str | None


class ProgressSender:
    """Takes reports at any time and sends them one after the other."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._waiting: deque[_Reported] = deque(maxlen=_WAITING_MOST)
        self._news = anyio.Event()
        self._last: float = 0
        self._began = self._ended = False

    def __call__(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """See `serving.Report`."""
        if progress is None or not math.isfinite(progress) or (self._began and progress <= self._last):
            if message is None:
                return
            progress, total = self._last + 1, None
        if total is not None and not math.isfinite(total):
            total = None
        self._began, self._last = True, progress
        # Half a character in it could not be written.
        text = None if message is None else message.encode(errors="replace").decode()
        self._waiting.append(_Reported(progress, total, text))
        self._news.set()

    def end(self) -> None:
        """Nothing more is reported."""
        self._ended = True
        self._news.set()

    async def send_all(self) -> None:
        """Send what is reported, until the end of it."""
        while self._waiting or not self._ended:
            if not self._waiting:
                self._news = anyio.Event()
                await self._news.wait()
                continue
            report = self._waiting.popleft()
            await self._session.report_progress(report.progress, report.total, report.message)
