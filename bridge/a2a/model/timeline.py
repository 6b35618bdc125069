"""The timeline of a task: what happened to it when, by whom, and at which peer. Pure.

A task of A2A has the time of its last status only. The bridge keeps *moments* beside its own tasks, and shows them in
the metadata of a task to clients that activate the extension. The timeline of any other task is what its history and
its status tell. A moment holds names and times, and never what was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from pydantic import JsonValue

from bridge.a2a.model.objects import Role, Task, TaskStatus, milliseconds, timestamp
from bridge.jsonvalues import JsonObject

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

    def then(self, moment: Moment, most: int) -> Timeline:
        """The timeline with one more moment. Of more than `most` the first and the last stay."""
        moments = (*self.moments, moment)
        if len(moments) <= most:
            return Timeline(moments, self.left_out)
        place = most // 2
        return Timeline(moments[:place] + moments[place + 1 :], self.left_out + 1)

    def to_object(self) -> JsonObject:
        """The timeline as JSON: what stands under `MOMENTS`."""
        told: JsonObject = {"moments": [one.to_object() for one in self.moments]}
        return {**told, "leftOut": self.left_out} if self.left_out else told

    @property
    def place_left_out(self) -> int | None:
        """Before which moment some were left out; None if none were."""
        return len(self.moments) // 2 if self.left_out else None


NO_MOMENTS: Final = Timeline()
"""The timeline of a task to which nothing has happened."""


def arrival(task: Task, owner: str) -> Moment:
    """The moment at which the message came that made a task, as the task is at first."""
    said = task.history[0].message_id if task.history else ""
    return Moment(MomentKind.RECEIVED, milliseconds(task.status.timestamp or ""), by=owner, message=said)


class GrowingTimeline:
    """The timeline of a task in memory. What makes a moment can stand for it, and is asked when the moment is read."""

    __slots__ = ("_kept", "_left_out", "_most", "total")

    def __init__(self, most: int) -> None:
        """Of more than `most` moments the first and the last stay."""
        self._most = most
        self._kept: list[Moment | Callable[[], Moment]] = []
        self._left_out = 0
        self.total = 0
        """How many moments were added, with those that were left out since."""

    def add(self, moment: Moment | Callable[[], Moment]) -> None:
        """Add the latest moment."""
        self._kept.append(moment)
        self.total += 1
        if len(self._kept) > self._most:
            del self._kept[self._most // 2]
            self._left_out += 1

    def add_all(self, timeline: Timeline) -> None:
        """Add the moments of another timeline."""
        for moment in timeline.moments:
            self.add(moment)
        self._left_out += timeline.left_out

    def begin_with(self, timeline: Timeline) -> None:
        """Forget all, and begin with the moments of another timeline."""
        self._kept, self._left_out, self.total = [], 0, 0
        self.add_all(timeline)

    def cut(self, total: int) -> None:
        """Forget the moments after the first `total` ones."""
        del self._kept[max(len(self._kept) - (self.total - total), 0) :]
        self.total = total

    def up_to(self, total: int) -> Timeline:
        """The timeline of the first `total` moments."""
        kept = self._kept[: max(len(self._kept) - (self.total - total), 0)]
        return Timeline(tuple([one if isinstance(one, Moment) else one() for one in kept]), self._left_out)


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
    yield status_moment(task.status)


def status_moment(status: TaskStatus) -> Moment:
    """The moment at which a task got a state."""
    return Moment(
        MomentKind.STATE,
        milliseconds(status.timestamp) if status.timestamp else None,
        status.state.word,
        message=status.message.message_id if status.message else "",
    )
