"""Reads the status of a gRPC call that failed as the errors of the other bindings.

A status with an ErrorInfo is an error of the agent. An SDK of 0.3 writes only a text that begins with the name of the
error. A status without either is judged by its code, as HTTP judges a status that has no error in its body.

Spec: A2A 1.0 sections 5.4 (codes) and 10.6 (details); grpc.io/docs/guides/status-codes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import grpc
import httpx2
from grpc import aio
from pydantic import JsonValue

from bridge.a2a.client.bindings import AgentRefusedError
from bridge.a2a.client.http import AgentBusyError, UnansweredError, retry_after_seconds, without_credentials
from bridge.a2a.grpc.messages import ProtobufMessages
from bridge.a2a.model.errors import INVALID_PARAMS, KINDS, METHOD_NOT_FOUND, A2AError
from bridge.a2a.wire.dialect import ErrorObject, refusal_from
from bridge.a2a.wire.protobuf_schema import STATUS
from bridge.errors import UNAUTHORIZED, PeerError
from bridge.http.client import wants_login
from bridge.identity.logins.login_credentials import LoginNeededError, LoginToken
from bridge.text.jsonvalues import JsonObject

if TYPE_CHECKING:
    from bridge.a2a.client.transports import ReadingTransport, TransportOptions
    from bridge.trace import Hop

_DETAILS: Final = "grpc-status-details-bin"
_URL: Final = "type.googleapis.com/google.rpc."
_READ: Final = ("ErrorInfo", "BadRequest")
_NAMED: Final = re.compile(r"(?P<name>[A-Z]\w{2,60})Error: ")
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BY_CODE: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: INVALID_PARAMS,
    grpc.StatusCode.UNIMPLEMENTED: METHOD_NOT_FOUND,
}
_UNADMITTED: Final = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.PERMISSION_DENIED: 403}
_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_TOO_LARGE: Final = "larger than max"
"""The words of gRPC's own client for a message above its bound."""


class RefusalReader:
    """Reads the failure of one call."""

    def __init__(
        self,
        messages: ProtobufMessages,
        transport: ReadingTransport,
        terms: TransportOptions,
        headers: Mapping[str, str],
    ) -> None:
        """`headers` are those of the call."""
        self._messages = messages
        self._transport = transport
        self._terms = terms
        self._request = httpx2.Request("POST", transport.interface.url, headers=dict(headers))

    def as_unadmitted(self, error: aio.AioRpcError) -> httpx2.Response | None:
        """The refusal of credentials as HTTP would say it; None if the failure is another."""
        status = _UNADMITTED.get(error.code())
        return None if status is None else self._as_http(status, error)

    def unauthorized(self, response: httpx2.Response, error: aio.AioRpcError, hop: Hop | None) -> PeerError:
        """The exception for a refusal of credentials."""
        terms, words = self._terms, self._words(error)
        if response.status_code != 401:
            return self.error_of(error)
        terms.on_refusal(words)
        if terms.how_to_log_in and wants_login(response):
            return LoginNeededError(f"login needed: {words}. {terms.how_to_log_in}")
        if terms.tokens is not None:
            is_callers = isinstance(terms.tokens, LoginToken) and terms.tokens.is_callers
            refused = LoginNeededError if is_callers else PeerError
            explanation = f"{words}. {terms.tokens.if_refused}".rstrip(". ")
            return refused(explanation, outcome="" if is_callers else UNAUTHORIZED)
        if hop is not None:
            hop.error = UNAUTHORIZED
        return self.error_of(error)

    def error_of(self, error: aio.AioRpcError) -> PeerError:
        """The exception for a failed call."""
        code, text = error.code(), str(error.details() or "")
        details = self._details(error)
        refusal = refusal_from({"code": 0, "message": text}, details)
        if (kind := KINDS.get(refusal.reason or "")) is None and (named := _NAMED.match(text)) is not None:
            kind = KINDS.get(_WORD.sub("_", named["name"]).upper())
            text = text[named.end() :]
        if kind is None and code is not grpc.StatusCode.UNIMPLEMENTED:
            kind = _BY_CODE.get(code) if details or code in _BY_CODE else None
        elif kind is None:
            kind = METHOD_NOT_FOUND
        if kind is not None or refusal.reason:
            number = kind.jsonrpc_code if kind is not None else int(code.value[0])
            reason = refusal.reason or (kind.reason if kind is not None else None)
            return AgentRefusedError(
                ErrorObject(number, self._safe(text or code.name), reason, refusal.violations)
            )
        words = self._words(error)
        if _TOO_LARGE in text:
            return PeerError(f"{self._transport} answered with more than {self._terms.limit_bytes} bytes")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            again = retry_after_seconds(self._as_http(429, error))
            wish = f" (it asks to wait for {again:g} s)" if again else ""
            message = f"{words}{wish}. The agent did not take the message"
            return AgentBusyError(message, retry_after_seconds=again)
        return (UnansweredError if code in _UNANSWERED else PeerError)(words)

    def _details(self, error: aio.AioRpcError) -> list[JsonValue]:
        """The ErrorInfo and the BadRequest of a status. Details that cannot be read are left out."""
        status_bytes = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), b"")
        try:
            read = self._messages.find(STATUS.package, "Status").from_bytes(bytes(status_bytes))
        except A2AError:
            return []
        listed = read.get("details")
        return (
            [detail for held in listed if (detail := self._detail(held))] if isinstance(listed, list) else []
        )

    def _detail(self, held: JsonValue) -> JsonObject:
        assert isinstance(held, dict)
        name = str(held.get("typeUrl", "")).removeprefix(_URL)
        if name not in _READ:
            return {}

        try:
            return self._messages.find(STATUS.package, name).from_bytes(
                base64.b64decode(str(held.get("value", "")))
            )
        except A2AError:
            return {}

    def _words(self, error: aio.AioRpcError) -> str:
        text = self._safe(str(error.details() or ""))
        return f"{self._transport} answered gRPC status {error.code().name}{': ' if text else ''}{text}"

    def _safe(self, text: str) -> str:
        """A text of the agent. gRPC bounds its length."""
        return without_credentials(text, self._request)

    def _as_http(self, status: int, error: aio.AioRpcError) -> httpx2.Response:
        headers = [(key, value) for key, value in error.trailing_metadata() or () if isinstance(value, str)]
        return httpx2.Response(status, headers=headers, request=self._request)
