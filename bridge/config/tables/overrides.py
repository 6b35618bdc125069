"""What a face may say of one of its skills or tools, by exact name or glob, over what is read from its peers.

These are the tables of the file; how a glob finds its tool, and what becomes of it, is for the translation.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from bridge.config.tables.values import Json, NotNegative, Table, Text, Texts


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
