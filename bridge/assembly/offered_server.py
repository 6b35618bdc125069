"""An MCP server made of agents, which are named one by one or listed by a catalog: their tools, and its endpoint.

An address without a card is probed for other kinds of peers only if a person wrote it down. An address from a catalog
is asked for nothing but its card, and for its version if the card does not say it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from bridge.a2a.client.catalog import CatalogEntry, CatalogSource, Selection
from bridge.a2a.client.credentials import Credentials, card_credentials
from bridge.a2a.client.http import redacted_url
from bridge.a2a.client.interfaces import Trust
from bridge.agents_as_tools.face import AgentsFace
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.assembly.plan import CatalogPlan, OfferedPlan, RemotePlan
from bridge.assembly.remote_agents import RemoteAgents, SharedResources, card_bounds
from bridge.concurrency import border
from bridge.errors import PeerError
from bridge.http.client import GuardedClient
from bridge.http.private_addresses import AddressGuard
from bridge.http.probe import WantedKind, explained
from bridge.mcp.server.server import McpLimits, McpServer
from bridge.notices import TokenListener
from bridge.remotes.remote_agent import RemoteAgent


@dataclass
class OfferedServer:
    """An offered server that runs."""

    name: str
    face: AgentsFace
    server: McpServer
    agents: RemoteAgents

    @property
    def remote_agents(self) -> tuple[RemoteAgent, ...]:
        """Its agents, in their order."""
        return tuple(self.agents.by_key.values())

    def update(
        self,
        plan: OfferedPlan,
        agents: Mapping[str, RemotePlan],
        unread: Collection[str] = (),
    ) -> None:
        """Take over another plan and other agents. Agents that have not changed are kept. `unread` are the keys of its
        catalogs that were never read."""
        self.agents.update(agents, plan.profile.agents, named=plan.named)
        self.face.update(
            list(self.remote_agents), face_options_of(self.name, plan, agents), plan.overrides, unread
        )


@asynccontextmanager
async def offered(
    name: str,
    plan: OfferedPlan,
    agents: Mapping[str, RemotePlan],
    shared: SharedResources,
    on_change: Callable[[], None] = lambda: None,
    unread: Collection[str] = (),
) -> AsyncIterator[OfferedServer]:
    """Read the agents' cards, and run the server while the context is open. `unread` are the keys of its catalogs that
    were never read.

    Raises:
        PeerError: the plan requires an agent, and every address is known to be something else.
    """
    remotes = RemoteAgents(shared)
    remotes.update(agents, plan.profile.agents, named=plan.named)
    handles, options = Handles(shared.seal), face_options_of(name, plan, agents)
    face = AgentsFace(list(remotes.by_key.values()), handles, options, plan.overrides, shared.hints, unread)
    running: list[McpServer] = []

    def changed() -> None:
        for server in running:
            server.changed()
        on_change()

    async with face.run(changed, plan.profile.agents.first_cards_seconds):
        if plan.requires_an_agent:
            await require_one_agent({remotes.by_key[key]: remote for key, remote in agents.items()})
        # Made after the cards are read, because its name and instructions come from them.
        running.append(
            McpServer(
                face,
                McpLimits(shared.process.requests, shared.process.streams),
                name,
                shared.hops,
                shared.notify,
            )
        )
        yield OfferedServer(name, face, running[0], remotes)


def face_options_of(name: str, plan: OfferedPlan, agents: Mapping[str, RemotePlan]) -> FaceOptions:
    """The options of an offered server with these agents, from its plan and its profile."""
    return FaceOptions(
        plan.server_name or name,
        plan.profile.agents,
        plan.profile.run,
        plan.title,
        plan.instructions,
        len(plan.sources) == 1 and all(remote.catalog is None for remote in agents.values()),
    )


logger = logging.getLogger(__name__)


@asynccontextmanager
async def followed_catalog(
    key: str, plan: CatalogPlan, shared: SharedResources, on_change: Callable[[], None]
) -> AsyncIterator[CatalogSource]:
    """Read a catalog and keep it fresh while the context is open. A catalog that is down keeps its cached entries."""
    chosen = shared.process.agents
    if plan.tokens is not None:
        plan.tokens.listener = TokenListener(key, shared.notify)
    source = CatalogSource(
        shared.http,
        plan.url,
        shared.cache_folder,
        card_bounds(chosen),
        credentials=card_credentials(Credentials(plan.headers, tokens=plan.tokens, tls=plan.tls)),
        trust=Trust(allow_private=chosen.allow_private if plan.allow_private is None else plan.allow_private),
        uses_proxy=plan.uses_proxy,
        selection=Selection(tuple(plan.include), tuple(plan.exclude)),
    )
    if source.cached() is None:
        with border(logger, f"the catalog {key}"):
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
    """The agents that a catalog lists, by `CATALOG_NAME`. The catalog's credentials go to its own origin only."""
    return {
        f"{key}_{entry.name}": RemotePlan(
            entry.card_url,
            headers=plan.headers if source.is_own(entry.card_url) else {},
            tokens=plan.tokens if source.is_own(entry.card_url) else None,
            tls=plan.tls if source.is_own(entry.card_url) else None,
            account=f"catalog {key}",
            allow_private=plan.allow_private,
            uses_proxy=plan.uses_proxy,
            catalog=source,
        )
        for entry in source.cached() or ()
    }


async def other_kind_at(agent: RemoteAgent, plan: RemotePlan) -> str | None:
    """Say what answers at an address that gives no card; None when it may still be an agent."""
    if agent.has_card or not agent.is_heard_of or plan.own_card or plan.catalog:
        return None
    return await other_than_agent(plan.url, agent.guard)


async def require_one_agent(agents: Mapping[RemoteAgent, RemotePlan]) -> None:
    """Refuse to start when every address is known to be something other than an agent.

    Raises:
        PeerError: all addresses are something else; the message says what.
    """
    if any(agent.has_card for agent in agents):
        return
    others = [await other_kind_at(agent, plan) for agent, plan in agents.items()]
    if others and all(others):
        raise PeerError("\n".join(filter(None, others)))
    _warn(filter(None, others))


def _warn(words: Iterable[str]) -> None:
    for line in words:
        logger.warning("%s", line)


async def other_than_agent(url: str, guard: AddressGuard | None = None) -> str | None:
    """Say what answers at a URL that gives no card, and what to do; None when that is not known."""
    fault = PeerError(f"{redacted_url(url)} is not an A2A agent")
    async with GuardedClient() as http:
        explanation = await explained(fault, http, url, WantedKind.AGENT, guard)
    return None if explanation is fault else str(explanation)
