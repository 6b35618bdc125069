"""The first generation of A2A, over JSON-RPC: `tasks/send`, with task ids that clients make, and sessions.

The answer to a message is always a task, and a stream has only updates. Messages have no ids. Fields that this
generation lacks are kept in a note in metadata. If an agent writes no notes, a message id is made from the content, so
that the same message of a task has the same id each time it is read.

Spec: A2A before 0.2.0, as tagged v0.1.0: sections 5 (card), 6 (objects), 7 (methods), 8 (errors) of its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from bridge.a2a.model import operations
from bridge.a2a.model.errors import A2AError, Violation, invalid_params
from bridge.a2a.model.objects import (
    AgentCard,
    GetTaskRequest,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from bridge.a2a.model.operations import PUSH, AnswerT, AnyOperation, Operation, RequestT, Streamed
from bridge.a2a.model.task_names import NAME_BYTES, name_of
from bridge.a2a.wire import older_card, tolerant
from bridge.a2a.wire.dialect import EventDecoder, EventEncoder
from bridge.a2a.wire.push_spelling import FirstPushSpelling, push_in, push_out
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.spelling import NOTE, restored, with_note
from bridge.a2a.wire.v0_3 import V0_3, JsonSpelling
from bridge.text.jsonvalues import JsonObject

_SAID_OTHERWISE: Final[Mapping[str, str]] = {
    TaskState.REJECTED.value: "failed",
    TaskState.AUTH_REQUIRED.value: "input-required",
}
"""States that this generation lacks, with the nearest state. The note has the real state."""

_SNAPSHOT: Final = "isSnapshot"
"""The key of the note in updates that together form the snapshot at the beginning of a stream."""
_MESSAGE: Final = "isMessage"
"""The key of the note in a task or an update that replaces a message."""
_CONFIGURATION: Final = "configuration"
"""The key of a request's note for configuration that has no field."""

_ALL: Final = 2**31 - 1
"""The number that asks for the whole history. Without a number, an answer has no history."""

_CHUNK: Final = ("append", "lastChunk")
"""Fields of an artifact in a stream. In 1.0 they are fields of the update."""

_FIELDS: Final[Mapping[str, str]] = {
    "message.taskId": "id",
    "message.contextId": "sessionId",
    "configuration.pushNotification": "pushNotification",
    "configuration.historyLength": "historyLength",
    "configuration.acceptedOutputModes": "acceptedOutputModes",
}
"""The paths of a request's fields, by their paths in 1.0. The path of the webhook is `push_name`."""


class FirstSpelling(JsonSpelling):
    """The objects of the JSON schema of v0.1.0."""

    states: ClassVar = {**JsonSpelling.states, **_SAID_OTHERWISE}
    has_kinds: ClassVar = False
    fields: ClassVar = {
        "task": frozenset({"id", "sessionId", "status", "artifacts", "history", "metadata"}),
        "message": frozenset({"role", "parts", "metadata"}),
        "artifact": frozenset({"name", "description", "parts", "metadata", "index", *_CHUNK}),
        "statusUpdate": frozenset({"id", "status", "final", "metadata"}),
        "artifactUpdate": frozenset({"id", "artifact", "metadata"}),
    }

    # Out

    def part(self, part: JsonObject) -> JsonObject:
        older = super().part(part)
        older["type"] = older.pop("kind")
        return older

    def task(self, task: JsonObject) -> JsonObject:
        _leave_out_ids(task, task["id"])
        for index, artifact in enumerate(_objects(task.get("artifacts"))):
            artifact["index"] = index
        if "contextId" in task:
            task["sessionId"] = task.pop("contextId")
        return super().task(_with_state_noted(self._named(task, "id")))

    def status_update(self, update: JsonObject) -> JsonObject:
        _leave_out_ids(update, update["taskId"])
        return super().status_update(_with_state_noted(self._named(update, "taskId")))

    def chunk(self, update: JsonObject, index: int) -> JsonObject:
        """An artifact update. `index` is the position of its artifact in the task."""
        artifact = update["artifact"]
        assert isinstance(artifact, dict)
        artifact["index"] = index
        artifact |= {name: update.pop(name) for name in _CHUNK if name in update}
        return super().artifact_update(self._named(update, "taskId"))

    def snapshot(self, task: JsonObject) -> tuple[list[JsonObject], JsonObject]:
        """A task as updates of its artifacts, and an update of its status."""
        note: JsonObject = {NOTE: {_SNAPSHOT: True}}
        same = {name: task[name] for name in ("contextId",) if name in task}
        same |= {"taskId": task.pop("id"), "metadata": note}
        artifacts = [{**same, "artifact": artifact} for artifact in _objects(task.pop("artifacts", None))]
        metadata = with_note(task.get("metadata"), {_SNAPSHOT: True})
        return artifacts, {**task, "taskId": same["taskId"], "metadata": metadata}

    def message_as_task(self, message: JsonObject) -> JsonObject:
        """A message as a completed task with this message."""
        task: JsonObject = {
            "id": message["messageId"],
            "status": {"state": "completed", "message": self.message(dict(message))},
            "metadata": {NOTE: {_MESSAGE: True}},
        }
        return {**task, "sessionId": message["contextId"]} if "contextId" in message else task

    def name(self, task_id: str) -> str:
        """The name of a task for its client."""
        return name_of(task_id)

    def _named(self, value: JsonObject, field: str) -> JsonObject:
        """The same object, with the task's name in place of its id."""
        value["id"] = self.name(str(value.pop(field)))
        return value

    # In

    def part_from(self, part: JsonObject) -> JsonObject:
        read = dict(part)
        if "type" in read:
            read["kind"] = read.pop("type")
        return super().part_from(read)

    def field(self, field: str) -> str:
        older = next((name for name in _FIELDS if field == name or field.startswith(f"{name}.")), None)
        return super().field(field) if older is None else _FIELDS[older] + field.removeprefix(older)

    def event_from(self, value: JsonValue) -> JsonValue:
        """The answer to a message."""
        read = restored(value) if isinstance(value, dict) else {}
        if read.get(_MESSAGE) is True:
            return {"message": self._message_of(read)}
        return {"task": self.task_from(value)}

    def task_from(self, value: JsonValue) -> JsonValue:
        read = tolerant.normalized_task(value)
        if not isinstance(read, dict):
            return read
        read = restored(read)
        if "sessionId" in read:
            read["contextId"] = read.pop("sessionId")
        if isinstance(artifacts := read.get("artifacts"), list):
            read["artifacts"] = self._artifacts_from(artifacts)
        read["history"] = self._history_from(read.get("history"))
        return _with_ids(self._with_status_from(read), read.get("id"), read.get("contextId"))

    def update_from(self, update: JsonObject, context_id: str | None) -> JsonObject:
        """An update as a StreamResponse. Its note is restored already. `context_id` is used if the update has no
        context."""
        read = {"contextId": context_id or update.get("id"), **update}
        read["taskId"] = read.pop("id", None)
        read.pop("final", None)
        if (artifact := read.get("artifact")) is None:
            event = tolerant.normalized_event({"statusUpdate": read})
            assert isinstance(event, dict)
            status_update = event["statusUpdate"]
            assert isinstance(status_update, dict)
            return {
                "statusUpdate": _with_ids(
                    self._with_status_from(status_update), status_update["taskId"], status_update["contextId"]
                )
            }
        if isinstance(artifact, dict):
            read["artifact"] = chunk = self._identified(artifact)
            read |= {name: chunk.pop(name) for name in _CHUNK if name in chunk}
        return {"artifactUpdate": read}

    def message_in(self, update: JsonObject) -> JsonObject:
        """The message that an update replaces. Its note is restored already."""
        return {"message": self._message_of(update)}

    def _message_of(self, read: JsonObject) -> JsonValue:
        status = read.get("status")
        return self.message_from(status.get("message")) if isinstance(status, dict) else None

    def _with_status_from(self, value: JsonObject) -> JsonObject:
        read = super()._with_status_from(value)
        state, status = read.get("state"), read.get("status")
        if not isinstance(state, str) or not isinstance(status, dict):
            return read
        del read["state"]
        if state in _SAID_OTHERWISE:
            read["status"] = {**status, "state": state}
        else:
            read["metadata"] = with_note(read.get("metadata"), {"state": state})
        return read

    def _identified(self, artifact: JsonObject) -> JsonObject:
        """An artifact, or a piece of an artifact, with an id. A missing id is made from its index."""
        read = self._artifact_from(artifact)
        place = read.pop("index", None) or 0
        return {"artifactId": f"artifact-{place}", **read}

    def _artifacts_from(self, artifacts: Sequence[JsonValue]) -> list[JsonValue]:
        """The artifacts of a task. Some agents list each piece that they sent, and give several artifacts the same
        index."""
        known: dict[str, JsonObject] = {}
        for artifact in artifacts:
            if not isinstance(artifact, dict):
                return [*artifacts]  # the strict reader refuses it
            read = self._identified(artifact)
            append, _ = read.pop("append", None), read.pop("lastChunk", None)
            name = str(read["artifactId"])
            before = known.get(name)
            if before is not None and append is True:
                before["parts"] = _joined(before.get("parts"), read.get("parts"))
                continue
            if before is not None:
                read["artifactId"] = name = f"{name}.{len(known)}"
            known[name] = read
        return [*known.values()]


class _FirstWriter(EventEncoder):
    """Writes updates, in which each piece has the index of its artifact."""

    def __init__(self, spelling: FirstSpelling) -> None:
        self._spelling = spelling
        self._places: dict[JsonValue, int] = {}

    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        [(name, held)] = from_json(event).items()
        return [to_json(written) for written in self._written(name, held, last)]

    def _written(self, name: str, held: JsonObject, last: bool) -> Sequence[JsonObject]:
        if name == "artifactUpdate":
            return [self._chunk(held)]
        if name == "task":
            artifacts, held = self._spelling.snapshot(held)
            held["final"] = last
            return [*map(self._chunk, artifacts), self._spelling.status_update(held)]
        if name == "message":
            task = self._spelling.message_as_task(held)
            task.pop("sessionId", None)
            return [{**task, "final": last}]
        return [self._spelling.status_update({**held, "final": last})]

    def _chunk(self, update: JsonObject) -> JsonObject:
        artifact = update["artifact"]
        assert isinstance(artifact, dict)
        return self._spelling.chunk(
            update, self._places.setdefault(artifact["artifactId"], len(self._places))
        )


class _FirstReader(EventDecoder):
    """Joins the updates of a snapshot into a task."""

    def __init__(self, spelling: FirstSpelling, context_id: str | None, reading: ExchangeReading) -> None:
        self._spelling = spelling
        self._reading = reading
        self._context_id = context_id
        self._artifacts: list[JsonValue] = []

    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        read = restored(value) if isinstance(value, dict) else {}
        is_snapshot = read.pop(_SNAPSHOT, False) is True
        if read.pop(_MESSAGE, False) is True:
            return self._reading.events(self._spelling.message_in(read))
        if "status" not in read and "artifact" not in read:
            return self._reading.events(value)
        if not is_snapshot and not _TASKS_OWN.isdisjoint(read):
            return self._reading.events({"task": self._spelling.task_from(value)})
        event = self._spelling.update_from(read, self._context_id)
        if not is_snapshot:
            return self._reading.events(event)
        [(name, update)] = event.items()
        assert isinstance(update, dict)
        if name == "artifactUpdate":
            self._artifacts.append(update["artifact"])
            return ()
        update["id"] = update.pop("taskId")
        if self._artifacts:
            update["artifacts"], self._artifacts = self._artifacts, []
        return self._reading.events({"task": update})


_TASKS_OWN: Final = frozenset({"sessionId", "history", "artifacts"})
"""Fields that only a task has. Some agents begin a stream with a task."""


class V0_1(V0_3):
    """A2A before 0.2.0."""

    version: ClassVar = "0.1"
    methods: ClassVar[Mapping[str, AnyOperation]] = {
        "tasks/send": operations.SEND_MESSAGE,
        "tasks/sendSubscribe": operations.SEND_STREAMING_MESSAGE,
        "tasks/get": operations.GET_TASK,
        "tasks/cancel": operations.CANCEL_TASK,
        "tasks/resubscribe": operations.SUBSCRIBE_TO_TASK,
        "tasks/pushNotification/set": operations.CREATE_PUSH_CONFIG,
        "tasks/pushNotification/get": operations.GET_PUSH_CONFIG,
    }
    clients_name_tasks: ClassVar = True
    spelling: ClassVar[FirstSpelling] = FirstSpelling()
    push_spelling: ClassVar = FirstPushSpelling()
    push_name: ClassVar = "pushNotification"
    _of_webhooks: ClassVar[JsonObject] = {}

    # For a server

    def _params_from(self, operation: AnyOperation, params: JsonValue) -> JsonValue:
        if not isinstance(params, dict):
            return params
        if operation.request is GetTaskRequest:
            return _with_length_from(params)
        if operation in PUSH:
            return self.push_spelling.request_from(operation, params)
        if operation.request is not SendMessageRequest:
            return params
        read = restored(params)
        task_id, context_id = read.pop("id", None), read.pop("sessionId", None)
        _require_name(task_id)
        configuration: dict[str, JsonValue] = {
            name: item
            for name in ("acceptedOutputModes", "historyLength")
            if (item := read.pop(name, None)) is not None
        }
        if (push := read.pop(self.push_name, None)) is not None:
            configuration["taskPushNotificationConfig"] = push_in(push) if isinstance(push, dict) else push
        noted = read.get(_CONFIGURATION, {})
        read["configuration"] = (
            _with_length_from({**noted, **configuration}) if isinstance(noted, dict) else noted
        )
        message = self.spelling.message_from(read.get("message"))
        if isinstance(message, dict):
            read["message"] = {
                **with_message_id(message, task_id),
                "taskId": task_id,
                "contextId": context_id,
            }
        return read

    def _answered(self, operation: AnyOperation, answer: JsonObject) -> JsonValue:
        if operation in PUSH:
            return self.push_spelling.answer(operation, self._named(answer))
        if isinstance(message := answer.get("message"), dict):
            return self.spelling.message_as_task(message)
        task = answer["task"] if operation is operations.SEND_MESSAGE else answer
        assert isinstance(task, dict)
        return self.spelling.task(task)

    def _named(self, config: JsonObject) -> JsonObject:
        """A config with the task's name in place of its id."""
        return {**config, "taskId": name_of(str(config["taskId"]))} if "taskId" in config else config

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:  # noqa: ARG002 - one for all
        return _FirstWriter(self.spelling)

    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        if "taskId" not in error.metadata:
            return super().jsonrpc_error(error)
        metadata = {**error.metadata, "taskId": name_of(error.metadata["taskId"])}
        return super().jsonrpc_error(
            A2AError(
                error.kind, str(error), metadata=metadata, violations=error.violations, names=error.names
            )
        )

    def card(self, card: AgentCard) -> AgentCard:
        return older_card.with_authentication(card)

    # For a client

    def has_card(self, card: JsonObject) -> bool:
        return older_card.is_of_first(card)

    def card_from(self, card: JsonObject) -> JsonObject:
        return older_card.read_first(card, self.version)

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        params = request.to_object()
        params.pop("tenant", None)
        if operation.request is GetTaskRequest:
            return {"historyLength": _ALL, **params}
        if operation in PUSH:
            return self.push_spelling.request(operation, params)
        if operation.request is not SendMessageRequest:
            return params
        message, configuration = params["message"], params.pop("configuration", {})
        assert isinstance(message, dict)
        assert isinstance(configuration, dict)
        task_id, context_id = message.pop("taskId", None), message.pop("contextId", None)
        older: JsonObject = {"id": task_id or message["messageId"]}
        if (session_id := context_id or (None if task_id else message["messageId"])) is not None:
            older["sessionId"] = session_id
        older["historyLength"] = configuration.pop("historyLength", _ALL)
        if "acceptedOutputModes" in configuration:
            older["acceptedOutputModes"] = configuration.pop("acceptedOutputModes")
        if isinstance(push := configuration.pop("taskPushNotificationConfig", None), dict):
            older[self.push_name] = push_out(push)
        if unsaid := {name: item for name, item in configuration.items() if item is not False}:
            older["metadata"] = with_note(params.get("metadata"), {_CONFIGURATION: unsaid})
        return {**params, **older, "message": self.spelling.message(message)}

    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],  # noqa: ARG002
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        context_id: str | None = None
        if isinstance(request, SendMessageRequest):
            message = request.message
            context_id = message.context_id or (None if message.task_id else message.message_id)
        return _FirstReader(self.spelling, context_id, reading or ExchangeReading(request))


def _require_name(task_id: JsonValue) -> None:
    """Refuse a task id that a client may not make."""
    if not isinstance(task_id, str) or not task_id:
        raise invalid_params(Violation("id", "must be the id that you give the task: a string"))
    if len(task_id.encode()) > NAME_BYTES:
        raise invalid_params(Violation("id", f"must not be longer than {NAME_BYTES} bytes"))


def _with_length_from(params: JsonObject) -> JsonObject:
    """Parameters with the `historyLength` of 1.0, where absent means the whole history."""
    length = params.get("historyLength")
    others = {name: item for name, item in params.items() if name != "historyLength"}
    return others if length == _ALL else {**others, "historyLength": 0 if length is None else length}


def _messages_of(value: JsonObject) -> Iterator[JsonObject]:
    """The messages in a task or a status update."""
    yield from _objects(value.get("history"))
    status = value.get("status")
    if isinstance(status, dict) and isinstance(message := status.get("message"), dict):
        yield message


def _leave_out_ids(value: JsonObject, task_id: JsonValue) -> None:
    """Remove the ids from messages that are the same as in the task."""
    for message in _messages_of(value):
        for name, same in (("taskId", task_id), ("contextId", value.get("contextId"))):
            if name in message and message[name] == same:
                del message[name]


def _with_ids(value: JsonObject, task_id: JsonValue, context_id: JsonValue) -> JsonObject:
    """The same object. Its messages have the ids of 1.0."""
    for message in _messages_of(value):
        message |= {**with_message_id(message, task_id), "taskId": message.get("taskId") or task_id}
        message["contextId"] = message.get("contextId") or context_id
    return value


def with_message_id(message: JsonObject, task_id: JsonValue) -> JsonObject:
    """A message with an id. A missing id is made from the task and the content."""
    if message.get("messageId"):
        return message
    content = to_json([task_id, message.get("role"), message.get("parts")])
    return {**message, "messageId": hashlib.sha256(content).hexdigest()[:32]}


def _with_state_noted(value: JsonObject) -> JsonObject:
    """The same object. A state that this generation lacks is in a note."""
    status = value["status"]
    assert isinstance(status, dict)
    if status.get("state") in _SAID_OTHERWISE:
        value["metadata"] = with_note(value.get("metadata"), {"state": status["state"]})
    return value


def _joined(parts: JsonValue, more: JsonValue) -> JsonValue:
    """Parts with appended parts. A text that continues a text is joined to it. If one value is not a list of parts, it
    is returned, so that the strict reader refuses it."""
    if not isinstance(parts, list) or not isinstance(more, list):
        return more if isinstance(parts, list) else parts
    if not parts or not more:
        return [*parts, *more]
    return [*parts[:-1], *_gone_on(parts[-1], more[0]), *more[1:]]


def _gone_on(part: JsonValue, more: JsonValue) -> list[JsonValue]:
    """A part and the next part. They are one part if both are texts whose other fields are equal."""
    if isinstance(part, dict) and isinstance(more, dict) and {**part, "text": ""} == {**more, "text": ""}:
        first, other = part.get("text"), more.get("text")
        if isinstance(first, str) and isinstance(other, str):
            return [{**part, "text": first + other}]
    return [part, more]


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
