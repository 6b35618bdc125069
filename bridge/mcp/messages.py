"""The MCP wire format of both sides: names of methods and extensions, and the reader of messages.

All transports read with `messages_in`, so that a peer is understood alike over all of them.

A line above the limit is not kept whole. It may be the answer to a call, so its first and last bytes are kept: the id
is in one of them.

Spec: MCP 2026-07-28 basic/transports (stdio)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, from_json

from bridge.text.jsonvalues import JsonObject, shortened_json

ELICIT: Final[Literal["elicitation/create"]] = "elicitation/create"
"""The method by which the server asks the user a question (client/elicitation)."""

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension for calls that become tasks (ext-tasks)."""


ENDS_KEPT_BYTES: Final = 256
"""How many bytes of each end of a line above the limit are kept, to find the id in the line."""

_LENIENT: Final = json.JSONDecoder(strict=False)
"""Accepts control characters in strings."""
_BEFORE_JSON: Final = re.compile(r"[\ufeff\s]*")
_ANSWER_FIELDS: Final = frozenset({"id", "result", "error"})
"""The fields of an answer. An object with only these fields is an answer, even without `jsonrpc`."""

_PARTS_MOST: Final = 1000
"""The most messages that are read from one text. Each takes some microseconds, and the limit on values does not count
successive values without a comma between them."""

_NOTIFICATIONS: Final = "notifications/"
"""The prefix of notifications. Some peers write `"id": null` into a notification."""
_ERROR: Final = ("error", '"error"', b'"error"')
_RESULT: Final = ("result", '"result"', b'"result"')
_ID: Final = ("id", '"id"', b'"id"')
_OTHER_SIDES: Final[Mapping[type[JSONRPCMessage], tuple[tuple[str, str, bytes], ...]]] = {
    JSONRPCResponse: (_ERROR,),
    JSONRPCRequest: (_ERROR, _RESULT),
    JSONRPCNotification: (_ERROR, _RESULT, _ID),
}
"""The fields that a message of each kind must not have, as they are written in a text or bytes. The SDK ignores
them."""


@dataclass(frozen=True, slots=True)
class OverlongLine:
    """Both ends of a line above the limit."""

    head: bytes
    tail: bytes


def state_of_result(result: JsonObject) -> str:
    """The state of a call with this result, by the names that MCP has for the states of tasks."""
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return "failed" if result.get("isError") is True else "completed"
    return "input_required" if kind == "input_required" else "working"


_NO_ERROR: Final = frozenset({"false", "no", "0", "null", "none", ""})
"""The texts in `isError` that mean no error. Every other text means an error."""


def result_as_specified(result: JsonObject) -> JsonObject:
    """A tool's result in the form of MCP: `isError` is true or false, and the `toolResult` of MCP 2024-10-07 becomes
    content. A result in this form is returned unchanged."""
    wrong = result.get("isError", False)
    if not isinstance(wrong, bool):
        is_error = wrong.strip().lower() not in _NO_ERROR if isinstance(wrong, str) else bool(wrong)
        result = {**result, "isError": is_error}
    if "toolResult" in result and "content" not in result:
        content = result["toolResult"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        rest = {key: value for key, value in result.items() if key != "toolResult"}
        result = {**rest, "content": [{"type": "text", "text": text}]}
    return result


class LineSplitter:
    """Splits chunks into lines, in time linear in their length."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | OverlongLine]:
        """The lines that end in a chunk. The caller has to exhaust the iterator."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            line = b"".join(self._parts)
            yield OverlongLine(self._head, line) if self._size > self._limit_bytes else line
            self._parts, self._size, self._head = [], 0, b""
        if rest:
            self._add(rest)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit_bytes:
            joined = b"".join(self._parts)
            self._head = self._head or joined[:ENDS_KEPT_BYTES]
            self._parts = [joined[-ENDS_KEPT_BYTES:]]


class UnreadableError(ValueError):
    """A text, or a part of a batch, that is not an MCP message."""

    def __init__(
        self,
        words: str,
        text: str,
        request_id: RequestId | None = None,
        method: str = "",
        *,
        is_json: bool = True,
    ) -> None:
        """`text` is the whole text. `request_id` is the id of the request that the text answers. If there is a
        `method`, the text is itself a request, and this is its id."""
        super().__init__(words)
        self.text = text
        self.is_json = is_json
        self.request_id = request_id
        self.method = method


Read = SessionMessage | UnreadableError


def messages_in(text: bytes | str) -> list[Read]:
    """The messages in a text: a single message, or the messages of a batch. Anything else becomes an UnreadableError.

    Faults of peers are tolerated if the meaning is certain: a byte order mark, bytes that are not UTF-8 and lone
    surrogates (each becomes the replacement character), a control character in a string, text after the message, no
    `jsonrpc` in an answer, an id such as `7.0`, `params` that are not an object, an error of another form. An object
    without `jsonrpc` and without the form of an answer is not a message: servers log such objects to stdout.
    """
    if (plain := plain_message_in(text)) is not None:
        return [plain]
    decoded = text if isinstance(text, str) else text.decode("utf-8", "replace")
    values, rest = _values_in(decoded)
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    read = [_message_from(part, decoded) for part in parts[:_PARTS_MOST]]
    if len(parts) > _PARTS_MOST:
        return [*read, UnreadableError(f"it holds more than {_PARTS_MOST} messages", decoded)]
    if rest:
        return [*read, UnreadableError("it is not JSON", rest, is_json=False)]
    return read or [UnreadableError("it is empty", decoded)]


def plain_message_in(text: bytes | str) -> SessionMessage | None:
    """The message in a text that follows JSON-RPC strictly; None for any other text."""
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return None
    return None if _has_other_side(message, text) else SessionMessage(message)


def _has_other_side(message: JSONRPCMessage, text: bytes | str) -> bool:
    """Whether a text may have fields that the SDK ignored in its message: an error beside a result, a result in a
    request, an id in a notification."""
    for name, in_text, in_bytes in _OTHER_SIDES.get(type(message), ()):
        is_named = in_text in text if isinstance(text, str) else in_bytes in text
        if is_named and from_json(text).get(name) is not None:
            return True
    return False


def _values_in(text: str) -> tuple[list[JsonValue], str]:
    """The JSON values at the beginning of a text, at most `_PARTS_MOST` plus one, and the text after them."""
    values: list[JsonValue] = []
    end = 0
    while len(values) <= _PARTS_MOST and (begins := _start(text, end)) < len(text):
        try:
            value, end = _LENIENT.raw_decode(text, begins)
            values.append(_whole(value))
        except (ValueError, RecursionError):
            return values, text[begins:]
    return values, ""


def _start(text: str, place: int) -> int:
    """The position where the next JSON value may begin."""
    match = _BEFORE_JSON.match(text, place)
    return place if match is None else match.end()


def _whole(value: JsonValue) -> JsonValue:
    """The value without lone surrogates, which UTF-8 cannot carry."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        whole: JsonValue = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return whole
    return value


def _message_from(value: JsonValue, text: str) -> Read:
    if not isinstance(value, dict):
        return UnreadableError("it is no object", text)
    request_id, method = _id_from(value.get("id")), value.get("method")
    result, error = value.get("result"), value.get("error")
    names = _ANSWER_FIELDS if request_id is not None or "error" in value else frozenset[str]()
    if "jsonrpc" not in value and not value.keys() <= names:
        method_name = method if isinstance(method, str) else ""
        return UnreadableError("it is not JSON-RPC", text, request_id if method_name else None, method_name)
    if error or ("error" in value and error is not None and not isinstance(result, dict)):
        return _message(JSONRPCError(jsonrpc="2.0", id=request_id, error=_error_from(error)))
    if "result" in value and request_id is not None:
        if isinstance(result, dict):
            return _message(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))
        return UnreadableError(f"its result is no object: {shortened_json(result)}", text, request_id)
    if not isinstance(method, str):
        return UnreadableError("it is neither a request nor an answer", text, request_id)
    params = value.get("params")
    named: dict[str, Any] = {"params": params} if isinstance(params, dict) else {}
    if request_id is None:
        if value.get("id") is not None or ("id" in value and not method.startswith(_NOTIFICATIONS)):
            return UnreadableError("its id is neither a text nor a whole number", text, None, method)
        return _message(JSONRPCNotification(jsonrpc="2.0", method=method, **named))
    return _message(JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, **named))


def _message(message: JSONRPCMessage) -> SessionMessage:
    return SessionMessage(message)


def _id_from(value: JsonValue) -> RequestId | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _error_from(error: JsonValue) -> ErrorData:
    """An error of any form. Content other than a message and data is put into the message."""
    if not isinstance(error, dict):
        return ErrorData(code=INTERNAL_ERROR, message=_words_of(error))
    words = _words_of(error if error.get("message") is None else error["message"])
    return ErrorData(code=_code_from(error.get("code")), message=words, data=error.get("data"))


def _words_of(value: JsonValue) -> str:
    return value if isinstance(value, str) else shortened_json(value)


def _code_from(code: JsonValue) -> int:
    """The code; INTERNAL_ERROR if it is not a number."""
    if isinstance(code, bool) or not isinstance(code, int | float | str):
        return INTERNAL_ERROR
    try:
        return int(code)
    except (ValueError, OverflowError):
        return INTERNAL_ERROR


def line_of(message: SessionMessage) -> bytes:
    """The line of a message, with its line break."""
    try:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
    except PydanticSerializationError:  # a lone surrogate, which only an escape can carry
        text = json.dumps(message.message.model_dump(by_alias=True, exclude_unset=True))
    return text.encode() + b"\n"


def is_within(uri: str, whole: str) -> bool:
    """Whether a URI is that of a resource, or of a part of it. A server may notify of a part of a resource to which a
    client has subscribed (2025-11-25, ResourceUpdatedNotificationParams)."""
    return uri == whole or uri.startswith(f"{whole.rstrip('/')}/")
