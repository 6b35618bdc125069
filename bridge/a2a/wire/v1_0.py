"""A2A 1.0, the dialect whose objects are those of `model`.

It is strict in what it writes and tolerant in what it reads of other agents. Frameworks wrap a result or leave
the wrapper out, write enums as 0.3 did, and times without a zone: such answers are first put into the form that
the specification has. Only names that the protocol defines are changed; metadata and data parts are the user's
and stay as they are. Nothing else of 0.3 is read.

Spec: A2A 1.0 sections 3.2.3 (which of the four), 4.1.3, 4.1.5, 5.3 (names), 5.4 (codes), 5.5, 9.5 and 11.6
(errors), 11.3 and 11.5 (paths and queries)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from bridge.a2a.model import operations
from bridge.a2a.model.errors import A2AError, invalid_params, violations_from
from bridge.a2a.model.objects import BINDINGS, AgentCard, Role, StreamResponse, TaskState
from bridge.a2a.model.operations import (
    OPERATIONS,
    AnswerT,
    AnyOperation,
    Operation,
    RequestT,
    Streamed,
    Unary,
)
from bridge.a2a.wire.dialect import Dialect, ErrorObject, EventDecoder, EventEncoder, refusal_from
from bridge.a2a.wire.rest import MEDIA_TYPE, PLAIN_MEDIA_TYPE, OperationRoutes, route
from bridge.jsonvalues import JsonObject

_PAYLOADS: Final = ("task", "message", "statusUpdate", "artifactUpdate")
_STATES: Final = {
    **{state.name: state.value for state in TaskState},
    "CANCELLED": TaskState.CANCELED.value,
    "TASK_STATE_CANCELLED": TaskState.CANCELED.value,
}
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
"""A time as frameworks write it that mean UTC and do not say so, or forget that they do not."""
FROM_FILE: Final = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}
"""The fields of a file of 0.3, and where a part of 1.0 has them."""
_CONTENTS: Final = frozenset({"bytes", "uri"})
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
    if not isinstance(value, dict):
        return value
    role, said = value.get("role"), _with_parts(value)
    return {**said, "role": _ROLES.get(role.upper(), role)} if isinstance(role, str) else said


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
    if isinstance(artifacts := value.get("artifacts"), list):
        changed["artifacts"] = [_with_parts(one) if isinstance(one, dict) else one for one in artifacts]
    return changed


def _with_artifact(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or not isinstance(artifact := value.get("artifact"), dict):
        return value
    return {**value, "artifact": _with_parts(artifact)}


def _with_parts(value: JsonObject) -> JsonObject:
    """With its files as parts of 1.0; the same object where there are none of 0.3."""
    parts = value.get("parts")
    if not isinstance(parts, list) or not any(isinstance(one, dict) and "file" in one for one in parts):
        return value
    return {**value, "parts": [file_in(one) if isinstance(one, dict) else one for one in parts]}


def file_in(part: JsonObject) -> JsonObject:
    """A part with the fields of its file as its own, where that is one of JSON-RPC."""
    file = part.get("file")
    if not isinstance(file, dict) or _CONTENTS.isdisjoint(file):
        return part
    others = {name: item for name, item in part.items() if name not in ("file", "kind")}
    return {**others, **{FROM_FILE.get(name, name): item for name, item in file.items() if item is not None}}


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


_EVENTS: Final = {
    "task": _task,
    "message": message_from,
    "statusUpdate": _with_status,
    "artifactUpdate": _with_artifact,
}


_CONFIGS: Final = "/tasks/{taskId}/pushNotificationConfigs"
_ROUTES: Final = (
    route("POST", "/message:send", operations.SEND_MESSAGE),
    route("POST", "/message:stream", operations.SEND_STREAMING_MESSAGE),
    route("GET", "/tasks", operations.LIST_TASKS),
    route("POST", "/tasks/{id}:cancel", operations.CANCEL_TASK),
    route("POST GET", "/tasks/{id}:subscribe", operations.SUBSCRIBE_TO_TASK),
    route("GET", "/tasks/{id}", operations.GET_TASK),
    route("POST", _CONFIGS, operations.CREATE_PUSH_CONFIG),
    route("GET", _CONFIGS, operations.LIST_PUSH_CONFIGS),
    route("GET", _CONFIGS + "/{id}", operations.GET_PUSH_CONFIG),
    route("DELETE", _CONFIGS + "/{id}", operations.DELETE_PUSH_CONFIG),
    route("GET", "/extendedAgentCard", operations.GET_EXTENDED_AGENT_CARD),
)
"""Tried in this order: the verbs with a colon before the bare id. Both verbs of subscribe are taken: the text says
POST, the proto GET."""

_QUERY: Final[Mapping[AnyOperation, frozenset[str]]] = {
    operations.LIST_TASKS: frozenset(
        {
            "contextId",
            "status",
            "pageSize",
            "pageToken",
            "historyLength",
            "statusTimestampAfter",
            "includeArtifacts",
            "tenant",
        }
    ),
    operations.GET_TASK: frozenset({"historyLength", "tenant"}),
}
"""Which query parameters are fields of the request. Others are passed over."""

_READ: Final[Mapping[AnyOperation, Callable[[JsonValue], JsonValue]]] = {
    operations.SEND_MESSAGE: normalized_event,
    operations.GET_TASK: normalized_task,
    operations.CANCEL_TASK: normalized_task,
    operations.LIST_TASKS: normalized_task_page,
}
"""How the answers of other agents are put as the specification has them."""


def _as_it_is(value: JsonValue) -> JsonValue:
    return value


class _Writer(EventEncoder):
    """Events are stored as they are written."""

    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:  # noqa: ARG002 - as the contract has it
        return (event,)


class _Reader(EventDecoder):
    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        return (StreamResponse.model_validate(normalized_event(value)),)


class V1_0(Dialect):
    """A2A 1.0."""

    version: ClassVar = "1.0"
    bindings: ClassVar = BINDINGS
    methods: ClassVar = {operation.name: operation for operation in OPERATIONS}
    routes: ClassVar = OperationRoutes(_ROUTES, _QUERY)
    media_types: ClassVar = (MEDIA_TYPE, PLAIN_MEDIA_TYPE)
    extensions_header: ClassVar = "A2A-Extensions"

    def request_from(self, operation: Operation[RequestT, AnswerT], params: JsonValue) -> RequestT:
        try:
            return operation.request.model_validate(params)
        except ValidationError as exc:
            raise invalid_params(*violations_from(exc)) from exc

    def result(self, operation: Unary[RequestT, AnswerT], answer: AnswerT) -> bytes:  # noqa: ARG002
        return answer.to_json()

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:  # noqa: ARG002
        return _Writer()

    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        return {"code": error.kind.jsonrpc_code, "message": str(error), "data": [*error.details()]}

    def http_error(self, error: A2AError) -> bytes:
        """A google.rpc.Status."""
        status = {
            "code": error.kind.http_status,
            "status": error.kind.rpc_status,
            "message": str(error),
            "details": error.details(),
        }
        return to_json({"error": status})

    def card(self, card: AgentCard) -> AgentCard:
        return card

    def card_from(self, card: JsonObject) -> JsonObject | None:
        return card if "supportedInterfaces" in card else None

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:  # noqa: ARG002
        return request.to_object()

    def answer_from(self, operation: Unary[RequestT, AnswerT], value: JsonValue) -> AnswerT:
        return operation.answer.model_validate(_READ.get(operation, _as_it_is)(value))

    def reader(self, operation: Streamed[RequestT, AnswerT]) -> EventDecoder:  # noqa: ARG002
        return _Reader()

    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        return refusal_from(error, error.get("data"))

    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:  # noqa: ARG002 - the body says it
        error = body.get("error") if isinstance(body, dict) else None
        return refusal_from(error, error.get("details")) if isinstance(error, dict) else None
