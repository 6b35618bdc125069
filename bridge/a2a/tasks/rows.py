"""Events and snapshots as rows of the store: moments, followed by the JSON that clients get. Pure.

A row begins with its moments, if it has any. They contain no quotation mark, so their end is found without parsing the
rest. A release without moments reads the row as JSON with one more field.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from typing import Final

from pydantic_core import from_json

from bridge.a2a.model.life import apply_event
from bridge.a2a.model.objects import StreamResponse, Task, TaskState
from bridge.a2a.tasks.moments import (
    NO_LINES,
    MomentLines,
    RecordedTimeline,
    line_of_arrival,
    line_of_status,
    lines_in,
)
from bridge.store.records import StoredTask

_MARK: Final = b'{"moments":"'
_END: Final = b'",'


def row_of(text: bytes, came: MomentLines) -> bytes:
    """A row with moments, for a JSON object that is not empty."""
    if not came.lines:
        return text
    return b"".join((_MARK, b64encode(came.to_text().encode()), _END, memoryview(text)[1:]))


def text_of(row: bytes) -> bytes:
    """The JSON of a row, without its moments."""
    if not row.startswith(_MARK):
        return row
    return b"".join((b"{", memoryview(row)[row.index(_END, len(_MARK)) + len(_END) :]))


def moments_of(row: bytes) -> MomentLines:
    """The moments of a row.

    Raises:
        ValueError: the moments cannot be read.
    """
    if not row.startswith(_MARK):
        return NO_LINES
    return lines_in(b64decode(row[len(_MARK) : row.index(_END, len(_MARK))]).decode())


def moments_at(task: Task, owner: str, came: MomentLines) -> MomentLines:
    """The moments up to a snapshot whose row has the moments `came`. If the first snapshot has none, they are derived
    from the task."""
    if came.lines or task.status.state is not TaskState.SUBMITTED:
        return came
    return MomentLines((line_of_arrival(task, owner),))


def folded(stored: StoredTask) -> tuple[Task, MomentLines]:
    """A task and its moments, from its stored snapshot and events.

    Raises:
        ValueError: the stored bytes cannot be read.
    """
    task = Task.model_validate(from_json(text_of(stored.snapshot)))
    timeline = RecordedTimeline(sys.maxsize)
    timeline.add_all(moments_at(task, stored.origin.owner, moments_of(stored.snapshot)))
    for row in stored.events:
        before, task = task, apply_event(task, StreamResponse.model_validate(from_json(text_of(row))))
        timeline.add_all(moments_of(row))
        if task.status.state is not before.status.state:
            timeline.add(line_of_status(task.status))
    return task, timeline.up_to(timeline.total)
