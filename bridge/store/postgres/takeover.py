"""Taking over the tasks of the dead: the fence, the claim, and giving them to the engine.

Every step can be done again, since a connection may break under it. A claim names the tasks that it saw without a
living holder: those that this epoch holds afterwards are the ones that it took.
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
"""How many tasks one transaction takes over."""

# Each holder is found by one step in the index of holders: held tasks may be a million, and holders are a few.
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
    """Takes over the tasks of the dead, one take-over at a time."""

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
        self._coming: dict[str, anyio.Event] = {}
        """The tasks that are being claimed, each until the engine has it or somebody else was faster."""
        self._is_stopping = False
        self._is_running = False

    def start(self, engine: ReplicaEngine) -> None:
        """Give the tasks to this engine from now on."""
        self._engine = engine

    def stop(self) -> None:
        """Adopt nothing more."""
        self._is_stopping = True

    def begin(self, dead: Sequence[int]) -> None:
        """Fence the dead, and adopt what has no living holder, in a task of its own. While that goes on, further calls
        do nothing: the next look at the others finds the same again."""
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run, tuple(dead))

    async def was_given(self, task_id: str) -> bool:
        """Wait until a task that is being claimed was given to the engine. Returns False for one that is not."""
        coming = self._coming.get(task_id)
        if coming is None:
            return False
        await coming.wait()
        return True

    async def _run(self, dead: Sequence[int]) -> None:
        try:
            if dead:
                await self._fence(dead)
            if self._engine is not None and not self._is_stopping:
                await self._adopt(self._engine, self._epochs.number)
        except StoreError as exc:
            logger.debug("a take-over failed, and is done again later: %s", exc)
        finally:
            self._is_running = False

    async def _fence(self, dead: Sequence[int]) -> None:
        """Mark epochs as gone, and tell the others."""
        await self._epochs.fence(dead)
        # The list of replicas tells of a replica once, by its address, and not for each agent.
        logger.debug("replica %s is gone; its tasks go on here or elsewhere", ", ".join(map(str, dead)))
        self._hints.add(GONE)

    async def _adopt(self, engine: ReplicaEngine, epoch: int) -> None:
        while orphans := await self._connections.run(partial(_orphans, place=self._place)):
            adopted = await self._claim(orphans, epoch)
            try:
                for task in adopted:
                    self._tasks.start(self._give, engine, task)
            except StoreError:  # the store is closed
                self._have_come(task.task_id for task in adopted)
                raise
            if not adopted:
                return

    async def _claim(self, orphans: Sequence[str], epoch: int) -> list[StoredTask]:
        """Claim tasks. Returns those that this epoch holds now, of which none is read before the engine has it."""
        place, pauses = self._place, Backoff(0.1, 2.0)
        claim = partial(_claimed, place=place, epoch=epoch, orphans=orphans)
        adopted: list[StoredTask] = []
        self._coming |= {task_id: anyio.Event() for task_id in orphans}
        try:
            while epoch == self._epochs.number:
                try:
                    claimed = await self._connections.run(claim)
                    adopted = await self._connections.run(partial(reads.tasks, place=place, task_ids=claimed))
                except StoreError as exc:  # what was claimed already must not be left to nobody
                    logger.debug("a take-over waits: %s", exc)
                    await anyio.sleep(pauses.next())
                else:
                    break
        finally:
            self._have_come({*orphans} - {task.task_id for task in adopted})
        return adopted

    async def _give(self, engine: ReplicaEngine, task: StoredTask) -> None:
        try:
            if task.holder == str(self._epochs.number):
                await engine.adopt(task)
        finally:
            self._have_come([task.task_id])

    def _have_come(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            if (coming := self._coming.pop(task_id, None)) is not None:
                coming.set()


async def _orphans(connection: AsyncConnection, place: Namespace) -> list[str]:
    found = await connection.execute(place.sql(_ORPHANS), {"most": ADOPTED_AT_ONCE})
    return [task_id for (task_id,) in await found.fetchall()]


async def _claimed(
    connection: AsyncConnection, place: Namespace, epoch: int, orphans: Sequence[str]
) -> list[str]:
    async with connection.transaction():
        mine = await connection.execute(place.sql(_MINE), (epoch,))
        if await mine.fetchone() is None:
            return []
        found = await connection.execute(place.sql(_CLAIM), {"epoch": epoch, "tasks": list(orphans)})
        return [task_id for (task_id,) in await found.fetchall()]
