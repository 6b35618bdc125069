"""Takes over the tasks of dead replicas: fences the replicas, claims the tasks, and gives them to the engine.

Every step can be repeated, because a connection may break during it. A claim names the tasks that it saw without a live
holder; the tasks among them that this epoch holds afterwards are the claimed ones.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from bridge.concurrency import Backoff
from bridge.errors import StoreError
from bridge.store.postgres import reads
from bridge.store.postgres.feed import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from psycopg import AsyncConnection

    from bridge.store.postgres.connections import DatabaseConnections, StoreTasks
    from bridge.store.postgres.epochs import Epochs
    from bridge.store.postgres.feed import Hints
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.records import StoredTask
    from bridge.store.replicas import ReplicaEngine

logger = logging.getLogger(__name__)

ADOPTED_AT_ONCE: Final = 64
"""The most tasks that one transaction takes over."""

# One index step per holder: there may be a million held tasks, but only a few holders.
_DEAD: Final = """
    WITH RECURSIVE holders AS (
        (SELECT holder FROM {ns}.tasks WHERE holder IS NOT NULL ORDER BY holder LIMIT 1)
        UNION ALL
        SELECT (SELECT t.holder FROM {ns}.tasks t WHERE t.holder > h.holder ORDER BY t.holder LIMIT 1)
        FROM holders h WHERE h.holder IS NOT NULL
    ), dead AS (
        SELECT holder FROM holders h WHERE holder IS NOT NULL
        AND NOT EXISTS (SELECT FROM {ns}.epochs e WHERE e.epoch = h.holder AND NOT e.gone)
    )"""
HAS_ORPHANS: Final = _DEAD + " SELECT EXISTS (TABLE dead)"
_ORPHANS: Final = f"""
    {_DEAD} SELECT o.task_id FROM dead d CROSS JOIN LATERAL (
        SELECT t.task_id FROM {{ns}}.tasks t WHERE t.holder >= d.holder AND t.holder <= d.holder
        ORDER BY t.holder, t.task_id LIMIT %(most)s
    ) o ORDER BY o.task_id LIMIT %(most)s"""  # noqa: S608 - no value is in it
_CLAIM: Final = """
    UPDATE {ns}.tasks SET holder = %(epoch)s WHERE task_id IN (
        SELECT task_id FROM {ns}.tasks WHERE task_id = ANY(%(tasks)s)
        AND (holder = %(epoch)s OR holder NOT IN (SELECT epoch FROM {ns}.epochs WHERE NOT gone))
        ORDER BY task_id FOR UPDATE SKIP LOCKED
    ) RETURNING task_id"""
_MINE: Final = "SELECT FROM {ns}.epochs WHERE epoch = %s AND NOT gone FOR SHARE"


class Takeover:
    """Takes over the tasks of dead replicas, one take-over at a time."""

    def __init__(
        self,
        tasks: StoreTasks,
        connections: DatabaseConnections,
        place: Namespace,
        hints: Hints,
        epochs: Epochs,
    ) -> None:
        self._tasks = tasks
        self._connections = connections
        self._place = place
        self._hints = hints
        self._epochs = epochs
        self._engine: ReplicaEngine | None = None
        self._claiming: dict[str, anyio.Event] = {}
        """The tasks that are being claimed, each until the engine has it or another replica was faster."""
        self._is_stopping = False
        self._is_running = False

    def start(self, engine: ReplicaEngine) -> None:
        """Give the tasks to this engine from now on."""
        self._engine = engine

    def stop(self) -> None:
        """Adopt no more tasks."""
        self._is_stopping = True

    def begin(self, dead: Sequence[int]) -> None:
        """Start a task that fences the dead and adopts tasks without a live holder. While it runs, further calls do
        nothing: the next heartbeat finds the same again."""
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run, tuple(dead))

    async def was_adopted(self, task_id: str) -> bool:
        """Wait until the engine has a task that is being claimed. Returns False if the task is not being claimed."""
        claiming = self._claiming.get(task_id)
        if claiming is None:
            return False
        await claiming.wait()
        return True

    async def _run(self, dead: Sequence[int]) -> None:
        try:
            if dead:
                await self._fence(dead)
            if self._engine is not None and not self._is_stopping:
                await self._adopt(self._engine, self._epochs.number)
        except StoreError as exc:
            logger.debug("a take-over failed, and will be repeated: %s", exc)
        finally:
            self._is_running = False

    async def _fence(self, dead: Sequence[int]) -> None:
        """Mark epochs as gone, and notify the others."""
        await self._epochs.fence(dead)
        # Only at debug level: the list of replicas logs the replica once, with its address, and not for each agent.
        logger.debug(
            "replica %s is gone; this or another replica continues its tasks", ", ".join(map(str, dead))
        )
        self._hints.add(GONE)

    async def _adopt(self, engine: ReplicaEngine, epoch: int) -> None:
        while orphans := await self._connections.run(partial(_orphans, place=self._place)):
            adopted = await self._claim(orphans, epoch)
            try:
                for task in adopted:
                    self._tasks.start(self._give, engine, task)
            except StoreError:  # the store is closed
                self._release_waiters(task.task_id for task in adopted)
                raise
            if not adopted:
                return

    async def _claim(self, orphans: Sequence[str], epoch: int) -> list[StoredTask]:
        """Claim tasks. Returns the tasks that this epoch holds now. `Store.load` of them waits until the engine has
        them."""
        place, pauses = self._place, Backoff(0.1, 2.0)
        claim = partial(_claimed, place=place, epoch=epoch, orphans=orphans)
        adopted: list[StoredTask] = []
        self._claiming |= {task_id: anyio.Event() for task_id in orphans}
        try:
            while epoch == self._epochs.number:
                try:
                    claimed = await self._connections.run(claim)
                    adopted = await self._connections.run(partial(reads.tasks, place=place, task_ids=claimed))
                except StoreError as exc:  # claimed tasks must reach the engine
                    logger.debug("a take-over is delayed: %s", exc)
                    await anyio.sleep(pauses.next())
                else:
                    break
        finally:
            self._release_waiters({*orphans} - {task.task_id for task in adopted})
        return adopted

    async def _give(self, engine: ReplicaEngine, task: StoredTask) -> None:
        try:
            if task.holder == str(self._epochs.number):
                await engine.adopt(task)
        finally:
            self._release_waiters([task.task_id])

    def _release_waiters(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            if (claiming := self._claiming.pop(task_id, None)) is not None:
                claiming.set()


async def _orphans(connection: AsyncConnection, place: Namespace) -> list[str]:
    cursor = await connection.execute(place.sql(_ORPHANS), {"most": ADOPTED_AT_ONCE})
    return [task_id for (task_id,) in await cursor.fetchall()]


async def _claimed(
    connection: AsyncConnection, place: Namespace, epoch: int, orphans: Sequence[str]
) -> list[str]:
    async with connection.transaction():
        mine = await connection.execute(place.sql(_MINE), (epoch,))
        if await mine.fetchone() is None:
            return []
        cursor = await connection.execute(place.sql(_CLAIM), {"epoch": epoch, "tasks": list(orphans)})
        return [task_id for (task_id,) in await cursor.fetchall()]
