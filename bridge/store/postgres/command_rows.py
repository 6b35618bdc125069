"""What replicas on one PostgreSQL ask of each other: a row for each command, and the reply in the same row.

A hint says when to look, and a poll finds what a lost hint would have told. A command is done at most once by an epoch:
it is remembered until its reply is stored, or its row is gone.

A command names the principal for whom it is done, with the token that it has shown. So it is sealed, and done only if
a holder of the bridge's keys wrote it for this epoch of this agent, and once: nobody becomes a principal by writing a
row, or gets a token by reading one. Any other command is deleted, and whoever waits for it looks for the task again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import anyio

from bridge.concurrency import Backoff, Signal
from bridge.errors import HolderGoneError, StoreError, counted
from bridge.store.postgres.command_seals import CommandPlace, ForeignCommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import NoReturn

    from psycopg import AsyncConnection

    from bridge.store.postgres.command_seals import CommandSeals
    from bridge.store.postgres.connections import DatabaseConnections, StoreTasks
    from bridge.store.postgres.feed import Hints
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.replicas import ReplicaEngine

logger = logging.getLogger(__name__)

ASKED_AT_ONCE: Final = 100
"""How many commands are read by one statement."""

MOST_REMEMBERED: Final = 20_000
"""How many requests are remembered as begun, the latest ones: some 3 MB. One that is put back later is done again."""

FORGED_TOLD_SECONDS: Final = 60.0
"""The time between two log lines about commands that no replica wrote: a writer of one row can write thousands."""

# A command that is sent twice, since the first connection broke, is one row.
_ADD: Final = """
    INSERT INTO {ns}.commands (request, holder, command, proof) VALUES (%s, %s, %s, %s)
    ON CONFLICT (request) DO UPDATE SET request = excluded.request RETURNING id"""
_REPLY: Final = """
    SELECT c.reply, EXISTS (SELECT FROM {ns}.epochs e WHERE e.epoch = c.holder AND NOT e.gone)
    FROM {ns}.commands c WHERE c.id = %s"""
# The numbers of rows say nothing about the order in which they became visible.
_ASKED: Final = """
    SELECT id, request, command, proof FROM {ns}.commands
    WHERE holder = %s AND reply IS NULL AND id <> ALL(%s::bigint[]) ORDER BY id LIMIT %s"""


class ReplicaCommands:
    """Asks other replicas, and does what they ask."""

    def __init__(
        self,
        tasks: StoreTasks,
        connections: DatabaseConnections,
        place: Namespace,
        hints: Hints,
        epoch: Callable[[], int],
        poll_seconds: float,
        seals: CommandSeals | None,
    ) -> None:
        """Without `seals` nothing is done for others, and nothing is asked of them."""
        self._seals = seals
        self._tasks = tasks
        self._connections = connections
        self._place = place
        self._hints = hints
        self._epoch = epoch
        self._poll_seconds = poll_seconds
        self._engine: ReplicaEngine | None = None
        self._called = anyio.Event()
        """Set when this replica may have been asked something."""
        self._at_work: set[int] = set()
        """The commands that are being done."""
        self._begun: dict[UUID, None] = {}
        """The latest requests that were begun, the oldest first."""
        self._asked: dict[int, Signal] = {}
        """The commands that this replica waits for."""
        self._forged = 0
        """How many commands that no replica wrote were deleted and are not in the log yet."""
        self._forged_told_at = -FORGED_TOLD_SECONDS

    def start(self, engine: ReplicaEngine) -> None:
        """Let this engine do what is asked from now on."""
        self._engine = engine
        self._called.set()

    def called(self) -> None:
        """Look at once: this replica may have been asked something."""
        self._called.set()

    def replied(self, number: int) -> None:
        """Look at once: there may be a reply to this command."""
        if (signal := self._asked.get(number)) is not None:
            signal.tell()

    def look(self) -> None:
        """Look at once: hints may have been lost, or a holder may be gone."""
        self._called.set()
        for signal in self._asked.values():
            signal.tell()

    async def ask(self, holder: str, command: bytes) -> bytes:
        """See `Replicas.ask`."""
        place = self._place
        if self._seals is None:
            raise StoreError("replicas ask each other only with common `keys`, and this one has none")
        request = uuid4()
        row = request, int(holder), *self._seals.sealed(CommandPlace(request, int(holder)), command)
        number = await self._connections.run(partial(_add, place=place, row=row))
        signal = self._asked[number] = Signal()
        try:
            self._hints.add(f"c{holder}")
            while True:
                moved = signal.next
                reply, lives = await self._connections.run(partial(_reply_to, place=place, number=number))
                if reply is not None:
                    return reply
                if not lives:
                    raise HolderGoneError(f"replica {holder} is gone, or has other `keys`")
                with anyio.move_on_after(self._poll_seconds):
                    await moved.wait()
        finally:
            del self._asked[number]
            with suppress(StoreError):  # the store is closed; the sweep finds the row
                self._tasks.start(self._forget, number)

    def _opened(self, request: UUID, holder: int, data: bytes, proof: bytes | None) -> bytes | None:
        """The command in a row; None if no replica wrote it there, or if it came before."""
        if self._seals is None:
            return None
        try:
            command = self._seals.opened(CommandPlace(request, holder), data, proof)
        except ForeignCommandError:
            return None
        return command if self._is_first(request) else None

    def _is_first(self, request: UUID) -> bool:
        """Whether a request comes for the first time. It is remembered."""
        if request in self._begun:
            return False
        self._begun[request] = None
        if len(self._begun) > MOST_REMEMBERED:
            del self._begun[next(iter(self._begun))]
        return True

    async def _forget(self, *numbers: int) -> None:
        try:
            await self._connections.run(
                lambda connection: connection.execute(
                    self._place.sql("DELETE FROM {ns}.commands WHERE id = ANY(%s::bigint[])"), ([*numbers],)
                )
            )
        except StoreError:
            logger.debug("%d commands are left for the sweep, from %d on", len(numbers), numbers[0])

    async def serve(self) -> NoReturn:
        """Do what other replicas ask of this one."""
        while True:
            with anyio.move_on_after(self._poll_seconds):
                await self._called.wait()
            self._called = anyio.Event()
            if self._engine is not None:
                try:
                    await self._look_for_commands(self._engine)
                except StoreError as exc:
                    logger.debug("what other replicas ask cannot be read at the moment: %s", exc)
            self._tell_of_forged()

    async def _look_for_commands(self, engine: ReplicaEngine) -> None:
        while True:
            epoch = self._epoch()
            asked = await self._connections.run(
                partial(_asked_of, place=self._place, holder=epoch, but=tuple(self._at_work))
            )
            forged: list[int] = []
            for number, request, data, proof in asked:
                if (command := self._opened(request, epoch, data, proof)) is not None:
                    self._at_work.add(number)
                    self._tasks.start(self._reply, engine, epoch, number, command)
                else:
                    forged.append(number)
            if forged:
                await self._forget(*forged)
                for number in forged:
                    self._hints.add(f"r{number}")
                self._forged += len(forged)
            if len(asked) < ASKED_AT_ONCE:
                return

    def _tell_of_forged(self) -> None:
        now = anyio.current_time()
        if not self._forged or now - self._forged_told_at < FORGED_TOLD_SECONDS:
            return
        logger.warning(
            "%s in %s deleted and not done: no replica with our `keys` wrote %s, or a replica of an earlier release"
            " did, or %s came before",
            counted(self._forged, "command"),
            f"{self._place.name} {'was' if self._forged == 1 else 'were'}",
            *(("it", "it") if self._forged == 1 else ("them", "they")),
        )
        self._forged, self._forged_told_at = 0, now

    async def _reply(self, engine: ReplicaEngine, epoch: int, number: int, command: bytes) -> None:
        try:
            reply = await engine.answer(command)
            pauses = Backoff(0.1, 5.0)
            while epoch == self._epoch():  # an epoch that is gone has told its askers so
                try:
                    await self._connections.run(
                        lambda connection: connection.execute(
                            self._place.sql("UPDATE {ns}.commands SET reply = %s WHERE id = %s"),
                            (reply, number),
                        )
                    )
                except StoreError as exc:
                    logger.debug("the reply to another replica waits: %s", exc)
                    await anyio.sleep(pauses.next())
                else:
                    self._hints.add(f"r{number}")
                    return
        finally:
            self._at_work.discard(number)


async def _add(connection: AsyncConnection, place: Namespace, row: tuple[UUID, int, bytes, bytes]) -> int:
    found = await connection.execute(place.sql(_ADD), row)
    added = await found.fetchone()
    assert added is not None
    return int(added[0])


async def _reply_to(connection: AsyncConnection, place: Namespace, number: int) -> tuple[bytes | None, bool]:
    row = await (await connection.execute(place.sql(_REPLY), (number,))).fetchone()
    return (None, False) if row is None else (row[0], row[1])


async def _asked_of(
    connection: AsyncConnection, place: Namespace, holder: int, but: Collection[int]
) -> Sequence[tuple[int, UUID, bytes, bytes | None]]:
    found = await connection.execute(place.sql(_ASKED), (holder, list(but), ASKED_AT_ONCE))
    return await found.fetchall()
