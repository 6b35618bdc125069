"""What a failure on the MCP side is for the A2A side. Pure.

A tool's own failure is a result (FAILED, with all that the tool said); a protocol's failure is an error, which
keeps its code in metadata. Neither is ever a success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from bridge.a2a.model.objects import Part, TaskState
from bridge.jsonvalues import JsonObject
from bridge.translate.content import ADDED, bounded
from bridge.translate.extension import BLOCK, PEER

URL_REQUIRED: Final = -32042
"""The server wants a URL visited before it is called again (MCP 2025-11-25 client/elicitation)."""

STATE_OF_ERROR: Final[Mapping[int, TaskState]] = {INVALID_PARAMS: TaskState.REJECTED}
"""JSON-RPC error code of MCP to the state of the task; any other is FAILED."""

_NO_WORDS: Final = "The tool failed and gave no words for it"


def state_of_error(code: int) -> TaskState:
    """The state that a server's JSON-RPC error puts the task in."""
    return STATE_OF_ERROR.get(code, TaskState.FAILED)


def error_metadata(code: int, message: str, data: JsonValue) -> JsonObject:
    """A server's JSON-RPC error as metadata, whole; what is nested too deeply is spelled out as text."""
    error: JsonObject = {"code": bounded(code), "message": message}
    if data is not None:
        error["data"] = bounded(data)
    return {PEER: {"error": error}}


def parts_of_failure(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of a status message for a result with isError: all of them, and at least one that is text."""
    if any(part.text for part in parts):
        return tuple(parts)
    return (Part(text=_NO_WORDS, metadata={BLOCK: {"type": ADDED}}), *parts)
