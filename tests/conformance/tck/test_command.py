"""The command that runs the TCK, with a TCK of one test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import forked
from tests.support.lines import WAIT_SECONDS

OPTIONS = "def pytest_addoption(parser):\n    parser.addoption('--sut-host')\n"
ONE_TEST = """
import json
import urllib.request

import pytest

@pytest.mark.must
def test_the_agent_is_wise(request):
    url = request.config.getoption("--sut-host") + "/.well-known/agent-card.json"
    card = json.load(urllib.request.urlopen(url))
    assert card["name"] == "wise"

def test_that_is_no_must():
    assert False
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.conformance.tck", *arguments]
    return forked.run(command, WAIT_SECONDS, cwd=folder, text=True)


def test_a_must_that_fails_unexpectedly_is_exit_code_1(tmp_path: Path) -> None:
    tests = tmp_path / "tck" / "tests" / "compatibility"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text(OPTIONS)
    (tests / "test_one.py").write_text(ONE_TEST)
    done = run(tmp_path, "tck", "--python", sys.executable)
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert any(
        "failed, which is not expected: " in line and "test_the_agent_is_wise" in line for line in told
    )
    assert not any("test_that_is_no_must" in line for line in told)
    assert done.stdout.startswith("1 MUST tests of TCK of no known revision: 0 passed, 1 failed, 0 skipped; ")


def test_a_path_without_a_tck_is_exit_code_2(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path))
    assert done.returncode == 2
    assert "is no checkout of the A2A TCK" in done.stderr


def test_a_tck_that_is_not_set_up_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "tests" / "compatibility").mkdir(parents=True)
    done = run(tmp_path, str(tmp_path))
    assert done.returncode == 2
    assert "set the TCK up as its README says" in done.stderr
