"""Keeps the bridge's files and folders private on a machine with other users.

Rights of other users are removed, or the path is refused. The group keeps its rights, because container volumes are
often shared with a group.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from bridge.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_OTHERS: Final = 0o007
_OTHERS_WRITE: Final = 0o002


def private_folder(folder: Path) -> None:
    """Make a folder for its owner alone; if it exists, remove the right of other users to write to it.

    A sticky folder such as /tmp stays as it is: other users can only make files of their own there.

    Raises:
        UsageError: other users can write to the folder, and this process may not change its mode.
        OSError: the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if os.name == "posix" and found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        _take_away(folder, found, _OTHERS_WRITE, "write to")


def private_file(file: Path) -> None:
    """Remove the rights of other users to read and write a file. A missing file is passed over.

    Raises:
        UsageError: other users have rights, and this process may not change the mode; or the file belongs to another
            user, in a folder that everyone may write to.
        OSError: the file cannot be looked at.
    """
    if os.name != "posix" or not file.exists():
        return
    found = file.stat()
    if found.st_uid not in (os.geteuid(), 0) and file.parent.stat().st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"{file} belongs to another user, in a folder that everyone can write to: name another"
        )
    if found.st_mode & _OTHERS:
        _take_away(file, found, _OTHERS, "read")


def _take_away(path: Path, found: os.stat_result, rights: int, verb: str) -> None:
    mode = stat.S_IMODE(found.st_mode) & ~rights
    try:
        path.chmod(mode)
    except OSError as exc:
        raise UsageError(f"everyone on this machine can {verb} {path}: chmod it to {mode:o}") from exc
    logger.warning("everyone on this machine could %s %s; its mode is %o from now on", verb, path, mode)


def write_privately(file: Path, text: bytes) -> None:
    """Write a file that only its owner can read: completely or not at all.

    Raises:
        UsageError: as `private_folder` does.
        OSError: the file cannot be written.
    """
    private_folder(file.parent)
    # An unpredictable name, opened exclusively: no link is followed, and no file is overwritten.
    beside = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(text)
        beside.replace(file)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
