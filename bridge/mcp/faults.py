"""What can go wrong between the bridge and a tool server, told apart by what a caller can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR
from pydantic import JsonValue

from bridge.errors import PeerError

FAULT_KEY: Final = "mcp-a2a/fault"
"""Marks, in the data of a JSON-RPC error, one that our transport made: the server never said it."""

UNREACHABLE: Final = "unreachable"
SESSION_LOST: Final = "session-lost"
HTTP_STATUS: Final = "http-status"
BROKEN_OFF: Final = "broken-off"
TOO_LARGE: Final = "too-large"
NO_MCP: Final = "no-mcp"

_SDK_SAYS: Final[Mapping[tuple[int, str], str]] = {
    (CONNECTION_CLOSED, "Connection closed"): BROKEN_OFF,
    (CONNECTION_CLOSED, "SSE stream "): BROKEN_OFF,
    (PARSE_ERROR, "Failed to parse JSON response"): NO_MCP,
    (PARSE_ERROR, "Failed to parse SSE message"): NO_MCP,
}
"""Code and beginning of the errors that the SDK makes itself. The codes alone say nothing: servers use them too."""


class ServerDownError(PeerError):
    """The server cannot be reached; nothing was sent to it."""


class NotTakenError(ServerDownError):
    """A connection that was thought good is not: the server has not taken the request, so it may be sent again."""


class ServerLostError(PeerError):
    """The connection ended while the server had the request; whether it acted on it is not known."""


class ServerRefusedError(PeerError):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def fault_of(error: MCPError) -> str | None:
    """Which fault of the transport an error stands for, or None when the server itself said it."""
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
