"""Notices that a file has changed, without reading it."""

from __future__ import annotations

from pathlib import Path

FileStamp = tuple[int, int, int, int] | None
"""The file's modification time, change time, size and inode number; None for a missing file."""


def file_stamp(file: Path) -> FileStamp:
    """The stamp of a file. It differs from an earlier stamp if the content, the file behind the name, or its
    permissions may have changed."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
