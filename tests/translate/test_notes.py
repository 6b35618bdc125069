"""Progress as metadata, and media types in a result that the client does not accept."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import Part
from bridge.mcp.client.values import ProgressReport
from bridge.translate.content import Repeated
from bridge.translate.extensions.bridge import PROGRESS
from bridge.translate.outcome import progress_metadata, repeated_for, unaccepted_types

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
        (ProgressReport(1), {"progress": 1}),
        (ProgressReport(0.5, 2.0, "half"), {"progress": 0.5, "total": 2.0}),
        (ProgressReport(0, 0), {"progress": 0, "total": 0}),
    ],
)
def test_the_numbers_of_progress_are_metadata_as_they_were_sent(
    progress: ProgressReport, numbers: Any
) -> None:
    assert progress_metadata(progress) == {PROGRESS: numbers}


MODES: list[tuple[tuple[str, ...], Repeated]] = [
    ((), Repeated.TEXT),
    (("*/*",), Repeated.TEXT),
    (("*",), Repeated.TEXT),
    (("text",), Repeated.TEXT),
    (("text/plain", "image/png"), Repeated.TEXT),
    (("text/*", "*/*"), Repeated.TEXT),
    (("image/png",), Repeated.TEXT),
    (("application/json",), Repeated.DATA),
    (("Application/JSON; charset=utf-8",), Repeated.DATA),
    (("application/*",), Repeated.DATA),
    (("application/json", "*/*"), Repeated.DATA),
    (("application/json", "text/html"), Repeated.DATA),
    (("text/plain", "application/json"), Repeated.BOTH),
    (("text/*", "application/*"), Repeated.BOTH),
]


@pytest.mark.proves("map-content")
@pytest.mark.parametrize(("accepted", "repeated"), MODES)
def test_the_accepted_media_types_decide_the_form_of_repeated_content(
    accepted: tuple[str, ...], repeated: Repeated
) -> None:
    assert repeated_for(accepted) is repeated


@pytest.mark.proves("map-content")
@pytest.mark.parametrize(
    ("accepted", "extra"),
    [
        ((), ()),
        (("*/*",), ()),
        (("text",), ("application/json", "application/octet-stream", "image/png")),
        (("text/plain", "image/*"), ("application/json", "application/octet-stream", "text/markdown")),
    ],
)
def test_media_types_that_the_client_does_not_accept_are_listed(
    accepted: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    assert unaccepted_types(RESULT, accepted) == extra
