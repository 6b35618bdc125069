"""Updates the tables of a store, and decides which releases may use them.

A start makes missing tables, and takes the steps that older replicas do not notice. Only `migrate` takes a breaking
step, when no replica uses the store: until then every running release can be started again.

The row of `store` says which releases may use the tables. A replica reads it each time it begins an epoch, so a replica
that stalled while the tables changed cannot use them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import psycopg

from bridge.concurrency import Backoff
from bridge.errors import StoreError, StoreLockedError, UsageError
from bridge.store.postgres.connections import bounded, connected, first_line
from bridge.store.postgres.occupancy import LOCK, alone, living

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg import AsyncConnection

    from bridge.store.postgres.bounds import Lease, PostgresBounds
    from bridge.store.postgres.connections import DatabaseAddress
    from bridge.store.postgres.occupancy import LivingReplica
    from bridge.store.postgres.table_steps import Namespace, Tables

T = TypeVar("T")

_PREPARE_SECONDS: Final = 600.0
"""How long a start waits for the tables while another replica changes them or tasks are moved."""

_LOCK_SECONDS: Final = 1
"""How long a step waits for a table. Writers wait behind the step, and must not look silent."""

_MAY_MAKE: Final = """
    SELECT CASE WHEN to_regnamespace(%(name)s) IS NULL THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege(%(name)s, 'CREATE') END"""

_TRIES: Final = 60
"""The number of attempts of a step whose tables are in use."""


class OutdatedError(StoreError):
    """A newer release has changed the tables so that this release cannot use them."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The version of the existing tables."""

    version: int
    """0 if there are no tables."""
    readable_by: int


NO_TABLES: Final = TableVersion(0, 0)


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of a migration, or of its dry run."""

    place: str
    before: int
    after: int
    is_breaking: bool
    living: tuple[LivingReplica, ...] = ()
    """The replicas that a breaking migration has to wait for."""


async def version_of(connection: AsyncConnection, place: Namespace) -> TableVersion:
    """The version of the tables in a namespace."""
    cursor = await connection.execute("SELECT to_regclass(%s || '.store')", (place.name,))
    if await cursor.fetchone() in (None, (None,)):
        return NO_TABLES
    row = await (
        await connection.execute(place.sql("SELECT version, readable_by FROM {ns}.store"))
    ).fetchone()
    return NO_TABLES if row is None else TableVersion(*row)


async def require_usable(connection: AsyncConnection, place: Namespace, tables: Tables) -> None:
    """Refuse tables that this release cannot use. They cannot change until the caller's transaction ends.

    Raises:
        OutdatedError: a newer release has changed the tables.
    """
    cursor = await connection.execute(place.sql("SELECT readable_by FROM {ns}.store FOR SHARE"))
    row = await cursor.fetchone()
    if row is None or row[0] > tables.version:
        raise OutdatedError(
            f"a newer release has changed the tables of {place.name}: restart this bridge with that release"
        )


async def prepared(
    address: DatabaseAddress, place: Namespace, tables: Tables, seconds: float, *, dry_run: bool = False
) -> None:
    """Connect, and make the tables or take the steps that older replicas do not notice. `seconds` bounds connecting.
    With `dry_run` nothing changes, and `seconds` bounds the check too.

    Raises:
        UsageError: the database cannot be reached or refuses, or the tables are of a newer release, or need a
            breaking step.
    """
    async with connected(address, seconds, place.name) as connection:
        with bounded(connection, seconds if dry_run else _PREPARE_SECONDS):
            await prepare(connection, place, tables, dry_run=dry_run)


async def prepare(
    connection: AsyncConnection, place: Namespace, tables: Tables, *, dry_run: bool = False
) -> None:
    """Make the tables, or take the steps that older replicas do not notice. With `dry_run` nothing changes.

    Raises:
        UsageError: the tables are of a newer release, or need a breaking step, or the database refuses.
        psycopg.Error: the connection is lost.
    """
    store = await _patiently(place, lambda: _settled(connection, place, tables, dry_run=dry_run))
    if tables.breaks(store.version):
        raise UsageError(
            f"the tables of {place.name} have version {store.version}, and this release needs version {tables.version},"
            " which running releases may not be able to use: stop all bridges on this store, run"
            " `mcp-a2a store migrate FILE` with this release, and start it"
        )


async def migrate(
    address: DatabaseAddress,
    place: Namespace,
    tables: Tables,
    bounds: PostgresBounds,
    *,
    wait_seconds: float = 0.0,
    dry_run: bool = False,
    on_wait: Callable[[StoreLockedError], None] = lambda _: None,
) -> Migration:
    """Make or update the tables, with breaking steps too when no replica lives. Returns the result.

    `wait_seconds` is how long to wait for live replicas to stop; `on_wait` is called at each check that finds some.
    With `dry_run` nothing changes.

    Raises:
        StoreLockedError: there are live replicas.
        UsageError: the database cannot be reached or refuses, or the tables are of a newer release.
    """
    ends_at = anyio.current_time() + wait_seconds
    async with connected(address, bounds.store.statement_seconds, place.name) as connection:
        stored = await _patiently(place, lambda: _settled(connection, place, tables, dry_run=dry_run))
        after, is_breaking = max(stored.version, tables.version), tables.breaks(stored.version)
        done = Migration(place.name, stored.version, after, is_breaking)
        if dry_run and is_breaking:
            return replace(done, living=(await living(connection, place, bounds.lease)).living)
        while is_breaking:
            try:
                await _patiently(place, lambda: _broken(connection, place, tables, bounds.lease))
                break
            except StoreLockedError as users:
                if anyio.current_time() >= ends_at:
                    raise
                on_wait(users)
                await anyio.sleep(bounds.lease.beat_seconds)
        return done


async def _patiently(place: Namespace, work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and repeat it while tables that it needs are in use.

    Raises:
        UsageError: the tables stay in use, or the role may not change them.
    """
    pauses = Backoff(0.1, 2.0)
    for left in reversed(range(_TRIES)):
        try:
            return await work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as exc:
            if not left:
                raise UsageError(f"the tables of {place.name} stay in use: {first_line(exc)}") from exc
            await anyio.sleep(pauses.next())
        except psycopg.errors.InsufficientPrivilege as exc:
            raise UsageError(
                f"this role may not make or use the tables of {place.name} ({first_line(exc)}): run"
                " `mcp-a2a store migrate FILE --store-url env:NAME` with the URL of a role that may make them, and let"
                " this role use them"
            ) from exc
    raise AssertionError("the last try has raised")


async def _settled(
    connection: AsyncConnection, place: Namespace, tables: Tables, *, dry_run: bool = False
) -> TableVersion:
    """Take the steps that are not breaking. Returns the version before them."""
    async with connection.transaction():
        await connection.execute(LOCK, (place.lock,))
        stored = await version_of(connection, place)
        require_known(stored, place, tables)
        if not dry_run and not tables.breaks(stored.version):
            await _take_steps(connection, place, tables, stored)
        elif stored == NO_TABLES:
            await _require_makeable(connection, place)
        return stored


async def _require_makeable(connection: AsyncConnection, place: Namespace) -> None:
    """Refuse a namespace in which this role may not make the missing tables.

    Raises:
        psycopg.errors.InsufficientPrivilege: the role may not make them.
    """
    cursor = await connection.execute(_MAY_MAKE, {"name": place.name})
    if await cursor.fetchone() != (True,):
        raise psycopg.errors.InsufficientPrivilege("permission denied to make tables that are missing")


async def _broken(connection: AsyncConnection, place: Namespace, tables: Tables, lease: Lease) -> None:
    """Take all steps, in a transaction in which no replica uses the store."""
    async with alone(connection, place, lease, fences=True):
        await _take_steps(connection, place, tables, await version_of(connection, place))


def require_known(stored: TableVersion, place: Namespace, tables: Tables) -> None:
    """Refuse tables of a newer release that this release cannot use.

    Raises:
        UsageError: this release cannot use the tables.
    """
    if stored.readable_by > tables.version:
        raise UsageError(
            f"the store {place.name} was written by a newer release: its tables have version {stored.version},"
            f" which releases for version {stored.readable_by} or later can use, and this release is for"
            f" {tables.version}. Start such a release, or restore an earlier backup"
        )


async def _take_steps(
    connection: AsyncConnection, place: Namespace, tables: Tables, stored: TableVersion
) -> None:
    if stored.version >= tables.version:
        return
    await connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LOCK_SECONDS}s",))
    if stored == NO_TABLES:
        # Only if it is missing: a role that may not create schemas can use a schema that was created for it.
        there = await connection.execute("SELECT to_regnamespace(%s)", (place.name,))
        if await there.fetchone() == (None,):
            await connection.execute(place.sql("CREATE SCHEMA {ns}"))
        await connection.execute(
            place.sql("CREATE TABLE {ns}.store (version integer NOT NULL, readable_by integer NOT NULL)")
        )
        await connection.execute(place.sql("INSERT INTO {ns}.store VALUES (0, 0)"))
    for step in tables.steps[stored.version :]:
        await connection.execute(place.sql(step.statements))
    await connection.execute(
        place.sql("UPDATE {ns}.store SET version = %s, readable_by = %s"),
        (tables.version, max(stored.readable_by, tables.readable_by)),
    )
