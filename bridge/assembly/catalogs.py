"""Catalogs of agents that are followed: what they list becomes agents of the servers that name them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from bridge.a2a.client.catalog import CatalogEntry, CatalogSource, Selection
from bridge.a2a.client.followed import FreshnessBounds
from bridge.a2a.client.interfaces import Trust
from bridge.assembly.offered import SharedResources
from bridge.assembly.plan import CatalogPlan, RemotePlan
from bridge.errors import PeerError
from bridge.peer_auth import PeerCredentials, fixed_credentials

logger = logging.getLogger(__name__)


@asynccontextmanager
async def followed_catalog(
    key: str, plan: CatalogPlan, shared: SharedResources, on_change: Callable[[], None]
) -> AsyncIterator[CatalogSource]:
    """Read a catalog and keep it fresh as long as this is entered; one that is down is as it was remembered."""
    chosen = shared.process.agents
    source = CatalogSource(
        shared.http,
        plan.url,
        shared.cache_folder,
        FreshnessBounds(chosen.card_min_seconds, chosen.card_max_seconds),
        credentials=fixed_credentials(PeerCredentials(plan.headers)),
        trust=Trust(allow_private=chosen.allow_private if plan.allow_private is None else plan.allow_private),
        selection=Selection(tuple(plan.include), tuple(plan.exclude)),
    )
    if source.cached() is None:
        try:
            with anyio.move_on_after(chosen.first_cards_seconds):
                await source.refresh()
        except PeerError as exc:
            logger.warning("the catalog %s cannot be read: %s", key, exc)

    async def changed(_: tuple[CatalogEntry, ...]) -> None:
        on_change()

    async with anyio.create_task_group() as group:
        group.start_soon(source.watch, changed)
        yield source
        group.cancel_scope.cancel()


def agents_in(key: str, source: CatalogSource, plan: CatalogPlan) -> dict[str, RemotePlan]:
    """The agents that a catalog lists, by `CATALOG_NAME`. Its own credentials go to its own origin only."""
    return {
        f"{key}_{entry.name}": RemotePlan(
            entry.card_url,
            headers=plan.headers if source.is_own(entry.card_url) else {},
            account=f"catalog {key}",
            allow_private=plan.allow_private,
            catalog=source,
        )
        for entry in source.cached() or ()
    }
