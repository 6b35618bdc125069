"""The check of histories finds each kind of fault that it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.shake.history import History, Listed, Seen, Shown, StoredEvent, Told, View
from tests.shake.marks import history_of

SUBMITTED, WORKING, STEP, DONE = "S 01", "W 02", "W 03", "C 04"
EVENTS = [
    StoredEvent(SUBMITTED, View(SUBMITTED, 0)),
    StoredEvent(WORKING, View(WORKING, 0)),
    StoredEvent(STEP, View(STEP, 0)),
    StoredEvent("artifact", View(STEP, 1)),
    StoredEvent(DONE, View(DONE, 1), ends=True),
]
STREAM: list[Seen] = [
    Shown("t", EVENTS[0].view, 0, 1, stream=1),
    *(Told("t", event.mark, at, stream=1) for at, event in enumerate(EVENTS[1:], 2)),
]
"""A stream that told all, one event each second."""
HOLDS = History(
    {"t": EVENTS},
    [*STREAM, Shown("t", View(DONE, 1), 7, 8), Shown("t", View(STEP), 4.5, 9)],
    [Listed("ann", ("t",), "", 10)],
    {"t": "ann"},
    {"t": "m"},
    [("m", "t"), ("m", "t")],
    {"t": "m: done"},
    ["quick m"],
)


def stored(*events: StoredEvent) -> History:
    """The history, with other events in the store."""
    return replace(HOLDS, stored={"t": events})


def told(*seen: Seen) -> History:
    """The history, in which clients were told something else."""
    return replace(HOLDS, seen=seen, lists=())


def test_a_history_that_holds_has_no_faults() -> None:
    assert HOLDS.faults() == []


FAULTS = {
    "lost": (stored(*EVENTS[:3]), "was acknowledged, and is lost"),
    "doubled": (stored(*EVENTS[:3], *EVENTS[2:]), "has an event 2 times: W 03"),
    "swapped": (stored(*EVENTS[:2], EVENTS[3], EVENTS[2], EVENTS[4]), "was told after a later event, at 4"),
    "second end": (
        stored(*EVENTS, StoredEvent("F 05", View("F 05", 1), ends=True)),
        "ends 2 times, at [5, 6]",
    ),
    "after the end": (stored(*EVENTS, StoredEvent("W 05", View("W 05", 1))), "goes on after its end at 5"),
    "stale read": (told(*STREAM, Shown("t", View(STEP, 1), 6.5, 7)), "event 5 had been told, and it shows 4"),
    "stale list": (told(*STREAM, Shown("t", View(WORKING), 6.5, 7)), "event 5 had been told, and it shows 2"),
    "told twice": (told(*STREAM[:3], *STREAM[2:]), "was told after a later event, at 3"),
    "told in another order": (told(STREAM[0], STREAM[2], STREAM[1]), "was told after a later event, at 3"),
    "left out of a stream": (told(STREAM[0], STREAM[2]), "was told without ['W 02'] before it"),
    "never stored": (told(Told("t", "W 09", 3)), "was acknowledged, and is lost"),
    "another task": (
        replace(HOLDS, answered=[("m", "t"), ("m", "u")]),
        "message m was answered with 2 tasks",
    ),
    "two tasks": (replace(HOLDS, began_by={"t": "m", "u": "m"}), "message m became 2 tasks"),
    "another result": (replace(HOLDS, results={"t": "n: done"}), "t has the result of another call: n: done"),
    "run twice": (replace(HOLDS, runs=["quick m", "quick m"]), "quick m was run 2 times"),
    "left out of a list": (
        replace(HOLDS, lists=[Listed("ann", (), "", 10)]),
        "t was left out of a list of ann",
    ),
}


@pytest.mark.parametrize(("history", "fault"), FAULTS.values(), ids=FAULTS)
def test_each_kind_of_fault_is_found(history: History, fault: str) -> None:
    assert fault in "\n".join(history.faults())


def test_a_page_need_not_hold_what_is_older_than_its_last_task() -> None:
    page = Listed("ann", ("u",), "05", 10)
    assert replace(HOLDS, lists=[page]).faults() == []


def test_an_event_is_known_by_what_it_says_and_leads_to_the_task_after_it() -> None:
    status = {"state": "TASK_STATE_SUBMITTED", "timestamp": "01"}
    question = {"messageId": "q", "parts": [{"text": "?"}]}
    artifact = {"artifactId": "a", "parts": [{"text": "x"}, {"text": "y"}]}
    assert list(
        history_of(
            [
                {"task": {"id": "t", "status": status}},
                {"artifactUpdate": {"artifact": artifact}},
                {"message": {"messageId": "m"}},
                {
                    "statusUpdate": {
                        "status": {"state": "TASK_STATE_FAILED", "timestamp": "02", "message": question}
                    }
                },
            ]
        )
    ) == [
        StoredEvent("SUBMITTED 01", View("SUBMITTED 01", 0)),
        StoredEvent(
            'artifact {"artifactId": "a", "parts": [{"text": "x"}, {"text": "y"}]}', View("SUBMITTED 01", 2)
        ),
        StoredEvent("message m", View("SUBMITTED 01", 2), is_told=False),
        StoredEvent("FAILED 02 q of 1 parts", View("FAILED 02 q of 1 parts", 2), ends=True),
    ]
