"""The whole configuration file as frozen values: the peers to connect to, and the agents and MCP servers to offer.

Each key has its meaning here, its unit in its name, and its range in its type. `rules.py` has the rules between keys,
and `document.py` the sources of values. Mapping profiles have the choices that many of them share.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from bridge.config.tables.callers import (
    GroupTable,
    IntrospectionTable,
    IssuerLoginTable,
    IssuerTable,
    PrincipalTable,
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
from bridge.config.tables.values import (
    AuditPath,
    BaggageKeys,
    BaseUrl,
    CardForms,
    DatabaseUrl,
    ExtensionUri,
    FaceLanguage,
    FailPolicy,
    FilePath,
    FilePaths,
    HeaderSecret,
    HostNames,
    Json,
    ListenAddress,
    ModelUrl,
    Name,
    Origins,
    Phrases,
    ProxyHeader,
    ProxyNetworks,
    Receiver,
    Receivers,
    ReplicaUrl,
    SecretValue,
    SourceNames,
    StorePlace,
    Table,
    Text,
    Texts,
)
from bridge.config.text.secrets import Secret
from bridge.settings import Count, NotNegative

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

DEFAULT_PROFILE: Final = "default"

FACES: Final = ("tools_as_agent", "agents_as_tools", "agents_as_agent")
"""The sections of the agents and MCP servers that the bridge offers."""


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
        default=DEFAULT_PROFILE,
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


class ArgumentTable(Table):
    """`arguments.NAME` of a skill or tool: one of its arguments."""

    default: Json = Field(default=None, description="the value if a call gives none")
    hidden: bool = Field(
        default=False, description="callers can neither see nor set it; it needs a `default`"
    )
    description: Text | None = Field(default=None, description="the description that callers read")


class SkillTable(Table):
    """`[tools_as_agent.NAME.skills]`: a skill of the agent, by its tool's name or a glob of names."""

    id: Text | None = Field(
        default=None, description="the skill's id; not for a glob, because ids are unique"
    )
    name: Text | None = Field(default=None, description="the name for people")
    description: Text | None = Field(default=None, description="the description of what it does")
    tags: Texts = Field(default=(), description="tags in addition to its own")
    examples: Texts = Field(default=(), description="examples in place of the generated ones")
    hidden: bool = Field(default=False, description="callers can neither see nor call it")
    public: bool = Field(
        default=True,
        description="whether the public card shows it; if not, only the extended card shows it, to callers that may "
        "use it or could with another scope of their issuer",
    )
    text_into: Text | None = Field(default=None, description="the property that takes plain text")
    arguments: dict[Text, ArgumentTable] = Field(default_factory=dict, description="its arguments, by name")
    call_timeout_seconds: PositiveFloat | None = None
    concurrency: PositiveInt | None = Field(default=None, description="the most calls of it at the same time")
    reply: Literal["task", "message"] | None = Field(
        default=None,
        description="`message` answers a quick call with a message, which is not stored; `task` makes each call a "
        "task",
    )
    confirm: bool | None = Field(default=None, description="whether a person has to agree to each call")
    phrases: Phrases = Field(
        default=(),
        description="sentences that call it, with its arguments in braces: `count down [from {steps}]`; a call by such "
        "a sentence needs no yes, unless the tool says that it destroys or a rule confirms it",
    )
    read_only: bool | None = Field(
        default=None,
        description="whether it changes nothing, so that other sentences call it without a yes, too; without it, its "
        "server's annotation counts",
    )


class ToolTable(Table):
    """`[agents_as_tools.NAME.tools]`: a tool of the server, by its name or a glob of names."""

    name: Text | None = Field(
        default=None, description="the tool's name; not for a glob, because names are unique"
    )
    title: Text | None = Field(default=None, description="the name for people")
    description: Text | None = Field(default=None, description="the description of what it does")
    hidden: bool = Field(default=False, description="callers can neither see nor call it")
    arguments: dict[Text, ArgumentTable] = Field(default_factory=dict, description="its arguments, by name")
    answer_within_seconds: PositiveFloat | None = None
    task_after_seconds: NotNegative | None = None
    concurrency: PositiveInt | None = Field(default=None, description="the most calls of it at the same time")


class ExtensionTable(Table):
    """An entry in `extensions` of an agent made of tools: an extension of A2A that its tools support."""

    uri: ExtensionUri = Field(description="its URI, as in its specification")
    description: Text | None = Field(default=None, description="how the agent uses it")
    params: dict[Text, Json] = Field(default_factory=dict, description="its parameters on the card")
    required: bool = Field(default=False, description="whether callers that do not activate it are refused")


def _each_once(extensions: tuple[ExtensionTable, ...]) -> tuple[ExtensionTable, ...]:
    uris = [extension.uri for extension in extensions]
    if twice := [uri for uri in uris if uris.count(uri) > 1]:
        raise ValueError(f"{twice[0]} is declared twice")
    return extensions


Extensions = Annotated[tuple[ExtensionTable, ...], Field(strict=False), AfterValidator(_each_once)]


class ToolsAsAgentTable(Table):
    """`[tools_as_agent.NAME]`: an A2A agent at `/agents/NAME`, made of tools."""

    sources: SourceNames = Field(alias="from", description="the tool servers that it is made of")
    mapping: Text = Field(default=DEFAULT_PROFILE, description="its mapping profile, by name or path")
    language: FaceLanguage | None = Field(
        default=None,
        description="the sentences that call a skill: `phrases`: configured phrases, and the skill's name with its one "
        "value; `strict`: configured phrases alone; `model`: the model of `[model]` gets the texts that no rule "
        "understands; without it, and for the rules before a model, `route.language` of its mapping profile counts",
    )
    name: Text | None = Field(
        default=None, description="the name on its card; without it, the name of its server"
    )
    description: Text | None = Field(
        default=None, description="the description on its card; without it, the instructions of its servers"
    )
    public: bool = Field(
        default=False,
        description="whether everybody may find it: `/.well-known/ard.json` and `/.well-known/ai-catalog.json` list it "
        "(docs/catalog.md); needs `public_url` in `[bridge]`",
    )
    fail: FailPolicy | None = Field(
        default=None,
        description="if one of its servers is down at the start: `closed` ends the bridge, `open` serves and keeps "
        "trying",
    )
    extensions: Extensions = Field(
        default=(),
        description="the extensions of A2A that its card declares; their metadata passes to and from the tools in "
        "`_meta`",
    )
    share: Annotated[tuple[Literal["resources", "prompts", "apps"], ...], Field(strict=False)] = Field(
        default=(),
        description="what its tool servers have besides tools and it passes on: `resources` (with their templates), "
        "`prompts`, each with completion; `apps`, their MCP Apps, which needs `resources` (docs/extensions.md); "
        "without it, nothing",
    )
    prompts: Literal["skills"] | None = Field(
        default=None,
        description="`skills`: each prompt of its tool servers is a skill `prompt:NAME`, for clients that know nothing "
        "of MCP; without it, none is",
    )
    resources: Literal["skills"] | None = Field(
        default=None,
        description="`skills`: each resource template of its tool servers is a skill `resource:NAME`, and one skill "
        "`resources` finds and reads the other resources; without it, none is",
    )
    links: Literal["serve"] | None = Field(
        default=None,
        description="`serve`: a link in a result that only its tool server can open is an address of the bridge, "
        "for a day and for its caller alone; without credentials, for everybody who has the address",
    )
    skills: dict[Text, SkillTable] = Field(
        default_factory=dict,
        description="its skills, by exact name or glob",
    )


class AgentsAsToolsTable(Table):
    """`[agents_as_tools.NAME]`: an MCP server at `/mcp/NAME`, made of agents."""

    sources: SourceNames = Field(
        alias="from",
        description="the agents, catalogs and published agents (`tools_as_agent`, `agents_as_agent`) that it is made "
        "of",
    )
    mapping: Text = Field(default=DEFAULT_PROFILE, description="its mapping profile, by name or path")
    title: Text | None = Field(default=None, description="the name for people")
    instructions: Text | None = Field(
        default=None, description="the instructions that hosts give to their models"
    )
    tools: dict[Text, ToolTable] = Field(
        default_factory=dict,
        description="its tools, by exact name or glob",
    )


class ForwardedSkillTable(Table):
    """`[agents_as_agent.NAME.skills]`: a skill of the agent, by its id at the remote agent or a glob of ids."""

    id: Text | None = Field(
        default=None, description="the skill's id; not for a glob, because ids are unique"
    )
    name: Text | None = Field(default=None, description="the name for people")
    description: Text | None = Field(default=None, description="the description of what it does")
    tags: Texts = Field(default=(), description="tags in addition to its own")
    examples: Texts = Field(default=(), description="examples in place of its own")
    hidden: bool = Field(
        default=False,
        description="callers can neither see nor name it; the remote agent decides what a text means",
    )
    public: bool = Field(
        default=True,
        description="whether the public card shows it; if not, only the extended card shows it, to callers that may "
        "use it or could with another scope of their issuer",
    )


class AgentsAsAgentTable(Table):
    """`[agents_as_agent.NAME]`: an A2A agent at `/agents/NAME`, made of remote agents."""

    sources: SourceNames = Field(alias="from", description="the agents that it is made of")
    mapping: Text = Field(default=DEFAULT_PROFILE, description="its mapping profile, by name or path")
    name: Text | None = Field(
        default=None, description="the name on its card; without it, the names of its agents"
    )
    description: Text | None = Field(
        default=None, description="the description on its card; without it, the descriptions of its agents"
    )
    skills: dict[Text, ForwardedSkillTable] = Field(
        default_factory=dict,
        description="its skills, by exact id or glob",
    )


FaceTable = ToolsAsAgentTable | AgentsAsToolsTable | AgentsAsAgentTable
"""The table of an agent or an MCP server that the bridge offers."""


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
