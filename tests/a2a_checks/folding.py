"""What a stream of events adds up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def folded(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The artifacts that a stream tells of: a snapshot's, then each update replaces one or adds to it."""
    found: dict[Any, dict[str, Any]] = {}
    for event in events:
        if "task" in event:
            found = {one["artifactId"]: dict(one) for one in event["task"].get("artifacts") or ()}
        elif "artifactUpdate" in event:
            artifact = event["artifactUpdate"]["artifact"]
            known = found.get(artifact["artifactId"])
            before = known["parts"] if known and event["artifactUpdate"].get("append") else []
            found[artifact["artifactId"]] = {**artifact, "parts": [*before, *artifact["parts"]]}
    return list(found.values())


def content_of(artifacts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Artifact id to its content; texts in one piece, as chunks may be joined or not."""
    return {
        one["artifactId"]: (
            "".join(part["text"] for part in one["parts"] if "text" in part),
            [part for part in one["parts"] if "text" not in part],
        )
        for one in artifacts
    }
