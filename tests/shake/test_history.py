"""The check of histories finds each kind of fault that it is for."""

from __future__ import annotations

import pytest

from tests.shake.history import Stored, Told, faults_of

STORED: Stored = {"t": ["a", "b", "c", "end d"]}
TOLD = [Told("t", seq, event) for seq, event in enumerate(STORED["t"], 1)]


def test_a_history_that_holds_has_no_faults() -> None:
    assert faults_of(STORED, TOLD, TOLD) == []


@pytest.mark.parametrize(
    ("stored", "acknowledged", "watched", "fault"),
    [
        ({"t": ["a", "b"]}, TOLD[:3], [], "was acknowledged and is lost"),
        ({"t": ["a", "b", "b"]}, TOLD[:2], [], "has an event twice"),
        ({"t": ["b", "a"]}, TOLD[:2], [], "is another event in the store"),
        ({"t": ["a", "end b", "end c"]}, [], [], "ends 2 times"),
        ({"t": ["a", "end b", "c"]}, [], [], "goes on after its end"),
        (STORED, [], [TOLD[0], TOLD[2]], "was told after 1"),
        (STORED, [], [Told("t", 1, "x")], "is not in the store"),
        (STORED, [], TOLD[:2], "was told 2 of 4 events"),
    ],
    ids=["lost", "doubled", "swapped", "second end", "after the end", "gap", "never stored", "stale"],
)
def test_each_kind_of_fault_is_found(
    stored: Stored, acknowledged: list[Told], watched: list[Told], fault: str
) -> None:
    assert fault in "\n".join(faults_of(stored, acknowledged, watched))
