"""A replica among others on one PostgreSQL. It connects the parts that implement `Replicas`.

Everything that other replicas have to see is a row; NOTIFY only says when to read (`feed.py`). `epochs.py` finds out
who lives, `takeover.py` adopts the tasks of the dead, and `command_rows.py` has the commands between replicas.

A replica that finds its own epoch gone notifies its engine, which drops what it has in memory: other replicas hold
those tasks now.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from bridge.errors import StoreError
from bridge.store.postgres import reads
from bridge.store.postgres.append import NOBODY, AnswerEntry, Release
from bridge.store.postgres.command_rows import ReplicaCommands
from bridge.store.postgres.epochs import Epochs, HeartbeatResult
from bridge.store.postgres.evictions import sweep
from bridge.store.postgres.feed import GONE, Feed, Hints, hint_of
from bridge.store.postgres.outbox import PostgresOutbox
from bridge.store.postgres.session_rows import SessionRows
from bridge.store.postgres.takeover import HAS_ORPHANS, Takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn
    from uuid import UUID

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.store.postgres.command_seals import CommandSeals
    from bridge.store.postgres.connections import DatabaseAddress, DatabaseConnections, StoreTasks
    from bridge.store.postgres.table_steps import Namespace, Tables
    from bridge.store.postgres.writer import GroupWriter
    from bridge.store.records import Change, WrittenAnswer
    from bridge.store.replicas import ForeignEvent, OnForeignEvents, ReplicaEngine, SessionClaim

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 10.0
"""The pause between two sweeps of the leading replica."""


class PostgresReplicas:
    """See `Replicas`. Runs in the tasks of its store."""

    beside = HAS_ORPHANS

    def __init__(
        self,
        tasks: StoreTasks,
        address: DatabaseAddress,
        connections: DatabaseConnections,
        place: Namespace,
        tables: Tables,
        bounds: PostgresBounds,
        now_ms: Callable[[], int],
        seals: CommandSeals | None,
    ) -> None:
        """`now_ms` is this machine's clock. `seals` are for the commands between replicas."""
        self._tasks = tasks
        self._connections = connections
        self._place = place
        self._bounds = bounds
        self.epochs = Epochs(tasks, address, connections, place, tables, bounds, self, now_ms)
        self._leads = False
        self._engine: ReplicaEngine | None = None
        self._writer: GroupWriter | None = None
        self._feed = Feed(connections, place, bounds.store.poll_seconds)
        self._hints = Hints(connections, place)
        self._takeover = Takeover(tasks, connections, place, self._hints, self.epochs)
        self._commands = ReplicaCommands(
            tasks,
            connections,
            place,
            self._hints,
            lambda: self.epochs.number,
            bounds.store.poll_seconds,
            seals,
        )
        self._sessions = SessionRows(tasks, connections, place, lambda: self.epochs.number)
        self.outbox = PostgresOutbox(
            connections, place, lambda: self.epochs.number, bounds.store.poll_seconds, self._hints.add
        )

    @property
    def epoch(self) -> str:
        """See `Replicas.epoch`."""
        return str(self.epochs.number)

    @property
    def leads(self) -> bool:
        """See `Replicas.leads`: the oldest live replica leads."""
        return self._leads and self.epochs.failure is None

    @property
    def offset_ms(self) -> int:
        """See `Replicas.offset_ms`."""
        return self.epochs.offset_ms

    def start(self, engine: ReplicaEngine) -> None:
        """See `Replicas.start`."""
        self._engine = engine
        self._takeover.start(engine)
        self._commands.start(engine)

    async def was_adopted(self, task_id: str) -> bool:
        """See `Takeover.was_given`."""
        return await self._takeover.was_adopted(task_id)

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
            self._writer.note(AnswerEntry(owner, message_id, task_id, answer))

    def follow(self, task_id: str, seq: int, on_events: OnForeignEvents) -> Callable[[], None]:
        """See `Replicas.follow`."""
        return self._feed.follow(task_id, seq, on_events)

    async def events_after(self, task_id: str, seq: int) -> Sequence[ForeignEvent]:
        """See `Replicas.events_after`."""
        news, _ = await self._feed.news({task_id: seq})
        return news.get(task_id, ())

    async def ask(self, holder: str, command: bytes) -> bytes:
        """See `Replicas.ask`."""
        return await self._commands.ask(holder, command)

    async def claim_session(self, name: str, idle_seconds: float) -> SessionClaim:
        """See `Replicas.claim_session`."""
        return await self._sessions.claim(name, idle_seconds)

    def end_session(self, claim: SessionClaim) -> None:
        """See `Replicas.end_session`. A replica that stops leaves its sessions to the others, like a killed replica."""
        if not self.epochs.has_ended:
            self._sessions.end(claim)

    def stored(self, changes: Sequence[Change]) -> None:
        """Hint to the other replicas that these changes are stored."""
        self._hints.add(*dict.fromkeys(hint_of(change.task_id) for change in changes))
        self.outbox.stored(changes)

    def run(self, writer: GroupWriter) -> None:
        """Run in the tasks of the store."""
        self._writer = writer
        self.epochs.run()
        for life in (self._feed.run, self._hints.run, self._commands.serve, self.outbox.run, self._lead):
            self._tasks.start(life)

    async def _lead(self) -> NoReturn:
        """Sweep as long as this replica leads."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            if self.leads:
                try:
                    await self._connections.run(
                        partial(
                            sweep,
                            place=self._place,
                            epoch=self.epochs.number,
                            events_seconds=max(
                                self._bounds.store.keep_events_seconds,
                                2 * self._bounds.store.patience_seconds,
                            ),
                        )
                    )
                except StoreError as exc:
                    logger.debug("a sweep failed, and will be repeated: %s", exc)

    # Calls of its epochs: see `EpochUser`

    async def began(self, connection: AsyncConnection, epoch: int, start: UUID) -> None:
        """Store nothing: an agent adds nothing to an epoch."""

    def renewed(self) -> None:
        """Let the engine drop what it has in memory."""
        logger.error(
            "this replica was silent for so long that others took over its tasks; it continues with a new epoch"
        )
        self._leads = False
        if self._engine is not None:
            self._engine.fenced()

    def on_heartbeat(self, result: HeartbeatResult) -> None:
        """Lead if this replica is the oldest, and take over from dead replicas."""
        self._leads = self.epochs.number == min(result.living)
        ((has_orphans,),) = result.rows
        if result.dead or has_orphans:
            self._takeover.begin(result.dead)
            self.outbox.catch_up()

    def catch_up(self) -> None:
        """Read everything at once: hints may have been lost."""
        self._feed.catch_up()
        self._commands.catch_up()
        self.outbox.catch_up()

    def received(self, words: Sequence[str]) -> None:
        """Pass each hint to its reader."""
        self._feed.wake_for(words)
        self.outbox.wake_for(words)
        for word in words:
            if word == f"c{self.epochs.number}":
                self._commands.called()
            elif word == GONE:
                self._commands.catch_up()
                self.outbox.catch_up()
            elif word[0] == "r" and word[1:].isdecimal():
                self._commands.replied(int(word[1:]))
