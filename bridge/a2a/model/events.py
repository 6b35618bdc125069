"""New events of a task, as the agent's side makes them. Pure: ids and times come in.

Spec: A2A 1.0 sections 4.1.4 (Message), 4.2 (events).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.a2a.model.objects import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    timestamp,
)
from bridge.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class IdsAndClock:
    """Where new ids and times come from."""

    new: Callable[[], str]
    now_ms: Callable[[], int]
    """Milliseconds since the epoch, as the wall clock has them: it may be set back."""
    elapsed_ms: Callable[[], int]
    """Milliseconds of a clock that only goes on, from a beginning of its own."""


@dataclass(frozen=True, slots=True)
class EventMaker:
    """Makes the events of one task."""

    ids: IdsAndClock
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
        self, state: TaskState, message: Message | None = None, metadata: JsonObject | None = None
    ) -> StreamResponse:
        """The task is now in this state."""
        status = TaskStatus(state=state, message=message, timestamp=timestamp(self.ids.now_ms()))
        update = TaskStatusUpdateEvent(
            task_id=self.task_id, context_id=self.context_id, status=status, metadata=metadata
        )
        return StreamResponse(status_update=update)

    def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> StreamResponse:
        """An output of the task, or more of one."""
        update = TaskArtifactUpdateEvent(
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=artifact,
            append=append or None,
            last_chunk=last_chunk,
        )
        return StreamResponse(artifact_update=update)
