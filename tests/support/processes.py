"""The processes below this one, as Linux tells it in /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import anyio

PROC = Path("/proc")


def children_of(pid: int | None = None) -> dict[int, str]:
    """The children of a process (by default this one) that still run: pid to command line."""
    parent = pid or os.getpid()
    found: dict[int, str] = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state not in ("Z", "X"):
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                found[int(folder.name)] = " ".join(words).strip()
    return found


def children_with(word: str, pid: int | None = None) -> list[int]:
    """The children of a process whose command line contains a word, oldest first."""
    return sorted(child for child, command in children_of(pid).items() if word in command)


def is_running(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def gone(*pids: int, within_seconds: float = 10) -> None:
    """Wait until processes have ended that are not children of this one, so that nothing tells when."""
    with anyio.fail_after(within_seconds):
        while any(is_running(pid) for pid in pids):
            await anyio.sleep(0.01)
