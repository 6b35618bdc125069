"""The stores of a plan: which one each agent has and where it is in words, and the tables that replicas share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from bridge.assembly.other_replicas import require_driver
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, SharedStore
from bridge.config.tables.values import MEMORY_STORE
from bridge.errors import UsageError
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.logins.login_files import LoginFiles
from bridge.local.user_folders import state_folder
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.seal import keys_in
from bridge.store.contract import Store
from bridge.store.memory import MemoryStore
from bridge.store.postgres.bounds import PostgresBounds
from bridge.store.sqlite import SQLiteStore
from bridge.store.sqlite_contents import require_usable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from bridge.config.tables.profile import Profile
    from bridge.errors import StoreLockedError
    from bridge.identity.logins.kept_logins import LoginKeeper
    from bridge.store.postgres.table_steps import Namespace, Tables
    from bridge.store.postgres.upgrade import Migration


class PlacedStore(NamedTuple):
    """A store, not yet entered."""

    store: Store
    where: str
    """Where the tasks are kept, in words for a person."""


def store_for(name: str, plan: PublishedPlan, place: ProcessPlan, process: Profile) -> PlacedStore:
    """The store of an agent.

    Raises:
        UsageError: its driver is not installed, or its place cannot be one.
    """
    if isinstance(plan.store, SharedStore):
        return PlacedStore(_shared(name, plan.store, place, process), f"{plan.store}, which replicas share")
    if plan.store == MEMORY_STORE:
        return PlacedStore(MemoryStore(), "memory only: tasks are lost when the bridge stops")
    folder = place.state or state_folder()
    path = Path(plan.store) if plan.store else folder / f"{name}-{place.port}.db"
    return PlacedStore(SQLiteStore(path, synchronous=process.store.synchronous), str(path))


def _shared(name: str, store: SharedStore, place: ProcessPlan, process: Profile) -> Store:
    require_driver()
    from bridge.store.postgres.store import PostgresStore  # its driver is an optional extra

    # Of the process, so that all its agents tell of one database together.
    sight = None if place.shared_store is None else place.shared_store.sight
    return PostgresStore(
        store.url,
        name,
        PostgresBounds.of(process.store),
        direct_url=store.direct_url,
        sight=sight,
        keys=keys_in(place.keys),
    )


def keeper_for(place: ProcessPlan) -> LoginKeeper:
    """Where the logins of a bridge are: in the database that its replicas share, or in the user's state folder.

    Raises:
        UsageError: the driver of the database is not installed.
    """
    keys, shared = tuple(place.keys), place.shared_store
    if shared is None:
        return LoginFiles(place.state or state_folder(), keys)
    require_driver()
    from bridge.store.postgres.login_rows import PostgresLogins  # its driver is an optional extra

    return PostgresLogins(shared.url, keys, str(shared))


def stores_of(plan: Plan) -> dict[str, PlacedStore]:
    """The stores of all agents of a plan, by their names, for reading and moving what they keep. No key is read: they
    ask nothing of replicas.

    Raises:
        UsageError: as for `store_for`.
    """
    place = replace(plan.place, keys=())
    return {
        name: store_for(name, published, place, plan.profile) for name, published in plan.published.items()
    }


def logins_of(plan: Plan) -> Iterator[LoginConfig]:
    """Yield the logins that the peers of a plan need."""
    for server in plan.servers.values():
        if isinstance(server.target, HttpTarget) and isinstance(server.target.oauth, LoginConfig):
            yield server.target.oauth
    sources = [
        *(peer.tokens for peer in plan.agents.values()),
        *(peer.tokens for peer in plan.catalogs.values()),
    ]
    yield from (tokens.login_config for tokens in sources if isinstance(tokens, LoginToken | EachLogin))


def login_configs_of_each(plan: Plan) -> Mapping[str, LoginConfig]:
    """The logins that peers of a plan want of each caller, by the tables of the peers."""
    return {login_config.table: login_config for login_config in logins_of(plan) if login_config.of_each}


async def migrate_shared(
    plan: Plan,
    url: str,
    *,
    wait_seconds: float,
    dry_run: bool,
    on_wait: Callable[[StoreLockedError], None],
) -> AsyncIterator[Migration]:
    """Make or update the tables that the replicas of a plan share in a database: those of each agent, of the list
    of replicas, and of logins if a peer needs one. Yields what was done, one by one.

    Raises:
        StoreLockedError: bridges use tables that only nobody may use.
        UsageError: the driver is not installed, the database cannot be reached or refuses, or tables are of a newer
            release.
    """
    require_driver()
    from bridge.store.postgres.connections import DatabaseAddress  # its driver is an optional extra
    from bridge.store.postgres.upgrade import migrate

    address, bounds = DatabaseAddress.of(url, None), PostgresBounds.of(plan.profile.store)
    ends_at = anyio.current_time() + wait_seconds
    for place, tables in _shared_tables(plan):
        left = max(ends_at - anyio.current_time(), 0.0)
        yield await migrate(
            address, place, tables, bounds, wait_seconds=left, dry_run=dry_run, on_wait=on_wait
        )


def _shared_tables(plan: Plan) -> Iterator[tuple[Namespace, Tables]]:
    from bridge.store.postgres.table_steps import (
        AGENT,
        LOGINS,
        REPLICAS,
        Namespace,
    )  # its driver is an optional extra

    yield Namespace.of_replicas(), REPLICAS
    yield from ((Namespace.of(name), AGENT) for name in plan.published)
    if any(True for _ in logins_of(plan)):
        yield Namespace.of_logins(), LOGINS


async def store_faults(plan: Plan) -> list[tuple[tuple[str, str], str]]:
    """Why a start could not use the stores of a plan, each with the key of the file that is concerned. Nothing is made
    or changed, and a bridge may run on the same stores, in another process."""
    if plan.place.shared_store is not None:
        return await _shared_faults(plan, plan.place.shared_store)
    faults: list[tuple[tuple[str, str], str]] = []
    for name, published in plan.published.items():
        try:
            store = store_for(name, published, plan.place, plan.profile).store
            if isinstance(store, SQLiteStore):
                await anyio.to_thread.run_sync(require_usable, store.path)
        except UsageError as exc:
            faults.append((("bridge", "store") if published.store else (published.table, name), str(exc)))
    return faults


async def _shared_faults(plan: Plan, shared: SharedStore) -> list[tuple[tuple[str, str], str]]:
    """The first fault of the database, since the others would mostly be the same."""
    try:
        require_driver()
    except UsageError:
        return []  # which is a fault of the packages
    from bridge.store.postgres.connections import (
        DatabaseAddress,
        connected,
    )  # its driver is an optional extra
    from bridge.store.postgres.upgrade import prepared

    seconds, key = plan.profile.store.statement_seconds, "store"
    try:
        address = DatabaseAddress.of(shared.url, shared.direct_url)
        for place, tables in _shared_tables(plan):
            await prepared(address, place, tables, seconds, dry_run=True)
        if shared.direct_url is not None:
            key = "store_direct"
            direct = DatabaseAddress.of(shared.direct_url, None)
            async with connected(direct, seconds, str(shared)):
                pass
    except UsageError as exc:
        return [(("bridge", key), str(exc))]
    return []
