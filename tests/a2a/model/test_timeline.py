"""Timelines: how a long timeline is cut, how a foreign timeline is read, and how a missing timeline is derived."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part, Role, Task, TaskState, TaskStatus
from bridge.a2a.model.timeline import MOMENTS, Moment, MomentKind, Timeline, timeline_of

pytestmark = pytest.mark.proves("ops-timeline")

AT = "2026-01-31T12:00:00.000Z"
WAITS = TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp=AT)


def said(role: Role, number: str) -> Message:
    return Message(message_id=number, role=role, parts=(Part(text="a secret"),))


def test_a_timeline_in_metadata_equals_the_task_timeline_without_empty_fields() -> None:
    kept = Timeline(
        (
            Moment(MomentKind.RECEIVED, 1769860800000, by="ann", trace="ab" * 16, message="m1"),
            Moment(MomentKind.SENT, 1769860800001, peer="crm"),
            Moment(MomentKind.STATE, 1769860800002, state="completed"),
        ),
        3,
    )
    told = kept.to_object()
    assert told == {
        "moments": [
            {"what": "received", "at": AT, "by": "ann", "trace": "ab" * 16, "message": "m1"},
            {"what": "sent", "at": "2026-01-31T12:00:00.001Z", "peer": "crm"},
            {"what": "state", "at": "2026-01-31T12:00:00.002Z", "state": "completed"},
        ],
        "leftOut": 3,
    }
    assert timeline_of(Task(id="t", status=WAITS, metadata={MOMENTS: told})) == kept


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"moments": 7, "leftOut": "many"},
        {
            "moments": [None, "received", {}, {"what": "explode"}, {"what": "sent", "at": "soon"}],
            "leftOut": -1,
        },
    ],
)
def test_an_invalid_moment_is_ignored(told: JsonValue) -> None:
    assert timeline_of(Task(id="t", status=WAITS, metadata={MOMENTS: told})) == Timeline()


def test_a_moment_keeps_only_texts() -> None:
    told: JsonValue = {"moments": [{"what": "sent", "peer": {"a": 1}, "by": "ann", "at": 5}]}
    task = Task(id="t", status=WAITS, metadata={MOMENTS: told})
    assert timeline_of(task).moments == (Moment(MomentKind.SENT, by="ann"),)


def test_a_task_without_a_timeline_gets_moments_from_its_history_and_status() -> None:
    asks = said(Role.AGENT, "q")
    task = Task(
        id="t",
        status=WAITS.changed(message=asks),
        history=(said(Role.USER, "1"), said(Role.AGENT, "2"), said(Role.USER, "3"), asks),
    )
    assert timeline_of(task) == Timeline(
        (
            Moment(MomentKind.RECEIVED, message="1"),
            Moment(MomentKind.SAID, message="2"),
            Moment(MomentKind.MESSAGE, message="3"),
            Moment(MomentKind.STATE, 1769860800000, "input_required", message="q"),
        ),
    )
    assert timeline_of(Task(id="t", status=TaskStatus(state=TaskState.WORKING))).moments == (
        Moment(MomentKind.STATE, state="working"),
    )
