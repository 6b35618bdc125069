"""The soak tells a leak from a peak, and a caller that waits from one that does not; it runs at its smallest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.soak.watch import Attacked, Call, Sample, findings, rise_per_hour, table_of
from tests.support.command import ROOT, environment

MINUTES: Final = 30
QUIET: Final = Sample(at=0, rss_bytes=150_000_000, open={"socket": 80}, threads=12, children=5, cpu_seconds=1)
CALLS: Final = [Call("send", at, 0.02) for at in range(0, 60 * MINUTES, 2)]
NO_ATTACKS: Final = Attacked([], {})
Shape = Callable[[float], float]


def flat(at: float) -> float:
    return 200


def peaks(at: float) -> float:
    """Every second sample is a peak, and the peaks get higher."""
    return 200 if at % 20 else 250 + at / 10


def settles(at: float) -> float:
    """What a process keeps of its first minutes."""
    return min(150 + at / 4, 250)


def leaks(at: float) -> float:
    """40 an hour, below the peaks."""
    return peaks(at) + at / 90


def samples(rss: Shape = flat, descriptors: Shape = flat, minutes: int = MINUTES) -> Sequence[Sample]:
    """One every ten seconds; memory in megabytes."""
    return [
        replace(QUIET, at=at, rss_bytes=int(rss(at) * 1_000_000), open={"socket": int(descriptors(at))})
        for at in range(0, 60 * minutes + 1, 10)
    ]


def broken(
    seen: Sequence[Sample] | None = None,
    calls: Sequence[Call] = CALLS,
    attacked: Attacked = NO_ATTACKS,
    after: Sample = QUIET,
) -> list[str]:
    """The first words of the rules that do not hold."""
    found = findings(seen or samples(), calls, attacked, QUIET, after)
    return [" ".join(one.rule.split()[:3]) for one in found if one.holds is False]


@pytest.mark.parametrize(("shape", "rise"), [(flat, 0), (peaks, 0), (settles, 0), (leaks, 40)])
def test_a_rise_is_that_of_the_least_of_each_minute_in_the_last_half(shape: Shape, rise: float) -> None:
    points = [(float(at), shape(at)) for at in range(0, 60 * MINUTES + 1, 10)]
    assert rise_per_hour(points) == pytest.approx(rise, abs=1)


@pytest.mark.parametrize("shape", [flat, peaks, settles])
def test_a_run_that_is_flat_at_its_end_holds(shape: Shape) -> None:
    assert broken(samples(rss=shape, descriptors=shape)) == []


def test_a_leak_is_told() -> None:
    assert broken(samples(rss=leaks)) == ["the least memory"]
    assert broken(samples(descriptors=leaks)) == ["the least descriptors"]


def test_what_is_left_once_the_load_has_stopped_is_told() -> None:
    assert broken(after=replace(QUIET, open={"socket": 81})) == ["no more descriptors"]
    assert broken(after=replace(QUIET, children=6)) == ["no more child"]
    assert broken(after=replace(QUIET, open={"socket": 79}, rss_bytes=10**9)) == []


def test_an_honest_call_without_its_answer_is_told() -> None:
    assert broken(calls=[*CALLS, Call("cancel", 9, 15, "TimeoutError")]) == ["every honest call"]


def test_honest_callers_that_wait_are_told() -> None:
    slow = [replace(call, seconds=0.6) for call in CALLS[:20]]
    assert broken(calls=[*CALLS, *slow]) == ["99 of 100"]
    assert broken(calls=[*CALLS, *slow[:5]]) == []


def test_an_attack_that_is_answered_otherwise_is_told() -> None:
    assert broken(attacked=Attacked([("half_heads", 0, 10)], {"half_heads: 200": 1})) == ["every attack is"]


def test_a_short_run_says_nothing_of_an_hour() -> None:
    seen = samples(rss=lambda at: 100 + at, minutes=3)
    assert broken(seen) == []
    judged = [one.holds for one in findings(seen, CALLS, NO_ATTACKS, QUIET, QUIET) if "hour" in one.rule]
    assert judged == [None, None]


def test_the_table_has_a_line_for_every_sixth_of_the_run() -> None:
    assert [row[:3] for row in table_of(samples(rss=peaks), CALLS).rows] == [
        ["0.0..5.0", "200..280", "200..200"],
        ["5.0..10.0", "200..310", "200..200"],
        ["10.0..15.0", "200..340", "200..200"],
        ["15.0..20.0", "200..370", "200..200"],
        ["20.0..25.0", "200..400", "200..200"],
        ["25.0..30.0", "200..430", "200..200"],
    ]


@pytest.mark.slow
def test_the_smallest_soak_attacks_and_comes_to_a_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.soak", "--minutes", "0.3"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment(tmp_path)
    )
    assert done.stderr == ""
    assert "attacks made: bombs " in done.stdout
    assert "yes  every honest call is answered: 0 of " in done.stdout
