"""What a version of A2A is to the rest of the bridge: operations in and out, whatever they are called and look like.

The inside of the bridge knows the operations and objects of `model` alone. A dialect turns what one version has on
the wire into these, and these into it, for a server and for a client. A version that writes its bindings differently
has a dialect for each. `versions.py` says which dialect is spoken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import JsonValue

from bridge.a2a.model.errors import INTERNAL, KINDS, A2AError, Violation
from bridge.a2a.model.objects import AgentCard, StreamResponse
from bridge.a2a.model.operations import AnswerT, AnyOperation, Operation, RequestT, Streamed, Unary
from bridge.a2a.wire.rest import OperationRoutes, RestRequest
from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject, shortened_json


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """An error as an agent said it."""

    code: int
    """As JSON-RPC has it, in either binding; the HTTP status where A2A has no code for it."""
    message: str
    reason: str | None = None
    """The reason of its ErrorInfo, such as TASK_NOT_FOUND."""
    violations: tuple[Violation, ...] = ()


def refusal_from(error: JsonObject, details: JsonValue) -> ErrorObject:
    """An error by its code and message; of the details, what says which it is and what is at fault."""
    code, message = error.get("code"), error.get("message")
    reason: str | None = None
    violations: list[Violation] = []
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(said := detail.get("reason"), str):
            reason = said
        found = detail.get("fieldViolations")
        for one in found if isinstance(found, list) else ():
            if isinstance(one, dict):
                violations.append(Violation(str(one.get("field", "")), str(one.get("description", ""))))
    if (kind := KINDS.get(reason or "")) is not None:
        code = kind.jsonrpc_code
    return ErrorObject(
        code if isinstance(code, int) else INTERNAL.jsonrpc_code,
        message if isinstance(message, str) and message else shortened_json(error),
        reason,
        tuple(violations),
    )


class EventEncoder(ABC):
    """The events of one stream, on their way out."""

    @abstractmethod
    def write(self, event: bytes, *, last: bool) -> Sequence[bytes]:
        """What one StreamResponse, as JSON of `model`, is in the dialect: mostly one JSON text, or none, or several."""


class EventDecoder(ABC):
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
    bindings: ClassVar[tuple[str, ...]]
    """Which protocol bindings it is spoken in."""
    methods: ClassVar[Mapping[str, AnyOperation]]
    """What JSON-RPC calls the operations."""
    routes: ClassVar[OperationRoutes]
    """Where HTTP+JSON has them."""
    media_types: ClassVar[tuple[str, ...]]
    """What HTTP+JSON calls its bodies, the preferred one first."""
    extensions_header: ClassVar[str]
    """The header that activates extensions, and that repeats the active ones."""

    # For a server

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
    def writer(self, operation: Streamed[RequestT, AnswerT]) -> EventEncoder:
        """What writes the events of one stream."""

    @abstractmethod
    def jsonrpc_error(self, error: A2AError) -> JsonObject:
        """An error as the `error` of a JSON-RPC answer."""

    @abstractmethod
    def http_error(self, error: A2AError) -> bytes:
        """An error as the body of an HTTP+JSON answer."""

    @abstractmethod
    def card(self, card: AgentCard) -> AgentCard:
        """A card that a client of this version reads, too: what it looks for stands beside what was there."""

    # For a client

    @abstractmethod
    def card_from(self, card: JsonObject) -> JsonObject | None:
        """A card of this version as `model` has it; None for a card of another one."""

    def method_of(self, operation: AnyOperation) -> str:
        """What JSON-RPC calls an operation: the first of its names.

        Raises:
            PeerError: this version has no such operation.
        """
        for name, known in self.methods.items():
            if known is operation:
                return name
        raise self._without(operation)

    def target_of(self, operation: AnyOperation, params: JsonObject) -> RestRequest:
        """Where HTTP+JSON sends an operation.

        Raises:
            PeerError: this version has no such operation.
        """
        if (target := self.routes.target_of(operation, params)) is None:
            raise self._without(operation)
        return target

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
    def reader(self, operation: Streamed[RequestT, AnswerT]) -> EventDecoder:
        """What reads the events of one stream."""

    @abstractmethod
    def jsonrpc_refusal(self, error: JsonObject) -> ErrorObject:
        """What the `error` of a JSON-RPC answer says."""

    @abstractmethod
    def http_refusal(self, body: JsonValue, status: int) -> ErrorObject | None:
        """The error that the body of an HTTP+JSON answer is; None when it is none of A2A."""

    def _without(self, operation: AnyOperation) -> PeerError:
        return PeerError(f"the agent speaks A2A {self.version}, which has no {operation}")
