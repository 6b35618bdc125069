"""Commands between replicas on one PostgreSQL: a row for each command, and the reply in the same row.

A hint tells the holder to read its commands, and a poll replaces a lost hint. An epoch executes a command at most once:
it remembers the command until the reply is stored or the row is gone.

A command carries the principal that it acts for, and the principal's token. So it is sealed. It is executed only once,
and only if a replica with the bridge's keys wrote it for this epoch of this agent. So an attacker who can write rows
cannot impersonate a caller, and one who can read rows learns no token. Any other command is deleted, and the replica
that waits for it looks up the task's holder again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import anyio

from bridge.bounded_map import BoundedMap
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

COMMANDS_AT_ONCE: Final = 100
"""The most commands that one statement reads."""

MOST_REMEMBERED: Final = 20_000
"""The most requests that are remembered, the latest ones: about 3 MB. An older row, if restored, is executed again."""

FORGED_LOG_SECONDS: Final = 60.0
"""The time between two log lines about commands that no replica wrote: an attacker who can write rows can write
thousands."""

# A command that is sent again because the first connection broke is still one row.
_ADD: Final = """
    INSERT INTO {ns}.commands (request, holder, command, proof) VALUES (%s, %s, %s, %s)
    ON CONFLICT (request) DO UPDATE SET request = excluded.request RETURNING id"""
_REPLY: Final = """
    SELECT c.reply, EXISTS (SELECT FROM {ns}.epochs e WHERE e.epoch = c.holder AND NOT e.gone)
    FROM {ns}.commands c WHERE c.id = %s"""
# Rows can become visible in another order than their ids.
_COMMANDS: Final = """
    SELECT id, request, command, proof FROM {ns}.commands
    WHERE holder = %s AND reply IS NULL AND id <> ALL(%s::bigint[]) ORDER BY id LIMIT %s"""


class ReplicaCommands:
    """Sends commands to other replicas, and executes theirs."""

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
        """Without `seals` this replica neither executes nor sends commands."""
        self._seals = seals
        self._tasks = tasks
        self._connections = connections
        self._place = place
        self._hints = hints
        self._epoch = epoch
        self._poll_seconds = poll_seconds
        self._engine: ReplicaEngine | None = None
        self._called = anyio.Event()
        """Set when there may be a command for this replica."""
        self._at_work: set[int] = set()
        """The commands that are being executed."""
        self._begun = BoundedMap[UUID, None](MOST_REMEMBERED)
        """The latest requests that were begun, oldest first."""
        self._awaited: dict[int, Signal] = {}
        """The commands whose replies this replica waits for."""
        self._forged = 0
        """The number of deleted commands that no replica wrote and that are not yet logged."""
        self._forged_logged_at = -FORGED_LOG_SECONDS

    def start(self, engine: ReplicaEngine) -> None:
        """Execute commands with this engine from now on."""
        self._engine = engine
        self._called.set()

    def called(self) -> None:
        """Read commands at once: there may be one for this replica."""
        self._called.set()

    def replied(self, number: int) -> None:
        """Read the reply to a command at once: there may be one."""
        if (signal := self._awaited.get(number)) is not None:
            signal.notify()

    def catch_up(self) -> None:
        """Read commands and replies at once: hints may have been lost, or a holder may be gone."""
        self._called.set()
        for signal in self._awaited.values():
            signal.notify()

    async def ask(self, holder: str, command: bytes) -> bytes:
        """See `Replicas.ask`."""
        place = self._place
        if self._seals is None:
            raise StoreError(
                "replicas need common `keys` to send each other commands, and this replica has none"
            )
        request = uuid4()
        row = request, int(holder), *self._seals.sealed(CommandPlace(request, int(holder)), command)
        number = await self._connections.run(partial(_add, place=place, row=row))
        signal = self._awaited[number] = Signal()
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
            del self._awaited[number]
            with suppress(StoreError):  # the store is closed; the sweep deletes the row
                self._tasks.start(self._forget, number)

    def _opened(self, request: UUID, holder: int, data: bytes, proof: bytes | None) -> bytes | None:
        """The command in a row; None if no replica wrote it there, or if its request came before."""
        if self._seals is None:
            return None
        try:
            command = self._seals.opened(CommandPlace(request, holder), data, proof)
        except ForeignCommandError:
            return None
        return command if self._is_first(request) else None

    def _is_first(self, request: UUID) -> bool:
        """Whether a request comes for the first time. This call remembers it."""
        if request in self._begun:
            return False
        self._begun[request] = None
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
        """Execute the commands of other replicas."""
        while True:
            with anyio.move_on_after(self._poll_seconds):
                await self._called.wait()
            self._called = anyio.Event()
            if self._engine is not None:
                try:
                    await self._read_commands(self._engine)
                except StoreError as exc:
                    logger.debug("commands of other replicas cannot be read now: %s", exc)
            self._log_forged()

    async def _read_commands(self, engine: ReplicaEngine) -> None:
        while True:
            epoch = self._epoch()
            commands = await self._connections.run(
                partial(_commands_for, place=self._place, holder=epoch, but=tuple(self._at_work))
            )
            forged: list[int] = []
            for number, request, data, proof in commands:
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
            if len(commands) < COMMANDS_AT_ONCE:
                return

    def _log_forged(self) -> None:
        now = anyio.current_time()
        if not self._forged or now - self._forged_logged_at < FORGED_LOG_SECONDS:
            return
        logger.warning(
            "deleted %s in %s unexecuted: not from a replica with our `keys`, from an earlier release, or repeated",
            counted(self._forged, "command"),
            self._place.name,
        )
        self._forged, self._forged_logged_at = 0, now

    async def _reply(self, engine: ReplicaEngine, epoch: int, number: int, command: bytes) -> None:
        try:
            reply = await engine.answer(command)
            pauses = Backoff(0.1, 5.0)
            while epoch == self._epoch():  # askers notice by themselves that an epoch is gone
                try:
                    await self._connections.run(
                        lambda connection: connection.execute(
                            self._place.sql("UPDATE {ns}.commands SET reply = %s WHERE id = %s"),
                            (reply, number),
                        )
                    )
                except StoreError as exc:
                    logger.debug("the reply to another replica is delayed: %s", exc)
                    await anyio.sleep(pauses.next())
                else:
                    self._hints.add(f"r{number}")
                    return
        finally:
            self._at_work.discard(number)


async def _add(connection: AsyncConnection, place: Namespace, row: tuple[UUID, int, bytes, bytes]) -> int:
    cursor = await connection.execute(place.sql(_ADD), row)
    added = await cursor.fetchone()
    assert added is not None
    return int(added[0])


async def _reply_to(connection: AsyncConnection, place: Namespace, number: int) -> tuple[bytes | None, bool]:
    row = await (await connection.execute(place.sql(_REPLY), (number,))).fetchone()
    return (None, False) if row is None else (row[0], row[1])


async def _commands_for(
    connection: AsyncConnection, place: Namespace, holder: int, but: Collection[int]
) -> Sequence[tuple[int, UUID, bytes, bytes | None]]:
    cursor = await connection.execute(place.sql(_COMMANDS), (holder, list(but), COMMANDS_AT_ONCE))
    return await cursor.fetchall()
