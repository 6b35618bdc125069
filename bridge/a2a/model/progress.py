"""The progress of a task: the numbers in the metadata of a status update. Pure."""

from __future__ import annotations

from typing import Final, TypeGuard

from pydantic import JsonValue

from bridge.a2a.model.objects import StreamResponse
from bridge.text.jsonvalues import JsonObject

PROGRESS: Final = "urn:mcp-a2a:tool:v1/progress"
"""The metadata key of the numbers of a progress notification: {"progress", "total"?}."""


def numbers_in(event: StreamResponse) -> JsonObject | None:
    """The metadata of an event, reduced to its numbers."""
    metadata = event.status_update.metadata if event.status_update else None
    return {PROGRESS: metadata[PROGRESS]} if metadata and PROGRESS in metadata else None


def fraction_in(metadata: JsonValue) -> float | None:
    """The progress of a task, from 0 to 1; None if the numbers do not give it."""
    numbers = metadata.get(PROGRESS) if isinstance(metadata, dict) else None
    if not isinstance(numbers, dict):
        return None
    progress, total = numbers.get("progress"), numbers.get("total")
    if not _is_number(progress) or not _is_number(total) or total <= 0:
        return None
    return min(max(progress / total, 0.0), 1.0)


def with_fraction(metadata: JsonValue, fraction: JsonValue) -> JsonValue:
    """The metadata with the progress of a task, if it lacks the progress and the task has some."""
    members = metadata if isinstance(metadata, dict) else {}
    if PROGRESS in members or not _is_number(fraction) or not 0 < fraction < 1:
        return metadata
    numbers: JsonObject = {"progress": fraction, "total": 1}
    return {**members, PROGRESS: numbers}


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
