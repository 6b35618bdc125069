"""What the TCK's JUnit file says, what was recorded of it, and what is said of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.conformance.tck.expected import Expected
from tests.conformance.tck.outcome import Case, Outcome, Status
from tests.conformance.tck.page import binding_of

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest">
  <testcase classname="tests.compatibility.grpc.test_b.TestB" name="test_two[grpc]">
    <skipped type="pytest.skip" message="Transport 'grpc' not configured">somewhere</skipped></testcase>
  <testcase classname="tests.compatibility.test_a.TestA" name="test_one">
    <failure message="no">a trace</failure></testcase>
  <testcase classname="tests.compatibility.test_a.TestA" name="test_three">
    <error message="broke">a trace</error></testcase>
  <testcase classname="tests.compatibility.test_a" name="test_four[X-1-jsonrpc]"><properties /></testcase>
</testsuite></testsuites>"""
SEEN = Outcome(
    "abc",
    {
        "grpc.test_b.TestB.test_two[grpc]": Case(Status.SKIPPED, "Transport 'grpc' not configured"),
        "test_a.TestA.test_one": Case(Status.FAILED, "no"),
        "test_a.TestA.test_three": Case(Status.FAILED, "broke"),
        "test_a.test_four[X-1-jsonrpc]": Case(Status.PASSED),
    },
)
FAILS = {"reason": "x", "tests": ["test_a.TestA.test_one", "test_a.TestA.test_three"]}
SKIPS = {"reason": "y", "says": ["Transport 'grpc'"]}
EXPECTED = Expected.model_validate({"failures": [FAILS], "skips": [SKIPS]})


def test_each_test_of_a_run_has_a_name_and_how_it_came_out(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text(JUNIT)
    assert Outcome.in_junit(file, "abc") == SEEN


def test_a_record_keeps_why_a_test_was_skipped_and_no_words_of_failures(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(SEEN.to_text())
    kept = Outcome.in_file(file)
    assert kept.of_status(Status.SKIPPED) == SEEN.of_status(Status.SKIPPED)
    assert kept.of_status(Status.FAILED) == dict.fromkeys(SEEN.of_status(Status.FAILED), "")
    assert kept.to_text() == SEEN.to_text()


def test_a_run_that_comes_out_as_expected_is_no_surprise() -> None:
    assert EXPECTED.surprises(SEEN) == []


@pytest.mark.parametrize(
    ("name", "came", "surprise"),
    [
        (
            "test_a.test_four[X-1-jsonrpc]",
            Case(Status.FAILED, "late"),
            "failed, which is not expected: test_a.test_four[X-1-jsonrpc]: late",
        ),
        (
            "test_a.TestA.test_one",
            Case(Status.PASSED),
            "is expected to fail and does not: test_a.TestA.test_one",
        ),
        (
            "test_a.test_four[X-1-jsonrpc]",
            Case(Status.SKIPPED, "no task could be made"),
            "was not made: test_a.test_four[X-1-jsonrpc]: no task could be made",
        ),
    ],
)
def test_what_comes_out_otherwise_is_a_surprise(name: str, came: Case, surprise: str) -> None:
    assert EXPECTED.surprises(Outcome("abc", {**SEEN.tests, name: came})) == [surprise]


def test_a_run_without_tests_is_a_surprise() -> None:
    nothing = Expected.model_validate({"failures": [], "skips": []})
    assert nothing.surprises(Outcome("abc", {})) == ["no test was made"]


@pytest.mark.parametrize("entry", [{"reason": "", "tests": ["a"]}, {"reason": "x", "tests": []}])
def test_an_expected_failure_has_a_reason_and_names_tests(entry: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Expected.model_validate({"failures": [entry], "skips": []})


def test_what_was_recorded_is_what_is_expected() -> None:
    assert Expected.in_file().surprises(Outcome.in_file()) == []


@pytest.mark.parametrize(
    ("test", "binding"),
    [
        ("core_operations.test_requirements.test_must_requirement[CORE-SEND-001-jsonrpc]", "JSON-RPC"),
        ("core_operations.test_requirements.test_must_requirement[CORE-SEND-001-http_json]", "HTTP+JSON"),
        ("core_operations.test_requirements.test_must_requirement[CORE-SEND-001-grpc]", "gRPC"),
        ("grpc.test_status_codes.TestGrpcStatusCodes.test_task_not_found", "gRPC"),
        ("core_operations.test_transport_behavior.TestRestFormat.test_response_content_type", "HTTP+JSON"),
        ("agent_card.test_agent_card.TestAgentCardStructure.test_fields", "no binding of its own"),
    ],
)
def test_the_name_of_a_test_says_its_binding(test: str, binding: str) -> None:
    assert binding_of(test) == binding
