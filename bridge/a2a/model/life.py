"""The life of a task as a table, how an event changes it, and the events that its agent makes. Pure.

    SUBMITTED ──▶ WORKING ──▶ COMPLETED | FAILED | CANCELED | REJECTED      ended: nothing follows
        │            ▲ │
        └────────────┤ ▼
                     INPUT_REQUIRED | AUTH_REQUIRED                         interrupted: a message goes on

A task is the fold of its events. The first event is a Task; each later one is a status update, an artifact
update, or a message of the user, which is no stream event and becomes history. What an agent says with a question
becomes history when the task goes on; what it says while it works is not kept. Its last words stand in the status
alone, and answers show them in the history too, since some clients read nothing else.

Spec: A2A 1.0 sections 3.1.2, 3.4.3, 3.7, 4.1.3, 4.1.4, 4.2, 7.6.1 and 11.7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

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
    timestamp,
)
from bridge.jsonvalues import JsonObject

_S = TaskState
M = TypeVar("M", Task, Artifact)

ENDED: Final = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELED, _S.REJECTED})
"""Terminal states: nothing follows."""

INTERRUPTED: Final = frozenset({_S.INPUT_REQUIRED, _S.AUTH_REQUIRED})
"""States in which the task waits for its client, and takes a message."""

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
"""Which states may follow a state. A state may follow itself while the task lives: that is progress."""


class IllegalTransitionError(Exception):
    """An event that cannot follow: the task has ended, or the event is another task's."""


def apply_event(task: Task, event: StreamResponse) -> Task:
    """The task once an event has happened to it.

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
            return _changed(task, artifacts=_with_artifact(task.artifacts or (), payload))
        case Message():
            return _changed(task, history=(*_history_with_status(task, INTERRUPTED), payload))
        case Task():
            return payload


def with_history(task: Task, length: int | None) -> Task:
    """The task as it is shown: once it has ended its last words are the newest message. It has at most so many;
    None is all of them (sections 3.2.4, 3.7).

    A question joins them only when its task goes on: clients that follow a task add it themselves then.
    """
    history = _history_with_status(task, ENDED)
    if not history or (length is None and history is task.history):
        return task
    shown = history if length is None else history[-length:] if length else None
    return _changed(task, history=shown)


def with_note(task: Task, note: JsonObject | None) -> Task:
    """The task with more metadata, for one answer only."""
    return _changed(task, metadata={**(task.metadata or {}), **note}) if note else task


def without_artifacts(task: Task) -> Task:
    """The task as a list shows it by default (section 3.1.4)."""
    return task if task.artifacts is None else _changed(task, artifacts=None)


def _with_status(task: Task, update: TaskStatusUpdateEvent) -> Task:
    if update.status.state not in NEXT[task.status.state]:
        raise IllegalTransitionError(
            f"task {task.id} cannot go from {task.status.state} to {update.status.state}"
        )
    return _changed(task, status=update.status, history=_history_with_status(task, INTERRUPTED) or None)


def _history_with_status(task: Task, states: frozenset[TaskState]) -> tuple[Message, ...]:
    """The history, and in one of these states what its status says as the newest of it, once."""
    history, said = task.history or (), task.status.message
    if task.status.state not in states or said is None:
        return history
    if any(message.message_id == said.message_id for message in history):
        return history
    return (*history, said)


def _with_artifact(known: tuple[Artifact, ...], update: TaskArtifactUpdateEvent) -> tuple[Artifact, ...]:
    new = update.artifact
    for index, old in enumerate(known):
        if old.artifact_id != new.artifact_id:
            continue
        joined = _changed(old, parts=(*old.parts, *new.parts)) if update.append else new
        return (*known[:index], joined, *known[index + 1 :])
    return (*known, new)


def _changed(model: M, **fields: object) -> M:
    """A copy with other fields, unchecked: what goes in was checked when it was made."""
    return model.model_copy(update=fields)


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
