"""The decision about a turn, and the state kept with its task to resume it, also in another process. Values only.

The `kind` of a kept value names its type. It holds everything that resuming needs; nothing else is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Discriminator, JsonValue, TypeAdapter

from bridge.a2a.model.objects import Part, TaskState
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.skills import Skill
from bridge.trace import TraceContext, context

ElicitationsByKey = dict[str, dict[str, JsonValue]]
"""Questions of a server by their keys: each the params of an elicitation/create."""


class ResumeMode(StrEnum):
    """How a call goes on once its question is answered."""

    ROUND = "round"
    """The same call again, with the answers and the server's state (MCP 2026-07-28 basic/patterns/mrtr)."""
    AGAIN = "again"
    """The same call again, unchanged: the server refused it until a URL was visited (error -32042)."""
    OPEN = "open"
    """The call is still open, and takes the answer. It is lost when its process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTrace:
    """The trace of a kept value. The task goes on with it when its next turn names no trace."""

    trace: TraceContext = field(default_factory=context.get)
    """The trace of the turn that kept the value."""


@dataclass(frozen=True, slots=True)
class OwnQuestion(_OfTrace):
    """The bridge itself asked for arguments, or for the skill."""

    skill_id: str
    """Empty when the question asks for the skill."""
    arguments: JsonObject
    fields: tuple[str, ...]
    """The properties that were asked for."""
    source_key: str = ""
    tool_name: str = ""
    """With `source_key`, the tool. Its id may come to be that of another tool; empty in values of earlier releases."""
    tries: int = 0
    """How many answers did not fit so far."""
    kind: Literal["own-question"] = "own-question"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class Confirmation(_OfTrace):
    """The bridge itself asked whether a call may be made."""

    skill_id: str
    arguments: JsonObject
    """The client's own arguments."""
    digest: str
    """The digest of the call that was shown. A yes is valid for this call only."""
    source_key: str = ""
    tool_name: str = ""
    """See `OwnQuestion`."""
    tries: int = 0
    """How many answers were neither a yes nor a no so far."""
    kind: Literal["confirmation"] = "confirmation"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class LoginWait:
    """What a call that waits for a login of its caller needs to go on in another process, without a message."""

    proof: str
    """That its principal asked for it; see `CallerLogins.sealed`."""
    extensions: tuple[str, ...] = ()
    """The extensions that the client had activated."""
    output_modes: tuple[str, ...] = ()
    """The media types that it accepts; empty if it named none."""
    metadata: JsonObject = field(default_factory=dict)
    """What the metadata of its request held of the extensions that the agent declares."""


@dataclass(frozen=True, slots=True)
class ServerQuestion(_OfTrace):
    """The server asked in the middle of a call."""

    skill_id: str
    arguments: JsonObject
    way: ResumeMode
    questions: ElicitationsByKey
    given: ElicitationsByKey = field(default_factory=dict)
    """The ElicitResults of the questions that are answered already, by key."""
    request_state: str | None = None
    is_repeatable: bool = False
    """Whether the call may be made anew from its start when it cannot go on."""
    source_key: str = ""
    tool_name: str = ""
    """With `source_key`, the tool. The id of its skill may have changed meanwhile."""
    occasions: dict[str, str] = field(default_factory=dict)
    """The id of the asking of each question: servers may use a key again in a later round."""
    is_of_process: bool = False
    """Whether what `request_state` stands for may be in the memory of a server that is a process of this bridge. Then
    no other replica's process of that server is given it."""
    login: LoginWait | None = None
    """What goes on by itself once the caller has logged in; None if the server itself asks."""
    tries: int = 0
    """How many answers did not fit so far."""
    kind: Literal["server-question"] = "server-question"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class FollowedTask(_OfTrace):
    """The server made a task of the call."""

    skill_id: str
    task_id: str
    is_legacy: bool
    extensions: tuple[str, ...] = ()
    """The extensions that the client had activated."""
    source_key: str = ""
    kind: Literal["followed-task"] = "followed-task"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


ResumeState = OwnQuestion | Confirmation | ServerQuestion | FollowedTask

_KEPT: Final[TypeAdapter[ResumeState]] = TypeAdapter(Annotated[ResumeState, Discriminator("kind")])


def resume_state_from(kept: bytes) -> ResumeState | None:
    """The kept value; None when nothing was kept.

    Raises:
        ValueError: the bytes cannot be read.
    """
    return _KEPT.validate_json(kept) if kept else None


@dataclass(frozen=True, slots=True)
class RunTool:
    """Call this tool."""

    skill: Skill
    arguments: JsonObject
    """The arguments that the server gets."""
    answered: ServerQuestion | None = None
    """The question of the server, with its answers, when this call continues one that asked."""

    @property
    def skill_id(self) -> str:
        """The id of the skill."""
        return self.skill.id

    @property
    def source_key(self) -> str:
        """The key of the server."""
        return self.skill.source_key


@dataclass(frozen=True, slots=True)
class Follow:
    """Go on with a call that the server made a task of."""

    task: FollowedTask

    @property
    def skill_id(self) -> str:
        """The id that the skill had when it was called."""
        return self.task.skill_id

    @property
    def source_key(self) -> str:
        """The key of the server; empty in values from a time when an agent had one server only."""
        return self.task.source_key


@dataclass(frozen=True, slots=True)
class RequireInput:
    """Ask the client."""

    state: TaskState
    parts: tuple[Part, ...]
    metadata: JsonObject
    kept: bytes
    """Kept with the task; the next turn reads the answer by it."""
    stays: bool = False
    """Whether this process alone can go on with the answer."""


@dataclass(frozen=True, slots=True)
class End:
    """End the task with a reason."""

    state: TaskState
    words: str


Decision = RunTool | Follow | RequireInput | End
