"""Gives a file one owner, by a lock of the operating system, and notices when the file is lost.

This module knows how each system locks a file. It never waits, and it never looks at process ids: the kernel releases
the lock however its holder dies, so no lock is ever stale.

On Linux the lock is on the file itself, so a second owner cannot get in by another name of the file or by deleting a
lock file. On macOS and the BSDs, flock and fcntl locks conflict: an flock belongs to the open file and an fcntl lock to
the process, so an flock on the database would lock out SQLite in this very process (flock(2) of FreeBSD: use one of
them within a process; `lf_getblock` of XNU and FreeBSD compare owners, not kinds). On these systems and on Windows, the
lock is on a sibling file.

A process loses all its POSIX locks on a file once it closes *any* descriptor of the file, and SQLite uses POSIX locks.
So this module keeps one descriptor, opened before SQLite opens the file and closed after SQLite's last connection.
Checks in between use the file's name or that descriptor. Nothing else may open the file.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from bridge.errors import StoreLockedError, UsageError
from bridge.local.private_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC: Final = b"SQLite format 3\0"
"""The first bytes of a database (https://www.sqlite.org/fileformat.html, 1.3)."""

LOCK_ENDING: Final = ".mcp-a2a-lock"
"""The ending of the sibling file's name."""

_OPEN: Final = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_DESCRIPTORS: Final = "/proc/self/fd"
_LOCKS_THE_FILE: Final = sys.platform.startswith("linux")
"""Whether an flock on the file leaves SQLite's own locks alone."""


class OwnedFile:
    """A file that this process owns. From its first commit on, the file is an SQLite database."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._names = os.fspath(path), f"{path}-wal"
        self._descriptor = descriptor
        self._inode = _inode(os.fstat(descriptor))
        self._log: tuple[int, int] | None = None
        self._size_bytes = 0

    def loss(self) -> str | None:
        """How the file was lost, in words; None while it is still the file that was opened.

        Call this while no checkpoint can run. The file must never shrink, so never vacuum it.
        """
        try:
            status, log_status = (os.lstat(name) for name in self._names)
        except FileNotFoundError as exc:
            return f"{exc.filename} was deleted or moved"
        except OSError as exc:
            return f"{exc.filename} cannot be inspected: {exc.strerror}"
        if _inode(status) != self._inode:
            return "another file has taken its place"
        log = _inode(log_status)
        if self._log not in (None, log):
            return "another file has taken the place of its log"
        if status.st_size < self._size_bytes:
            return "it was cut short"
        # SQLite's lock keeps others from reading on Windows, and from writing as well.
        if hasattr(os, "pread") and os.pread(self._descriptor, len(MAGIC), 0) != MAGIC:
            return "its beginning was overwritten"
        self._log, self._size_bytes = log, status.st_size
        return None


def is_database(path: Path) -> bool:
    """Whether a file begins like an SQLite database. Only call this before this process opens the database."""
    with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
    return False


@contextmanager
def own_file(path: Path, *, locks_the_file: bool = _LOCKS_THE_FILE) -> Iterator[OwnedFile]:
    """Own a file while the context is open. A missing file is created, readable by its owner only.

    Raises:
        StoreLockedError: another process owns the file.
        UsageError: the file is a symbolic link.
        OSError: the file cannot be opened.
    """
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link: name the file that it leads to, {path.readlink()}")
    with ExitStack() as stack:
        # Find out who owns the file before closing a descriptor of it: closing one would release SQLite's locks.
        if not locks_the_file:
            # The sibling is never deleted: otherwise two owners could lock two different files of the same name.
            _take_or_refuse(path, stack.enter_context(_opened(path.with_name(f"{path.name}{LOCK_ENDING}"))))
        elif _is_open_here(path):
            raise _in_use(path)
        descriptor = stack.enter_context(_opened(path))
        if locks_the_file:
            _take_or_refuse(path, descriptor)
        yield OwnedFile(path, descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, _OPEN, 0o600)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise UsageError(f"{path} is a symbolic link: name the file that it leads to") from exc
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is not a regular file, but a device, a pipe or the like")
        yield descriptor
    finally:
        os.close(descriptor)


def _take_or_refuse(path: Path, descriptor: int) -> None:
    try:
        _take(descriptor)
    except (BlockingIOError, PermissionError) as exc:
        raise _in_use(path) from exc


def _take(descriptor: int) -> None:
    """Lock a file, or raise at once."""
    # Each of these modules exists on one kind of system only.
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _in_use(path: Path) -> StoreLockedError:
    return StoreLockedError(
        f"{path} is in use by another bridge: stop the other bridge, or give this bridge its own store"
    )


def _is_open_here(path: Path) -> bool:
    """Whether this process has the file open, under any name; False on systems that do not tell."""
    with suppress(OSError):
        wanted = _inode(path.stat())
        for name in os.listdir(_DESCRIPTORS):
            with suppress(OSError):
                if _inode(os.stat(f"{_DESCRIPTORS}/{name}")) == wanted:
                    return True
    return False


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
