"""A bridge: the running parts of a plan, and how another plan replaces it.

    tool servers ──▶ published agents ──▶ /agents/NAME
    remote agents ─▶ offered servers ───▶ /mcp/NAME      a published agent may be an agent of an offered server

Parts that differ between two plans are made anew; all others go on. The steps that can fail come first: until all new
parts are ready, nothing that is served has changed, and a plan that fails leaves nothing behind. Agents and servers
that stay are changed in place, so none of their sessions and tasks is lost. The parts that they no longer need end
after their last call.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import anyio
from starlette.types import ASGIApp

from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.login_lead import login_lead
from bridge.a2a.model.objects import AgentInterface
from bridge.a2a.server.catalog import CatalogAgent as Listed
from bridge.a2a.server.catalog import CatalogApp
from bridge.a2a.server.discovery import DiscoveryApp
from bridge.a2a.server.signed_cards import CardSigning
from bridge.assembly.admission import Admission
from bridge.assembly.card_signing import card_signer_of
from bridge.assembly.health.findings import Health
from bridge.assembly.health.running import failures_of, health_of
from bridge.assembly.model import model_of
from bridge.assembly.offered_server import (
    OfferedServer,
    agents_in,
    followed_catalog,
    offered,
)
from bridge.assembly.other_replicas import BridgeReplicas, ReplicaWords, replicas_of
from bridge.assembly.parts import MountedServer, Parts, PartTask, PlannedPart, RetiringParts, catalogs_of
from bridge.assembly.plan import (
    Changes,
    OfferedPlan,
    Plan,
    PublishedPlan,
    RemotePlan,
    as_it_runs,
    changes_between,
)
from bridge.assembly.published_agent import (
    MakeAgent,
    Peers,
    PublishedAgent,
    SharedByAgents,
    ToolRights,
    forwarding_agent,
    grpc_interfaces,
    path_of,
    published,
    tools_agent,
)
from bridge.assembly.push import notified, push_signer
from bridge.assembly.remote_agents import RemoteAgents, keys_of, shared_resources
from bridge.assembly.routes import MCP, OWN_DOOR_HEADER, Fitness, OwnDoor, Router, RoutingTable, readiness
from bridge.assembly.stores import login_configs_of_each
from bridge.assembly.telemetry import telemetry_of
from bridge.assembly.tool_servers import FirstConnections, StartObserver, ToolServers, skill_sources
from bridge.errors import PeerError, UsageError
from bridge.identity.callers.principals import Principal, PrincipalNames
from bridge.identity.pages.login_desk import DeskAddress, KnownPrincipals, LoginDesk
from bridge.local.user_folders import state_folder
from bridge.mcp.client.kept_listings import FOLDER_NAME, listings_in
from bridge.mcp.client.upstream import Upstream
from bridge.notices import Notice
from bridge.source_state import SourceState
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)


class Bridge:
    """Serves plans, one after another. The `ProcessPlan` of the first never changes; `apply` takes each plan."""

    def __init__(
        self,
        plan: Plan,
        observer: StartObserver | None = None,
        *,
        over_http: bool = True,
        own_url: str | None = None,
    ) -> None:
        """Serve nothing yet. Of the plan only its place, its credentials and the profile of the process count here.

        `own_url` is the URL at which this process reaches `app`. Without it no MCP server can be made of agents that
        are published here.
        """
        self._own_url = own_url
        self._place = plan.place
        self._process = plan.profile
        self._observer = observer
        self._over_http = over_http
        self.parts = Parts()
        """The parts that run and are not being replaced."""
        self.replicas: BridgeReplicas | None = None
        """The other replicas of this bridge; None for one that is alone."""
        self.grpc_ports: Mapping[str, int] = {}
        """The ports at which its agents are served over gRPC, too: "" for all agents, a name for one agent alone."""
        self.words = ReplicaWords()
        """What its parts tell the same parts of other replicas."""
        self._retiring: list[RetiringParts] = []
        self._remotes: dict[str, RemoteAgents] = {}
        """The remote agents of each published agent that is made of remote agents."""
        self._revoked = PrincipalNames()
        """Who has lost access by a file that was not applied yet."""
        self.on_retired: Callable[[], None] = lambda: None
        """Called each time that replaced parts have ended."""
        self.plan = Plan(plan.profile, plan.place, plan.credentials, issuers=plan.issuers)
        """The plan that is served."""
        self._read = self.plan
        self._applying = anyio.Lock()
        self.admission = Admission(plan)
        """Decides who may call, across changes of the plan."""
        self.access = self.admission.access
        """Tells who calls, and refuses others."""
        self._web = plan.place.web
        self._signing = CardSigning()
        self._login_desk = self._make_login_desk()
        self.app = Router(
            self._web,
            self.access,
            CatalogApp(self._listed, self.access, self._web, plan.profile.card.max_age_seconds),
            self._readiness_of,
            plan.place.proxies,
            self._login_desk,
            health=self.health,
            is_local=plan.place.is_local,
            origins=plan.place.origins,
        )
        self.app.discovery = DiscoveryApp(self._public, self._web, plan.profile.card.max_age_seconds)
        self.own_door = OwnDoor(self.app, self.admission.own_token)
        """The application at `own_url`, where the address for others takes TLS."""

    def _make_login_desk(self) -> LoginDesk:
        place = self._place
        return LoginDesk(
            DeskAddress(place.public_url or self._own_url, place.web, place.proxies, lambda: keys_of(place)),
            self.admission,
            login_lead,
            self._note,
            lambda error: self.telemetry.tell_of_sign_in("login", error=error),
        )

    def _make_tool_servers(self) -> ToolServers:
        keeps = self._place.remembers_servers
        folder = (self._place.state or state_folder()) / FOLDER_NAME
        return ToolServers(
            self._place.baggage_keys,
            self._login_desk.logins_at,
            self._observer,
            hops=self.hops,
            notify=self.telemetry.notify,
            on_change=self._server_changed,
            listings=self.replicas or listings_in(folder, keeps=keeps),
            guard=self._shared.guard,
            keeps=keeps,
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Bridge]:
        """Accept plans while the context is open; then end everything.

        Raises:
            UsageError: the key of the handles cannot be read or made, the database of the replicas is out of reach, the
                packages for spans are not installed, or the audit cannot be opened.
        """
        async with AsyncExitStack() as stack:
            self.telemetry = await stack.enter_async_context(
                telemetry_of(self._place, lambda: self.parts, lambda: self.fitness)
            )
            self.hops = self.telemetry.hops
            """Makes the hops of its requests."""
            push_url = self._place.public_url if self._over_http else None
            resources = shared_resources(
                self.plan, self.hops, push_url, self._login_desk.logins_at, self.telemetry.notify
            )
            self._shared = await stack.enter_async_context(resources)
            self.telemetry.definitions = self._shared.guard.states.values
            self.replicas = await stack.enter_async_context(replicas_of(self.plan, self._shared.seal))
            self._shared_by_agents = SharedByAgents(
                self._process,
                self._place,
                self.access,
                self.hops,
                self._signing,
                self.telemetry.notify,
                self._find_interfaces,
                await stack.enter_async_context(model_of(self._place.model, self.telemetry.notify)),
                self._own_url,
            )
            self._servers = self._make_tool_servers()
            if self.replicas is not None:
                self.replicas.share(self._shared.hints, self._states, self.words)
            self.app.notified = notified(
                self._shared,
                lambda mark: self.parts.remote_agent(mark),  # noqa: PLW0108 - the parts are replaced
            )
            if (signer := push_signer(self._place)) is not None:
                self.app.key_sources.append(signer.public_keys)
            self.app.key_sources.append(self._signing.public_keys)
            stack.push_async_callback(
                self.admission.issuers.close
            )  # once no task of the group asks them any more
            self._group = await stack.enter_async_context(anyio.create_task_group())
            self._group.start_soon(self._login_desk.tend)
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.parts.end()
                self._group.cancel_scope.cancel()

    async def apply(
        self,
        plan: Plan,
        *,
        patience_seconds: float = math.inf,
    ) -> Changes:
        """Serve a plan; return the changes it made, and those that need a restart.

        After `patience_seconds` the plan is served before its tool servers are up. A server whose `fail` is `closed`
        then ends the bridge's `run` when it turns out to be down.

        When this fails, everything goes on as it was, except that principals which the plan leaves out have lost
        their access already.

        Raises:
            PeerError: a tool server is down, and the plan's `fail` for it is `closed`.
            UsageError: a command with that `fail` cannot be started; a store is in use, or too new; two principals
                have one secret; a key cannot sign cards.
        """
        async with self._applying:
            running = replace(self.plan, profile=self._process, place=self._place)
            read, changes = plan, changes_between(self._read, plan, running)
            plan, fresh, first = as_it_runs(plan, running), Parts(), FirstConnections(self._observer)
            signer = card_signer_of(plan)
            self.admission.require_clear(plan)
            turned_away, self._revoked = self._revoked | self._turned_away(plan), PrincipalNames()
            self._shared.guard.update(plan.pinned)
            try:
                await self._servers.start(plan, self.parts, fresh, first, self._group, patience_seconds)
                await self._start_catalogs(plan, fresh)
                await self._start_published(plan, fresh)
                await self._start_offered(plan, fresh)
            except BaseException:
                first.give_up()
                with anyio.CancelScope(shield=True):
                    await fresh.end()
                self._shared.guard.update(self.plan.pinned)
                self._keep_out(plan, turned_away)
                raise
            self._signing.signer = signer
            self._take_over(plan, fresh)
            self._group.start_soon(self.admission.issuers.fetch_new_keys)
            for key in filter(plan.fails_closed, first.missing):
                self._group.start_soon(self._require_later, first, key, fresh.upstreams[key])
            for name, left_out in plan.left_out.items():
                if self._read.left_out.get(name) != left_out:
                    logger.warning("agents.%s at %s is left out: %s", name, left_out.place, left_out.words)
            self._read = read
            if self.replicas is not None:
                self.replicas.serve(plan)
            return changes

    def revoke(self, plan: Plan) -> bool:
        """Revoke the access of principals that a plan leaves out, before the plan is applied. Returns whether there
        were such principals. A plan in which two principals have one secret revokes nothing, since it is refused as
        a whole."""
        with suppress(UsageError):
            self.admission.require_clear(plan)
            turned_away = self._turned_away(plan)
            self._revoked |= turned_away
            if turned_away:
                logger.warning("access ends before the rest of the file is applied: %s", turned_away)
            return bool(turned_away)
        return False

    def _turned_away(self, plan: Plan) -> PrincipalNames:
        turned_away = self.admission.turn_away(plan)
        for parts in self._running_parts():
            parts.end_streams_of(turned_away)
        return turned_away

    def _keep_out(self, plan: Plan, turned_away: PrincipalNames) -> None:
        """Note who has lost access although the plan is not taken over."""
        self._revoked = PrincipalNames()
        if turned_away:
            known = {**plan.issuers, **self._read.issuers}
            left = {name: known[name] for name in self.admission.trusted}
            self._read = replace(self._read, credentials=self.admission.credentials, issuers=left)
            logger.warning("access ends although the file is refused: %s", turned_away)

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and wait at most `seconds` for running work."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.parts.drain, seconds)
            for retiring in self._retiring:
                group.start_soon(retiring.ended.wait)

    async def stop(self) -> None:
        """Stop all running tasks."""
        for parts in self._running_parts():
            for published_agent in parts.agents:
                await published_agent.engine.stop()

    @property
    def asks_for_credentials(self) -> bool:
        """Whether a request without a secret is refused. Only a plan with `allow_unauthenticated` ends this."""
        return self.access.needs_token

    @property
    def drain_seconds(self) -> float:
        """How long running tasks may go on after new work is refused: the longest time of all profiles."""
        profiles = [plan.profile for plan in self.plan.published.values()]
        profiles += [plan.profile for plan in self.plan.offered.values()]
        return max((profile.run.drain_seconds for profile in profiles), default=0)

    @property
    def running(self) -> int:
        """The number of running tasks and calls."""
        return self.parts.running + sum(retiring.parts.running for retiring in self._retiring)

    @property
    def published(self) -> tuple[PublishedAgent, ...]:
        """The published agents, made of tools or of remote agents."""
        return self.parts.agents

    @property
    def offered(self) -> tuple[OfferedServer, ...]:
        """The MCP servers made of agents."""
        return tuple(face.offered for face in self.parts.faces)

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The tool servers, by key."""
        return self.parts.upstreams

    @property
    def catalogs(self) -> Mapping[str, CatalogSource]:
        """The catalogs that are followed, by key."""
        return {key: catalog.unit.value for key, catalog in self.parts.catalogs.items()}

    # Tool servers and catalogs

    async def _require_later(self, first: FirstConnections, key: str, upstream: Upstream) -> None:
        """End the bridge if a required server turns out to be down, unless a newer plan leaves the server out."""
        try:
            await first.require(key, upstream)
        except (PeerError, UsageError):
            if self.parts.upstreams.get(key) is upstream:
                raise

    def _note(self, notice: Notice) -> None:
        self.telemetry.notify(notice)

    def _states(self) -> Iterator[SourceState]:
        """The states of the tool servers of agents. A server of several agents has a state for each agent."""
        return (
            state for published in self.parts.agents if published.tools for state in published.agent.sources
        )

    def _server_changed(self) -> None:
        """Refresh the agents after a tool server lists other tools, comes up or goes down."""
        for published_agent in self.parts.agents:
            published_agent.refresh()

    async def _start_catalogs(self, plan: Plan, fresh: Parts) -> None:
        for key in catalogs_of(plan):
            known, wanted = self.parts.catalogs.get(key), plan.catalogs[key]
            if known is None or known.plan != wanted:
                unit = PartTask(partial(followed_catalog, key, wanted, self._shared, self._catalog_changed))
                await unit.start(self._group)
                fresh.catalogs[key] = PlannedPart(wanted, unit)

    def _catalog_changed(self) -> None:
        for name, published_plan in self.plan.published.items():
            if published_plan.agents:
                self._update_published(self.parts, name, self.plan)
        self._update_offered(self.plan)

    # Faces

    async def _start_published(self, plan: Plan, fresh: Parts) -> None:
        for own_name, published_plan in plan.published.items():
            parts = self.parts | fresh
            name = own_name or self._servers.take_own_name(
                parts.servers[published_plan.servers[0]].unit.value
            )
            for retiring in [two for two in self._retiring if name in two.parts.published]:
                await retiring.ended.wait()  # its store is still in use
            if name not in self.parts.published:
                maker = self._maker_of(name, published_plan, plan, parts)
                unit = PartTask(
                    partial(
                        published,
                        name,
                        published_plan,
                        maker,
                        self._shared_by_agents,
                        operators=plan.has_operators,
                    )
                )
                await unit.start(self._group)
                fresh.published[name] = unit

    def _maker_of(self, name: str, published_plan: PublishedPlan, plan: Plan, parts: Parts) -> MakeAgent:
        """Makes a published agent of its tool servers or of its remote agents."""
        if published_plan.agents:
            agents = self._agents_of(published_plan.agents, plan, parts)
            remotes = self._remotes[name] = RemoteAgents(self._shared, own_extensions=())
            remotes.update(agents, published_plan.profile.agents)
            return partial(forwarding_agent, name, published_plan, remotes, self._place, self._shared.seal)
        find = None if self.replicas is None else self.replicas.find_unavailable
        agent = tools_agent(
            name,
            published_plan,
            skill_sources(name, published_plan, parts.servers),
            self._shared_by_agents,
            ToolRights(partial(self.admission.present, face=name), find),
        )
        return lambda _: agent

    def _peers_of(self, name: str, published_plan: PublishedPlan, plan: Plan) -> Peers:
        """What a published agent that stays is made of now."""
        if not published_plan.agents:
            return skill_sources(name, published_plan, self.parts.servers)
        agents = self._agents_of(published_plan.agents, plan, self.parts)
        self._remotes[name].update(agents, published_plan.profile.agents)
        return self._remotes[name]

    def _find_interfaces(self, base_url: str, name: str) -> tuple[AgentInterface, ...]:
        is_alone = len(self.parts.published) <= 1
        return grpc_interfaces(base_url, name, self.grpc_ports, self._place.grpc_public, is_alone=is_alone)

    async def _start_offered(self, plan: Plan, fresh: Parts) -> None:
        """Start new MCP servers concurrently, since each may wait a while for cards that it does not know yet."""
        parts = self.parts | fresh

        async def start(name: str, offered_plan: OfferedPlan) -> None:
            agents, unread = (
                self._agents_of(offered_plan.sources, plan, parts),
                parts.unread_catalogs(offered_plan),
            )
            unit = PartTask(partial(self._offering, name, offered_plan, agents, unread))
            await unit.start(self._group)
            fresh.offered[name] = unit

        async with anyio.create_task_group() as group:
            for name, offered_plan in plan.offered.items():
                if name not in self.parts.offered:
                    group.start_soon(start, name, offered_plan)

    @asynccontextmanager
    async def _offering(
        self, name: str, plan: OfferedPlan, agents: Mapping[str, RemotePlan], unread: Collection[str]
    ) -> AsyncIterator[MountedServer]:
        async with offered(name, plan, agents, self._shared, unread=unread) as offered_server:
            if not self._over_http:
                yield MountedServer(offered_server, None)
                return
            sharing = None if self.replicas is None else self.replicas.sharing
            async with offered_server.server.at(
                self.access, self._web, _mcp_path(name), name, sharing
            ) as app:
                yield MountedServer(offered_server, app)

    def _agents_of(self, sources: Sequence[str], plan: Plan, parts: Parts) -> dict[str, RemotePlan]:
        """The agents that these names stand for, by key: names of agents, catalogs and agents that are published
        here."""
        remotes: dict[str, RemotePlan] = {}
        for source in sources:
            if source in plan.agents:
                remotes[source] = plan.agents[source]
            elif source in plan.published:
                remotes[source] = self._own_agent(source, parts.published[source].value)
            else:
                listed = agents_in(source, parts.catalogs[source].unit.value, plan.catalogs[source])
                if taken := listed.keys() & (remotes.keys() | plan.agents.keys()):
                    logger.warning(
                        "catalog %s: agents whose names are already in use are left out: %s",
                        source,
                        ", ".join(taken),
                    )
                remotes |= {key: remote for key, remote in listed.items() if key not in taken}
        return remotes

    def _own_agent(self, name: str, agent: PublishedAgent) -> RemotePlan:
        """An agent that is published here, as an offered server calls it: over HTTP, like any other."""
        if self._own_url is None:
            raise UsageError(
                f"this configuration uses the agent {name}, which the same process serves:"
                ' give bridge.open the URL at which it reaches itself, as own_url="http://127.0.0.1:8080/bridge"'
            )
        url = f"{self._own_url}{path_of(name)}"
        door = {OWN_DOOR_HEADER: self.admission.own_token} if self._place.tls else {}
        return RemotePlan(
            url,
            headers={**self.admission.own_headers, **door},
            bearer=self.admission.own_bearer,
            account="itself",
            allow_private=True,
            push=False,
            own_card=agent.own_card(url),
            own_callers=self.admission.own_callers if self.admission.own_scheme else None,
        )

    # Replacement

    def _take_over(self, plan: Plan, fresh: Parts) -> None:
        """Change the parts that stay, and retire those that are no longer needed. Nothing here can fail."""
        before, wanted, seconds = self.parts, self.parts.wanted_by(plan), self.drain_seconds
        stays = wanted.published.keys() - fresh.published.keys()
        self.parts, self.plan = wanted | fresh, plan
        if self.telemetry.audit is not None:
            self.telemetry.audit.serve(plan)
        self._admit(plan)
        names = frozenset(credential.principal.name for credential in plan.credentials)
        issuers = {name: issuer.identity for name, issuer in plan.issuers.items()}
        self._login_desk.serve(login_configs_of_each(plan), KnownPrincipals(names, issuers))
        for name in stays & plan.published.keys():
            self._update_published(before, name, plan)
        for unit in fresh.published.values():
            unit.value.refresh()  # its servers may have come up while it could not be told
        self._update_offered(plan)
        retiring = RetiringParts(before.without(self.parts))
        self._retiring.append(retiring)
        self._route(starting=False)
        principals = {credential.principal.name: credential.principal for credential in plan.credentials}
        for line in self.parts.waiting_rights(tuple(principals.values())):
            logger.warning("%s", line)
        self._group.start_soon(self._retire, retiring, max(seconds, self.drain_seconds))

    def _update_published(self, parts: Parts, name: str, plan: Plan) -> None:
        published_plan = plan.published[name]
        peers = self._peers_of(name, published_plan, plan)
        parts.published[name].value.update(published_plan, peers, operators=plan.has_operators)

    def _update_offered(self, plan: Plan) -> None:
        for name, unit in self.parts.offered.items():
            agents = self._agents_of(plan.offered[name].sources, plan, self.parts)
            unread = self.parts.unread_catalogs(plan.offered[name])
            unit.value.offered.update(plan.offered[name], agents, unread)

    async def _retire(self, retiring: RetiringParts, seconds: float) -> None:
        """End parts that no new call can reach, after their calls have ended or the time is up."""
        try:
            await retiring.parts.drain(seconds)
            await retiring.parts.end()
        finally:
            self._retiring.remove(retiring)
            retiring.ended.set()
            self._route(starting=self.app.routes.starting)
            retiring.parts = Parts()  # the caller still knows of it
            self.on_retired()

    def _route(self, *, starting: bool) -> None:
        """Route to the current parts, and to retiring MCP servers, whose sessions may still answer questions."""
        faces: dict[str, ASGIApp] = {}
        for parts in (*(retiring.parts for retiring in self._retiring), self.parts):
            faces |= {_mcp_path(face.offered.name): face.app for face in parts.faces if face.app is not None}
        self.app.routes = RoutingTable(
            {published.path: published.app for published in self.parts.agents}, faces, starting
        )

    def _listed(self) -> list[Listed]:
        return [
            Listed(published.name, published.path, published.server.card) for published in self.parts.agents
        ]

    def _public(self) -> list[Listed]:
        public = {name for name, plan in self.plan.published.items() if plan.public}
        return [listed for listed in self._listed() if listed.name in public]

    def _admit(self, plan: Plan) -> None:
        """Admit the principals of a plan, and tell clients, because the lists they see depend on their rights."""
        changed = self.admission.admit(plan)
        for face in self.parts.faces:
            face.offered.server.admit_anew(changed)
            face.offered.server.changed()

    def _running_parts(self) -> Iterator[Parts]:
        """The parts that are served, then those that retire."""
        yield self.parts
        yield from (retiring.parts for retiring in self._retiring)

    def readiness(self) -> JsonObject:
        """Whether the bridge can do its work, as JSON; see `routes.readiness`."""
        state = self._readiness_of("")
        assert state is not None, "there is always a bridge"
        return state

    async def health(self, asker: Principal, base_url: str) -> Health:
        """The findings of the bridge about itself, and the newest failed tasks that an operator may see. `base_url` is
        the address of the bridge.

        Raises:
            StoreAwayError: a store cannot be reached.
        """
        findings = await health_of(
            self.plan, self.parts, self.replicas, self.telemetry.audit, self._shared.guard.states.values()
        )
        failures = await failures_of(
            self.parts.agents, asker, base_url, sees_contents=self._place.operators_see_contents
        )
        return Health(tuple(findings), tuple(failures))

    @property
    def fitness(self) -> Fitness:
        """Whether the bridge can do its work."""
        return Fitness(str(self.readiness()["status"]))

    def is_ready(self, name: str) -> bool | None:
        """Whether the faces of a name can do their work, or with "" the bridge; None if no face has the name."""
        state = self._readiness_of(name)
        return None if state is None else state["status"] != Fitness.NOT_READY

    def _readiness_of(self, name: str) -> JsonObject | None:
        """Whether the faces of this name can do their work; None if no face has the name."""
        report = readiness(self.parts, starting=self.app.routes.starting, name=name)
        if report is None:
            return None
        if self.replicas is not None and not name:
            report["replicas"] = self.replicas.report
        if not name and (differing := self._shared.guard.differing):
            report["definitions"] = differing
        if self.telemetry.audit is not None and (fault := self.telemetry.audit.fault) is not None:
            report |= {"status": Fitness.NOT_READY, "audit": fault}
        if closed := self.admission.closed:
            report |= {"status": Fitness.NOT_READY, "access": closed}
        return report


def _mcp_path(name: str) -> str:
    return f"{MCP}/{name}"
