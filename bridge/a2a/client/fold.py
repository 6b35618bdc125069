"""What a client knows of a task from the events that it hears. Pure.

`life.py` says what may follow what, for those who make events. A listener cannot choose: agents say SUBMITTED
twice, or WORKING first, and the task is what they say all the same. What an agent says on its way goes into the
history that is known, as it does where the agent keeps one: it may be all that the agent ever says.

Spec: A2A 1.0 sections 3.1.2, 3.2.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.life import ENDED, IllegalTransitionError, apply_event
from bridge.a2a.model.objects import (
    AppendedText,
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
)
from bridge.jsonvalues import json_bytes, values_in

logger = logging.getLogger(__name__)

_MOST_MESSAGES: Final = 100
"""How many messages of a history are kept, the newest ones; what an agent reports for hours has no end."""
_SHARE_OF_MESSAGES: Final = 16
"""They may hold this part of what a task may; the last one is always kept."""
_OBJECT_BYTES: Final = 700
"""What a part, a message or an artifact takes in memory beside what it says, measured."""
_VALUE_BYTES: Final = 100
"""The same for a value in plain JSON."""


class TaskTooLargeError(Exception):
    """A task holds more than is taken."""


class FoldedTask:
    """What is known of a task from the events that were heard, and how much that holds together."""

    def __init__(self, limit_bytes: int) -> None:
        self.task: Task | None = None
        self._limit_bytes = limit_bytes
        self._artifacts: dict[str, int] = {}
        self._artifact_bytes = self._other_bytes = 0
        self._messages: dict[int, int] = {}
        """By the identity of the messages in the history, which holds them."""

    def take(self, event: StreamResponse) -> Task:
        """The task after an event. Messages make room for newer ones.

        Raises:
            TooMuchError: it holds too much all the same. The task stays what it was.
        """
        before, payload = self.task, event.payload
        if before is None:
            assert not isinstance(payload, Message), "a message begins no task"
            after_it = begun_by(payload)
        else:
            after_it = folded(before, event)
        if after_it is not before:
            self._weigh(after_it, payload)
            self.task = self._with_newest(after_it)
        assert self.task is not None
        return self.task

    def _weigh(self, task: Task, payload: object) -> None:
        if isinstance(payload, TaskArtifactUpdateEvent):
            new, weight = payload.artifact, _weight_of_artifact(payload.artifact)
            held = self._artifacts.get(new.artifact_id, 0)
            self._artifacts[new.artifact_id] = weight + (held if payload.append else 0)
            self._artifact_bytes += weight - (0 if payload.append else held)
        elif isinstance(payload, Task):
            artifacts = task.artifacts or ()
            self._artifacts = dict.fromkeys((one.artifact_id for one in artifacts), 0)
            for one in artifacts:
                self._artifacts[one.artifact_id] += _weight_of_artifact(one)
            self._artifact_bytes = sum(self._artifacts.values())
        if isinstance(payload, Task | TaskStatusUpdateEvent):
            said = task.status.message
            self._other_bytes = (weight_of_message(said) if said else 0) + _weight_of(task.metadata)
        if self._artifact_bytes + self._other_bytes > self._limit_bytes:
            raise TaskTooLargeError

    def _with_newest(self, task: Task) -> Task:
        """The task with the newest of its messages, as many as it may hold."""
        history, last = task.history or (), task.status.message
        left = self._limit_bytes - self._artifact_bytes - self._other_bytes
        share, kept = min(left, self._limit_bytes // _SHARE_OF_MESSAGES), dict[int, int]()
        for message in reversed(history[-_MOST_MESSAGES:]):
            known = self._messages.get(id(message))
            kept[id(message)] = weight = weight_of_message(message) if known is None else known
            if message is last:
                continue
            share -= weight
            if weight > left:
                raise TaskTooLargeError
            if share < 0 and len(kept) > 1:
                del kept[id(message)]
                break
        self._messages = kept
        first = len(history) - len(kept)
        return task.model_copy(update={"history": history[first:]}) if first else task


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
            return apply_event(begun, StreamResponse(artifact_update=payload))
        case Message():
            raise AssertionError("a message begins no task")


def folded(task: Task, event: StreamResponse) -> Task:
    """The task after an event, also where the event cannot follow. Another task's event changes nothing."""
    if event.status_update is not None and event.status_update.task_id == task.id:
        task = _with_words_in_history(task)
    event = _with_what_goes_on(task, event)
    try:
        return apply_event(task, event)
    except IllegalTransitionError as exc:
        logger.debug("taken as it is: %s", exc)
    match event.payload:
        case TaskStatusUpdateEvent() as update if update.task_id == task.id:
            return task.model_copy(update={"status": update.status})
        case Task() as snapshot if snapshot.id == task.id:
            return snapshot
        case _:
            return task


def more_complete(heard: Task, read: Task) -> Task:
    """What is known of a task that was heard to settle and then read: agents leave out on one way what they give
    on the other."""
    if read.artifacts or read.status.message or read.status.state is not heard.status.state:
        return read
    told = any(message.role is Role.AGENT for message in read.history or ())
    return heard.model_copy(update={"history": read.history}) if told else heard


def weight_of_message(message: Message) -> int:
    """About how much a message takes in memory."""
    return _OBJECT_BYTES + sum(map(_weight_of_part, message.parts)) + _weight_of(message.metadata)


def _weight_of_artifact(artifact: Artifact) -> int:
    texts = len(artifact.name or "") + len(artifact.description or "")
    return _OBJECT_BYTES + texts + sum(map(_weight_of_part, artifact.parts)) + _weight_of(artifact.metadata)


def _weight_of_part(part: Part) -> int:
    texts = (part.text, part.raw, part.url, part.filename, part.media_type)
    beside = _weight_of(part.data) + _weight_of(part.metadata)
    return _OBJECT_BYTES + sum(len(text) for text in texts if text) + beside


def _weight_of(value: JsonValue) -> int:
    return 0 if value is None else _VALUE_BYTES * values_in(value) + len(json_bytes(value))


def _with_what_goes_on(task: Task, event: StreamResponse) -> StreamResponse:
    """The event with the texts in it marked that go on with one that is known: what comes anew in a Task, too."""
    known = {artifact.artifact_id: artifact.parts for artifact in task.artifacts or ()}
    match event.payload:
        case TaskArtifactUpdateEvent(append=True, artifact=new) as update if before := known.get(
            new.artifact_id
        ):
            first, *others = new.parts
            if _is_piece(before[-1], first):
                marked = new.model_copy(update={"parts": (_going_on(first), *others)})
                return StreamResponse(artifact_update=update.model_copy(update={"artifact": marked}))
        case Task(artifacts=artifacts) as snapshot if known and artifacts:
            kept = tuple(_marked_as(one, known.get(one.artifact_id, ())) for one in artifacts)
            return StreamResponse(task=snapshot.model_copy(update={"artifacts": kept}))
    return event


def _marked_as(artifact: Artifact, known: Sequence[Part]) -> Artifact:
    """An artifact with the marks that its parts had, as far as they are the same."""
    if not any(isinstance(part, AppendedText) for part in known):
        return artifact
    parts = (
        _going_on(part) if isinstance(old, AppendedText) and old == part else part
        for part, old in zip_longest(artifact.parts, known[: len(artifact.parts)])
    )
    return artifact.model_copy(update={"parts": (*parts,)})


def _is_piece(before: Part, part: Part) -> bool:
    """Whether two texts say the same of themselves, so that the second can go on with the first."""
    return before.kind == part.kind == "text" and _beyond_text(before) == _beyond_text(part)


def _beyond_text(part: Part) -> tuple[object, ...]:
    return part.metadata or None, part.media_type, part.filename, part.model_extra


def _going_on(part: Part) -> AppendedText:
    return AppendedText.model_construct(part.model_fields_set, **part.__dict__, **(part.model_extra or {}))


def _with_words_in_history(task: Task) -> Task:
    """The task with what its agent says now among its messages, once."""
    said, history = task.status.message, task.history or ()
    if said is None or said.role is not Role.AGENT or task.status.state in ENDED or history[-1:] == (said,):
        return task
    return task.model_copy(update={"history": (*history, said)})
