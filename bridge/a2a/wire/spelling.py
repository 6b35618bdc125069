"""How a generation before 1.0 spells the objects of A2A: one walk over them, out and in. Pure.

What a spelling knows is in tables: the names of states and roles, which fields an object has, and how a part looks. A
field that an object of that generation does not have is noted in its metadata, and put back from there by a reader.

Nothing of the user's is touched (metadata, data).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from pydantic import JsonValue

from bridge.a2a.model.objects import TaskState
from bridge.a2a.wire.tolerant import message_from, normalized_event, normalized_task
from bridge.jsonvalues import JsonObject

NOTE: Final = "urn:mcp-a2a:unsaid:v1"
"""The metadata key under which an object has what its generation has no field for, by the names of 1.0."""

PAYLOADS: Final[Mapping[str, str]] = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}
"""What an event holds, by its names in 1.0, and what such an object calls itself where objects do."""

DATA_WRAPPED: Final = "data_part_compat"
"""The metadata key which says that data that is no object stands under `value`: a2a-sdk 1.3.0 writes it for 0.3."""

UNKNOWN_STATES: Final[Mapping[str, str]] = dict.fromkeys(
    ("unknown", "TASK_STATE_UNKNOWN", "TASK_STATE_UNSPECIFIED"), TaskState.WORKING.value
)
"""States that 1.0 does not have: a task in one of them has not ended, as far as anybody can tell."""

_OF_PART: Final = re.compile(r"message\.parts(?P<at>\.\d+)?(\.(?P<field>.+))?")

Change = Callable[[JsonObject], JsonObject]


class Spelling(ABC):
    """One generation's spelling."""

    states: ClassVar[Mapping[str, str]]
    """By their names in 1.0."""
    roles: ClassVar[Mapping[str, str]]
    """By their names in 1.0."""
    parts_name: ClassVar[str]
    """What a message calls its parts."""
    file_names: ClassVar[Mapping[str, str]]
    """What a file calls its fields, by their names in 1.0."""
    has_kinds: ClassVar[bool]
    """Whether objects say what they are."""
    fields: ClassVar[Mapping[str, frozenset[str]]]
    """Which fields an object has, by its name in 1.0; what is not here has any."""

    def __init__(self) -> None:
        parts = _each(self.part)
        status = {"state": _renaming(self.states), "message": _one(self.message)}
        self._message_changes = {"role": _renaming(self.roles), "parts": parts}
        self._artifact_changes = {"parts": parts}
        self._task_changes = {
            "status": _one(lambda value: _change(value, status)),
            "artifacts": _each(self.artifact),
            "history": _each(self.message),
        }
        self._update_changes = {"status": self._task_changes["status"], "artifact": _one(self.artifact)}

    # Out: objects of `model` as plain JSON, which are changed in place

    @abstractmethod
    def part(self, part: JsonObject) -> JsonObject:
        """A part."""

    def event(self, event: JsonObject, *, last: bool) -> tuple[str, JsonObject]:
        """What a StreamResponse or a SendMessageResponse holds: its name in 1.0, and the object."""
        name = next(name for name in PAYLOADS if name in event)
        held = event[name]
        assert isinstance(held, dict)
        if name == "statusUpdate":
            held["final"] = last
        return name, _WRITTEN[name](self, held)

    def task(self, task: JsonObject) -> JsonObject:
        """A task."""
        return self._said("task", _change(task, self._task_changes))

    def message(self, message: JsonObject) -> JsonObject:
        """A message."""
        said = _change(message, self._message_changes)
        if "parts" in said:
            said[self.parts_name] = said.pop("parts")
        return self._said("message", said)

    def status_update(self, update: JsonObject) -> JsonObject:
        """A status update."""
        return self._said("statusUpdate", _change(update, self._update_changes))

    def artifact_update(self, update: JsonObject) -> JsonObject:
        """An artifact update."""
        return self._said("artifactUpdate", _change(update, self._update_changes))

    def artifact(self, artifact: JsonObject) -> JsonObject:
        """An artifact."""
        return noted(_change(artifact, self._artifact_changes), self.fields.get("artifact"))

    def _said(self, name: str, value: JsonObject) -> JsonObject:
        said = noted(value, self.fields.get(name))
        if self.has_kinds:
            said["kind"] = PAYLOADS[name]
        return said

    # In: plain JSON, as objects of `model` have it

    @abstractmethod
    def part_from(self, part: JsonObject) -> JsonObject:
        """A part."""

    def field(self, field: str) -> str:
        """The path of a field of a request, by the names that its client knows."""
        found = _OF_PART.fullmatch(field)
        if found is None:
            return field
        name = found["field"] or ""
        older = f"file.{self.file_names[name]}" if name in self.file_names else name
        return f"message.{self.parts_name}{found['at'] or ''}.{older}".removesuffix(".")

    def event_from(self, value: JsonValue) -> JsonValue:
        """A StreamResponse or a SendMessageResponse, of what may stand there bare."""
        event = normalized_event(value)
        if not isinstance(event, dict):
            return event
        return {name: _READ[name](self, item) if name in _READ else item for name, item in event.items()}

    def task_from(self, value: JsonValue) -> JsonValue:
        """A task, bare or wrapped."""
        return self._task_from(normalized_task(value))

    def message_from(self, value: JsonValue) -> JsonValue:
        """A message."""
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
        # Whether it is the last of its stream is seen by the end of the stream.
        read.pop("final", None)
        return self._with_status_from(_changed(read, {"artifact": _one(self._artifact_from)}))

    def _artifact_from(self, artifact: JsonObject) -> JsonObject:
        return _changed(restored(artifact), {"parts": self._parts_from})

    def _with_status_from(self, value: JsonObject) -> JsonObject:
        """With its status read; a state that 1.0 does not have is noted."""
        status = value.get("status")
        if not isinstance(status, dict):
            return value
        read = _changed(status, {"message": self._said_from})
        if (state := UNKNOWN_STATES.get(str(read.get("state")))) is None:
            return {**value, "status": read}
        metadata = _object(value.get("metadata"))
        note: JsonObject = {NOTE: {"state": read["state"]}}
        return {**value, "status": {**read, "state": state}, "metadata": {**metadata, **note}}

    def _history_from(self, value: JsonValue) -> JsonValue:
        return [self._said_from(one) for one in value] if isinstance(value, list) else value

    def _said_from(self, value: JsonValue) -> JsonValue:
        """A message that an agent gives, which may have nothing in it."""
        message = self.message_from(value)
        return _changed(message, {"parts": _filled}) if isinstance(message, dict) else message

    def _parts_from(self, value: JsonValue) -> JsonValue:
        return _filled(_each(self.part_from)(value))


def noted(value: JsonObject, fields: frozenset[str] | None) -> JsonObject:
    """An object with only these fields, the others as a note."""
    if fields is None or value.keys() <= fields:
        return value
    note = {name: item for name, item in value.items() if name not in fields}
    kept = {name: item for name, item in value.items() if name in fields}
    return {**kept, "metadata": _with_note(value.get("metadata"), note)}


def restored(value: JsonObject) -> JsonObject:
    """An object with what was noted at its place; what stands there stays. Always another object."""
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


def _with_note(metadata: JsonValue, note: JsonObject) -> JsonObject:
    """Metadata with more that its object's generation has no field for."""
    said = _object(metadata)
    return {**said, NOTE: {**_object(said.get(NOTE)), **note}} if note else said


def _without_kind(value: JsonObject) -> JsonObject:
    return {name: item for name, item in value.items() if name != "kind"}


def _filled(value: JsonValue) -> JsonValue:
    """Parts, of which there may be none before 1.0."""
    return [{"text": ""}] if value == [] else value


def _renaming(names: Mapping[str, str]) -> Callable[[JsonValue], JsonValue]:
    return lambda value: names[value] if isinstance(value, str) else value


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _change(value: JsonObject, changes: Mapping[str, Callable[[JsonValue], JsonValue]]) -> JsonObject:
    """The same object, its fields of these names changed."""
    for name, change in changes.items():
        if name in value:
            value[name] = change(value[name])
    return value


def _changed(value: JsonObject, changes: Mapping[str, Callable[[JsonValue], JsonValue]]) -> JsonObject:
    """A copy whose fields of these names are changed."""
    return _change(dict(value), changes)


def _one(change: Change) -> Callable[[JsonValue], JsonValue]:
    return lambda value: change(value) if isinstance(value, dict) else value


def _each(change: Change) -> Callable[[JsonValue], JsonValue]:
    def changed(value: JsonValue) -> JsonValue:
        if not isinstance(value, list):
            return value
        return [change(one) if isinstance(one, dict) else one for one in value]

    return changed


_WRITTEN: Final[Mapping[str, Callable[[Spelling, JsonObject], JsonObject]]] = {
    "task": Spelling.task,
    "message": Spelling.message,
    "statusUpdate": Spelling.status_update,
    "artifactUpdate": Spelling.artifact_update,
}
_READ: Final[Mapping[str, Callable[[Spelling, JsonValue], JsonValue]]] = {
    "task": Spelling._task_from,
    "message": Spelling._said_from,
    "statusUpdate": Spelling._update_from,
    "artifactUpdate": Spelling._update_from,
}
