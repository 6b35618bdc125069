"""Moments as lines: how many are kept, how rows of each release are read, and that no id adds a moment."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from bridge.a2a.model.objects import StreamResponse, TaskState, TaskStatus
from bridge.a2a.model.timeline import Moment, MomentKind, Timeline
from bridge.a2a.tasks.moments import (
    NO_LINES,
    MomentLines,
    RecordedTimeline,
    line_of,
    line_of_status,
    lines_in,
)
from bridge.a2a.tasks.rows import moments_of, row_of, text_of

pytestmark = pytest.mark.proves("ops-timeline")

TRACE = "0af7651916cd43dd8448eb211c80319c"
TEXT = StreamResponse.model_validate(
    {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
).to_json()


def lines(*times: int) -> list[str]:
    return [line_of(MomentKind.STATE, at, state="working") for at in times]


def test_the_first_and_last_of_too_many_moments_are_kept_and_the_others_counted() -> None:
    timeline = RecordedTimeline(4)
    for line in lines(*range(9)):
        timeline.add(line)
    kept = timeline.up_to(9)
    assert kept == MomentLines(lines(0, 1, 7, 8), 5)
    assert (kept.timeline.place_left_out, MomentLines(lines(1)).timeline.place_left_out) == (2, None)
    assert timeline.up_to(8).lines == lines(0, 1, 7)
    timeline.cut(8)
    assert (timeline.up_to(8), timeline.up_to(9)) == (MomentLines(lines(0, 1, 7), 5),) * 2
    timeline.begin_with(MomentLines(lines(3, 4), 7))
    assert (timeline.total, timeline.up_to(1)) == (2, MomentLines(lines(3), 7))


def test_a_row_is_its_json_behind_its_moments_and_older_releases_read_it_as_json() -> None:
    came = MomentLines(
        [line_of(MomentKind.RECEIVED, 5, by='a"],\\"b', trace=TRACE), line_of(MomentKind.RESUMED, 6)], 2
    )
    row = row_of(TEXT, came)
    assert (text_of(row), moments_of(row)) == (TEXT, came)
    assert came.timeline == Timeline(
        (Moment(MomentKind.RECEIVED, 5, by='a"],\\"b', trace=TRACE), Moment(MomentKind.RESUMED, 6)), 2
    )
    assert (text_of(TEXT), moments_of(TEXT), row_of(TEXT, NO_LINES)) == (TEXT, NO_LINES, TEXT)
    read = json.loads(row)
    assert (isinstance(read.pop("moments"), str), read) == (True, json.loads(TEXT))


def test_an_id_with_separators_adds_no_moment_and_no_field() -> None:
    line = line_of(MomentKind.MESSAGE, 1, by="ann", message="m\x1e\x1fx", peer="p\x1f")
    (read,) = lines_in(MomentLines([line]).to_text()).timeline.moments
    assert read == Moment(MomentKind.MESSAGE, 1, by="ann", peer="p", message="mx")


def test_a_status_without_a_message_or_with_one_is_its_state_and_time() -> None:
    status = TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp="1970-01-01T00:00:01.000Z")
    assert MomentLines([line_of_status(status)]).timeline.moments == (
        Moment(MomentKind.STATE, 1000, state="input_required"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\x1f" * 6,
        "invented\x1f1" + "\x1f" * 5,
        "sent\x1f1",
        "sent\x1fnow" + "\x1f" * 5,
        "sent" + "\x1f" * 7,
    ],
    ids=["empty", "no kind", "another kind", "few fields", "no time", "many fields"],
)
def test_an_unknown_moment_of_another_release_is_ignored(line: str) -> None:
    good = "resumed" + "\x1f" * 6
    assert MomentLines([line, good], 1).timeline == Timeline((Moment(MomentKind.RESUMED),), 1)


@pytest.mark.parametrize("text", ["", "x", "x\x1esent"])
def test_a_row_whose_moments_are_damaged_cannot_be_read(text: str) -> None:
    row = b'{"moments":"' + b64encode(text.encode()) + b'",' + TEXT[1:]
    with pytest.raises(ValueError, match="invalid literal"):
        moments_of(row)
