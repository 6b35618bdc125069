"""Logins in the PostgreSQL that replicas share, in a separate schema.

The renewal of a login holds an advisory lock in a transaction. The database releases the lock when the connection ends.
Rows are written over a second connection, so that each write is durable while the lock is still held, and survives a
crash. Both connections may go through a pool that gives each transaction another session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.errors import UsageError
from bridge.identity.logins.kept_logins import KeptLogins, Login, LoginKey
from bridge.identity.logins.login_records import LoginRecords, login_id
from bridge.seal import keys_in
from bridge.store.postgres.connections import DatabaseAddress, connected
from bridge.store.postgres.table_steps import LOGINS, Namespace
from bridge.store.postgres.upgrade import prepare

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_CONNECT_SECONDS: Final = 10.0
"""The time to make a connection. The caller bounds the rest."""


@dataclass(frozen=True)
class PostgresLogins:
    """Logins in a database. See `LoginKeeper`."""

    url: str = field(repr=False)
    keys: tuple[Path | str, ...] = field(repr=False)
    where: str
    """The name of the database for messages."""

    @property
    def _place(self) -> Namespace:
        return Namespace.of_logins()

    @cached_property
    def _records(self) -> LoginRecords:
        return LoginRecords(keys_in(self.keys))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        # The address counts as not direct, because a pool may be in front of the database.
        address = DatabaseAddress.of(self.url, self.url)
        async with connected(address, _CONNECT_SECONDS, self._place.name) as connection:
            await prepare(connection, self._place, LOGINS)
            yield connection

    async def find(self, key: LoginKey) -> Login | None:
        """See `LoginKeeper`."""
        async with self._connected() as connection:
            sealed = await self._read(connection, key)
        return None if sealed is None else self._records.opened(login_id(key), sealed)[1]

    @asynccontextmanager
    async def held(self, key: LoginKey) -> AsyncIterator[HeldRow]:
        """See `LoginKeeper`."""
        number = int.from_bytes(bytes.fromhex(login_id(key)[:8]), signed=True)
        async with self._connected() as lock, self._connected() as rows, lock.transaction():
            # A configured timeout would end this session while it waits for the token issuer.
            await lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await lock.execute("SELECT pg_advisory_xact_lock(%s, %s)", (self._place.lock, number))
            sealed, login = await self._read(rows, key), None
            with suppress(UsageError):  # the next login overwrites a record that cannot be opened
                login = None if sealed is None else self._records.opened(login_id(key), sealed)[1]
            yield HeldRow(self, rows, key, login, is_there=sealed is not None)

    async def all(self) -> KeptLogins:
        """See `LoginKeeper`."""
        async with self._connected() as connection:
            cursor = await connection.execute(self._place.sql("SELECT id, sealed FROM {ns}.logins"))
            return self._records.all_of([(name, bytes(sealed)) for name, sealed in await cursor.fetchall()])

    async def _read(self, connection: AsyncConnection, key: LoginKey) -> bytes | None:
        cursor = await connection.execute(
            self._place.sql("SELECT sealed FROM {ns}.logins WHERE id = %s"), (login_id(key),)
        )
        row = await cursor.fetchone()
        return None if row is None else bytes(row[0])

    async def write(self, connection: AsyncConnection, key: LoginKey, login: Login) -> None:
        """Write a login whose lock is held."""
        await connection.execute(
            self._place.sql(
                "INSERT INTO {ns}.logins (id, sealed) VALUES (%s, %s)"
                " ON CONFLICT (id) DO UPDATE SET sealed = excluded.sealed"
            ),
            (login_id(key), self._records.sealed(login_id(key), key, login)),
        )

    async def remove(self, connection: AsyncConnection, key: LoginKey) -> None:
        """Remove a login whose lock is held."""
        await connection.execute(self._place.sql("DELETE FROM {ns}.logins WHERE id = %s"), (login_id(key),))


class HeldRow:
    """A login whose lock is held. See `HeldLogin`."""

    def __init__(
        self,
        logins: PostgresLogins,
        connection: AsyncConnection,
        key: LoginKey,
        login: Login | None,
        *,
        is_there: bool,
    ) -> None:
        self.login = login
        self.is_there = is_there
        self._logins = logins
        self._connection = connection
        self._key = key

    async def write(self, login: Login) -> None:
        """See `HeldLogin`."""
        await self._logins.write(self._connection, self._key, login)
        self.login = login

    async def remove(self) -> None:
        """See `HeldLogin`."""
        await self._logins.remove(self._connection, self._key)
        self.login = None
