"""What the worker behind an agent sees: the turn it is asked to take, and the task it writes to.

The engine makes both. A worker plans a turn before there is a task, so that what it refuses leaves nothing
behind; then it runs, writes events to its job, and returns once the task has ended or asks something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge.a2a.commit import Commit
from bridge.a2a.models import (
    AgentCard,
    Artifact,
    JsonObject,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    timestamp,
)
from bridge.web import Principal


@dataclass(frozen=True, slots=True)
class Turn:
    """One message for the agent."""

    principal: Principal
    message: Message
    configuration: SendMessageConfiguration
    metadata: JsonObject
    """The request's, beside the message's own."""
    extensions: frozenset[str]
    """The extensions that the client activated and the agent has."""
    task: Task | None = None
    """The task that the message answers; None for a new one."""
    kept: bytes = b""
    """What the worker kept with that task."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Where new ids and times come from."""

    new: Callable[[], str]
    now_ms: Callable[[], int]


@dataclass
class Job:
    """A task as its worker holds it: each method is one event, accepted in the order of the calls.

    An event is visible to others once it is stored; awaiting what a method gives back waits for that.
    """

    turn: Turn
    ids: Ids
    emit: Callable[[StreamResponse, bytes | None], Commit]
    """Accepts an event and what the worker keeps with it; the commit says when it is stored."""
    task_id: str
    context_id: str

    def message(self, parts: Sequence[Part], metadata: JsonObject | None = None) -> Message:
        """A message of the agent on this task."""
        return Message(
            message_id=self.ids.new(),
            context_id=self.context_id,
            task_id=self.task_id,
            role=Role.AGENT,
            parts=tuple(parts),
            metadata=metadata,
        )

    def status(
        self,
        state: TaskState,
        message: Message | None = None,
        *,
        metadata: JsonObject | None = None,
        keep: bytes | None = None,
    ) -> Commit:
        """The task is now in this state. `keep` replaces what is kept with it; None leaves that."""
        status = TaskStatus(state=state, message=message, timestamp=timestamp(self.ids.now_ms()))
        update = TaskStatusUpdateEvent(
            task_id=self.task_id, context_id=self.context_id, status=status, metadata=metadata
        )
        return self.emit(StreamResponse(status_update=update), keep)

    def artifact(self, artifact: Artifact, *, append: bool = False, last_chunk: bool = True) -> Commit:
        """An output of the task, or more of one."""
        update = TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=artifact,
            append=append or None,
            last_chunk=last_chunk,
        )
        return self.emit(StreamResponse(artifact_update=update), None)


class Work(Protocol):
    """What a worker does with one turn, once there is a task."""

    async def __call__(self, job: Job) -> None: ...


class Agent(Protocol):
    """What an A2A server serves."""

    def card(self, base_url: str) -> AgentCard:
        """What the agent says of itself, reachable at this base."""
        ...

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that a client may activate."""
        ...

    def plan(self, turn: Turn) -> Work:
        """Decide what a turn means, without waiting.

        Raises:
            A2AError: the turn is refused; no task is made and none is changed.
        """
        ...
