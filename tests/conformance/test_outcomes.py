"""What is read of a suite's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conformance.outcomes import Outcome, Status, checks_from


def check(check_id: str, status: str, name: str = "Name") -> dict[str, Any]:
    return {"id": check_id, "name": name, "status": status, "timestamp": "2026-01-02T03:04:05.000Z"}


def write(folder: Path, scenario: str, *checks: dict[str, Any]) -> None:
    place = folder / f"{scenario}-2026-01-02T03-04-05-678Z"
    place.mkdir(parents=True)
    (place / "checks.json").write_text(json.dumps(checks))


def test_scenarios_are_named_as_the_suite_names_them(tmp_path: Path) -> None:
    write(tmp_path, "server-server-initialize", check("one", "SUCCESS"))
    write(tmp_path, "auth/metadata-var1", check("two", "FAILURE"))
    assert Outcome.in_folder(tmp_path).scenarios == {
        "auth/metadata-var1": {"two": Status.FAILED},
        "server-initialize": {"one": Status.PASSED},
    }


def test_a_scenario_without_checks_is_known_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "server-ping-2026-01-02T03-04-05-678Z").mkdir()
    write(tmp_path, "server-silent", check("one", "INFO"))
    assert Outcome.in_folder(tmp_path).empty == ("ping", "silent")


def test_a_check_that_is_made_again_counts_once_with_the_worst_of_it() -> None:
    for statuses in (["SUCCESS", "WARNING", "SUCCESS"], ["WARNING", "SKIPPED"]):
        assert checks_from([check("one", status) for status in statuses]) == {"one": Status.WARNED}


def test_checks_that_share_an_id_are_told_apart_by_their_names() -> None:
    said = [check("one", "SUCCESS", "A"), check("one", "FAILURE", "B"), check("two", "SUCCESS", "A")]
    assert checks_from(said) == {
        "one (A)": Status.PASSED,
        "one (B)": Status.FAILED,
        "two": Status.PASSED,
    }


def test_what_was_skipped_is_no_check_that_was_made_and_a_warning_is_one_that_failed() -> None:
    checks = {"a": Status.PASSED, "b": Status.SKIPPED, "c": Status.WARNED, "d": Status.FAILED}
    outcome = Outcome({"mixed": checks, "fine": {"a": Status.PASSED, "b": Status.SKIPPED}})
    assert list(outcome.checks) == ["mixed / a", "mixed / c", "mixed / d", "fine / a"]
    assert outcome.failures == {"mixed / c", "mixed / d"}
    assert outcome.clean == 1
