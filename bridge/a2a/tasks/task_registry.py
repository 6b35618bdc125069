"""The tasks of one agent: holds tasks in memory, and gives access to stored tasks.

A task is in memory while work runs on it, a client watches it, or an event of it waits for the store. Otherwise it
leaves. A task that waits for its client then stays in an LRU cache, so that its answer need not load it again. The
registry ends a task whose events could not be stored, once the store can write again, and a task whose client did not
answer in time.

If other replicas use the same store, no task is cached, and `find` always reads the store. A task in memory that this
replica does not work on follows the events of the other replicas.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import anyio
import anyio.abc

from bridge.a2a.model.errors import cannot_store, task_not_found
from bridge.a2a.model.life import ENDED, INTERRUPTED, EventMaker, IdsAndClock
from bridge.a2a.model.objects import Part, Task, TaskState, is_id, milliseconds
from bridge.a2a.model.task_names import named_id
from bridge.a2a.tasks.agent import Commit
from bridge.a2a.tasks.draft import DraftTask
from bridge.a2a.tasks.foreign import UnreadableEventError
from bridge.a2a.tasks.live import LiveTask, TaskWriting
from bridge.a2a.tasks.open_tasks import OpenTasks
from bridge.concurrency import Signal, one_at_a_time
from bridge.errors import StoreConflictError, StoreError
from bridge.identity.callers.principals import Principal
from bridge.store.contract import Store
from bridge.store.records import StoredTask, TaskOrigin
from bridge.store.replicas import ForeignEvent
from bridge.text.jsonvalues import JsonObject

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


class HeldElsewhereError(Exception):
    """Another replica works on the task, or has the session that the task needs, and has to be asked."""

    def __init__(self, task_id: str | None, holder: str | None) -> None:
        super().__init__(f"task {task_id or 'to be made'} belongs to {holder or 'nobody any more'}")
        self.task_id = task_id
        """The task; None if the message makes a task."""
        self.holder = holder
        """The replica to ask; None if the caller has to look again."""


class TaskRegistry:
    """Finds, loads and holds the tasks of one engine. Runs in the task group that `start` is given."""

    def __init__(
        self,
        store: Store,
        ids: IdsAndClock,
        pace: StorePace,
        on_change: Callable[[], None],
        *,
        moments_most: int,
    ) -> None:
        """`on_change` is called after each change of any task. Timelines keep `moments_most` moments."""
        self._store = store
        self._ids = ids
        self._pace = pace
        self._on_change = on_change
        self._is_shared = store.replicas is not None
        self._writing = TaskWriting(store.submit, self.changed, moments_most, is_shared=self._is_shared)
        self._live: dict[str, LiveTask] = {}
        self._loading: dict[str, Signal] = {}
        self._resting: OrderedDict[str, LiveTask] = OrderedDict()
        """Tasks that wait for their clients. The most recently used task is last."""
        self._resting_bytes = 0
        self.open = OpenTasks(ids, store.replicas)
        """The number of unfinished tasks of each owner."""
        self._following: dict[str, Callable[[], None]] = {}
        """The functions that stop following a task, by its id."""
        self._unstored: dict[str, LiveTask] = {}
        """Tasks whose events could not be stored."""
        self._disturbed = anyio.Event()
        """Set when a task is added to `_unstored`."""

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Start to run in this task group."""
        self._group = group
        group.start_soon(self._look_after_store)

    def __iter__(self) -> Iterator[LiveTask]:
        """The tasks in memory."""
        return iter(tuple(self._live.values()))

    def new(
        self, owner: str, context_id: str | None, *, name: str | None = None, is_draft: bool = False
    ) -> LiveTask:
        """A new task, not yet stored. Its first event stores it. A draft may still become a plain message: the first
        event that needs a task stores a draft.

        `name` is the id that the client chose, if its version of A2A lets clients choose ids.
        """
        task_id = self._ids.new() if name is None else named_id(self._ids.new(), name)
        origin = TaskOrigin(context_id or self._ids.new(), owner, self._ids.now_ms())
        kind = DraftTask if is_draft else LiveTask
        live = kind(task_id, origin, self._writing)
        self._live[task_id] = live
        self.open.add(origin.owner, task_id)
        return live

    def _count_out(self, live: LiveTask) -> None:
        self.open.drop(live.origin.owner, live.id)

    async def require_owned(self, task_id: str, principal: Principal) -> LiveTask:
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

    def progress_of(self, task_id: str) -> JsonObject | None:
        """The last progress numbers of a task's work at this replica, as metadata; None if there are none."""
        live = self._live.get(task_id)
        return None if live is None else live.progress

    async def find(self, task_id: str) -> LiveTask | None:
        """The task with this id, whoever owns it; None if there is none.

        If other replicas use the same store, the task is in its stored state or a later state.
        """
        if not is_id(task_id):
            return None
        if self._is_shared:
            return await self._look_up(task_id)
        return self._live.get(task_id) or await self._load(task_id)

    async def _look_up(self, task_id: str) -> LiveTask | None:
        replicas = self._store.replicas
        while True:
            was_here = task_id in self._live
            stored = await self._store.load(task_id)
            live = self._live.get(task_id)
            if live is None and was_here:
                continue  # The task left memory meanwhile, and the read may lack its last events.
            if stored is None or live is None:
                return live if stored is None else self.hold(stored)
            if live.is_mine or live.failure is not None:
                await live.caught_up(stored.seq)
                if live.is_mine or live.failure is not None:
                    return live
            elif replicas is not None and live.would_skip(stored):
                self._apply_foreign(task_id, await replicas.events_after(task_id, live.next_seq - 1))
            elif self._has_advanced(live, stored):
                return self._attached(live)

    def _has_advanced(self, live: LiveTask, stored: StoredTask) -> bool:
        """Move a task that this replica does not work on to its stored state. Returns False if it is in a later
        state."""
        live.advance(stored)
        self.changed(live)
        return live.next_seq == stored.seq + 1

    def attached(self, live: LiveTask) -> LiveTask:
        """The task in memory with the id of `live`, which may have left memory since it was found."""
        return self._attached(live) if self._is_shared else live

    def _attached(self, live: LiveTask) -> LiveTask:
        here = self._live.get(live.id, live)
        return here if here.task.status.state in ENDED else self._held(here)

    def require_here(self, live: LiveTask) -> None:
        """Require that this replica may add to a task.

        Raises:
            HeldElsewhereError: another replica holds it.
        """
        replicas = self._store.replicas
        if replicas is not None and not live.is_mine and live.holder not in (None, replicas.epoch):
            raise HeldElsewhereError(live.id, live.holder)

    def may_end(self, live: LiveTask) -> bool:
        """Whether this replica may end a task that nobody answers."""
        replicas = self._store.replicas
        if replicas is None or live.holder == replicas.epoch:
            return True
        return live.holder is None and replicas.leads

    async def unless_overtaken(self, stored: Commit) -> None:
        """If there are other replicas, wait for an event to be stored. The waiters of the task get another failure.

        Raises:
            StoreConflictError: another replica was faster.
        """
        if not self._is_shared:
            return
        try:
            await stored
        except StoreConflictError:
            raise
        except StoreError as exc:
            logger.debug("an event is not stored: %s", exc)

    def give_back(self, live: LiveTask, *, is_left: bool) -> None:
        """Release a task that has no more work here to the other replicas, if there are any. `is_left` says that the
        task needs more work."""
        replicas = self._store.replicas
        if replicas is None or live.overtaken or live.failure is not None or live.task.status.state in ENDED:
            return
        give = replicas.hand_over if is_left else replicas.release
        give(live.id, live.next_seq - 1)

    def is_elsewhere(self, live: LiveTask) -> bool:
        """Whether another replica holds a task."""
        try:
            self.require_here(live)
        except HeldElsewhereError:
            return True
        return False

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
        """A stored task as a live task. It is held in memory unless it has ended.

        Raises:
            ValueError: the stored bytes cannot be read.
        """
        live = LiveTask(stored.task_id, stored.origin, self._writing)
        live.restore(stored)
        return live if live.task.status.state in ENDED else self._held(live)

    async def is_free(self, task_id: str) -> bool:
        """Wait until the store has answered for every event of a task. Returns whether this replica does not work on
        it."""
        live = self._live.get(task_id)
        if live is None:
            return True
        await live.answered()
        return not live.is_mine

    def take_over(self, stored: StoredTask) -> LiveTask:
        """A task that another replica worked on, as a live task of this replica.

        Raises:
            ValueError: the stored bytes cannot be read.
        """
        live = self._live.get(stored.task_id)
        if live is None:
            return self.hold(stored)
        live.advance(stored)
        self.changed(live)
        return self._attached(live)

    def give_up(self) -> None:
        """Give up all work, because this replica was taken for dead. Tasks that other replicas can continue are
        followed."""
        for live in self:
            is_open = isinstance(live, DraftTask) and live.is_open
            if not is_open and (live.is_mine or live.failure is not None):
                live.overtake()
        self._unstored.clear()

    def _held(self, live: LiveTask) -> LiveTask:
        self._live[live.id] = live
        # The caller uses the task before the event loop runs other code. If the caller only read it, the task leaves
        # again.
        self._group.start_soon(self._leave_if_idle, live)
        return live

    async def _leave_if_idle(self, live: LiveTask) -> None:
        self.changed(live)

    async def visible_state(self, live: LiveTask) -> Task:
        """The visible state of a task. Waits for the first event of a new task."""
        return live.visible or await self.reached(live, 1, settled=False)

    async def reached(self, live: LiveTask, seq: int, *, settled: bool) -> Task:
        """See `LiveTask.reached`.

        Raises:
            A2AError: UNAVAILABLE, the store cannot write, or another replica has continued without that event.
        """
        try:
            if self._is_shared and not live.has_reached(seq, settled=settled):
                return await self._awaited(live, seq, settled=settled)
            return await live.reached(seq, settled=settled)
        except StoreError as exc:
            raise cannot_store(f"{exc} {exc.__cause__ or ''}") from exc

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""
        return self._ids.now_ms()

    def events_of(self, live: LiveTask) -> EventMaker:
        """The maker of a task's events."""
        return EventMaker(self._ids, live.id, live.origin.context_id)

    def conclude(
        self, live: LiveTask, state: TaskState, words: str, metadata: JsonObject | None = None
    ) -> Commit:
        """End a task from the engine's side, with a message that says why."""
        events = self.events_of(live)
        return live.accept(events.status(state, events.message((Part(text=words),), metadata)), keep=b"")

    def changed(self, live: LiveTask) -> None:
        """React to a change of a task: it may have ended, have a failure, or be free to leave memory."""
        if live.is_over:
            self._count_out(live)
        if live.overtaken:
            self._yield_to_others(live)
        elif live.failure is not None:
            self._mend(live)
        elif live.running is None and live.idle and self._live.get(live.id) is live:
            del self._live[live.id]
            self._rest(live)
        if self._is_shared:
            self._follow_or_not(live)
        self._on_change()

    def _yield_to_others(self, live: LiveTask) -> None:
        """Stop this replica's work on a task. Once the store has answered for all events, follow the other replicas."""
        if live.running is not None:
            live.running.abandon()
            live.running = None
        if not live.is_answered:
            return
        if live.visible is None:
            self._count_out(live)
            live.end_streams()
            if self._live.get(live.id) is live:
                del self._live[live.id]
        live.fall_back()
        self.changed(live)

    def _follow_or_not(self, live: LiveTask) -> None:
        """Follow a task that is in memory and that this replica does not work on; else stop following it."""
        replicas, unfollow = self._store.replicas, self._following.get(live.id)
        here = self._live.get(live.id)
        is_foreign = here is not None and here.running is None and here.visible is not None
        if unfollow is not None and not is_foreign:
            del self._following[live.id]
            unfollow()
        elif unfollow is None and is_foreign and here is live and replicas is not None and not live.is_mine:
            self._following[live.id] = replicas.follow(
                live.id, live.next_seq - 1, partial(self._apply_foreign, live.id)
            )

    def _apply_foreign(self, task_id: str, events: Sequence[ForeignEvent]) -> None:
        live = self._live.get(task_id)
        if live is not None:
            live.apply_foreign(events)

    async def _awaited(self, live: LiveTask, seq: int, *, settled: bool) -> Task:
        """See `LiveTask.reached`. Meanwhile the task stays in memory, and follows the other replicas."""
        live = self._live.setdefault(live.id, live)
        live.pins += 1
        self._follow_or_not(live)
        try:
            return await live.reached(seq, settled=settled)
        finally:
            live.pins -= 1
            self.changed(live)

    def _rest(self, live: LiveTask) -> None:
        if live.is_over or self._is_shared or live.weight_bytes > RESTING_BYTES:
            return
        self._resting[live.id] = live
        self._resting_bytes += live.weight_bytes
        while self._resting_bytes > RESTING_BYTES:
            _, oldest = self._resting.popitem(last=False)
            self._resting_bytes -= oldest.weight_bytes

    def _mend(self, live: LiveTask) -> None:
        """Stop a task whose events could not be stored. It is ended once the store can write again."""
        if isinstance(live.failure, UnreadableEventError):
            logger.error("task %s is no longer followed", live.id, exc_info=live.failure)
            if self._live.get(live.id) is live:
                del self._live[live.id]
        elif live.running is not None:
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
            # Another replica has continued the task in the store, so this process must add nothing.
            self._count_out(live)
            self._live.pop(live.id, None)
        elif live.visible.status.state not in ENDED:
            self.conclude(live, TaskState.FAILED, _UNSTORED)

    async def end_unanswered(self, seconds: float) -> NoReturn:
        """End the tasks that have waited for their client for `seconds` and have no running work."""
        waits = _Waits(self._ids)
        while True:
            try:
                waiting = await self._store.waiting(INTERRUPTED)
                for task_id in waits.longer_than(round(seconds * 1000), waiting):
                    await self._end_if_unanswered(task_id, waiting[task_id], seconds)
            except StoreError:
                logger.exception("the unanswered tasks could not be read; trying again later")
            await anyio.sleep(min(seconds / 4, _LOOK_SECONDS))

    async def _end_if_unanswered(self, task_id: str, since_ms: int, seconds: float) -> None:
        try:
            live = await self.find(task_id)
        except ValueError as exc:
            logger.debug("task %s cannot be read and is left as it is: %s", task_id, exc)
            return
        if live is None or live.running is not None or not self.may_end(live):
            return
        if _waits_since(live.task) == since_ms:
            words = f"This agent's question was not answered within {seconds:g} s"
            self.conclude(live, TaskState.FAILED, words)


def _waits_since(task: Task) -> int | None:
    """When a task began to wait for its client, in milliseconds since the epoch; None if it does not wait."""
    timestamp = task.status.timestamp
    return milliseconds(timestamp) if timestamp and task.status.state in INTERRUPTED else None


class _Waits:
    """How long tasks have waited for their clients, by a monotonic clock.

    The monotonic clock counts from the first call of `longer_than` that has the task. The wait before that call is the
    age of the task's timestamp, and at most the time since the call before. A timestamp in the future counts as now.
    """

    def __init__(self, ids: IdsAndClock) -> None:
        self._ids = ids
        self._looked_ms = -math.inf
        self._began: dict[str, tuple[int, float]] = {}
        """The `status_ms` of each task, and the same moment on the monotonic clock, in milliseconds."""

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
