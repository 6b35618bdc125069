"""Events and snapshots as the store keeps them: the JSON that clients get, behind the moments that came with it. Pure.

A row begins with its moments when it has any. They are written without a quotation mark, so that their end is found
without parsing the rest. A release that does not know them reads the row as JSON with one more field.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from typing import Final

from pydantic_core import from_json, to_json

from bridge.a2a.model.life import apply_event
from bridge.a2a.model.objects import StreamResponse, Task, TaskState
from bridge.a2a.model.timeline import NO_MOMENTS, Moment, MomentKind, Timeline, status_moment
from bridge.store.records import StoredTask

_MARK: Final = b'{"moments":"'
_END: Final = b'",'


def row_of(text: bytes, timeline: Timeline) -> bytes:
    """A row of a JSON object that is not empty, with moments."""
    if not timeline.moments:
        return text
    listed = [
        (one.kind.value, one.at_ms, one.state, one.by, one.peer, one.trace, one.message)
        for one in timeline.moments
    ]
    return b"".join((_MARK, b64encode(to_json((timeline.left_out, listed))), _END, memoryview(text)[1:]))


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
    left_out, listed = from_json(b64decode(row[len(_MARK) : row.index(_END, len(_MARK))]))
    return Timeline(tuple(Moment(MomentKind(kind), *rest) for kind, *rest in listed), left_out)


def timeline_after(
    timeline: Timeline, before: TaskState | None, task: Task, came: Timeline, most: int = sys.maxsize
) -> Timeline:
    """The timeline of a task after an event. `came` are the moments that came with it, `before` is the state before."""
    moved = before is not None and task.status.state is not before
    return timeline.then((*came.moments, *([status_moment(task)] if moved else ())), most, came.left_out)


def folded(stored: StoredTask) -> tuple[Task, Timeline]:
    """A task and its timeline, from its stored snapshot and events.

    Raises:
        ValueError: the stored bytes cannot be read.
    """
    task = Task.model_validate(from_json(text_of(stored.snapshot)))
    timeline = moments_of(stored.snapshot)
    for row in stored.events:
        before, task = task, apply_event(task, StreamResponse.model_validate(from_json(text_of(row))))
        timeline = timeline_after(timeline, before.status.state, task, moments_of(row))
    return task, timeline
