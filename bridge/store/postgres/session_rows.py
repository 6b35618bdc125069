"""Stores which replica has a session with a tool server: a row for each session, with the epoch of its owner.

An epoch that opens a session claims the row, if no live epoch has it, and deletes it when the session ends. The row of
an epoch that is gone stays as long as the session could have been idle, so that the next user learns that the session
was lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import anyio

from bridge.concurrency import Backoff
from bridge.errors import StoreConflictError, StoreError
from bridge.store.replicas import SessionClaim

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import AsyncConnection

    from bridge.store.postgres.connections import DatabaseConnections, StoreTasks
    from bridge.store.postgres.table_steps import Namespace

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between two attempts to delete a row."""

_MINE: Final = "SELECT FROM {ns}.epochs WHERE epoch = %s AND NOT gone FOR SHARE"
# A claim that is sent again because the first connection broke is still one claim.
_CLAIM: Final = """
    INSERT INTO {ns}.sessions AS s (name, epoch, token, idle_seconds)
    VALUES (%(name)s, %(epoch)s, %(token)s, %(idle)s)
    ON CONFLICT (name) DO UPDATE SET
        epoch = excluded.epoch, token = excluded.token, idle_seconds = excluded.idle_seconds, lost_at = NULL,
        is_lost = CASE WHEN s.token = excluded.token THEN s.is_lost ELSE s.epoch <> excluded.epoch END
    WHERE s.epoch = excluded.epoch OR s.epoch NOT IN (SELECT epoch FROM {ns}.epochs WHERE NOT gone)
    RETURNING s.epoch, s.is_lost"""
_OWNER: Final = "SELECT epoch, false FROM {ns}.sessions WHERE name = %s"
_END: Final = "DELETE FROM {ns}.sessions WHERE name = %s AND token = %s"
_NOTE_LOST: Final = """
    UPDATE {ns}.sessions SET lost_at = now()
    WHERE lost_at IS NULL AND epoch NOT IN (SELECT epoch FROM {ns}.epochs WHERE NOT gone)"""
_FORGET_LOST: Final = "DELETE FROM {ns}.sessions WHERE lost_at < now() - make_interval(secs => idle_seconds)"


class SessionRows:
    """The sessions of an agent. `epoch` returns the replica's epoch."""

    def __init__(
        self, tasks: StoreTasks, connections: DatabaseConnections, place: Namespace, epoch: Callable[[], int]
    ) -> None:
        self._tasks = tasks
        self._connections = connections
        self._place = place
        self._epoch = epoch

    async def claim(self, name: str, idle_seconds: float) -> SessionClaim:
        """See `Replicas.claim_session`."""
        token = uuid4()
        cells = {"name": name, "epoch": self._epoch(), "token": token, "idle": idle_seconds}
        try:
            claim = await self._connections.run(partial(_claimed, place=self._place, cells=cells))
        except StoreError:
            self.end(SessionClaim(name, "", token.hex))  # the row may have been written
            raise
        if claim is None:
            raise StoreConflictError("the session has another owner now, or this replica has a new epoch")
        owner, is_lost = claim
        return SessionClaim(name, str(owner), token.hex, is_lost)

    def end(self, claim: SessionClaim) -> None:
        """See `Replicas.end_session`."""
        try:
            self._tasks.start(self._delete, claim)
        except StoreError as exc:
            logger.debug("the end of a session is left to the other replicas: %s", exc)

    async def _delete(self, claim: SessionClaim) -> None:
        cells, pauses = (claim.name, UUID(claim.token)), Backoff(0.1, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._connections.run(
                    lambda connection: connection.execute(self._place.sql(_END), cells)
                )
            except StoreError as exc:
                logger.debug("the end of a session could not be noted: %s", exc)
                await anyio.sleep(pauses.next())
            else:
                return


async def _claimed(
    connection: AsyncConnection, place: Namespace, cells: dict[str, object]
) -> tuple[int, bool] | None:
    """The owner after a claim, and whether the session was lost; None if the caller must claim again."""
    async with connection.transaction():
        mine = await connection.execute(place.sql(_MINE), (cells["epoch"],))
        if await mine.fetchone() is None:
            return None
        claimed = await connection.execute(place.sql(_CLAIM), cells)
        if (row := await claimed.fetchone()) is not None:
            return row
        return await (await connection.execute(place.sql(_OWNER), (cells["name"],))).fetchone()


async def sweep_sessions(connection: AsyncConnection, place: Namespace) -> None:
    """Note which sessions were lost, and delete the lost sessions that would have expired by now."""
    await connection.execute(place.sql(_NOTE_LOST))
    await connection.execute(place.sql(_FORGET_LOST))
