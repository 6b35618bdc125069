"""The timeline of a task: its events, each with its time, its cause and its peer. Pure.

A task of A2A has only the time of its last status. The bridge stores *moments* with its own tasks, and shows them in
the metadata of a task to clients that activate the extension. The timeline of any other task is derived from its
history and its status. A moment holds names and times, never contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from pydantic import JsonValue

from bridge.a2a.model.objects import Role, Task, milliseconds, timestamp
from bridge.text.jsonvalues import JsonObject

TIMELINE_URI: Final = "urn:mcp-a2a:timeline:v1"
"""The extension with which a client asks for the timelines of tasks."""
MOMENTS: Final = f"{TIMELINE_URI}/moments"
"""The metadata key of a task's moments: {"moments": [...], "leftOut"?: number}."""


class MomentKind(StrEnum):
    """The kind of an event."""

    RECEIVED = "received"
    """The message that made the task came."""
    SENT = "sent"
    """The call went to a peer."""
    STATE = "state"
    """The task got another state. A question is the state `input_required`."""
    MESSAGE = "message"
    """A message to the task came: an answer, or further input."""
    SAID = "said"
    """The agent said something. This kind occurs only in a timeline that is derived from the history."""
    CANCEL = "cancel"
    """Somebody asked to cancel the task."""
    RESUMED = "resumed"
    """Another process took over the task: the bridge was restarted, or a replica was gone."""


class Moment(NamedTuple):
    """One event in the life of a task. A field that does not apply is empty."""

    kind: MomentKind
    at_ms: int | None = None
    """Milliseconds since the epoch; None if the time is not known."""
    state: str = ""
    """The state as a word, such as `input_required`."""
    by: str = ""
    """The principal that caused the event."""
    peer: str = ""
    """The tool server or agent, by its key in the configuration."""
    trace: str = ""
    """The id of the trace that the event was part of."""
    message: str = ""
    """The id of the message that came or that asks, in the task's history or status."""

    def to_object(self) -> JsonObject:
        """The moment as JSON, without empty fields."""
        members: JsonObject = {"what": self.kind.value}
        if self.at_ms is not None:
            members["at"] = timestamp(self.at_ms)
        texts = {name: getattr(self, name) for name in _TEXTS}
        return {**members, **{name: text for name, text in texts.items() if text}}


_TEXTS: Final = ("state", "by", "peer", "trace", "message")


class Timeline(NamedTuple):
    """The moments of a task, the earliest first."""

    moments: tuple[Moment, ...] = ()
    left_out: int = 0
    """How many moments in the middle were left out because there were too many."""

    def to_object(self) -> JsonObject:
        """The timeline as JSON: the value of `MOMENTS`."""
        members: JsonObject = {"moments": [moment.to_object() for moment in self.moments]}
        return {**members, "leftOut": self.left_out} if self.left_out else members

    @property
    def place_left_out(self) -> int | None:
        """The index of the moment before which moments were left out; None if none were."""
        return len(self.moments) // 2 if self.left_out else None


def timeline_of(task: Task) -> Timeline:
    """The timeline of a task: from the moments in its metadata if there are any, else from its history and status."""
    timeline = (task.metadata or {}).get(MOMENTS)
    if isinstance(timeline, dict):
        return timeline_from(timeline)
    return Timeline(tuple(_derived_moments(task)))


def timeline_from(value: JsonObject) -> Timeline:
    """A timeline from its JSON. Invalid moments are skipped, since any agent may have written the JSON."""
    listed, left_out = value.get("moments"), value.get("leftOut")
    moments = (_moment_from(value) for value in (listed if isinstance(listed, list) else ()))
    number = left_out if isinstance(left_out, int) and left_out > 0 else 0
    return Timeline(tuple(moment for moment in moments if moment is not None), number)


def _moment_from(value: JsonValue) -> Moment | None:
    if not isinstance(value, dict):
        return None
    try:
        kind, at = MomentKind(str(value.get("what"))), value.get("at")
        at_ms = milliseconds(at) if isinstance(at, str) else None
    except ValueError:
        return None
    texts = {name: text for name in _TEXTS if isinstance(text := value.get(name), str)}
    return Moment(kind, at_ms, **texts)


def _derived_moments(task: Task) -> Iterator[Moment]:
    """The moments that the history and the status of a task show."""
    question, first = task.status.message, True
    for message in task.history or ():
        if message.role is Role.USER:
            yield Moment(MomentKind.RECEIVED if first else MomentKind.MESSAGE, message=message.message_id)
            first = False
        elif question is None or message.message_id != question.message_id:
            yield Moment(MomentKind.SAID, message=message.message_id)
    at_ms = milliseconds(task.status.timestamp) if task.status.timestamp else None
    yield Moment(
        MomentKind.STATE, at_ms, task.status.state.word, message=question.message_id if question else ""
    )
