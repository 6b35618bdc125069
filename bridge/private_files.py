"""Files and folders of ours on a machine with other users: what others may do to them is taken away, or refused.

It knows modes and owners. The group may read and write: volumes of containers are often shared with one.
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
    """Make a folder for its owner alone, or see to it that others cannot write to the one that is there.

    A folder in which others can only make files of their own, as /tmp is, is left as it is.
    Raises UsageError when others can write to it and this process may not change that, OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if os.name == "posix" and found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        _take_away(folder, found, _OTHERS_WRITE, "write to")


def private_file(file: Path) -> None:
    """See to it that others can neither read nor write a file; one that is not there is nobody's.

    Raises UsageError when they can and this process may not change that, or when it is another user's, in a folder
    that everyone may write to; OSError.
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
    """Keep a text in a file: whole or not at all, and for its owner's eyes.

    Raises UsageError as `private_folder` does, OSError.
    """
    private_folder(file.parent)
    # A name that nobody can foresee, and exclusively: nothing that lies there is followed or written over.
    beside = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(text)
        beside.replace(file)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
