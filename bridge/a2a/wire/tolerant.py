"""Normalizes answers of other agents to the form of the specification, before they are read strictly. Pure.

Frameworks wrap a result or leave the wrapper out, write enums and files as in 0.3, and write times without a zone. Only
names that the protocol defines are changed; metadata and data parts belong to the user and are not changed. Nothing is
left out: a value of the wrong type is left unchanged, so that the strict reader refuses it.

Spec: A2A 1.0 sections 3.2.3 (which of the four), 4.1.3, 4.1.5, 5.5.
"""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from pydantic import JsonValue

from bridge.a2a.model.objects import Role, TaskState
from bridge.text.jsonvalues import JsonObject

_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
"""The `kind` of an unwrapped object since 0.2, and its name in 1.0."""
_PROTO_NAMES: Final = {"status_update": "statusUpdate", "artifact_update": "artifactUpdate"}
_STATES: Final = {
    **{state.name: state.value for state in TaskState},
    "CANCELLED": TaskState.CANCELED.value,
    "TASK_STATE_CANCELLED": TaskState.CANCELED.value,
}
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
"""A time without a zone. Frameworks that write it usually mean UTC."""
FROM_FILE: Final = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}
"""The fields of a file in 0.3, with their names in a part of 1.0."""
_CONTENTS: Final = frozenset({"bytes", "uri"})
_ROLES: Final = {role.name: role.value for role in Role}


def normalized_event(value: JsonValue) -> JsonValue:
    """A StreamResponse, or the answer to a message. Its payload may be unwrapped."""
    if not isinstance(value, dict):
        return value
    if not _PROTO_NAMES.keys().isdisjoint(value):
        value = {_PROTO_NAMES.get(name, name): item for name, item in value.items()}
    payloads = {name: value[name] for name in _EVENTS if isinstance(value.get(name), dict)}
    if not payloads and (name := _payload_of(value)):
        return {name: _EVENTS[name](value)}
    others = {name: item for name, item in value.items() if name not in payloads}
    return {**others, **{name: _EVENTS[name](item) for name, item in payloads.items()}}


def normalized_task(value: JsonValue) -> JsonValue:
    """A Task that may be wrapped."""
    if isinstance(value, dict) and "status" not in value and isinstance(task := value.get("task"), dict):
        others = {name: item for name, item in value.items() if name != "task"}
        return _task({**others, **task})
    return _task(value)


def normalized_task_page(value: JsonValue) -> JsonValue:
    """A page of Tasks. A missing total is the number of its tasks."""
    if not isinstance(value, dict):
        return value
    listed = value.get("tasks")
    if not isinstance(listed, list | None):
        return value
    tasks = [_task(task) for task in listed or ()]
    sizes: JsonObject = {"nextPageToken": "", "pageSize": len(tasks), "totalSize": len(tasks)}
    return {**sizes, **value, "tasks": tasks}


def message_from(value: JsonValue) -> JsonValue:
    """A Message. Its role may be written as before 1.0."""
    if not isinstance(value, dict):
        return value
    role, message = value.get("role"), _with_parts(value)
    return {**message, "role": _ROLES.get(role.upper(), role)} if isinstance(role, str) else message


def _payload_of(value: JsonObject) -> str | None:
    """The kind of an unwrapped object: from its `kind`, or else from fields that no other kind has."""
    kind = value.get("kind")
    if isinstance(kind, str) and (named := _KINDS.get(kind)) is not None:
        return named
    if isinstance(value.get("artifact"), dict):
        return "artifactUpdate"
    if "messageId" in value or isinstance(value.get("parts"), list):
        return "message"
    if not value.get("status"):
        return None
    is_task = "taskId" not in value and not {"id", "artifacts", "history"}.isdisjoint(value)
    return "task" if is_task else "statusUpdate"


def _task(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict):
        return value
    changed = _with_status(value)
    if isinstance(history := value.get("history"), list):
        changed["history"] = [message_from(message) for message in history]
    if isinstance(artifacts := value.get("artifacts"), list):
        changed["artifacts"] = [
            _with_parts(artifact) if isinstance(artifact, dict) else artifact for artifact in artifacts
        ]
    return changed


def _with_artifact(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or not isinstance(artifact := value.get("artifact"), dict):
        return value
    return {**value, "artifact": _with_parts(artifact)}


def _with_parts(value: JsonObject) -> JsonObject:
    """The object with its files as parts of 1.0. If it has no files of 0.3 and no `data:` URLs, this is the same
    object."""
    parts = value.get("parts")
    if not isinstance(parts, list) or not any(isinstance(part, dict) and _is_odd(part) for part in parts):
        return value
    return {**value, "parts": [file_in(part) if isinstance(part, dict) else part for part in parts]}


def _is_odd(part: JsonObject) -> bool:
    raw = part.get("raw")
    return "file" in part or "url" in part or (isinstance(raw, str) and raw.startswith("data:"))


def file_in(part: JsonObject) -> JsonObject:
    """A part of JSON-RPC with the fields of its file moved into the part. The bytes take precedence over the URI."""
    file = part.get("file")
    if not isinstance(file, dict) or _CONTENTS.isdisjoint(file):
        return content_of_url(part)
    others = {name: item for name, item in part.items() if name not in ("file", "kind")}
    left_out = "uri" if file.get("bytes") else "bytes" if file.get("uri") else None
    read = {
        FROM_FILE.get(name, name): item
        for name, item in file.items()
        if item is not None and (name != left_out)
    }
    return content_of_url({**others, **read})


def content_of_url(part: JsonObject) -> JsonObject:
    """A part whose `data:` URL is replaced by the file in it (RFC 2397). Any other part is returned unchanged."""
    url, raw = part.get("url"), part.get("raw")
    written = raw if isinstance(raw, str) and raw.startswith("data:") else url
    if not isinstance(written, str) or written[:5].lower() != "data:" or "," not in written:
        return part
    head, _, body = written[5:].partition(",")
    media_type, *parameters = head.split(";")
    content = unquote_to_bytes(body)
    if not parameters or parameters[-1].strip().lower() != "base64":
        content = base64.b64encode(content)
    typed = part.get("mediaType") or media_type or "text/plain"
    others = {name: item for name, item in part.items() if name != "url"}
    return {**others, "raw": content.decode("ascii", "replace"), "mediaType": typed}


def _with_status(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    status = value.get("status")
    if isinstance(status, str):
        status = {"state": status}
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


_EVENTS: Final = {
    "task": _task,
    "message": message_from,
    "statusUpdate": _with_status,
    "artifactUpdate": _with_artifact,
}
