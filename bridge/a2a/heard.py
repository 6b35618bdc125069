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

from bridge.a2a.life import ENDED, IllegalTransitionError, after
from bridge.a2a.models import (
    Artifact,
    GoingOn,
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

logger = logging.getLogger(__name__)

_MOST_MESSAGES: Final = 100
"""How many messages of a history are kept, the newest ones; what an agent reports for hours has no end."""
_MOST_BYTES: Final = 16_777_216
"""How much they may hold together; the last one is always kept."""


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
    if event.status_update is not None and event.status_update.task_id == task.id:
        task = _with_words_in_history(task)
    event = _with_what_goes_on(task, event)
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


def fuller(heard: Task, read: Task) -> Task:
    """What is known of a task that was heard to settle and then read: agents leave out on one way what they give
    on the other."""
    if read.artifacts or read.status.message or read.status.state is not heard.status.state:
        return read
    told = any(message.role is Role.AGENT for message in read.history or ())
    return heard.model_copy(update={"history": read.history}) if told else heard


def size_of(part: Part) -> int:
    """About how much a part holds; a part of nothing is something too."""
    return len(part.text or part.raw or "") + (len(repr(part.data)) if part.data is not None else 0) + 100


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
    if not any(isinstance(part, GoingOn) for part in known):
        return artifact
    parts = (
        _going_on(part) if isinstance(old, GoingOn) and old == part else part
        for part, old in zip_longest(artifact.parts, known[: len(artifact.parts)])
    )
    return artifact.model_copy(update={"parts": (*parts,)})


def _is_piece(before: Part, part: Part) -> bool:
    """Whether two texts say the same of themselves, so that the second can go on with the first."""
    return before.kind == part.kind == "text" and _beyond_text(before) == _beyond_text(part)


def _beyond_text(part: Part) -> tuple[object, ...]:
    return part.metadata or None, part.media_type, part.filename, part.model_extra


def _going_on(part: Part) -> GoingOn:
    return GoingOn.model_construct(part.model_fields_set, **part.__dict__, **(part.model_extra or {}))


def _with_words_in_history(task: Task) -> Task:
    """The task with what its agent says now among its messages, once."""
    said, history = task.status.message, task.history or ()
    if said is None or said.role is not Role.AGENT or task.status.state in ENDED or history[-1:] == (said,):
        return task
    return task.model_copy(update={"history": (*_newest(history, sum(map(size_of, said.parts))), said)})


def _newest(history: Sequence[Message], more_bytes: int) -> Sequence[Message]:
    """The newest messages that may be kept beside one more."""
    first, held = len(history), more_bytes
    while first > 0 and len(history) - first < _MOST_MESSAGES - 1:
        held += sum(map(size_of, history[first - 1].parts))
        if held > _MOST_BYTES:
            break
        first -= 1
    return history[first:]
