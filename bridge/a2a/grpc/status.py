"""Errors as the status of a gRPC call: a code, a message, and the details as google.rpc.Status.

Spec: A2A 1.0 sections 5.4 (codes) and 10.6 (details).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final

import grpc
from pydantic import JsonValue

from bridge.a2a.grpc.messages import ProtobufMessages
from bridge.a2a.model.errors import A2AError
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.protobuf_schema import STATUS
from bridge.text.jsonvalues import JsonObject

_DETAILS_KEY: Final = "grpc-status-details-bin"
_MOST_BYTES: Final = 4096
"""The most bytes of the details. They are metadata, of which most clients take 8 KiB in all."""
_MESSAGE_CHARACTERS: Final = 1000
_URL: Final = "type.googleapis.com/google.rpc."


@dataclass(frozen=True, slots=True)
class GrpcStatus:
    """The end of a call that was refused."""

    code: str
    """The name of the code."""
    message: str
    metadata: tuple[tuple[str, str | bytes], ...]


class StatusWriter:
    """Writes errors."""

    def __init__(self, messages: ProtobufMessages) -> None:
        self._messages = messages

    def status_of(self, error: A2AError, dialect: Dialect) -> GrpcStatus:
        """The status of an error, in the spelling of a dialect. Headers of the answer become metadata."""
        spelled = dialect.jsonrpc_error(error)
        message, details = str(spelled["message"])[:_MESSAGE_CHARACTERS], spelled["data"]
        assert isinstance(details, list)
        headers = tuple((name.lower(), value) for name, value in error.headers.items())
        text = self._details(
            error.kind.rpc_status, message, [detail for detail in details if isinstance(detail, dict)]
        )
        return GrpcStatus(error.kind.rpc_status, message, (*headers, (_DETAILS_KEY, text)))

    def _details(self, code: str, message: str, details: list[JsonObject]) -> bytes:
        """The google.rpc.Status. If it is too large, invalid fields are left out from the end."""
        number: int = grpc.StatusCode[code].value[0]
        while True:
            listed: list[JsonValue] = [self._any(detail) for detail in details]
            status: JsonObject = {"code": number, "message": message, "details": listed}
            text = self._messages.find(STATUS.package, "Status").to_bytes(status)
            fields = details[-1].get("fieldViolations")
            if len(text) <= _MOST_BYTES or not isinstance(fields, list) or not fields:
                return text
            details = [*details[:-1], {**details[-1], "fieldViolations": fields[: len(fields) // 2]}]

    def _any(self, detail: JsonObject) -> JsonObject:
        url = str(detail["@type"])
        held = self._messages.find(STATUS.package, url.removeprefix(_URL)).to_bytes(detail)
        return {"typeUrl": url, "value": base64.b64encode(held).decode()}
