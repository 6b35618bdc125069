"""The bindings on the side of a client: operations to HTTP requests, and answers to results. Pure.

Both bindings have one interface: a request from an operation and its parameters, and a JSON result from the text of an
answer or of one event. An error of the agent is the same exception in both.

Spec: A2A 1.0 sections 5.4 (codes), 9 (JSON-RPC), 11 (HTTP+JSON).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

import httpx2
from pydantic import JsonValue
from pydantic_core import to_json

from bridge.a2a.client.http import (
    AgentBusyError,
    OutgoingRequest,
    UnansweredError,
    UnreadableAnswerError,
    json_from,
    redacted_url,
    refusal_words,
    retry_after_seconds,
    status_words,
    url_from,
    without_credentials,
)
from bridge.a2a.model.errors import KINDS, ErrorKind
from bridge.a2a.model.objects import HTTP_JSON, JSONRPC, AgentInterface
from bridge.a2a.model.operations import AnyOperation
from bridge.a2a.wire.dialect import Dialect, ErrorObject
from bridge.a2a.wire.rest import PLAIN_MEDIA_TYPE
from bridge.errors import PeerError
from bridge.text.jsonvalues import JsonObject, json_bytes, shortened_json

EVENT_STREAM: Final = "text/event-stream"

_LIMITED_BY: Final = ": `answer_json_values` of `[agents]` is the limit"

_BY_CODE: Final = {kind.jsonrpc_code: kind for kind in KINDS.values() if not kind.at_http_level}

_TOO_MANY: Final = 429
_GATEWAY: Final = frozenset({502, 503, 504})
"""The statuses by which a proxy reports that the agent did not answer."""


class AgentRefusedError(PeerError):
    """The agent answered with an error."""

    def __init__(self, error: ErrorObject) -> None:
        more = "".join(f"\n  {violation.field}: {violation.description}" for violation in error.violations)
        super().__init__(f"the agent refused: {error.message} ({error.reason or error.code}){more}")
        self.code = error.code
        self.message = error.message
        self.reason = error.reason
        self.violations = error.violations

    @property
    def kind(self) -> ErrorKind | None:
        """The kind of A2A error; None if the error is not defined by A2A."""
        return KINDS.get(self.reason or "") or _BY_CODE.get(self.code)


class ClientBinding(ABC):
    """One interface of an agent, in its binding."""

    def __init__(self, interface: AgentInterface, dialect: Dialect, max_values: int) -> None:
        self.interface = interface
        self.dialect = dialect
        self._max_values = max_values
        self._tenant: JsonObject = {"tenant": interface.tenant} if interface.tenant else {}

    @property
    @abstractmethod
    def accept(self) -> str:
        """The `Accept` header for an answer that is not a stream."""

    @abstractmethod
    def request(self, operation: AnyOperation, params: JsonObject) -> OutgoingRequest:
        """The HTTP request of an operation. A tenant of the interface replaces the tenant in `params`."""

    def payload(self, outgoing: OutgoingRequest) -> str:
        """The content of a request as JSON, for traces."""
        return (outgoing.content or b"").decode()

    @abstractmethod
    def result(self, text: bytes, response: httpx2.Response) -> JsonValue:
        """The result in the text of an answer, or of one event of a stream.

        Raises:
            AgentRefusedError: the text has an error instead.
            UnansweredError: a proxy answered in place of the agent.
            PeerError: the text has neither a result nor an error.
        """

    def _answer(self, text: bytes, response: httpx2.Response) -> JsonValue:
        try:
            return json_from(text, str(self), self._max_values, _LIMITED_BY)
        except PeerError:
            if response.is_success:
                raise
            raise http_status_error(response, text) from None

    def __str__(self) -> str:
        return redacted_url(self.interface.url)


class JsonRpc(ClientBinding):
    """JSON-RPC (section 9): every request is posted to one URL."""

    @property
    def accept(self) -> str:
        return PLAIN_MEDIA_TYPE

    def __init__(self, interface: AgentInterface, dialect: Dialect, max_values: int) -> None:
        super().__init__(interface, dialect, max_values)
        self._numbers = itertools.count(1)

    def request(self, operation: AnyOperation, params: JsonObject) -> OutgoingRequest:
        """A JSON-RPC call."""
        call: JsonObject = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": self.dialect.method_of(operation),
            "params": {**params, **self._tenant},
        }
        return OutgoingRequest(
            "POST", self.interface.url, {"Content-Type": "application/json"}, json_bytes(call)
        )

    def result(self, text: bytes, response: httpx2.Response) -> JsonValue:
        """The result in the envelope. An error in the envelope takes precedence over the HTTP status."""
        answer = self._answer(text, response)
        if (
            isinstance(answer, dict)
            and isinstance(error := answer.get("error"), dict)
            and (error or not answer.get("result"))
        ):
            raise _refusal(self.dialect.jsonrpc_refusal(error), text, response)
        if not response.is_success:
            raise http_status_error(response, text)
        if not isinstance(answer, dict) or "result" not in answer:
            raise UnreadableAnswerError(
                f"{self} answered with something that is not a JSON-RPC answer: {shortened_json(answer)}"
            )
        return answer["result"]


class HttpJson(ClientBinding):
    """HTTP+JSON (section 11): verbs and paths below the URL of the interface."""

    @property
    def accept(self) -> str:
        return ", ".join(self.dialect.media_types)

    def request(self, operation: AnyOperation, params: JsonObject) -> OutgoingRequest:
        """A verb and a path; other parameters are in the query or the body."""
        target = self.dialect.target_of(operation, {**params, **self._tenant})
        base = url_from(self.interface.url)
        path, _, query = base.raw_path.partition(b"?")
        raw = path.rstrip(b"/") + target.path.encode() + (b"?" + query if query else b"")
        headers = {} if target.body is None else {"Content-Type": self.dialect.media_types[0]}
        content = None if target.body is None else json_bytes(target.body)
        return OutgoingRequest(target.verb, str(base.copy_with(raw_path=raw)), headers, content, target.query)

    def payload(self, outgoing: OutgoingRequest) -> str:
        """The verb, URL, query and body as JSON."""
        request: JsonObject = {"verb": outgoing.method, "url": redacted_url(outgoing.url)}
        if outgoing.query:
            request["query"] = dict(outgoing.query)
        if outgoing.content is not None:
            request["body"] = json_from(outgoing.content, "the request")
        return to_json(request).decode()

    def result(self, text: bytes, response: httpx2.Response) -> JsonValue:
        """The body, unless it is an error."""
        answer = self._answer(text, response)
        if (refusal := self.dialect.http_refusal(answer, response.status_code)) is not None:
            raise _refusal(refusal, text, response)
        if not response.is_success:
            raise http_status_error(response, text)
        return answer


_SPOKEN: Final[dict[str, type[ClientBinding]]] = {JSONRPC: JsonRpc, HTTP_JSON: HttpJson}


def binding_of(interface: AgentInterface, dialect: Dialect, max_values: int) -> ClientBinding:
    """The binding of a supported interface. `max_values` bounds the values and keys of an answer or event."""
    return _SPOKEN[interface.protocol_binding.upper()](interface, dialect, max_values)


def _refusal(error: ErrorObject, text: bytes, response: httpx2.Response) -> PeerError:
    """The exception for an error in an answer. A proxy may also write errors in the form of the binding. So an error
    that A2A does not define, under a status of a proxy, is judged by the status."""
    refused = AgentRefusedError(replace(error, message=without_credentials(error.message, response.request)))
    is_proxys = response.status_code in {_TOO_MANY, *_GATEWAY} and refused.kind is None
    return http_status_error(response, text) if is_proxys else refused


def http_status_error(response: httpx2.Response, text: bytes = b"") -> PeerError:
    """The exception for an HTTP error status without an A2A error, with what the body says."""
    words, reason = status_words(response), refusal_words(text, response)
    again = retry_after_seconds(response)
    if reason:
        words = f"{words}: {reason}"
    if response.has_redirect_location:
        words = (
            f"{words}: it redirects to {redacted_url(response.headers['location'])}, which is not followed"
        )
    if again:
        words = f"{words} (it asks to wait for {again:g} s)"
    if response.status_code == _TOO_MANY:
        return AgentBusyError(f"{words}. The agent did not take the message", retry_after_seconds=again)
    kind = UnansweredError if response.status_code in _GATEWAY else PeerError
    return kind(words)
