"""What a version of A2A is to the rest of the bridge: operations in and out, whatever they are called and look like.

The inside of the bridge knows the operations and objects of `model` alone. A dialect turns what one version has on
the wire into these, and these into it, for a server and for a client. `versions.py` says which dialect is spoken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import JsonValue

from bridge.a2a.model.errors import METHOD_NOT_FOUND, A2AError, Violation
from bridge.a2a.model.objects import AgentCard, StreamResponse
from bridge.a2a.model.operations import AnswerT, AnyOperation, Operation, RequestT, Streamed, Unary
from bridge.a2a.wire.rest import Routes
from bridge.errors import echoed
from bridge.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as an agent said it."""

    code: int
    """As JSON-RPC has it, in either binding; the HTTP status where A2A has no code for it."""
    message: str
    reason: str | None = None
    """The reason of its ErrorInfo, such as TASK_NOT_FOUND."""
    violations: tuple[Violation, ...] = ()


class EventWriter(ABC):
    """The events of one stream, on their way out."""

    @abstractmethod
    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        """What one StreamResponse, as JSON of `model`, is in the dialect: mostly one JSON text, or none, or several."""


class EventReader(ABC):
    """The events of one stream, on their way in."""

    @abstractmethod
    def read(self, value: JsonValue) -> Sequence[StreamResponse]:
        """What one event of the wire is.

        Raises:
            ValidationError: it is none.
        """


class Dialect(ABC):
    """One version of A2A. Holds no state: one object serves everybody."""

    version: ClassVar[str]
    """Major.Minor."""
    methods: ClassVar[Mapping[str, AnyOperation]]
    """What JSON-RPC calls the operations."""
    routes: ClassVar[Routes]
    """Where HTTP+JSON has them."""

    # For a server

    def operation_of(self, method: str) -> AnyOperation:
        """The operation that a method of JSON-RPC names.

        Raises:
            A2AError: METHOD_NOT_FOUND.
        """
        if (operation := self.methods.get(method)) is None:
            raise A2AError(METHOD_NOT_FOUND, f"There is no method {echoed(method)!r}")
        return operation

    @abstractmethod
    def request_from(self, operation: Operation[RequestT, AnswerT], params: JsonValue) -> RequestT:
        """The parameters of an operation as its request.

        Raises:
            A2AError: INVALID_PARAMS, with every field that is at fault.
        """

    @abstractmethod
    def result(self, operation: Unary[RequestT, AnswerT], answer: AnswerT) -> bytes:
        """The answer of an operation as JSON."""

    @abstractmethod
    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventWriter:
        """What writes the events of one stream."""

    @abstractmethod
    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        """An error as the `error` of a JSON-RPC answer."""

    @abstractmethod
    def http_error(self, error: A2AError) -> bytes:
        """An error as the body of an HTTP+JSON answer."""

    @abstractmethod
    def card(self, card: AgentCard) -> bytes:
        """A card as JSON."""

    # For a client

    def method_of(self, operation: AnyOperation) -> str:
        """What JSON-RPC calls an operation: the first of its names."""
        return next(name for name, known in self.methods.items() if known is operation)

    @abstractmethod
    def params_of(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> JsonObject:
        """A request as the parameters of its operation."""

    @abstractmethod
    def answer_from(self, operation: Unary[RequestT, AnswerT], value: JsonValue) -> AnswerT:
        """The answer to an operation.

        Raises:
            ValidationError: it is none.
        """

    @abstractmethod
    def reader(self, operation: Streamed[RequestT, AnswerT]) -> EventReader:
        """What reads the events of one stream."""

    @abstractmethod
    def refusal_from(self, error: JsonObject, details: JsonValue) -> Refusal:
        """An error that an agent answered with; `details` stand beside it, where the binding has them."""
