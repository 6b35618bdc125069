"""The command `mcp-a2a` as a child process, as a user starts it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from contextvars import copy_context
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bridge.cli.main import main
from tests.support import forked
from tests.support.fork_server import ROOT
from tests.support.forked import Forked
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.ports import free_port
from tests.support.running import RAW_SERVER


def environment(state: Path, **more: str) -> dict[str, str]:
    """Ours, with a state folder of the test's own."""
    return {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}


def run_command(*arguments: str, state: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, in a process of its own."""
    words = [sys.executable, "-P", "-m", "bridge", *arguments]
    return forked.run(words, WAIT_SECONDS, text=True, env=environment(state, **more))


def run_here(
    *arguments: str, state: Path, folder: Path = ROOT, python: str = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end in this process, which saves the second that it takes to import everything.

    For what it reads, says and writes; what a process is (signals, its streams, its end) needs `run_command`.
    """
    with (
        pytest.MonkeyPatch.context() as patched,
        logs_kept(),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        for name, value in {
            "argv": ["mcp-a2a", *arguments],
            "executable": python,
            "stdin": StringIO(),
        }.items():
            patched.setattr(sys, name, value)
        for variable, value in environment(state, **more).items():
            patched.setenv(variable, value)
        patched.chdir(folder)
        with pytest.raises(SystemExit) as ended:
            copy_context().run(main)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, out.getvalue(), err.getvalue())


@contextmanager
def logs_kept() -> Iterator[None]:
    """What is logged where is as it was once this is left."""
    root, loggers = (
        logging.getLogger(),
        [logging.getLogger(name) for name in ("", "mcp", "bridge", "watchfiles")],
    )
    handlers, levels = root.handlers[:], [logger.level for logger in loggers]
    last, form = logging.lastResort, logging.lastResort and logging.lastResort.formatter
    try:
        yield
    finally:
        root.handlers[:] = handlers
        if last is not None:
            last.setFormatter(form)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@dataclass
class Wrapping:
    """A `mcp-a2a wrap` that runs."""

    process: subprocess.Popen[str]
    port: int
    _stderr: Lines = field(init=False)

    def __post_init__(self) -> None:
        self._stderr = Lines(self.process, self.process.stderr)

    @property
    def lines(self) -> list[str]:
        """What was read of its stderr so far."""
        return self._stderr.said

    @property
    def url(self) -> str:
        """Where its agent is."""
        return f"http://127.0.0.1:{self.port}"

    def read_until(self, words: str) -> None:
        """Read its stderr until a line holds these words."""
        self._stderr.until(words)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end; its exit code."""
        self.process.send_signal(number)
        self._stderr.rest()
        return self.process.wait(WAIT_SECONDS)


@contextmanager
def wrapping(
    *options: str,
    state: Path,
    server: tuple[str, ...] = (),
    until: str = "curl -s",
    start: type[subprocess.Popen[str]] = Forked,
    **more: str,
) -> Iterator[Wrapping]:
    """Start `mcp-a2a wrap` on a free port with the raw server behind it, and wait until it serves."""
    port = free_port()
    behind = server or (sys.executable, str(RAW_SERVER))
    command = [
        sys.executable,
        "-P",
        "-m",
        "bridge",
        "wrap",
        "--port",
        str(port),
        "--era",
        "legacy",
        *options,
        "--",
        *behind,
    ]
    with start(
        command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment(state, **more)
    ) as process:
        running = Wrapping(process, port)
        try:
            running.read_until(until)
            yield running
        finally:
            if process.poll() is None:
                process.kill()


@asynccontextmanager
async def process_of(bridge: AbstractContextManager[Wrapping]) -> AsyncIterator[Wrapping]:
    """A bridge in a process of its own, which is waited for beside the event loop."""
    entered = await anyio.to_thread.run_sync(bridge.__enter__)
    try:
        yield entered
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(bridge.__exit__, None, None, None)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid:
            found += [int(entry.name), *children_of(int(entry.name))]
    return found


def gone(pids: list[int]) -> bool:
    """Whether these processes end, within the usual wait."""
    deadline = time.monotonic() + WAIT_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
