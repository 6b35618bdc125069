"""The contract of a dialect: one version of A2A on the wire, as operations and objects of `model`.

The rest of the bridge knows only the operations and objects of `model`. A dialect converts the wire format of one
version to them and back, for servers and for clients. A version with different formats for its bindings has one
dialect for each. `versions.py` selects the dialect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import JsonValue

from bridge.a2a.model.errors import INTERNAL, KINDS, A2AError, Violation
from bridge.a2a.model.objects import AgentCard, Model, StreamResponse
from bridge.a2a.model.operations import AnswerT, AnyOperation, Operation, RequestT, Streamed, Unary
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.rest import OperationRoutes, RestRequest
from bridge.errors import PeerError
from bridge.text.jsonvalues import JsonObject, shortened_json


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """An error in the answer of an agent."""

    code: int
    """The JSON-RPC code, in both bindings; the HTTP status if A2A has no code for the error."""
    message: str
    reason: str | None = None
    """The reason of its ErrorInfo, such as TASK_NOT_FOUND."""
    violations: tuple[Violation, ...] = ()


def refusal_from(error: JsonObject, details: JsonValue) -> ErrorObject:
    """The error in an answer. Its details, if they are a list, give the reason and the invalid fields."""
    code, message = error.get("code"), error.get("message")
    reason: str | None = None
    violations: list[Violation] = []
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(named := detail.get("reason"), str):
            reason = named
        listed = detail.get("fieldViolations")
        for violation in listed if isinstance(listed, list) else ():
            if isinstance(violation, dict):
                violations.append(
                    Violation(str(violation.get("field", "")), str(violation.get("description", "")))
                )
    if (kind := KINDS.get(reason or "")) is not None:
        code = kind.jsonrpc_code
    return ErrorObject(
        code if isinstance(code, int) else INTERNAL.jsonrpc_code,
        message if isinstance(message, str) and message else shortened_json(error),
        reason,
        tuple(violations),
    )


class EventEncoder(ABC):
    """Encodes the events of one stream."""

    is_over: bool = False
    """Whether the stream ends after the last written event, even if its task goes on."""

    @abstractmethod
    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        """The JSON texts of one StreamResponse in this dialect, usually one. `event` is JSON of `model`."""


class EventDecoder(ABC):
    """Decodes the events of one stream."""

    @abstractmethod
    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        """The StreamResponses of one event of the wire; none if the event is not understood."""


class Dialect(ABC):
    """One version of A2A. A dialect holds no state: one object serves all requests."""

    version: ClassVar[str]
    """Major.Minor."""
    bindings: ClassVar[tuple[str, ...]]
    """The protocol bindings that the dialect covers."""
    methods: ClassVar[Mapping[str, AnyOperation]]
    """The operations by their JSON-RPC methods."""
    routes: ClassVar[OperationRoutes]
    """The paths of the operations in HTTP+JSON."""
    media_types: ClassVar[tuple[str, ...]]
    """The media types of bodies in HTTP+JSON, the preferred one first."""
    extensions_header: ClassVar[str]
    """The header that activates extensions, and that repeats the active ones."""
    clients_name_tasks: ClassVar[bool] = False
    """Whether clients make the ids of tasks. Then an id in a request is a name that only its client uses, and a message
    to an unknown name creates a task."""
    streams_begin_late: ClassVar[bool] = False
    """Whether clients open a stream only after they have created its task. Then an ended task has a stream, too, with
    one event, and a task shows its progress."""
    says_version: ClassVar[bool] = True
    """Whether clients name the version in a header."""
    is_added: ClassVar[bool] = False
    """Whether a server speaks the dialect only if its configuration says so. Then the card always has the fields that
    the dialect's clients read."""
    statuses: ClassVar[Mapping[AnyOperation, int]] = {}
    """The HTTP statuses of answers that are not 200."""

    # For a server

    def identified(self, params: JsonValue, new_id: Callable[[], str]) -> JsonValue:  # noqa: ARG002
        """The parameters of an operation. If messages of this version have no ids, the message gets an id."""
        return params

    @abstractmethod
    def request_from(self, operation: Operation[RequestT, AnswerT], params: JsonValue) -> RequestT:
        """The request of an operation, from its parameters.

        Raises:
            A2AError: INVALID_PARAMS, with every invalid field.
        """

    @abstractmethod
    def result(self, operation: Unary[RequestT, AnswerT], answer: AnswerT) -> bytes:
        """The answer of an operation as JSON."""

    @abstractmethod
    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:
        """A new encoder for the events of one stream."""

    @abstractmethod
    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        """An error as the `error` of a JSON-RPC answer."""

    @abstractmethod
    def http_error(self, error: A2AError) -> bytes:
        """An error as the body of an HTTP+JSON answer."""

    def http_status(self, error: A2AError) -> int:
        """The HTTP status of an error."""
        return error.kind.http_status

    @abstractmethod
    def card(self, card: AgentCard) -> AgentCard:
        """The card with additional fields that clients of this version read."""

    # For a client

    @abstractmethod
    def has_card(self, card: JsonObject) -> bool:
        """Whether a card declares this version."""

    @abstractmethod
    def card_from(self, card: JsonObject) -> JsonObject:
        """A card of this version in the form of `model`."""

    def has(self, operation: AnyOperation) -> bool:
        """Whether this version has an operation."""
        return operation in self.methods.values() or self.routes.serves(operation)

    def method_of(self, operation: AnyOperation) -> str:
        """The JSON-RPC method of an operation; the first if there are several.

        Raises:
            PeerError: this version has no such operation.
        """
        for name, known in self.methods.items():
            if known is operation:
                return name
        raise self._without(operation)

    def target_of(self, operation: AnyOperation, params: JsonObject) -> RestRequest:
        """The HTTP+JSON request of an operation.

        Raises:
            PeerError: this version has no such operation.
        """
        if (target := self.routes.target_of(operation, params)) is None:
            raise self._without(operation)
        return target

    @abstractmethod
    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        """The parameters of an operation, from its request."""

    def unread(
        self,
        operation: AnyOperation,  # noqa: ARG002 - one version has answers in pieces
        params: JsonObject,  # noqa: ARG002
        value: JsonValue,  # noqa: ARG002
    ) -> Mapping[str, tuple[AnyOperation, JsonObject]]:
        """The missing fields of an answer, each with the operation that reads it and its parameters."""
        return {}

    @abstractmethod
    def answer_from(
        self, operation: Unary[RequestT, AnswerT], value: JsonValue, reading: ExchangeReading | None = None
    ) -> AnswerT:
        """The answer of an operation, from its JSON.

        Raises:
            ValidationError: the value contains no answer of this operation.
        """

    @abstractmethod
    def reader(
        self,
        operation: Streamed[RequestT, AnswerT],
        request: RequestT,
        reading: ExchangeReading | None = None,
    ) -> EventDecoder:
        """A new decoder for the events of the stream that `request` asked for."""

    @abstractmethod
    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        """The error in the `error` of a JSON-RPC answer."""

    @abstractmethod
    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:
        """The error in the body of an HTTP+JSON answer; None if the body is not an error of A2A."""

    def _without(self, operation: AnyOperation) -> PeerError:
        return PeerError(f"the agent speaks A2A {self.version}, which has no {operation}")


class ValueDialect(Dialect):
    """A dialect that also gives its answers and events as plain JSON values, for a binding that sends no JSON."""

    @abstractmethod
    def answer(self, operation: AnyOperation, answer: Model) -> JsonValue:
        """The answer of an operation; see `result`."""

    @abstractmethod
    def event(self, event: JsonObject, *, last: bool) -> JsonObject:
        """A StreamResponse, or the answer to a message. `event` is in the form of `model`."""
