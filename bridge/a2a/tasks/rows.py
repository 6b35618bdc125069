"""Events and snapshots as the store keeps them: the JSON that clients get, behind the moments that came with it. Pure.

A row begins with its moments when it has any. They are written without a quotation mark, so that their end is found
without parsing the rest. A release that does not know them reads the row as JSON with one more field.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from functools import partial
from typing import Final

from pydantic_core import from_json

from bridge.a2a.model.life import apply_event
from bridge.a2a.model.objects import StreamResponse, Task, TaskState
from bridge.a2a.model.timeline import (
    NO_MOMENTS,
    GrowingTimeline,
    Moment,
    MomentKind,
    Timeline,
    arrival,
    status_moment,
)
from bridge.store.records import StoredTask

_MARK: Final = b'{"moments":"'
_END: Final = b'",'
_BETWEEN_MOMENTS: Final = "\x1e"
_BETWEEN_FIELDS: Final = "\x1f"
_FIELDS: Final = len(Moment._fields)
_NO_SEPARATORS: Final = str.maketrans("", "", _BETWEEN_MOMENTS + _BETWEEN_FIELDS)


def row_of(text: bytes, timeline: Timeline) -> bytes:
    """A row of a JSON object that is not empty, with moments."""
    if not timeline.moments:
        return text
    lines = [str(timeline.left_out), *map(_line_of, timeline.moments)]
    return b"".join((_MARK, b64encode(_BETWEEN_MOMENTS.join(lines).encode()), _END, memoryview(text)[1:]))


def _line_of(moment: Moment) -> str:
    kind, at_ms, state, by, peer, trace, message = moment
    at = "" if at_ms is None else str(at_ms)
    line = _BETWEEN_FIELDS.join((kind, at, state, by, peer, trace, message))
    if line.count(_BETWEEN_FIELDS) == _FIELDS - 1 and _BETWEEN_MOMENTS not in line:
        return line
    # A name may hold anything: nobody can add a moment by it.
    texts = [text.translate(_NO_SEPARATORS) for text in (state, by, peer, trace, message)]
    return _BETWEEN_FIELDS.join((kind, at, *texts))


def text_of(row: bytes) -> bytes:
    """The JSON of a row, without its moments."""
    if not row.startswith(_MARK):
        return row
    return b"".join((b"{", memoryview(row)[row.index(_END, len(_MARK)) + len(_END) :]))


def moments_of(row: bytes) -> Timeline:
    """The moments of a row.

    Raises:
        ValueError: they cannot be read.
    """
    if not row.startswith(_MARK):
        return NO_MOMENTS
    text = b64decode(row[len(_MARK) : row.index(_END, len(_MARK))]).decode()
    left_out, *lines = text.split(_BETWEEN_MOMENTS)
    return Timeline(tuple(map(_moment_in, lines)), int(left_out))


def _moment_in(line: str) -> Moment:
    kind, at_ms, *texts = line.split(_BETWEEN_FIELDS)
    if len(texts) != _FIELDS - 2:
        raise ValueError(f"this is no moment: {line!r}")
    return Moment(MomentKind(kind), int(at_ms) if at_ms else None, *texts)


def timeline_at(task: Task, owner: str, moments: Timeline) -> Timeline:
    """The timeline at a snapshot with these moments. The first one has none where all is told by the task itself."""
    if moments.moments or task.status.state is not TaskState.SUBMITTED:
        return moments
    return Timeline((arrival(task, owner),))


def folded(stored: StoredTask) -> tuple[Task, Timeline]:
    """A task and its timeline, from its stored snapshot and events.

    Raises:
        ValueError: the stored bytes cannot be read.
    """
    task = Task.model_validate(from_json(text_of(stored.snapshot)))
    timeline = GrowingTimeline(sys.maxsize)
    timeline.add_all(timeline_at(task, stored.origin.owner, moments_of(stored.snapshot)))
    for row in stored.events:
        before, task = task, apply_event(task, StreamResponse.model_validate(from_json(text_of(row))))
        timeline.add_all(moments_of(row))
        if task.status.state is not before.status.state:
            timeline.add(partial(status_moment, task.status))
    return task, timeline.up_to(timeline.total)
