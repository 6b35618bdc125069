"""One task in memory: its accepted events, its stored and therefore visible state, and its watchers.

An event is *accepted* at once and in order, which fixes its sequence number. It becomes *visible* when the store has
kept it. A watcher gets a snapshot of the task first, and then each visible event once, in order: nobody sees what a
crash could take back. A watcher that does not keep up is cut off; the task goes on.
"""

# Two views of one task
# =====================
#
# `task` is the fold of every accepted event, and `_seq` is the number of the last one. `visible` is the fold of every
# stored event, up to `_visible_seq`. `visible` is never ahead of `task`. The task itself decides by `task`: whether
# an event may follow, and which number it gets. Clients only ever see `visible`.
#
# An event has three states, and moves through them once:
#
#   accepted  `accept` checked it, gave it the next number, and submitted it to the store
#   visible   the store has kept it: `visible` and `_visible_seq` move on, and the watchers get it
#   lost      the store refused it: `failure` is set, and the streams end
#
# Who may move what:
#
# - `accept` moves `task`. The intake, the work, the engine and the registry call it, on one object for each task.
# - `_stored` moves `visible`. Only the store calls it, in the order of submission.
# - `restore` sets both, from the store, before anybody else has the object.
# - `fall_back` moves `task` back to `visible`. Only the registry calls it, after a failure, and once the store can
#   write again.
# - `leave` moves neither: it ends the streams and the waits, because another process goes on.
#
# Orders of events
# ----------------
#
# Many events may be accepted before the first one is stored. A watcher may come at any time, and starts in one of two
# ways. From the visible state: its snapshot is `visible`, and its first event is the next one that is stored. From
# the next accepted event (`from_next`): that event is not sent by itself, its snapshot is the task after it. A
# watcher that comes before anything is stored gets its snapshot with the first stored event. A message of the user
# is an event of the task and not of a stream (`life.py`), so that no watcher gets it after its snapshot.
#
# An event whose state is in CLOSES_STREAM ends a stream. So do a full queue, a failure, `leave`, and a reader that
# goes; a stopping engine ends the streams of waiting tasks. AUTH_REQUIRED does not end a stream: the credential may
# come out of band (section 7.6.1).
#
# What breaks without these rules
# -------------------------------
#
# - A client that saw `task` could see an event that is gone after a crash. The number of that event would then be
#   given to another one.
# - A second object for the same task would give out the same numbers. The store refuses the second event of a number
#   with StoreConflictError, and one of the two outcomes is lost.
# - A snapshot that overlaps with the events after it would show an appended artifact twice; a gap would lose a piece.
# - `_moved` and `_on_change` are told in a `finally`. A commit's callback that raised would otherwise leave a client
#   waiting for ever, and a failed task would never be mended.
# - A watcher's queue is bounded, and `_put` never waits: a reader that takes nothing in would hold up the store's
#   answers for all tasks.

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

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
from bridge.a2a.model.progress import numbers_in
from bridge.a2a.tasks.agent import Commit, RunningWork
from bridge.concurrency import Signal
from bridge.errors import StoreError
from bridge.jsonvalues import JsonObject
from bridge.store.records import Change, MessageKey, OnStored, StoredTask, TaskHead, TaskOrigin

logger = logging.getLogger(__name__)

FOLDED_EVENTS: Final = 16
"""The number of events from which on a snapshot of a waiting task may replace them."""

Submit = Callable[[Change, OnStored], None]
"""See `Store.submit`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An accepted event on its way to the store."""

    seq: int
    task: Task
    """The task after the event."""
    event: StreamResponse
    text: bytes
    commit: Commit


@dataclass(frozen=True, slots=True)
class WatchedEvent:
    """One StreamResponse as JSON, for a watcher."""

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
        """Send the snapshot that begins a stream (sections 3.1.2 and 3.1.6)."""
        self._started = True
        snapshot = StreamResponse(task=with_note(with_history(task, self._history_length), self._note))
        self._put(WatchedEvent(snapshot.to_json(), last=task.status.state in self._closed_by))

    def see(self, entry: _Entry) -> None:
        """Send an event that has become visible, if it belongs to this stream."""
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
        """Send a Message as the only event, and end the stream."""
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
        """End the stream. The reader can still read what is queued."""
        self._send.close()
        self._live.forget(self)

    def close(self) -> None:
        """End the stream for a reader that is gone, and drop what is queued."""
        self.end()
        self._receive.close()

    async def next(self) -> WatchedEvent | None:
        """The next event; None once the stream has ended or was closed."""
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
        """Whether another process goes on with this task: no more events come in this one."""
        self.failure: Exception | None = None
        """Why an accepted event could not be stored. `visible` then lags behind `task`."""
        self.progress: JsonObject | None = None
        """The numbers of the last progress report that is visible, as metadata. They are not stored with the task."""
        self._submit = submit
        self._on_change = on_change
        self._watchers: set[Watcher] = set()
        self._task: Task | None = None
        self._visible: Task | None = None
        self._visible_seq = 0
        self._seq = 0
        self._snapshot_bytes = 0
        self._since_bytes = 0
        self._since_events = 0
        """The bytes and the number of the events accepted since the last snapshot."""
        self._history_bytes: int | None = None
        self._moved = Signal()

    def restore(self, task: Task, stored: StoredTask) -> None:
        """Set the state from the store. `task` is the fold of `stored`."""
        self._task = self._visible = task
        self._seq = self._visible_seq = stored.seq
        self._snapshot_bytes = len(stored.snapshot)
        self._since_bytes = sum(map(len, stored.events))
        self._since_events = len(stored.events)
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
        """The sequence number of the next event."""
        return self._seq + 1

    @property
    def is_over(self) -> bool:
        """Whether the task has ended and that event is stored."""
        return self._visible is not None and self._visible.status.state in ENDED

    @property
    def weight_bytes(self) -> int:
        """The bytes that the store holds for this task."""
        return self._snapshot_bytes + self._since_bytes + len(self.kept)

    @property
    def history_bytes(self) -> int:
        """The approximate size of the history: the sum of its messages as JSON."""
        if self._history_bytes is None:
            self._history_bytes = sum(len(message.to_json()) for message in self.task.history or ())
        return self._history_bytes

    @property
    def idle(self) -> bool:
        """Whether the task may leave memory: every event is stored, no work runs, and nobody watches."""
        return self._seq == self._visible_seq and self.running is None and not self._watchers

    def accept(
        self,
        event: StreamResponse,
        *,
        keep: bytes | None = None,
        message: MessageKey | None = None,
    ) -> Commit:
        """Accept the next event. Returns a commit that says when it is stored.

        `keep` replaces the bytes that the worker keeps with the task. `message` is the key of a message that
        became this event.

        Raises:
            IllegalTransitionError: the event cannot follow.
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
        """A new snapshot for the store when one is due, else None.

        A snapshot is due when the task has ended. It is also due when the task waits, and the events since the last
        snapshot are many and weigh as much as that snapshot: the cost of an answer then does not grow with the number
        of events. A few of them are read as fast as a snapshot, and large ones are not written twice.
        """
        self._since_bytes += len(entry.text)
        self._since_events += 1
        state = entry.task.status.state
        snapshot = None
        if entry.event.task is not None:
            snapshot = _task_in(entry.text)
        elif moved and (state in ENDED or (state in INTERRUPTED and self._are_many_since)):
            snapshot = entry.task.to_json()
        if snapshot is not None:
            self._snapshot_bytes, self._since_bytes, self._since_events = len(snapshot), 0, 0
        return snapshot

    @property
    def _are_many_since(self) -> bool:
        return self._since_events >= FOLDED_EVENTS and self._since_bytes >= self._snapshot_bytes

    def _stored(self, entry: _Entry, error: Exception | None) -> None:
        if error is not None:
            self.failure = self.failure or error
            self.end_streams()
        else:
            self._visible, self._visible_seq = entry.task, entry.seq
            self.progress = numbers_in(entry.event) or self.progress
            for watcher in tuple(self._watchers):
                watcher.see(entry)
        try:
            entry.commit.settle(error)
        finally:  # a callback of the commit may raise, and those who wait for the task must still be told
            self._moved.tell()
            self._on_change(self)

    def fall_back(self) -> None:
        """Drop the events that could not be stored, so that the task can go on from its stored state."""
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
        """A watcher that starts from the visible state, or with `from_next` from the next accepted event.

        A snapshot in a state of `closed_by` ends the stream at once. `note` is added to the snapshot's metadata.
        """
        from_seq = self.next_seq if from_next else self._visible_seq + 1
        watcher = Watcher(self, from_seq, history_length, queue_events, closed_by, note)
        self._watchers.add(watcher)
        if not from_next and self._visible is not None:
            watcher.start(self._visible)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Remove a watcher whose stream has ended."""
        if watcher in self._watchers:
            self._watchers.discard(watcher)
            self._on_change(self)

    def end_streams(self) -> None:
        """End the streams of this task. Readers can still read what is queued."""
        for watcher in tuple(self._watchers):
            watcher.end()

    def end_streams_with(self, reply: StreamResponse) -> None:
        """End the streams of this task with the Message that takes the task's place."""
        for watcher in tuple(self._watchers):
            watcher.finish(reply)

    def leave(self) -> None:
        """Leave the task to another process. Those who wait for it here get its current state."""
        self.left = True
        self.end_streams()
        self._moved.tell()

    async def reached(self, seq: int, *, settled: bool) -> Task:
        """The visible task, once event `seq` is stored.

        With `settled`, also wait until the task asks for something, has ended, or was left.

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
    """The task's own JSON, cut out of the JSON of a StreamResponse that holds a task."""
    return text[len(b'{"task":') : -1]


def _head(task: Task) -> TaskHead:
    status = task.status
    assert status.timestamp is not None
    return TaskHead(status.state.value, status.state in ENDED, milliseconds(status.timestamp))
