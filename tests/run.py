"""Checks and tests the project: `python -m tests.run TASK`, on every system, by the Makefile and by CI.

Every tool is the one beside the Python that runs this. A task is one or more commands, of which the first that fails
ends the task with its exit code. One or two failed tests of a shared run are run once more alone (rerun.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.rerun import FLAKY, judged, listed

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("bridge", "tests", "examples", "docs")

_WORKERS: Final = 3
"""One more than two cores: the tests wait for as long as they compute."""
SHARED_BY: Final = ("--workers",) if sys.platform == "linux" else ("--dist", "worksteal", "-n")
"""Linux forks the workers of a run (support/workers.py), so the tests are collected once."""
_SLOWEST: Final = 30
"""How many of the slowest tests a shared run reports."""
_TESTS_FAILED: Final = 1
"""The exit code of pytest when the run is complete and a test failed."""


@dataclass(frozen=True)
class Task:
    """Something to run."""

    says: str
    commands: tuple[tuple[str, ...], ...]
    """The name of a tool and its arguments; `python` is this Python."""
    is_shared: bool = False
    """Whether the last command is pytest, and its tests are shared among workers."""


_PEERS: Final = ("python", "tests/peers/install.py")
_PYTEST: Final = ("python", "-m", "pytest", "tests")

TASKS: Final = {
    "check": Task(
        "check format, lint, types and layers",
        (
            ("ruff", "format", "--check", *CODE),
            ("ruff", "check", *CODE),
            ("mypy",),
            *(("mypy", "--platform", system, "bridge") for system in ("win32", "darwin")),
            ("lint-imports",),
        ),
    ),
    "format": Task(
        "format the code and mend what can be mended",
        (("ruff", "format", *CODE), ("ruff", "check", "--fix", *CODE)),
    ),
    "peers": Task("install the MCP servers and SDKs that the tests talk to", (_PEERS,)),
    "test": Task("run the whole test suite", (_PEERS, _PYTEST), is_shared=True),
    "test-fast": Task(
        "run the tests that need no process and no socket",
        ((*_PYTEST, "-m", "not outside and not slow"),),
        is_shared=True,
    ),
    "test-long": Task(
        "run the tests that take seconds each, most of them with many processes",
        (_PEERS, (*_PYTEST, "-m", "long and not slow")),
        is_shared=True,
    ),
    "interop": Task("run the tests that take minutes", (_PEERS, (*_PYTEST, "-m", "slow"))),
}


def commands_of(name: str, workers: int) -> list[tuple[str, ...]]:
    """The commands of a task, in their order."""
    *first, last = TASKS[name].commands
    shared = (*SHARED_BY, str(workers), "--slowest", str(_SLOWEST)) if TASKS[name].is_shared else ()
    return [*first, (*last, *shared)]


def program(tool: str, folder: Path) -> str:
    """The program of a tool that is installed in a folder.

    Raises:
        FileNotFoundError: the tool is not there.
    """
    found = shutil.which(tool, path=os.fspath(folder))
    if found is None:
        raise FileNotFoundError(f"{tool} is not in {folder}: install the project with its `dev` extra")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run a task; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Check and test the project.")
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, task in TASKS.items():
        one = tasks.add_parser(name, help=task.says)
        if task.is_shared:
            one.add_argument("--workers", type=int, default=_WORKERS, help="default: %(default)s")
    options = parser.parse_args(words)
    *first, last = commands_of(options.task, getattr(options, "workers", 0))
    for command in first:
        if code := _run(*command):
            return code
    return _run_tests(options.task, last) if TASKS[options.task].is_shared else _run(*last)


def alone(name: str, test: str) -> tuple[str, ...]:
    """The command that runs one test of a task, as the task chooses it."""
    return tuple(test if word == "tests" else word for word in TASKS[name].commands[-1])


def _run_tests(name: str, command: tuple[str, ...]) -> int:
    """Run pytest; when a test fails, judge the run by how the test does alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "failed")
        code = _run(*command, "--failed-to", os.fspath(file))
        if code != _TESTS_FAILED:
            return code
        failed = file.read_text(encoding="utf-8").splitlines()
    known = [*listed(FLAKY.read_text(encoding="utf-8"))]
    passes, lines = judged(failed, known, lambda test: not _run(*alone(name, test)))
    print(*lines, sep="\n", flush=True)
    return 0 if passes else code


def _run(tool: str, *arguments: str) -> int:
    """Say what is run, and run it; the exit code."""
    path = sys.executable if tool == "python" else program(tool, Path(sys.executable).parent)
    print("$", tool, *arguments, flush=True)
    return subprocess.run([path, *arguments], cwd=ROOT, env=_environment(), check=False).returncode


def _environment() -> dict[str, str]:
    """The environment of a tool. Without compiled files, each worker and each process of a test would compile all
    modules again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    sys.exit(main())
