"""Checks and tests the project: `python -m tests.run TASK`, on every system, by the Makefile and by CI.

Every tool is the one beside the Python that runs this. A task is one or more commands, of which the first that fails
ends the task with its exit code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CODE: Final = ("bridge", "tests", "examples", "docs")

_WORKERS: Final = 3
"""One more than two cores: the tests wait for as long as they compute."""


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
    shared = ("-n", str(workers), "--dist", "worksteal") if TASKS[name].is_shared else ()
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
    for tool, *arguments in commands_of(options.task, getattr(options, "workers", 0)):
        path = sys.executable if tool == "python" else program(tool, Path(sys.executable).parent)
        print("$", tool, *arguments, flush=True)
        code = subprocess.run([path, *arguments], cwd=ROOT, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
