"""Answers of agents that say A2A 1.0 in their own way, put as the specification puts it. Pure.

Frameworks wrap a result or do not, write enums as 0.3 did, and times without their zone. What is ours to name is
set right here; what is the user's (metadata, data parts) is left as it stands. Nothing else of 0.3 is read.

Spec: A2A 1.0 sections 3.2.3 (which of the four), 4.1.3, 4.1.5, 5.5.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Role, TaskState
from bridge.jsonvalues import JsonObject

_PAYLOADS: Final = ("task", "message", "statusUpdate", "artifactUpdate")
_STATES: Final = {
    **{state.name: state.value for state in TaskState},
    "CANCELLED": TaskState.CANCELED.value,
    "TASK_STATE_CANCELLED": TaskState.CANCELED.value,
}
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
"""A time as frameworks write it that mean UTC and do not say so, or forget that they do not."""
_ROLES: Final = {role.name: role.value for role in Role}


def normalized_event(value: JsonValue) -> JsonValue:
    """A StreamResponse, or the answer to a message, whose payload may stand there bare."""
    if not isinstance(value, dict):
        return value
    payloads = {name: value[name] for name in _PAYLOADS if isinstance(value.get(name), dict)}
    if not payloads and (name := _payload_of(value)):
        return {name: _EVENTS[name](value)}
    others = {name: item for name, item in value.items() if name not in _PAYLOADS}
    return {**others, **{name: _EVENTS[name](item) for name, item in payloads.items()}}


def normalized_task(value: JsonValue) -> JsonValue:
    """A Task that may be wrapped."""
    if isinstance(value, dict) and "status" not in value and isinstance(value.get("task"), dict):
        value = value["task"]
    return _task(value)


def normalized_task_page(value: JsonValue) -> JsonValue:
    """A page of Tasks; one that does not say how many there are has those that it lists."""
    if not isinstance(value, dict):
        return value
    listed = value.get("tasks")
    tasks = [_task(one) for one in listed] if isinstance(listed, list) else []
    sizes: JsonObject = {"nextPageToken": "", "pageSize": len(tasks), "totalSize": len(tasks)}
    return {**sizes, **value, "tasks": tasks}


def message_from(value: JsonValue) -> JsonValue:
    """A Message whose role may be written as before 1.0."""
    if not isinstance(value, dict) or not isinstance(role := value.get("role"), str):
        return value
    return {**value, "role": _ROLES.get(role.upper(), role)}


def _payload_of(value: JsonObject) -> str | None:
    """Which of the four a bare object is, by what only it has."""
    if "messageId" in value:
        return "message"
    if "taskId" in value:
        return "artifactUpdate" if "artifact" in value else "statusUpdate"
    return "task" if "id" in value and "status" in value else None


def _task(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict):
        return value
    changed = _with_status(value)
    if isinstance(history := value.get("history"), list):
        changed["history"] = [message_from(message) for message in history]
    return changed


def _with_status(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    status = value.get("status")
    if not isinstance(status, dict):
        return dict(value)
    changed = dict(status)
    if isinstance(time := status.get("timestamp"), str):
        changed["timestamp"] = f"{time}Z" if _WITHOUT_ZONE.fullmatch(time) else time or None
    if isinstance(state := status.get("state"), str):
        name = state.upper().replace("-", "_")
        changed["state"] = _STATES.get(name, state)
    if isinstance(message := status.get("message"), dict):
        changed["message"] = message_from(message)
    return {**value, "status": changed}


def _as_it_is(value: JsonValue) -> JsonValue:
    return value


_EVENTS: Final = {
    "task": _task,
    "message": message_from,
    "statusUpdate": _with_status,
    "artifactUpdate": _as_it_is,
}
