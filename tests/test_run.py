"""What checks and tests the project, on every system: the tasks, and who runs them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.run import ROOT, TASKS, commands_of, main, program

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
CALLED = re.compile(r"python -m tests\.run (\S+)")


def test_tests_are_shared_among_workers_after_what_they_talk_to_is_installed() -> None:
    assert commands_of("test", 5) == [
        ("python", "tests/peers/install.py"),
        ("python", "-m", "pytest", "tests", "-n", "5", "--dist", "worksteal"),
    ]


def test_long_tests_are_shared_and_those_of_minutes_are_not_among_them() -> None:
    assert commands_of("test-long", 5)[-1] == (
        *("python", "-m", "pytest", "tests", "-m", "long and not slow"),
        *("-n", "5", "--dist", "worksteal"),
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
