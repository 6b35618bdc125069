"""What A2A's objects look like in JSON: tables, and the faults that a value has beside them.

Unknown fields are no fault. Spec: a2a.proto, and A2A 1.0 sections 5.5 to 5.7.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

TERMINAL: Final = frozenset(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
INTERRUPTED: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
STATES: Final = TERMINAL | INTERRUPTED | {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
ROLES: Final = frozenset({"ROLE_USER", "ROLE_AGENT"})

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
MILLISECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Aspect(StrEnum):
    """What is wrong with a value."""

    REQUIRED = "a required field is missing or empty"
    TYPE = "a value is of another type"
    NAME = "a field is not in camelCase"
    ENUM = "an enum value is not the proto's name"
    TIME = "a timestamp is not ISO 8601 in UTC with Z"
    CHOICE = "not exactly one of several fields"
    BASE64 = "bytes are not base64"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong."""

    aspect: Aspect
    path: str
    value: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.aspect} ({self.value!r:.80})"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `kind` is a Python type, a Shape, an enumeration, "time", "bytes", or `object` for anything."""

    kind: Any
    is_required: bool = False
    is_many: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """One object: its fields, and of which exactly one is there."""

    name: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    choice: tuple[str, ...] = ()


def must(kind: Any) -> Field:
    """A required field."""
    return Field(kind, is_required=True)


def some(kind: Any) -> Field:
    """An array."""
    return Field(kind, is_many=True)


def at_least_one(kind: Any) -> Field:
    """A required array: at least one element (section 5.7)."""
    return Field(kind, is_required=True, is_many=True)


may = Field

PART: Final = Shape(
    "Part",
    {
        "text": may(str),
        "raw": may("bytes"),
        "url": may(str),
        "data": may(object),
        "metadata": may(dict),
        "filename": may(str),
        "mediaType": may(str),
    },
    choice=("text", "raw", "url", "data"),
)
MESSAGE: Final = Shape(
    "Message",
    {
        "messageId": must(str),
        "contextId": may(str),
        "taskId": may(str),
        "role": must(ROLES),
        "parts": at_least_one(PART),
        "metadata": may(dict),
        "extensions": some(str),
        "referenceTaskIds": some(str),
    },
)
ARTIFACT: Final = Shape(
    "Artifact",
    {
        "artifactId": must(str),
        "name": may(str),
        "description": may(str),
        "parts": at_least_one(PART),
        "metadata": may(dict),
        "extensions": some(str),
    },
)
STATUS: Final = Shape(
    "TaskStatus", {"state": must(STATES), "message": may(MESSAGE), "timestamp": may("time")}
)
TASK: Final = Shape(
    "Task",
    {
        "id": must(str),
        "contextId": may(str),
        "status": must(STATUS),
        "artifacts": some(ARTIFACT),
        "history": some(MESSAGE),
        "metadata": may(dict),
    },
)
_OF_TASK: Final = {"taskId": must(str), "contextId": must(str), "metadata": may(dict)}
STATUS_UPDATE: Final = Shape("TaskStatusUpdateEvent", {**_OF_TASK, "status": must(STATUS)})
ARTIFACT_UPDATE: Final = Shape(
    "TaskArtifactUpdateEvent",
    {**_OF_TASK, "artifact": must(ARTIFACT), "append": may(bool), "lastChunk": may(bool)},
)
SEND_RESPONSE: Final = Shape(
    "SendMessageResponse", {"task": may(TASK), "message": may(MESSAGE)}, choice=("task", "message")
)
STREAM_RESPONSE: Final = Shape(
    "StreamResponse",
    {
        "task": may(TASK),
        "message": may(MESSAGE),
        "statusUpdate": may(STATUS_UPDATE),
        "artifactUpdate": may(ARTIFACT_UPDATE),
    },
    choice=("task", "message", "statusUpdate", "artifactUpdate"),
)
LIST_RESPONSE: Final = Shape(
    "ListTasksResponse",
    {"tasks": some(TASK), "nextPageToken": may(str), "pageSize": may(int), "totalSize": may(int)},
)

_TYPES: Final[Mapping[Any, Callable[[Any], bool]]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    dict: lambda value: isinstance(value, dict),
    object: lambda value: True,
}


def flaws_in(value: Any, shape: Shape, path: str = "") -> Iterator[Flaw]:
    """Everything that is wrong with a value of this shape."""
    here = path or shape.name
    if not isinstance(value, dict):
        yield Flaw(Aspect.TYPE, here, value)
        return
    yield from (Flaw(Aspect.NAME, f"{here}.{name}", name) for name in value if "_" in name)
    if shape.choice and sum(name in value for name in shape.choice) != 1:
        yield Flaw(Aspect.CHOICE, here, sorted(value))
    for name, known in shape.fields.items():
        if name in value:
            yield from _flaws_in_field(value[name], known, f"{here}.{name}")
        elif known.is_required:
            yield Flaw(Aspect.REQUIRED, f"{here}.{name}", None)


def _flaws_in_field(value: Any, known: Field, path: str) -> Iterator[Flaw]:
    if known.is_required and value in ("", []):
        yield Flaw(Aspect.REQUIRED, path, value)
    elif not known.is_many:
        yield from _flaws_in_one(value, known.kind, path)
    elif not isinstance(value, list):
        yield Flaw(Aspect.TYPE, path, value)
    else:
        for number, one in enumerate(value):
            yield from _flaws_in_one(one, known.kind, f"{path}[{number}]")


def _flaws_in_one(value: Any, kind: Any, path: str) -> Iterator[Flaw]:
    if isinstance(kind, Shape):
        yield from flaws_in(value, kind, path)
    elif isinstance(kind, frozenset):
        if not isinstance(value, str) or value not in kind:
            yield Flaw(Aspect.ENUM, path, value)
    elif kind == "time":
        if not is_time(value):
            yield Flaw(Aspect.TIME, path, value)
    elif kind == "bytes":
        if not _is_base64(value):
            yield Flaw(Aspect.BASE64, path, value)
    elif not _TYPES[kind](value):
        yield Flaw(Aspect.TYPE, path, value)


def without_defaults(value: Any) -> Any:
    """A value without what says no more than its absence: empty texts, arrays and null, as ProtoJSON may write."""
    if isinstance(value, list):
        return [without_defaults(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in ("data", "metadata") else without_defaults(inner)
        for name, inner in value.items()
        if name == "data" or inner not in ("", [], None, False)
    }


def is_time(value: Any) -> bool:
    """Whether it is a timestamp as section 5.6.1 writes them."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value[:19])
    except ValueError:
        return False
    return True


def _is_base64(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        return False
    return True
