"""The faults between the bridge and a tool server, distinguished by what a caller can do about them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    RequestId,
)
from pydantic import JsonValue

from bridge.errors import PeerError
from bridge.mcp.messages import ENDS_KEPT_BYTES, OverlongLine, UnreadableError, messages_in
from bridge.text.jsonvalues import JsonObject, holds_more_values

FAULT_KEY: Final = "mcp-a2a/fault"
"""A key in the data of a JSON-RPC error. It marks an error of the bridge's transport, not of the server."""

STATUS_KEY: Final = "mcp-a2a/http-status"
"""A key beside FAULT_KEY: the HTTP status, if the answer had no other information."""

UNREACHABLE: Final = "unreachable"
SESSION_LOST: Final = "session-lost"
SESSION_DOUBTED: Final = "session-doubted"
HTTP_STATUS: Final = "http-status"
BROKEN_OFF: Final = "broken-off"
TOO_LARGE: Final = "too-large"
NO_MCP: Final = "no-mcp"
FLOODED: Final = "flooded"
UNREADABLE: Final = "unreadable"
OLD_TRANSPORT: Final = "old-transport"
CALLER_GONE: Final = "caller-gone"
LOGIN_NEEDED: Final = "login-needed"
LOGIN_REFUSED: Final = "login-refused"

LIMITED_BY: Final = "`result_limit_bytes` of the tool server is the limit"
"""The hint for an answer that is too large."""

VALUES_LIMITED_BY: Final = "`result_json_values` of the tool server is the limit"
"""The hint for an answer that holds too many values and keys."""

_SDK_SAYS: Final[Mapping[tuple[int, str], str]] = {
    (CONNECTION_CLOSED, "Connection closed"): BROKEN_OFF,
    (CONNECTION_CLOSED, "SSE stream failed: the response is larger than "): TOO_LARGE,
    (CONNECTION_CLOSED, "SSE stream failed: the response holds more than "): TOO_LARGE,
    (CONNECTION_CLOSED, "SSE stream "): BROKEN_OFF,
}
"""Errors that the SDK itself makes, by code and beginning of the message. The codes are not enough, since servers use
them, too. The first match counts."""


_NO_WAY_TO_ASK: Final = re.compile(
    r"Cannot send 'elicitation/create': this transport context has no back-channel"
    r"|Method 'elicitation/create' is not supported by the negotiated protocol version"
)
"""The errors of servers of the Python and the TypeScript SDK under 2026-07-28, if a tool asks in the older way
(`ctx.elicit`, `elicitInput`). Frameworks on top of the SDKs may turn such an error into a result with isError."""

_SAID_OF_IT: Final = 100
"""The most characters around the error in a result without isError, which a tool makes if it catches the error. With
more characters around it, the text may be about something else."""


_NO_SESSION: Final = re.compile(
    r"\b(no valid|invalid|unknown|missing|expired) (mcp )?session\b"
    r"|\bsession( id)? (not found|is required|expired)\b|\bno transport found for session",
    re.IGNORECASE,
)
"""The words of servers for an unknown session, with an HTTP status of 4xx. The pattern is narrow, since the request is
then sent again: a tool's own error that mentions a session must not match."""

_MAYBE_NO_SESSION: Final = re.compile(
    _NO_SESSION.pattern
    + r"|\b(no such|no active|unrecognized|invalid or (missing|expired)|missing or invalid) (mcp[ -]?)?session"
    r"|\bsession(s|[ _-]?id)?[ :=]+(with id )?\S{0,128} ?(was |is |has |have |does |could )*"
    r"(not (be )?(found|exist|valid|known|recognized|active)|expired|unknown|invalid|terminated|been \w+)"
    r"|\bsession[ _-]?(not[ _-]?found|does not exist|(has )?(expired|been \w+))"
    r"|\bsession (is )?(unknown|invalid|terminated|closed)"
    r"|\binvalid[ _-]session|\b(server|session) (is )?not (yet )?initialized|\bbefore initialization was complete",
    re.IGNORECASE,
)
"""Words that may mean an unknown session. The server is asked again to make sure."""


class ServerDownError(PeerError):
    """The server cannot be reached; nothing was sent to it."""


class NotTakenError(ServerDownError):
    """The connection turned out to be dead. The server did not take the request, so it may be sent again."""


class CallerTokenGoneError(ServerDownError):
    """The session acts for a caller whose token or login is no longer valid. It is never used again."""


class LoginWantedError(ServerDownError):
    """The server refused the present login, and did not take the request. It may be sent again with another login, or
    with more scopes."""


class ServerLostError(PeerError):
    """The connection ended while the server had the request. It is not known whether the server acted on it."""


class ServerRefusedError(PeerError):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def fault_of(error: MCPError) -> str | None:
    """The fault of the transport that an error represents; None if the server itself sent the error."""
    data = error.data
    if isinstance(data, Mapping) and isinstance(fault := data.get(FAULT_KEY), str):
        return fault
    return next(
        (
            kind
            for (code, words), kind in _SDK_SAYS.items()
            if code == error.code and error.message.startswith(words)
        ),
        None,
    )


def cannot_ask(answer: ServerRefusedError | JsonObject) -> bool:
    """Whether a call failed because the server asked in a way that its protocol version no longer has."""
    if isinstance(answer, ServerRefusedError):
        return _NO_WAY_TO_ASK.match(str(answer)) is not None
    content = answer.get("content")
    if not isinstance(content, list):
        return False
    texts = [block.get("text") for block in content if isinstance(block, dict)]
    matches = [(text, _NO_WAY_TO_ASK.search(text)) for text in texts if isinstance(text, str)]
    if answer.get("isError") is True:
        return any(error for _, error in matches)
    return len(content) == 1 and any(
        error and error.start() <= _SAID_OF_IT and len(text) - error.end() <= _SAID_OF_IT
        for text, error in matches
    )


def means_session_lost(status: int, words: str) -> bool:
    """Whether an error page says that the session is unknown: 404 by the specification, other 4xx by many servers."""
    return status == 404 or (400 <= status < 500 and bool(_NO_SESSION.search(words)))


def phrase_of_lost_session(words: str) -> str:
    """The words that may mean an unknown session; "" if there are none."""
    match = _MAYBE_NO_SESSION.search(words)
    return match[0] if match else ""


def doubts_session(error: MCPError) -> bool:
    """Whether a request failed with words that may mean an unknown session."""
    fault = fault_of(error)
    return fault == SESSION_DOUBTED or (fault is None and bool(phrase_of_lost_session(error.message)))


def status_of(error: MCPError) -> int | None:
    """The HTTP status of a fault of the kind HTTP_STATUS; None for any other error."""
    status = error.data.get(STATUS_KEY) if isinstance(error.data, Mapping) else None
    return status if isinstance(status, int) and fault_of(error) == HTTP_STATUS else None


def error_of(kind: str, message: str, status: int | None = None) -> ErrorData:
    """The JSON-RPC error for a fault. `status` is the HTTP status, if the answer had no other information."""
    status_member = {} if status is None else {STATUS_KEY: status}
    return ErrorData(code=INTERNAL_ERROR, message=message, data={FAULT_KEY: kind, **status_member})


def received_in(text: bytes | str) -> list[SessionMessage | Exception]:
    """The messages of a server in a text, see `messages_in`. An unreadable answer becomes the error of its call, which
    would otherwise wait in vain."""
    return [_settled(read) for read in messages_in(text)]


def _settled(read: SessionMessage | UnreadableError) -> SessionMessage | UnreadableError:
    if isinstance(read, SessionMessage) or read.method:
        return read
    request_id = read.request_id
    if request_id is None and not read.is_json:
        head, tail = read.text[:ENDS_KEPT_BYTES].encode(), read.text[-ENDS_KEPT_BYTES:].encode()
        if b'"jsonrpc"' in head + tail:  # otherwise it may be a line of a log
            request_id = id_of_cut_message(head, tail)
    if request_id is None:
        return read
    error = error_of(UNREADABLE, f"its answer cannot be read: {read}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


_MEMBER: Final = re.compile(rb'[{,]\s*"([^"\\]*)"\s*:\s*')
_SCALAR: Final = re.compile(rb'("(?:[^"\\]|\\.)*"|-?\d+|true|false|null)\s*(?=[,}])')
_LAST_ID: Final = re.compile(
    rb'[{,]\s*"id"\s*:\s*("[^"\\]*"|-?\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def within_limits(
    line: bytes | OverlongLine, limit_bytes: int, max_values: int
) -> list[SessionMessage | Exception]:
    """The messages of a server in a line, see `received_in`, or the error that replaces a line above a limit."""
    if isinstance(line, OverlongLine):
        return [answer_to_overlong(line, limit_bytes)]
    instead = answer_to_many_values(line, max_values)
    return received_in(line) if instead is None else [instead]


def answer_to_many_values(text: bytes, max_values: int) -> SessionMessage | ValueError | None:
    """The replacement for a message with too many values and keys; None for a message within the limit."""
    if not holds_more_values(text, max_values):
        return None
    request_id = id_of_cut_message(text[:ENDS_KEPT_BYTES], text[-ENDS_KEPT_BYTES:])
    most = f"{max_values} values and keys"
    if request_id is None:
        return ValueError(
            f"a message of more than {most}, in which no id of an answer is found: {VALUES_LIMITED_BY}"
        )
    return _too_large(request_id, f"the result holds more than {most}: {VALUES_LIMITED_BY}")


def answer_to_overlong(line: OverlongLine, limit_bytes: int) -> SessionMessage | ValueError:
    """The error that replaces an answer above the limit, or a ValueError if no id is found in the answer."""
    request_id = id_of_cut_message(line.head, line.tail)
    if request_id is None:
        return ValueError(
            f"a line of more than {limit_bytes} bytes, in which no id of an answer is found: {LIMITED_BY}"
        )
    return _too_large(request_id, f"the result is larger than {limit_bytes} bytes: {LIMITED_BY}")


def _too_large(request_id: RequestId, words: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error_of(TOO_LARGE, words)))


def id_of_cut_message(head: bytes, tail: bytes) -> RequestId | None:
    """The id of the request that a response answers, from the response's first and last bytes; None if it is not found.

    Serializers put the id before or after the result. A request of the server has its own ids, so it gives None.
    """
    members: dict[bytes, bytes] = {}
    head, at = head.lstrip(), 0
    while (member := _MEMBER.match(head, at)) is not None:
        value = _SCALAR.match(head, member.end())
        if value is None:
            break
        members[member[1]], at = value[1], value.end()
    if member is None or member[1] not in (b"result", b"error") or b"method" in members:
        return None
    last = _LAST_ID.search(tail)
    return _id_from(members.get(b"id") or (last[1] if last else b"null"))


def _id_from(text: bytes) -> RequestId | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
