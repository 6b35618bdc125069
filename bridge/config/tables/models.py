"""The whole configuration file as frozen values: the peers to connect to, and the agents and MCP servers to offer.

Each key has its meaning here, its unit in its name, and its range in its type. `rules.py` has the rules between keys,
and `document.py` the sources of values. Mapping profiles have the choices that many of them share.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from bridge.config.tables.callers import (
    GroupTable,
    IntrospectionTable,
    IssuerLoginTable,
    IssuerTable,
    PrincipalTable,
)
from bridge.config.tables.faces import (
    AgentsAsAgentTable,
    AgentsAsToolsTable,
    ArgumentTable,
    SkillTable,
    ToolsAsAgentTable,
    ToolTable,
)
from bridge.config.tables.peers import (
    AgentAuth,
    AgentTable,
    CatalogTable,
    EndpointAuth,
    HeaderKey,
    KeyPlace,
    ToolServerTable,
)
from bridge.config.tables.profile import DEFAULT_PROFILE_NAME
from bridge.config.tables.values import (
    AuditPath,
    BaggageKeys,
    BaseUrl,
    CardForms,
    DatabaseUrl,
    FilePath,
    FilePaths,
    HeaderSecret,
    HostNames,
    ListenAddress,
    ModelUrl,
    Name,
    Origins,
    ProxyHeader,
    ProxyNetworks,
    Receiver,
    Receivers,
    ReplicaUrl,
    SecretValue,
    StorePlace,
    Table,
    Text,
)
from bridge.config.text.secrets import Secret
from bridge.pinned.lock import PinMode
from bridge.settings import Count

__all__ = [
    "AgentAuth",
    "AgentTable",
    "AgentsAsAgentTable",
    "AgentsAsToolsTable",
    "ArgumentTable",
    "AuditTable",
    "BridgeTable",
    "CatalogTable",
    "Config",
    "EndpointAuth",
    "GroupTable",
    "HeaderKey",
    "ImportTable",
    "IntrospectionTable",
    "IssuerLoginTable",
    "IssuerTable",
    "KeyPlace",
    "ModelTable",
    "PrincipalTable",
    "Secret",
    "SentPushTable",
    "SkillTable",
    "TlsTable",
    "ToolServerTable",
    "ToolTable",
    "ToolsAsAgentTable",
]


class TlsTable(Table):
    """`tls` of `[bridge]`: the files of HTTPS, in PEM. A changed file is read again for the next connection."""

    certificate: FilePath = Field(
        description="the certificate of the bridge, followed by the certificates up to its authority"
    )
    key: FilePath = Field(description="its private key, without a passphrase")
    client_ca: FilePath | None = Field(
        default=None,
        description="the authorities of client certificates; without it, clients send none",
    )
    client_certificate: Literal["required", "optional"] = Field(
        default="required",
        description="with `client_ca`, whether a client must send a certificate; with `optional`, a client with a "
        "token needs none",
    )


class BridgeTable(Table):
    """`[bridge]`: the process itself."""

    host: Text = Field(
        default="127.0.0.1",
        description="the address to listen on; an address that other machines reach needs `principals` or `issuers`",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8080, description="the port; 0 means a free one"
    )
    public_url: BaseUrl | None = Field(
        default=None,
        description="the address on cards, for a bridge behind a proxy; without it, cards have the address "
        "of each request",
    )
    tls: TlsTable | None = Field(
        default=None,
        description='serves HTTPS: `{ certificate = "PATH", key = "PATH" }`; without it, plain HTTP',
    )
    trusted_proxies: ProxyNetworks = Field(
        default=(),
        description="addresses and networks of proxies whose `principal_header` names the caller (the bridge removes "
        "it from any other request), and whose `X-Forwarded-For` gives the address from which somebody "
        "signs in",
    )
    principal_header: ProxyHeader | None = Field(
        default=None,
        description="the header in which a trusted proxy names the caller, see `forwarded` of a principal",
    )
    store: StorePlace | None = Field(
        default=None,
        description='the place of tasks: `"memory:"`, `"sqlite:///PATH"`, a path, or the URL of a PostgreSQL that '
        'replicas share, with a password as `{ env = "NAME" }`; without it, a file in the user\'s state folder',
    )
    store_direct: DatabaseUrl | None = Field(
        default=None,
        description="the URL of the same PostgreSQL without PgBouncer, for work that needs a session",
    )
    replica_url: ReplicaUrl | None = Field(
        default=None,
        description="where the other replicas on the same PostgreSQL reach this replica: the URL of this process "
        "only, or `unix:/PATH`; with it, every replica answers requests for the MCP sessions of all "
        "replicas",
    )
    keys: Annotated[tuple[KeyPlace, ...], Field(strict=False)] = Field(
        default=(),
        description='keys for handles, each `{ file = "PATH" }` (made on the first start) or `{ env = "NAME" '
        "}`; "
        "the first key seals, and every key opens; without it, a file in the user's state folder",
    )
    card_keys: Annotated[tuple[SecretValue, ...], Field(strict=False, max_length=8)] = Field(
        default=(),
        description='private keys that sign the cards of agents, each `{ file = "PATH" }` or `{ env = "NAME" }` with '
        "a PEM (`mcp-a2a keys new`): P-256, Ed25519 or RSA; each signs every card, so that readers may "
        "know the old or the new key during a change",
    )
    card_forms: CardForms = Field(
        default=("strict", "sdk"),
        description="the forms of a card to sign, one signature each: `strict` is the form of A2A; `sdk` is the form "
        "of the SDKs, the only form that they can verify if the card has an empty value; without `sdk` "
        "they may refuse the card",
    )
    pinned: PinMode | None = Field(
        default=None,
        description="what happens to definitions of tool servers and agents that are not as in the lock, the file "
        "beside this file that `mcp-a2a pin` writes: `warn` says so, `refuse` does not offer them, `off` compares "
        "nothing; without it, `warn` if there is a lock",
    )
    hosts: HostNames = Field(default=(), description="more host names that the bridge answers under")
    origins: Origins = Field(
        default=(),
        description="origins whose web pages may call MCP servers of the bridge from a browser, each as "
        '`"https://app.example.com"`; by default none may',
    )
    baggage: BaggageKeys = Field(
        default=(),
        description="keys of a trace's `baggage` that the bridge sends to servers and agents on other "
        "machines",
    )
    allow_unauthenticated: bool = Field(
        default=False,
        description="let everyone in while there are no principals: on an address that other machines reach, "
        "or after a reload that removes the last principal",
    )
    mapping: Text = Field(
        default=DEFAULT_PROFILE_NAME,
        description="the mapping profile of the process: its tables `server`, `store`, `requests`, "
        "`connections`, `streams`, `push` and `issuers` count",
    )
    traces: BaseUrl | None = Field(
        default=None,
        description="the URL of an OTLP collector, which gets a span for each request to the bridge and to a peer, "
        "over HTTP; the variables `OTEL_*` set the rest; needs `mcp-a2a[otel]`",
    )
    metrics: ListenAddress | None = Field(
        default=None,
        description="a separate address, `HOST:PORT`, that serves `/metrics` to Prometheus; everyone who reaches the "
        "address may read it",
    )
    grpc: ListenAddress | None = Field(
        default=None,
        description="a separate address, `HOST:PORT`, at which agents are also served over gRPC; `tls` counts there, "
        "too; needs `mcp-a2a[grpc]`",
    )
    grpc_agents: dict[Name, ListenAddress] = Field(
        default_factory=dict,
        description="an address, `HOST:PORT`, for one agent alone, by the agent's name: there it answers over gRPC "
        "without a tenant, which clients of the older version need where several agents are served",
    )
    grpc_public: ListenAddress | None = Field(
        default=None,
        description="the address of gRPC on cards, `HOST:PORT`, if clients reach it at another address than "
        "the host of the card and the port of `grpc`",
    )
    grpc_reflection: bool = Field(
        default=False,
        description="lets gRPC clients read the descriptors of the services (server reflection)",
    )
    log_calls: bool = Field(
        default=False,
        description="writes one line to the log for each call: who called what, how it ended, and how long it took; "
        "never arguments or results",
    )
    console: bool = Field(
        default=False,
        description="serves `/console`, where a person sees what the bridge does and answers waiting questions; needs"
        " `mcp-a2a[console]`",
    )
    operators_see_contents: bool = Field(
        default=False,
        description="shows operators the contents of the tasks of others: messages, results and history; without it "
        "they see only that the tasks exist",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="the form of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the lowest level of log lines"
    )


class ImportTable(Table):
    """`[import]`: servers and agents that are already configured elsewhere."""

    mcp_json: FilePaths = Field(
        default=(),
        description="a file of an MCP host, or a list of files; each of its `mcpServers` becomes a tool "
        "server",
    )
    known_agents: FilePaths = Field(
        default=(),
        description="a Hermes configuration (YAML), or a list of files; each of its "
        "`a2a.client.known_agents` becomes an agent",
    )


class SentPushTable(Table):
    """`[push]`: push notifications, which agents send to the webhooks that clients name."""

    enabled: bool = Field(
        default=False, description="sends them; without it, clients that ask for them are refused"
    )
    allow: Receivers = Field(
        default=(),
        description='receivers on this machine or in its network, each `"HOST:PORT"`; all others must have public '
        "addresses and, unless on this machine, use https",
    )
    secrets: dict[Receiver, SecretValue] = Field(
        default_factory=dict,
        description="a shared secret for each receiver, by `HOST:PORT`: notifications to it are signed with the "
        "secret, too (Standard Webhooks `v1`)",
    )


class AuditTable(Table):
    """`[audit]`: a line for each call and each change, chained to the line before; never arguments or results."""

    file: AuditPath | None = Field(
        default=None,
        description="the file, readable by its owner only, or `-` for standard output; without it, no audit is written",
    )
    required: bool = Field(
        default=False,
        description="makes each call wait until a line that announces it is on the disk, and refuses the call if the "
        "line cannot be written",
    )
    principal: Literal["name", "hash"] = Field(
        default="name",
        description="`hash` writes principals as hashes that only a holder of the bridge's keys can compare",
    )
    rotate_bytes: Annotated[int, Field(ge=65_536)] = Field(
        default=67_108_864,
        description="the size at which the file is renamed, with the number of its last line after its name, and a "
        "new file begins; no file is ever deleted",
    )
    refused_each_minute: Annotated[int, Field(ge=1)] = Field(
        default=600,
        description="the most lines in a minute for refusals of unknown callers; the next line has the number of the "
        "others",
    )


class ModelTable(Table):
    """`[model]`: a language model that chooses a skill for texts that no rule understands."""

    url: ModelUrl = Field(
        description="the base URL of its API, as `https://api.openai.com/v1` or `http://127.0.0.1:11434/v1`; texts of "
        "callers and descriptions of tools go there, and with several rounds the results of calls"
    )
    model: Text = Field(description="the name of the model there")
    api: Literal["openai", "anthropic"] | None = Field(
        default=None,
        description="its API: `openai` (chat completions, which most servers have) or `anthropic` (Messages); without "
        "it, the host of the URL decides",
    )
    api_key: HeaderSecret | None = Field(
        default=None, description="the key; without it, requests have no credential"
    )
    seconds: PositiveFloat = Field(
        default=30.0,
        description="how long a task waits for the model, in all rounds together, before its client is asked",
    )
    rounds: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1,
        description="the most calls for one text: with 1, the result of the one call is the answer; above 1, the model "
        "gets the results, may call tools in turn, and answers in its own words",
    )
    tools_most: PositiveInt = Field(
        default=32,
        description="the most tools that a request describes: those that have the most words in common with the text",
    )
    answer_tokens: PositiveInt = Field(default=1000, description="the most tokens of one answer")
    concurrency: PositiveInt = Field(default=4, description="the most requests at the same time")
    hourly_tokens: PositiveInt = Field(
        default=200_000,
        description="the most tokens in an hour for each principal; then its texts have phrases alone",
    )
    hourly_tokens_shared: Count = Field(
        default=20_000,
        description="the most tokens in an hour for all callers without credentials together",
    )


class Config(Table):
    """The file."""

    bridge: BridgeTable = Field(default=BridgeTable(), description="the process itself")
    tool_servers: dict[Name, ToolServerTable] = Field(
        default_factory=dict, description="MCP servers, by name"
    )
    agents: dict[Name, AgentTable] = Field(default_factory=dict, description="remote A2A agents, by name")
    catalogs: dict[Name, CatalogTable] = Field(
        default_factory=dict, description="catalogs of more agents, by name"
    )
    imports: ImportTable = Field(
        default=ImportTable(), alias="import", description="servers and agents that are configured elsewhere"
    )
    push: SentPushTable = Field(
        default=SentPushTable(), description="push notifications of the agents made of tools"
    )
    model: ModelTable | None = Field(
        default=None,
        description="a language model for texts that no rule understands; without it, none is asked",
    )
    audit: AuditTable = Field(default=AuditTable(), description="a tamper-evident log of who did what")
    tools_as_agent: dict[Name, ToolsAsAgentTable] = Field(
        default_factory=dict, description="A2A agents made of tools, by name"
    )
    agents_as_tools: dict[Name, AgentsAsToolsTable] = Field(
        default_factory=dict, description="MCP servers made of agents, by name"
    )
    agents_as_agent: dict[Name, AgentsAsAgentTable] = Field(
        default_factory=dict, description="A2A agents made of remote agents, by name"
    )
    principals: dict[Name, PrincipalTable] = Field(
        default_factory=dict, description="the principals that may call, by name"
    )
    groups: dict[Name, GroupTable] = Field(
        default_factory=dict, description="groups of principals with common settings, by name"
    )
    issuers: dict[Name, IssuerTable] = Field(
        default_factory=dict, description="the issuers of callers' tokens, by name"
    )
