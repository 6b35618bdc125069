"""How a file is seen to have changed, without reading it."""

from __future__ import annotations

from pathlib import Path

FileStamp = tuple[int, int, int, int] | None
"""The times of the last change of its content and of its state, its size and its number; None for a missing file."""


def file_stamp(file: Path) -> FileStamp:
    """The stamp of a file, which differs from an earlier one if the file may have changed: what is in it, which file it
    is, or who may read it."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
