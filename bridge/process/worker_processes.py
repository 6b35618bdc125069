"""Starts the process of a worker, and ends what it has left behind: the processes of its session.

A worker is the leader of a session of its own, and the tool servers that it starts stay in that session, each with a
process group of its own. So the supervisor finds them by the number of the dead worker, however it died and whatever
it was about to say. A process leaves a session only on purpose.

Linux tells the session of each process in /proc. macOS lists processes with ps(1), and getsid(2) tells the session.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from bridge.errors import BridgeError
from bridge.worker_link import WorkerLink

logger = logging.getLogger(__name__)

_PROC: Final = Path("/proc")
_PAUSE_SECONDS: Final = 0.02
"""Between looks at what is left. No system reports the end of a session."""
_TOLD_AFTER_SECONDS: Final = 5.0
"""The log says so when something cannot be ended for so long."""


_session_of: Final[Callable[[int], int]] = getattr(os, "getsid", lambda number: number)
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Windows, where no bridge has workers, has neither."""


@dataclass(eq=False)
class RunningWorker:
    """A worker that was started, as long as it is known to run."""

    number: int
    address: str
    process: subprocess.Popen[bytes]
    link: WorkerLink
    serves: bool = False
    fault: BridgeError | None = None
    """Why it could not start."""
    running: int | None = None
    """How many tasks it had when it was told to stop."""
    drained: bool = False
    answer: tuple[str, Any] | None = None
    """What it said of the plan that it was last asked to get ready for."""

    @property
    def why_ended(self) -> str:
        """Why it has ended."""
        if self.fault is not None:
            return str(self.fault)
        code = self.process.returncode
        return f"signal {-code} killed it" if code < 0 else f"it ended with exit code {code}"


def begun(command: Sequence[str], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """A new process as the leader of a session, with these descriptors."""
    return subprocess.Popen(  # noqa: S603 - the command is this program
        [*command, *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


async def end_whole(process: subprocess.Popen[bytes]) -> None:
    """Wait until a worker has ended, and end what is left of its session."""
    if sys.platform == "linux":
        # It stays a zombie meanwhile, so that its number goes to no other process.
        look = partial(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
        await end_session(process.pid)
        process.wait()
    else:
        await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        await end_session(process.pid)


async def end_session(leader: int) -> None:
    """End every process of a session, and wait until none is left."""
    since, is_told = anyio.current_time(), False
    while left := list(processes_of(leader)):
        for one in left:
            end_process(one)
        if not is_told and anyio.current_time() - since > _TOLD_AFTER_SECONDS:
            logger.warning("processes of worker process %d do not end: %s", leader, left)
            is_told = True
        await anyio.sleep(_PAUSE_SECONDS)


def end_process(number: int) -> None:
    """End a process at once, if it still runs."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(number, _KILL)


def processes_of(leader: int) -> Iterator[int]:
    """The processes of a session that have not ended."""
    if not (_PROC / "self" / "stat").exists():
        yield from _processes_listed(leader)
        return
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                # The name of the program, in parentheses, may hold anything: proc_pid_stat(5).
                state, _, _, session = (folder / "stat").read_text("latin-1").rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    yield int(folder.name)


def _processes_listed(leader: int) -> Iterator[int]:
    listed = subprocess.run(["/bin/ps", "-Ao", "pid=,stat="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        number, state = line.split()[:2]
        with suppress(OSError):
            if not state.startswith("Z") and _session_of(int(number)) == leader:
                yield int(number)


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder for the unix sockets of workers, which other users cannot enter. Paths of sockets must be short."""
    folder = Path(tempfile.mkdtemp(prefix="mcp-a2a-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lifeline() -> Iterator[int]:
    """The end of a pipe for workers. Its other end is closed when this process ends, however it does."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)
