"""A replica among others on one PostgreSQL: its epoch, its beat, and what it hears.

Everything here that other replicas have to see is a row; NOTIFY only says when to look (`feed.py`). Who is dead is
decided by `liveness.py`, what happens then by `takeover.py`, and what replicas ask of each other by `commands.py`.

An epoch that is gone never comes back. The replica that finds its own epoch gone begins a new one and tells its engine,
which drops what it has in memory: another replica holds those tasks now.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import anyio
import anyio.lowlevel
import psycopg

from bridge.concurrency import Backoff
from bridge.errors import StoreAwayError, StoreError
from bridge.store.postgres import reads
from bridge.store.postgres.append import NOBODY, Answered, Release
from bridge.store.postgres.commands import ReplicaCommands
from bridge.store.postgres.connections import bounded, close, connect, cut, first_line
from bridge.store.postgres.evictions import sweep
from bridge.store.postgres.feed import GONE, Feed, Hints, hint_of
from bridge.store.postgres.liveness import LivenessWatch
from bridge.store.postgres.takeover import HAS_ORPHANS, Takeover
from bridge.store.postgres.upgrade import OutdatedError, require_usable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.store.postgres.connections import DatabaseConnections, StoreTasks
    from bridge.store.postgres.schema import Namespace, Tables
    from bridge.store.postgres.writer import GroupWriter
    from bridge.store.records import Change, WrittenAnswer
    from bridge.store.replicas import OnForeignEvents, ReplicaEngine

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 10.0
"""The pause between two sweeps of the leading replica."""

_LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between two tries to reach a database that is away."""

# A start that is sent twice, since the first connection broke, is one epoch.
_BEGIN: Final = """
    INSERT INTO {ns}.epochs (start) VALUES (%s)
    ON CONFLICT (start) DO UPDATE SET start = excluded.start RETURNING epoch"""
_BEAT: Final = "UPDATE {ns}.beats SET beat = beat + 1 WHERE epoch = %s"
_LIVING: Final = """
    SELECT e.epoch, b.beat, EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = %s AND l.objid::bigint = e.epoch
    ) FROM {ns}.epochs e JOIN {ns}.beats b USING (epoch) WHERE NOT e.gone"""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one beat found."""

    beats: dict[int, int]
    in_session: frozenset[int]
    has_orphans: bool


class PostgresReplicas:
    """See `Replicas`. Runs in the tasks of its store."""

    def __init__(
        self,
        tasks: StoreTasks,
        conninfo: str,
        direct_conninfo: str,
        connections: DatabaseConnections,
        place: Namespace,
        tables: Tables,
        bounds: PostgresBounds,
    ) -> None:
        """`direct_conninfo` leads to the database itself, where a session lasts and hears NOTIFY."""
        self.failure: str | None = None
        """Why this replica is out of service, in words: the database is out of sight, or its tables have become of a
        newer release. None while it serves."""
        self._tasks = tasks
        self._conninfo = conninfo
        self._direct = direct_conninfo
        self._connections = connections
        self._place = place
        self._tables = tables
        self._bounds = bounds
        self._watch = LivenessWatch(bounds.lease)
        self._epoch = 0
        self._leads = False
        self._has_ended = False
        self._renewing = anyio.Lock()
        self._told_gone = 0
        """The last epoch whose end the engine was told of."""
        self._engine: ReplicaEngine | None = None
        self._writer: GroupWriter | None = None
        self._feed = Feed(connections, place, bounds.poll_seconds)
        self._hints = Hints(connections, place)
        self._takeover = Takeover(tasks, connections, place, self._hints, lambda: self._epoch)
        self._commands = ReplicaCommands(
            tasks, connections, place, self._hints, lambda: self._epoch, bounds.poll_seconds
        )
        self._listening = anyio.CancelScope()
        self._beat_connection: AsyncConnection | None = None

    @property
    def epoch(self) -> str:
        """The epoch of this replica. It changes when the replica was fenced."""
        return str(self._epoch)

    @property
    def number(self) -> int:
        """The epoch as the tables have it."""
        return self._epoch

    @property
    def leads(self) -> bool:
        """See `Replicas.leads`: the oldest replica that lives leads."""
        return self._leads and self.failure is None

    def start(self, engine: ReplicaEngine) -> None:
        """See `Replicas.start`."""
        self._engine = engine
        self._takeover.start(engine)
        self._commands.start(engine)

    def release(self, task_id: str, seq: int) -> None:
        """See `Replicas.release`."""
        if self._writer is not None:
            self._writer.note(Release(task_id, seq))

    def hand_over(self, task_id: str, seq: int) -> None:
        """See `Replicas.hand_over`."""
        self._takeover.stop()
        if self._writer is not None:
            self._writer.note(Release(task_id, seq, NOBODY))

    async def open_of(self, owner: str) -> int:
        """See `Replicas.open_of`."""
        return await self._connections.run(partial(reads.open_of, place=self._place, owner=owner))

    def note_answer(self, owner: str, message_id: str, task_id: str, answer: WrittenAnswer) -> None:
        """See `Replicas.note_answer`."""
        if self._writer is not None:
            self._writer.note(Answered(owner, message_id, task_id, answer))

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """See `Replicas.follow`."""
        return self._feed.follow(task_id, seq, on_events)

    async def ask(self, holder: str, command: bytes) -> bytes:
        """See `Replicas.ask`."""
        return await self._commands.ask(holder, command)

    def stored(self, changes: Sequence[Change]) -> None:
        """Hint to the other replicas that these changes are stored."""
        self._hints.add(*dict.fromkeys(hint_of(change.task_id) for change in changes))

    # Its own life

    async def begin(self) -> None:
        """Begin an epoch.

        Raises:
            StoreError: the database cannot be reached, or refuses, or its tables have become of a newer release.
        """
        self._epoch = await self._connections.run(
            partial(_new_epoch, place=self._place, tables=self._tables, start=uuid4())
        )

    async def end(self) -> None:
        """Mark this epoch as gone, so that others adopt its tasks at once. It is the last one of this replica."""
        self._has_ended = True
        if self.failure is not None:
            return  # the others find out by themselves
        try:
            await self._connections.run(
                lambda connection: connection.execute(
                    self._place.sql("UPDATE {ns}.epochs SET gone = true WHERE epoch = %s"), (self._epoch,)
                )
            )
        except StoreError as exc:
            logger.debug("the end of this replica could not be noted: %s", exc)

    def run(self, writer: GroupWriter) -> None:
        """Live in the tasks of the store."""
        self._writer = writer
        for life in (
            self._beat,
            self._listen,
            self._feed.run,
            self._hints.run,
            self._commands.serve,
            self._lead,
        ):
            self._tasks.start(life)

    def cut(self) -> None:
        """Let the beat that is on its way fail now."""
        if self._beat_connection is not None:
            cut(self._beat_connection)

    async def renew(self, epoch: int) -> None:
        """Go on under a new epoch, once one was found gone. The engine is told before this returns.

        Raises:
            OutdatedError: no epoch can begin any more. The engine is told all the same.
        """
        async with self._renewing:
            pauses = Backoff(0.1, _LONGEST_PAUSE_SECONDS)
            outdated: OutdatedError | None = None
            while epoch == self._epoch and outdated is None:
                try:
                    await self.begin()
                except OutdatedError as exc:
                    outdated = exc
                except StoreError as exc:
                    self._fails(str(exc))
                    await anyio.sleep(pauses.next())
            if epoch > self._told_gone:
                self._tell_gone(epoch)
            if outdated is not None:
                self._fails(str(outdated))
                raise outdated

    def _tell_gone(self, epoch: int) -> None:
        self._told_gone = epoch
        logger.error("this replica was silent for so long that others took its tasks over; it begins anew")
        self._leads = False
        if self._engine is not None:
            self._engine.fenced()
        self._listening.cancel()

    async def _beat(self) -> NoReturn:
        """Beat, look at the others, and take over those that are dead."""
        seconds = self._bounds.lease.beat_seconds
        pauses = Backoff(seconds, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._beat_once()
            except (StoreAwayError, OutdatedError) as exc:
                self._fails(str(exc))
                self._watch.interrupted()
                await anyio.sleep(pauses.next())
            else:
                if self.failure is not None:
                    logger.info("the database is in sight again")
                    self.failure = None
                    self._look()
                pauses.reset()
                await anyio.sleep(seconds)

    def _fails(self, why: str) -> None:
        if self.failure is None:
            logger.warning("this replica is out of service: %s", why)
        self.failure = why

    async def _beat_once(self) -> None:
        mine = self._epoch
        look = await self._look_around(mine)
        if self._has_ended:
            return
        if mine not in look.beats:
            await self.renew(mine)
            return
        self._leads = mine == min(look.beats)
        others = {epoch: beat for epoch, beat in look.beats.items() if epoch != mine}
        dead = self._watch.dead(others, look.in_session, anyio.current_time())
        if dead or look.has_orphans:
            self._takeover.begin(dead)

    async def _look_around(self, mine: int) -> _Look:
        """Beat, and read who lives, on a connection that is kept for it: no slow read makes this replica look dead."""
        place, seconds = self._place, self._bounds.statement_seconds
        try:
            if self._beat_connection is None:
                self._beat_connection = await connect(self._conninfo, seconds, is_direct=False)
            connection = self._beat_connection
            with bounded(connection, seconds):
                async with connection.pipeline():
                    await connection.execute(place.sql(_BEAT), (mine,))
                    living = await connection.execute(place.sql(_LIVING), (place.lock % 2**32,))
                    orphans = await connection.execute(place.sql(HAS_ORPHANS))
                rows = await living.fetchall()
                has_orphans = await orphans.fetchone()
        except psycopg.Error as exc:
            await self.close()
            raise StoreAwayError(f"the database is away: {first_line(exc)}") from exc
        return _Look(
            {epoch: beat for epoch, beat, _ in rows},
            frozenset(epoch for epoch, _, in_session in rows if in_session),
            bool(has_orphans and has_orphans[0]),
        )

    async def close(self) -> None:
        """Close the connection for beats."""
        connection, self._beat_connection = self._beat_connection, None
        if connection is not None:
            await close(connection)

    async def _lead(self) -> NoReturn:
        """Sweep, as long as this replica leads."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            if self.leads:
                try:
                    await self._connections.run(
                        partial(
                            sweep,
                            place=self._place,
                            epoch=self._epoch,
                            events_seconds=max(
                                self._bounds.events_seconds, 2 * self._bounds.patience_seconds
                            ),
                        )
                    )
                except StoreError as exc:
                    logger.debug("a sweep failed, and is done again later: %s", exc)

    # What it hears

    async def _listen(self) -> NoReturn:
        """Hear hints, in a session whose lock shows the others that this replica lives."""
        pauses = Backoff(0.2, _LONGEST_PAUSE_SECONDS)
        while True:
            with anyio.CancelScope() as self._listening:
                try:
                    connection = await connect(self._direct, self._bounds.statement_seconds, is_direct=True)
                except StoreError as exc:
                    logger.debug("no hints are heard at the moment: %s", exc)
                    await anyio.sleep(pauses.next())
                    continue
                try:
                    await self._hear(connection, pauses)
                except psycopg.Error as exc:
                    logger.debug("no hints are heard at the moment: %s", first_line(exc))
                    await anyio.sleep(pauses.next())
                finally:
                    await close(connection)
            await anyio.lowlevel.checkpoint()

    async def _hear(self, connection: AsyncConnection, pauses: Backoff) -> None:
        with bounded(connection, self._bounds.statement_seconds):
            # Shared, since the database may not know yet that the session before this one has ended.
            await connection.execute(
                "SELECT pg_advisory_lock_shared(%s, %s)", (self._place.lock, self._epoch)
            )
            await connection.execute(
                psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(self._place.name))
            )
        pauses.reset()
        self._look()
        async for notify in connection.notifies():
            self._heard(notify.payload.split())

    def _look(self) -> None:
        """Look for everything at once: hints may have been lost."""
        self._feed.look()
        self._commands.look()

    def _heard(self, words: Sequence[str]) -> None:
        self._feed.hinted(words)
        for word in words:
            if word == f"c{self._epoch}":
                self._commands.called()
            elif word == GONE:
                self._commands.look()
            elif word[0] == "r" and word[1:].isdecimal():
                self._commands.replied(int(word[1:]))


async def _new_epoch(connection: AsyncConnection, place: Namespace, tables: Tables, start: UUID) -> int:
    async with connection.transaction():
        await require_usable(connection, place, tables)
        row = await (await connection.execute(place.sql(_BEGIN), (start,))).fetchone()
        assert row is not None
        await connection.execute(
            place.sql("INSERT INTO {ns}.beats VALUES (%s, 0) ON CONFLICT DO NOTHING"), row
        )
    return int(row[0])
