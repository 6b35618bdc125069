"""The life of a task as a table, how an event changes it, and the events that its agent makes. Pure.

    SUBMITTED ──▶ WORKING ──▶ COMPLETED | FAILED | CANCELED | REJECTED      ended: nothing follows
        │            ▲ │
        └────────────┤ ▼
                     INPUT_REQUIRED | AUTH_REQUIRED                         interrupted: a message goes on

A task is the fold of its events. The first event is a Task. Each later event is a status update, an artifact update,
or a message of the user. A message of the user is not a stream event; it becomes history.

The message of a question becomes history when the task goes on. The message of a progress report is not kept. The
message of an ended state is kept in the status alone; answers also show it in the history, since some clients read only
the history.

Spec: A2A 1.0 sections 3.1.2, 3.4.3, 3.7, 4.1.3, 4.1.4, 4.2, 7.6.1 and 11.7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.a2a.model.objects import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    made,
    milliseconds,
    timestamp,
)
from bridge.frozen import frozen
from bridge.text.jsonvalues import JsonObject

_S = TaskState

ENDED: Final = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELED, _S.REJECTED})
"""Terminal states: nothing follows."""

INTERRUPTED: Final = frozenset({_S.INPUT_REQUIRED, _S.AUTH_REQUIRED})
"""States in which the task waits for its client, and accepts a message."""

SETTLED: Final = ENDED | INTERRUPTED
"""States in which a blocking SendMessage answers (section 3.2.2)."""

CLOSES_STREAM: Final = ENDED | {_S.INPUT_REQUIRED}
"""States whose event is the last of a stream. AUTH_REQUIRED is not: a credential may come out of band (7.6.1)."""

_FROM_ANYWHERE: Final = ENDED | INTERRUPTED | {_S.WORKING}

NEXT: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    _S.SUBMITTED: _FROM_ANYWHERE | {_S.SUBMITTED},
    _S.WORKING: _FROM_ANYWHERE,
    _S.INPUT_REQUIRED: _FROM_ANYWHERE,
    _S.AUTH_REQUIRED: _FROM_ANYWHERE,
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.REJECTED: frozenset(),
}
"""Which states may follow a state. A state may follow itself while the task lives: such an event is progress."""


class IllegalTransitionError(Exception):
    """The event cannot follow: the state does not allow it, or it belongs to another task."""


def apply_event(task: Task, event: StreamResponse) -> Task:
    """The task after an event.

    Raises:
        IllegalTransitionError: the event cannot follow.
    """
    payload = event.payload
    if task.status.state in ENDED:
        raise IllegalTransitionError(f"task {task.id} is {task.status.state} and takes no more events")
    owner = payload.id if isinstance(payload, Task) else payload.task_id
    if owner not in (task.id, None):
        raise IllegalTransitionError(f"an event of task {owner} is none of task {task.id}")
    match payload:
        case TaskStatusUpdateEvent():
            return _with_status(task, payload)
        case TaskArtifactUpdateEvent():
            return task.changed(artifacts=_with_artifact(task.artifacts or (), payload))
        case Message():
            return task.changed(history=(*_history_with_status(task, INTERRUPTED), payload))
        case Task():
            return payload


def not_before(event: StreamResponse, status: TaskStatus) -> StreamResponse:
    """The event with a status that is not older than `status`. Lists are ordered by these times, but a clock may be set
    back, and the clocks of two replicas differ."""
    update = event.status_update
    if update is None or not update.status.timestamp or not status.timestamp:
        return event
    if milliseconds(update.status.timestamp) >= milliseconds(status.timestamp):
        return event
    moved = update.changed(status=update.status.changed(timestamp=status.timestamp))
    return event.changed(status_update=moved)


def with_history(task: Task, length: int | None) -> Task:
    """The task as answers show it, with the `length` newest messages of its history; None is all (3.2.4, 3.7).

    The message of an ended task's status is shown as the newest message of the history. The message of a question joins
    the history only when the task goes on: clients that follow a task then add it themselves.
    """
    history = _history_with_status(task, ENDED)
    if not history or (length is None and history is task.history):
        return task
    visible = history if length is None else history[-length:] if length else None
    return task.changed(history=visible)


def with_note(task: Task, note: JsonObject | None) -> Task:
    """The task with `note` added to its metadata, for one answer."""
    return task.changed(metadata={**(task.metadata or {}), **note}) if note else task


def without_artifacts(task: Task) -> Task:
    """The task as a list shows it by default (section 3.1.4)."""
    return task if task.artifacts is None else task.changed(artifacts=None)


def _with_status(task: Task, update: TaskStatusUpdateEvent) -> Task:
    if update.status.state not in NEXT[task.status.state]:
        raise IllegalTransitionError(
            f"task {task.id} cannot go from {task.status.state} to {update.status.state}"
        )
    return task.changed(status=update.status, history=_history_with_status(task, INTERRUPTED) or None)


def _history_with_status(task: Task, states: frozenset[TaskState]) -> tuple[Message, ...]:
    """The history; in one of `states`, the status's message is its newest message, once."""
    history, latest = task.history or (), task.status.message
    if task.status.state not in states or latest is None:
        return history
    if any(message.message_id == latest.message_id for message in history):
        return history
    return (*history, latest)


def _with_artifact(known: tuple[Artifact, ...], update: TaskArtifactUpdateEvent) -> tuple[Artifact, ...]:
    new = update.artifact
    for index, old in enumerate(known):
        if old.artifact_id != new.artifact_id:
            continue
        joined = old.changed(parts=(*old.parts, *new.parts)) if update.append else new
        return (*known[:index], joined, *known[index + 1 :])
    return (*known, new)


@dataclass(frozen=True, slots=True)
class IdsAndClock:
    """The source of new ids and of the time."""

    new: Callable[[], str]
    now_ms: Callable[[], int]
    """Milliseconds since the epoch, by the wall clock, which may be set back."""
    elapsed_ms: Callable[[], int]
    """Milliseconds of a monotonic clock, since an arbitrary moment."""


@frozen
class EventMaker:
    """Makes the events of one task."""

    ids: IdsAndClock
    task_id: str
    context_id: str

    def message(self, parts: Sequence[Part], metadata: JsonObject | None = None) -> Message:
        """A message of the agent on this task."""
        return made(
            Message,
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
        """An event that sets the task's state, at the present time."""
        status = made(TaskStatus, state=state, message=message, timestamp=timestamp(self.ids.now_ms()))
        update = made(
            TaskStatusUpdateEvent,
            task_id=self.task_id,
            context_id=self.context_id,
            status=status,
            metadata=metadata,
        )
        return made(StreamResponse, status_update=update)

    def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> StreamResponse:
        """An event that adds an artifact to the task, or with `append` adds its parts to the artifact of the same
        id."""
        update = made(
            TaskArtifactUpdateEvent,
            task_id=self.task_id,
            context_id=self.context_id,
            artifact=artifact,
            append=append or None,
            last_chunk=last_chunk,
        )
        return made(StreamResponse, artifact_update=update)
