"""Watches remote tasks that wait for their clients, so that a task that the remote agent ends or goes on with is seen
without a message of the client.

A watch reads the remote task, with pauses that grow, and holds nothing but the ids and the question. A connection for
each waiting task would cost more than it tells. Remote agents that are called with the credentials of callers are not
watched: the bridge may read their tasks only while a caller asks.

Spec: A2A 1.0 sections 3.1.3 and 3.4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.abc

from bridge.a2a.client.follow import is_transient
from bridge.a2a.model.objects import TaskState, TaskStatus
from bridge.a2a.tasks.agent import PlannedWork
from bridge.agents_as_agent.kept import RemoteTask
from bridge.concurrency import Backoff, border
from bridge.errors import PeerError
from bridge.remotes.remote_agent import RemoteAgent

logger = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 1.0
"""The first pause between two reads of a waiting task."""
_MOST_SECONDS: Final = 15.0
"""The longest pause: 1000 watched tasks then cost 67 reads a second."""

GoOn = Callable[[str, PlannedWork], Awaitable[None]]
"""Starts work on a task of ours that waits, by its id. Does nothing if the task waits no longer."""


async def _start_nothing(task_id: str, work: PlannedWork) -> None: ...


class WaitingTasks:
    """The watches of one agent made of agents, by the ids of its tasks."""

    def __init__(self) -> None:
        self.go_on: GoOn = _start_nothing
        self._scopes: dict[str, anyio.CancelScope] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def watch(
        self,
        group: anyio.abc.TaskGroup,
        task_id: str,
        agent: RemoteAgent,
        far: RemoteTask,
        work: PlannedWork,
        *,
        seconds: float,
        most: int,
    ) -> None:
        """Watch a remote task for at most `seconds`. Once it has changed, `work` starts on our task with the id
        `task_id`. If `most` tasks are watched, the oldest watch ends."""
        if agent.is_called_on_behalf:
            return
        self.drop(task_id)
        while len(self._scopes) >= most:
            self.drop(next(iter(self._scopes)))
        scope = self._scopes[task_id] = anyio.CancelScope()
        group.start_soon(partial(self._run, task_id, agent, far, work, scope, seconds))

    def drop(self, task_id: str) -> None:
        """End the watch of a task, if there is one."""
        if (scope := self._scopes.pop(task_id, None)) is not None:
            scope.cancel()

    async def _run(
        self,
        task_id: str,
        agent: RemoteAgent,
        far: RemoteTask,
        work: PlannedWork,
        scope: anyio.CancelScope,
        seconds: float,
    ) -> None:
        has_changed = False
        with border(logger, str(agent.key)):
            with scope, anyio.move_on_after(seconds):
                has_changed = await _has_changed(agent, far)
            if self._scopes.get(task_id) is scope:
                del self._scopes[task_id]
                if has_changed:
                    await self.go_on(task_id, work)


async def _has_changed(agent: RemoteAgent, far: RemoteTask) -> bool:
    """Wait until a remote task shows another state or question. False if its agent no longer shows the task."""
    pauses = Backoff(_FIRST_SECONDS, _MOST_SECONDS, factor=1.5)
    while True:
        await anyio.sleep(pauses.next())
        if agent.down is not None:
            continue
        try:
            if await asks_no_more(agent, far):
                return True
        except PeerError as exc:
            logger.debug("%s: a waiting task cannot be read: %s", agent.key, exc)
            if not is_transient(exc):
                return False


async def asks_no_more(agent: RemoteAgent, far: RemoteTask) -> bool:
    """Whether a remote task no longer asks what it asked.

    Raises:
        PeerError: the task cannot be read.
    """
    return _differs((await agent.client.get(far.task_id, 0)).status, far.answered)


def _differs(status: TaskStatus, answered: TaskStatus | None) -> bool:
    """Whether a status asks for something else than `answered`, or asks for nothing. Ids and times do not count: an
    agent may make new ones for each read."""
    if answered is None:  # the question is too large to be kept
        return status.state is not TaskState.INPUT_REQUIRED
    if status.state is not answered.state:
        return True
    message, before = status.message, answered.message
    return (message and message.parts) != (before and before.parts)
