"""The timeline of a task: what happened to it when, by whom, and at which peer. Pure.

A task of A2A has the time of its last status only. The bridge keeps *moments* beside its own tasks, and shows them in
the metadata of a task to clients that activate the extension. The timeline of any other task is what its history and
its status tell. A moment holds names and times, and never what was said.
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
    """What happened."""

    RECEIVED = "received"
    """The message that made the task came."""
    SENT = "sent"
    """The call went to a peer."""
    STATE = "state"
    """The task got another state. A question is the state `input_required`."""
    MESSAGE = "message"
    """A message to the task came: an answer, or more to say."""
    SAID = "said"
    """The agent said something, as the history of a task tells that has no moments."""
    CANCEL = "cancel"
    """Somebody asked to cancel it."""
    RESUMED = "resumed"
    """Another process took the task up: the bridge had restarted, or a replica was gone."""


class Moment(NamedTuple):
    """One thing that happened to a task. What does not apply is empty."""

    kind: MomentKind
    at_ms: int | None = None
    """Milliseconds since the epoch; None where nobody wrote it down."""
    state: str = ""
    """The word of the state, as `input_required`."""
    by: str = ""
    """The principal that did it."""
    peer: str = ""
    """The tool server or agent, by its key in the configuration."""
    trace: str = ""
    """The id of the trace that it was part of."""
    message: str = ""
    """The id of the message in the task's history or status that came, or that asks."""

    def to_object(self) -> JsonObject:
        """The moment as JSON, without what is empty."""
        told: JsonObject = {"what": self.kind.value}
        if self.at_ms is not None:
            told["at"] = timestamp(self.at_ms)
        texts = {name: getattr(self, name) for name in _TEXTS}
        return {**told, **{name: text for name, text in texts.items() if text}}


_TEXTS: Final = ("state", "by", "peer", "trace", "message")


class Timeline(NamedTuple):
    """What happened to a task, the earliest first."""

    moments: tuple[Moment, ...] = ()
    left_out: int = 0
    """How many moments in the middle were left out, since there were too many."""
    is_recorded: bool = True
    """False where it is what the history and the status of a task tell, which have one time."""

    def to_object(self) -> JsonObject:
        """The timeline as JSON: what stands under `MOMENTS`."""
        told: JsonObject = {"moments": [one.to_object() for one in self.moments]}
        return {**told, "leftOut": self.left_out} if self.left_out else told

    @property
    def place_left_out(self) -> int | None:
        """Before which moment some were left out; None if none were."""
        return len(self.moments) // 2 if self.left_out else None


def timeline_of(task: Task) -> Timeline:
    """The timeline of a task: its moments if it has any with it, else what its history and status tell."""
    told = (task.metadata or {}).get(MOMENTS)
    if isinstance(told, dict):
        return timeline_from(told)
    return Timeline(tuple(_derived_moments(task)), is_recorded=False)


def timeline_from(told: JsonObject) -> Timeline:
    """A timeline from its JSON. What is no moment is passed over, since any agent may have written it."""
    listed, left_out = told.get("moments"), told.get("leftOut")
    moments = (_moment_from(one) for one in (listed if isinstance(listed, list) else ()))
    number = left_out if isinstance(left_out, int) and left_out > 0 else 0
    return Timeline(tuple(one for one in moments if one is not None), number)


def _moment_from(told: JsonValue) -> Moment | None:
    if not isinstance(told, dict):
        return None
    try:
        kind, at = MomentKind(str(told.get("what"))), told.get("at")
        at_ms = milliseconds(at) if isinstance(at, str) else None
    except ValueError:
        return None
    texts = {name: text for name in _TEXTS if isinstance(text := told.get(name), str)}
    return Moment(kind, at_ms, **texts)


def _derived_moments(task: Task) -> Iterator[Moment]:
    """The moments that the history and the status of a task tell of."""
    asked, first = task.status.message, True
    for message in task.history or ():
        if message.role is Role.USER:
            yield Moment(MomentKind.RECEIVED if first else MomentKind.MESSAGE, message=message.message_id)
            first = False
        elif asked is None or message.message_id != asked.message_id:
            yield Moment(MomentKind.SAID, message=message.message_id)
    at_ms = milliseconds(task.status.timestamp) if task.status.timestamp else None
    yield Moment(MomentKind.STATE, at_ms, task.status.state.word, message=asked.message_id if asked else "")
