"""Reads objects of an agent into the form of `model`; an invalid object is read field by field. Pure.

A valid object is read as a whole. In an invalid object, a missing field is filled with values known from the exchange,
and a field that cannot be read is left out with a note. So an invalid field does not spoil the rest of the object. A
part that cannot be read is replaced by a text that says so.

Some writers leave out empty fields (the JSON of protocol buffers), some write null for unset fields (Go), and newer
agents send fields that this reader does not know yet.

Spec: A2A 1.0 sections 3.2.3, 4.1 and 4.2; 5.7 (a reader ignores what it does not know).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from bridge.a2a.model.objects import (
    UNNAMED,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksResponse,
    Message,
    Model,
    Part,
    Role,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from bridge.a2a.model.operations import AnswerT
from bridge.text.jsonvalues import JsonObject, shortened_json

UNREAD: Final = "urn:mcp-a2a:unread:v1"
"""The metadata key of a text that replaces a part that could not be read. Its value says why."""

_CONTENTS: Final = ("text", "raw", "url", "data")
_BESIDE: Final = frozenset({"kind", "type", "metadata", "filename", "mediaType", "media_type"})
"""The fields of a part that are not content."""
_MOST_NOTES: Final = 20
"""The most notes that are kept of one exchange. A faulty stream may have the same fault in each event."""
_STATE_NUMBERS: Final = (
    *(TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED),
    *(TaskState.CANCELED, TaskState.INPUT_REQUIRED, TaskState.REJECTED, TaskState.AUTH_REQUIRED),
)
"""The states in the order of their numbers in the proto, from 1 on. JSON of the proto may have numbers instead of
names."""

_Mend = Callable[[JsonValue], JsonValue]


class ExchangeReading:
    """Reads the objects of one exchange: an answer, or the events of a stream in order."""

    __slots__ = (
        "_artifact_id",
        "_context_id",
        "_halves",
        "_message_id",
        "_state",
        "_task_id",
        "_unnamed",
        "is_cut",
        "notes",
    )

    def __init__(self, request: Model | None = None) -> None:
        """`request` names the task, or has the message that the agent repeats."""
        self.notes: list[str] = []
        """Descriptions of the content that was not understood."""
        self._task_id = self._context_id = self._message_id = ""
        self._state: TaskState | None = None
        self._artifact_id = ""
        self._halves: dict[str, str] = {}
        """The high surrogate at the end of the last piece of a text, by the id of the artifact or message."""
        self._unnamed = 0
        self.is_cut = False
        """Whether the JSON of the next object has lone surrogates."""
        match request:
            case GetTaskRequest() | CancelTaskRequest() | SubscribeToTaskRequest():
                self._task_id = request.id
            case SendMessageRequest():
                message = request.message
                self._task_id, self._context_id = message.task_id or "", message.context_id or ""
                self._message_id = message.message_id
            case _:
                pass

    def events(self, value: JsonValue) -> tuple[StreamResponse, ...]:
        """The StreamResponses in an event of a stream; none if nothing in it is understood."""
        if self.is_cut:
            value = _uncut(value, self._halves)
        try:
            events: tuple[StreamResponse, ...] = (StreamResponse.model_validate(value),)
        except ValidationError:
            events = tuple(self._events(value))
        for event in events:
            self._know(event)
        return events

    def answer(self, model: type[AnswerT], value: JsonValue) -> AnswerT:
        """The answer in a value.

        Raises:
            ValidationError: the value contains no answer.
        """
        if self.is_cut:
            value = _uncut(value, None)
        try:
            return model.model_validate(value)
        except ValidationError:
            mended = self._answer(model, value)
            if mended is None:
                raise
            return model.model_validate(mended)

    def _answer(self, model: type[Model], value: JsonValue) -> JsonValue:
        """The readable content of an answer; None if there is none."""
        if not isinstance(value, dict):
            return None
        if model is Task:
            return self._task(value) if _says_something(value) else None
        if model is SendMessageResponse:
            for event in self._events(value):
                if event.task is not None or event.message is not None:
                    return event.to_object()
            return None
        if model is ListTasksResponse and isinstance(listed := value.get("tasks"), list):
            tasks: list[JsonValue] = [task for item in listed if (task := self._listed(item)) is not None]
            sizes: JsonObject = {"nextPageToken": "", "pageSize": len(tasks), "totalSize": len(listed)}
            read = {**sizes, **self._fields(model, {**value, "tasks": tasks}, "the list", {})}
            total = read["totalSize"]
            assert isinstance(total, int)
            return {**read, "tasks": tasks, "totalSize": max(len(tasks), total - len(listed) + len(tasks))}
        return None

    def _know(self, event: StreamResponse) -> None:
        """Remember the ids and the state in an event, for later events without them."""
        if (task := event.task) is not None:
            self._task_id, self._state = task.id, task.status.state
            self._context_id = task.context_id or self._context_id
        elif (update := event.status_update) is not None:
            self._task_id, self._state = update.task_id, update.status.state
            self._context_id = update.context_id
        elif (chunk := event.artifact_update) is not None:
            self._task_id, self._context_id = chunk.task_id, chunk.context_id
            self._artifact_id = chunk.artifact.artifact_id

    # Events

    def _events(self, value: JsonValue) -> Iterator[StreamResponse]:
        payloads: Mapping[str, Callable[[JsonObject], JsonObject | None]] = {
            "task": self._task,
            "message": self._reply,
            "statusUpdate": self._status_update,
            "artifactUpdate": self._artifact_update,
        }
        read = _by_alias(StreamResponse, value) if isinstance(value, dict) else {}
        held = [(name, member) for name in payloads if isinstance(member := read.get(name), dict)]
        if not held:
            self.note(f"an event of a kind that is not known: {shortened_json(value)}")
        for name in payloads:
            if held and (other := read.get(name)) and not isinstance(other, dict):
                self.note(f"{name} cannot be read: {shortened_json(other)}")
        for name, payload in held:
            if (mended := payloads[name](payload) if payload else None) is None:
                continue
            try:
                yield StreamResponse.model_validate({name: mended})
            except ValidationError as exc:
                self.note(f"{name} cannot be read: {exc.errors(include_url=False)[0]['msg']}")

    def _task(self, value: JsonObject) -> JsonObject:
        task_id = _text(value.get("id")) or self._task_id or _named_inside(value, "taskId") or UNNAMED
        where = f"task {task_id}"
        nested: Mapping[str, _Mend] = {
            "status": self._status,
            "artifacts": lambda artifacts: self._each(artifacts, self._artifact),
            "history": lambda history: self._each(history, self._message_if_any),
        }
        read = self._fields(Task, value, where, nested)
        context_id = _named_inside(read, "contextId") or self._context_id
        known: JsonObject = {"contextId": context_id} if context_id else {}
        status = read.get("status")
        return {**known, **read, "id": task_id, "status": status if status is not None else self._status({})}

    def _listed(self, value: JsonValue) -> JsonValue:
        """A task of a list; None if the task has no id, since it would be useless."""
        try:
            Task.model_validate(value)
        except ValidationError:
            if not isinstance(value, dict) or not _text(value.get("id")):
                self.note(f"a task of the list has no id and is left out: {shortened_json(value)}")
                return None
            return self._task(value)
        return value

    def _reply(self, value: JsonObject) -> JsonObject:
        """A message instead of a task. It may have no content."""
        message = self._message(value, f"{UNNAMED}:reply")
        return {**message, "parts": message.get("parts") or [{"text": ""}]}

    def _status_update(self, value: JsonObject) -> JsonObject | None:
        read = self._fields(TaskStatusUpdateEvent, value, "a status update", {"status": self._status})
        if "status" not in read:
            self.note("a status update without a status")
            return None
        return {**read, **self._owner(read)}

    def _artifact_update(self, value: JsonObject) -> JsonObject | None:
        is_more = value.get("append") is True

        def artifact(value: JsonValue) -> JsonValue:
            return self._artifact(value, self._artifact_id if is_more else "")

        read = self._fields(TaskArtifactUpdateEvent, value, "an artifact update", {"artifact": artifact})
        # An update without parts only says that the artifact is complete.
        return {**read, **self._owner(read)} if read.get("artifact") is not None else None

    def _owner(self, update: JsonObject) -> JsonObject:
        """The ids of the task and the context of an update."""
        task_id = update.get("taskId") or self._task_id or _named_inside(update, "taskId") or UNNAMED
        context_id = (
            update.get("contextId") or self._context_id or _named_inside(update, "contextId") or UNNAMED
        )
        return {"taskId": task_id, "contextId": context_id}

    # What they hold

    def _status(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return None
        nested: Mapping[str, _Mend] = {"state": self._state_of, "message": self._message_if_any}
        read = self._fields(TaskStatus, value, "a status", nested)
        return {**read, "state": read.get("state") or self._known_state}

    @property
    def _known_state(self) -> str:
        """The state of a task whose status has none."""
        return self._state or TaskState.WORKING

    def _state_of(self, value: JsonValue) -> JsonValue:
        """The state. An unknown state counts as WORKING, so that it does not end the task."""
        if isinstance(value, int) and 1 <= value <= len(_STATE_NUMBERS):
            return _STATE_NUMBERS[value - 1].value
        if not value:
            return None
        self.note(f"the state {shortened_json(value)} is not known, so the task counts as still at work")
        return TaskState.WORKING.value

    def _message_if_any(self, value: JsonValue) -> JsonValue:
        """A message within a task; None if it has no content."""
        if isinstance(value, str) and value:
            value = {"parts": [{"text": value}]}
        if not isinstance(value, dict):
            return None
        message = self._message(value, "")
        return message if message.get("parts") else None

    def _message(self, value: JsonObject, unnamed: str) -> JsonObject:
        message_id = _text(value.get("messageId") or value.get("message_id")) or unnamed or self._new_id()
        where = f"message {message_id}"
        nested: Mapping[str, _Mend] = {
            "role": self._role_of,
            "parts": lambda parts: self._parts(parts, where),
        }
        read = self._fields(Message, value, where, nested)
        is_echo = message_id == self._message_id
        return {
            **read,
            "messageId": message_id,
            "role": read.get("role") or (Role.USER if is_echo else Role.AGENT).value,
        }

    def _role_of(self, value: JsonValue) -> JsonValue:
        return Role.USER.value if value == 1 else None

    def _artifact(self, value: JsonValue, unnamed: str = "") -> JsonValue:
        if not isinstance(value, dict):
            return None
        artifact_id = _text(value.get("artifactId") or value.get("artifact_id")) or unnamed or self._new_id()
        where = f"artifact {artifact_id}"
        nested: Mapping[str, _Mend] = {"parts": lambda parts: self._parts(parts, where)}
        read = self._fields(Artifact, value, where, nested)
        return {**read, "artifactId": artifact_id} if read.get("parts") else None

    def _parts(self, value: JsonValue, where: str) -> JsonValue:
        listed = value if isinstance(value, list) else [value] if value else []
        return [
            part
            for number, item in enumerate(listed, 1)
            for part in self._part(item, f"part {number} of {where}")
        ]

    def _part(self, value: JsonValue, where: str) -> Iterator[JsonObject]:
        """The part, or several parts if it has several contents."""
        if not isinstance(value, dict):
            value = {"text": value}
        if isinstance(value.get("text"), int | float | dict | list):
            value = {**value, "text": None, "data": value["text"]}
        if _is_valid(Part, value):
            yield value
            return
        held = {name: value[name] for name in _CONTENTS if value.get(name) not in (None, "")}
        beside = {name: item for name, item in value.items() if name not in _CONTENTS and item is not None}
        count = 0
        for name, item in held.items():
            fields = self._fields(Part, {**beside, name: item}, where, {})
            if name in fields:
                count += 1
                yield fields
        unknown = {name: item for name, item in beside.items() if name not in _BESIDE and item}
        if not count and (unknown or held):
            words = f"{where} is of a kind that cannot be read and is left out: {shortened_json(value)}"
            self.note(words)
            yield {"text": f"[{words[0].upper()}{words[1:]}]", "metadata": {UNREAD: _whole(words)}}
        elif not count:
            self.note(f"{where} has no content")

    # Fields

    def _fields(
        self, model: type[Model], value: JsonObject, where: str, nested: Mapping[str, _Mend]
    ) -> JsonObject:
        """See `fields_alone`. Fields that are left out are noted."""

        def note(name: str, value: JsonValue) -> None:
            self.note(f"{name} of {where} cannot be read: {shortened_json(value)}")

        return fields_alone(model, value, nested, note)

    def _each(self, value: JsonValue, mend: _Mend) -> JsonValue:
        """The readable items of a list. A value that is not a list counts as its only item."""
        read: list[JsonValue] = []
        for item in value if isinstance(value, list) else [value]:
            if (mended := mend(item)) is not None:
                read.append(mended)
            elif item and not isinstance(item, dict):
                self.note(f"an unreadable value is left out: {shortened_json(item)}")
        return read

    def _new_id(self) -> str:
        self._unnamed += 1
        return f"{UNNAMED}:{self._unnamed}"

    def note(self, words: str) -> None:
        """Add a note about content that was not understood."""
        words = _whole(words)
        if words not in self.notes and len(self.notes) < _MOST_NOTES:
            self.notes.append(words)


def fields_alone(
    model: type[Model],
    value: JsonObject,
    nested: Mapping[str, Callable[[JsonValue], JsonValue]],
    note: Callable[[str, JsonValue], None],
) -> JsonObject:
    """The readable fields of an object, by their names on the wire. Each field is checked alone; null counts as absent.

    `nested` has readers for invalid fields; a reader returns None if it can read nothing. `note` is called with each
    field that is left out.
    """
    read: JsonObject = {}
    for name, item in _by_alias(model, value).items():
        if item is None and name != "data":
            continue
        adapter = _adapters_of(model).get(name)
        if adapter is None or _takes(adapter, item):
            read[name] = item
        elif name in nested:
            if (mended := nested[name](item)) is not None:
                read[name] = mended
        elif item != "":
            note(name, item)
    return read


def _says_something(value: JsonObject) -> bool:
    """Whether an object has any content of a task beside its id."""
    return not {"status", "artifacts", "history"}.isdisjoint(name for name, item in value.items() if item)


def _named_inside(value: JsonObject, name: str) -> str:
    """The id of the task or the context that a message in a task or an update names; empty if no message names it."""
    status = value.get("status")
    history = value.get("history")
    inside = [value, *(history if isinstance(history, list) else ())]
    inside.append(status.get("message") if isinstance(status, dict) else None)
    return next(
        (name_read for item in inside if isinstance(item, dict) and (name_read := _text(item.get(name)))), ""
    )


def _text(value: JsonValue) -> str:
    """An id as text. Some agents write numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _by_alias(model: type[Model], value: JsonObject) -> JsonObject:
    """An object with the JSON names of its fields. JSON of protocol buffers may use the proto names instead."""
    aliases = _aliases_of(model)
    return {aliases.get(name, name): item for name, item in value.items()}


@lru_cache(maxsize=32)
def _aliases_of(model: type[Model]) -> Mapping[str, str]:
    return {
        name: field.alias for name, field in model.model_fields.items() if field.alias and field.alias != name
    }


@lru_cache(maxsize=32)
def _adapters_of(model: type[Model]) -> Mapping[str, TypeAdapter[Any]]:
    """The validator of each field of a model, by its name on the wire."""
    return {
        field.alias or name: TypeAdapter(
            cast(Any, Annotated[cast(Any, field.annotation), *field.metadata, name])
        )
        for name, field in model.model_fields.items()
    }


def _takes(adapter: TypeAdapter[Any], value: JsonValue) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _is_valid(model: type[Model], value: JsonValue) -> bool:
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


def _uncut(value: JsonValue, halves: dict[str, str] | None) -> JsonValue:
    """A value without lone surrogates. `halves` has the high surrogates at the end of texts, by the id of the message
    or artifact that continues in the next event; None if nothing continues."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [_uncut(item, halves) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(parts := value.get("parts"), list):
        about = _text(value.get("artifactId")) or _text(value.get("messageId"))
        value = {**value, "parts": [*_joined_halves(parts, halves, about)]}
    return {name: _uncut(item, halves) for name, item in value.items()}


def _joined_halves(
    parts: Sequence[JsonValue], halves: dict[str, str] | None, about: str
) -> Iterator[JsonValue]:
    """The parts with whole characters: a high surrogate at the end of a text moves to the next text, which is in these
    parts or in the next event."""
    half = halves.pop(about, "") if halves else ""
    for number, part in enumerate(parts):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(text, str):
            yield part
            continue
        text, half = half + text, ""
        if _is_first_half(text[-1:]) and (halves is not None or number < len(parts) - 1):
            text, half = text[:-1], text[-1]
        yield {**part, "text": text}
    if half and halves is not None:
        halves[about] = half


def _is_first_half(letter: str) -> bool:
    return "\ud800" <= letter <= "\udbff"


def _whole(text: str) -> str:
    """A text in which surrogate pairs are joined, and a lone surrogate becomes the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
