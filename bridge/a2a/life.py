"""The life of a task as a table, and how an event changes it. Pure.

    SUBMITTED ──▶ WORKING ──▶ COMPLETED | FAILED | CANCELED | REJECTED      ended: nothing follows
        │            ▲ │
        └────────────┤ ▼
                     INPUT_REQUIRED | AUTH_REQUIRED                         interrupted: a message goes on

A task is the fold of its events: its first event is a Task, each later one a status update, an artifact
update, or a message of the user (which is no stream event, and becomes history). What a task has said while
it asked is history as soon as it goes on; what it said while it worked is passing and not kept.

Spec: A2A 1.0 sections 3.1.2, 3.4.3, 3.7, 4.1.3, 7.6.1 and 11.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from bridge.a2a.models import (
    Artifact,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
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


def after(task: Task, event: StreamResponse) -> Task:
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
            return _changed(task, history=(*_history_with_question(task), payload))
        case Task():
            return payload


def with_history(task: Task, length: int | None) -> Task:
    """The task with at most so many of its newest messages; None is all of them (section 3.2.4)."""
    if length is None or task.history is None:
        return task
    return _changed(task, history=task.history[-length:] if length else None)


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
    return _changed(task, status=update.status, history=_history_with_question(task) or None)


def _history_with_question(task: Task) -> tuple[Message, ...]:
    """The history with the open question in it, once, so that it stands before its answer."""
    history, question = task.history or (), task.status.message
    if task.status.state not in INTERRUPTED or question is None:
        return history
    if any(message.message_id == question.message_id for message in history):
        return history
    return (*history, question)


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
