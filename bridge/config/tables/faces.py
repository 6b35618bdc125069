"""The tables of the agents and MCP servers that the bridge offers, and of their skills and tools."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from bridge.config.tables.profile import DEFAULT_PROFILE_NAME
from bridge.config.tables.values import (
    ExtensionUri,
    FaceLanguage,
    FailPolicy,
    IsPublic,
    Json,
    Phrases,
    SourceNames,
    Table,
    Text,
    Texts,
)
from bridge.settings import NotNegative

FACES: Final = ("tools_as_agent", "agents_as_tools", "agents_as_agent")
"""The sections of the agents and MCP servers that the bridge offers."""


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


SharedKind = Literal["resources", "prompts", "apps", "logging", "tasks"]
"""What an agent may share of its tool servers."""


class ToolsAsAgentTable(Table):
    """`[tools_as_agent.NAME]`: an A2A agent at `/agents/NAME`, made of tools."""

    sources: SourceNames = Field(alias="from", description="the tool servers that it is made of")
    mapping: Text = Field(default=DEFAULT_PROFILE_NAME, description="its mapping profile, by name or path")
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
    public: IsPublic = False
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
    share: Annotated[tuple[SharedKind, ...], Field(strict=False)] = Field(
        default=(),
        description="what its tool servers have besides tools and it passes on: `resources` (with their templates), "
        "`prompts`, each with completion; `apps`, their MCP Apps, which needs `resources`; `logging`, the log messages "
        "of calls; `tasks`, the refusal of hosts without tasks (docs/extensions.md); without it, nothing",
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
    mapping: Text = Field(default=DEFAULT_PROFILE_NAME, description="its mapping profile, by name or path")
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

    sources: SourceNames = Field(
        alias="from",
        description="the agents, catalogs and published agents (`tools_as_agent`) that it is made of",
    )
    mapping: Text = Field(default=DEFAULT_PROFILE_NAME, description="its mapping profile, by name or path")
    name: Text | None = Field(
        default=None, description="the name on its card; without it, the names of its agents"
    )
    description: Text | None = Field(
        default=None, description="the description on its card; without it, the descriptions of its agents"
    )
    public: IsPublic = False
    skills: dict[Text, ForwardedSkillTable] = Field(
        default_factory=dict,
        description="its skills, by exact id or glob",
    )


FaceTable = ToolsAsAgentTable | AgentsAsToolsTable | AgentsAsAgentTable
"""The table of an agent or an MCP server that the bridge offers."""
