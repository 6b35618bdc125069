"""One owner per file: a lock of the operating system, held as long as its holder lives.

It knows how each system locks a file. It never waits, and it never looks at process ids: the kernel lets go
when the holder dies, however it dies, so that a stale lock cannot exist.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bridge.errors import StoreLockedError

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Own a file for the length of the block, by a lock on its sibling `<file>.mcp-a2a-lock`.

    The sibling is left behind: deleting it would let two owners hold locks on two files of one name.
    Raises StoreLockedError when someone else owns the file, OSError when the sibling cannot be opened.
    """
    descriptor = os.open(f"{path}.mcp-a2a-lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            _take(descriptor)
        except (BlockingIOError, PermissionError) as exc:
            raise StoreLockedError(
                f"{path} is in use by another bridge: stop that one, or give this one a store of its own"
            ) from exc
        yield
    finally:
        os.close(descriptor)
