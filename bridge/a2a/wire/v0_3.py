"""A2A 0.3 over JSON-RPC, and 0.2 from 0.2.5 on: each object names its type in `kind`.

Content that has no field in 0.3 is kept in a note in metadata. A reader with these tables restores it.

Spec: A2A 0.3.0 sections 5 (card), 6 (objects), 7 (methods), 8 (errors), and its JSON schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json, to_json

from bridge.a2a.model import operations
from bridge.a2a.model.errors import (
    CONTENT_TYPE_NOT_SUPPORTED,
    INTERNAL,
    INVALID_PARAMS,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    A2AError,
    ErrorKind,
    Violation,
    invalid_params,
    violations_from,
)
from bridge.a2a.model.objects import (
    JSONRPC,
    AgentCard,
    Model,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from bridge.a2a.model.operations import PUSH, AnswerT, AnyOperation, Operation, RequestT, Streamed, Unary
from bridge.a2a.model.push_objects import GETS_TASKS
from bridge.a2a.wire import older_card
from bridge.a2a.wire.dialect import ErrorObject, EventDecoder, EventEncoder, ValueDialect, refusal_from
from bridge.a2a.wire.push_spelling import JsonPushSpelling, push_in, push_out
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.rest import PLAIN_MEDIA_TYPE, OperationRoutes
from bridge.a2a.wire.spelling import DATA_WRAPPED, Spelling, noted, restored
from bridge.a2a.wire.tolerant import FROM_FILE, file_in
from bridge.text.jsonvalues import JsonObject

_FILE: Final[Mapping[str, str]] = {name: older for older, name in FROM_FILE.items()}
"""The fields of a file, by their names in 1.0."""
_PART: Final = frozenset({"text", "file", "data", "metadata"})
"""The fields of a part. A text part or a data part has no media type and no name."""
_ERRORS_FROM: Final = 400
_BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    400: INVALID_PARAMS,
    404: TASK_NOT_FOUND,
    409: TASK_NOT_CANCELABLE,
    415: CONTENT_TYPE_NOT_SUPPORTED,
    422: INVALID_PARAMS,
    500: INTERNAL,
    501: UNSUPPORTED_OPERATION,
}
"""The errors by HTTP status, as in a2a-sdk 0.3.26, for a body with a message and no code. Other statuses may come from
a proxy."""


def file_out(part: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """The file of a part, with its fields renamed by `names`. The fields are removed from the part."""
    return {older: part.pop(name) for name, older in names.items() if name in part}


class JsonSpelling(Spelling):
    """The objects of the JSON schema of 0.3."""

    states: ClassVar = {
        state.value: state.value.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in TaskState
    }
    roles: ClassVar = {role.value: role.value.removeprefix("ROLE_").lower() for role in Role}
    parts_name: ClassVar = "parts"
    file_names: ClassVar = _FILE
    has_kinds: ClassVar = True
    fields: ClassVar = {}

    def part(self, part: JsonObject) -> JsonObject:
        if "text" in part:
            kind, older = "text", part
        elif "data" in part:
            kind, older = "data", data_out(part)
        else:
            kind, older = "file", part
            older["file"] = file_out(part, _FILE)
        older = noted(older, _PART)
        older["kind"] = kind
        return older

    def part_from(self, part: JsonObject) -> JsonObject:
        read = {name: item for name, item in file_in(part).items() if item is not None or name == "data"}
        if read.pop("kind", None) != "data" and read.get("data", "") is None:
            del read["data"]  # some agents write null for absent; null is a value only in a data part
        return data_in(restored(read))


def data_out(part: JsonObject) -> JsonObject:
    """The data part with an object as its data, as required before 1.0. Any other value is wrapped in an object."""
    data = part.get("data")
    if isinstance(data, dict):
        return part
    metadata = part.get("metadata")
    marked = {**(metadata if isinstance(metadata, dict) else {}), DATA_WRAPPED: True}
    return {**part, "data": {"value": data}, "metadata": marked}


def data_in(part: JsonObject) -> JsonObject:
    """The reverse of `data_out`."""
    data, metadata = part.get("data"), part.get("metadata")
    is_wrapped = isinstance(metadata, dict) and metadata.get(DATA_WRAPPED) is True
    if not (
        is_wrapped and isinstance(metadata, dict) and isinstance(data, dict) and data.keys() == {"value"}
    ):
        return part
    read = {**part, "data": data["value"]}
    del read["metadata"]
    others = {name: item for name, item in metadata.items() if name != DATA_WRAPPED}
    return {**read, "metadata": others} if others else read


class V0_3(ValueDialect):
    """A2A 0.3 over JSON-RPC."""

    version: ClassVar = "0.3"
    bindings: ClassVar[tuple[str, ...]] = (JSONRPC,)
    methods: ClassVar[Mapping[str, AnyOperation]] = {
        "message/send": operations.SEND_MESSAGE,
        "message/stream": operations.SEND_STREAMING_MESSAGE,
        "tasks/get": operations.GET_TASK,
        "tasks/cancel": operations.CANCEL_TASK,
        "tasks/resubscribe": operations.SUBSCRIBE_TO_TASK,
        "tasks/pushNotificationConfig/set": operations.CREATE_PUSH_CONFIG,
        "tasks/pushNotificationConfig/get": operations.GET_PUSH_CONFIG,
        "tasks/pushNotificationConfig/list": operations.LIST_PUSH_CONFIGS,
        "tasks/pushNotificationConfig/delete": operations.DELETE_PUSH_CONFIG,
        "agent/getAuthenticatedExtendedCard": operations.GET_EXTENDED_AGENT_CARD,
    }
    routes: ClassVar = OperationRoutes((), {})
    media_types: ClassVar = (PLAIN_MEDIA_TYPE,)
    extensions_header: ClassVar = "X-A2A-Extensions"
    spelling: ClassVar[Spelling] = JsonSpelling()
    push_spelling: ClassVar = JsonPushSpelling()
    push_name: ClassVar = "pushNotificationConfig"
    """The field of a message's configuration that holds its webhook."""
    _of_webhooks: ClassVar[JsonObject] = {GETS_TASKS: True}
    """The fields that the bridge adds to the config of a client of this version."""
    blocks_unless_said: ClassVar = True
    """Whether a message without `blocking` is answered only after its task has settled. The specification does not
    define this; a2a-sdk 0.3.26 waits in JSON-RPC."""

    # For a server

    def request_from(self, operation: Operation[RequestT, AnswerT], params: JsonValue) -> RequestT:
        try:
            return operation.request.model_validate(self._params_from(operation, params))
        except ValidationError as exc:
            raise invalid_params(*violations_from(exc)) from exc

    def _params_from(self, operation: AnyOperation, params: JsonValue) -> JsonValue:
        if operation in PUSH and isinstance(params, dict):
            request = self.push_spelling.request_from(operation, params)
            return {**request, **self._of_webhooks} if operation is operations.CREATE_PUSH_CONFIG else request
        if operation.request is not SendMessageRequest or not isinstance(params, dict):
            return params
        configuration = params.get("configuration")
        if configuration is None:
            configuration = {}
        read = {**params, "configuration": configuration}
        if isinstance(configuration, dict):
            read["configuration"] = self._configuration_from(configuration)
        if "message" in params:
            read["message"] = self.spelling.message_from(params["message"])
        return read

    def _configuration_from(self, configuration: JsonObject) -> JsonObject:
        read = dict(configuration)
        is_blocking = read.pop("blocking", None)
        if is_blocking is None:
            is_blocking = self.blocks_unless_said
        if not isinstance(is_blocking, bool):
            raise invalid_params(Violation("configuration.blocking", "must be true or false"))
        read["returnImmediately"] = not is_blocking
        if read.get("acceptedOutputModes") == []:
            del read["acceptedOutputModes"]
        if (push := read.pop(self.push_name, None)) is not None:
            config = {**push_in(push), **self._of_webhooks} if isinstance(push, dict) else push
            read["taskPushNotificationConfig"] = config
        return read

    def result(self, operation: Unary[RequestT, AnswerT], answer: AnswerT) -> bytes:
        return to_json(self.answer(operation, answer))

    def answer(self, operation: AnyOperation, answer: Model) -> JsonValue:
        return self._answered(operation, answer.to_object())

    def _answered(self, operation: AnyOperation, answer: JsonObject) -> JsonValue:
        if operation in PUSH:
            return self.push_spelling.answer(operation, answer)
        if operation is operations.SEND_MESSAGE:
            return self.event(answer, last=True)
        return self.spelling.task(answer) if operation.answer is Task else answer

    def event(self, event: JsonObject, *, last: bool) -> JsonObject:
        return self.spelling.event(event, last=last)[1]

    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:  # noqa: ARG002 - one for all
        return _SpellingWriter(self)

    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        spelled = error.spelled({name: self._spelled(name) for name in error.names})
        return {"code": spelled.kind.jsonrpc_code, "message": str(spelled), "data": [*spelled.details()]}

    def _spelled(self, name: str) -> str:
        """A state, a role, an operation or the path of a field in the spelling of this version."""
        methods = {operation.name: method for method, operation in self.methods.items()}
        spelling = {**self.spelling.states, **self.spelling.roles, **methods}.get(name)
        push_field = "configuration.taskPushNotificationConfig"
        return spelling or self.spelling.field(name.replace(push_field, f"configuration.{self.push_name}"))

    def http_error(self, error: A2AError) -> bytes:
        return to_json(self.jsonrpc_error(error))

    def card(self, card: AgentCard) -> AgentCard:
        return older_card.merged(card, self.version, self.bindings)

    # For a client

    def has_card(self, card: JsonObject) -> bool:
        return older_card.is_of_0_3(card)

    def card_from(self, card: JsonObject) -> JsonObject:
        return older_card.read(card, self.version)

    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        params = request.to_object()
        params.pop("tenant", None)
        if operation in PUSH:
            return self.push_spelling.request(operation, params)
        if operation.request is not SendMessageRequest:
            return params
        message, configuration = params["message"], params.get("configuration", {})
        assert isinstance(message, dict)
        assert isinstance(configuration, dict)
        # 0.2 requires the modes. An empty list means the same as no list.
        older = {"acceptedOutputModes": [], **configuration}
        older["blocking"] = not configuration.get("returnImmediately")
        older.pop("returnImmediately", None)
        if isinstance(push := older.pop("taskPushNotificationConfig", None), dict):
            older[self.push_name] = push_out(push)
        return {**params, "message": self.spelling.message(message), "configuration": older}

    def answer_from(
        self, operation: Unary[RequestT, AnswerT], value: JsonValue, reading: ExchangeReading | None = None
    ) -> AnswerT:
        if operation is operations.SEND_MESSAGE:
            value = self.spelling.event_from(value)
        elif operation.answer is Task:
            value = self.spelling.task_from(value)
        elif operation in PUSH:
            value = self.push_spelling.answer_from(operation, value)
        return (reading or ExchangeReading()).answer(operation.answer, value)

    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],  # noqa: ARG002
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        return _SpellingReader(self.spelling, reading or ExchangeReading(request))

    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        return refusal_from(error, error.get("data"))

    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:
        error = body.get("error", body) if isinstance(body, dict) else None
        if status < _ERRORS_FROM or not isinstance(error, dict):
            return None
        code = error.get("code")
        if not isinstance(code, int) or code == status:
            if status not in _BY_STATUS or not isinstance(error.get("message"), str):
                return None
            code = _BY_STATUS[status].jsonrpc_code
        return refusal_from({**error, "code": code}, error.get("data", error.get("details")))


class _SpellingWriter(EventEncoder):
    def __init__(self, dialect: V0_3) -> None:
        self._dialect = dialect

    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        return (to_json(self._dialect.event(from_json(event), last=last)),)


class _SpellingReader(EventDecoder):
    def __init__(self, spelling: Spelling, reading: ExchangeReading) -> None:
        self._spelling = spelling
        self._reading = reading

    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        return self._reading.events(self._spelling.event_from(value))
