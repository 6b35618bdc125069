"""Progress as metadata, and what is noted where a result is not quite what was asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.a2a.models import Part, PartKind
from bridge.jsonvalues import JsonObject
from bridge.mcp.values import Progress
from bridge.translate.extension import PROGRESS
from bridge.translate.skills import ANYTHING, BYTES, JSON, TEXT, accepts_any

_TYPE_OF: Final[Mapping[PartKind, str]] = {"text": TEXT, "raw": BYTES, "url": ANYTHING, "data": JSON}
"""What a part is whose media type nobody gave; what stands behind a link may be anything."""


def progress_metadata(progress: Progress) -> JsonObject:
    """The numbers of a progress notification, as they were sent."""
    numbers: JsonObject = {"progress": progress.progress}
    if progress.total is not None:
        numbers["total"] = progress.total
    return {PROGRESS: numbers}


def unaccepted_types(parts: Sequence[Part], accepted: tuple[str, ...]) -> tuple[str, ...]:
    """The media types of a result that the client did not name as acceptable; they are delivered all the same."""
    types = {part.media_type or _TYPE_OF[part.kind] for part in parts}
    return tuple(sorted(one for one in types if not accepts_any(accepted, (one,))))
