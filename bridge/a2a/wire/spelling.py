"""The spelling of A2A objects before 1.0: one walk over the objects for writing, and one for reading. Pure.

A spelling is a set of tables: the names of states and roles, the fields of each object, and the form of a part. A field
that an object of the generation does not have is kept in a note in the object's metadata. A reader restores the field
from the note.

The user's own values, in metadata and data, are not changed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from pydantic import JsonValue

from bridge.a2a.model.objects import TaskState
from bridge.a2a.wire.tolerant import message_from, normalized_event, normalized_task
from bridge.text.jsonvalues import JsonObject

NOTE: Final = "urn:mcp-a2a:unsaid:v1"
"""The metadata key of the note: the fields that the object's generation does not have, by their names in 1.0."""

PAYLOADS: Final[Mapping[str, str]] = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}
"""The payloads of an event: the name of each in 1.0, and its `kind` before 1.0."""

DATA_WRAPPED: Final = "data_part_compat"
"""The metadata key of a data part whose data is wrapped under `value`. a2a-sdk 1.3.0 writes it for 0.3."""

UNKNOWN_STATES: Final[Mapping[str, str]] = dict.fromkeys(
    ("unknown", "TASK_STATE_UNKNOWN", "TASK_STATE_UNSPECIFIED"), TaskState.WORKING.value
)
"""States that 1.0 does not have, and the state as which they are read. Such a task has not ended."""

_OF_PART: Final = re.compile(r"message\.parts(?P<at>\.\d+)?(\.(?P<field>.+))?")

Change = Callable[[JsonObject], JsonObject]


class Spelling(ABC):
    """The spelling of one generation."""

    states: ClassVar[Mapping[str, str]]
    """The names of states, by their names in 1.0."""
    roles: ClassVar[Mapping[str, str]]
    """The names of roles, by their names in 1.0."""
    parts_name: ClassVar[str]
    """The field of a message that holds its parts."""
    file_names: ClassVar[Mapping[str, str]]
    """The names of a file's fields, by their names in 1.0."""
    has_kinds: ClassVar[bool]
    """Whether objects name their type in `kind`."""
    fields: ClassVar[Mapping[str, frozenset[str]]]
    """The fields of each object, by the object's name in 1.0. An object that is not listed may have any field."""

    def __init__(self) -> None:
        parts = _each(self.part)
        status = {"state": _renaming(self.states), "message": _if_object(self.message)}
        self._message_changes = {"role": _renaming(self.roles), "parts": parts}
        self._artifact_changes = {"parts": parts}
        self._task_changes = {
            "status": _if_object(lambda value: _change(value, status)),
            "artifacts": _each(self.artifact),
            "history": _each(self.message),
        }
        self._update_changes = {"status": self._task_changes["status"], "artifact": _if_object(self.artifact)}

    # Writing: objects of `model` as plain JSON, which are changed in place

    @abstractmethod
    def part(self, part: JsonObject) -> JsonObject:
        """A part in this spelling."""

    def event(self, event: JsonObject, *, last: bool) -> tuple[str, JsonObject]:
        """The payload of a StreamResponse or a SendMessageResponse: its name in 1.0, and the object."""
        name = next(name for name in PAYLOADS if name in event)
        held = event[name]
        assert isinstance(held, dict)
        if name == "statusUpdate":
            held["final"] = last
        return name, _WRITTEN[name](self, held)

    def task(self, task: JsonObject) -> JsonObject:
        """A task in this spelling."""
        return self._payload("task", _change(task, self._task_changes))

    def message(self, message: JsonObject) -> JsonObject:
        """A message in this spelling."""
        spelled = _change(message, self._message_changes)
        if "parts" in spelled:
            spelled[self.parts_name] = spelled.pop("parts")
        return self._payload("message", spelled)

    def status_update(self, update: JsonObject) -> JsonObject:
        """A status update with the field names of this version."""
        return self._payload("statusUpdate", _change(update, self._update_changes))

    def artifact_update(self, update: JsonObject) -> JsonObject:
        """An artifact update with the field names of this version."""
        return self._payload("artifactUpdate", _change(update, self._update_changes))

    def artifact(self, artifact: JsonObject) -> JsonObject:
        """An artifact with the field names of this version."""
        return noted(_change(artifact, self._artifact_changes), self.fields.get("artifact"))

    def _payload(self, name: str, value: JsonObject) -> JsonObject:
        payload = noted(value, self.fields.get(name))
        if self.has_kinds:
            payload["kind"] = PAYLOADS[name]
        return payload

    # Reading: plain JSON to the form of `model`

    @abstractmethod
    def part_from(self, part: JsonObject) -> JsonObject:
        """A part of this spelling in the form of `model`."""

    def field(self, field: str) -> str:
        """The path of a request's field, in the names of this spelling."""
        match = _OF_PART.fullmatch(field)
        if match is None:
            return field
        name = match["field"] or ""
        older = f"file.{self.file_names[name]}" if name in self.file_names else name
        return f"message.{self.parts_name}{match['at'] or ''}.{older}".removesuffix(".")

    def event_from(self, value: JsonValue) -> JsonValue:
        """A StreamResponse or a SendMessageResponse, whose payload may come without a wrapper."""
        event = normalized_event(value)
        if not isinstance(event, dict):
            return event
        return {name: _READ[name](self, item) if name in _READ else item for name, item in event.items()}

    def task_from(self, value: JsonValue) -> JsonValue:
        """A task, with or without a wrapper."""
        return self._task_from(normalized_task(value))

    def message_from(self, value: JsonValue) -> JsonValue:
        """A message of this spelling in the form of `model`."""
        message = message_from(value)
        if not isinstance(message, dict):
            return message
        read = _without_kind(message)
        if self.parts_name in read:
            read["parts"] = read.pop(self.parts_name)
        return _changed(restored(read), {"parts": _each(self.part_from)})

    def _task_from(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        changes = {"artifacts": _each(self._artifact_from), "history": self._history_from}
        return self._with_status_from(_changed(restored(_without_kind(value)), changes))

    def _update_from(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        read = restored(_without_kind(value))
        # The end of the stream shows which event is the last one.
        read.pop("final", None)
        return self._with_status_from(_changed(read, {"artifact": _if_object(self._artifact_from)}))

    def _artifact_from(self, artifact: JsonObject) -> JsonObject:
        return _changed(restored(artifact), {"parts": _each(self.part_from)})

    def _with_status_from(self, value: JsonObject) -> JsonObject:
        """The object with its status read. A state that 1.0 does not have is kept in a note."""
        status = value.get("status")
        if not isinstance(status, dict):
            return value
        read = _changed(status, {"message": self.message_from})
        if (state := UNKNOWN_STATES.get(str(read.get("state")))) is None:
            return {**value, "status": read}
        metadata = _object(value.get("metadata"))
        note: JsonObject = {NOTE: {"state": read["state"]}}
        return {**value, "status": {**read, "state": state}, "metadata": {**metadata, **note}}

    def _history_from(self, value: JsonValue) -> JsonValue:
        return [self.message_from(message) for message in value] if isinstance(value, list) else value


def noted(value: JsonObject, fields: frozenset[str] | None) -> JsonObject:
    """The object with only these fields; the others are kept in a note. None allows any field."""
    if fields is None or value.keys() <= fields:
        return value
    note = {name: item for name, item in value.items() if name not in fields}
    known = {name: item for name, item in value.items() if name in fields}
    return {**known, "metadata": with_note(value.get("metadata"), note)}


def restored(value: JsonObject) -> JsonObject:
    """A copy of the object with the noted fields restored. A field that the object has is not replaced."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(note := metadata.get(NOTE), dict):
        return dict(value)
    restored = {**note, **value}
    others = {name: item for name, item in metadata.items() if name != NOTE}
    if others:
        restored["metadata"] = others
    else:
        del restored["metadata"]
    return restored


def with_note(metadata: JsonValue, note: JsonObject) -> JsonObject:
    """Metadata with further fields in the note."""
    present = _object(metadata)
    return {**present, NOTE: {**_object(present.get(NOTE)), **note}} if note else present


def _without_kind(value: JsonObject) -> JsonObject:
    return {name: item for name, item in value.items() if name != "kind"}


def _renaming(names: Mapping[str, str]) -> Callable[[JsonValue], JsonValue]:
    return lambda value: names[value] if isinstance(value, str) else value


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _change(value: JsonObject, changes: Mapping[str, Callable[[JsonValue], JsonValue]]) -> JsonObject:
    """The same object, with the fields of these names changed."""
    for name, change in changes.items():
        if name in value:
            value[name] = change(value[name])
    return value


def _changed(value: JsonObject, changes: Mapping[str, Callable[[JsonValue], JsonValue]]) -> JsonObject:
    """A copy of the object, with the fields of these names changed."""
    return _change(dict(value), changes)


def _if_object(change: Change) -> Callable[[JsonValue], JsonValue]:
    return lambda value: change(value) if isinstance(value, dict) else value


def _each(change: Change) -> Callable[[JsonValue], JsonValue]:
    def changed(value: JsonValue) -> JsonValue:
        if not isinstance(value, list):
            return value
        return [change(item) if isinstance(item, dict) else item for item in value]

    return changed


_WRITTEN: Final[Mapping[str, Callable[[Spelling, JsonObject], JsonObject]]] = {
    "task": Spelling.task,
    "message": Spelling.message,
    "statusUpdate": Spelling.status_update,
    "artifactUpdate": Spelling.artifact_update,
}
_READ: Final[Mapping[str, Callable[[Spelling, JsonValue], JsonValue]]] = {
    "task": Spelling._task_from,
    "message": Spelling.message_from,
    "statusUpdate": Spelling._update_from,
    "artifactUpdate": Spelling._update_from,
}
