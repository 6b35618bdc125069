"""Passes a tool's log messages on as metadata of updates of the task: in order, and limited in number and size.

A server may log as fast as it can, and each update is stored. So the rate and the size of updates are limited. Messages
that do not fit into the next update are left out, and the update says how many. A message that is too long is cut, and
says so.
"""

from __future__ import annotations

from typing import Final

import anyio

from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Job
from bridge.mcp.client.values import LogSink
from bridge.mcp.log_messages import note_of_left_out
from bridge.text.jsonvalues import JsonObject, json_bytes
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.progress import BURST_SECONDS, cut_text
from bridge.tools_as_agent.task_asker import PausableDeadline
from bridge.translate.extensions.log_messages import metadata_of_messages

_SHARE: Final = 4
"""One message may use a quarter of the bytes of an update."""


class LogRelay:
    """Passes on the log messages of one run. While a person is asked, they wait, so that the task stays in its
    state."""

    def __init__(
        self, job: Job, options: AgentOptions, patience: PausableDeadline, level: str, *, is_sole: bool
    ) -> None:
        """`level` and `is_sole` are as in `LogSink`."""
        self.sink = LogSink(level, self._take, is_sole)
        """Takes the messages of the call."""
        self._job = job
        self._patience = patience
        self._limit_bytes = options.run.log_limit_bytes
        self._per_second = options.run.log_updates_per_second
        self._left = self._per_second * BURST_SECONDS
        self._since = 0.0
        """When `_left` was last updated. At first, `_left` is the whole burst."""
        self._is_in_flight = False
        self._waiting: list[JsonObject] = []
        self._waiting_bytes = 0
        self._left_out = 0

    def _take(self, message: JsonObject) -> None:
        size = len(json_bytes(message))
        if size > self._limit_bytes // _SHARE:
            message, size = self._cut(message, size), self._limit_bytes // _SHARE
        if self._waiting_bytes + size > self._limit_bytes:
            self._left_out += 1
            return
        self._waiting.append(message)
        self._waiting_bytes += size
        self._send_if_it_may()

    def _cut(self, message: JsonObject, size: int) -> JsonObject:
        """The message with the beginning of its data as a text."""
        data = message["data"]
        words = data if isinstance(data, str) else json_bytes(data).decode(errors="replace")
        text = cut_text(words, self._limit_bytes // _SHARE // 2) or ""
        rest = {key: value for key, value in message.items() if key in ("level", "logger")}
        if len(json_bytes(rest)) > self._limit_bytes // _SHARE // 2:
            rest = {"level": message["level"]}
        return {**rest, "data": text if len(text) < len(words) else f"[cut here: {size} bytes in all]"}

    def flush(self) -> None:
        """Send the waiting messages, if there are any."""
        if not (self._waiting or self._left_out) or self._patience.is_paused:
            return
        messages = self._waiting
        if self._left_out:
            why = f"the tool logs more than {self._limit_bytes} bytes at a time"
            messages = [*messages, note_of_left_out(self._left_out, why)]
        self._waiting, self._waiting_bytes, self._left_out = [], 0, 0
        self._is_in_flight = True
        self._left -= 1
        self._job.status(TaskState.WORKING, metadata=metadata_of_messages(messages)).when_settled(
            self._stored
        )

    def _stored(self) -> None:
        self._is_in_flight = False
        self._send_if_it_may()

    def _send_if_it_may(self) -> None:
        now = anyio.current_time()
        earned = (now - self._since) * self._per_second
        self._left, self._since = min(self._left + earned, self._per_second * BURST_SECONDS), now
        if not self._is_in_flight and self._left >= 1:
            self.flush()
