"""The page, and the record that it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import page
from tests.conformance.outcomes import Outcome, Status
from tests.conformance.recorded import Recorded
from tests.conformance.runs import RUNS, SUITES, Side


def test_the_page_tells_what_was_recorded() -> None:
    assert page.FILE.read_text("utf-8") == page.written()


def test_every_run_is_recorded() -> None:
    assert sorted(Recorded.in_file().runs) == sorted(run.name for run in RUNS)


@pytest.mark.proves("mcp25-retry")
def test_the_official_suite_saw_streams_taken_up_again_when_their_server_says() -> None:
    """It measures the time, which no test of ours does."""
    runs = Recorded.in_file().runs
    seen = [
        runs[run.name].scenarios["sse-retry"]
        for run in RUNS
        if run.side is Side.CLIENT and "sse-retry" in runs[run.name].scenarios
    ]
    assert seen
    assert all(checks["client-sse-retry-timing"] is Status.PASSED for checks in seen)


def test_a_record_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    outcome = Outcome({"scenario": {"a": Status.PASSED, "b": Status.WARNED}})
    recorded = Recorded({"run": outcome}, {"agent": {"check": {"JSONRPC": "pass"}}})
    file = tmp_path / "results.json"
    file.write_text(recorded.to_text())
    assert Recorded.in_file(file) == recorded
    assert Recorded.in_file(file).to_text() == recorded.to_text()


def test_only_what_was_looked_at_is_compared() -> None:
    before = Recorded({"one": Outcome({"s": {"a": Status.PASSED}}), "two": Outcome({})}, {"agent": {}})
    assert before.differences(Recorded({"one": Outcome({"s": {"a": Status.PASSED}})})) == []


def test_a_difference_names_the_checks_that_came_out_otherwise() -> None:
    before = Recorded({"run": Outcome({"s": {"a": Status.PASSED, "b": Status.PASSED}})}, {"agent": {}})
    seen = Recorded(
        {"run": Outcome({"s": {"a": Status.PASSED, "b": Status.FAILED, "c": Status.PASSED}})},
        {"agent": {"check": {"JSONRPC": "fail"}}},
    )
    assert before.differences(seen) == ["run: s / b, s / c", "A2A checks of agent"]


def test_what_was_never_recorded_is_a_difference() -> None:
    assert Recorded().differences(Recorded({"run": Outcome({"s": {"a": Status.SKIPPED}})}))


def test_the_suites_are_pinned_to_a_version_each() -> None:
    assert all(suite.version[0].isdigit() for suite in SUITES)
    assert len({run.name for run in RUNS}) == sum(len(suite.sides) for suite in SUITES)
