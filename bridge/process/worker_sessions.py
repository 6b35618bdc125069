"""Finds and ends what a worker has left behind: the processes of its session.

A worker is the leader of a session of its own, and the tool servers that it starts stay in that session, each with a
process group of its own. So the supervisor finds them by the number of the dead worker, however it died and whatever
it was about to say. A process leaves a session only on purpose.

Linux tells the session of each process in /proc. macOS lists processes with ps(1), and getsid(2) tells the session.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

logger = logging.getLogger(__name__)

_PROC: Final = Path("/proc")
_PAUSE_SECONDS: Final = 0.02
"""Between looks at what is left. No system reports the end of a session."""
_TOLD_AFTER_SECONDS: Final = 5.0
"""The log says so when something cannot be ended for so long."""


_session_of: Final[Callable[[int], int]] = getattr(os, "getsid", lambda number: number)
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Windows, where no bridge has workers, has neither."""


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
