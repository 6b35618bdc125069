"""The commands between replicas and their replies, as bytes for the store.

Replicas of two versions may run side by side. So a reader ignores unknown fields, and refuses an unknown kind of
command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from bridge.a2a.model.errors import INTERNAL, KINDS, A2AError, Violation, temporarily_unavailable
from bridge.a2a.model.objects import SendMessageRequest
from bridge.a2a.tasks.callers import CallContext
from bridge.text.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class SendCommand:
    """Accept a message."""

    request: SendMessageRequest
    caller: CallContext
    task_id: str | None = None
    """The task that the message goes to; None if it makes a task. The message itself may name only the task's
    context."""
    kind: Literal["send"] = "send"


@dataclass(frozen=True, slots=True)
class CancelCommand:
    """Cancel a task."""

    task_id: str
    caller: CallContext
    kind: Literal["cancel"] = "cancel"


Command = SendCommand | CancelCommand


@dataclass(frozen=True, slots=True)
class TakenReply:
    """The message was accepted."""

    task_id: str
    seq: int
    """The number of the last event that the message caused."""
    is_held: bool = False
    note: JsonObject | None = None
    kind: Literal["taken"] = "taken"


@dataclass(frozen=True, slots=True)
class CanceledReply:
    """The task is canceled."""

    kind: Literal["canceled"] = "canceled"


@dataclass(frozen=True, slots=True)
class ElsewhereReply:
    """This replica does not hold the task and did nothing. The asking replica has to look again."""

    kind: Literal["elsewhere"] = "elsewhere"


@dataclass(frozen=True, slots=True)
class RefusedReply:
    """An A2AError that answers the client."""

    reason: str
    message: str
    metadata: dict[str, str]
    violations: tuple[tuple[str, str], ...]
    """Each invalid field, with a description of its fault."""
    headers: dict[str, str]
    names: tuple[str, ...] = ()
    kind: Literal["refused"] = "refused"


Reply = TakenReply | CanceledReply | ElsewhereReply | RefusedReply

_COMMANDS: Final = TypeAdapter[Command](Command)
_REPLIES: Final = TypeAdapter[Reply](Reply)


def command_bytes(command: Command) -> bytes:
    """A command for the store."""
    return _COMMANDS.dump_json(command, by_alias=True, exclude_none=True)


def command_from(text: bytes) -> Command:
    """The command that another replica wrote.

    Raises:
        A2AError: UNAVAILABLE, the command is from a version that this replica cannot read.
    """
    try:
        return _COMMANDS.validate_json(text)
    except ValidationError as exc:
        raise temporarily_unavailable(
            "The replica that holds the task cannot read what is asked of it"
        ) from exc


def reply_bytes(reply: Reply) -> bytes:
    """A reply for the store."""
    return _REPLIES.dump_json(reply, by_alias=True, exclude_none=True)


def reply_from(text: bytes) -> TakenReply | CanceledReply | ElsewhereReply:
    """The reply of another replica.

    Raises:
        A2AError: the replica refused, or its reply cannot be read.
    """
    try:
        reply = _REPLIES.validate_json(text)
    except ValidationError as exc:
        raise temporarily_unavailable("The reply of the replica that holds the task cannot be read") from exc
    if isinstance(reply, RefusedReply):
        raise A2AError(
            KINDS.get(reply.reason, INTERNAL),
            reply.message,
            metadata=reply.metadata,
            violations=[Violation(*pair) for pair in reply.violations],
            headers=reply.headers,
            names=reply.names,
        )
    return reply


def refusal(error: A2AError) -> RefusedReply:
    """An error as a reply."""
    violations = tuple((violation.field, violation.description) for violation in error.violations)
    return RefusedReply(error.kind.reason, str(error), error.metadata, violations, error.headers, error.names)
