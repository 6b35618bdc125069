"""Workers that are forks of a run report what the run itself would, and a test that ends its worker fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import workers
from tests.support.fork_server import ROOT

CONFTEST = """
from pathlib import Path
import pytest
from tests.support import workers

def pytest_configure(config):
    begin = lambda folder: folder.joinpath("begun").touch()
    config.pluginmanager.register(workers.Workers(2, begin))

@pytest.fixture(scope="session", autouse=True)
def of_worker(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    assert folder.joinpath("begun").exists()
    yield
    folder.joinpath("ended").touch()
"""
MANY = """
import os
import pytest

@pytest.mark.parametrize("number", range(250))
def test_many(number, of_worker):
    assert os.environ["PYTEST_XDIST_WORKER"] in ("gw0", "gw1")

def test_wrong():
    print("words before the fault")
    assert [1, 2] == [1, 3]

@pytest.mark.skip(reason="not today")
def test_left_out(): ...
"""
ENDING = """
import os, warnings

def test_before(): ...

def test_ending():
    os._exit(5)

def test_after():
    warnings.warn("take care")
"""

pytestmark = pytest.mark.skipif(not workers.ARE_POSSIBLE, reason="workers are forks only on Linux")


def test_workers_take_a_module_at_once_or_a_part_of_a_large_module() -> None:
    modules = ["small"] * 2 + ["large"] * 230 + ["last"]
    assert workers.batches_of(modules) == [
        range(2),
        range(2, 102),
        range(102, 202),
        range(202, 232),
        range(232, 233),
    ]


def test_a_run_reports_what_its_workers_report(tmp_path: Path) -> None:
    for name, text in {"conftest": CONFTEST, "test_many": MANY, "test_ending": ENDING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    kept = tmp_path / "kept"
    words = ["-m", "pytest", "-rs", "-p", "no:asyncio", f"--basetemp={kept}", "--rootdir=.", "."]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 252 passed, 1 skipped, 1 warning in" in done.stdout
    assert "At index 1 diff: 2 != 3" in done.stdout
    assert "words before the fault" in done.stdout
    assert "SKIPPED [1] test_many.py:13: not today" in done.stdout
    assert "The worker ended with 5 in this test." in done.stdout
    assert "UserWarning: take care" in done.stdout
    assert {path.name for path in kept.glob("*/ended")} == {"ended"}
    assert not done.stderr
