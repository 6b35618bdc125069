"""Hermes: a REST dialect in which tasks are resources, with the objects of the first generation and a progress from 0
to 1.

`POST /tasks` makes a task and answers at once. The artifacts and the messages of a task are lists at paths of their
own. A stream has only the status of the task. Each event is one line, which is short enough for clients that read
lines. The server makes the ids of tasks; messages have no ids. Fields that Hermes lacks are kept in a note in metadata,
as in the first generation.

Neither a header nor a card declares this dialect: servers and clients speak it only if their configuration says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from bridge.a2a.model import operations
from bridge.a2a.model.errors import TASK_NOT_CANCELABLE, UNSUPPORTED_OPERATION, A2AError, ErrorKind
from bridge.a2a.model.objects import (
    HTTP_JSON,
    AgentCard,
    GetTaskRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from bridge.a2a.model.operations import AnswerT, AnyOperation, Operation, RequestT, Streamed, Unary
from bridge.a2a.model.progress import fraction_in, with_fraction
from bridge.a2a.wire import older_card
from bridge.a2a.wire.dialect import ErrorObject, EventDecoder, EventEncoder
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.rest import OperationRoutes, RestRequest, route
from bridge.a2a.wire.spelling import restored, with_note
from bridge.a2a.wire.v0_1 import FirstSpelling
from bridge.a2a.wire.v0_3 import V0_3
from bridge.text.jsonvalues import JsonObject

EVENT_LIMIT_BYTES: Final = 60_000
"""The most bytes of an event. Clients that read lines, such as aiohttp, refuse a line of 64 KiB."""

_CREATE: Final = Unary("CreateTask", SendMessageRequest, SendMessageResponse)
_ARTIFACTS: Final = Unary("GetTaskArtifacts", GetTaskRequest, Task)
_MESSAGES: Final = Unary("GetTaskMessages", GetTaskRequest, Task)
"""Operations that read a part of a task, at paths of their own."""

_ROUTES: Final = (
    route("POST", "/tasks", _CREATE),
    route("POST", "/tasks/{taskId}/messages", operations.SEND_MESSAGE),
    route("GET", "/tasks/{id}/messages", _MESSAGES),
    route("GET", "/tasks/{id}/artifacts", _ARTIFACTS),
    route("GET", "/tasks/{id}/stream", operations.SUBSCRIBE_TO_TASK),
    route("PUT", "/tasks/{id}/cancel", operations.CANCEL_TASK),
    route("GET", "/tasks/{id}", operations.GET_TASK),
)

_CONFLICTS: Final[frozenset[ErrorKind]] = frozenset({UNSUPPORTED_OPERATION, TASK_NOT_CANCELABLE})
"""The errors for an operation that the state of the task does not allow."""
_CONFLICT: Final = 409

_OF_TASK: Final = ("callback_url", "priority", "deadline")
"""Properties of a new task. A client may put them into the metadata or beside the metadata."""
_CALLBACK: Final = "callback_url"
_UNDELIVERED: Final = "callback_delivered"

_CONFIGURATION: Final = "configuration"
"""The key of a request's note for configuration that has no field."""
_LEFT_OUT: Final = "leftOut"
"""The key of an event's note for fields that are too long for an event. The task has them."""

_ENDED: Final = frozenset({"completed", "failed", "canceled"})
_CLOSING: Final = _ENDED | {"input-required"}
"""The states that end a stream."""
_DONE: Final = "completed"
_LISTS: Final[Mapping[str, AnyOperation]] = {"artifacts": _ARTIFACTS, "messages": _MESSAGES}
"""The fields of a task that may have to be read at their own paths."""


class _HermesSpelling(FirstSpelling):
    """Objects of the first generation, with progress in the status and messages instead of a history."""

    calls_back: ClassVar[bool] = False
    """Whether the server calls a client's `callback_url`."""
    fields: ClassVar = {
        **FirstSpelling.fields,
        "statusUpdate": frozenset({"id", "contextId", "status", "metadata"}),
    }

    def name(self, task_id: str) -> str:
        return task_id

    # Out

    def task(self, task: JsonObject) -> JsonObject:
        members = super().task(task)
        if "history" in members:
            members["messages"] = members.pop("history")
            members |= {} if self.calls_back else _with_callback(members)
        return _with_progress(members, fraction_in(members.get("metadata")))

    def status_update(self, update: JsonObject) -> JsonObject:
        members = super().status_update(update)
        if "contextId" in members:
            members["sessionId"] = members.pop("contextId")
        return members

    # In

    def task_from(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value
        read = {**value}
        if _holds_task(value):
            read |= _object(read.pop("task"))
        if "messages" in read:
            read["history"] = _listed(read.pop("messages"), "messages")
        if "artifacts" in read:
            read["artifacts"] = _listed(read["artifacts"], "artifacts")
        read |= _status_in(read)
        return super().task_from(_with_words(read))

    def update_from(self, update: JsonObject, context_id: str | None) -> JsonObject:
        read = _status_in(update)
        if "sessionId" in read:
            read["contextId"] = read.pop("sessionId")
        return super().update_from(
            {name: item for name, item in read.items() if name not in ("type", "progress")}, context_id
        )


class _CallingSpelling(_HermesSpelling):
    """The objects of a server that calls a client's `callback_url`."""

    calls_back: ClassVar = True


class _HermesEncoder(EventEncoder):
    """Writes the status of a task. Every event is complete, and has the progress of the task."""

    def __init__(self, spelling: _HermesSpelling) -> None:
        self._spelling = spelling
        self._fraction = 0.0

    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:  # noqa: ARG002 - the state says it
        [(name, held)] = from_json(event).items()
        if name == "message":
            held = self._spelling.message_as_task(held)
        elif name == "task":
            names = ("contextId", "status", "metadata")
            update = {name: held[name] for name in names if name in held}
            held = self._spelling.status_update({"taskId": held["id"], **update})
        elif name == "statusUpdate":
            held = self._spelling.status_update(held)
        else:
            return ()  # clients read an artifact at its own path
        return (self._line(held),)

    def _line(self, update: JsonObject) -> bytes:
        fraction = fraction_in(update.get("metadata"))
        self._fraction = self._fraction if fraction is None else fraction
        event = _with_progress(update, self._fraction)
        status = _object(event["status"])
        self.is_over = status["state"] in _CLOSING
        event |= {"type": status["state"], "progress": status["progress"]}
        for name in ("message", "metadata"):
            if len(line := to_json(event)) < EVENT_LIMIT_BYTES:
                return line
            event = _without(event, name)
        return to_json(event)


class _HermesDecoder(EventDecoder):
    """Reads the status of a task from a stream."""

    def __init__(self, spelling: _HermesSpelling, task_id: str, reading: ExchangeReading) -> None:
        self._spelling = spelling
        self._task_id = task_id
        self._reading = reading

    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        if not isinstance(value, dict):
            return self._reading.events(value)
        read = restored(_status_in(value))
        if "status" not in read:
            return ()  # for example a heartbeat, or an artifact
        read.pop(_LEFT_OUT, None)
        read = {"id": self._task_id, **read}
        return self._reading.events(self._spelling.update_from(read, None))


class Hermes(V0_3):
    """The REST dialect of tasks as resources."""

    version: ClassVar = "hermes"
    bindings: ClassVar = (HTTP_JSON,)
    methods: ClassVar = {}
    _of_webhooks: ClassVar[JsonObject] = {}
    routes: ClassVar = OperationRoutes(_ROUTES, {operations.GET_TASK: frozenset({"historyLength"})})
    spelling: ClassVar[_HermesSpelling] = _HermesSpelling()
    streams_begin_late: ClassVar = True
    says_version: ClassVar = False
    is_added: ClassVar = True
    statuses: ClassVar = {_CREATE: 202}

    # For a server

    def identified(self, params: JsonValue, new_id: Callable[[], str]) -> JsonValue:
        if not isinstance(params, dict) or (message := _message_in(params)) is None:
            return params
        message_read = {"messageId": new_id(), **restored(message)}
        return {**params, "message": message_read}

    def _params_from(self, operation: AnyOperation, params: JsonValue) -> JsonValue:
        if operation.request is not SendMessageRequest or not isinstance(params, dict):
            return params
        read = restored(_with_metadata(params))
        message = self.spelling.message_from(_message_in(read))
        context_id, task_id = read.pop("sessionId", None), read.pop("taskId", None)
        configuration: JsonObject = {"returnImmediately": True}
        if self.spelling.calls_back and _CALLBACK in (wished := _object(read.get("metadata"))):
            configuration["taskPushNotificationConfig"] = {"url": wished[_CALLBACK]}
        read["configuration"] = {**configuration, **_object(read.get(_CONFIGURATION))}
        if isinstance(message, dict):
            ids = (("taskId", task_id), ("contextId", context_id))
            about: JsonObject = {name: item for name, item in ids if item is not None}
            if _CALLBACK in (metadata := _object(read.get("metadata"))):
                about["metadata"] = {**_object(message.get("metadata")), _CALLBACK: metadata[_CALLBACK]}
            read["message"] = {"role": "ROLE_USER", **message, **about}
        return read

    def result(self, operation: Unary[RequestT, AnswerT], answer: AnswerT) -> bytes:
        members = answer.to_object()
        if operation.answer is SendMessageResponse:
            message = members.get("message")
            is_task = not isinstance(message, dict)
            members = _object(members["task"]) if is_task else self.spelling.message_as_task(_object(message))
            return to_json(self.spelling.task(members) if is_task else members)
        if operation is _MESSAGES:
            return to_json(self.spelling.task(_with_last_message(members)).get("messages", []))
        task = self.spelling.task(members)
        return to_json(task.get("artifacts", []) if operation is _ARTIFACTS else task)

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:  # noqa: ARG002 - one for all
        return _HermesEncoder(self.spelling)

    def http_error(self, error: A2AError) -> bytes:
        return to_json({"error": self.jsonrpc_error(error)})

    def http_status(self, error: A2AError) -> int:
        return _CONFLICT if error.kind in _CONFLICTS else error.kind.http_status

    def card(self, card: AgentCard) -> AgentCard:
        card = older_card.with_authentication(card)
        urls = [
            interface.url
            for interface in card.supported_interfaces
            if interface.protocol_binding == HTTP_JSON
        ]
        extra = card.model_extra or {}
        return card.model_copy(update={"url": urls[0], **extra}) if urls else card

    # For a client

    def has_card(self, card: JsonObject) -> bool:  # noqa: ARG002
        return False  # no card declares it

    def target_of(self, operation: AnyOperation, params: JsonObject) -> RestRequest:
        if operation is operations.SEND_MESSAGE and "taskId" not in params:
            operation = _CREATE
        target = super().target_of(operation, params)
        # The path has the id.
        return replace(target, query=_of_query(target.query)) if target.body is None else target

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        params = request.to_object()
        params.pop("tenant", None)
        if operation.request is not SendMessageRequest:
            return params
        message, configuration = _object(params["message"]), _object(params.pop("configuration", None))
        unsaid = {name: item for name, item in configuration.items() if name != "returnImmediately"}
        if configuration.get("returnImmediately") is not True:
            unsaid["returnImmediately"] = False
        if unsaid:
            params["metadata"] = with_note(params.get("metadata"), {_CONFIGURATION: unsaid})
        for older, name in (("sessionId", "contextId"), ("taskId", "taskId")):
            if name in message:
                params[older] = message.pop(name)
        return {**params, "message": self.spelling.message(message)}

    def unread(
        self, operation: AnyOperation, params: JsonObject, value: JsonValue
    ) -> Mapping[str, tuple[AnyOperation, JsonObject]]:
        if operation.answer not in (Task, SendMessageResponse) or not isinstance(value, dict):
            return {}
        task = _object(value["task"]) if _holds_task(value) else value
        task_id = task.get("id") or params.get("taskId") or params.get("id")
        query: JsonObject = {"id": task_id}
        if "status" not in task:
            can_be_read = operation is not operations.GET_TASK and task is value and task_id is not None
            return {"task": (operations.GET_TASK, query)} if can_be_read else {}
        if task is not value or _state_in(task) not in _CLOSING:
            return {}
        return {name: (read, query) for name, read in _LISTS.items() if name not in task}

    def answer_from(
        self, operation: Unary[RequestT, AnswerT], value: JsonValue, reading: ExchangeReading | None = None
    ) -> AnswerT:
        if operation.answer is SendMessageResponse:
            value = self.spelling.event_from(value)
        elif operation.answer is Task:
            value = self.spelling.task_from(value)
        return (reading or ExchangeReading()).answer(operation.answer, value)

    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],  # noqa: ARG002
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        assert isinstance(request, SubscribeToTaskRequest)
        return _HermesDecoder(self.spelling, request.id, reading or ExchangeReading(request))

    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:
        if isinstance(body, dict) and isinstance(words := body.get("error"), str):
            body = {"error": {"message": words}}
        return super().http_refusal(body, status)


class HermesCallingBack(Hermes):
    """The dialect of a server with push notifications: a `callback_url` is a webhook."""

    spelling: ClassVar[_HermesSpelling] = _CallingSpelling()


def _message_in(params: JsonObject) -> JsonObject | None:
    """The message of a request. It may be a plain text, or the request itself may have the fields of the message."""
    message = params.get("message", params if "parts" in params else None)
    if isinstance(message, str):
        return {"role": "user", "parts": [{"type": "text", "text": message}]}
    if message is params:
        return {name: params[name] for name in ("role", "parts", "metadata") if name in params}
    return message if isinstance(message, dict) else None


def _with_metadata(params: JsonObject) -> JsonObject:
    """A request with all properties of its task in the metadata."""
    beside: JsonObject = {name: params[name] for name in _OF_TASK if name in params}
    others = {name: item for name, item in params.items() if name not in (*_OF_TASK, "role", "parts")}
    metadata = params.get("metadata")
    if not beside or not isinstance(metadata, dict | None):
        return others
    return {**others, "metadata": {**beside, **(metadata or {})}}


def _with_callback(task: JsonObject) -> JsonObject:
    """The metadata of a task. If its client gave a `callback_url`, they say that it is not called."""
    metadata_of_all = [
        _object(_object(message).get("metadata")) for message in _list_in(task["messages"], "messages")
    ]
    callbacks = [metadata[_CALLBACK] for metadata in metadata_of_all if _CALLBACK in metadata]
    if not callbacks:
        return {}
    return {"metadata": {**_object(task.get("metadata")), _CALLBACK: callbacks[-1], _UNDELIVERED: False}}


def _with_progress(value: JsonObject, fraction: float | None) -> JsonObject:
    """A task or an update with the progress of the task in its status."""
    status = _object(value["status"])
    reached = 1.0 if status["state"] == _DONE else fraction or 0.0
    return {**value, "status": {**status, "progress": reached}}


def _with_last_message(task: JsonObject) -> JsonObject:
    """A task whose history ends with the message of its status, so that a client that reads only messages sees a
    question."""
    history, message = _list_in(task.get("history"), ""), _object(_object(task["status"]).get("message"))
    if not message or any(_object(earlier).get("messageId") == message["messageId"] for earlier in history):
        return task
    return {**task, "history": [*history, {**message}]}


def _with_words(task: JsonObject) -> JsonObject:
    """A task. If it has stopped, has no message in its status and gave no artifacts, the agent's last message becomes
    the message of the status.

    An open question is removed from the history. If the history has an answer already, the question stays there, too.
    """
    status, history, state = _object(task.get("status")), _list_in(task.get("history"), ""), _state_in(task)
    agent_messages = [message for message in history if _object(message).get("role") == "agent"]
    is_last = bool(agent_messages) and agent_messages[-1] is history[-1]
    has_given = state == _DONE and bool(task.get("artifacts"))
    if state not in _CLOSING or "message" in status or not agent_messages or has_given:
        return task
    if state in _ENDED:
        return {**task, "status": {**status, "message": {**_object(agent_messages[-1])}}} if is_last else task
    rest = history[:-1] if is_last else history
    return {**task, "status": {**status, "message": {**_object(agent_messages[-1])}}, "history": rest}


def _status_in(value: JsonObject) -> JsonObject:
    """A task or an event with its status as an object, and its progress in the metadata."""
    status = value.get("status", value.get("type") if value.get("type") in _TYPES else None)
    if isinstance(status, str):
        status = {"state": status}
    if not isinstance(status, dict):
        return {name: item for name, item in value.items() if name != "status"}
    progress = status.get("progress", value.get("progress"))
    read: JsonObject = {name: item for name, item in status.items() if name != "progress"}
    if isinstance(words := read.get("message"), str):
        read["message"] = {"role": "agent", "parts": [{"type": "text", "text": words}]}
    members: JsonObject = {**value, "status": read}
    if (metadata := with_fraction(value.get("metadata"), progress)) is not None:
        members["metadata"] = metadata
    return members


_TYPES: Final = frozenset(FirstSpelling.states.values())


def _without(event: JsonObject, name: str) -> JsonObject:
    """An event without a field of its status, and with a note that says so."""
    metadata = with_note(event.get("metadata") if name == "message" else None, {_LEFT_OUT: [name]})
    status = {key: item for key, item in _object(event["status"]).items() if key != name}
    return {**event, "status": status, "metadata": metadata}


def _of_query(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name == "historyLength"}


def _state_in(task: JsonObject) -> str:
    status = task.get("status")
    state = _object(status).get("state") if isinstance(status, dict) else status
    return str(state)


def _holds_task(value: JsonObject) -> bool:
    """Whether a task is wrapped in the field `task`."""
    return "status" not in value and isinstance(value.get("task"), dict)


def _listed(value: JsonValue, name: str) -> JsonValue:
    """A list that may be wrapped in an object under this name. Another value is returned unchanged, so that the strict
    reader refuses it."""
    return value[name] if isinstance(value, dict) and name in value else value


def _list_in(value: JsonValue, name: str) -> list[JsonValue]:
    """A list that may be wrapped in an object under this name; empty if there is none."""
    if isinstance(value, dict):
        value = value.get(name)
    return list(value) if isinstance(value, list) else []


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
