"""Progress as metadata, and what a result holds that the client did not name."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.models import Part
from bridge.mcp.values import Progress
from bridge.translate.extension import PROGRESS
from bridge.translate.notes import progress_metadata, unaccepted_types

RESULT = (
    Part(text="t"),
    Part(text="# m", media_type="text/markdown"),
    Part(raw="AAAA", media_type="image/png"),
    Part(raw="AAAA"),
    Part(data=None),
    Part(url="https://example.com/"),
)


@pytest.mark.proves("map-progress")
@pytest.mark.parametrize(
    ("progress", "numbers"),
    [
        (Progress(1), {"progress": 1}),
        (Progress(0.5, 2.0, "half"), {"progress": 0.5, "total": 2.0}),
        (Progress(0, 0), {"progress": 0, "total": 0}),
    ],
)
def test_the_numbers_of_progress_are_metadata_as_they_were_sent(progress: Progress, numbers: Any) -> None:
    assert progress_metadata(progress) == {PROGRESS: numbers}


@pytest.mark.parametrize(
    ("accepted", "extra"),
    [
        ((), ()),
        (("*/*",), ()),
        (("text",), ("application/json", "application/octet-stream", "image/png")),
        (("text/plain", "image/*"), ("application/json", "application/octet-stream", "text/markdown")),
    ],
)
def test_what_the_client_did_not_name_is_told_by_media_type(
    accepted: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    assert unaccepted_types(RESULT, accepted) == extra
