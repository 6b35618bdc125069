"""Passes a tool's progress reports on as updates of the task: in order, and limited in number and size.

A server may report as fast as it can, and each update is stored. So both the rate of updates and the number of updates
on their way to the store are limited. Beyond a limit, only the newest report waits; the last report is always sent.
Text that is too long is cut, with a note that says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import anyio

from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.mcp.client.values import ProgressReport
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.task_asker import PausableDeadline
from bridge.translate.outcome import progress_metadata

_CHARACTER_BYTES: Final = 4
"""The most bytes of a character in UTF-8."""

BURST_SECONDS: Final = 10
"""A tool may send this many seconds' worth of updates at once, so that every step of a short run is shown."""


class ProgressRelay:
    """Passes on the reports of one run. While a person is asked, the newest report waits, so that the task stays in its
    state."""

    def __init__(self, job: Job, options: AgentOptions, patience: PausableDeadline) -> None:
        self._job = job
        self._patience = patience
        self._most = options.run.progress_in_flight
        self._limit_bytes = options.run.progress_limit_bytes
        self._per_second = options.run.progress_per_second
        self._left = self._per_second * BURST_SECONDS
        self._since = 0.0
        """When `_left` was last updated. At first, `_left` is the whole burst."""
        self._in_flight = 0
        self._newest: ProgressReport | None = None

    def __call__(self, progress: ProgressReport) -> None:
        """Take a report."""
        self._newest = replace(progress, message=cut_text(progress.message, self._limit_bytes))
        self._say_if_it_may()

    def flush(self) -> None:
        """Send the waiting report, if there is one."""
        if self._newest is None or self._patience.is_paused:
            return
        progress, self._newest = self._newest, None
        message = self._job.message((Part(text=progress.message),)) if progress.message else None
        self._in_flight += 1
        self._left -= 1
        commit = self._job.status(TaskState.WORKING, message, metadata=progress_metadata(progress))
        commit.when_settled(self._stored)

    def _stored(self) -> None:
        self._in_flight -= 1
        if self._newest is not None:
            self._say_if_it_may()

    def _say_if_it_may(self) -> None:
        now = anyio.current_time()
        earned = (now - self._since) * self._per_second
        self._left, self._since = min(self._left + earned, self._per_second * BURST_SECONDS), now
        if self._in_flight < self._most and self._left >= 1:
            self.flush()


def cut_text(words: str | None, limit_bytes: int) -> str | None:
    """The text cut to `limit_bytes`, with a note if it was cut."""
    if words is None or len(words) * _CHARACTER_BYTES <= limit_bytes:
        return words
    whole = words.encode(errors="replace")
    if len(whole) <= limit_bytes:
        return words
    head = whole[:limit_bytes].decode(errors="ignore")
    return f"{head} [cut here: {limit_bytes} of {len(whole)} bytes]"
