"""Finds out which replicas use a store in PostgreSQL, and opens a transaction in which no replica does.

A process that changes the tables of a store, or moves its tasks, is no replica. It watches the epochs as long as a
replica would before it takes another replica for dead. Then it keeps new epochs from beginning: with the lock that
every start takes, and with a lock on the row of `store`, which every new epoch reads.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio

from bridge.errors import StoreLockedError
from bridge.store.postgres.bounds import LivenessWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import Lease
    from bridge.store.postgres.table_steps import Namespace

LOCK: Final = "SELECT pg_advisory_xact_lock(%s, 0)"
"""The lock that a process holds while it makes or changes the tables. A start waits for it."""

_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(%s, 0)"
_EPOCHS: Final = """
    SELECT e.epoch, b.beat, e.begun_at, EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = %s AND l.objid::bigint = e.epoch
    ) FROM {ns}.epochs e JOIN {ns}.beats b USING (epoch) WHERE NOT e.gone ORDER BY e.epoch"""
_STORE_ROW: Final = "SELECT FROM {ns}.store FOR UPDATE"
_NEWCOMERS: Final = """
    SELECT epoch, begun_at FROM {ns}.epochs WHERE NOT gone AND epoch <> ALL(%s) ORDER BY epoch"""
_FENCE: Final = "UPDATE {ns}.epochs SET gone = true WHERE NOT gone"
# A source may be slow to read, and a large store takes long to write.
_PATIENCE: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true)"""


@dataclass(frozen=True, slots=True)
class LivingReplica:
    """A replica that uses a store."""

    epoch: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The live and the dead among the epochs that are not marked as gone."""

    living: tuple[LivingReplica, ...]
    dead: tuple[int, ...]


async def living(connection: AsyncConnection, place: Namespace, lease: Lease) -> Occupancy:
    """Watch the epochs until each is known to be live or dead, for at most a lease."""
    watch = LivenessWatch(lease)
    first: dict[int, int] | None = None
    while True:
        rows = await (await connection.execute(place.sql(_EPOCHS), (place.lock % 2**32,))).fetchall()
        beats = {epoch: beat for epoch, beat, _, _ in rows}
        first = beats if first is None else first
        dead = watch.dead(
            beats, {epoch for epoch, _, _, in_session in rows if in_session}, anyio.current_time()
        )
        lives = {epoch for epoch, beat in beats.items() if first.get(epoch) != beat}
        if beats.keys() <= lives | {*dead}:
            replicas = [LivingReplica(epoch, since) for epoch, _, since, _ in rows if epoch in lives]
            return Occupancy(tuple(replicas), tuple(beats.keys() - lives))
        await anyio.sleep(lease.beat_seconds)


@asynccontextmanager
async def alone(
    connection: AsyncConnection, place: Namespace, lease: Lease, *, fences: bool
) -> AsyncIterator[None]:
    """A transaction in which no replica uses the store or begins to use it. With `fences`, the store refuses forever
    the writes of a replica that stalled for longer than a lease.

    Raises:
        StoreLockedError: there are live replicas.
    """
    occupancy = await living(connection, place, lease)
    _require_nobody(place, occupancy.living)
    async with connection.transaction():
        locked = await connection.execute(_TRY_LOCK, (place.lock,))
        if await locked.fetchone() != (True,):
            raise StoreLockedError(f"the store {place.name} is being changed, or a bridge starts on it")
        await connection.execute(place.sql(_STORE_ROW))
        await connection.execute(_PATIENCE)
        came = await connection.execute(place.sql(_NEWCOMERS), (list(occupancy.dead),))
        _require_nobody(place, [LivingReplica(*row) for row in await came.fetchall()])
        if fences:
            await connection.execute(place.sql(_FENCE))
        yield


def _require_nobody(place: Namespace, users: Sequence[LivingReplica]) -> None:
    if users:
        oldest = min(user.since for user in users).astimezone(UTC)
        many = "1 bridge uses" if len(users) == 1 else f"{len(users)} bridges use"
        raise StoreLockedError(
            f"{many} the store {place.name}, since {oldest:%Y-%m-%d %H:%M:%S} UTC: stop"
            f" {'it' if len(users) == 1 else 'them'} first"
        )
