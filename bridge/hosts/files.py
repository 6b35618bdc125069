"""Reads and writes a host's file: atomically, with a backup, and never over a change by another program.

A host's file may hold secrets, so only its owner can read a backup, or a new file of the user. A symbolic link stays:
the file that it leads to is written.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from bridge.errors import UsageError
from bridge.local.private_files import HAS_MODES, STATE_BYTES, change_mode, patiently, read_regular

_OWNER_ONLY: Final = 0o600
_SHARED: Final = 0o644
_BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark with which some Windows editors begin a file."""

MOST_BACKUPS: Final = 5
"""The most backups of a file. The oldest are deleted first."""

_STAMP: Final = re.compile(r"\.(\d{8}T\d{6})(?:-(\d+))?\.bak")
"""The end of a backup's name: the time of the backup, and a number if there are several in the same second."""


@dataclass(frozen=True)
class HostFile:
    """A host's file at the time of reading. A missing file has no content."""

    path: Path
    content: bytes | None

    @property
    def text(self) -> str:
        """The text of the file.

        Raises:
            UsageError: the file is not UTF-8.
        """
        try:
            return (self.content or b"").removeprefix(_BOM).decode()
        except UnicodeDecodeError as exc:
            raise UsageError(f"{self.path} is not UTF-8 (byte {exc.start}): nothing was written") from exc


def read(path: Path) -> HostFile:
    """Read a host's file.

    Raises:
        UsageError: the file exists and cannot be read.
    """
    return HostFile(path, _content_of(path))


def write(file: HostFile, text: str, now: datetime, *, shared: bool = False) -> Path | None:
    """Replace the text of a file; return the path of the backup, or None if there was no file.

    At most `MOST_BACKUPS` backups of the file are kept.

    Args:
        now: the time in the backup's name.
        shared: whether other users may read a new file. An existing file keeps its permissions.

    Raises:
        UsageError: the folder cannot be written, or the file has changed since it was read.
    """
    target = file.path.resolve()
    bom = _BOM if (file.content or b"").startswith(_BOM) else b""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode_of(target, _SHARED if shared else _OWNER_ONLY)
        written = _write_beside(target, bom + text.encode(), mode)
        try:
            if _content_of(file.path) != file.content:
                raise UsageError(
                    f"{file.path} has just been changed by another program: nothing was written, try again"
                )
            backup = _back_up(target, file.content, now) if file.content is not None else None
            patiently(lambda: written.replace(target))
            _forget_old_backups(target)
        finally:
            written.unlink(missing_ok=True)
    except OSError as exc:
        raise UsageError(f"cannot write {file.path}: {exc.strerror or exc}") from exc
    return backup


def _content_of(path: Path) -> bytes | None:
    try:
        return read_regular(path, STATE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror or exc}") from exc


def _mode_of(path: Path, otherwise: int) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return otherwise


def _back_up(target: Path, content: bytes, now: datetime) -> Path:
    """Write a backup with a new name: `mcp.json.20260301T120000.bak`, then `...-2.bak`."""
    stamp, count = now.strftime("%Y%m%dT%H%M%S"), 1
    while True:
        backup = target.with_name(f"{target.name}.{stamp}{f'-{count}' if count > 1 else ''}.bak")
        try:
            handle = os.open(
                backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _OWNER_ONLY
            )
        except FileExistsError:
            count += 1
            continue
        with open(handle, "wb") as stream:
            stream.write(content)
        return backup


def _forget_old_backups(target: Path) -> None:
    """Delete all but the newest backups of this file."""
    backups: list[tuple[str, int, Path]] = []
    for path in target.parent.iterdir():
        stamp = _STAMP.fullmatch(path.name.removeprefix(target.name))
        if stamp is not None and path.name.startswith(target.name):
            backups.append((stamp[1], int(stamp[2] or 1), path))
    for _, _, path in sorted(backups)[:-MOST_BACKUPS]:
        with suppress(OSError):
            path.unlink()


def _write_beside(target: Path, content: bytes, mode: int) -> Path:
    """Write the new content to a temporary file in the same folder, so that a rename can replace the target."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".new")
    written = Path(name)
    try:
        with open(handle, "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
            if HAS_MODES:
                change_mode(new.fileno(), mode)
    except BaseException:
        with suppress(OSError):
            written.unlink()
        raise
    return written
