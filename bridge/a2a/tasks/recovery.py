"""Going on with tasks whose process is gone: the last process of this store, or another replica.

The agent may resume a task. Otherwise a task that waits for its client goes on waiting (A2A 1.0 sections 3.4.3, 7.6),
and any other task becomes FAILED and says why.
"""

from __future__ import annotations

import logging
from typing import Final

from bridge.a2a.model.life import INTERRUPTED
from bridge.a2a.model.objects import NO_CONFIGURATION, Role, TaskState
from bridge.a2a.model.timeline import MomentKind
from bridge.a2a.tasks.agent import Agent, Commit, PlannedWork, RunningWork, Turn
from bridge.a2a.tasks.intake import StartWork
from bridge.a2a.tasks.live import LiveTask
from bridge.a2a.tasks.moments import line_of
from bridge.a2a.tasks.task_registry import TaskRegistry
from bridge.identity.callers.principals import Principal
from bridge.store.contract import Store
from bridge.store.records import StoredTask

logger = logging.getLogger(__name__)

_RESTARTED: Final = "The bridge restarted while this task was running, so its outcome is not known"
_GONE: Final = "The replica of the bridge that ran this task is gone, so its outcome is not known"


class Recovery:
    """Goes on with tasks, for an engine."""

    def __init__(self, agent: Agent, store: Store, tasks: TaskRegistry, start: StartWork) -> None:
        self._agent = agent
        self._store = store
        self._tasks = tasks
        self._start = start

    async def recover(self) -> None:
        """Go on with the unfinished tasks of the last process, where no other replica does."""
        last = Commit(done=True)
        async for stored in self._store.unfinished():
            last = self._go_on(stored, _RESTARTED, is_adopted=False) or last
        await last

    def adopt(self, stored: StoredTask) -> None:
        """Go on with a task of a replica that is gone. This replica holds the task now."""
        self._go_on(stored, _GONE, is_adopted=True)

    async def go_on(self, task_id: str, work: PlannedWork) -> None:
        """Start work on a task that waits for its client, without a message. Does nothing if the task waits no longer,
        or another replica works on it.

        Raises:
            StoreError: the store cannot be read.
        """
        live = await self._tasks.find(task_id)
        is_free = live is not None and live.running is None and live.failure is None
        if live is None or not is_free or live.state not in INTERRUPTED or self._tasks.is_elsewhere(live):
            return
        live.running = RunningWork()
        self._start(live, live.running, _turn_left(live), Commit(done=True), work)

    def _go_on(self, stored: StoredTask, why: str, *, is_adopted: bool) -> Commit | None:
        """Go on with a task. Returns the commit of its end, if it cannot go on; `why` is what it then says."""
        state = TaskState(stored.head.state)
        try:
            work = self._agent.resume(stored.private, state, stored.origin.owner, is_adopted=is_adopted)
            if work is None and state in INTERRUPTED:
                self._let_wait(stored)
                return None
            live = self._tasks.take_over(stored)
            live.note(line_of(MomentKind.RESUMED, self._tasks.now_ms()))
        except ValueError:
            logger.exception("task %s cannot be read and is left as it is", stored.task_id)
            return None
        if work is None:
            return self._tasks.conclude(live, TaskState.FAILED, why)
        if self._store.replicas is None:
            self._tasks.open.add(stored.origin.owner, stored.task_id)
        live.running = RunningWork()
        self._start(live, live.running, _turn_left(live), Commit(done=True), work)
        return None

    def _let_wait(self, stored: StoredTask) -> None:
        if self._store.replicas is not None:
            self._store.replicas.release(stored.task_id, stored.seq)
        else:
            self._tasks.open.add(stored.origin.owner, stored.task_id)


def _turn_left(live: LiveTask) -> Turn:
    """The turn for a task of an earlier process: the last message of its client. The turn has no rights; the agent has
    to know the rights of the owner."""
    message = next(message for message in reversed(live.task.history or ()) if message.role is Role.USER)
    principal = Principal(live.origin.owner, skills=())
    return Turn(principal, message, NO_CONFIGURATION, {}, frozenset(), live.task, live.kept)
