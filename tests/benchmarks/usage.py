"""What Linux says about a process: its CPU time, its memory, and how many files it may open."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bridge.process.resources import raise_descriptors

_CLOCK_OF_A_PROCESS: Final = 2
"""CPUCLOCK_SCHED, as `clock_getcpuclockid` builds it into the clock of a pid."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, ended ones too, and without its children.

    What /proc/PID/stat says in steps of 10 ms, in nanoseconds.
    """
    return time.clock_gettime((~pid << 3) | _CLOCK_OF_A_PROCESS)


def rss_bytes(pid: int) -> int:
    """What a process has in memory."""
    return _memory(pid, "VmRSS:")


def peak_rss_bytes(pid: int) -> int:
    """The most that a process had in memory since it began, or since `forget_peak`."""
    return _memory(pid, "VmHWM:")


def forget_peak(pid: int) -> None:
    """Begin the peak of a process anew, with what it has in memory now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory: it has ended")


def raise_open_files() -> int:
    """Let this process and those that it starts open as many files as the system allows; how many that is."""
    return raise_descriptors()
