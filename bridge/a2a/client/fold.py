"""A task as a client knows it, folded from the events that it receives. Pure.

`life.py` has the rules for making events. A client must accept events that break the rules: some agents send SUBMITTED
twice, or WORKING first. The messages of an agent's progress reports are added to the known history, as agents with a
history do themselves: some agents say nothing else.

Spec: A2A 1.0 sections 3.1.2, 3.2.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.life import ENDED, IllegalTransitionError, apply_event
from bridge.a2a.model.objects import (
    UNNAMED,
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
    made,
)
from bridge.text.jsonvalues import json_bytes, values_in

logger = logging.getLogger(__name__)

_MOST_MESSAGES: Final = 100
"""How many messages of a history are kept. The newest are kept, since an agent may report for hours."""
_SHARE_OF_MESSAGES: Final = 16
"""The history may take 1/16 of the task's limit. Its last message is always kept."""
_TELLING: Final = 16
"""A piece that begins with a known text of at least this many characters replaces that text: it is the whole message so
far."""
_OBJECT_BYTES: Final = 700
"""The measured memory of a part, a message or an artifact without its content."""
_VALUE_BYTES: Final = 100
"""The measured memory of a JSON value without its content."""


class TaskTooLargeError(Exception):
    """A task is larger than its limit."""


class FoldedTask:
    """A task folded from received events, with a bound on its total size."""

    def __init__(self, limit_bytes: int) -> None:
        self.task: Task | None = None
        self._limit_bytes = limit_bytes
        self._artifacts: dict[str, int] = {}
        self._artifact_bytes = self._other_bytes = 0
        self._messages: dict[int, int] = {}
        """The weights of the history's messages, by `id()`. The ids stay valid, since the history keeps the messages
        alive."""

    def take(self, event: StreamResponse) -> Task:
        """The task after an event. Old messages are dropped for newer ones.

        Raises:
            TaskTooLargeError: the task is still above its limit. `task` stays as it was.
        """
        before, payload = self.task, event.payload
        if before is not None and before.id == UNNAMED and (task_id := _owner(payload)):
            before = before.changed(id=task_id)
        if isinstance(payload, Task):
            event = made(StreamResponse, task=with_pieces_joined(payload))
            payload = event.payload
        if before is None:
            assert not isinstance(payload, Message), "a message does not start a task"
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
            self._artifacts = dict.fromkeys((artifact.artifact_id for artifact in artifacts), 0)
            for artifact in artifacts:
                self._artifacts[artifact.artifact_id] += _weight_of_artifact(artifact)
            self._artifact_bytes = sum(self._artifacts.values())
        if isinstance(payload, Task | TaskStatusUpdateEvent):
            message = task.status.message
            self._other_bytes = (weight_of_message(message) if message else 0) + _weight_of(task.metadata)
        if self._artifact_bytes + self._other_bytes > self._limit_bytes:
            raise TaskTooLargeError

    def _with_newest(self, task: Task) -> Task:
        """The task with as many of its newest messages as fit."""
        history, last = task.history or (), task.status.message
        left = self._limit_bytes - self._artifact_bytes - self._other_bytes
        share, weights = min(left, self._limit_bytes // _SHARE_OF_MESSAGES), dict[int, int]()
        for message in reversed(history[-_MOST_MESSAGES:]):
            known = self._messages.get(id(message))
            weights[id(message)] = weight = weight_of_message(message) if known is None else known
            if message is last:
                continue
            share -= weight
            if weight > left:
                raise TaskTooLargeError
            if share < 0 and len(weights) > 1:
                del weights[id(message)]
                break
        self._messages = weights
        first = len(history) - len(weights)
        return task.changed(history=history[first:]) if first else task


class FoldedMessage:
    """The message that a stream gives instead of a task, as far as it was received, with a bound on its size."""

    def __init__(self, limit_bytes: int) -> None:
        self.message: Message | None = None
        self._limit_bytes = limit_bytes
        self._pieces = self._bytes = 0

    @property
    def is_in_pieces(self) -> bool:
        """Whether the message comes in pieces: several pieces have arrived, or the first piece had no content."""
        message = self.message
        return message is not None and (self._pieces > 1 or all(part.text == "" for part in message.parts))

    def take(self, piece: Message) -> Message:
        """The message with its next piece, or with the content of the next message.

        Raises:
            TaskTooLargeError: the message is above its limit.
        """
        self._pieces += 1
        self._bytes += weight_of_message(piece)
        if self._bytes > self._limit_bytes:
            raise TaskTooLargeError
        self.message = joined_message(self.message, piece) if self.message else piece
        return self.message


def begun_by(payload: Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
    """The task of a first event. By section 3.1.2 a Task comes first, but some agents leave it out."""
    match payload:
        case Task():
            return payload
        case TaskStatusUpdateEvent():
            return Task(id=payload.task_id, context_id=_context_of(payload), status=payload.status)
        case TaskArtifactUpdateEvent():
            status = TaskStatus(state=TaskState.WORKING)
            begun = Task(id=payload.task_id, context_id=_context_of(payload), status=status)
            return apply_event(begun, made(StreamResponse, artifact_update=payload))
        case Message():
            raise AssertionError("a message does not start a task")


def _context_of(update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> str | None:
    return None if update.context_id == UNNAMED else update.context_id


def _owner(payload: Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> str | None:
    """The id of the task that a payload belongs to."""
    return payload.id if isinstance(payload, Task) else payload.task_id


def folded(task: Task, event: StreamResponse) -> Task:
    """The task after an event, even if the event breaks the rules of `life.py`. An event of another task changes
    nothing."""
    if event.status_update is not None and event.status_update.task_id == task.id:
        task = _with_words_in_history(task)
    if (
        event.message is not None
        and (grown_history := _gone_on(task.history or (), event.message)) is not None
    ):
        return task.changed(history=grown_history)
    event = _with_what_goes_on(task, event)
    try:
        return apply_event(task, event)
    except IllegalTransitionError as exc:
        logger.debug("an event is applied although the order of states forbids it: %s", exc)
    match event.payload:
        case TaskStatusUpdateEvent() as update if update.task_id == task.id:
            return task.changed(status=update.status)
        case Task() as snapshot if snapshot.id == task.id:
            return snapshot
        case TaskArtifactUpdateEvent() as late if late.task_id == task.id:
            going_on = task.changed(status=TaskStatus(state=TaskState.WORKING))
            return apply_event(going_on, event).changed(status=task.status)
        case Message() as said_late if said_late.task_id in (task.id, None):
            return task.changed(history=(*(task.history or ()), said_late))
        case _:
            return task


def joined_message(message: Message, more: Message) -> Message:
    """A message with the next message or piece of its stream. Pieces have the same message id; their texts become one
    text."""
    if message.message_id != more.message_id:
        return message.changed(parts=(*message.parts, *more.parts))
    before = tuple(part for part in message.parts if part.text != "") or message.parts[-1:]
    new = tuple(part for part in more.parts if part.text != "")
    if not new:
        return message.changed(parts=before)
    if before[-1].text == "":
        return more.changed(parts=(*before[:-1], *new))
    first, *others = new
    known = before[0].text or "" if len(before) == 1 else ""
    if not others and len(known) >= _TELLING and (first.text or "").startswith(known):
        return more
    if not _is_piece(before[-1], first):
        return more.changed(parts=(*before, *new))
    whole = before[-1].changed(text=f"{before[-1].text}{first.text}")
    return more.changed(parts=(*before[:-1], whole, *others))


def with_pieces_joined(task: Task) -> Task:
    """The task with the pieces of each message in its history joined."""
    history = task.history or ()
    if all(message.message_id != other.message_id for message, other in pairwise(history)):
        return task
    joined: list[Message] = []
    for message in history:
        if joined and joined[-1].message_id == message.message_id:
            joined[-1] = joined_message(joined[-1], message)
        else:
            joined.append(message)
    return task.changed(history=(*joined,))


def _gone_on(history: Sequence[Message], message: Message) -> tuple[Message, ...] | None:
    """The history with a piece joined to its last message; None if `message` is a message of its own."""
    if not history or history[-1].message_id != message.message_id:
        return None
    return (*history[:-1], joined_message(history[-1], message))


def more_complete(heard: Task, read: Task) -> Task:
    """The more complete view of a settled task: from its stream, or from a later read.

    Some agents leave content out of a stream, and others out of GetTask.
    """
    if heard.artifacts and not read.artifacts and read.status.state in ENDED:
        read = read.changed(artifacts=heard.artifacts)
    if heard.status.message and not read.status.message and read.status.state is heard.status.state:
        read = read.changed(status=read.status.changed(message=heard.status.message))
    if read.artifacts or read.status.message or read.status.state is not heard.status.state:
        return read
    has_answer = any(message.role is Role.AGENT for message in read.history or ())
    return heard.changed(history=read.history) if has_answer else heard


def weight_of_message(message: Message) -> int:
    """The approximate memory of a message, in bytes."""
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
    """The event, in which a text that continues a known text is an AppendedText.

    A Task in a stream repeats the artifacts; texts in them that were AppendedText stay so.
    """
    known = {artifact.artifact_id: artifact.parts for artifact in task.artifacts or ()}
    match event.payload:
        case TaskArtifactUpdateEvent(append=True, artifact=new) as update if before := known.get(
            new.artifact_id
        ):
            first, *others = new.parts
            if _is_piece(before[-1], first):
                marked = new.changed(parts=(_going_on(first), *others))
                return made(StreamResponse, artifact_update=update.changed(artifact=marked))
        case Task(artifacts=artifacts) as snapshot if known and artifacts:
            marked_artifacts = tuple(
                _marked_as(artifact, known.get(artifact.artifact_id, ())) for artifact in artifacts
            )
            return made(StreamResponse, task=snapshot.changed(artifacts=marked_artifacts))
    return event


def _marked_as(artifact: Artifact, known: Sequence[Part]) -> Artifact:
    """The artifact. Each part that equals a known AppendedText at the same place becomes an AppendedText."""
    if not any(isinstance(part, AppendedText) for part in known):
        return artifact
    parts = (
        _going_on(part) if isinstance(old, AppendedText) and old == part else part
        for part, old in zip_longest(artifact.parts, known[: len(artifact.parts)])
    )
    return artifact.changed(parts=(*parts,))


def _is_piece(before: Part, part: Part) -> bool:
    """Whether two parts are texts whose other fields are equal, so that the second can continue the first."""
    return before.kind == part.kind == "text" and _beyond_text(before) == _beyond_text(part)


def _beyond_text(part: Part) -> tuple[object, ...]:
    return part.metadata or None, part.media_type, part.filename, part.model_extra


def _going_on(part: Part) -> AppendedText:
    return AppendedText.model_construct(part.model_fields_set, **part.__dict__, **(part.model_extra or {}))


def _with_words_in_history(task: Task) -> Task:
    """The task, with the agent's status message added to its history, unless the history has it."""
    message, history = task.status.message, task.history or ()
    if (
        message is None
        or message.role is not Role.AGENT
        or task.status.state in ENDED
        or history[-1:] == (message,)
    ):
        return task
    return task.changed(history=_gone_on(history, message) or (*history, message))
