"""A small file system that a test may fill up, and what fills it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoSmallDiskError(Exception):
    """No small file system can be mounted here; `str()` of it says why."""


class SmallDisk:
    """A file system that is mounted, and a file on it that leaves so much room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, room_bytes: int) -> None:
        """Take all room but this."""
        free = os.statvfs(self.folder)
        self._filler.write_bytes(bytes(max(free.f_bavail * free.f_frsize - room_bytes, 0)))

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount a file system of so many bytes on an empty folder.

    Raises:
        NoSmallDiskError: this is not Linux, or not root.
    """
    if sys.platform != "linux":
        raise NoSmallDiskError("a small file system is mounted on Linux only")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False)
    except OSError as exc:
        raise NoSmallDiskError(f"mount cannot be run: {exc}") from exc
    if mounted.returncode:
        raise NoSmallDiskError("only root may mount a small file system")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
