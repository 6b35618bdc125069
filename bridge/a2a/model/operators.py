"""How operators of the bridge see the tasks of others, by an extension that only operators can activate. Pure.

Without the extension, an operator is a client like any other. With it, each task names its owner. Contents are the
parts, and metadata that the bridge did not write. If contents are withheld, a mark replaces each part, so that an
operator sees that the part exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic_core import from_json

from bridge.a2a.model.errors import FORBIDDEN, A2AError, Violation, invalid_params
from bridge.a2a.model.objects import (
    AgentExtension,
    Artifact,
    Message,
    Part,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from bridge.a2a.model.progress import PROGRESS
from bridge.a2a.model.timeline import MOMENTS
from bridge.text.jsonvalues import JsonObject

OPERATOR_URI: Final = "urn:mcp-a2a:operator:v1"
"""The extension with which an operator asks for the tasks of all principals."""
OWNER: Final = f"{OPERATOR_URI}/owner"
"""The principal that a task belongs to. It is on each task that an operator sees by the extension."""
WITHHELD: Final = f"{OPERATOR_URI}/withheld"
"""On a part: the kind of the part that is withheld. Elsewhere: the names of withheld metadata."""
ANSWERED_BY: Final = f"{OPERATOR_URI}/answered-by"
"""On a message in the history: the operator that answered in place of the owner. Everyone sees it."""
CANCELED_BY: Final = f"{OPERATOR_URI}/canceled-by"
"""On the last message of a task: the operator that canceled it."""

SKILL_KEY: Final = "urn:mcp-a2a:tool:v1/skill"
_OWN: Final = "urn:mcp-a2a:"
"""The beginning of every key of the bridge. Case does not matter (RFC 8141 section 3.1)."""
_OF_CLIENTS: Final = frozenset(
    {
        *(SKILL_KEY, "urn:mcp-a2a:tool:v1/arguments", "urn:mcp-a2a:tool:v1/question"),
        *("urn:mcp-a2a:tool:v1/answer", "urn:mcp-a2a:tool:v1/block", "urn:mcp-a2a:tool:v1/occasions"),
        *("urn:mcp-a2a:unsaid:v1", "urn:mcp-a2a:unread:v1", "urn:mcp-a2a:hops:v1"),
        *("urn:mcp-a2a:logging:v1/level", "urn:mcp-a2a:tasks:v1/taken", "urn:mcp-a2a:tool:v1/responses"),
    }
)
"""The bridge's keys that clients may write: for calls, answers, parts that they pass on, notes of older versions, the
number of bridges on the way of a message, the level of log messages, and whether a host takes tasks."""
_OPEN: Final = frozenset({SKILL_KEY, PROGRESS, MOMENTS, OWNER, ANSWERED_BY, CANCELED_BY})
"""Metadata keys that hold no contents."""
_SHOWN_OF_KEY: Final = 100
_FORGED_SHOWN: Final = 10
_WORDS: Final = "(withheld: this bridge shows operators no contents)"

DECLARATION: Final = AgentExtension(
    uri=OPERATOR_URI, description="The tasks of all principals, for operators of the bridge", required=False
)
"""The declaration on the extended card of an operator."""


def needs_role_answer() -> A2AError:
    """FORBIDDEN: an operator with the role `read` asked for more."""
    return A2AError(FORBIDDEN, "An operator with the role `read` sees the tasks of others and changes none")


def is_for_its_owner(what: str) -> A2AError:
    """FORBIDDEN: an operator gave something that only the owner of a task may give: `what`, a verb phrase."""
    return A2AError(FORBIDDEN, f"Only the owner of the task may {what}")


def require_no_forged_notes(request: SendMessageRequest) -> None:
    """Refuse metadata of a client under keys of the bridge, anywhere in a message.

    Raises:
        A2AError: INVALID_PARAMS, with the place of each such key.
    """
    message = request.message
    holders: list[tuple[str, Mapping[str, object] | None]] = [
        ("metadata", request.metadata),
        ("message.metadata", message.metadata),
        *((f"message.parts[{at}].metadata", part.metadata) for at, part in enumerate(message.parts)),
    ]
    forged = [
        Violation(f'{where}["{key[:_SHOWN_OF_KEY]}"]', "may be set by the bridge only")
        for where, metadata in holders
        for key in metadata or ()
        if key[: len(_OWN)].lower() == _OWN and key not in _OF_CLIENTS
    ]
    if forged:
        raise invalid_params(*forged[:_FORGED_SHOWN])


def withheld_task(task: Task) -> Task:
    """A task without its contents."""
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=_withheld_status(task.status),
        artifacts=None if task.artifacts is None else tuple(map(_withheld_artifact, task.artifacts)),
        history=None if task.history is None else tuple(map(_withheld_message, task.history)),
        metadata=_withheld_metadata(task.metadata, task.model_extra),
    )


def withheld_event(text: bytes) -> bytes:
    """The JSON of a StreamResponse without contents."""
    payload = StreamResponse.model_validate(from_json(text)).payload
    match payload:
        case Task():
            return StreamResponse(task=withheld_task(payload)).to_json()
        case Message():
            return StreamResponse(message=_withheld_message(payload)).to_json()
        case TaskStatusUpdateEvent():
            return StreamResponse(status_update=_withheld_update(payload)).to_json()
        case TaskArtifactUpdateEvent():
            return StreamResponse(artifact_update=_withheld_piece(payload)).to_json()


def _withheld_update(update: TaskStatusUpdateEvent) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        status=_withheld_status(update.status),
        metadata=_withheld_metadata(update.metadata, update.model_extra),
    )


def _withheld_piece(update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        artifact=_withheld_artifact(update.artifact),
        append=update.append,
        last_chunk=update.last_chunk,
        metadata=_withheld_metadata(update.metadata, update.model_extra),
    )


def _withheld_status(status: TaskStatus) -> TaskStatus:
    message = None if status.message is None else _withheld_message(status.message)
    return TaskStatus(state=status.state, message=message, timestamp=status.timestamp)


def _withheld_message(message: Message) -> Message:
    return Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,
        parts=_withheld_parts(message.parts),
        metadata=_withheld_metadata(message.metadata, message.model_extra),
        extensions=message.extensions,
        reference_task_ids=message.reference_task_ids,
    )


def _withheld_artifact(artifact: Artifact) -> Artifact:
    return Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=None if artifact.description is None else _WORDS,
        parts=_withheld_parts(artifact.parts),
        metadata=_withheld_metadata(artifact.metadata, artifact.model_extra),
        extensions=artifact.extensions,
    )


def _withheld_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(Part(text=_WORDS, metadata={WITHHELD: part.kind}) for part in parts)


def _withheld_metadata(metadata: JsonObject | None, fields: Mapping[str, object] | None) -> JsonObject | None:
    """Metadata without contents. The names of withheld metadata stay, and so do the names of fields that A2A does not
    have."""
    public = {key: value for key, value in (metadata or {}).items() if key in _OPEN}
    closed = [*(key for key in metadata or {} if key not in _OPEN), *(fields or {})]
    if closed:
        return {**public, WITHHELD: [*closed]}
    return None if metadata is None else public
