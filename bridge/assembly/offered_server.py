"""An MCP server made of agents, which are named one by one or listed by a catalog: their tools, and its endpoint.

An address without a card is probed for other kinds of peers only if a person wrote it down. An address from a catalog
is asked for nothing but its card, and for its version if the card does not say it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import httpx2

from bridge.a2a.client.agent_card import CardSource, VerifiesCards
from bridge.a2a.client.agent_client import ClientOptions, Deadlines, OpenGrpc
from bridge.a2a.client.card_places import base_url
from bridge.a2a.client.catalog import CatalogEntry, CatalogSource, Selection
from bridge.a2a.client.credentials import Credentials, card_credentials
from bridge.a2a.client.http import redacted_url
from bridge.a2a.client.http_cache import FreshnessBounds
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust
from bridge.a2a.client.version_question import version_question
from bridge.a2a.wire.versions import VERSIONS
from bridge.agents_as_tools.face import AgentsFace
from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.push_hints import PushHints
from bridge.assembly.plan import CatalogPlan, OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.concurrency import border
from bridge.config.tables.profile import Profile
from bridge.errors import PeerError, UsageError
from bridge.http.client import GuardedClient
from bridge.http.private_addresses import AddressGuard
from bridge.http.probe import WantedKind, explained
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.logins.later_login import LaterLogin
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.local.private_files import private_folder
from bridge.local.user_folders import cache_folder, state_folder
from bridge.mcp.server.server import McpLimits, McpServer
from bridge.notices import Notify, TokenListener, ignore_notice
from bridge.remotes.grpc_calls import GrpcCalls
from bridge.remotes.on_behalf import ByExchange, ByHeader, ByLogin, OnBehalf
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import Seal, agent_mark, key_in, keys_in
from bridge.settings import AgentSettings
from bridge.text.safe_text import shell_word
from bridge.trace import UNHEARD, Hops
from bridge.translate.extensions import apps, mcp_requests
from bridge.translate.extensions.bridge import URI


@dataclass(frozen=True)
class SharedResources:
    """The resources that all offered servers share."""

    http: httpx2.AsyncClient
    """The HTTP client. It has no credentials: the client of each agent adds its own."""
    seal: Seal
    process: Profile
    cache: Path | None = None
    baggage_keys: frozenset[str] = frozenset()
    hops: Hops = UNHEARD
    hints: PushHints = field(default_factory=PushHints)
    """Wakes waiting calls when an agent notifies the bridge."""
    logins_at: Callable[[LoginConfig], CallerLogins | None] = lambda _: None
    """The logins of callers at a peer that wants a login of each; None if nobody could open a link to such a login."""
    notify: Notify = ignore_notice
    """Takes notices."""
    grpc: OpenGrpc | None = None
    """Makes transports over gRPC; None calls no agent over gRPC."""

    @property
    def cache_folder(self) -> Path:
        """The folder in which cards are cached."""
        return self.cache or cache_folder()


@asynccontextmanager
async def shared_resources(
    plan: Plan,
    hops: Hops = UNHEARD,
    push_url: str | None = None,
    logins_at: Callable[[LoginConfig], CallerLogins | None] = lambda _: None,
    notify: Notify = ignore_notice,
) -> AsyncIterator[SharedResources]:
    """Open the resources that the offered servers of a process share. `push_url` is the base URL at which agents notify
    the bridge; None asks none of them to. `logins_at` and `notify` are those of the resources.

    Raises:
        UsageError: the key of the handles cannot be read or made.
    """
    place = plan.place
    try:
        seal = Seal(keys_of(place))
    except UsageError as exc:
        raise UsageError(f"{exc}; set XDG_STATE_HOME to keep the state in another folder") from exc
    timeout = httpx2.Timeout(None, connect=plan.profile.agents.agent_connect_seconds)
    async with (
        GuardedClient(timeout=timeout, limits=httpx2.Limits(keepalive_expiry=2.0)) as http,
        GrpcCalls() as calls,
    ):
        hints = PushHints(push_url)
        yield SharedResources(
            http,
            seal,
            plan.profile,
            place.cache,
            place.baggage_keys,
            hops,
            hints,
            logins_at,
            notify,
            calls.transports,
        )


def keys_of(place: ProcessPlan) -> list[bytes]:
    """The keys of a process: those of its plan, or one that is kept in its state folder.

    Raises:
        UsageError: a key cannot be read or made.
    """
    return keys_in(place.keys) or [_own_key(place.state or state_folder())]


def _own_key(folder: Path) -> bytes:
    try:
        private_folder(folder)
    except OSError as exc:
        raise UsageError(f"{folder} cannot be used: {exc.strerror}") from exc
    return key_in(folder)


@dataclass
class OfferedServer:
    """An offered server that runs."""

    name: str
    face: AgentsFace
    server: McpServer
    agents: Mapping[str, RemotePlan]
    """The plans that its agents were made from, by key."""
    chosen: AgentSettings
    """The `[agents]` table of the profile that its agents were made with."""
    _made: dict[str, RemoteAgent] = field(default_factory=dict)

    @property
    def remote_agents(self) -> tuple[RemoteAgent, ...]:
        """Its agents, in their order."""
        return tuple(self._made.values())

    def update(
        self,
        plan: OfferedPlan,
        agents: Mapping[str, RemotePlan],
        shared: SharedResources,
        unread: Collection[str] = (),
    ) -> None:
        """Take over another plan and other agents. Agents that have not changed are kept. `unread` are the keys of its
        catalogs that were never read."""
        made = {
            key: self._made[key]
            if self._is_as_before(key, remote, plan)
            else remote_agent(key, remote, plan.profile.agents, shared, named=plan.named)
            for key, remote in agents.items()
        }
        self.agents, self.chosen, self._made = agents, plan.profile.agents, made
        self.face.update(
            list(made.values()), face_options_of(self.name, plan, agents), plan.overrides, unread
        )

    def _is_as_before(self, key: str, remote: RemotePlan, plan: OfferedPlan) -> bool:
        return self.agents.get(key) == remote and self.chosen == plan.profile.agents


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
    made = {
        key: remote_agent(key, remote, plan.profile.agents, shared, named=plan.named)
        for key, remote in agents.items()
    }
    handles, options = Handles(shared.seal), face_options_of(name, plan, agents)
    face = AgentsFace(list(made.values()), handles, options, plan.overrides, shared.hints, unread)
    running: list[McpServer] = []

    def changed() -> None:
        for server in running:
            server.changed()
        on_change()

    async with face.run(changed, plan.profile.agents.first_cards_seconds):
        if plan.requires_an_agent:
            await require_one_agent({made[key]: remote for key, remote in agents.items()})
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
        yield OfferedServer(name, face, running[0], agents, plan.profile.agents, made)


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


def _on_behalf(remote: RemotePlan, shared: SharedResources) -> OnBehalf | None:
    """How an agent is called in the names of callers; None calls it in the bridge's name.

    Raises:
        UsageError: the bridge has no address for links to log in with.
    """
    if remote.own_callers is not None:
        return ByHeader(remote.own_callers.headers)
    if isinstance(remote.tokens, EachLogin):
        if (logins := shared.logins_at(remote.tokens.login_config)) is None:
            raise UsageError(
                f"links to log in at {remote.tokens.login_config.table} need `public_url` in [bridge]"
            )
        return ByLogin(remote.tokens, logins)
    return None if remote.callers is None else ByExchange(remote.callers)


def _listen_to_tokens(key: str, remote: RemotePlan, shared: SharedResources) -> None:
    """Take notices of the tokens of an agent. A catalog reports the tokens of its agents itself."""
    if remote.catalog is not None or shared.notify is ignore_notice:
        return
    for tokens in (remote.tokens, remote.callers):
        if tokens is not None:
            tokens.listener = TokenListener(key, shared.notify)


def remote_agent(
    key: str,
    remote: RemotePlan,
    chosen: AgentSettings,
    shared: SharedResources,
    *,
    named: bool = True,
    own_extensions: tuple[str, ...] = (URI, mcp_requests.URI, apps.URI),
) -> RemoteAgent:
    """A remote agent of this plan. `named` says that it is named by its key; else by the name on its card.
    `own_extensions` are those of the bridge that are activated in each request."""
    credentials, on_behalf = remote.credentials, _on_behalf(remote, shared)
    is_each = isinstance(remote.tokens, EachLogin)
    allow_private = chosen.allow_private if remote.allow_private is None else remote.allow_private
    trust = Trust(remote.trusted, allow_private=allow_private, on_command_line=remote.on_command_line)
    reach = (
        remote.catalog.reach
        if remote.catalog
        else ConnectionPolicy(remote.url, trust, uses_proxy=remote.uses_proxy)
    )
    options = ClientOptions(
        extensions=(*own_extensions, *remote.extensions),
        credentials=replace(credentials, tokens=remote.callers) if remote.callers else credentials,
        trust=trust,
        reach=reach,
        deadlines=deadlines(chosen),
        json_values=chosen.answer_json_values,
        baggage_keys=shared.baggage_keys,
        peer=key if named else "",
        hops=shared.hops,
        versions=VERSIONS.chosen(remote.dialect),
        how_to_log_in=_how_to_log_in(key, remote),
        grpc=shared.grpc,
        bindings=remote.bindings,
    )
    _listen_to_tokens(key, remote, shared)
    folder = shared.cache_folder / agent_mark(remote.account) if remote.account else shared.cache_folder
    source = remote.own_card or CardSource(
        shared.http,
        remote.url,
        folder,
        card_bounds(chosen),
        card_credentials(replace(credentials, tokens=None) if is_each else credentials),
        guard=remote.catalog.guard(remote.url) if remote.catalog else reach.guard(remote.url),
        is_learned=remote.catalog is not None,
        ask_version=version_question(shared.http, options),
        pins=_pins(key, remote, shared),
    )
    return RemoteAgent(
        remote.url,
        source,
        shared.http,
        options,
        key=key if named else None,
        account=remote.account,
        on_behalf=on_behalf,
        push=remote.push,
    )


def _how_to_log_in(key: str, remote: RemotePlan) -> str:
    """The hint for an agent that wants the login of a person; empty if it gets a token already."""
    has_token = remote.tokens is not None and not isinstance(remote.tokens, LaterLogin)
    if has_token or remote.bearer or remote.callers or "authorization" in map(str.lower, remote.headers):
        return ""
    if remote.on_command_line:
        return f"Run `mcp-a2a login {shell_word(redacted_url(base_url(remote.url)))}`"
    if remote.catalog is not None:
        return 'Write auth = { oauth2 = { grant = "authorization_code" } } for its catalog, and log in there'
    line = f"mcp-a2a login {shell_word(key)}"
    return f'Write auth = {{ oauth2 = {{ grant = "authorization_code" }} }} for it, and run `{line}`'


def _pins(key: str, remote: RemotePlan, shared: SharedResources) -> VerifiesCards | None:
    """The card of an agent must be signed with one of these keys; None takes any card."""
    if remote.signed_by is None:
        return None
    from bridge.assembly.card_pins import pins_of  # hosts wait for a start, and few agents have pinned keys

    table, allow_private = shared.process.issuers, bool(remote.allow_private)
    return pins_of(key, remote.signed_by, shared.http, table, allow_private=allow_private)


def card_bounds(chosen: AgentSettings) -> FreshnessBounds:
    """How long cards and catalogs stay fresh."""
    return FreshnessBounds(chosen.card_min_seconds, chosen.card_max_seconds)


def deadlines(chosen: AgentSettings) -> Deadlines:
    """The deadlines of an agent's answers."""
    return Deadlines(chosen.agent_connect_seconds, chosen.answer_seconds, chosen.silence_seconds)


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
