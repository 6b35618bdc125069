"""A published agent made of tools: its tasks, their store, and its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.client.agent_card import OwnCard
from bridge.a2a.layers.chain import layers_around, shared
from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.push.sender import PushSender
from bridge.a2a.server.app import AgentLimits, AgentServer, FindInterfaces, no_interfaces
from bridge.a2a.server.service import Service
from bridge.a2a.server.signed_cards import CardSigning
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.intake import EngineLimits
from bridge.a2a.tasks.webhooks import Webhooks
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.a2a.wire.versions import VERSIONS
from bridge.assembly.ids import OrderedIds, clock_of, elapsed_ms, now_ms
from bridge.assembly.offered_server import keys_of
from bridge.assembly.plan import ProcessPlan, PublishedPlan
from bridge.assembly.push import webhooks_of
from bridge.assembly.stores import store_for
from bridge.config.tables.profile import Profile
from bridge.identity.callers.verifiers import Access
from bridge.notices import Notify, ignore_notice
from bridge.settings import RouteSettings
from bridge.store.contract import Store
from bridge.store.records import Quota
from bridge.store.retention import Retention
from bridge.tools_as_agent.agent import SkillSource, ToolsAgent
from bridge.tools_as_agent.caller_login import Present
from bridge.tools_as_agent.chooser import Chooser
from bridge.tools_as_agent.options import AgentOptions
from bridge.trace import UNHEARD, Hops
from bridge.translate.extensions.availability import FindUnavailable
from bridge.translate.extensions.bridge import GATED
from bridge.translate.message_to_call import RouteRules
from bridge.translate.overrides import SkillOverride

if TYPE_CHECKING:
    from bridge.tools_as_agent.served_links import ServedLinks

LINKS_PATH: Final = "/links/"
"""What the path of a linked resource begins with, below the path of its agent."""


def _no_links(_: PublishedPlan) -> None: ...


@dataclass(frozen=True)
class PublishedAgent:
    """A published agent that runs."""

    name: str
    agent: ToolsAgent
    engine: Engine
    tasks: TaskOperations
    """The operations of the engine, without the layers that a changed file may change."""
    service: Service
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
    def path(self) -> str:
        """The path of the agent's base URL."""
        return path_of(self.name)

    def own_card(self, base_url: str) -> OwnCard:
        """The agent's card for MCP servers of this process: one object for each `base_url` of the process."""
        return self._own_cards.setdefault(
            base_url, OwnCard(base_url, self.server.whole_card, lambda: not self.agent.unknown)
        )

    def refresh(self) -> None:
        """Take over the present tools of the agent's servers."""
        self.agent.refresh()
        self._announce_card_change()

    def update(self, plan: PublishedPlan, sources: Sequence[SkillSource], *, operators: bool) -> None:
        """Take over another plan and other servers. Calls in flight keep the servers and layers that they began
        with."""
        self.service.tasks = layers_around(self.tasks, self.engine, operators=operators)
        self.agent.update(
            sources,
            agent_options_of(
                self.name, plan, self.model, push=self.push is not None, links=self.links_of(plan)
            ),
            plan.overrides,
        )
        self.engine.limits = replace(self.engine.limits, run=plan.profile.run)
        self._announce_card_change()

    def _announce_card_change(self) -> None:
        for card in self._own_cards.values():
            card.note_change()


def path_of(name: str) -> str:
    """The path of a published agent."""
    return f"/agents/{name}"


@asynccontextmanager
async def published(
    name: str,
    plan: PublishedPlan,
    sources: Sequence[SkillSource],
    process: Profile,
    place: ProcessPlan,
    access: Access,
    present: Present,
    hops: Hops = UNHEARD,
    signing: CardSigning | None = None,
    find_unavailable: FindUnavailable | None = None,
    notify: Notify = ignore_notice,
    find_interfaces: FindInterfaces = no_interfaces,
    model: Chooser | None = None,
    *,
    operators: bool = False,
    own_url: str | None = None,
) -> AsyncIterator[PublishedAgent]:
    """Run an agent while the context is open, with its stored tasks recovered.

    `operators` says that some callers may be operators, `present` tells the rights of its callers, `find_unavailable`
    what its replicas say of its servers, `notify` takes notices, `find_interfaces` finds interfaces of its card, and
    `model` chooses skills for texts. `own_url` is the address of the bridge where it has no public one.

    Raises:
        UsageError: the store is in use, too new, or out of reach.
    """
    sends = place.push is not None
    links_of = partial(_links_of, name, place, own_url)
    options = agent_options_of(name, plan, model, push=sends, links=links_of(plan))
    agent = ToolsAgent(
        sources,
        options,
        plan.overrides,
        now_ms=now_ms,
        present=present,
        find_unavailable=find_unavailable,
        is_open=lambda: not access.needs_token,
    )
    store, where = store_for(name, plan, place, process)
    clock, gate = clock_of(store), ExtensionFilter(GATED)
    ids = IdsAndClock(OrderedIds(clock).new, clock, elapsed_ms)
    async with (
        store,
        webhooks_of(store, place, process, ids, gate, name, notify) as push,
        _engine_for(
            agent, store, plan.profile, process, ids, None if push is None else push.webhooks
        ) as engine,
    ):
        tasks = shared(engine, store)
        service = Service(
            engine, gate, process.requests.parts, layers_around(tasks, engine, operators=operators)
        )
        server = AgentServer(
            agent,
            service,
            access,
            place.web,
            AgentLimits(process.requests, process.streams, plan.profile.card),
            name=name,
            versions=VERSIONS.served(
                merges_cards=plan.profile.card.legacy_card, hermes=plan.profile.card.hermes, push=sends
            ),
            hops=hops,
            signing=signing,
            find_interfaces=find_interfaces,
            shows_operators_contents=place.operators_see_contents,
        )
        sender = None if push is None else push.sender
        app = _with_links(agent, server, server.at(path_of(name)))
        yield PublishedAgent(name, agent, engine, tasks, service, server, app, where, sender, model, links_of)


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


def _with_links(agent: ToolsAgent, server: AgentServer, inner: ASGIApp) -> ASGIApp:
    """An agent's application, with the linked resources that it serves now."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        links = agent.options.links
        if links is None or not scope["path"].removeprefix(scope.get("root_path", "")).startswith(LINKS_PATH):
            await inner(scope, receive, send)
            return
        # Imported only by an agent that serves links.
        from bridge.assembly.served_links.app import serve_link

        await serve_link(agent, links, server.admission, path_of(server.admission.face), scope, receive, send)

    return app


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
    agent: ToolsAgent,
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
