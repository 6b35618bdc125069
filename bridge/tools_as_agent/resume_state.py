"""What a turn comes to, and what is kept with its task so that it can go on, also in another process: values only.

A kept value says by its `kind` what it is. It holds everything that is needed to go on; nothing of it is in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Discriminator, JsonValue, TypeAdapter

from bridge.a2a.model.objects import Part, TaskState
from bridge.jsonvalues import JsonObject
from bridge.tools_as_agent.skills import Skill
from bridge.trace import TraceContext, context

ElicitationsByKey = dict[str, dict[str, JsonValue]]
"""Questions of a server by their keys: each the params of an elicitation/create."""


class ResumeMode(StrEnum):
    """How a call goes on once its question is answered."""

    ROUND = "round"
    """The same call again, with the answers and the server's state (MCP 2026-07-28 basic/patterns/mrtr)."""
    AGAIN = "again"
    """The same call again, as it was: the server refused it until a URL was visited (error -32042)."""
    OPEN = "open"
    """The call is still open, and takes the answer. With the process that held it, it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTrace:
    """What is kept belongs to a trace, with which the task goes on when its next turn names none."""

    trace: TraceContext = field(default_factory=context.get)
    """That of the turn that kept it."""


@dataclass(frozen=True, slots=True)
class OwnQuestion(_OfTrace):
    """The bridge itself asked: for arguments, or which skill is meant."""

    skill_id: str
    """Empty when the question is which skill is meant."""
    arguments: JsonObject
    fields: tuple[str, ...]
    """The properties that were asked for."""
    kind: Literal["own-question"] = "own-question"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class Confirmation(_OfTrace):
    """The bridge itself asked whether a call may be made."""

    skill_id: str
    arguments: JsonObject
    """As the client gave them."""
    digest: str
    """Of the call that was shown: a yes is for that one only."""
    kind: Literal["confirmation"] = "confirmation"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class ServerQuestion(_OfTrace):
    """The server asked in the middle of a call."""

    skill_id: str
    arguments: JsonObject
    way: ResumeMode
    questions: ElicitationsByKey
    given: ElicitationsByKey = field(default_factory=dict)
    """The answers that are already there: an ElicitResult for each."""
    request_state: str | None = None
    is_repeatable: bool = False
    """Whether the call may be made anew from its start when it cannot go on."""
    source_key: str = ""
    tool_name: str = ""
    """Which tool of which server it is, whatever its skill is called by now."""
    occasions: dict[str, str] = field(default_factory=dict)
    """Which time of asking each question is: servers may use a key again in a later round."""
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
    """Those that the client had activated."""
    source_key: str = ""
    kind: Literal["followed-task"] = "followed-task"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


ResumeState = OwnQuestion | Confirmation | ServerQuestion | FollowedTask

_KEPT: Final[TypeAdapter[ResumeState]] = TypeAdapter(Annotated[ResumeState, Discriminator("kind")])


def resume_state_from(kept: bytes) -> ResumeState | None:
    """What was kept, if anything was.

    Raises:
        ValueError: it cannot be read.
    """
    return _KEPT.validate_json(kept) if kept else None


@dataclass(frozen=True, slots=True)
class RunTool:
    """Call this tool."""

    skill: Skill
    arguments: JsonObject
    """As its server gets them."""
    answered: ServerQuestion | None = None
    """What the server asked in the call that this one goes on with, with the answers."""

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
        """The key of the server; empty in what was kept when an agent had one only."""
        return self.task.source_key


@dataclass(frozen=True, slots=True)
class RequireInput:
    """Ask the client."""

    state: TaskState
    parts: tuple[Part, ...]
    metadata: JsonObject
    kept: bytes
    """What the answer will be understood by."""


@dataclass(frozen=True, slots=True)
class End:
    """End the task, saying why."""

    state: TaskState
    words: str


Decision = RunTool | Follow | RequireInput | End
