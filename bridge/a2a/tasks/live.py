"""One task in memory: its accepted events, its stored and therefore visible state, and its watchers.

An event is *accepted* at once and in order, which fixes its sequence number. It becomes *visible* when it is stored. A
watcher first gets a snapshot of the task, and then each visible event once, in order. So no client sees an event that a
crash could undo. A watcher that is too slow is cut off; the task goes on.
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
#   visible   it is stored: `visible` and `_visible_seq` move on, and the watchers get it
#   lost      the store refused it: `failure` is set, and the streams end
#
# Which method moves which view:
#
# - `accept` moves `task`. The intake, the work, the engine and the registry call it. Each task has one object.
# - `_stored` moves `visible`. Only the store calls it, in the order of submission.
# - `restore` sets both, from the store, before other code has the object.
# - `fall_back` moves `task` back to `visible`. Only the registry calls it, after a failure, and once the store can
#   write again.
# - `leave` moves neither: it ends the streams and the waits, because another process continues the task.
# - `apply_foreign` and `advance` move both, by events that another replica stored. They wait until the store has
#   answered for every own event. An own event may also be in the feed, or another replica's event may have its number.
#
# Of several replicas, one works on a task. A replica is *overtaken* if it was taken for dead, or if another replica
# stored an event first. It then accepts nothing more, waits for the store's last answer, falls back, and follows. Its
# watchers have seen only visible events, so their streams go on.
#
# Orders of events
# ----------------
#
# Many events may be accepted before the first one is stored. If nobody watches, an event that says only that a new task
# is WORKING shares the commit of the next event (`Change.may_wait`). After an answer, WORKING is stored at once: if the
# process is killed then, the next process must not take the task for one that still asks.
#
# A watcher may come at any time, and starts in one of two ways. From the visible state: its snapshot is `visible`, and
# its first event is the next stored event. From the next accepted event (`from_next`): that event is not sent by
# itself; the snapshot is the task after it. A watcher that comes before any event is stored gets its snapshot with the
# first stored event. A message of the user is an event of the task and not of a stream (`life.py`), so no watcher gets
# it after its snapshot.
#
# An event whose state is in CLOSES_STREAM ends a stream. So do a full queue, a failure, `leave`, and a reader that
# disconnects. A stopping engine ends the streams of waiting tasks. AUTH_REQUIRED does not end a stream: the credential
# may come out of band (section 7.6.1).
#
# What breaks without these rules
# -------------------------------
#
# - A client that saw `task` could see an event that is gone after a crash. Another event would then get its number.
# - A second object for the same task would give out the same numbers. The store refuses the second event with a number
#   (StoreConflictError), so one of two outcomes would be lost.
# - A snapshot that overlaps with the events after it would show an appended artifact twice; a gap would lose a piece.
# - `_moved` and `_on_change` are signalled in a `finally`. Otherwise a commit's callback that raises would leave a
#   client waiting for ever, and a failed task would never be ended.
# - A watcher's queue is bounded, and `_put` never waits. Otherwise a stalled reader would delay the store's answers for
#   all tasks.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge.a2a.model.life import ENDED, INTERRUPTED, SETTLED, apply_event, not_before
from bridge.a2a.model.objects import StreamResponse, Task, TaskState, milliseconds
from bridge.a2a.model.progress import numbers_in
from bridge.a2a.tasks.agent import Commit, RunningWork
from bridge.a2a.tasks.foreign import ForeignStep, UnreadableEventError, events_of, steps_after
from bridge.a2a.tasks.moments import (
    NO_LINES,
    MomentLines,
    RecordedTimeline,
    line_of_arrival,
    line_of_status,
)
from bridge.a2a.tasks.rows import folded, moments_at, row_of
from bridge.a2a.tasks.watcher import Watcher
from bridge.concurrency import Signal
from bridge.errors import StoreConflictError, StoreError
from bridge.frozen import frozen
from bridge.store.contract import OnStored
from bridge.store.outbox import Webhook
from bridge.store.records import Change, MessageKey, StoredTask, TaskHead, TaskOrigin
from bridge.store.replicas import ForeignEvent
from bridge.text.jsonvalues import JsonObject

FOLDED_EVENTS: Final = 16
"""From this number of events on, a snapshot of a waiting task may replace the events."""

Submit = Callable[[Change, OnStored], None]
"""See `Store.submit`."""


@dataclass(frozen=True, slots=True)
class TaskWriting:
    """How tasks are written, and who is told of their changes."""

    submit: Submit
    on_change: Callable[[LiveTask], None]
    moments_most: int
    """The most moments in the timeline of a task."""
    is_shared: bool = False
    """Whether other replicas may work on the same tasks."""


@frozen
class _Entry:
    """An accepted event on its way to the store."""

    seq: int
    task: Task
    """The task after the event."""
    moments: int
    """The number of moments in the timeline with this event."""
    event: StreamResponse
    text: bytes
    commit: Commit


class LiveTask:
    """One task in memory."""

    def __init__(self, task_id: str, origin: TaskOrigin, writing: TaskWriting) -> None:
        self.id = task_id
        self.origin = origin
        self.kept = b""
        self.holder: str | None = None
        """The replica that held the task when it was last read from the store."""
        self.overtaken = False
        """Whether another replica continues the task, and the store has not yet answered for every own event."""
        self.pins = 0
        """How many callers wait for the task without watching it."""
        self.running: RunningWork | None = None
        self.left = False
        """Whether another process continues this task, so that this process gets no more events."""
        self.failure: Exception | None = None
        """Why an accepted event could not be stored. `visible` then lags behind `task`."""
        self.progress: JsonObject | None = None
        """The numbers of the last progress report that is visible, as metadata. They are not stored with the task."""
        self._submit = writing.submit
        self._has_kept = self._is_shared = writing.is_shared
        """Whether the store may have bytes that a worker kept."""
        self._on_change = writing.on_change
        self._unanswered = 0
        self._told: list[ForeignEvent] = []
        """The events that other replicas stored while the store has not answered for every own event."""
        self._falls = 0
        self._fell_to = 0
        """The number of the event to which the task fell back last."""
        self._watchers: set[Watcher] = set()
        self._task: Task | None = None
        self._visible: Task | None = None
        self._timeline = RecordedTimeline(writing.moments_most)
        """The timeline up to the last accepted event."""
        self._visible_moments = 0
        """How many moments of `_timeline` belong to visible events."""
        self._moments_most = writing.moments_most
        self._noted: RecordedTimeline | None = None
        """The moments since the last accepted event, if there are any. They are stored with the next event."""
        self._visible_seq = 0
        self._seq = 0
        self._snapshot_bytes = 0
        self._since_bytes = 0
        self._since_events = 0
        """The bytes and the number of the events accepted since the last snapshot."""
        self._history_bytes: int | None = None
        self._moved = Signal()
        """Signalled after each change."""
        self._settled = Signal()
        """Signalled after each change, except while the task is working."""

    def restore(self, stored: StoredTask) -> None:
        """Set the state from the store.

        Raises:
            ValueError: the stored bytes cannot be read.
        """
        self._restore(stored, *folded(stored))

    def _restore(self, stored: StoredTask, task: Task, moments: MomentLines) -> None:
        self._task = self._visible = task
        self._timeline.begin_with(moments)
        self._visible_moments = self._timeline.total
        self._seq = self._visible_seq = stored.seq
        self._snapshot_bytes = len(stored.snapshot)
        self._since_bytes = sum(map(len, stored.events))
        self._since_events = len(stored.events)
        self.kept, self.holder = stored.private, stored.holder
        self._has_kept = self._has_kept or bool(stored.private)

    @property
    def task(self) -> Task:
        """The task with every accepted event."""
        assert self._task is not None
        return self._task

    @property
    def state(self) -> TaskState | None:
        """The state after every accepted event; None while there is no event."""
        return None if self._task is None else self._task.status.state

    @property
    def visible(self) -> Task | None:
        """The task with every stored event; None until the first event is stored."""
        return self._visible

    @property
    def moments(self) -> MomentLines:
        """The moments of the task, including those that will be stored with its next event."""
        seen = self._timeline.up_to(self._visible_moments)
        noted = NO_LINES if self._noted is None else self._noted.up_to(self._noted.total)
        return MomentLines((*seen.lines, *noted.lines), seen.left_out + noted.left_out)

    def note(self, line: str) -> None:
        """Add the line of a moment to the timeline. It is stored with the next event."""
        if self._noted is None:
            self._noted = RecordedTimeline(self._moments_most)
        self._noted.add(line)

    @property
    def next_seq(self) -> int:
        """The sequence number of the next event."""
        return self._seq + 1

    @property
    def is_over(self) -> bool:
        """Whether the task has ended and its last event is stored."""
        return self._visible is not None and self._visible.status.state in ENDED

    @property
    def weight_bytes(self) -> int:
        """The size of this task in the store, in bytes."""
        return self._snapshot_bytes + self._since_bytes + len(self.kept)

    @property
    def history_bytes(self) -> int:
        """The approximate size of the history: the sum of its messages as JSON."""
        if self._history_bytes is None:
            self._history_bytes = sum(len(message.to_json()) for message in self.task.history or ())
        return self._history_bytes

    @property
    def idle(self) -> bool:
        """Whether the task may leave memory: every event is stored, no work runs, and there are no watchers or
        waiters."""
        is_used = self._watchers or self.pins
        return self._seq == self._visible_seq and self.running is None and not is_used

    @property
    def is_answered(self) -> bool:
        """Whether the store has answered for every accepted event."""
        return self._unanswered == 0

    @property
    def is_mine(self) -> bool:
        """Whether this replica works on the task, or has just added an event."""
        return self.running is not None or self._seq != self._visible_seq

    def accept(
        self,
        event: StreamResponse,
        *,
        keep: bytes | None = None,
        message: MessageKey | None = None,
        replaces: str | None = None,
        webhook: Webhook | None = None,
    ) -> Commit:
        """Accept the next event. Returns a commit that says when it is stored.

        `keep` replaces the bytes that the worker keeps with the task. `message` is the key of a message that became
        this event, and `replaces` the task that an earlier message of this id went to.

        Raises:
            IllegalTransitionError: the event cannot follow.
        """
        if self.overtaken:
            return refused_commit(self.id)
        first, before = self._task is None, self.state
        event = event if self._task is None else not_before(event, self._task.status)
        task = event.task if self._task is None else apply_event(self._task, event)
        assert task is not None
        self._task = task
        self._seq += 1
        self.kept = self.kept if keep is None else keep
        self._has_kept = self._has_kept or bool(keep)
        moved = event.status_update is not None
        came = NO_LINES
        if self._noted is not None:
            came, self._noted = self._noted.up_to(self._noted.total), None
        self._record(before, task, came)
        entry = _Entry(self._seq, task, self._timeline.total, event, event.to_json(), Commit())
        is_kept = event.message is not None or (moved and task.status.state in INTERRUPTED)
        if self._history_bytes is not None and is_kept:
            self._history_bytes += len(entry.text)
        change = Change(
            task_id=self.id,
            seq=self._seq,
            event=row_of(entry.text, came) if came.lines else entry.text,
            head=_head(task) if first or moved else None,
            snapshot=self._snapshot_of(entry, came, moved=moved),
            private=keep if self._has_kept else None,
            message=message,
            replaces=replaces,
            origin=self.origin if first else None,
            webhook=webhook,
            may_wait=before is TaskState.SUBMITTED
            and not self._watchers
            and keep is None
            and is_silent(event),
        )
        self._unanswered += 1
        self._submit(change, partial(self._stored, entry))
        return entry.commit

    def _snapshot_of(self, entry: _Entry, came: MomentLines, *, moved: bool) -> bytes | None:
        """A new snapshot for the store when one is due, else None.

        A snapshot is due when the task has ended. It is also due when the task waits or its work is standing, and the
        events since the last snapshot are many and as large as that snapshot. So the cost of an answer does not grow
        with the number of events. A few events are read as fast as a snapshot, and large events are not written twice.
        """
        self._since_bytes += len(entry.text)
        self._since_events += 1
        state = entry.task.status.state
        if entry.event.task is not None:
            snapshot = row_of(_task_in(entry.text), came)
        elif moved and (state in ENDED or (self._may_fold(state) and self._are_many_since)):
            snapshot = row_of(entry.task.to_json(), self._timeline.up_to(entry.moments))
        else:
            return None
        self._snapshot_bytes, self._since_bytes, self._since_events = len(snapshot), 0, 0
        return snapshot

    def _may_fold(self, state: TaskState) -> bool:
        return state in INTERRUPTED or (self.running is not None and self.running.is_standing)

    @property
    def _are_many_since(self) -> bool:
        return self._since_events >= FOLDED_EVENTS and self._since_bytes >= self._snapshot_bytes

    def _stored(self, entry: _Entry, error: Exception | None) -> None:
        self._unanswered -= 1
        if error is None:
            self._visible, self._visible_seq = entry.task, entry.seq
            self._visible_moments = entry.moments
            self.progress = numbers_in(entry.event) or self.progress
            for watcher in tuple(self._watchers):
                watcher.see(entry.seq, entry.task, entry.event, entry.text)
        elif self._is_shared and isinstance(error, StoreConflictError):
            self.overtaken = True
        else:
            self.failure = self.failure or error
            self.end_streams()
        if self._told:
            self._take_in()
        try:
            entry.commit.settle(error)
        finally:  # a callback of the commit may raise, and the task's waiters must still be woken
            self._wake_waiters()
            self._on_change(self)

    def _wake_waiters(self) -> None:
        """Wake the waiters of the task. While the task is working, waiters for its settling are not woken."""
        self._moved.notify()
        now = self._visible
        if now is None or now.status.state in SETTLED or self.left or self.failure or self.overtaken:
            self._settled.notify()

    def fall_back(self) -> None:
        """Drop the events that could not be stored, so that the task can go on from its stored state."""
        self._task, self._seq = self._visible, self._visible_seq
        self._timeline.cut(self._visible_moments)
        self._noted = None
        self.failure = self._history_bytes = None
        self.overtaken = False
        self._falls, self._fell_to = self._falls + 1, self._visible_seq
        self._take_in()
        self._wake_waiters()
        self._settled.notify()

    def apply_foreign(self, events: Sequence[ForeignEvent]) -> None:
        """Apply the events of another replica, once the store has answered for every own event."""
        self._told += events
        self._take_in()
        self._wake_waiters()
        self._on_change(self)

    def would_skip(self, stored: StoredTask) -> bool:
        """Whether the streams of this task would miss an event if it advanced to a stored state now."""
        return bool(self._watchers) and self._visible_seq < stored.seq - len(stored.events)

    def advance(self, stored: StoredTask) -> None:
        """Move to a later state from the store. No event may be missing.

        Raises:
            ValueError: the stored bytes cannot be read.
        """
        task, moments = folded(stored)
        if stored.seq > self._visible_seq:
            self._told += events_of(stored)
            self._take_in()
            self._wake_waiters()
        if self._visible_seq == self._seq == stored.seq:
            self._restore(stored, task, moments)

    def _take_in(self) -> None:
        if self._visible is None or self._unanswered or self.overtaken or self.failure:
            return
        events, self._told = self._told, []
        try:
            for step in steps_after(self._visible, self._visible_seq, events):
                self._record_step(step, self._visible.status.state)
                self._task = self._visible = step.task
                self._seq = self._visible_seq = step.seq
                self._history_bytes = None
                if step.event is not None:
                    self.progress = numbers_in(step.event) or self.progress
                for watcher in tuple(self._watchers):
                    watcher.see(step.seq, step.task, step.event, step.text)
        except UnreadableEventError as exc:
            self.failure = exc
            self.end_streams()

    def _record(self, before: TaskState | None, task: Task, came: MomentLines) -> None:
        """Add the moments that came with an event. `before` is the state before the event, `task` the task after it."""
        if came.lines:
            self._timeline.add_all(came)
        elif before is None:
            self._timeline.add(line_of_arrival(task, self.origin.owner))
        if before is not None and task.status.state is not before:
            self._timeline.add(line_of_status(task.status))

    def _record_step(self, step: ForeignStep, before: TaskState) -> None:
        if step.event is None:
            self._timeline.begin_with(moments_at(step.task, self.origin.owner, step.moments))
        else:
            self._record(before, step.task, step.moments)
        self._visible_moments = self._timeline.total

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
        watcher = Watcher(self.id, from_seq, history_length, queue_events, closed_by, note, self.forget)
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
        """End the streams of this task with the Message that replaces the task."""
        for watcher in tuple(self._watchers):
            watcher.finish(reply)

    def overtake(self) -> None:
        """Accept nothing more, because another replica continues the task."""
        self.overtaken, self.failure = True, None
        self._on_change(self)

    def has_reached(self, seq: int, *, settled: bool) -> bool:
        """Whether event `seq` is stored; with `settled`, also whether the task waits for its client or has ended."""
        task = self._visible
        if task is None or self._visible_seq < seq:
            return False
        return not settled or self.left or task.status.state in SETTLED

    def leave(self) -> None:
        """Leave the task to another process. Waiters in this process get its current state."""
        self.left = True
        self.end_streams()
        self._wake_waiters()

    async def reached(self, seq: int, *, settled: bool) -> Task:
        """The visible task, once event `seq` is stored.

        With `settled`, also wait until the task waits for its client, has ended, or was left.

        Raises:
            StoreConflictError: another replica has continued the task before event `seq`.
            StoreError: an event could not be stored.
        """
        falls = self._falls
        while True:
            if self.failure is not None:
                raise StoreError(f"the store could not keep task {self.id}") from self.failure
            if self._task is None or (self._falls != falls and self._fell_to < seq):
                raise StoreConflictError(f"another replica has gone on with task {self.id}")
            if self._visible is not None and self.has_reached(seq, settled=settled):
                return self._visible
            await (self._settled if settled else self._moved).wait()

    async def answered(self) -> None:
        """Wait until the store has answered for every accepted event."""
        while self.overtaken or self._unanswered:
            await self._moved.wait()

    async def caught_up(self, seq: int) -> None:
        """Wait while this replica works on the task and event `seq` is not visible here.

        Also wait while it is not known which of the own events are stored.
        """
        while self.overtaken or (self.is_mine and self._visible_seq < seq and self.failure is None):
            await self._moved.wait()


def is_silent(event: StreamResponse) -> bool:
    """Whether an event says that the task is WORKING, and nothing else."""
    update = event.status_update
    if update is None or update.metadata:
        return False
    return update.status.state is TaskState.WORKING and update.status.message is None


def refused_commit(task_id: str) -> Commit:
    """The failed commit of an event that this replica may no longer add."""
    commit = Commit()
    commit.settle(StoreConflictError(f"another replica goes on with task {task_id}"))
    return commit


def _task_in(text: bytes) -> bytes:
    """The task's own JSON, cut out of the JSON of a StreamResponse that holds a task."""
    return text[len(b'{"task":') : -1]


def _head(task: Task) -> TaskHead:
    status = task.status
    assert status.timestamp is not None
    return TaskHead(status.state.value, status.state in ENDED, milliseconds(status.timestamp))
