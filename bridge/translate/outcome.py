"""The outcome of a tool call in a task, except the content: progress, failures and accepted media types. Pure.

A tool's own failure is a result (FAILED, with the tool's whole output). A failure of the protocol is an error, whose
code is kept in metadata. Neither is ever shown as a success.

Spec: A2A 1.0 section 3.2.2 (acceptedOutputModes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types import INVALID_PARAMS
from pydantic import JsonValue

from bridge.a2a.model.objects import Part, PartKind, TaskState
from bridge.mcp.client.values import ProgressReport
from bridge.text.jsonvalues import JsonObject
from bridge.translate.content import ADDED, Repeated, bounded
from bridge.translate.extensions.bridge import BLOCK, PEER, PROGRESS
from bridge.translate.skills import ANYTHING, BYTES, JSON, TEXT, accepts_any

URL_REQUIRED: Final = -32042
"""The error code of a server that wants a URL visited before the next call (MCP 2025-11-25 client/elicitation)."""

STATE_OF_ERROR: Final[Mapping[int, TaskState]] = {INVALID_PARAMS: TaskState.REJECTED}
"""The state of the task for a JSON-RPC error code of MCP. For any other code it is FAILED."""

_NO_WORDS: Final = "The tool failed and gave no words for it"


def state_of_error(code: int) -> TaskState:
    """The state of a task after a JSON-RPC error of its server."""
    return STATE_OF_ERROR.get(code, TaskState.FAILED)


def error_metadata(code: int, message: str, data: JsonValue) -> JsonObject:
    """A server's whole JSON-RPC error as metadata. Data that is nested too deeply becomes JSON text."""
    error: JsonObject = {"code": bounded(code), "message": message}
    if data is not None:
        error["data"] = bounded(data)
    return {PEER: {"error": error}}


def parts_of_failure(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts of a status message for a result with isError: all parts, and at least one text."""
    if any(part.text for part in parts):
        return tuple(parts)
    return (Part(text=_NO_WORDS, metadata={BLOCK: {"type": ADDED}}), *parts)


def parts_for_metadata() -> tuple[Part, ...]:
    """The parts of an artifact for a result that has metadata and no content, since an artifact must have a part. The
    part is marked, so that it does not become a block."""
    return (Part(text="", metadata={BLOCK: {"type": ADDED}}),)


_TYPE_OF: Final[Mapping[PartKind, str]] = {"text": TEXT, "raw": BYTES, "url": ANYTHING, "data": JSON}
"""The media type of a part without one. The content behind a link may be anything."""

REPEATED: Final[Mapping[tuple[bool, bool], Repeated]] = {
    (False, False): Repeated.TEXT,
    (True, False): Repeated.TEXT,
    (False, True): Repeated.DATA,
    (True, True): Repeated.BOTH,
}
"""The form in which content is sent that a result holds both as text and as data, by whether the client accepts text
and whether it accepts JSON. For clients without the extension. `*/*` counts as neither."""


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
    """The media types of a result that the client did not list as accepted. Such content is delivered anyway."""
    types = {part.media_type or _TYPE_OF[part.kind] for part in parts}
    return tuple(sorted(media_type for media_type in types if not accepts_any(accepted, (media_type,))))
