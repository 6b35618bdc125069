"""One task in memory: what was accepted, what is stored and so may be seen, and who watches.

An event is *accepted* at once and in order, which fixes its sequence number; it becomes *visible* when the
store says that it is kept. Watchers get a snapshot of the task first and then each visible event once, in
order: nobody sees what a crash could take back. A watcher that does not keep up is cut off; the task goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import anyio

from bridge.a2a.model.life import (
    CLOSES_STREAM,
    ENDED,
    INTERRUPTED,
    SETTLED,
    apply_event,
    with_history,
    with_note,
)
from bridge.a2a.model.objects import StreamResponse, Task, TaskState, milliseconds
from bridge.a2a.tasks.agent import Commit, RunningWork
from bridge.concurrency import Signal
from bridge.errors import StoreError
from bridge.jsonvalues import JsonObject
from bridge.store.records import Change, MessageKey, OnStored, StoredTask, TaskHead, TaskOrigin

logger = logging.getLogger(__name__)

Submit = Callable[[Change, OnStored], None]
"""See `Store.submit`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An accepted event on its way to the store."""

    seq: int
    task: Task
    """The task after it."""
    event: StreamResponse
    text: bytes
    commit: Commit


@dataclass(frozen=True, slots=True)
class WatchedEvent:
    """What a watcher is given: one StreamResponse as JSON."""

    text: bytes
    last: bool
    """Nothing follows on this stream."""


class Watcher:
    """One reader of a task's stream. Iterate it; close it when the reader is gone."""

    def __init__(
        self,
        live: LiveTask,
        from_seq: int,
        history_length: int | None,
        queue_events: int,
        closed_by: frozenset[TaskState],
        note: JsonObject | None,
    ) -> None:
        self._live = live
        self._note = note
        self._from_seq = from_seq
        self._history_length = history_length
        self._closed_by = closed_by
        self._send, self._receive = anyio.create_memory_object_stream[WatchedEvent](queue_events)
        self._started = False
        self.cut_off = False
        """True when the reader was too slow."""

    def start(self, task: Task) -> None:
        """Give the snapshot that a stream begins with (sections 3.1.2 and 3.1.6)."""
        self._started = True
        snapshot = StreamResponse(task=with_note(with_history(task, self._history_length), self._note))
        self._put(WatchedEvent(snapshot.to_json(), last=task.status.state in self._closed_by))

    def see(self, entry: _Entry) -> None:
        """An event became visible."""
        if entry.seq < self._from_seq:
            return
        if not self._started:
            self.start(entry.task)
        elif entry.event.message is None:
            update = entry.event.status_update
            self._put(
                WatchedEvent(entry.text, last=update is not None and update.status.state in CLOSES_STREAM)
            )

    def finish(self, reply: StreamResponse) -> None:
        """This is all there is."""
        self._put(WatchedEvent(reply.to_json(), last=True))

    def _put(self, seen: WatchedEvent) -> None:
        try:
            self._send.send_nowait(seen)
        except anyio.WouldBlock:
            self.cut_off = True
            logger.warning("a reader of task %s is too slow and was cut off; the task goes on", self._live.id)
            self.end()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.end()
        else:
            if seen.last:
                self.end()

    def end(self) -> None:
        """Nothing more will come; what is queued can still be read."""
        self._send.close()
        self._live.forget(self)

    def close(self) -> None:
        """The reader is gone."""
        self.end()
        self._receive.close()

    async def next(self) -> WatchedEvent | None:
        """The next event, or None once the stream is over, or closed."""
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LiveTask:
    """One task in memory."""

    def __init__(
        self, task_id: str, origin: TaskOrigin, submit: Submit, on_change: Callable[[LiveTask], None]
    ) -> None:
        self.id = task_id
        self.origin = origin
        self.kept = b""
        self.running: RunningWork | None = None
        self.left = False
        """Whether another process goes on with it: nothing more will happen to it here."""
        self.failure: Exception | None = None
        """Why an accepted event could not be stored; what is visible is then behind what happened."""
        self._submit = submit
        self._on_change = on_change
        self._watchers: set[Watcher] = set()
        self._task: Task | None = None
        self._visible: Task | None = None
        self._visible_seq = 0
        self._seq = 0
        self._snapshot_bytes = 0
        self._since_bytes = 0
        """How much was accepted since the last snapshot."""
        self._history_bytes: int | None = None
        self._moved = Signal()

    def restore(self, task: Task, stored: StoredTask) -> None:
        """Take over what the store holds: the task that it comes to, and how it holds it."""
        self._task = self._visible = task
        self._seq = self._visible_seq = stored.seq
        self._snapshot_bytes = len(stored.snapshot)
        self._since_bytes = sum(map(len, stored.events))
        self.kept = stored.private

    @property
    def task(self) -> Task:
        """The task with every accepted event."""
        assert self._task is not None
        return self._task

    @property
    def visible(self) -> Task | None:
        """The task with every stored event; None until its first is stored."""
        return self._visible

    @property
    def next_seq(self) -> int:
        """The number that the next event will get."""
        return self._seq + 1

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and that is stored."""
        return self._visible is not None and self._visible.status.state in ENDED

    @property
    def weight_bytes(self) -> int:
        """How much the store holds of it."""
        return self._snapshot_bytes + self._since_bytes + len(self.kept)

    @property
    def history_bytes(self) -> int:
        """How much its history holds, nearly: each message as JSON."""
        if self._history_bytes is None:
            self._history_bytes = sum(len(message.to_json()) for message in self.task.history or ())
        return self._history_bytes

    @property
    def idle(self) -> bool:
        """Whether it may leave memory: all is stored, nobody works on it and nobody watches."""
        return self._seq == self._visible_seq and self.running is None and not self._watchers

    def accept(
        self,
        event: StreamResponse,
        *,
        keep: bytes | None = None,
        message: MessageKey | None = None,
    ) -> Commit:
        """Take the next event in.

        Raises:
            IllegalTransitionError: it cannot follow.
        """
        first = self._task is None
        task = event.task if self._task is None else apply_event(self._task, event)
        assert task is not None
        self._task = task
        self._seq += 1
        self.kept = self.kept if keep is None else keep
        moved = event.status_update is not None
        entry = _Entry(self._seq, task, event, event.to_json(), Commit())
        is_kept = event.message is not None or (moved and task.status.state in INTERRUPTED)
        if self._history_bytes is not None and is_kept:
            self._history_bytes += len(entry.text)
        change = Change(
            task_id=self.id,
            seq=self._seq,
            event=entry.text,
            head=_head(task) if first or moved else None,
            snapshot=self._snapshot_of(entry, moved=moved),
            private=keep,
            message=message,
            origin=self.origin if first else None,
        )
        self._submit(change, partial(self._stored, entry))
        return entry.commit

    def _snapshot_of(self, entry: _Entry, *, moved: bool) -> bytes | None:
        """The task as it is then, where it is time to keep it whole: when it has ended, and when it waits and the
        events since the last time weigh as much as it did. So the cost of an answer does not grow with their number."""
        self._since_bytes += len(entry.text)
        state = entry.task.status.state
        snapshot = None
        if entry.event.task is not None:
            snapshot = _task_in(entry.text)
        elif moved and (
            state in ENDED or (state in INTERRUPTED and self._since_bytes >= self._snapshot_bytes)
        ):
            snapshot = entry.task.to_json()
        if snapshot is not None:
            self._snapshot_bytes, self._since_bytes = len(snapshot), 0
        return snapshot

    def _stored(self, entry: _Entry, error: Exception | None) -> None:
        if error is not None:
            self.failure = self.failure or error
            self.end_streams()
        else:
            self._visible, self._visible_seq = entry.task, entry.seq
            for watcher in tuple(self._watchers):
                watcher.see(entry)
        try:
            entry.commit.settle(error)
        finally:  # whoever waits for the task is told, whatever becomes of those who wait for the event
            self._moved.tell()
            self._on_change(self)

    def fall_back(self) -> None:
        """Forget what could not be stored, so that the task can go on from what is."""
        self._task, self._seq = self._visible, self._visible_seq
        self.failure = self._history_bytes = None

    def watch(
        self,
        queue_events: int,
        history_length: int | None = None,
        *,
        from_next: bool = False,
        closed_by: frozenset[TaskState] = ENDED,
        note: JsonObject | None = None,
    ) -> Watcher:
        """A reader of this task: from its visible state, or from the next event that is accepted.

        A snapshot in a state of `closed_by` is all that it gets. `note` is metadata of its snapshot.
        """
        from_seq = self.next_seq if from_next else self._visible_seq + 1
        watcher = Watcher(self, from_seq, history_length, queue_events, closed_by, note)
        self._watchers.add(watcher)
        if not from_next and self._visible is not None:
            watcher.start(self._visible)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """A reader is gone or done."""
        if watcher in self._watchers:
            self._watchers.discard(watcher)
            self._on_change(self)

    def end_streams(self) -> None:
        """Close the streams of this task; what is queued can still be read."""
        for watcher in tuple(self._watchers):
            watcher.end()

    def end_streams_with(self, reply: StreamResponse) -> None:
        """Close the streams of this task with what it came to in place of a task."""
        for watcher in tuple(self._watchers):
            watcher.finish(reply)

    def leave(self) -> None:
        """Let another process go on with it: whoever waits here is told how it stands."""
        self.left = True
        self.end_streams()
        self._moved.tell()

    async def reached(self, seq: int, *, settled: bool) -> Task:
        """The visible task once the event `seq` is stored and, if asked, the task waits, has ended or was left.

        Raises:
            StoreError: the store could not keep an event.
        """
        while True:
            if self.failure is not None:
                raise StoreError(f"the store could not keep task {self.id}") from self.failure
            task = self._visible
            stored = task is not None and self._visible_seq >= seq
            if task is not None and stored and (not settled or self.left or task.status.state in SETTLED):
                return task
            await self._moved.wait()


def _task_in(text: bytes) -> bytes:
    """The task in the text of a StreamResponse that is one."""
    return text[len(b'{"task":') : -1]


def _head(task: Task) -> TaskHead:
    status = task.status
    assert status.timestamp is not None
    return TaskHead(status.state.value, status.state in ENDED, milliseconds(status.timestamp))
