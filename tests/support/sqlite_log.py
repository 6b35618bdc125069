"""The write-ahead log of a SQLite file: how many transactions and pages were written since the log began anew.

A page in the log is a frame: a header of 24 bytes, and the page. The header of the last page of a transaction has the
size of the file (https://www.sqlite.org/fileformat.html, 4.1).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24


class WrittenLog(NamedTuple):
    """What a log holds."""

    commits: int
    frames: int
    """The pages of these transactions. A page that two transactions changed counts twice."""


def log_of(path: Path) -> WrittenLog:
    """The log of the SQLite file at a path."""
    log = path.with_name(f"{path.name}-wal").read_bytes()
    page_bytes, salt = int.from_bytes(log[8:12]), log[16:24]
    ends = []
    for start in range(_HEADER_BYTES, len(log), _FRAME_HEADER_BYTES + page_bytes):
        _, size_after, frame_salt = struct.unpack_from(">II8s", log, start)
        if frame_salt != salt:  # the rest of an older log
            break
        ends.append(size_after > 0)
    return WrittenLog(sum(ends), len(ends))
