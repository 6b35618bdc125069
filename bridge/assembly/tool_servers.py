"""The tool servers of a bridge: how each is made of its plan, how they start, and which of them a start waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import anyio
import anyio.abc

from bridge.assembly.parts import Parts, PartTask, PlannedPart, servers_of
from bridge.assembly.plan import Plan, PublishedPlan, ServerPlan
from bridge.assembly.plan_digest import server_bytes
from bridge.errors import PeerError, UsageError
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.local.user_folders import state_folder
from bridge.mcp.client.approver import ServerApprover
from bridge.mcp.client.kept_listings import (
    ListingKeeper,
    ListingMemory,
    NoListings,
    ServerIdentity,
    kept_listing,
)
from bridge.mcp.client.known_servers import FILE_NAME, Fact, ServerMemory
from bridge.mcp.client.transports.in_process import InProcessTarget
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.mcp.client.upstream import Upstream
from bridge.notices import Notify, TokenListener, ignore_notice
from bridge.pinned.guard import DefinitionGuard
from bridge.pinned.lock import server_title
from bridge.text.short_names import name_of, slug
from bridge.tools_as_agent.skill_sources import SkillSource
from bridge.trace import Hops

logger = logging.getLogger(__name__)


class StartObserver(Protocol):
    """Is told how the connections of a start go."""

    def connecting(self, key: str, target: object) -> None:
        """A tool server is being started or called."""
        ...

    def connected(self, key: str, upstream: Upstream) -> None:
        """The server is up."""
        ...

    def failed(self, key: str, why: str) -> None:
        """The server is not up; the bridge keeps trying."""
        ...


class FirstConnections:
    """Waits until one of several servers is up, or all have failed once."""

    def __init__(self, observer: StartObserver | None) -> None:
        self.seen = anyio.Event()
        self.missing: set[str] = set()
        """The servers that have not come up yet."""
        self._left = 0
        self._observer = observer
        self._looking: list[anyio.CancelScope] = []

    def expect(self, keys: Iterable[str]) -> None:
        """Wait for these servers."""
        self.missing = set(keys)
        self._left = len(self.missing)

    def give_up(self) -> None:
        """Stop waiting."""
        for scope in self._looking:
            scope.cancel()

    async def require(self, key: str, upstream: Upstream) -> None:
        """Wait until a server is up. Raises the error that keeps it down."""
        await upstream.ready()
        self._is_up(key, upstream)

    async def observe(self, key: str, upstream: Upstream) -> None:
        """Note whether a server came up or failed; raise nothing."""
        try:
            with anyio.CancelScope() as scope:
                self._looking.append(scope)
                await upstream.ready()
            if scope.cancelled_caught:
                return
        except (PeerError, UsageError) as exc:
            self._left -= 1
            if self._observer:
                self._observer.failed(key, str(exc))
            if not self._left:
                self.seen.set()
        else:
            self._is_up(key, upstream)

    def _is_up(self, key: str, upstream: Upstream) -> None:
        self.missing.discard(key)
        if self._observer:
            self._observer.connected(key, upstream)
        self.seen.set()


class ToolServers:
    """Makes the tool servers of one bridge, and starts them."""

    def __init__(
        self,
        baggage_keys: frozenset[str],
        logins_at: Callable[[LoginConfig], CallerLogins | None],
        observer: StartObserver | None,
        *,
        hops: Hops,
        notify: Notify,
        on_change: Callable[[], None],
        listings: ListingMemory,
        guard: DefinitionGuard,
        keeps: bool = True,
    ) -> None:
        """`logins_at` gives the logins of callers at a server that wants them, and `notify` takes notices. `on_change`
        is called when a server lists other tools, comes up or goes down. `listings` keeps the tool lists, for a start
        while servers are down. `guard` compares them with the lock. `keeps` says whether what is found out about a
        server is kept for the next start."""
        self._baggage_keys = baggage_keys
        self._logins_at = logins_at
        self._observer = observer
        self._hops = hops
        self._notify = notify
        self._on_change = on_change
        self._listings = listings
        self._guard = guard
        self._memory = ServerMemory(state_folder() / FILE_NAME, keeps=keeps)

    async def start(
        self,
        plan: Plan,
        running: Parts,
        fresh: Parts,
        first: FirstConnections,
        group: anyio.abc.TaskGroup,
        patience_seconds: float,
    ) -> None:
        """Start the new and changed servers of a plan, in `group`; wait until those that must be up are, and any one is
        up or all have failed. `fresh` gets those that were started, also when this fails.

        Raises:
            PeerError: a server is down, and the plan's `fail` for it is `closed`.
            UsageError: a command with that `fail` cannot be started.
        """
        for key in servers_of(plan):
            known, wanted = running.servers.get(key), plan.servers[key]
            if known is None or known.plan != wanted:
                listing = await self._listings_of(wanted).recall(_identity_of(wanted))
                unit = PartTask(self._made(key, wanted, listing).run)
                await unit.start(group)
                fresh.servers[key] = PlannedPart(wanted, unit)
                if self._observer:
                    self._observer.connecting(key, wanted.target)
        if not fresh.servers:
            return
        first.expect(fresh.servers)
        with anyio.move_on_after(patience_seconds) as waiting:
            async with anyio.create_task_group() as requiring:
                for key, server in fresh.upstreams.items():
                    if plan.fails_closed(key):
                        requiring.start_soon(first.require, key, server)
                    else:
                        group.start_soon(first.observe, key, server)
            await first.seen.wait()
        if waiting.cancelled_caught:
            logger.info("served before its tool servers are up: the start has waited %g s", patience_seconds)

    def take_own_name(self, server: Upstream) -> str:
        """Call a server as it calls itself; while it is down, as it did before. Returns the name as part of a path."""
        if server.greeting is None:
            server.name = self._memory.recall(Fact.NAME, str(server.target)) or server.name
        else:
            server.name = server.greeting.name
        return slug(server.name)

    def _made(self, key: str, plan: ServerPlan, listing: bytes | None) -> Upstream:
        """A tool server. `listing` is what it listed last, if that is known."""
        target = plan.target
        name = key or _name_of(target)
        memory = ServerMemory(None) if isinstance(target, InProcessTarget) else self._memory
        keeper = ListingKeeper(self._listings_of(plan), _identity_of(plan), name)
        if isinstance(target, HttpTarget) and self._notify is not ignore_notice:
            target = target.with_listener(TokenListener(key, self._notify))
        login_config = target.caller_login if isinstance(target, HttpTarget) else None

        def has_changed() -> None:
            keeper.store_if_changed(upstream)
            self._on_change()

        upstream = Upstream(
            name,
            target,
            era=plan.era,
            memory=memory,
            settings=plan.settings,
            concurrency=plan.concurrency,
            queue=plan.queue,
            baggage_keys=self._baggage_keys,
            logins=None if login_config is None else self._logins_at(login_config),
            on_change=has_changed,
            hops=self._hops,
            known_listing=None if listing is None else kept_listing(listing, plan.settings.schema_values),
            stand_ins=plan.stand_ins,
            shows_apps=plan.shows_apps,
            approver=ServerApprover(self._guard, server_title(key)),
        )
        return upstream

    def _listings_of(self, plan: ServerPlan) -> ListingMemory:
        """Where the listing of a server is kept. An object is another one in the next process, whatever its name."""
        return NoListings() if isinstance(plan.target, InProcessTarget) else self._listings


def _name_of(target: ServerTarget) -> str:
    match target:
        case StdioTarget():
            return name_of(target.argv)
        case HttpTarget():
            return name_of(target.url)
        case InProcessTarget():
            return target.name


def _identity_of(plan: ServerPlan) -> ServerIdentity:
    return ServerIdentity(str(plan.target), server_bytes(plan.target))


Servers = Mapping[str, PlannedPart[ServerPlan, Upstream]]
"""The running tool servers, by key."""


def skill_sources(name: str, plan: PublishedPlan, servers: Servers) -> list[SkillSource]:
    """The tool servers of a published agent."""
    made = ((key, servers[key]) for key in plan.servers)
    return [
        SkillSource(
            key or name,
            server.unit.value,
            server.plan.call_timeout_seconds,
            server.plan.ready.tools if server.plan.ready else {},
        )
        for key, server in made
    ]
