"""What a client knows of a task from the events that it hears. Pure.

`life.py` says what may follow what, for those who make events. A listener cannot choose: agents say SUBMITTED
twice, or WORKING first, and the task is what they say all the same.

Spec: A2A 1.0 sections 3.1.2, 3.2.3.
"""

from __future__ import annotations

import logging

from bridge.a2a.life import IllegalTransitionError, after
from bridge.a2a.models import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

logger = logging.getLogger(__name__)


def begun_by(payload: Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
    """The task that a first event tells of; an agent may leave out the Task that comes first by section 3.1.2."""
    match payload:
        case Task():
            return payload
        case TaskStatusUpdateEvent():
            return Task(id=payload.task_id, context_id=payload.context_id, status=payload.status)
        case TaskArtifactUpdateEvent():
            status = TaskStatus(state=TaskState.WORKING)
            begun = Task(id=payload.task_id, context_id=payload.context_id, status=status)
            return after(begun, StreamResponse(artifact_update=payload))
        case Message():
            raise AssertionError("a message begins no task")


def folded(task: Task, event: StreamResponse) -> Task:
    """The task after an event, also where the event cannot follow. Another task's event changes nothing."""
    try:
        return after(task, event)
    except IllegalTransitionError as exc:
        logger.debug("taken as it is: %s", exc)
    match event.payload:
        case TaskStatusUpdateEvent() as update if update.task_id == task.id:
            return task.model_copy(update={"status": update.status})
        case Task() as snapshot if snapshot.id == task.id:
            return snapshot
        case _:
            return task
