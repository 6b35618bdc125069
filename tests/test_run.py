"""What checks and tests the project, on every system: the tasks, and who runs them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.rerun import FLAKY, judged, listed, refusal
from tests.run import ROOT, SHARED_BY, TASKS, alone, commands_of, main, program
from tests.support.failed import Failed
from tests.support.slowest import Spent, lines_of

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
A_TEST = "tests/text/test_lines.py::test_a_line_ends"
CALLED = re.compile(r"python -m tests\.run (\S+)")


def test_tests_are_shared_among_workers_after_what_they_talk_to_is_installed() -> None:
    assert commands_of("test", 5) == [
        ("python", "tests/peers/install.py"),
        ("python", "-m", "pytest", "tests", *SHARED_BY, "5", "--slowest", "30"),
    ]


def test_long_tests_are_shared_and_those_of_minutes_are_not_among_them() -> None:
    assert commands_of("test-long", 5)[-1] == (
        *("python", "-m", "pytest", "tests", "-m", "long and not slow"),
        *(*SHARED_BY, "5", "--slowest", "30"),
    )


def test_slow_tests_run_one_by_one() -> None:
    assert commands_of("interop", 5)[-1] == ("python", "-m", "pytest", "tests", "-m", "slow")


@pytest.mark.parametrize("file", [ROOT / "Makefile", WORKFLOW], ids=["make", "CI"])
def test_what_runs_tasks_names_those_that_there_are(file: Path) -> None:
    called = CALLED.findall(file.read_text(encoding="utf-8"))
    assert {"check", "test", "interop"} <= set(called) <= set(TASKS)


def test_ci_runs_on_every_system_with_every_python() -> None:
    said = WORKFLOW.read_text(encoding="utf-8")
    assert "system: [ubuntu-latest, macos-latest, windows-latest]" in said
    named = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert f"python: {named}".replace("'", '"') in said


def test_a_tool_is_the_one_beside_this_python(tmp_path: Path) -> None:
    assert Path(program("ruff", Path(sys.executable).parent)).parent == Path(sys.executable).parent
    with pytest.raises(
        FileNotFoundError, match=r"ruff is not in .*: install the project with its `dev` extra"
    ):
        program("ruff", tmp_path)


def test_a_task_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["polish"])
    assert ended.value.code == 2
    assert "invalid choice: 'polish'" in capsys.readouterr().err


def test_a_failed_test_that_passes_alone_is_flaky_and_the_run_passes() -> None:
    passes, lines = judged([A_TEST], [], {A_TEST: True}.__getitem__)
    assert passes
    assert lines[-1].startswith(f"flaky: {A_TEST} failed, and passed alone.")


def test_a_test_runs_again_by_the_marks_of_its_task() -> None:
    assert alone("test", A_TEST) == ("python", "-m", "pytest", A_TEST)
    assert alone("test-long", A_TEST) == ("python", "-m", "pytest", A_TEST, "-m", "long and not slow")


def test_a_test_that_fails_alone_too_fails_the_run() -> None:
    outcomes = {A_TEST: True, f"{A_TEST}_with_a_return": False}
    passes, lines = judged([*outcomes], [], outcomes.__getitem__)
    assert not passes
    assert lines[0] == f"{A_TEST}_with_a_return failed alone too."
    assert lines[1].startswith(f"flaky: {A_TEST} ")


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], "The run failed, but no test of it."),
        ([A_TEST + "[1]", A_TEST + "[2]", A_TEST + "[3]"], "3 tests failed, and at most 2 run again."),
        (["tests/text/test_lines.py"], "cannot be collected"),
        (["tests/store/test_sqlite.py::test_it_opens"], "(store)"),
        (["tests/assembly/test_shared_logins.py::test_two_replicas_agree"], "(replica)"),
        (["tests/audit/test_chain.py::test_a_link_fits"], "(audit)"),
        (["tests/process/test_shutdown.py::test_a_Cancelled_task_ends"], "(cancel)"),
        ([A_TEST + "[crlf]"], "flaky before"),
    ],
)
def test_other_failed_tests_do_not_run_again(failed: list[str], why: str) -> None:
    known = [A_TEST] if why == "flaky before" else []
    assert why in refusal(failed, known)
    passes, lines = judged(failed, known, lambda name: pytest.fail(f"{name} ran again"))
    assert not passes
    assert lines == [refusal(failed, known)]


def test_each_flaky_test_is_listed_with_its_date_and_cause_and_exists() -> None:
    for name in listed(FLAKY.read_text(encoding="utf-8")):
        file, _, function = name.rpartition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="needs `test`, `date` and `cause`"):
        listed(f'[[flaky]]\ntest = "{A_TEST}"\ndate = 2026-01-31\ncause = " "\n')


def test_each_failed_test_is_written_to_a_file_once(tmp_path: Path) -> None:
    plugin = Failed(tmp_path / "failed")
    at = "", 1, ""
    for report in (
        pytest.TestReport("test_right", at, {}, "passed", None, "call"),
        pytest.TestReport("test_wrong", at, {}, "failed", None, "call"),
        pytest.TestReport("test_wrong", at, {}, "failed", None, "teardown"),
        pytest.TestReport("test_without_its_fixture", at, {}, "failed", None, "setup"),
    ):
        plugin.pytest_runtest_logreport(report)
    plugin.pytest_collectreport(pytest.CollectReport("test_module.py", "failed", None, []))
    plugin.pytest_sessionfinish()
    assert (tmp_path / "failed").read_text(encoding="utf-8").split() == [
        "test_wrong",
        "test_without_its_fixture",
        "test_module.py",
    ]


def test_the_slowest_tests_are_reported_with_what_they_computed_and_waited() -> None:
    spent = {"quick": Spent(0.5, 0.25), "slow": Spent(3.0, 1.0), "in_processes": Spent(2.0, 4.5)}
    assert [*lines_of(spent, 2)] == [
        "    wall      CPU     wait  seconds",
        "    3.00     1.00     2.00  slow",
        "    2.00     4.50     0.00  in_processes",
        "    5.50     5.75     0.00  all 3 tests",
    ]
