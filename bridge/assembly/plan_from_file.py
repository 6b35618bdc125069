"""Makes a plan of a configuration, whether it comes from a file or from options. Each table becomes a part's plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from bridge.a2a.client.card_places import agent_url
from bridge.a2a.client.http import origin_of
from bridge.a2a.wire.canonical_card import CardForm
from bridge.assembly.from_file.callers_from_file import credentials_of, issuer_of
from bridge.assembly.from_file.peer_credentials import (
    caller_tokens_of,
    login_config_of,
    login_of_agent,
    login_of_server,
    oauth_client,
    peer_tls,
    tokens_of,
)
from bridge.assembly.plan import (
    AuditPlan,
    CardSigningPlan,
    CatalogPlan,
    OfferedPlan,
    Plan,
    ProcessPlan,
    PublishedPlan,
    PushPlan,
    RemotePlan,
    ServerPlan,
    SharedStore,
    SignerPlan,
)
from bridge.config.load import LoadedConfig
from bridge.config.ready_mappings import ready_mapping_for
from bridge.config.tables.models import (
    AgentsAsAgentTable,
    AgentsAsToolsTable,
    AgentTable,
    ArgumentTable,
    AuditTable,
    BridgeTable,
    CatalogTable,
    GroupTable,
    SentPushTable,
    SkillTable,
    TlsTable,
    ToolsAsAgentTable,
    ToolServerTable,
    ToolTable,
)
from bridge.config.tables.peers import (
    KeyPlace,
    SignedByTable,
)
from bridge.config.tables.profile import Profile
from bridge.config.tables.values import MEMORY_STORE
from bridge.config.text.secrets import Secret
from bridge.config.text.wording import POSTGRES_SCHEMES
from bridge.http.request_checks import TrustedProxies, network_of
from bridge.http.tls import TlsFiles
from bridge.identity.logins.login_credentials import LoginConfig, LoginToken
from bridge.identity.tokens.token_exchange import CallerTokens
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.in_process import InProcessTarget, low_level
from bridge.mcp.client.transports.stdio import ChildPace, StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.mcp.tools import StandInKind
from bridge.pinned.lock import Lock, PinnedPlan, agent_title, server_title
from bridge.replicas.replica_address import ReplicaAddress
from bridge.settings import ServerSettings
from bridge.translate.extensions.passed_metadata import DeclaredExtension
from bridge.translate.overrides import ArgumentRule, SkillOverride, ToolOverride


def plan_from_file(loaded: LoadedConfig) -> Plan:
    """Make the plan of a configuration."""
    config, table = loaded.config, loaded.config.bridge
    process, place, on_line = loaded.bridge_profile, _place(loaded), loaded.on_command_line
    pinned = _pinned(loaded)
    return Plan(
        profile=process,
        place=place,
        credentials=[
            credential
            for name, principal in config.principals.items()
            for credential in credentials_of(
                name, principal, config.groups.get(principal.group or "", GroupTable())
            )
        ],
        issuers={name: issuer_of(name, issuer) for name, issuer in config.issuers.items()},
        allow_unauthenticated=table.allow_unauthenticated,
        signing=_signing(table),
        servers={
            key: _as_agents_use_it(
                key,
                _server(key, table, process, place, loaded.servers, on_line=on_line),
                config.tools_as_agent.values(),
            )
            for key, table in config.tool_servers.items()
        },
        agents={
            key: replace(
                _remote(key, table, config.agents, process, place, on_line=on_line),
                pinned=pinned.of(agent_title(key)),
            )
            for key, table in config.agents.items()
        },
        catalogs={key: _catalog(key, table, process, place) for key, table in config.catalogs.items()},
        published={
            **{name: _published(name, table, loaded) for name, table in config.tools_as_agent.items()},
            **{name: _forwarding(name, table, loaded) for name, table in config.agents_as_agent.items()},
        },
        offered={name: _offered(table, loaded) for name, table in config.agents_as_tools.items()},
        pinned=pinned,
        left_out=loaded.left_out,
    )


def _pinned(loaded: LoadedConfig) -> PinnedPlan:
    """Which servers and agents are pinned. Once there is a lock, all are, unless the file says otherwise."""
    config = loaded.config
    usual = config.bridge.pinned or ("off" if loaded.lock is None else "warn")
    titled = {
        **{server_title(key): server.pinned for key, server in config.tool_servers.items()},
        **{agent_title(key): agent.pinned for key, agent in config.agents.items()},
    }
    modes = {title: mode or usual for title, mode in titled.items()}
    return PinnedPlan({title: mode for title, mode in modes.items() if mode != "off"}, loaded.lock or Lock())


def _place(loaded: LoadedConfig) -> ProcessPlan:
    """The plan of the process itself."""
    config, table = loaded.config, loaded.config.bridge
    return ProcessPlan(
        host=table.host,
        port=table.port,
        public_url=table.public_url,
        tls=_tls(table.tls),
        proxies=TrustedProxies(
            (table.principal_header or "").lower(),
            tuple(network_of(network) for network in table.trusted_proxies),
        ),
        hosts=frozenset(table.hosts),
        origins=table.origins,
        baggage_keys=frozenset(table.baggage),
        hosts_by="--allow-host {}" if loaded.on_command_line else 'hosts = ["{}"] in [bridge]',
        shared_store=_shared_store(loaded),
        replica=ReplicaAddress.parse(table.replica_url) if table.replica_url else None,
        keys=tuple(map(_key, table.keys)),
        traces=table.traces,
        metrics=_address(table.metrics) if table.metrics else None,
        grpc=_address(table.grpc) if table.grpc else None,
        grpc_agents={name: _address(address) for name, address in table.grpc_agents.items()},
        grpc_public=table.grpc_public,
        grpc_reflection=table.grpc_reflection,
        log_calls=table.log_calls,
        console=table.console,
        operators_see_contents=table.operators_see_contents,
        push=_push(config.push),
        model=config.model,
        audit=_audit(config.audit),
    )


def _tls(table: TlsTable | None) -> TlsFiles | None:
    if table is None:
        return None
    return TlsFiles(table.certificate, table.key, table.client_ca, table.client_certificate)


def _address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _signing(table: BridgeTable) -> CardSigningPlan | None:
    if not table.card_keys:
        return None
    keys = tuple(key.value for key in table.card_keys)
    return CardSigningPlan(keys, tuple(CardForm(form) for form in table.card_forms))


def _push(table: SentPushTable) -> PushPlan | None:
    if not table.enabled:
        return None
    return PushPlan(frozenset(table.allow), {place: secret.value for place, secret in table.secrets.items()})


def _audit(table: AuditTable) -> AuditPlan | None:
    if table.file is None:
        return None
    return AuditPlan(
        table.file,
        table.rotate_bytes,
        table.refused_each_minute,
        required=table.required,
        hashes_principals=table.principal == "hash",
    )


def _key(place: KeyPlace) -> Path | str:
    return place.file or (place.secret.value if place.secret else "")


def _server(
    name: str,
    table: ToolServerTable,
    process: Profile,
    place: ProcessPlan,
    objects: Mapping[str, object],
    *,
    on_line: bool,
) -> ServerPlan:
    """The plan of a tool server. Settings that its table leaves out come from the profile of the process. `objects` are
    the servers that are objects of this process."""
    written = {key: value for key, value in table if value is not None}
    server = process.server.model_copy(
        update={key: written[key] for key in written.keys() & _of(process.server)}
    )
    run = process.run.model_copy(update={key: written[key] for key in written.keys() & {"concurrency"}})
    callers = caller_tokens_of(
        table.auth.oauth2 if table.auth else None,
        table.url or "",
        server.connect_seconds,
        process.agents.caller_tokens,
        allow_private=table.allow_private,
    )
    if name in objects:
        target: ServerTarget = _object(name, objects[name], server)
    else:
        login = login_of_server(name, table, server, place)
        target = _target(table, server, login, callers, on_line=on_line)
    if table.login == "each" and server.session == "shared":
        # A session is made with one token: no caller may use another one's.
        server = server.having(session="principal")
    plan = ServerPlan.as_profile_says(target, Era(table.era), server, run)
    return replace(
        plan,
        fail=table.fail,
        call_timeout_seconds=table.call_timeout_seconds,
        each_replica=bool(table.each_replica),
        ready=ready_mapping_for(table.command or ()) if table.known and name not in objects else None,
    )


def store_of(place: str | None, name: str) -> str | None:
    """The store of one agent. Each agent has a file of its own, beside the configured one.

    An agent keeps its file when other agents are added.
    """
    if place is None or place == MEMORY_STORE:
        return place
    path = Path(place)
    return str(path.with_name(f"{path.stem}.{name}{path.suffix}"))


def _of(table: object) -> set[str]:
    return set(type(table).model_fields)  # type: ignore[attr-defined]


def _target(
    table: ToolServerTable,
    server: ServerSettings,
    login: LoginConfig | None,
    callers: CallerTokens | None,
    *,
    on_line: bool,
) -> ServerTarget:
    roots = tuple(folder.as_uri() for folder in table.roots)
    if table.url is not None:
        return HttpTarget(
            table.url,
            table.request_headers(),
            login or oauth_client(table),
            callers=callers,
            tls=peer_tls(table.tls),
            shown=table.shown("url") or "",
            allow_private=table.allow_private,
            on_command_line=on_line,
            transport=table.transport or "auto",
            proxy=table.proxy or "environment",
            roots=roots,
            connect_seconds=server.connect_seconds,
            result_limit_bytes=server.result_limit_bytes,
            result_json_values=server.result_json_values,
        )
    return StdioTarget(
        tuple(table.command or ()),
        table.variables(),
        str(table.cwd) if table.cwd else None,
        tuple(table.shown("command") or ()),
        result_limit_bytes=server.result_limit_bytes,
        result_json_values=server.result_json_values,
        pace=ChildPace(
            server.child_flush_seconds,
            server.child_exit_seconds,
            server.child_quiet_seconds,
            server.child_output_seconds,
        ),
        roots=roots,
    )


def _object(name: str, value: object, server: ServerSettings) -> InProcessTarget:
    return InProcessTarget(
        name,
        low_level(name, value),
        exit_seconds=server.child_exit_seconds,
        result_limit_bytes=server.result_limit_bytes,
        result_json_values=server.result_json_values,
    )


def _remote(
    name: str,
    table: AgentTable,
    others: Mapping[str, AgentTable],
    process: Profile,
    place: ProcessPlan,
    *,
    on_line: bool,
) -> RemotePlan:
    auth = table.auth
    bearer, api_key, oauth2 = (auth.bearer, auth.api_key, auth.oauth2) if auth else (None, None, None)
    is_alone = sum(other.card == table.card for other in others.values()) == 1
    references = [secret.reference for secret in (bearer, api_key) if secret]
    if oauth2 is not None:
        references += [f"{oauth2.client_id} {oauth2.issuer}"]
    return RemotePlan(
        url=table.card,
        headers=table.request_headers(),
        bearer=bearer.value if bearer else None,
        api_key=api_key.value if api_key else None,
        tokens=login_of_agent(name, table, process, place)
        or tokens_of(oauth2, table.card, process, allow_private=bool(table.allow_private)),
        callers=caller_tokens_of(
            oauth2,
            agent_url(table.card),
            process.agents.agent_connect_seconds,
            process.agents.caller_tokens,
            allow_private=bool(table.allow_private),
        ),
        tls=peer_tls(table.tls),
        trusted=frozenset(map(origin_of, table.trust)),
        account="" if is_alone else " ".join(references),
        allow_private=table.allow_private,
        uses_proxy=table.proxy != "none",
        on_command_line=on_line,
        signed_by=_signer(table.signed_by),
        dialect=table.dialect,
        bindings=table.bindings,
        extensions=table.extensions,
        push=table.push,
    )


def _signer(table: SignedByTable | None) -> SignerPlan | None:
    place = (table.jwks or table.file) if table else None
    return SignerPlan(place, CardForm(table.form)) if table and place else None


def _catalog(name: str, table: CatalogTable, process: Profile, place: ProcessPlan) -> CatalogPlan:
    oauth2, allow_private = table.auth.oauth2 if table.auth else None, bool(table.allow_private)
    tokens = tokens_of(oauth2, table.url, process, allow_private=allow_private)
    if oauth2 is not None and oauth2.grant == "authorization_code":
        login_config = login_config_of(name, oauth2, table.url, place, table.tls, allow_private=allow_private)
        login_config = replace(login_config, kind="catalogs", uses_proxy=table.proxy != "none")
        tokens = LoginToken(login_config, process.agents.agent_connect_seconds)
    return CatalogPlan(
        table.url,
        table.request_headers(),
        table.include,
        table.exclude,
        tokens,
        table.allow_private,
        peer_tls(table.tls),
        table.proxy != "none",
    )


def _published(name: str, table: ToolsAsAgentTable, loaded: LoadedConfig) -> PublishedPlan:
    return PublishedPlan(
        servers=tuple(table.sources),
        profile=loaded.profile_of(table),
        store=_store(name, loaded),
        card_name=table.name,
        card_description=table.description,
        extensions=tuple(
            DeclaredExtension(
                extension.uri, extension.description, extension.params or None, extension.required
            )
            for extension in table.extensions
        ),
        share=tuple(kind for kind in dict.fromkeys(table.share) if kind == "resources" or kind == "prompts"),
        shares_apps="apps" in table.share,
        shares_logs="logging" in table.share,
        shares_tasks="tasks" in table.share,
        stand_ins=_stand_ins(table),
        serves_links=table.links == "serve",
        public=table.public,
        fail=table.fail,
        language=table.language,
        overrides={pattern: _skill(skill) for pattern, skill in table.skills.items()},
    )


def _as_agents_use_it(key: str, server: ServerPlan, agents: Iterable[ToolsAsAgentTable]) -> ServerPlan:
    """The plan of a tool server with what its agents serve besides its tools."""
    users = [agent for agent in agents if key in agent.sources]
    return replace(
        server,
        stand_ins=frozenset().union(*map(_stand_ins, users)),
        shows_apps=any("apps" in agent.share for agent in users),
    )


def _stand_ins(table: ToolsAsAgentTable) -> frozenset[StandInKind]:
    wanted: dict[StandInKind, str | None] = {"prompts": table.prompts, "resources": table.resources}
    return frozenset(kind for kind, served_as in wanted.items() if served_as == "skills")


def _forwarding(name: str, table: AgentsAsAgentTable, loaded: LoadedConfig) -> PublishedPlan:
    return PublishedPlan(
        servers=(),
        agents=tuple(table.sources),
        profile=loaded.profile_of(table),
        store=_store(name, loaded),
        card_name=table.name,
        card_description=table.description,
        public=table.public,
        overrides={
            pattern: SkillOverride(**{key: getattr(skill, key) for key in skill.model_fields_set})
            for pattern, skill in table.skills.items()
        },
    )


def _store(name: str, loaded: LoadedConfig) -> str | SharedStore | None:
    if (shared := _shared_store(loaded)) is not None:
        return shared
    place = loaded.config.bridge.store
    assert not isinstance(place, Secret)  # which is the URL of a database
    return place if loaded.on_command_line else store_of(place, name)


def _shared_store(loaded: LoadedConfig) -> SharedStore | None:
    place, direct = loaded.config.bridge.store, loaded.config.bridge.store_direct
    if isinstance(place, Secret) or (place is not None and place.startswith(POSTGRES_SCHEMES)):
        return SharedStore(_in_plain(place), None if direct is None else _in_plain(direct))
    return None


def _in_plain(url: str | Secret) -> str:
    return url.value if isinstance(url, Secret) else url


def _offered(table: AgentsAsToolsTable, loaded: LoadedConfig) -> OfferedPlan:
    return OfferedPlan(
        sources=tuple(table.sources),
        profile=loaded.profile_of(table),
        title=table.title,
        instructions=table.instructions,
        overrides={pattern: _tool(tool) for pattern, tool in table.tools.items()},
    )


def _skill(table: SkillTable) -> SkillOverride:
    written = {key: getattr(table, key) for key in table.model_fields_set - {"arguments"}}
    return SkillOverride(**written, arguments=_arguments(table.arguments))


def _tool(table: ToolTable) -> ToolOverride:
    written = {key: getattr(table, key) for key in table.model_fields_set - {"arguments"}}
    return ToolOverride(**written, arguments=_arguments(table.arguments))


def _arguments(tables: Mapping[str, ArgumentTable]) -> dict[str, ArgumentRule]:
    return {
        name: ArgumentRule(**{key: getattr(table, key) for key in table.model_fields_set})
        for name, table in tables.items()
    }
