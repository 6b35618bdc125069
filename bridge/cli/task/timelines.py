"""The timeline of a task for a terminal: one line for each moment, with its time in the local time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from bridge.a2a.model.timeline import Moment, MomentKind, Timeline
from bridge.text.safe_text import with_visible_characters

_WORDS: Final = {
    MomentKind.RECEIVED: "asked",
    MomentKind.SENT: "sent",
    MomentKind.MESSAGE: "message",
    MomentKind.SAID: "the agent said something",
    MomentKind.CANCEL: "asked to cancel",
    MomentKind.RESUMED: "taken over by another process",
}
"""The words for each kind. A moment that is a state is shown by its name."""

_NO_TIME: Final = "-"
_WIDTH: Final = len("2026-01-31 12:00:00.000")


def timeline_lines(timeline: Timeline) -> Iterator[str]:
    """The lines of a timeline."""
    for number, moment in enumerate(timeline.moments):
        if number == timeline.place_left_out:
            yield f"{_NO_TIME:<{_WIDTH}}  {timeline.left_out} more, which were not kept"
        words = with_visible_characters(" ".join(_words_of(moment)), in_one_line=True)
        yield f"{_time_of(moment):<{_WIDTH}}  {words}"


def _words_of(moment: Moment) -> Iterator[str]:
    yield _WORDS.get(moment.kind, "") or moment.state.replace("_", "-")
    for word, name in (("to", moment.peer), ("by", moment.by), ("in trace", moment.trace)):
        if name:
            yield f"{word} {name}"


def _time_of(moment: Moment) -> str:
    if moment.at_ms is None:
        return _NO_TIME
    try:
        when = datetime.fromtimestamp(moment.at_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # an agent may send a time that no date can hold
        return _NO_TIME
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.at_ms % 1000:03d}"
