"""The store of an agent: which one a plan means, and where that is, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bridge.assembly.limits import postgres_bounds
from bridge.assembly.plan import Plan, ProcessPlan, PublishedPlan, SharedStore
from bridge.assembly.replicas import require_driver
from bridge.config.tables.values import MEMORY_STORE
from bridge.store.contract import Store
from bridge.store.memory import MemoryStore
from bridge.store.sqlite import SQLiteStore
from bridge.user_folders import state_folder

if TYPE_CHECKING:
    from bridge.config.tables.profile import Profile
    from bridge.store.postgres.store import PostgresStore


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
        return PlacedStore(shared_store(name, plan.store, process), f"{plan.store}, which replicas share")
    if plan.store == MEMORY_STORE:
        return PlacedStore(MemoryStore(), "memory only: tasks are lost when the bridge stops")
    folder = place.state or state_folder()
    path = Path(plan.store) if plan.store else folder / f"{name}-{place.port}.db"
    return PlacedStore(SQLiteStore(path, synchronous=process.store.synchronous), str(path))


def shared_store(name: str, store: SharedStore, process: Profile) -> PostgresStore:
    """The store of an agent in a database.

    Raises:
        UsageError: its driver is not installed, or libpq does not understand its URL.
    """
    require_driver()
    from bridge.store.postgres.store import PostgresStore  # its driver is an optional extra

    return PostgresStore(store.url, name, postgres_bounds(process), direct_url=store.direct_url)


def stores_of(plan: Plan) -> dict[str, PlacedStore]:
    """The stores of all agents of a plan, by their names.

    Raises:
        UsageError: as for `store_for`.
    """
    return {name: store_for(name, one, plan.place, plan.profile) for name, one in plan.published.items()}
