"""What the events and tasks of the wire are known by in a history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.shake.history import StoredEvent, View

Json = Any
_ENDS = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


def mark_of_status(status: Json) -> str:
    """A status: its state, its time, and its message. A question that is said again has more parts."""
    state, message = status["state"].removeprefix("TASK_STATE_"), status.get("message")
    words = f" {message['messageId']} of {len(message['parts'])} parts" if message else ""
    return f"{state} {status['timestamp']}{words}"


def mark_of_event(event: Json) -> str:
    """An event of a stream or of the store."""
    ((kind, said),) = event.items()
    if kind == "message":
        return f"message {said['messageId']}"
    if kind == "artifactUpdate":
        return f"artifact {json.dumps(said['artifact'], sort_keys=True)}"
    return mark_of_status(said["status"])


def task_of_event(event: Json) -> str:
    """The id of the task that an event of a stream is of."""
    ((kind, said),) = event.items()
    return str(said["id"] if kind == "task" else said["taskId"])


def view_of(task: Json, *, with_artifacts: bool = True) -> View:
    """A task in an answer."""
    parts = sum(len(artifact["parts"]) for artifact in task.get("artifacts", []))
    return View(mark_of_status(task["status"]), parts if with_artifacts else None)


def ends(status: str) -> bool:
    """Whether the mark of a status is one of an end."""
    return status.split(maxsplit=1)[0] in _ENDS


def history_of(events: Iterable[Json]) -> Iterator[StoredEvent]:
    """The events of a task, each with the task after it."""
    view = View("", 0)
    for event in events:
        ((kind, said),) = event.items()
        if kind == "artifactUpdate":
            # Each artifact of these tools comes in pieces that are added, never replaced.
            view = view._replace(parts=(view.parts or 0) + len(said["artifact"]["parts"]))
        elif kind != "message":
            view = view._replace(status=mark_of_status(said["status"]))
        is_end = kind != "message" and kind != "artifactUpdate" and ends(view.status)
        yield StoredEvent(mark_of_event(event), view, is_end, kind != "message")
