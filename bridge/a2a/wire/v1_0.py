"""A2A 1.0, the dialect whose objects are the objects of `model`.

It writes strictly. Answers of other agents are first normalized by `tolerant.py`.

Spec: A2A 1.0 sections 3.2.3 (which of the four), 5.3 (names), 5.4 (codes), 9.5 and 11.6 (errors), 11.3 and 11.5
(paths and queries).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from bridge.a2a.model import operations
from bridge.a2a.model.errors import A2AError, invalid_params, violations_from
from bridge.a2a.model.objects import BINDINGS, GRPC, AgentCard, Model, StreamResponse
from bridge.a2a.model.operations import (
    OPERATIONS,
    AnswerT,
    AnyOperation,
    Operation,
    RequestT,
    Streamed,
    Unary,
)
from bridge.a2a.wire.dialect import ErrorObject, EventDecoder, EventEncoder, ValueDialect, refusal_from
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.rest import MEDIA_TYPE, PLAIN_MEDIA_TYPE, OperationRoutes, route
from bridge.a2a.wire.tolerant import normalized_event, normalized_task, normalized_task_page
from bridge.text.jsonvalues import JsonObject

_ERRORS_FROM: Final = 400
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
"""The routes in the order in which they are tried: paths with a colon before the plain id. Subscribe has two verbs:
POST in the text of the specification, GET in the proto."""

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
    operations.LIST_PUSH_CONFIGS: frozenset({"pageSize", "pageToken", "tenant"}),
}
"""The query parameters that are fields of the request. Others are ignored."""

_READ: Final[Mapping[AnyOperation, Callable[[JsonValue], JsonValue]]] = {
    operations.SEND_MESSAGE: normalized_event,
    operations.GET_TASK: normalized_task,
    operations.CANCEL_TASK: normalized_task,
    operations.LIST_TASKS: normalized_task_page,
}
"""The normalization of each operation's answer."""


def _as_it_is(value: JsonValue) -> JsonValue:
    return value


class _AsStoredWriter(EventEncoder):
    """Writes events unchanged, since they are stored in the form of 1.0."""

    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:  # noqa: ARG002 - as the contract has it
        return (event,)


class _TolerantReader(EventDecoder):
    def __init__(self, reading: ExchangeReading) -> None:
        self._reading = reading

    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        return self._reading.events(normalized_event(value))


class V1_0(ValueDialect):
    """A2A 1.0."""

    version: ClassVar = "1.0"
    bindings: ClassVar[tuple[str, ...]] = (*BINDINGS, GRPC)
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

    def answer(self, operation: AnyOperation, answer: Model) -> JsonValue:  # noqa: ARG002
        return answer.to_object()

    def event(self, event: JsonObject, *, last: bool) -> JsonObject:  # noqa: ARG002
        return event

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:  # noqa: ARG002
        return _AsStoredWriter()

    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        return {"code": error.kind.jsonrpc_code, "message": str(error), "data": [*error.details()]}

    def http_error(self, error: A2AError) -> bytes:
        """The error as a google.rpc.Status."""
        status = {
            "code": error.kind.http_status,
            "status": error.kind.rpc_status,
            "message": str(error),
            "details": error.details(),
        }
        return to_json({"error": status})

    def card(self, card: AgentCard) -> AgentCard:
        return card

    def has_card(self, card: JsonObject) -> bool:
        return bool(card.get("supportedInterfaces"))

    def card_from(self, card: JsonObject) -> JsonObject:
        return card

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:  # noqa: ARG002
        return request.to_object()

    def answer_from(
        self, operation: Unary[RequestT, AnswerT], value: JsonValue, reading: ExchangeReading | None = None
    ) -> AnswerT:
        return (reading or ExchangeReading()).answer(operation.answer, _READ.get(operation, _as_it_is)(value))

    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],  # noqa: ARG002
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        return _TolerantReader(reading or ExchangeReading(request))

    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        return refusal_from(error, error.get("data"))

    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(body, dict) and status >= _ERRORS_FROM and _is_status(body):
            error = body  # some agents leave the wrapper out
        return refusal_from(error, error.get("details")) if isinstance(error, dict) else None


def _is_status(body: JsonObject) -> bool:
    """Whether an object is a google.rpc.Status: it has a numeric code, unlike problem+json (RFC 9457)."""
    return isinstance(body.get("code"), int) and isinstance(body.get("message"), str)
