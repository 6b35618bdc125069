"""A published agent, made of tools or of remote agents: its tasks, their store, and its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.client.agent_card import OwnCard
from bridge.a2a.layers.chain import layers_around, shared_tasks
from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import GRPC, AgentInterface, AgentSkill
from bridge.a2a.push.sender import PushSender
from bridge.a2a.server.app import AgentLimits, AgentServer, FindInterfaces, no_interfaces
from bridge.a2a.server.service import AgentService
from bridge.a2a.server.signed_cards import CardSigning
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.intake import EngineLimits
from bridge.a2a.tasks.webhooks import Webhooks
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.a2a.wire.versions import VERSIONS
from bridge.agents_as_agent.agent import ForwardingAgent
from bridge.agents_as_agent.contexts import Contexts
from bridge.agents_as_agent.options import ForwardOptions
from bridge.assembly.ids import OrderedIds, clock_of, elapsed_ms, now_ms
from bridge.assembly.plan import LOOPBACK_HOST, ProcessPlan, PublishedPlan
from bridge.assembly.push import webhooks_of
from bridge.assembly.remote_agents import RemoteAgents, keys_of
from bridge.assembly.stores import store_for
from bridge.config.tables.profile import Profile
from bridge.identity.callers.verifiers import Access
from bridge.notices import Notify, ignore_notice
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import Seal
from bridge.settings import RouteSettings
from bridge.store.contract import Store
from bridge.store.records import Query, Quota
from bridge.store.retention import Retention
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.tools_as_agent.caller_login import Present
from bridge.tools_as_agent.chooser import Chooser
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.skill_sources import SkillSource
from bridge.trace import UNHEARD, Hops
from bridge.translate.extensions import log_messages
from bridge.translate.extensions.availability import FindUnavailable
from bridge.translate.extensions.bridge import GATED
from bridge.translate.message_to_call import RouteRules
from bridge.translate.overrides import SkillOverride

if TYPE_CHECKING:
    from bridge.tools_as_agent.served_links import ServedLinks

LINKS_PATH: Final = "/links/"
"""What the path of a linked resource begins with, below the path of its agent."""


_NEWEST: Final = 8
"""How many of the newest tasks of a context are read."""


def _no_links(_: PublishedPlan) -> None: ...


@dataclass(frozen=True)
class PublishedAgent:
    """A published agent that runs."""

    name: str
    agent: ToolsAgent | ForwardingAgent
    engine: Engine
    tasks: TaskOperations
    """The operations of the engine, without the layers that a changed file may change."""
    service: AgentService
    server: AgentServer
    app: ASGIApp
    store: str
    """Where the tasks are kept, in words for a person."""
    push: PushSender | None = None
    """Sends its push notifications; None if it sends none."""
    model: Chooser | None = None
    """The model that it may ask; None if the bridge has none."""
    links_of: Callable[[PublishedPlan], ServedLinks | None] = _no_links
    """The addresses of linked resources under a plan."""
    _own_cards: dict[str, OwnCard] = field(default_factory=dict, init=False)

    @property
    def tools(self) -> ToolsAgent | None:
        """The agent, if it is made of tools."""
        return self.agent if isinstance(self.agent, ToolsAgent) else None

    def grpc_address(self, base_url: str) -> str:
        """Where it is called over gRPC, as its card says it; "" if it is not."""
        interfaces = self.server.card(base_url).supported_interfaces
        interface = next((item for item in interfaces if item.protocol_binding == GRPC), None)
        if interface is None:
            return ""
        return f"{interface.url}, tenant {interface.tenant}" if interface.tenant else interface.url

    @property
    def remote_agents(self) -> tuple[RemoteAgent, ...]:
        """The remote agents that it is made of; none if it is made of tools."""
        return () if isinstance(self.agent, ToolsAgent) else self.agent.remotes

    def remote_skills(self, key: str) -> Sequence[AgentSkill]:
        """The skills on the card of one of its remote agents."""
        return next(
            (agent.card.skills for agent in self.remote_agents if agent.key == key and agent.has_card), ()
        )

    @property
    def table(self) -> Literal["tools_as_agent", "agents_as_agent"]:
        """The section of the configuration that has its table."""
        return "agents_as_agent" if self.tools is None else "tools_as_agent"

    @property
    def path(self) -> str:
        """The path of the agent's base URL."""
        return path_of(self.name)

    def own_card(self, base_url: str) -> OwnCard:
        """The agent's card for MCP servers of this process: one object for each `base_url` of the process."""
        return self._own_cards.setdefault(
            base_url, OwnCard(base_url, self.server.whole_card, lambda: not self.agent.unknown)
        )

    def refresh(self) -> None:
        """Take over the present tools of the agent's servers, or the present cards of its remote agents."""
        self.agent.refresh()
        self._announce_card_change()

    def update(self, plan: PublishedPlan, peers: Peers, *, operators: bool) -> None:
        """Take over another plan and other peers. Calls in flight keep the peers and layers that they began with."""
        self.service.tasks = layers_around(self.tasks, self.engine, operators=operators)
        push = self.push is not None
        match self.agent, peers:
            case ForwardingAgent() as agent, RemoteAgents():
                options = forward_options_of(self.name, plan, is_local=agent.options.is_local, push=push)
                agent.update(peers.by_key, options, plan.overrides)
            case ToolsAgent() as agent, Sequence():
                agent.update(
                    peers,
                    agent_options_of(self.name, plan, self.model, push=push, links=self.links_of(plan)),
                    plan.overrides,
                )
        self.engine.limits = replace(self.engine.limits, run=plan.profile.run)
        self._announce_card_change()

    def _announce_card_change(self) -> None:
        for card in self._own_cards.values():
            card.note_change()


def grpc_interfaces(
    base_url: str, name: str, ports: Mapping[str, int], public: str | None, *, is_alone: bool
) -> tuple[AgentInterface, ...]:
    """The interface of gRPC of an agent. `ports` are by agent, with "" for the port of all, and `public` is the address
    of that port for clients. The only agent of a bridge or of an address has no tenant, since clients of 0.3 cannot
    send a tenant."""
    own = ports.get(name)
    port = own or ports.get("")
    if port is None:
        return ()
    host = urlsplit(base_url).hostname or LOOPBACK_HOST
    near = f"{f'[{host}]' if ':' in host else host}:{port}"
    url = near if own else public or near
    tenant = None if is_alone or own else name
    version = VERSIONS.current.version
    return (AgentInterface(url=url, protocol_binding=GRPC, tenant=tenant, protocol_version=version),)


def path_of(name: str) -> str:
    """The path of a published agent."""
    return f"/agents/{name}"


Peers = Sequence[SkillSource] | RemoteAgents
"""What an agent is made of."""


@dataclass(frozen=True)
class SharedByAgents:
    """What the published agents of a bridge share."""

    process: Profile
    """The mapping profile of the process."""
    place: ProcessPlan
    access: Access
    hops: Hops = UNHEARD
    signing: CardSigning | None = None
    notify: Notify = ignore_notice
    find_interfaces: FindInterfaces = no_interfaces
    """Finds the further interfaces that the card of an agent names."""
    model: Chooser | None = None
    """The model that chooses skills for texts; None if there is none."""
    own_url: str | None = None
    """The address of the bridge where it has no public one."""


@dataclass(frozen=True)
class ToolRights:
    """What an agent made of tools asks about its callers and its servers."""

    present: Present
    """Tells the rights of a caller now."""
    find_unavailable: FindUnavailable | None = None
    """Tells what the replicas say of the servers; None if there are no other replicas."""


def tools_agent(
    name: str, plan: PublishedPlan, sources: Sequence[SkillSource], shared: SharedByAgents, rights: ToolRights
) -> ToolsAgent:
    """An agent made of tools."""
    links = _links_of(name, shared.place, shared.own_url, plan)
    return ToolsAgent(
        sources,
        agent_options_of(name, plan, shared.model, push=shared.place.push is not None, links=links),
        plan.overrides,
        now_ms=now_ms,
        present=rights.present,
        find_unavailable=rights.find_unavailable,
        is_open=lambda: not shared.access.needs_token,
    )


def forwarding_agent(
    name: str, plan: PublishedPlan, remotes: RemoteAgents, place: ProcessPlan, seal: Seal, store: Store
) -> ForwardingAgent:
    """An agent made of remote agents, whose tasks are in this store."""
    options = forward_options_of(name, plan, is_local=place.is_local, push=place.push is not None)
    return ForwardingAgent(remotes.by_key, options, plan.overrides, Contexts(seal, StoredTasks(store)))


MakeAgent = Callable[[Store], ToolsAgent | ForwardingAgent]
"""Makes the agent whose tasks are in a store."""


@asynccontextmanager
async def published(
    name: str,
    plan: PublishedPlan,
    make_agent: MakeAgent,
    shared: SharedByAgents,
    *,
    operators: bool = False,
) -> AsyncIterator[PublishedAgent]:
    """Run an agent while the context is open, with its stored tasks recovered. `operators` says that some callers may
    be operators.

    Raises:
        UsageError: the store is in use, too new, or out of reach.
    """
    process, place = shared.process, shared.place
    links_of = partial(_links_of, name, place, shared.own_url)
    store, where = store_for(name, plan, place, process)
    agent = make_agent(store)
    clock, gate = clock_of(store), ExtensionFilter({**GATED, **log_messages.GATED})
    ids = IdsAndClock(OrderedIds(clock).new, clock, elapsed_ms)
    async with (
        store,
        _cards_of(agent, plan.profile.agents.first_cards_seconds),
        webhooks_of(store, place, process, ids, gate, name, shared.notify) as push,
        _engine_for(
            agent, store, plan.profile, process, ids, None if push is None else push.webhooks
        ) as engine,
    ):
        tasks = shared_tasks(engine, store)
        service = AgentService(
            engine, gate, process.requests.parts, layers_around(tasks, engine, operators=operators)
        )
        server = AgentServer(
            agent,
            service,
            shared.access,
            place.web,
            AgentLimits(process.requests, process.streams, plan.profile.card),
            name=name,
            versions=VERSIONS.served(
                merges_cards=plan.profile.card.legacy_card,
                hermes=plan.profile.card.hermes,
                push=push is not None,
            ),
            hops=shared.hops,
            signing=shared.signing,
            find_interfaces=shared.find_interfaces,
            shows_operators_contents=place.operators_see_contents,
        )
        sender = None if push is None else push.sender
        app = _with_links(agent, server, server.at(path_of(name)))
        running = PublishedAgent(
            name, agent, engine, tasks, service, server, app, where, sender, shared.model, links_of
        )
        if isinstance(agent, ForwardingAgent):
            agent.on_change = running._announce_card_change
            agent.waiting_tasks.go_on = engine.go_on
        yield running


def _links_of(name: str, place: ProcessPlan, own_url: str | None, plan: PublishedPlan) -> ServedLinks | None:
    """The addresses of linked resources; None if the plan serves none.

    Raises:
        UsageError: the keys that seal them cannot be read.
    """
    if not plan.serves_links:
        return None
    # Imported only by an agent that serves links.
    from bridge.tools_as_agent.served_links import ServedLinks

    return ServedLinks(name, f"{place.public_url or own_url or ''}{path_of(name)}", keys_of(place))


def _with_links(agent: ToolsAgent | ForwardingAgent, server: AgentServer, inner: ASGIApp) -> ASGIApp:
    """An agent's application, with the linked resources that it serves now. Only an agent made of tools serves any."""
    if not isinstance(agent, ToolsAgent):
        return inner

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        links = agent.options.links
        if links is None or not scope["path"].removeprefix(scope.get("root_path", "")).startswith(LINKS_PATH):
            await inner(scope, receive, send)
            return
        # Imported only by an agent that serves links.
        from bridge.assembly.served_links.app import serve_link

        await serve_link(agent, links, server.admission, path_of(server.admission.face), scope, receive, send)

    return app


@asynccontextmanager
async def _cards_of(agent: ToolsAgent | ForwardingAgent, first_seconds: float) -> AsyncIterator[None]:
    """Keep the cards of remote agents fresh while the context is open."""
    if isinstance(agent, ToolsAgent):
        yield
        return
    async with agent.run(first_seconds):
        yield


class StoredTasks:
    """Implements `bridge.agents_as_agent.kept.TaskRecords` over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_task(self, task_id: str, owner: str) -> bytes:
        """See `TaskRecords.of_task`."""
        row = await self._store.load(task_id)
        return row.private if row is not None and row.origin.owner == owner else b""

    async def in_context(self, context_id: str, owner: str) -> tuple[bytes, ...]:
        """See `TaskRecords.in_context`. The newest tasks are enough: each keeps the remote context."""
        page = await self._store.list(Query(owner, _NEWEST, context_id))
        return tuple(row.private for row in page.tasks if row.private)


def forward_options_of(face: str, plan: PublishedPlan, *, is_local: bool, push: bool) -> ForwardOptions:
    """The options of an agent made of remote agents, from its profile."""
    profile = plan.profile
    return ForwardOptions(
        face=face,
        agents=profile.agents,
        run=profile.run,
        skill_keys=tuple(profile.route.metadata_keys),
        name=plan.card_name,
        description=plan.card_description,
        push=push,
        is_local=is_local,
    )


def agent_options_of(
    face: str,
    plan: PublishedPlan,
    model: Chooser | None = None,
    *,
    push: bool,
    links: ServedLinks | None = None,
) -> AgentOptions:
    """The options of an agent, from its profile. `model` is the model of the bridge. `push` says that the agent sends
    push notifications. `links` are the addresses of linked resources."""
    profile = plan.profile
    route = profile.route
    rules = RouteRules(
        tuple(route.metadata_keys),
        route.default_skill or None,
        route.text_into,
        route.language if plan.language is None or plan.language == "model" else plan.language,
        _ready_phrases(route),
    )
    return AgentOptions(
        face=face,
        route=rules,
        card=profile.card,
        arguments=profile.arguments,
        run=profile.run,
        content=profile.content,
        chooser=model if plan.language == "model" else None,
        push=push,
        name=plan.card_name,
        description=plan.card_description,
        extensions=plan.extensions,
        share=frozenset(plan.share),
        stand_ins=plan.stand_ins,
        links=links,
        shares_apps=plan.shares_apps,
        shares_logs=plan.shares_logs,
        shares_tasks=plan.shares_tasks,
    )


def _ready_phrases(route: RouteSettings) -> dict[str, SkillOverride]:
    """What the mapping profile says of skills, by pattern."""
    patterns = dict.fromkeys((*route.phrases, *route.read_only))
    return {
        pattern: SkillOverride(
            phrases=tuple(route.phrases[pattern]) if pattern in route.phrases else None,
            read_only=True if pattern in route.read_only else None,
        )
        for pattern in patterns
    }


def _engine_for(
    agent: ToolsAgent | ForwardingAgent,
    store: Store,
    profile: Profile,
    process: Profile,
    ids: IdsAndClock,
    webhooks: Webhooks | None,
) -> Engine:
    process_store = process.store
    quota = Quota(
        process_store.keep_ended_tasks,
        process_store.keep_ended_tasks_each,
        process_store.keep_ended_bytes,
        process_store.keep_ended_bytes_each,
    )
    retention = Retention(process_store.keep_ended_seconds, quota, process_store.clean_every_seconds)
    return Engine(
        agent,
        store,
        ids,
        EngineLimits(profile.run, process.requests, process.streams.queue_events),
        retention,
        webhooks,
    )
