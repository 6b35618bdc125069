"""The list of replicas in PostgreSQL. `ReplicaRegistry` is its contract, and `epochs.py` finds out who lives.

It has its own namespace, beside those of the agents, and uses three connections. A hint is a NOTIFY with the epoch of
its sender, because the sender receives its own hints too.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from bridge.concurrency import Signal
from bridge.errors import StoreError, UsageError
from bridge.store.postgres.connections import DatabaseAddress, DatabaseConnections, StoreTasks
from bridge.store.postgres.epochs import Epochs, HeartbeatResult
from bridge.store.postgres.feed import Hints
from bridge.store.postgres.table_steps import REPLICAS, Namespace
from bridge.store.postgres.upgrade import prepared
from bridge.store.registry import ReplicaEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType
    from uuid import UUID

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.telemetry.database_sight import DatabaseSight

logger = logging.getLogger(__name__)

_CONNECTIONS: Final = 1
"""One connection for occasional reads and writes, besides those for heartbeats and for the session."""
_SAYS: Final = ":"
"""Separates the epoch of the sender from the word of the hint."""
_KEPT_MOST: Final = 200
"""The most values that are kept for all bridges of a database. The values stored last stay."""
_END_SECONDS: Final = 2.0
"""How long a replica tries to note its end. Others notice the end by themselves too."""

_ENTRIES: Final = """
    SELECT m.epoch, m.address, m.proof, e.start, m.plans, m.outages, extract(epoch FROM clock_timestamp())::float8
    FROM {ns}.members m JOIN {ns}.epochs e USING (epoch) WHERE NOT e.gone"""
_ENTER: Final = """
    INSERT INTO {ns}.members (epoch, address, proof, plans) VALUES (%s, %s, %s, %s)
    ON CONFLICT (epoch) DO UPDATE SET plans = excluded.plans RETURNING extract(epoch FROM clock_timestamp())::float8"""
_TELL: Final = "UPDATE {ns}.members SET plans = %s, outages = %s WHERE epoch = %s"
_RECALL: Final = """
    SELECT name, kept FROM {ns}.kept WHERE name = ANY(%s) ORDER BY kept_at DESC LIMIT 1"""
_REMEMBER: Final = """
    INSERT INTO {ns}.kept (name, kept, kept_at) VALUES (%s, %s, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET kept = excluded.kept, kept_at = excluded.kept_at"""
_MAKE_ROOM: Final = """
    DELETE FROM {ns}.kept WHERE name IN (SELECT name FROM {ns}.kept ORDER BY kept_at DESC, name OFFSET %s)"""
_FORGET: Final = """
    WITH dead AS (SELECT epoch FROM {ns}.epochs WHERE gone FOR UPDATE SKIP LOCKED),
        entries AS (DELETE FROM {ns}.members WHERE epoch IN (SELECT epoch FROM dead)),
        beats AS (DELETE FROM {ns}.beats WHERE epoch IN (SELECT epoch FROM dead))
    DELETE FROM {ns}.epochs WHERE epoch IN (SELECT epoch FROM dead)"""


class PostgresRegistry:
    """The list of replicas, as this replica sees it. See `ReplicaRegistry`."""

    beside = _ENTRIES

    def __init__(
        self,
        url: str,
        bounds: PostgresBounds,
        entry_of: Callable[[int, UUID], ReplicaEntry],
        *,
        direct_url: str | None = None,
        sight: DatabaseSight | None = None,
    ) -> None:
        """`entry_of` returns the entry of this replica for an epoch and its start. For the URLs and `sight` see
        `PostgresStore`.

        Raises:
            UsageError: libpq does not understand a URL.
        """
        self.on_change: Callable[[], None] = lambda: None
        self.on_hint: Callable[[str], None] = lambda _: None
        self.outages: Callable[[], bytes] = lambda: b""
        self._address = DatabaseAddress.of(url, direct_url, sight)
        self._entry_of = entry_of
        self._place = Namespace.of_replicas()
        self._bounds = bounds
        self._tasks = StoreTasks()
        self._connections = DatabaseConnections(
            self._tasks, self._address, _CONNECTIONS, bounds.store.statement_seconds
        )
        self._epochs = Epochs(
            self._tasks, self._address, self._connections, self._place, REPLICAS, bounds, self
        )
        self._hints = Hints(self._connections, self._place)
        self._mine: set[int] = set()
        self._plans: frozenset[bytes] = frozenset()
        self._outages: bytes | None = None
        """The last result of `outages`."""
        self._living: dict[int, ReplicaEntry] = {}
        self._found_dead: set[int] = set()
        """The epochs that send no heartbeats although the list still has them."""
        self._moved = Signal()
        self._clock_ahead_seconds = 0.0
        """The database's clock minus this process's monotonic clock."""

    async def __aenter__(self) -> Self:
        """Make or update the tables, and add this replica to the list.

        Raises:
            UsageError: the database cannot be reached or refuses, or the tables are of a newer release.
        """
        await prepared(self._address, self._place, REPLICAS, self._bounds.store.statement_seconds)
        await self._tasks.begin()
        try:
            await self._epochs.begin()
        except BaseException as exc:
            await self._end()
            if isinstance(exc, StoreError):
                raise UsageError(str(exc)) from exc
            raise
        self._mine.add(self._epochs.number)
        self._epochs.run()
        self._tasks.start(self._hints.run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove this replica from the list."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_SECONDS):
            await self._epochs.end()
        await self._end()

    async def _end(self) -> None:
        self._epochs.cut()
        self._connections.cut()
        self._tasks.stop()
        try:
            await self._tasks.join()
        finally:
            await self._epochs.stop()
            await self._connections.close()

    @property
    def epoch(self) -> int:
        """See `ReplicaRegistry.epoch`."""
        return self._epochs.number

    def is_mine(self, epoch: int) -> bool:
        """See `ReplicaRegistry.is_mine`."""
        return epoch in self._mine

    def hint(self, word: str) -> None:
        """See `ReplicaRegistry.hint`."""
        self._hints.add(f"{self._epochs.number}{_SAYS}{word}")

    @property
    def others(self) -> Mapping[int, ReplicaEntry]:
        """See `ReplicaRegistry.others`."""
        return {epoch: entry for epoch, entry in self._living.items() if epoch not in self._mine}

    @property
    def own(self) -> ReplicaEntry | None:
        """See `ReplicaRegistry.own`."""
        return self._living.get(self._epochs.number)

    @property
    def failure(self) -> str | None:
        """See `ReplicaRegistry.failure`."""
        return self._epochs.failure

    def now_seconds(self) -> float:
        """See `ReplicaRegistry.now_seconds`: the database's clock."""
        return anyio.current_time() + self._clock_ahead_seconds

    def publish(self, plans: frozenset[bytes]) -> None:
        """See `ReplicaRegistry.publish`. If the write fails, a later heartbeat repeats it.

        The same write publishes the outages. Without them the others would take all peers for reachable.
        """
        self._plans, self._outages = plans, self.outages()
        self._tasks.start(self._store_own, self._epochs.number, plans, self._outages)

    async def _store_own(self, epoch: int, plans: frozenset[bytes], outages: bytes | None) -> None:
        try:
            await self._connections.run(
                lambda connection: connection.execute(self._place.sql(_TELL), (sorted(plans), outages, epoch))
            )
        except StoreError as exc:
            logger.debug("this replica cannot report its state now and tries again: %s", exc)

    async def find(self, epoch: int) -> ReplicaEntry | None:
        """See `ReplicaRegistry.find`. An entry that this replica has not seen yet is read from the list."""
        if (known := self._living.get(epoch)) is not None:
            return known
        rows = await self._connections.run(partial(self._read, epoch=epoch))
        self._living |= _entries_in(rows)
        return self._living.get(epoch)

    async def _read(self, connection: AsyncConnection, epoch: int) -> Sequence[tuple[Any, ...]]:
        cursor = await connection.execute(self._place.sql(f"{_ENTRIES} AND m.epoch = %s"), (epoch,))
        return await cursor.fetchall()

    async def gone(self, epoch: int) -> None:
        """See `ReplicaRegistry.gone`. The last heartbeat may have read the list before the epoch began, so the list is
        read again."""
        while True:
            moved = self._moved.next
            try:
                if await self.find(epoch) is None:
                    return
            except StoreError as exc:
                logger.debug("whether replica %d is gone is not known: %s", epoch, exc)
            await moved.wait()

    async def recall(self, names: Collection[bytes]) -> tuple[bytes, bytes] | None:
        """See `ReplicaRegistry.recall`."""

        async def read(connection: AsyncConnection) -> tuple[Any, ...] | None:
            cursor = await connection.execute(self._place.sql(_RECALL), ([*names],))
            return await cursor.fetchone()

        row = await self._connections.run(read)
        return None if row is None else (bytes(row[0]), bytes(row[1]))

    def remember(self, name: bytes, record: bytes) -> None:
        """See `ReplicaRegistry.remember`."""
        self._tasks.start(self._store_kept, name, record)

    async def _store_kept(self, name: bytes, record: bytes) -> None:
        async def write(connection: AsyncConnection) -> None:
            await connection.execute(self._place.sql(_REMEMBER), (name, record))
            await connection.execute(self._place.sql(_MAKE_ROOM), (_KEPT_MOST,))

        try:
            await self._connections.run(write)
        except StoreError as exc:
            logger.debug("a value could not be stored for other replicas: %s", exc)

    # Calls of its epochs: see `EpochUser`

    async def began(self, connection: AsyncConnection, epoch: int, start: UUID) -> None:
        """Add this replica under an epoch, and delete the entries of epochs that are gone."""
        entry = self._entry_of(epoch, start)
        cursor = await connection.execute(
            self._place.sql(_ENTER), (epoch, entry.address, entry.proof, sorted(self._plans))
        )
        row = await cursor.fetchone()
        assert row is not None
        self._clock_ahead_seconds = row[0] - anyio.current_time()
        await connection.execute(self._place.sql(_FORGET))

    def renewed(self) -> None:
        """Add the new epoch to our epochs. Sessions of earlier epochs continue if their clients still come here."""
        logger.warning("this replica was silent for so long that others took it for dead; it is listed again")
        self._mine.add(self._epochs.number)

    def on_heartbeat(self, result: HeartbeatResult) -> None:
        """Take over the live replicas and their entries. Fence the dead."""
        before, self._living = self._living, _entries_in(result.rows)
        for *_, clock_seconds in result.rows:
            self._clock_ahead_seconds = clock_seconds - anyio.current_time()
        own, self._outages = self.own, self.outages()
        if own is not None and (own.plans, own.outages) != (self._plans, self._outages):
            self._tasks.start(self._store_own, self._epochs.number, self._plans, self._outages)
        self._found_dead.update(result.dead)
        self._log_gone(before)
        if result.dead:
            self._tasks.start(self._fence, result.dead)
        self._moved.notify()
        if before != self._living:
            self.on_change()

    async def _fence(self, dead: Sequence[int]) -> None:
        try:
            await self._epochs.fence(dead)
        except StoreError as exc:
            logger.debug("the end of a replica is noted later: %s", exc)

    def _log_gone(self, before: Mapping[int, ReplicaEntry]) -> None:
        """Log each replica that has left the list, once. It is a warning if the replica did not stop by itself."""
        there = {entry.address for entry in self._living.values()}
        for epoch in before.keys() - self._living.keys() - self._mine:
            address = before[epoch].address
            is_dead = epoch in self._found_dead
            self._found_dead.discard(epoch)
            if address is not None and address in there:
                continue  # the replica is listed again
            logger.log(
                logging.WARNING if is_dead else logging.INFO,
                "the replica %s %s; this or another replica continues its tasks",
                f"at {address} (epoch {epoch})"
                if address
                else f"with epoch {epoch}, which has no `replica_url`,",
                "is gone" if is_dead else "has stopped",
            )

    def catch_up(self) -> None:
        """Report that hints may have been lost. Every heartbeat reads the replicas."""
        self.on_hint("")

    def received(self, words: Sequence[str]) -> None:
        """Report the hints of other replicas."""
        for hint in words:
            epoch, _, word = hint.partition(_SAYS)
            if epoch.isdecimal() and not self.is_mine(int(epoch)):
                self.on_hint(word)


async def entries_in(connection: AsyncConnection) -> dict[int, ReplicaEntry]:
    """The replicas in the list by epoch, for a process that is no replica."""
    cursor = await connection.execute(Namespace.of_replicas().sql(_ENTRIES))
    return _entries_in(await cursor.fetchall())


def _entries_in(rows: Sequence[tuple[Any, ...]]) -> dict[int, ReplicaEntry]:
    return {
        epoch: ReplicaEntry(
            address,
            bytes(proof),
            start,
            frozenset(map(bytes, plans)),
            None if outages is None else bytes(outages),
        )
        for epoch, address, proof, start, plans, outages, _ in rows
    }
