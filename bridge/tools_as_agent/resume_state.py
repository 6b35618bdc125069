"""The decision about a turn, and the state that is kept with its task so that any process can resume it. Values only.

The `kind` of a kept value names its type. The value holds everything that is needed to resume; nothing stays in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Discriminator, JsonValue, TypeAdapter

from bridge.a2a.model.objects import Part, TaskState
from bridge.frozen import frozen
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.skills import Skill, Skills
from bridge.trace import TraceContext, context
from bridge.translate.language.plain_words import Said

ElicitationsByKey = dict[str, dict[str, JsonValue]]
"""A server's questions by key: the params of an elicitation/create each. Also answers by key: an ElicitResult each."""


class ResumeMode(StrEnum):
    """How a call continues once its question is answered."""

    ROUND = "round"
    """The call is made again, with the answers and the server's state (MCP 2026-07-28 basic/patterns/mrtr)."""
    AGAIN = "again"
    """The call is made again, unchanged: the server refused it until a URL was visited (error -32042)."""
    OPEN = "open"
    """The call is still open, and takes the answer. The call is lost when its process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTrace:
    """The trace of a kept value. The task continues this trace if its next turn names no trace."""

    trace: TraceContext = field(default_factory=context.get)
    """The trace of the turn that kept the value."""


@dataclass(frozen=True, slots=True)
class OwnQuestion(_OfTrace):
    """The bridge itself asked for arguments, or for the skill."""

    skill_id: str
    """Empty when the question asks which skill is meant."""
    arguments: JsonObject
    fields: tuple[str, ...]
    """The properties that were asked for."""
    source_key: str = ""
    tool_name: str = ""
    """Identifies the tool, with `source_key`: the skill id may later belong to another tool. Empty in values of earlier
    releases."""
    tries: int = 0
    """How many answers did not fit so far."""
    said: Said | None = None
    """How a sentence named the skill. The call may need a confirmation for that reason."""
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
    said: Said | None = None
    """See `OwnQuestion`."""
    kind: Literal["confirmation"] = "confirmation"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class LoginWait:
    """What another process needs to continue a call that waits for its caller's login, without a new message."""

    proof: str
    """Proves that the principal asked for the call; see `CallerLogins.sealed`."""
    extensions: tuple[str, ...] = ()
    """The extensions that the client had activated."""
    output_modes: tuple[str, ...] = ()
    """The media types that the client accepts; empty if it named none."""
    metadata: JsonObject = field(default_factory=dict)
    """The request's metadata of the extensions that the agent declares."""


@dataclass(frozen=True, slots=True)
class ServerQuestion(_OfTrace):
    """The server asked in the middle of a call."""

    skill_id: str
    arguments: JsonObject
    way: ResumeMode
    questions: ElicitationsByKey
    given: ElicitationsByKey = field(default_factory=dict)
    """The ElicitResults of the questions that are already answered, by key, and the bridge's own answers about
    folders."""
    request_state: str | None = None
    is_repeatable: bool = False
    """Whether the call may be made again from its start if it cannot continue."""
    source_key: str = ""
    tool_name: str = ""
    """Identifies the tool, with `source_key`: the id of its skill may have changed meanwhile."""
    occasions: dict[str, str] = field(default_factory=dict)
    """The id of each question's occasion, by key: servers may use a key again in a later round."""
    is_of_process: bool = False
    """Whether `request_state` may refer to the memory of a server that is a process of this bridge. If so, it is never
    sent to another replica's process of that server."""
    login: LoginWait | None = None
    """Set while the call waits for its caller's login; None if the server itself asks."""
    tries: int = 0
    """How many answers did not fit so far."""
    kind: Literal["server-question"] = "server-question"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


@dataclass(frozen=True, slots=True)
class FollowedTask(_OfTrace):
    """The server turned the call into a task."""

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


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A call that a model chose, and its result."""

    skill_id: str
    name: str
    """The name of the tool for the model."""
    arguments: JsonObject
    words: str = ""
    """What the model said beside the call."""
    result: str = ""
    """The result as text, or the reason of the failure. Empty while the call has no result."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ModelWait(_OfTrace):
    """A model works on a text: it was asked and has not answered yet, or a call that it chose waits for an answer."""

    key: str
    """The key of the question that is asked if the model does not answer."""
    kept: str
    """The state kept with this question."""
    skill_id: str = ""
    text: str = ""
    """The text of the client."""
    question: str = ""
    """The question that the text answers; see `AskModel`."""
    offered: tuple[str, ...] = ()
    """The digests of the tools that the model got first. It never gets another tool."""
    steps: tuple[ModelStep, ...] = ()
    """The calls so far. While a call waits, it is the last of them."""
    tokens: int = 0
    """The tokens that the model has used for this text so far."""
    seconds: float = 0.0
    """The time that the model has taken for this text so far."""
    waiting: str = ""
    """The state of the call that waits for an answer; empty if none waits."""
    kind: Literal["model-wait"] = "model-wait"

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return _KEPT.dump_json(self)


ResumeState = OwnQuestion | Confirmation | ServerQuestion | FollowedTask | ModelWait

_KEPT: Final[TypeAdapter[ResumeState]] = TypeAdapter(Annotated[ResumeState, Discriminator("kind")])


def resume_state_from(text: bytes) -> ResumeState | None:
    """The kept value; None when nothing was kept. If a call that a model chose waits, this is the state of the call.

    Raises:
        ValueError: the bytes cannot be read.
    """
    known = _KEPT.validate_json(text) if text else None
    if isinstance(known, ModelWait) and known.waiting:
        return resume_state_from(known.waiting.encode())
    return known


def rounds_in(text: bytes) -> ModelWait | None:
    """The rounds of a model in which a call waits for an answer; None if there are none.

    Raises:
        ValueError: the bytes cannot be read.
    """
    known = _KEPT.validate_json(text) if b'"model-wait"' in text else None
    return known if isinstance(known, ModelWait) and known.waiting else None


@frozen
class RunTool:
    """Call this tool."""

    skill: Skill
    arguments: JsonObject
    """The arguments that the server gets."""
    answered: ServerQuestion | None = None
    """The server's question with its answers, if this call continues a call that asked."""

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
    """Continue a call that the server turned into a task."""

    task: FollowedTask

    @property
    def skill_id(self) -> str:
        """The id that the skill had when it was called."""
        return self.task.skill_id

    @property
    def source_key(self) -> str:
        """The key of the server; empty in values of early releases, when an agent had only one server."""
        return self.task.source_key


@dataclass(frozen=True, slots=True)
class RequireInput:
    """Ask the client."""

    state: TaskState
    parts: tuple[Part, ...]
    metadata: JsonObject
    kept: bytes
    """The state kept with the task, by which the next turn reads the answer."""
    stays: bool = False
    """Whether only this process can continue with the answer."""


@dataclass(frozen=True, slots=True)
class End:
    """End the task with a reason."""

    state: TaskState
    words: str
    is_brief: bool = False
    """Whether a Message says it, without a task."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask a model what a text means."""

    text: str
    question: str
    """The bridge's question that the text answers; empty if there is none."""
    otherwise: RequireInput
    """What the client is asked if the model makes no choice."""
    skills: Skills
    """The skills that the caller may use."""


Decision = RunTool | Follow | RequireInput | End | AskModel
