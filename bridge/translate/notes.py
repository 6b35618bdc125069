"""Progress as metadata, and a result as the client's media types ask for it: in which form, and what is noted where
it is not quite that. Pure.

Spec: A2A 1.0 section 3.2.2 (acceptedOutputModes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.a2a.model.objects import Part, PartKind
from bridge.jsonvalues import JsonObject
from bridge.mcp.client.values import ProgressReport
from bridge.translate.content import Repeated
from bridge.translate.extension import PROGRESS
from bridge.translate.skills import ANYTHING, BYTES, JSON, TEXT, accepts_any

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
