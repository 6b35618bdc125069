"""The tasks of one agent: those in memory, and access to those that are only stored.

A task is in memory while work runs on it, a client watches it, or an event of it waits for the store. Otherwise it
leaves. A task that waits for its client then stays in an LRU cache, so that the answer need not load it again. The
registry ends a task whose events could not be stored, once the store can write again, and a task whose client did not
answer in time.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import anyio
import anyio.abc

from bridge.a2a.model.errors import task_not_found, temporarily_unavailable
from bridge.a2a.model.life import ENDED, INTERRUPTED, EventMaker, IdsAndClock
from bridge.a2a.model.objects import Part, Task, TaskState, milliseconds
from bridge.a2a.model.task_names import named_id
from bridge.a2a.tasks.agent import Commit
from bridge.a2a.tasks.draft import DraftTask
from bridge.a2a.tasks.listing import task_from_stored
from bridge.a2a.tasks.live import LiveTask
from bridge.access.principals import Principal
from bridge.concurrency import Signal, one_at_a_time
from bridge.errors import StoreConflictError, StoreError
from bridge.store.records import Store, StoredTask, TaskOrigin

logger = logging.getLogger(__name__)

_UNSTORED: Final = "The bridge could not store what happened to this task"
_LOOK_SECONDS: Final = 30.0
"""The longest pause between two looks at the tasks that wait for an answer."""

RESTING_BYTES: Final = 4 * 1024 * 1024
"""The bound on all resting tasks together, in bytes of JSON. In memory they take several times as much."""


@dataclass(frozen=True, slots=True)
class StorePace:
    """How often a store is checked."""

    look_seconds: float = 5
    """The pause between two checks of a store that works."""
    retry_seconds: float = 5
    """The pause before a failed store is tried again."""


class TaskRegistry:
    """Finds, loads and holds the tasks of one engine. Runs in the task group that `start` is given."""

    def __init__(
        self, store: Store, ids: IdsAndClock, pace: StorePace, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called after each change of any task."""
        self._store = store
        self._ids = ids
        self._pace = pace
        self._on_change = on_change
        self._live: dict[str, LiveTask] = {}
        self._loading: dict[str, Signal] = {}
        self._resting: OrderedDict[str, LiveTask] = OrderedDict()
        """Tasks that wait for their clients, the most recently used last."""
        self._resting_bytes = 0
        self._open: dict[str, set[str]] = {}
        """The ids of unfinished tasks, by owner."""
        self._unstored: dict[str, LiveTask] = {}
        """Tasks whose events could not be stored."""
        self._disturbed = anyio.Event()
        """Set when a task is added to `_unstored`."""

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Run in this task group from now on."""
        self._group = group
        group.start_soon(self._look_after_store)

    def __iter__(self) -> Iterator[LiveTask]:
        """The tasks in memory."""
        return iter(tuple(self._live.values()))

    def new(
        self, owner: str, context_id: str | None, *, name: str | None = None, is_draft: bool = False
    ) -> LiveTask:
        """A task that does not exist yet: its first event makes it, or for a draft, the first that needs a task.

        `name` is what its client calls it, where clients do.
        """
        task_id = self._ids.new() if name is None else named_id(self._ids.new(), name)
        origin = TaskOrigin(context_id or self._ids.new(), owner, self._ids.now_ms())
        live = (DraftTask if is_draft else LiveTask)(task_id, origin, self._store.submit, self.changed)
        self._live[task_id] = live
        self.count(origin.owner, task_id)
        return live

    def open_of(self, owner: str) -> int:
        """The number of unfinished tasks of an owner."""
        return len(self._open.get(owner, ()))

    def count(self, owner: str, task_id: str) -> None:
        """Count a task among the unfinished ones of its owner."""
        self._open.setdefault(owner, set()).add(task_id)

    def _count_out(self, live: LiveTask) -> None:
        mine = self._open.get(live.origin.owner, set())
        mine.discard(live.id)
        if not mine:
            self._open.pop(live.origin.owner, None)

    async def own(self, task_id: str, principal: Principal) -> LiveTask:
        """The principal's task, from memory or the store.

        Raises:
            A2AError: TASK_NOT_FOUND, also for another principal's task.
        """
        live = await self.find(task_id)
        if live is None or live.origin.owner != principal.name:
            raise task_not_found(task_id)
        return live

    def is_at_hand(self, task_id: str) -> bool:
        """Whether a task is in memory, whoever owns it."""
        return task_id in self._live or task_id in self._resting

    async def find(self, task_id: str) -> LiveTask | None:
        """The task with this id, whoever owns it; None if there is none."""
        return self._live.get(task_id) or await self._load(task_id)

    async def _load(self, task_id: str) -> LiveTask | None:
        async with one_at_a_time(self._loading, task_id):
            if task_id in self._live:
                return self._live[task_id]
            if (live := self._resting.pop(task_id, None)) is not None:
                self._resting_bytes -= live.weight_bytes
                return self._held(live)
            stored = await self._store.load(task_id)
            return None if stored is None else self.hold(stored)

    def hold(self, stored: StoredTask) -> LiveTask:
        """A stored task as a live one, which is held in memory unless it has ended.

        Raises:
            ValueError: the stored bytes cannot be read.
        """
        live = LiveTask(stored.task_id, stored.origin, self._store.submit, self.changed)
        live.restore(task_from_stored(stored), stored)
        return live if live.task.status.state in ENDED else self._held(live)

    def _held(self, live: LiveTask) -> LiveTask:
        self._live[live.id] = live
        # The caller uses the task before the event loop runs anything else. If it only looked, the task leaves again.
        self._group.start_soon(self._leave_if_idle, live)
        return live

    async def _leave_if_idle(self, live: LiveTask) -> None:
        self.changed(live)

    async def shown(self, live: LiveTask) -> Task:
        """The visible state of a task; waits for the first event of a new one."""
        return live.visible or await self.reached(live, 1, settled=False)

    async def reached(self, live: LiveTask, seq: int, *, settled: bool) -> Task:
        """See `LiveTask.reached`.

        Raises:
            A2AError: UNAVAILABLE, the store cannot write.
        """
        try:
            return await live.reached(seq, settled=settled)
        except StoreError as exc:
            raise temporarily_unavailable("The bridge cannot store tasks at the moment") from exc

    def events_of(self, live: LiveTask) -> EventMaker:
        """The maker of a task's events."""
        return EventMaker(self._ids, live.id, live.origin.context_id)

    def conclude(self, live: LiveTask, state: TaskState, words: str) -> Commit:
        """End a task from the engine's side, with a message that says why."""
        events = self.events_of(live)
        return live.accept(events.status(state, events.message((Part(text=words),))), keep=b"")

    def changed(self, live: LiveTask) -> None:
        """React to a change of a task: it may have ended, need mending, or be free to leave memory."""
        if live.is_over:
            self._count_out(live)
        if live.failure is not None:
            self._mend(live)
        elif live.idle and self._live.pop(live.id, None) is not None:
            self._rest(live)
        self._on_change()

    def _rest(self, live: LiveTask) -> None:
        if live.is_over or live.weight_bytes > RESTING_BYTES:
            return
        self._resting[live.id] = live
        self._resting_bytes += live.weight_bytes
        while self._resting_bytes > RESTING_BYTES:
            _, oldest = self._resting.popitem(last=False)
            self._resting_bytes -= oldest.weight_bytes

    def _mend(self, live: LiveTask) -> None:
        """Stop a task whose events could not be stored. It is ended once the store can write again."""
        if live.running is not None:
            live.running.scope.cancel()
        else:
            self._unstored[live.id] = live
            self._disturbed.set()

    async def _look_after_store(self) -> NoReturn:
        """Check the store, retry a failed one until it can write, and then end the tasks of `_unstored`."""
        while True:
            if self._store.failure is None and not self._unstored:
                self._disturbed = anyio.Event()
                with anyio.move_on_after(self._pace.look_seconds) as rest:
                    await self._disturbed.wait()
                if rest.cancelled_caught:
                    await self._store.check()
                continue
            if await self._store.probe():
                for live in self._taken_unstored():
                    self._end_unstored(live)
            await anyio.sleep(self._pace.retry_seconds)

    def _taken_unstored(self) -> Sequence[LiveTask]:
        taken, self._unstored = self._unstored, {}
        return tuple(taken.values())

    def _end_unstored(self, live: LiveTask) -> None:
        overtaken = isinstance(live.failure, StoreConflictError)
        live.fall_back()
        if overtaken or live.visible is None:
            # The store's version counts, and this process must add nothing to it.
            self._count_out(live)
            self._live.pop(live.id, None)
        elif live.visible.status.state not in ENDED:
            self.conclude(live, TaskState.FAILED, _UNSTORED)

    async def end_unanswered(self, seconds: float) -> NoReturn:
        """End the tasks that have waited for their client for `seconds` and have no running work."""
        waits = _Waits(self._ids)
        while True:
            try:
                found = await self._store.waiting(INTERRUPTED)
                for task_id in waits.longer_than(round(seconds * 1000), found):
                    await self._end_if_unanswered(task_id, found[task_id], seconds)
            except StoreError:
                logger.exception("tasks that nobody answers could not be looked for; tried again later")
            await anyio.sleep(min(seconds / 4, _LOOK_SECONDS))

    async def _end_if_unanswered(self, task_id: str, since_ms: int, seconds: float) -> None:
        try:
            live = await self.find(task_id)
        except ValueError as exc:
            logger.debug("task %s cannot be read and is left as it is: %s", task_id, exc)
            return
        if live is not None and live.running is None and _waits_since(live.task) == since_ms:
            words = f"This agent's question was not answered within {seconds:g} s"
            self.conclude(live, TaskState.FAILED, words)


def _waits_since(task: Task) -> int | None:
    """When a task began to wait for its client, in milliseconds since the epoch; None if it does not wait."""
    timestamp = task.status.timestamp
    return milliseconds(timestamp) if timestamp and task.status.state in INTERRUPTED else None


class _Waits:
    """How long tasks have waited for their clients, by a monotonic clock.

    The wall clock only gives the wait before a task was first seen, which is at most the time since the last look.
    A task of an earlier process has only a wall-clock time; a time in the future counts as now.
    """

    def __init__(self, ids: IdsAndClock) -> None:
        self._ids = ids
        self._looked_ms = -math.inf
        self._began: dict[str, tuple[int, float]] = {}
        """By task: its `status_ms`, and the same moment on the monotonic clock, in milliseconds."""

    def longer_than(self, milliseconds: int, waiting: Mapping[str, int]) -> list[str]:
        """The tasks that have waited for longer than `milliseconds`.

        `waiting` has each waiting task, with the wall-clock time at which its wait began.
        """
        now_ms, wall_ms, before = self._ids.elapsed_ms(), self._ids.now_ms(), self._began
        since_look = now_ms - self._looked_ms
        self._looked_ms, self._began = now_ms, {}
        for task_id, since_ms in waiting.items():
            known = before.get(task_id)
            if known is None or known[0] != since_ms:
                known = since_ms, now_ms - min(max(wall_ms - since_ms, 0), since_look)
            self._began[task_id] = known
        return [task_id for task_id, (_, began_ms) in self._began.items() if now_ms - began_ms > milliseconds]
