"""The whole configuration file as frozen values: the peers to connect to, and the faces to serve.

Each key has its meaning here, its unit in its name, and its range in its type. `rules.py` has the rules between keys,
and `document.py` the sources of values. Choices that many faces share are in mapping profiles.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from bridge.config.tables.peers import (
    AgentAuth,
    AgentTable,
    CatalogTable,
    EndpointAuth,
    HeaderKey,
    KeyPlace,
    PrincipalTable,
    ToolServerTable,
)
from bridge.config.tables.values import (
    BaggageKeys,
    BaseUrl,
    FailPolicy,
    FilePaths,
    HostNames,
    Json,
    Name,
    NotNegative,
    SourceNames,
    StorePlace,
    Table,
    Text,
    Texts,
)
from bridge.config.text.secrets import Secret

__all__ = [
    "AgentAuth",
    "AgentTable",
    "AgentsAsToolsTable",
    "ArgumentTable",
    "BridgeTable",
    "CatalogTable",
    "Config",
    "EndpointAuth",
    "HeaderKey",
    "ImportTable",
    "KeyPlace",
    "PrincipalTable",
    "Secret",
    "SkillTable",
    "ToolServerTable",
    "ToolTable",
    "ToolsAsAgentTable",
]

DEFAULT_PROFILE: Final = "default"

FACES: Final = ("tools_as_agent", "agents_as_tools")
"""The tables of faces."""


class BridgeTable(Table):
    """`[bridge]`: the process itself."""

    host: Text = Field(
        default="127.0.0.1", description="the address to listen on; beyond this machine it takes principals"
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8080, description="the port; 0 takes a free one"
    )
    public_url: BaseUrl | None = Field(
        default=None,
        description="the address that cards tell others, behind a proxy; else that of each request",
    )
    store: StorePlace | None = Field(
        default=None,
        description='where tasks are kept: `"memory:"`, `"sqlite:///PATH"` or a path; else in the user\'s state folder',
    )
    keys: Annotated[tuple[KeyPlace, ...], Field(strict=False)] = Field(
        default=(),
        description='keys that seal handles, `{ file = "PATH" }` (made on the first start) or `{ env = "NAME" }`: '
        "the first seals, all open; else one in the user's state folder",
    )
    hosts: HostNames = Field(default=(), description="host names under which it answers too")
    baggage: BaggageKeys = Field(
        default=(),
        description="keys of a trace's `baggage` that servers and agents beyond this machine are told",
    )
    allow_unauthenticated: bool = Field(
        default=False,
        description="let everyone in where there are no principals: beyond this machine, or once the last one is "
        "taken out while it is served",
    )
    mapping: Text = Field(
        default=DEFAULT_PROFILE,
        description="the profile of the process: its `server`, `store`, `requests`, `connections` and `streams`",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="how log lines are written")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="which log lines are written"
    )


class ImportTable(Table):
    """`[import]`: servers and agents that are configured elsewhere already."""

    mcp_json: FilePaths = Field(
        default=(),
        description="files with the `mcpServers` of an MCP host, or a list of them: each is a tool server",
    )
    known_agents: FilePaths = Field(
        default=(),
        description="Hermes configurations (YAML) with `a2a.client.known_agents`, or a list of them: each is an agent",
    )


class ArgumentTable(Table):
    """`arguments.NAME` of a skill or tool: one of its arguments."""

    default: Json = Field(default=None, description="the value of a call that gives none")
    hidden: bool = Field(default=False, description="callers neither see nor set it; takes a `default`")
    description: Text | None = Field(default=None, description="what callers read about it")


class SkillTable(Table):
    """`[tools_as_agent.NAME.skills]`: a skill of the agent, by its tool's name or a glob of names."""

    id: Text | None = Field(default=None, description="the skill's id; not with a glob, since ids are unique")
    name: Text | None = Field(default=None, description="its name for people")
    description: Text | None = Field(default=None, description="what it does")
    tags: Texts = Field(default=(), description="tags beside those it has")
    examples: Texts = Field(default=(), description="examples in place of the generated ones")
    hidden: bool = Field(default=False, description="it is neither listed nor callable")
    text_into: Text | None = Field(default=None, description="the property that plain text goes into")
    arguments: dict[Text, ArgumentTable] = Field(default_factory=dict, description="its arguments, by name")
    call_timeout_seconds: PositiveFloat | None = Field(default=None, description="how long a call may take")
    concurrency: PositiveInt | None = Field(default=None, description="calls of it at the same time")
    reply: Literal["task", "message"] | None = Field(
        default=None,
        description="a quick call is answered with a `message`, which is not kept; else each is a `task`",
    )
    confirm: bool | None = Field(
        default=None, description="whether a call waits until a person has agreed to it"
    )


class ToolTable(Table):
    """`[agents_as_tools.NAME.tools]`: a tool of the server, by its name or a glob of names."""

    name: Text | None = Field(
        default=None, description="the tool's name; not with a glob, since names are unique"
    )
    title: Text | None = Field(default=None, description="its name for people")
    description: Text | None = Field(default=None, description="what it does")
    hidden: bool = Field(default=False, description="it is neither listed nor callable")
    arguments: dict[Text, ArgumentTable] = Field(default_factory=dict, description="its arguments, by name")
    answer_within_seconds: PositiveFloat | None = Field(
        default=None, description="a call whose agent is still at work is answered with a handle then"
    )
    task_after_seconds: NotNegative | None = Field(
        default=None, description="a call becomes a task of MCP then, for hosts that know tasks"
    )
    concurrency: PositiveInt | None = Field(default=None, description="calls of it at the same time")


class ToolsAsAgentTable(Table):
    """`[tools_as_agent.NAME]`: an A2A agent at `/agents/NAME`, made of tools."""

    sources: SourceNames = Field(alias="from", description="the tool servers that it is made of")
    mapping: Text = Field(default=DEFAULT_PROFILE, description="its mapping profile, by name or path")
    name: Text | None = Field(
        default=None, description="what its card calls it; else what its server calls itself"
    )
    description: Text | None = Field(
        default=None, description="what its card says of it; else the servers' instructions"
    )
    fail: FailPolicy | None = Field(
        default=None,
        description="a server of it is down at the start: end the bridge, or serve and go on trying",
    )
    skills: dict[Text, SkillTable] = Field(
        default_factory=dict,
        description="its skills, by exact name or glob",
    )


class AgentsAsToolsTable(Table):
    """`[agents_as_tools.NAME]`: an MCP server at `/mcp/NAME`, made of agents."""

    sources: SourceNames = Field(
        alias="from",
        description="the agents, catalogs and published agents (`tools_as_agent`) that it is made of",
    )
    mapping: Text = Field(default=DEFAULT_PROFILE, description="its mapping profile, by name or path")
    title: Text | None = Field(default=None, description="its name for people")
    instructions: Text | None = Field(default=None, description="what hosts tell their models about it")
    tools: dict[Text, ToolTable] = Field(
        default_factory=dict,
        description="its tools, by exact name or glob",
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
    tools_as_agent: dict[Name, ToolsAsAgentTable] = Field(
        default_factory=dict, description="A2A agents made of tools, by name"
    )
    agents_as_tools: dict[Name, AgentsAsToolsTable] = Field(
        default_factory=dict, description="MCP servers made of agents, by name"
    )
    principals: dict[Name, PrincipalTable] = Field(default_factory=dict, description="who may call, by name")
