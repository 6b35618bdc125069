"""What a task says of a tool's call beside the content: progress, failure, and the form that its client accepts. Pure.

A tool's own failure is a result (FAILED, with all that the tool said); a protocol's failure is an error, which keeps
its code in metadata. Neither is ever a success.

Spec: A2A 1.0 section 3.2.2 (acceptedOutputModes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from bridge.a2a.model.objects import Part, PartKind, TaskState
from bridge.jsonvalues import JsonObject
from bridge.mcp.client.values import ProgressReport
from bridge.translate.content import ADDED, Repeated, bounded
from bridge.translate.extension import BLOCK, PEER, PROGRESS
from bridge.translate.skills import ANYTHING, BYTES, JSON, TEXT, accepts_any

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


_TYPE_OF: Final[Mapping[PartKind, str]] = {"text": TEXT, "raw": BYTES, "url": ANYTHING, "data": JSON}
"""What a part is whose media type nobody gave; what stands behind a link may be anything."""

REPEATED: Final[Mapping[tuple[bool, bool], Repeated]] = {
    (False, False): Repeated.TEXT,
    (True, False): Repeated.TEXT,
    (False, True): Repeated.DATA,
    (True, True): Repeated.BOTH,
}
"""Whether a client without the extension names text, and whether it names JSON, to the form in which it gets what a
result says in both. `*/*` names neither."""


def repeated_for(accepted: tuple[str, ...]) -> Repeated:
    """The form for a client that accepts these media types, and has not activated the extension."""
    named = tuple(mode for mode in accepted if not mode.strip().startswith("*"))
    return REPEATED[_names(named, TEXT), _names(named, JSON)]


def _names(named: tuple[str, ...], media_type: str) -> bool:
    return bool(named) and accepts_any(named, (media_type,))


def progress_metadata(progress: ProgressReport) -> JsonObject:
    """The numbers of a progress notification, as they were sent."""
    numbers: JsonObject = {"progress": progress.progress}
    if progress.total is not None:
        numbers["total"] = progress.total
    return {PROGRESS: numbers}


def unaccepted_types(parts: Sequence[Part], accepted: tuple[str, ...]) -> tuple[str, ...]:
    """The media types of a result that the client did not name as acceptable; they are delivered all the same."""
    types = {part.media_type or _TYPE_OF[part.kind] for part in parts}
    return tuple(sorted(one for one in types if not accepts_any(accepted, (one,))))
