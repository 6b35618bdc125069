"""What a run is compared with, and the file of expected failures."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.conformance.expected import ExpectedFailure, Verdict, compare, expected_of, load_expected
from tests.conformance.outcomes import Outcome, Status
from tests.conformance.recorded import Recorded
from tests.conformance.runs import RUNS, Run, Side, Suite

RUN = Run(Suite("conformance-2026", "2026-07-28", (), ()), Side.AGENT)
OTHER = Run(Suite("conformance-2025", "2025-11-25", (), ()), Side.CLIENT)


def expect(*checks: str, **runs: tuple[str, ...]) -> ExpectedFailure:
    return ExpectedFailure.model_validate({"reason": "no A2A counterpart: x", "checks": checks, **runs})


def outcome(**checks: Status) -> Outcome:
    return Outcome({"scenario": checks})


def test_a_run_that_fails_only_what_is_expected_is_no_surprise() -> None:
    came = outcome(a=Status.FAILED, b=Status.PASSED, c=Status.SKIPPED, d=Status.WARNED)
    assert compare(RUN, came, [expect("scenario / a", "scenario / d")]).lines == []


def test_a_failure_and_a_warning_that_nobody_expects_are_surprises() -> None:
    came = outcome(a=Status.FAILED, b=Status.WARNED)
    assert compare(RUN, came, []) == Verdict(failed=("scenario / a", "scenario / b"))


@pytest.mark.parametrize("status", [Status.PASSED, Status.SKIPPED])
def test_an_expected_failure_that_does_not_fail_is_a_surprise(status: Status) -> None:
    verdict = compare(RUN, outcome(a=status), [expect("scenario / a")])
    assert verdict == Verdict(passed=("scenario / a",))
    assert verdict.lines == ["is expected to fail and does not: scenario / a"]


def test_an_expected_failure_of_a_check_that_was_not_made_is_a_surprise() -> None:
    assert compare(RUN, outcome(), [expect("scenario / gone")]).passed == ("scenario / gone",)


def test_a_scenario_without_checks_is_a_surprise() -> None:
    assert compare(RUN, outcome(), []).empty == ("scenario",)


def test_the_scenarios_of_a_surprise_are_named_once_each() -> None:
    came = Outcome(
        {"one": {"a": Status.FAILED, "b": Status.WARNED}, "two": {}, "three": {"c": Status.PASSED}}
    )
    verdict = compare(RUN, came, [expect("three / c")])
    assert verdict.scenarios == ("one", "two", "three")


def test_an_entry_holds_for_the_runs_that_it_names_alone() -> None:
    assert expect("a").holds_for(RUN)
    assert expect("a", sides=("server-agent",), specs=("2026-07-28",)).holds_for(RUN)
    for left_out in ({"sides": ("client",)}, {"specs": ("2025-11-25",)}, {"suites": ("0.1.16",)}):
        assert not expect("a", **left_out).holds_for(RUN)


def test_a_check_with_two_reasons_is_refused() -> None:
    with pytest.raises(ValueError, match="scenario / a has two reasons"):
        expected_of(RUN, [expect("scenario / a"), expect("scenario / a", sides=("server-agent",))])
    assert expected_of(OTHER, [expect("scenario / a"), expect("scenario / a", sides=("server-agent",))])


@pytest.mark.parametrize("reason", ["", "it is hard", "no A2A counterpart:", "needs: OAuth"])
def test_a_reason_says_what_is_missing_or_what_it_comes_with(reason: str) -> None:
    with pytest.raises(ValidationError):
        ExpectedFailure.model_validate({"reason": reason, "checks": ["a / b"]})


@pytest.mark.parametrize("runs", [{"sides": ("server",)}, {"suites": ("0.0.1",)}, {"side": ("client",)}])
def test_an_entry_for_runs_that_do_not_exist_is_refused(runs: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValidationError):
        expect("a", **runs)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_what_was_recorded_is_what_is_expected(run: Run) -> None:
    assert compare(run, Recorded.in_file().runs[run.name], load_expected()).lines == []


def test_a_scenario_that_skipped_what_it_made_when_it_was_recorded_has_moved() -> None:
    made, skipped = outcome(a=Status.PASSED), outcome(a=Status.SKIPPED)
    assert compare(RUN, skipped, []).scenarios == ()
    recorded = Recorded({RUN.name: made})
    assert recorded.moved(RUN.name, skipped) == ["scenario"]
    assert recorded.moved(RUN.name, made) == []
    assert recorded.moved(OTHER.name, made) == ["scenario"]
