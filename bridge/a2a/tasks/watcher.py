"""A reader of a task's stream gets a snapshot first, and then each visible event once, in order. Its queue is
bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from bridge.a2a.model.life import CLOSES_STREAM, with_history, with_note
from bridge.a2a.model.objects import StreamResponse, Task, TaskState, made
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedEvent:
    """One StreamResponse as JSON, for a watcher."""

    text: bytes
    last: bool
    """Whether this is the last event of its stream."""
    state: TaskState | None = None
    """The state of the task in the event; None if the event has no state."""


class Watcher:
    """One reader of a task's stream. Iterate it; close it when the reader is gone."""

    def __init__(
        self,
        task_id: str,
        from_seq: int,
        history_length: int | None,
        queue_events: int,
        closed_by: frozenset[TaskState],
        note: JsonObject | None,
        on_end: Callable[[Watcher], None],
    ) -> None:
        self.task_id = task_id
        self._on_end = on_end
        self._note = note
        self._from_seq = from_seq
        self._history_length = history_length
        self._closed_by = closed_by
        self._queue_events = queue_events
        self._queue: list[WatchedEvent] = []
        self._waiting: asyncio.Future[None] | None = None
        """Set while the reader waits. A bare future, because an idle stream holds it."""
        self._ended = False
        self._started = False
        self.cut_off = False
        """True when the reader was too slow."""
        self.view: Callable[[bytes], bytes] | None = None
        """Changes the JSON of an event for the reader; None leaves the JSON as it is."""

    def start(self, task: Task) -> None:
        """Send the snapshot that begins a stream (sections 3.1.2 and 3.1.6)."""
        self._started = True
        snapshot = made(StreamResponse, task=with_note(with_history(task, self._history_length), self._note))
        state = task.status.state
        self._put(WatchedEvent(snapshot.to_json(), state in self._closed_by, state))

    def see(self, seq: int, task: Task, event: StreamResponse | None, text: bytes) -> None:
        """Send a visible event, if it belongs to this stream. `event` is None if a snapshot replaces events."""
        if seq < self._from_seq:
            return
        if event is None:
            self._closed_by = CLOSES_STREAM
        if not self._started or event is None:
            self.start(task)
        elif event.message is None:
            state = None if event.status_update is None else event.status_update.status.state
            self._put(WatchedEvent(text, state in CLOSES_STREAM, state))

    def finish(self, reply: StreamResponse) -> None:
        """Send a Message as the only event, and end the stream."""
        self._put(WatchedEvent(reply.to_json(), last=True))

    def _put(self, seen: WatchedEvent) -> None:
        if self._ended:
            return
        if len(self._queue) == self._queue_events:
            self.cut_off = True
            logger.warning("a reader of task %s is too slow and was cut off; the task goes on", self.task_id)
            self.end()
            return
        self._queue.append(seen)
        if seen.last:
            self.end()
        else:
            self.wake()

    def end(self) -> None:
        """End the stream. Queued events can still be read."""
        self._ended = True
        self.wake()
        self._on_end(self)

    def close(self) -> None:
        """End the stream for a reader that is gone, and drop the queued events."""
        self._queue.clear()
        self.end()

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended and every queued event was read."""
        return self._ended and not self._queue

    def take(self) -> WatchedEvent | None:
        """The next event; None if none is queued."""
        if not self._queue:
            return None
        seen = self._queue.pop(0)
        return seen if self.view is None else replace(seen, text=self.view(seen.text))

    async def wait(self) -> None:
        """Wait until an event is queued, the stream has ended, or `wake` is called. A stream has one reader."""
        if self._queue or self._ended:
            return
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> None:
        """Let a `wait` return."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> WatchedEvent | None:
        """The next event; None once the stream has ended or was closed."""
        while not self.is_over:
            await self.wait()
            if (seen := self.take()) is not None:
                return seen
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
