"""What is kept with a task of an agent made of agents, so that any process can go on with the task. Values only."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, Protocol

from pydantic import Discriminator, TypeAdapter

from bridge.a2a.model.objects import SendMessageRequest, TaskStatus
from bridge.text.jsonvalues import JsonObject, json_bytes
from bridge.trace import TraceContext, context

_ASKED_BYTES: Final = 16_384
"""The largest status that is kept, in bytes. A larger one is rarely read again after its answer."""
_METADATA_BYTES: Final = 16_384
"""The largest metadata of a task that are kept, in bytes, since each stored event of the task has what is kept."""


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """The task of a remote agent that stands behind a task."""

    agent: str
    """The key of the remote agent."""
    task_id: str
    """The id of the task at the remote agent."""
    context_id: str | None
    """The context at the remote agent; None if the agent names none."""
    skill_id: str = ""
    """The skill that the first message named, with our id; empty if the message named none."""
    asked: JsonObject | None = None
    """The remote status that asks for something, since a later read may still show it; None if nothing is asked, or if
    the status is large."""
    metadata: JsonObject | None = None
    """The metadata of the remote task when it last settled; None if it has none, or if the metadata are large."""
    trace: TraceContext = field(default_factory=context.get)
    """The trace of the turn that kept the value."""
    kind: Literal["remote-task"] = "remote-task"

    @property
    def answered(self) -> TaskStatus | None:
        """The status that an answer to the task answers.

        Raises:
            ValueError: another release has kept something else.
        """
        return None if self.asked is None else TaskStatus.model_validate(self.asked)

    def settled(self, asked: TaskStatus | None, metadata: JsonObject | None) -> RemoteTask:
        """The task with the status that asks now, None if nothing is asked, and with its metadata."""
        return replace(
            self,
            asked=None if asked is None else _if_small(asked.to_object(), _ASKED_BYTES),
            metadata=None if metadata is None else _if_small(metadata, _METADATA_BYTES),
        )


@dataclass(frozen=True, slots=True)
class WhichAgent:
    """The bridge asked the client which of several remote agents a message is for."""

    request: JsonObject
    """The SendMessageRequest that waits, without its configuration."""
    tries: int = 0
    """How many answers named no agent so far."""
    trace: TraceContext = field(default_factory=context.get)
    """See `RemoteTask`."""
    kind: Literal["which-agent"] = "which-agent"

    def waiting(self) -> SendMessageRequest:
        """The message that waits.

        Raises:
            ValueError: another release has kept something else.
        """
        return SendMessageRequest.model_validate(self.request)


def _if_small(value: JsonObject, most_bytes: int) -> JsonObject | None:
    return value if len(json_bytes(value)) <= most_bytes else None


Kept = RemoteTask | WhichAgent

_KEPT: TypeAdapter[Kept] = TypeAdapter(Annotated[Kept, Discriminator("kind")])


def kept_bytes(value: Kept) -> bytes:
    """A value as it is kept with its task."""
    return _KEPT.dump_json(value)


def kept_in(work: bytes) -> Kept | None:
    """The value that was kept with a task; None if there is none.

    Raises:
        ValueError: another release has kept something else.
    """
    return _KEPT.validate_json(work) if work else None


class TaskRecords(Protocol):
    """Finds what is kept with the tasks of the agent's own callers."""

    def of_task(self, task_id: str, owner: str) -> Awaitable[bytes]:
        """What is kept with a task of this owner; empty if the owner has no such task."""
        ...

    def in_context(self, context_id: str, owner: str) -> Awaitable[tuple[bytes, ...]]:
        """What is kept with the tasks of this owner in a context, the newest task first."""
        ...
