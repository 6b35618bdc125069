"""What is to be served, as values: made from a configuration file or from a command's options.

Two plans are compared part by part, so that a reload changes only what differs. Some plans are made from another one:
for a single face, or for a preview. A bridge of such a plan listens for nobody but itself and keeps nothing where
another bridge may keep something. Nothing here opens anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.wire.versions import DialectChoice
from bridge.access.principals import Principal
from bridge.access.verifiers import Credential
from bridge.assembly.own_card import OwnCard
from bridge.config.tables.profile import Profile, RunTable, ServerTable
from bridge.config.tables.values import MEMORY_STORE
from bridge.errors import UsageError
from bridge.http.request_checks import FaceAddress as WebPlace
from bridge.http.request_checks import is_loopback
from bridge.mcp.client.eras import Era
from bridge.mcp.client.link import ListBounds
from bridge.mcp.client.session import SessionPace
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import SessionRules
from bridge.translate.overrides import SkillOverride, ToolOverride

Fail = Literal["open", "closed"]


@dataclass(frozen=True)
class ServerPlan:
    """A tool server that is connected to."""

    target: ServerTarget
    era: Era
    pace: SessionPace
    rules: SessionRules
    fail: Fail | None = None
    """What it means for the start when it is down; None leaves that to the agent made of it."""
    call_timeout_seconds: float | None = None

    @classmethod
    def as_profile_says(
        cls, target: ServerTarget, era: Era, server: ServerTable, run: RunTable
    ) -> ServerPlan:
        """A server, treated as a profile says."""
        pace = SessionPace(
            connect_seconds=server.connect_seconds,
            longest_pause_seconds=server.longest_pause_seconds,
            retire_seconds=server.retire_seconds,
            settle_seconds=server.settle_seconds,
            concurrency=run.concurrency,
            attribution_seconds=server.attribution_seconds,
            unanswered_most=server.unanswered_most,
            list_bounds=ListBounds(server.tools_most, server.tools_limit_bytes, server.schema_values),
        )
        rules = SessionRules(
            per=server.session,
            shared=server.sessions,
            most=server.sessions_most,
            idle_seconds=server.session_idle_seconds,
            queue=run.queue,
            contended_question_seconds=server.contended_question_seconds,
        )
        return cls(target, era, pace, rules)


@dataclass(frozen=True)
class RemotePlan:
    """A remote agent."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    trusted: frozenset[str] = frozenset()
    """Origins to which credentials may go besides that of the URL."""
    account: str = ""
    """Tells apart entries of one URL with other credentials; names them by reference, never by value."""
    allow_private: bool | None = None
    """Whether a card from a public address may name a private one; None is as the profile says."""
    on_command_line: bool = field(default=False, compare=False)
    """Whether it is given there, and not in a file: who is refused is told so."""
    dialect: DialectChoice = "auto"
    """The version of A2A that it speaks, when its card says another one."""
    own_card: OwnCard | None = None
    """Its card, when it is published by this process."""
    catalog: CatalogSource | None = field(default=None, repr=False, compare=False)
    """The catalog that names it, which judges the connections that are made for it."""

    @property
    def credentials(self) -> Credentials:
        """What shows it who calls."""
        return Credentials(headers=self.headers, bearer=self.bearer, api_key=self.api_key)


@dataclass(frozen=True)
class CatalogPlan:
    """A catalog of agents."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    allow_private: bool | None = None
    """Whether it may lead to a private address although it is public; None is as the profile says."""


@dataclass(frozen=True)
class PublishedPlan:
    """An agent made of tools."""

    servers: tuple[str, ...]
    profile: Profile
    store: str | None = None
    """`memory:` or the path of its file; None is a file in the user's state folder."""
    card_name: str | None = None
    card_description: str | None = None
    fail: Fail | None = None
    overrides: Mapping[str, SkillOverride] = field(default_factory=dict)


@dataclass(frozen=True)
class OfferedPlan:
    """An MCP server made of agents."""

    sources: tuple[str, ...]
    """Names of agents, catalogs and agents that are published here."""
    profile: Profile
    named: bool = True
    """Whether sources are called by their names in the plan; else by what their cards call them."""
    server_name: str | None = None
    """What it calls itself; None is its name in the plan."""
    requires_an_agent: bool = False
    """Whether the start fails when all of its addresses are something else than agents."""
    title: str | None = None
    instructions: str | None = None
    overrides: Mapping[str, ToolOverride] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessPlan:
    """Where the process listens, what it keeps and for whom it does so: all that only a restart changes."""

    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None
    hosts: frozenset[str] = frozenset()
    hosts_by: str = field(default="--allow-host {}", compare=False)
    """How another host is added, with its name in the place of the braces."""
    keys: tuple[Path | str, ...] = ()
    """What seals handles: files, and secrets as they are. None is a file in the user's state folder."""
    state: Path | None = None
    """Where keys and stores are that have no place of their own; None is the user's state folder."""
    baggage_keys: frozenset[str] = frozenset()
    """Those of a trace's baggage that peers beyond this machine are told."""
    cache: Path | None = None
    """Where cards are remembered; None is the user's cache folder."""

    @property
    def web(self) -> WebPlace:
        """As requests are checked by it."""
        return WebPlace(self.public_url, self.hosts | {self.host}, self.hosts_by)


@dataclass(frozen=True)
class Plan:
    """All of it."""

    profile: Profile
    """Of the process: its `server`, `store`, `requests`, `connections` and `streams` tables count."""
    place: ProcessPlan = ProcessPlan()
    credentials: Sequence[Credential] = ()
    allow_unauthenticated: bool = False
    servers: Mapping[str, ServerPlan] = field(default_factory=dict)
    agents: Mapping[str, RemotePlan] = field(default_factory=dict)
    catalogs: Mapping[str, CatalogPlan] = field(default_factory=dict)
    published: Mapping[str, PublishedPlan] = field(default_factory=dict)
    """By the names in their paths. One called "" is named after its server."""
    offered: Mapping[str, OfferedPlan] = field(default_factory=dict)
    """By the names in their paths."""

    def require_safe(self) -> None:
        """Refuse to be open to others without credentials, unless told to.

        Raises:
            UsageError: it would be.
        """
        if is_loopback(self.place.host) or self.credentials or self.allow_unauthenticated:
            return
        raise UsageError(
            f"listening on {self.place.host} lets other machines call the tools: give --auth bearer:env:NAME"
            " (in a file: a table [principals.NAME]), or --allow-unauthenticated to let everyone"
        )

    def fails_closed(self, server: str) -> bool:
        """Whether the start fails when this server is down."""
        said = self.servers[server].fail or self.profile.server.fail
        wanted = {one.fail or said for one in self.published.values() if server in one.servers}
        return "closed" in wanted


LOOPBACK_HOST: Final = "127.0.0.1"
STDIO_PRINCIPAL: Final = Principal("nobody")


def calls_itself(plan: Plan) -> bool:
    """Whether an offered server is made of agents that are published beside it, which are called over HTTP."""
    return any(source in plan.published for one in plan.offered.values() for source in one.sources)


def with_one_agent(plan: Plan, name: str) -> Plan:
    """What one published agent needs, and nothing else."""
    return replace(plan, published={name: plan.published[name]}, offered={})


def with_one_server(plan: Plan, name: str) -> Plan:
    """What one offered server needs, and nothing else. Agents that are published for it are in memory."""
    one = plan.offered[name]
    published = {source: plan.published[source] for source in one.sources if source in plan.published}
    return in_memory(replace(plan, published=published, offered={name: one}))


def for_stdio(plan: Plan, name: str, token: str) -> Plan:
    """One offered server for whoever starts it. What it is made of takes a token that nobody is told, so that the
    bridge alone calls it."""
    place = ProcessPlan(
        keys=plan.place.keys, state=plan.place.state, cache=plan.place.cache, host=LOOPBACK_HOST
    )
    return replace(
        with_one_server(plan, name), place=place, credentials=(Credential(STDIO_PRINCIPAL, token),)
    )


def for_preview(plan: Plan, folder: Path, key: str, within_seconds: float) -> Plan:
    """All that is served, with nobody waited for longer than so long, whoever is down, and all of it kept nowhere.

    Nothing remembered counts: what is seen is what is there now.
    """
    patient = in_memory(plan)
    return replace(
        patient,
        profile=_waiting(plan.profile, within_seconds),
        place=replace(plan.place, keys=(key,), cache=folder),
        servers={
            name: replace(
                one,
                fail="open",
                pace=replace(one.pace, connect_seconds=min(one.pace.connect_seconds, within_seconds)),
            )
            for name, one in plan.servers.items()
        },
        published={name: replace(one, fail="open") for name, one in patient.published.items()},
        offered=_offered_waiting(plan.offered, within_seconds),
    )


def in_memory(plan: Plan) -> Plan:
    """The same, with all tasks in memory."""
    published: Mapping[str, PublishedPlan] = {
        name: replace(one, store=MEMORY_STORE) for name, one in plan.published.items()
    }
    return replace(plan, published=published)


def _offered_waiting(offered: Mapping[str, OfferedPlan], seconds: float) -> dict[str, OfferedPlan]:
    return {name: replace(one, profile=_waiting(one.profile, seconds)) for name, one in offered.items()}


def _waiting(profile: Profile, seconds: float) -> Profile:
    agents = profile.agents.model_copy(update={"first_cards_seconds": seconds})
    return profile.model_copy(update={"agents": agents})
