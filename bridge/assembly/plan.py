"""Plans: values that say what to serve, made from a configuration file or from a command's options. Pure.

Plans are compared part by part, so that a reload changes only the parts that differ; `changes_between` names the
differences as the file does: changes taken over, and changes that need a restart. Some plans are derived from
another plan: for a single face, or for a preview. A bridge with a derived plan serves nobody but itself, and writes
nothing where another bridge may write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from bridge.a2a.client.agent_card import OwnCard
from bridge.a2a.client.catalog import CatalogSource
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.wire.canonical_card import CardForm
from bridge.a2a.wire.choices import BindingChoice, DialectChoice
from bridge.assembly.own_callers import OwnCallers
from bridge.config.import_file import LeftOut
from bridge.config.ready_mappings import ReadyMapping
from bridge.config.tables.models import ModelTable
from bridge.config.tables.profile import Profile
from bridge.config.tables.values import MEMORY_STORE, FaceLanguage
from bridge.config.text.wording import shown_url
from bridge.errors import UsageError
from bridge.http.request_checks import NO_PROXIES, FaceAddress, TrustedProxies, is_loopback
from bridge.http.tls import PeerTls, TlsFiles
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.tokens.oauth import ClientToken, TokenSource
from bridge.identity.tokens.token_endpoint import OAuthClient
from bridge.identity.tokens.token_exchange import CallerTokens
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.mcp.tools import StandInKind
from bridge.pinned.lock import PinnedAs, PinnedPlan
from bridge.replicas.replica_address import ReplicaAddress
from bridge.settings import RunSettings, ServerSettings
from bridge.telemetry.database_sight import DatabaseSight
from bridge.translate.extensions.mcp_requests import Shared
from bridge.translate.extensions.passed_metadata import DeclaredExtension
from bridge.translate.overrides import SkillOverride, ToolOverride

Fail = Literal["open", "closed"]

CONSOLE: Final = "/console"
"""The path of the console."""

STANDARD_OUTPUT: Final = Path("-")
"""The file of an audit that goes to standard output."""

_PROCESS_KEYS: Final = {
    "host": "host",
    "port": "port",
    "public_url": "public_url",
    "hosts": "hosts",
    "origins": "origins",
    "baggage": "baggage_keys",
    "keys": "keys",
    "store": "shared_store",
    "replica_url": "replica",
    "tls": "tls",
    "trusted_proxies": "proxies",
    "traces": "traces",
    "metrics": "metrics",
    "grpc": "grpc",
    "grpc_agents": "grpc_agents",
    "grpc_public": "grpc_public",
    "grpc_reflection": "grpc_reflection",
    "log_calls": "log_calls",
    "console": "console",
    "operators_see_contents": "operators_see_contents",
}
"""Keys of `[bridge]` that only a restart changes, and their attributes in a `ProcessPlan`."""

_PROCESS_TABLES: Final = ("store", "requests", "connections", "streams", "push", "issuers")
"""Tables of the profile of `[bridge]` that only a restart changes."""


@dataclass(frozen=True)
class ServerPlan:
    """A tool server to connect to."""

    target: ServerTarget
    era: Era
    settings: ServerSettings
    concurrency: int
    """The most calls at the same time."""
    queue: int
    """The most calls that wait for their turn."""
    fail: Fail | None = None
    """Whether the start fails while the server is down; None leaves that to the agent made of it."""
    call_timeout_seconds: float | None = None
    each_replica: bool = False
    """Whether each of several processes at one socket may start the command."""
    ready: ReadyMapping | None = None
    """The ready mapping of a well-known server."""
    stand_ins: frozenset[StandInKind] = frozenset()
    """What some agent wants to have presented as tools."""
    shows_apps: bool = False
    """Whether some agent shares its MCP Apps."""

    @classmethod
    def as_profile_says(
        cls, target: ServerTarget, era: Era, server: ServerSettings, run: RunSettings
    ) -> ServerPlan:
        """The plan of a server, with the settings of a profile."""
        return cls(target, era, server, run.concurrency, run.queue)


@dataclass(frozen=True)
class SignerPlan:
    """Whose signature the card of an agent must have."""

    place: str | Path
    """The URL or the file of the key set."""
    form: CardForm

    @property
    def sees_all(self) -> bool:
        """Whether its signatures cover all that the card requires."""
        return self.form is CardForm.STRICT


@dataclass(frozen=True)
class RemotePlan:
    """A remote agent."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)
    """Where its access tokens come from, which are sent in place of `bearer`."""
    callers: CallerTokens | None = field(default=None, repr=False)
    """Where the access tokens come from with which it is called in the names of callers; None calls it in the bridge's
    name."""
    tls: PeerTls | None = None
    """The certificate that it is shown, and the authorities of its own."""
    trusted: frozenset[str] = frozenset()
    """Origins that may receive the credentials, besides the origin of the URL."""
    account: str = ""
    """Tells apart entries with the same URL and different credentials. It names references, never values."""
    allow_private: bool | None = None
    """Whether a card from a public address may name a private one; None follows the profile."""
    uses_proxy: bool = True
    """Whether it is reached through the proxy of the environment, where there is one."""
    on_command_line: bool = field(default=False, compare=False)
    """Whether the agent comes from an option and not from a file; messages name the way to change it."""
    signed_by: SignerPlan | None = None
    """Whose signature its card must have; None takes any card."""
    dialect: DialectChoice = "auto"
    """The version of A2A that the agent speaks, when its card is wrong about it."""
    bindings: tuple[BindingChoice, ...] = ()
    """The bindings over which it may be called, the preferred one first; empty leaves the choice to its card."""
    extensions: tuple[str, ...] = ()
    """The URIs of extensions to activate, beside the bridge's own."""
    pinned: PinnedAs | None = None
    """How its skills are pinned; None if they are not."""
    push: bool = True
    """Whether it is asked to notify the bridge of long calls."""
    own_card: OwnCard | None = None
    """The agent's card, when this process publishes the agent."""
    own_callers: OwnCallers | None = field(default=None, repr=False)
    """Tells such an agent for whom it is called."""
    catalog: CatalogSource | None = field(default=None, repr=False, compare=False)
    """The catalog that lists the agent. The catalog decides which connections are allowed for it."""

    @property
    def credentials(self) -> Credentials:
        """The credentials that are sent to the agent."""
        return Credentials(
            headers=self.headers,
            bearer=self.bearer,
            api_key=self.api_key,
            tokens=self.tokens,
            tls=self.tls,
            sends_all=self.signed_by is not None and not self.signed_by.sees_all,
        )


@dataclass(frozen=True)
class CatalogPlan:
    """A catalog of agents."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    tokens: TokenSource | None = field(default=None, repr=False)
    """Where access tokens come from, for the catalog and the agents at its own origin."""
    allow_private: bool | None = None
    """Whether a public catalog may lead to a private address; None follows the profile."""
    tls: PeerTls | None = None
    """The certificate that the catalog and the agents at its own origin are shown, and the authorities of theirs."""
    uses_proxy: bool = True
    """Whether the catalog and its agents are reached through the proxy of the environment, where there is one."""


@dataclass(frozen=True)
class SharedStore:
    """A PostgreSQL in which several replicas keep the tasks of their agents."""

    url: str = field(repr=False)
    direct_url: str | None = field(default=None, repr=False)
    """The URL past a connection pool that gives each transaction another session."""
    sight: DatabaseSight = field(default_factory=DatabaseSight, repr=False, compare=False)
    """Tells the log that it is away, for all who use it."""

    def __str__(self) -> str:
        """Without the user and the password."""
        return shown_url(self.url)


@dataclass(frozen=True)
class PublishedPlan:
    """An agent made of tools, or of remote agents."""

    servers: tuple[str, ...]
    profile: Profile
    store: str | SharedStore | None = None
    """`memory:`, the path of the store's file, or a database; None is a file in the user's state folder."""
    card_name: str | None = None
    card_description: str | None = None
    extensions: tuple[DeclaredExtension, ...] = ()
    """Those that the card declares, beside the bridge's own."""
    share: tuple[Shared, ...] = ()
    """What it passes on of its tool servers besides tools."""
    stand_ins: frozenset[StandInKind] = frozenset()
    """Which of its tool servers' prompts and resources are skills, too."""
    serves_links: bool = False
    """Whether linked resources have addresses of the bridge."""
    shares_apps: bool = False
    """Whether it passes on the MCP Apps of its tool servers."""
    shares_logs: bool = False
    """Whether it passes on the log messages of its tool servers."""
    shares_tasks: bool = False
    """Whether it leaves it to the host of a call whether the call may become a task of its server."""
    public: bool = False
    """Whether everybody may find it."""
    fail: Fail | None = None
    language: FaceLanguage | None = None
    """None takes the language of the profile. With `model`, a model is asked what the language leaves open."""
    overrides: Mapping[str, SkillOverride] = field(default_factory=dict)
    agents: tuple[str, ...] = ()
    """The names of the remote agents, catalogs and published agents that it is made of, in place of tool servers."""

    @property
    def table(self) -> Literal["tools_as_agent", "agents_as_agent"]:
        """The section of the configuration that has its table."""
        return "agents_as_agent" if self.agents else "tools_as_agent"


@dataclass(frozen=True)
class OfferedPlan:
    """An MCP server made of agents."""

    sources: tuple[str, ...]
    """Names of agents, catalogs and agents that are published here."""
    profile: Profile
    named: bool = True
    """Whether agents are named by their keys in the plan; else by the names on their cards."""
    server_name: str | None = None
    """The name that the server gives itself; None is its name in the plan."""
    requires_an_agent: bool = False
    """Whether the start fails when every address is known to be something other than an agent."""
    title: str | None = None
    instructions: str | None = None
    overrides: Mapping[str, ToolOverride] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditPlan:
    """The audit of a process."""

    file: Path
    """`-` is standard output."""
    rotate_bytes: int
    """The size from which on a file is followed by another one."""
    refused_each_minute: int
    """The most lines of refusals whose sender is not known; further ones are counted."""
    required: bool = False
    """Whether each call waits until its line is on the disk."""
    hashes_principals: bool = False
    """Whether the names of principals are written as keyed hashes."""


@dataclass(frozen=True)
class PushPlan:
    """Where push notifications may be sent."""

    allow: frozenset[str] = frozenset()
    """`host:port` of receivers that may be on this machine or in its network."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is shared with receivers, by `host:port`."""


@dataclass(frozen=True)
class CardSigningPlan:
    """How cards are signed."""

    keys: tuple[str, ...] = field(repr=False)
    """The private keys in PEM."""
    forms: tuple[CardForm, ...]
    """What the signatures of each key cover."""


@dataclass(frozen=True)
class ProcessPlan:
    """Where the process listens, and where it keeps keys, stores and cached cards. Only a restart changes these."""

    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None
    hosts: frozenset[str] = frozenset()
    hosts_by: str = field(default="--allow-host {}", compare=False)
    """The option or line that allows another host; `{}` stands for its name."""
    origins: tuple[str, ...] = ()
    """The origins of web pages that may call MCP servers."""
    shared_store: SharedStore | None = None
    """The PostgreSQL in which the replicas of this bridge find each other; None for a bridge that is alone."""
    replica: ReplicaAddress | None = None
    """Where the others reach this one."""
    keys: tuple[Path | str, ...] = ()
    """Keys that seal handles: files, or the secrets themselves. Empty means a file in the user's state folder."""
    state: Path | None = None
    """The folder for keys and stores without a path of their own; None is the user's state folder."""
    remembers_servers: bool = True
    """Whether what is found out about tool servers is kept for the next start."""
    baggage_keys: frozenset[str] = frozenset()
    """Baggage keys that are sent to peers on other machines."""
    cache: Path | None = None
    """The folder for cached cards; None is the user's cache folder."""
    tls: TlsFiles | None = None
    """The files of its TLS; None serves plain HTTP. What stands in them is read again without a restart."""

    proxies: TrustedProxies = NO_PROXIES
    """Who may say in a header who calls."""
    push: PushPlan | None = None
    """None sends no push notifications."""
    model: ModelTable | None = None
    """The model that agents may ask; None asks none."""
    audit: AuditPlan | None = None
    """None writes no audit."""

    traces: str | None = None
    """The URL of the collector that gets spans; None makes none."""
    metrics: tuple[str, int] | None = None
    """The host and the port at which metrics are served; None counts nothing."""
    grpc: tuple[str, int] | None = None
    """The host and the port at which agents are served over gRPC, too; None serves them over HTTP alone."""
    grpc_agents: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """The host and the port of one agent alone over gRPC, by the agent's name."""
    grpc_public: str | None = None
    """The address of gRPC on cards; None makes it of the card's host and that port."""
    grpc_reflection: bool = False
    log_calls: bool = False
    """Whether each call has its line in the log."""
    console: bool = False
    """Whether people use it at `CONSOLE`."""
    operators_see_contents: bool = False
    """Whether operators see the contents of the tasks of others."""

    @property
    def grpc_addresses(self) -> dict[str, tuple[str, int]]:
        """All addresses of gRPC, by the name of the agent that is served there alone; "" for that of all agents."""
        return {**({"": self.grpc} if self.grpc else {}), **self.grpc_agents}

    @property
    def scheme(self) -> str:
        """The scheme of its address."""
        return "http" if self.tls is None else "https"

    @property
    def pages(self) -> tuple[str, ...]:
        """The paths of its pages for people, which callers need a token for, as for its other endpoints."""
        return (CONSOLE,) if self.console else ()

    @property
    def is_local(self) -> bool:
        """Whether nobody but this machine reaches the bridge, unless a proxy is there that the file does not name."""
        return is_loopback(self.host) and self.public_url is None and not self.proxies.networks

    @property
    def web(self) -> FaceAddress:
        """The addresses that requests are checked against."""
        return FaceAddress(self.public_url, self.hosts | {self.host}, self.hosts_by)


def _tls_of_issuer(tokens: object) -> PeerTls | None:
    """The TLS with the issuer of access tokens, by where they come from."""
    match tokens:
        case LoginToken(login_config=login_config):
            return login_config.issuer_tls
        case LoginConfig():
            return tokens.issuer_tls
        case ClientToken(client=client) | CallerTokens(client=client):
            return client.tls
        case OAuthClient():
            return tokens.tls
    return None


@dataclass(frozen=True)
class Plan:
    """Everything that one bridge serves."""

    profile: Profile
    """The profile of the process. Its tables `server`, `store`, `requests`, `connections`, `streams`, `push` and
    `issuers` count."""
    place: ProcessPlan = ProcessPlan()
    credentials: Sequence[Credential] = ()
    allow_unauthenticated: bool = False
    issuers: Mapping[str, Issuer] = field(default_factory=dict)
    """The issuers of tokens, by name. Their audiences are by the names of faces."""
    servers: Mapping[str, ServerPlan] = field(default_factory=dict)
    agents: Mapping[str, RemotePlan] = field(default_factory=dict)
    catalogs: Mapping[str, CatalogPlan] = field(default_factory=dict)
    published: Mapping[str, PublishedPlan] = field(default_factory=dict)
    """By the names in their paths. An agent with the name "" is named after its server."""
    offered: Mapping[str, OfferedPlan] = field(default_factory=dict)
    """By the names in their paths."""
    signing: CardSigningPlan | None = None
    """How the cards of published agents are signed; None leaves them unsigned."""
    pinned: PinnedPlan = field(default_factory=PinnedPlan)
    """Which definitions are approved, and what happens to others."""
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """Agents that an imported file lists and the bridge cannot call, by name."""

    def require_safe(self) -> None:
        """Refuse to listen beyond this machine without credentials, unless the plan allows it.

        Raises:
            UsageError: other machines could call the tools.
        """
        hosts = (self.place.host, *(host for host, _ in self.place.grpc_addresses.values()))
        open_host = next((host for host in hosts if not is_loopback(host)), None)
        if open_host is None or self.asks_for_credentials or self.allow_unauthenticated:
            return
        raise UsageError(
            f"listening on {open_host} lets other machines call the tools: give --auth bearer:env:NAME"
            " (in a file: a table [principals.NAME] or [issuers.NAME]), or --allow-unauthenticated to let everyone"
        )

    def tls_of_peers(self) -> Iterator[tuple[tuple[str, ...], PeerTls]]:
        """Yield the tables of peers, and of their issuers, that have TLS of their own, and what it is."""
        for path, tls, tokens in self._reached():
            if tls is not None:
                yield path, tls
            if (of_issuer := _tls_of_issuer(tokens)) is not None:
                yield (*path, "auth", "oauth2"), of_issuer

    def _reached(self) -> Iterator[tuple[tuple[str, str], PeerTls | None, object]]:
        """Yield the tables of peers, with their TLS and where their access tokens come from."""
        for name, server in self.servers.items():
            if isinstance(server.target, HttpTarget):
                yield ("tool_servers", name), server.target.tls, server.target.oauth
        for name, agent in self.agents.items():
            yield ("agents", name), agent.tls, agent.tokens or agent.callers
        for name, catalog in self.catalogs.items():
            yield ("catalogs", name), catalog.tls, catalog.tokens

    @property
    def has_operators(self) -> bool:
        """Whether some callers may be operators."""
        return any(credential.principal.operator for credential in self.credentials) or any(
            any(issuer.operators.values()) for issuer in self.issuers.values()
        )

    @property
    def asks_for_credentials(self) -> bool:
        """Whether a request without a credential is refused."""
        return bool(self.credentials or self.issuers)

    def fails_closed(self, server: str) -> bool:
        """Whether the start fails while this server is down."""
        own = self.servers[server].fail or self.profile.server.fail
        wanted = {
            published.fail or own for published in self.published.values() if server in published.servers
        }
        return "closed" in wanted


LOOPBACK_HOST: Final = "127.0.0.1"
STDIO_PRINCIPAL: Final = Principal("nobody")


def calls_itself(plan: Plan) -> bool:
    """Whether an offered server uses agents that the same plan publishes. It calls them over HTTP."""
    return any(source in plan.published for offered in plan.offered.values() for source in offered.sources)


def with_one_agent(plan: Plan, name: str) -> Plan:
    """The plan reduced to one published agent."""
    return replace(plan, published={name: plan.published[name]}, offered={})


def with_one_server(plan: Plan, name: str) -> Plan:
    """The plan with only one of its MCP servers. The agents of this process that the server uses keep their tasks in
    memory."""
    offered_plan = plan.offered[name]
    published = {
        source: plan.published[source] for source in offered_plan.sources if source in plan.published
    }
    return in_memory(replace(plan, published=published, offered={name: offered_plan}))


def for_stdio(plan: Plan, name: str, token: str) -> Plan:
    """The plan for one offered server over stdio. Agents that it uses take a token that only the bridge knows, so that
    nobody else can call them.

    Raises:
        UsageError: the audit goes to standard output, which belongs to the host.
    """
    if plan.place.audit is not None and plan.place.audit.file == STANDARD_OUTPUT:
        raise UsageError(
            "over stdio, standard output belongs to the host: give the audit a file,"
            ' as `file = "audit.jsonl"` in [audit]'
        )
    place = ProcessPlan(
        keys=plan.place.keys,
        state=plan.place.state,
        cache=plan.place.cache,
        host=LOOPBACK_HOST,
        traces=plan.place.traces,
        log_calls=plan.place.log_calls,
        audit=plan.place.audit,
    )
    credentials = (Credential(STDIO_PRINCIPAL, token),)
    return replace(with_one_server(plan, name), place=place, credentials=credentials, issuers={})


def for_preview(plan: Plan, folder: Path, key: str, within_seconds: float) -> Plan:
    """The plan for a preview: no wait is longer than `within_seconds`, no peer has to be up, and nothing is kept.

    Caches are not used, so that the preview shows the present state.
    """
    patient = in_memory(plan)
    return replace(
        patient,
        profile=_waiting(plan.profile, within_seconds),
        place=replace(
            patient.place,
            keys=(key,),
            cache=folder,
            remembers_servers=False,
            traces=None,
            metrics=None,
            grpc=None,
            grpc_agents={},
            log_calls=False,
            audit=None,
            console=False,
        ),
        servers={
            name: replace(
                server,
                fail="open",
                settings=server.settings.having(
                    connect_seconds=min(server.settings.connect_seconds, within_seconds)
                ),
            )
            for name, server in plan.servers.items()
        },
        signing=None,
        published={name: replace(published, fail="open") for name, published in patient.published.items()},
        offered=_offered_waiting(plan.offered, within_seconds),
    )


def in_memory(plan: Plan) -> Plan:
    """The plan with all tasks in memory, of a bridge that is alone."""
    published: Mapping[str, PublishedPlan] = {
        name: replace(published, store=MEMORY_STORE) for name, published in plan.published.items()
    }
    return replace(plan, published=published, place=replace(plan.place, shared_store=None))


def _offered_waiting(offered: Mapping[str, OfferedPlan], seconds: float) -> dict[str, OfferedPlan]:
    return {
        name: replace(offered_plan, profile=_waiting(offered_plan.profile, seconds))
        for name, offered_plan in offered.items()
    }


def _waiting(profile: Profile, seconds: float) -> Profile:
    agents = profile.agents.having(first_cards_seconds=seconds)
    return profile.having(agents=agents)


@dataclass(frozen=True)
class Changes:
    """The keys of the file that differ."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    """Settings that need a restart."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.later)

    def __str__(self) -> str:
        """One line for the log."""
        verbs = {"added": self.added, "changed": self.changed, "removed": self.removed}
        now = "; ".join(f"{verb} {', '.join(keys)}" for verb, keys in verbs.items() if keys)
        taken = f"the configuration was read again and taken over: {now}" if now else ""
        wait = f"a restart is needed for {', '.join(self.later)}" if self.later else ""
        return (
            "; ".join(filter(None, [taken, wait])) or "the configuration was read again: nothing has changed"
        )


def changes_between(before: Plan, after: Plan, running: Plan) -> Changes:
    """Compare a plan with the one read before. `running` has the place, profile and stores of the running process."""
    tables = list(zip(_tables(before).items(), _tables(after).values(), strict=True))
    return Changes(
        tuple(f"{table}.{name}" for (table, old), new in tables for name in new if name not in old),
        (
            *(
                f"{table}.{name}"
                for (table, old), new in tables
                for name in old
                if old[name] != new.get(name, old[name])
            ),
            *(
                ["bridge.allow_unauthenticated"]
                if before.allow_unauthenticated != after.allow_unauthenticated
                else []
            ),
            *(["bridge.card_keys"] if before.signing != after.signing else []),
            *(["the lock"] if before.pinned.lock != after.pinned.lock else []),
        ),
        tuple(f"{table}.{name}" for (table, old), new in tables for name in old if name not in new),
        tuple(_later(before, after, running)),
    )


def as_it_runs(plan: Plan, running: Plan) -> Plan:
    """The plan, with the running settings where a change needs a restart."""
    published = {
        name: replace(published, store=running.published[name].store)
        if name in running.published
        else published
        for name, published in plan.published.items()
    }
    return replace(plan, place=running.place, published=published)


def _tables(plan: Plan) -> Mapping[str, Mapping[str, Any]]:
    return {
        "tool_servers": plan.servers,
        "agents": plan.agents,
        "catalogs": plan.catalogs,
        "tools_as_agent": {
            name: replace(published, store=None)
            for name, published in plan.published.items()
            if not published.agents
        },
        "agents_as_agent": {
            name: replace(published, store=None)
            for name, published in plan.published.items()
            if published.agents
        },
        "agents_as_tools": plan.offered,
        "principals": _by_principal(plan.credentials),
        "issuers": plan.issuers,
    }


def _by_principal(credentials: Sequence[Credential]) -> dict[str, list[Credential]]:
    names = dict.fromkeys(credential.principal.name for credential in credentials)
    return {
        name: [credential for credential in credentials if credential.principal.name == name]
        for name in names
    }


def _later(before: Plan, after: Plan, running: Plan) -> Iterator[str]:
    """Yield the settings that differ both from the last plan and from the running one."""
    for key, name in _PROCESS_KEYS.items():
        now = getattr(after.place, name)
        known = (getattr(before.place, name), getattr(running.place, name))
        if now not in known and not _is_any_port(key, now):
            yield f"bridge.{key}"
    if after.place.push not in (before.place.push, running.place.push):
        yield "[push]"
    if after.place.model not in (before.place.model, running.place.model):
        yield "[model]"
    if after.place.audit not in (before.place.audit, running.place.audit):
        yield "[audit]"
    for table in _PROCESS_TABLES:
        now = getattr(after.profile, table)
        if now not in (getattr(before.profile, table), getattr(running.profile, table)):
            yield f"[{table}] in the mapping profile of [bridge]"
    for name, published in after.published.items():
        stores = {plan.published[name].store for plan in (before, running) if name in plan.published}
        if stores and published.store not in stores and not isinstance(published.store, SharedStore):
            yield f"the store of {published.table}.{name}"


def _is_any_port(key: str, value: object) -> bool:
    return key == "port" and value == 0
