"""Keeps the bridge's files and folders private on a machine with other users, and reads files safely.

On POSIX, rights of other users are removed, or the path is refused. The group keeps its rights, because container
volumes are often shared with a group.

On Windows, mode bits say nothing: a file inherits the rights of its folder. Other users can read neither the user's
profile nor a folder that the bridge made (`os.mkdir` with 0o700 lets in only the user and administrators, from Python
3.11.10, 3.12.4 and 3.13 on). The rights of any other folder are unknown, so a warning is logged.

A path that the bridge is told to read may lead to a device, to a pipe without a writer, or to a file too large for
memory. So the bridge opens it without blocking, checks what the descriptor refers to, and reads up to a limit. It
changes the mode only of a regular file or folder that, by its descriptor, belongs to this user.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath
from typing import BinaryIO, Final, TypeVar
from uuid import uuid4

from bridge.errors import UsageError

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")

HAS_MODES: Final = sys.platform != "win32"
"""Whether this system has mode bits that say who may use a file."""

_own_id: Final[Callable[[], int]] = getattr(os, "geteuid", lambda: 0)
"""The id of this user; always 0 on Windows, where files have no such owner."""

change_mode: Final[Callable[[int, int], None]] = getattr(os, "fchmod", os.chmod)
"""Changes the mode of an open file."""

_A_FOLDER: Final = getattr(os, "O_DIRECTORY", 0)
_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Opens without blocking, even a pipe without a writer."""

CONFIG_BYTES: Final = 4 * 1024 * 1024
"""The largest configuration file, or file that it imports. TOML of that size takes some seconds to read."""
SECRET_BYTES: Final = 64 * 1024
"""The largest file with a secret: headers and keys are shorter."""
PEM_BYTES: Final = 4 * 1024 * 1024
"""The largest file with certificates: those of all public authorities take 0.3 MB."""
STATE_BYTES: Final = 64 * 1024 * 1024
"""The largest file that the bridge itself wrote, or in which a host keeps its servers."""

_OTHERS: Final = 0o007
_OTHERS_WRITE: Final = 0o002

_TRIES: Final = 6
_PAUSE_SECONDS: Final = 0.01
"""The pause between tries. Another bridge takes less time to read or replace one of these small files."""


def private_folder(folder: Path, *, has_modes: bool = HAS_MODES) -> None:
    """Make a folder that only its owner can use; if it exists, remove the right of other users to write to it.

    A sticky folder such as /tmp stays as it is: other users can only make files of their own there. On Windows, a
    folder outside the user's profile stays as it is, too, and a warning is logged.

    Raises:
        UsageError: other users can write to the folder, and this process may not change its mode.
        OSError: the folder cannot be made.
    """
    if not has_modes and folder.exists() and (doubt := doubt_of(folder, Path.home())) is not None:
        logger.warning("%s", doubt)
    _make(folder, has_modes=has_modes)


def _make(folder: Path, *, has_modes: bool = HAS_MODES) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not has_modes or not _is_open_folder(folder.stat()):
        return
    descriptor = os.open(folder, os.O_RDONLY | _A_FOLDER)
    try:
        if _is_open_folder(status := os.fstat(descriptor)):
            _take_away(folder, descriptor, status, _OTHERS_WRITE, "write to")
    finally:
        os.close(descriptor)


def _is_open_folder(status: os.stat_result) -> bool:
    return bool(status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX)


def private_file(file: Path) -> None:
    """Remove the rights of other users to read and write a file. Skips a missing file, and anything that is not a
    regular file, such as a device.

    Raises:
        UsageError: other users have rights, and the file is not this user's or this process may not change the mode; or
            the file belongs to another user, in a folder that everyone can write to.
        OSError: the file cannot be inspected.
    """
    if not HAS_MODES:
        return
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(file.stat().st_mode):  # opening a device may act: a tape drive winds
            return
        try:
            descriptor = os.open(file, os.O_RDONLY | _AT_ONCE)
        except PermissionError:  # its owner may only write it
            descriptor = os.open(file, os.O_WRONLY | _AT_ONCE)
        try:
            status = os.fstat(descriptor)
            require_not_planted(file, status)
            if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS:
                _take_away(file, descriptor, status, _OTHERS, "read")
        finally:
            os.close(descriptor)


def require_not_planted(file: Path, status: os.stat_result) -> None:
    """Refuse a file that another user may have put where the bridge expects its own file.

    Raises:
        UsageError: it belongs to another user, in a folder that everyone can write to.
        OSError: the folder cannot be inspected.
    """
    if HAS_MODES and status.st_uid not in (_own_id(), 0) and file.parent.stat().st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"{file} belongs to another user, in a folder that everyone can write to: use another file"
        )


def open_regular(file: Path) -> int:
    """Open a regular file for reading, without blocking; return its descriptor.

    Raises:
        OSError: it cannot be opened, or it is a device, a pipe or the like.
    """
    descriptor = os.open(file, os.O_RDONLY | _AT_ONCE | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not stat.S_ISREG(mode):
            raise OSError(
                errno.EINVAL, "it is not a regular file, but a device, a pipe or the like", str(file)
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(file: Path, most_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it cannot be read, it is a device, a pipe or the like, or it is larger than `most_bytes`.
    """
    with os.fdopen(open_regular(file), "rb") as opened:
        return _bounded(opened, file, most_bytes)


def read_secret(file: Path, most_bytes: int = SECRET_BYTES) -> tuple[bytes, os.stat_result]:
    """The content of a regular file that holds a secret, and the file's stat result.

    Raises:
        UsageError: another user may have planted the file, see `require_not_planted`.
        OSError: as `read_regular` does.
    """
    with os.fdopen(open_regular(file), "rb") as opened:
        status = os.fstat(opened.fileno())
        require_not_planted(file, status)
        return _bounded(opened, file, most_bytes), status


def _bounded(opened: BinaryIO, file: Path, most_bytes: int) -> bytes:
    content = opened.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(
            errno.EFBIG, f"it is larger than {most_bytes:,} bytes, the most that is read", str(file)
        )
    return content


def require_writable(file: Path) -> None:
    """Refuse a file that this process could not create or write, without changing anything.

    Raises:
        OSError: the path is a folder, its parent is not a folder, or rights are missing.
    """
    there = next(path for path in (file, *file.absolute().parents) if path.exists())
    if there == file and file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if there != file and not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    wanted = (
        {there: os.W_OK | os.X_OK}
        if there != file
        else {file.parent: os.W_OK | os.X_OK, file: os.R_OK | os.W_OK}
    )
    for path, rights in wanted.items():
        if not os.access(path, rights):
            raise PermissionError(errno.EACCES, "no permission to write there", str(path))


def keep_private(file: Path, descriptor: int) -> None:
    """Remove the rights of other users to read and write an open file, which its creator may have granted.

    Raises:
        OSError: this process may not change the file's mode, or the file belongs to another user.
    """
    if not HAS_MODES:
        return
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS:
        if status.st_uid != _own_id():
            raise PermissionError(
                errno.EPERM, "others can read it, and it belongs to another user", str(file)
            )
        mode = stat.S_IMODE(status.st_mode) & ~_OTHERS
        change_mode(descriptor, mode)
        logger.warning("everyone on this machine could read %s; its mode is %o from now on", file, mode)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that no file loses its name when the machine crashes.

    Windows has no such call: its file systems write entries before an operation returns.

    Raises:
        OSError: the entries could not be written.
    """
    if not HAS_MODES:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such call
            raise
    finally:
        os.close(descriptor)


def may_others_use(status: os.stat_result, *, has_modes: bool = HAS_MODES) -> bool:
    """Whether the mode of a file gives rights to other users; False on Windows, where modes say nothing."""
    return has_modes and bool(status.st_mode & _OTHERS)


def doubt_of(folder: PurePath, home: PurePath) -> str | None:
    """Why other users may be able to read the files in a folder; None inside the user's profile."""
    if folder.is_relative_to(home):
        return None
    return f"other users may be able to read files in {folder}; only {home} is certainly private"


def _take_away(path: Path, descriptor: int, status: os.stat_result, rights: int, verb: str) -> None:
    mode = stat.S_IMODE(status.st_mode) & ~rights
    words = f"everyone on this machine can {verb} {path}: chmod it to {mode:o}"
    if status.st_uid != _own_id():
        raise UsageError(f"{words}. It belongs to another user, so the bridge leaves it as it is")
    try:
        change_mode(descriptor, mode)
    except OSError as exc:
        raise UsageError(words) from exc
    logger.warning("everyone on this machine could %s %s; its mode is %o from now on", verb, path, mode)


def write_privately(file: Path, text: bytes, *, lasting: bool = False) -> None:
    """Write a file that only its owner can read, completely or not at all. With `lasting`, the content is on the disk
    afterwards.

    Raises:
        UsageError: as `private_folder` does.
        OSError: the file cannot be written.
    """
    _make(file.parent)
    write_whole(file, text, mode=0o600, lasting=lasting)


def write_whole(file: Path, text: bytes, *, mode: int, lasting: bool = False) -> None:
    """Write a file with these rights, completely or not at all. A link in its place is replaced, and not followed. With
    `lasting`, the content is on the disk afterwards.

    Raises:
        OSError: the file cannot be written.
    """
    # An unpredictable name, opened exclusively: no link is followed, and no file is overwritten.
    beside = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(text)
            if lasting:
                out.flush()
                os.fsync(out.fileno())
        patiently(lambda: beside.replace(file))
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def patiently(action: Callable[[], _Made]) -> _Made:
    """Run an action on a file, and try again while another program has the file open: Windows refuses the action until
    the program closes it.

    Raises:
        OSError: no try succeeded.
    """
    for _ in range(_TRIES - 1):
        try:
            return action()
        except PermissionError:
            time.sleep(_PAUSE_SECONDS)
    return action()
