"""The remote agents of a face, and what all of them share in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2

from bridge.a2a.client.agent_card import CardSource, VerifiesCards
from bridge.a2a.client.agent_client import ClientOptions, Deadlines, OpenGrpc
from bridge.a2a.client.card_places import base_url
from bridge.a2a.client.credentials import card_credentials
from bridge.a2a.client.http import redacted_url
from bridge.a2a.client.http_cache import FreshnessBounds
from bridge.a2a.client.interfaces import ConnectionPolicy, Trust
from bridge.a2a.client.version_question import version_question
from bridge.a2a.wire.versions import VERSIONS
from bridge.agents_as_tools.push_hints import PushHints
from bridge.assembly.plan import Plan, ProcessPlan, RemotePlan
from bridge.config.tables.profile import Profile
from bridge.errors import UsageError
from bridge.http.client import GuardedClient
from bridge.identity.logins.each_login import EachLogin
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.logins.later_login import LaterLogin
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.local.private_files import private_folder
from bridge.local.user_folders import cache_folder, state_folder
from bridge.notices import Notify, TokenListener, ignore_notice
from bridge.pinned.guard import DefinitionGuard
from bridge.pinned.lock import agent_title
from bridge.remotes.approved_card import ApprovedCard
from bridge.remotes.grpc_calls import GrpcTransports
from bridge.remotes.on_behalf import ByExchange, ByHeader, ByLogin, OnBehalf
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import Seal, agent_mark, key_in, keys_in
from bridge.settings import AgentSettings
from bridge.text.safe_text import shell_word
from bridge.trace import UNHEARD, Hops
from bridge.translate.extensions import apps, host_tasks, log_messages, mcp_requests
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
    guard: DefinitionGuard = field(default_factory=DefinitionGuard)
    """Compares the definitions of servers and agents with the lock."""
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
        GrpcTransports() as calls,
    ):
        hints = PushHints(push_url)
        guard = DefinitionGuard(notify)
        guard.update(plan.pinned)
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
            guard,
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


class RemoteAgents:
    """The remote agents of one face, by key. Those whose plan has not changed are kept."""

    def __init__(
        self,
        shared: SharedResources,
        own_extensions: tuple[str, ...] = (URI, mcp_requests.URI, apps.URI, log_messages.URI, host_tasks.URI),
    ) -> None:
        """`own_extensions` are those of the bridge that are activated in each request."""
        self.by_key: dict[str, RemoteAgent] = {}
        self.plans: Mapping[str, RemotePlan] = {}
        self._settings: AgentSettings | None = None
        self._shared = shared
        self._own_extensions = own_extensions

    def update(self, plans: Mapping[str, RemotePlan], settings: AgentSettings, *, named: bool = True) -> None:
        """Take over other plans. `settings` is the `[agents]` table of the face's profile. `named` says that the agents
        are named by their keys; else by the names on their cards."""
        self.by_key = {
            key: self.by_key[key]
            if settings == self._settings and self.plans.get(key) == remote
            else _remote_agent(
                key, remote, settings, self._shared, named=named, own_extensions=self._own_extensions
            )
            for key, remote in plans.items()
        }
        self.plans, self._settings = plans, settings


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


def _remote_agent(
    key: str,
    remote: RemotePlan,
    chosen: AgentSettings,
    shared: SharedResources,
    *,
    named: bool,
    own_extensions: tuple[str, ...],
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
        approve=ApprovedCard(shared.guard, agent_title(key)) if remote.pinned else lambda card: card,
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
