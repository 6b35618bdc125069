"""The moments of a task as lines of text, in memory and in the store. Pure.

Each call makes a few moments, and few of them are ever read. So a moment is written as a line when it happens, and
becomes a `Moment` again only for a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bridge.a2a.model.objects import Task, TaskState, TaskStatus, milliseconds
from bridge.a2a.model.timeline import Moment, MomentKind, Timeline

_BETWEEN_MOMENTS: Final = "\x1e"
_BETWEEN_FIELDS: Final = "\x1f"
_FIELDS: Final = len(Moment._fields)
_NO_SEPARATORS: Final = str.maketrans("", "", _BETWEEN_MOMENTS + _BETWEEN_FIELDS)
_WORDS: Final = {state: state.word for state in TaskState}
_KINDS: Final = {kind.value: kind for kind in MomentKind}


class MomentLines(NamedTuple):
    """Successive moments, each as a line."""

    lines: Sequence[str] = ()
    left_out: int = 0
    """How many moments in the middle were left out."""

    @property
    def timeline(self) -> Timeline:
        """The timeline, parsed from its lines. A line that another release wrote in an unknown form is skipped."""
        moments = map(_moment_in, self.lines)
        return Timeline(tuple(moment for moment in moments if moment is not None), self.left_out)

    def to_text(self) -> str:
        """The text that `lines_in` reads."""
        return _BETWEEN_MOMENTS.join((str(self.left_out), *self.lines))


NO_LINES: Final = MomentLines()
"""No moments."""


def lines_in(text: str) -> MomentLines:
    """The moments in a text that `MomentLines.to_text` wrote.

    Raises:
        ValueError: the text has another form.
    """
    left_out, *lines = text.split(_BETWEEN_MOMENTS)
    return MomentLines(lines, int(left_out))


def line_of(
    kind: MomentKind,
    at_ms: int,
    *,
    state: str = "",
    by: str = "",
    peer: str = "",
    trace: str = "",
    message: str = "",
) -> str:
    """The line of a moment. The arguments are the fields of `Moment`."""
    line = _BETWEEN_FIELDS.join((kind, str(at_ms), state, by, peer, trace, message))
    if line.count(_BETWEEN_FIELDS) == _FIELDS - 1 and _BETWEEN_MOMENTS not in line:
        return line
    # A message id is any text. It must not be able to add a line.
    texts = [text.translate(_NO_SEPARATORS) for text in (state, by, peer, trace, message)]
    return _BETWEEN_FIELDS.join((kind, str(at_ms), *texts))


def line_of_status(status: TaskStatus) -> str:
    """The line of the timeline that says when a task entered its current state."""
    message_id = status.message.message_id if status.message else ""
    at_ms = milliseconds(status.timestamp or "")
    return line_of(MomentKind.STATE, at_ms, state=_WORDS[status.state], message=message_id)


def line_of_arrival(task: Task, owner: str) -> str:
    """The line of the moment at which a task's first message came. `task` is the task as it was made."""
    message_id = task.history[0].message_id if task.history else ""
    return line_of(
        MomentKind.RECEIVED, milliseconds(task.status.timestamp or ""), by=owner, message=message_id
    )


def _moment_in(line: str) -> Moment | None:
    kind, *fields = line.split(_BETWEEN_FIELDS)
    if kind not in _KINDS or len(fields) != _FIELDS - 1 or not (fields[0].isdecimal() or not fields[0]):
        return None
    at_ms, *texts = fields
    return Moment(_KINDS[kind], int(at_ms) if at_ms else None, *texts)


class RecordedTimeline:
    """The lines of a task in memory. If there are more than `most`, the first and the last are kept."""

    __slots__ = ("_left_out", "_lines", "_most", "total")

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[str] = []
        self._left_out = 0
        self.total = 0
        """The number of lines that were added, including lines that were left out later."""

    def add(self, line: str) -> None:
        """Add the line of the latest moment."""
        self._lines.append(line)
        self.total += 1
        if len(self._lines) > self._most:
            del self._lines[self._most // 2]
            self._left_out += 1

    def add_all(self, came: MomentLines) -> None:
        """Add the lines of later moments."""
        for line in came.lines:
            self.add(line)
        self._left_out += came.left_out

    def begin_with(self, known: MomentLines) -> None:
        """Drop all lines, and begin with these lines."""
        self._lines, self._left_out, self.total = [], 0, 0
        self.add_all(known)

    def cut(self, total: int) -> None:
        """Drop the lines after the first `total` lines."""
        del self._lines[self._kept_of(total) :]
        self.total = total

    def up_to(self, total: int) -> MomentLines:
        """The first `total` lines."""
        return MomentLines(self._lines[: self._kept_of(total)], self._left_out)

    def _kept_of(self, total: int) -> int:
        return max(len(self._lines) - (self.total - total), 0)
