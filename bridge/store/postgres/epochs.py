"""The epochs of a namespace: the replica's own epoch with its heartbeats, and the other live epochs.

An epoch has a fence and a heartbeat, which are rows, and a database session that holds a lock. `liveness.py` decides
which epochs are dead. The `EpochUser` gives a namespace its purpose: the tasks of an agent, or the list of replicas.

An epoch that is gone never comes back. A replica that finds its own epoch gone begins a new one, and then notifies the
user of its epochs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, Protocol
from uuid import UUID, uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg

from bridge.concurrency import Backoff
from bridge.errors import StoreAwayError, StoreError
from bridge.store.postgres.bounds import LivenessWatch
from bridge.store.postgres.clock import ClockOffset, machine_ms
from bridge.store.postgres.connections import bounded, close, connect, cut, first_line
from bridge.store.postgres.stand_in import BEAT, StandInBeat
from bridge.store.postgres.upgrade import OutdatedError, require_usable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from psycopg import AsyncConnection, AsyncCursor

    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.store.postgres.connections import DatabaseAddress, DatabaseConnections, StoreTasks
    from bridge.store.postgres.table_steps import Namespace, Tables

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between two tries to reach a database that is away."""

# A start that is sent again because the first connection broke is still one epoch.
_BEGIN: Final = """
    INSERT INTO {ns}.epochs (start) VALUES (%s)
    ON CONFLICT (start) DO UPDATE SET start = excluded.start RETURNING epoch"""
_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LIVING: Final = """
    SELECT e.epoch, b.beat, EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = %s AND l.objid::bigint = e.epoch
    ) FROM {ns}.epochs e JOIN {ns}.beats b USING (epoch) WHERE NOT e.gone"""
_FENCE: Final = "UPDATE {ns}.epochs SET gone = true WHERE epoch = ANY(%s) AND NOT gone"


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat. The replica's own epoch lives."""

    living: frozenset[int]
    """The epochs that are not gone, including the replica's own."""
    dead: tuple[int, ...]
    """The epochs in `living` that must be fenced."""
    rows: Sequence[tuple[Any, ...]]
    """The rows that `EpochUser.beside` selected."""


class EpochUser(Protocol):
    """The user of the epochs of a namespace."""

    beside: LiteralString
    """A query that runs at each heartbeat."""

    async def began(self, connection: AsyncConnection, epoch: int, start: UUID) -> None:
        """Store what belongs to a new epoch, in its transaction. The same epoch may come twice."""
        ...

    def renewed(self) -> None:
        """Called when a new epoch has replaced an epoch that was found gone."""
        ...

    def on_heartbeat(self, result: HeartbeatResult) -> None:
        """Called with the result of each heartbeat."""
        ...

    def catch_up(self) -> None:
        """Read everything at once: hints may have been lost."""
        ...

    def received(self, words: Sequence[str]) -> None:
        """Called with the words of a hint."""
        ...


class Epochs:
    """The replica's epochs in a namespace. Runs in the tasks of its store."""

    def __init__(
        self,
        tasks: StoreTasks,
        address: DatabaseAddress,
        connections: DatabaseConnections,
        place: Namespace,
        tables: Tables,
        bounds: PostgresBounds,
        user: EpochUser,
        now_ms: Callable[[], int] = machine_ms,
    ) -> None:
        """`now_ms` is this machine's clock."""
        self.failure: str | None = None
        """Why this replica is out of service: it cannot reach the database, or a newer release changed the tables. None
        while it serves."""
        self.number = 0
        """The epoch of this replica, as in the tables. It changes after the replica was fenced."""
        self._tasks = tasks
        self._address = address
        self._connections = connections
        self._place = place
        self._tables = tables
        self._bounds = bounds
        self._user = user
        self._now_ms = now_ms
        self._offset = ClockOffset()
        self._watch = LivenessWatch(bounds.lease)
        self.has_ended = False
        """Whether this replica is stopping or has stopped."""
        self._renewing = anyio.Lock()
        self._notified_gone = 0
        """The last epoch of whose end the user was notified."""
        self._listening = anyio.CancelScope()
        self._beat_connection: AsyncConnection | None = None
        self.stand_in = StandInBeat(address.url, place, bounds.lease, self._own_if_living)
        """Sends heartbeats while the event loop is blocked."""

    def _own_if_living(self) -> int:
        return 0 if self.has_ended or self.failure is not None else self.number

    @property
    def offset_ms(self) -> int:
        """The last measured difference between the database's clock and this machine's clock."""
        return self._offset.milliseconds or 0

    async def begin(self) -> None:
        """Begin an epoch.

        Raises:
            StoreError: the database cannot be reached, or refuses, or a newer release changed its tables.
        """
        self.number = await self._connections.run(partial(self._begun, start=uuid4()))

    async def _begun(self, connection: AsyncConnection, start: UUID) -> int:
        epoch = await self._new_epoch(connection, start)
        before_ms = self._now_ms()
        await self._measured(before_ms, await connection.execute(_CLOCK))
        return epoch

    async def _measured(self, before_ms: int, answer: AsyncCursor) -> None:
        """Measure the clock offset from the database's answer; this machine's clock showed `before_ms` before it."""
        after_ms = self._now_ms()
        row = await answer.fetchone()
        assert row is not None
        self._offset.measured(before_ms, row[0], after_ms)

    async def _new_epoch(self, connection: AsyncConnection, start: UUID) -> int:
        place = self._place
        async with connection.transaction():
            await require_usable(connection, place, self._tables)
            row = await (await connection.execute(place.sql(_BEGIN), (start,))).fetchone()
            assert row is not None
            await connection.execute(
                place.sql("INSERT INTO {ns}.beats VALUES (%s, 0) ON CONFLICT DO NOTHING"), row
            )
            await self._user.began(connection, int(row[0]), start)
        return int(row[0])

    async def end(self) -> None:
        """Mark this epoch as gone, so that others know at once. It is the last epoch of this replica."""
        self.has_ended = True
        self.stand_in.stop()
        if self.failure is not None:
            return  # the others notice it by themselves
        try:
            await self.fence([self.number])
        except StoreError as exc:
            logger.debug("the end of this replica could not be noted: %s", exc)

    async def fence(self, epochs: Sequence[int]) -> None:
        """Mark epochs as gone. This waits for their running transactions.

        Raises:
            StoreError: the database cannot be reached.
        """
        await self._connections.run(
            lambda connection: connection.execute(self._place.sql(_FENCE), (list(epochs),))
        )

    def run(self) -> None:
        """Run in the tasks of the store."""
        self._tasks.start(self._beat)
        self._tasks.start(self._listen)
        self.stand_in.start()

    def cut(self) -> None:
        """Fail the running heartbeat now."""
        if self._beat_connection is not None:
            cut(self._beat_connection)

    async def stop(self) -> None:
        """Close the thread and the connection, after the tasks have ended."""
        self.stand_in.stop()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.stand_in.join)
        await self.close()

    async def close(self) -> None:
        """Close the connection for heartbeats."""
        self._address.sight.found(self)
        connection, self._beat_connection = self._beat_connection, None
        if connection is not None:
            await close(connection)

    async def renew(self, epoch: int) -> None:
        """Begin a new epoch after `epoch` was found gone. The user is notified before this returns.

        Raises:
            OutdatedError: no epoch can begin any more. The user is notified in this case too.
        """
        async with self._renewing:
            pauses = Backoff(0.1, LONGEST_PAUSE_SECONDS)
            outdated: OutdatedError | None = None
            while epoch == self.number and outdated is None:
                try:
                    await self.begin()
                except OutdatedError as exc:
                    outdated = exc
                except StoreError as exc:
                    self._note_failure(exc)
                    await anyio.sleep(pauses.next())
            if epoch > self._notified_gone:
                self._notified_gone = epoch
                self._user.renewed()
                self._listening.cancel()
            if outdated is not None:
                self._note_failure(outdated)
                raise outdated

    def _note_failure(self, exc: StoreError) -> None:
        why = str(exc)
        # An outage is logged once, although its reason may change. Tables that are too new are logged as well.
        if not isinstance(exc, OutdatedError):
            if self.failure is None:
                self._address.sight.lost(self, why)
        elif self.failure != why:
            logger.warning("this replica is out of service: %s", why)
        self.failure = why

    async def _beat(self) -> NoReturn:
        """Send heartbeats, and check the heartbeats of the other replicas."""
        seconds = self._bounds.lease.beat_seconds
        pauses = Backoff(seconds, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._beat_once()
            except (StoreAwayError, OutdatedError) as exc:
                self._note_failure(exc)
                self._watch.interrupted()
                await anyio.sleep(pauses.next())
            else:
                if self.failure is not None:
                    self._address.sight.found(self)
                    self.failure = None
                    self._user.catch_up()
                pauses.reset()
                await anyio.sleep(seconds)

    async def _beat_once(self) -> None:
        mine = self.number
        beats, in_session, rows = await self._exchange_heartbeats(mine)
        if self.has_ended:
            return
        if mine not in beats:
            await self.renew(mine)
            return
        others = {epoch: beat for epoch, beat in beats.items() if epoch != mine}
        dead = self._watch.dead(others, in_session, anyio.current_time())
        self._user.on_heartbeat(HeartbeatResult(frozenset(beats), tuple(dead), rows))

    async def _exchange_heartbeats(
        self, mine: int
    ) -> tuple[dict[int, int], frozenset[int], Sequence[tuple[Any, ...]]]:
        """Send a heartbeat and read the others', on a connection of its own: no slow read delays the heartbeat.

        Returns the heartbeats by epoch, the epochs with a session, and the rows for the user.
        """
        place, seconds = self._place, self._bounds.store.statement_seconds
        try:
            if self._beat_connection is None:
                self._beat_connection = await connect(self._address.url, seconds, is_direct=False)
            connection = self._beat_connection
            before_ms = self._now_ms()
            with bounded(connection, seconds):
                async with connection.pipeline():
                    clock = await connection.execute(_CLOCK)
                    await connection.execute(place.sql(BEAT), (mine,))
                    living = await connection.execute(place.sql(_LIVING), (place.lock % 2**32,))
                    beside = await connection.execute(place.sql(self._user.beside))
                await self._measured(before_ms, clock)
                rows = await living.fetchall()
                own = await beside.fetchall()
        except psycopg.Error as exc:
            await self.close()
            raise StoreAwayError(f"the database is away: {first_line(exc)}") from exc
        return (
            {epoch: beat for epoch, beat, _ in rows},
            frozenset(epoch for epoch, _, in_session in rows if in_session),
            own,
        )

    async def _listen(self) -> NoReturn:
        """Receive hints, in a session whose lock shows the others that this replica lives."""
        pauses = Backoff(0.2, LONGEST_PAUSE_SECONDS)
        while True:
            with anyio.CancelScope() as self._listening:
                try:
                    connection = await connect(
                        self._address.direct_url, self._bounds.store.statement_seconds, is_direct=True
                    )
                except StoreError as exc:
                    logger.debug("no hints can be received now: %s", exc)
                    await anyio.sleep(pauses.next())
                    continue
                try:
                    await self._receive_hints(connection, pauses)
                except psycopg.Error as exc:
                    logger.debug("no hints can be received now: %s", first_line(exc))
                    await anyio.sleep(pauses.next())
                finally:
                    await close(connection)
            await anyio.lowlevel.checkpoint()

    async def _receive_hints(self, connection: AsyncConnection, pauses: Backoff) -> None:
        with bounded(connection, self._bounds.store.statement_seconds):
            # A shared lock, because the database may not have noticed yet that the session before has ended.
            await connection.execute(
                "SELECT pg_advisory_lock_shared(%s, %s)", (self._place.lock, self.number)
            )
            await connection.execute(
                psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(self._place.name))
            )
        pauses.reset()
        self._user.catch_up()
        async for notify in connection.notifies():
            self._user.received(notify.payload.split())
