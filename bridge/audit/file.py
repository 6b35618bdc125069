"""Writes the chain of a process to its file, and survives a full disk, a kill and a rotation of the file.

The chain continues across processes: each process begins with the hash of the last line that it finds. Lines are only
added. The next line counts lines that could not be written. A fragment that a killed process or a full disk left at the
end stays, and the next line reports its length, also if that line is the first of the next file.

Other programs may move the file, copy and then truncate it (logrotate's `copytruncate`), or replace it. So the file is
checked before each write.

All methods wait for the disk; call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from glob import escape
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bridge.audit.batch import AuditWriteError, sealed_batch
from bridge.audit.chain import LINE_BYTES, AuditLine, ChainHead, NotALineError, line_from
from bridge.errors import StoreLockedError, UsageError
from bridge.local.file_lock import LOCK_ENDING, own_file
from bridge.local.private_files import keep_private, open_regular, private_file, private_folder, sync_folder
from bridge.text.jsonvalues import JsonObject

_OPEN: Final = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_SEQ_DIGITS: Final = 12
"""The digits of the number in the name of a rotated file, so that the names sort by number."""

_TAIL_BYTES: Final = 4 * LINE_BYTES
"""The bytes that are read from the end of a file: a line and the fragments after it."""

_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class AuditFile:
    """An audit file to which only this process adds lines. Enter it before writing."""

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        """Open nothing yet. The file is rotated when it has reached `rotate_bytes`."""
        self.path = path
        self._rotate_bytes = rotate_bytes
        self._stack = ExitStack()
        self._descriptor = -1
        self._size = 0
        self._torn_bytes = 0
        self._lacks_end = False
        self.head = ChainHead()
        """The last line that was written."""

    def __enter__(self) -> Self:
        """Lock the file, and find its last line.

        Raises:
            UsageError: another process writes the file, it is not an audit, or it cannot be opened or kept private.
        """
        try:
            private_folder(self.path.parent)
            lock = self.path.with_name(f"{self.path.name}{LOCK_ENDING}")
            self._stack.enter_context(own_file(lock))
            private_file(self.path)
            self._open()
        except StoreLockedError as exc:
            self._stack.close()
            raise UsageError(
                f"another bridge writes the audit {self.path}: stop that bridge, or name another file"
            ) from exc
        except OSError as exc:
            self._stack.close()
            raise UsageError(f"the audit {self.path} cannot be opened: {exc.strerror}") from exc
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self._close()

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        """Write all lines or none, and return their numbers. With `lasting` they are on the disk afterwards.

        `lost` is the number of lines that could not be written before. The first line reports it.

        Raises:
            AuditWriteError: the lines could not be written.
        """
        try:
            self._follow_rename()
            self._notice_changes()
            # The line after a fragment goes into the same file.
            if self._size >= self._rotate_bytes and not self._torn_bytes:
                self._rotate()
            return self._write(entries, lasting=lasting, lost=lost)
        except OSError as exc:
            raise AuditWriteError(f"the audit {self.path} cannot be written: {exc.strerror}") from exc

    def _write(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int) -> list[int]:
        batch = sealed_batch(entries, self.head, lost=lost, torn_bytes=self._torn_bytes)
        text = batch.text(after_fragment=self._lacks_end)
        try:
            written = 0
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
            if lasting:
                _sync(self._descriptor)
        except OSError:
            self._undo_write()
            raise
        self.head, self._size = batch.head, self._size + len(text)
        self._torn_bytes, self._lacks_end = 0, False
        return batch.numbers

    def _undo_write(self) -> None:
        """Remove the bytes of a failed write. Bytes that cannot be removed are a fragment, or complete lines."""
        with suppress(OSError):
            # Another program may have truncated the file meanwhile: ftruncate would extend it with zeros.
            if os.fstat(self._descriptor).st_size > self._size:
                os.ftruncate(self._descriptor, self._size)
        with suppress(OSError):
            size = os.fstat(self._descriptor).st_size
            if size == self._size:
                return
            self._size = size
            last, self._torn_bytes = self._last_line()
            if last is not None and last.head.seq > self.head.seq:
                self.head = last.head

    def _notice_changes(self) -> None:
        """Continue in a file that another program has truncated or appended to. The chain does not cover the lines of
        the other program."""
        size = os.fstat(self._descriptor).st_size
        if size != self._size:
            self._size = size
            self._last_line()
            if size:  # an emptied file was copied before, and the copy holds the fragment
                self._torn_bytes = 0

    def _follow_rename(self) -> None:
        """Begin a new file when another program has moved or deleted this one."""
        with suppress(FileNotFoundError):
            if self._descriptor >= 0 and os.path.samestat(self.path.lstat(), os.fstat(self._descriptor)):
                return
        self._begin_file()

    def _rotate(self) -> None:
        """Rename the file to a new name, and continue in a new file."""
        self._close()  # Windows renames no open file
        name = f"{self.path.name}.{self.head.seq:0{_SEQ_DIGITS}d}"
        names = (self.path.with_name(name if not again else f"{name}-{again}") for again in count())
        os.rename(self.path, next(path for path in names if not os.path.lexists(path)))
        self._begin_file()

    def _begin_file(self) -> None:
        """Continue the chain in a new file, or in a file that another program has put there."""
        self._close()
        self._open_private()
        self._size = os.fstat(self._descriptor).st_size
        if self._size:
            self._torn_bytes = self._last_line()[1]
        else:  # the first line here reports a fragment at the end of the file before
            self._lacks_end = False

    def _open_private(self) -> None:
        """Open the file with access for its owner only. Afterwards it survives a crash of the machine."""
        self._descriptor = os.open(self.path, _OPEN, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise OSError(
                    errno.EINVAL,
                    "it is not a file; the audit is a file, or - for standard output",
                    str(self.path),
                )
            keep_private(self.path, self._descriptor)
            sync_folder(self.path.parent)
        except BaseException:
            self._close()
            raise

    def _open(self) -> None:
        try:
            self._open_private()
            self._size = os.fstat(self._descriptor).st_size
            last, self._torn_bytes = self._last_line()
            if last is None and self._size > LINE_BYTES:
                raise UsageError(
                    f"{self.path} does not end with a line of an audit: name another file for the audit"
                )
            if last is None:
                self._continue_rotated_chain()
            else:
                self.head = last.head
        except BaseException:
            self._close()
            raise

    def _last_line(self) -> tuple[AuditLine | None, int]:
        """The last complete line, and the number of bytes after it that are no line."""
        text = _tail_of(self.path)
        self._lacks_end = bool(text) and not text.endswith(b"\n")
        return _last_in(text)

    def _continue_rotated_chain(self) -> None:
        """Continue after the last line of the rotated files beside, because this file has no line.

        They may also end with the fragment of a killed process.
        """
        for path in self.path.parent.glob(f"{escape(self.path.name)}[-._]*"):
            with suppress(OSError):
                last, torn_bytes = _last_in(_tail_of(path)) if path.is_file() else (None, 0)
                if last is not None and last.head.seq > self.head.seq:
                    self.head = last.head
                    self._torn_bytes = torn_bytes if not self._size else self._torn_bytes

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def last_head(path: Path) -> ChainHead:
    """The head of the chain in a file, from its last complete line.

    Raises:
        NotALineError: none of the last lines belongs to an audit.
        OSError: the file cannot be read.
    """
    last, _ = _last_in(_tail_of(path))
    if last is None:
        raise NotALineError(f"{path} does not end with a line of an audit")
    return last.head


def _tail_of(path: Path) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
        return file.read()


def _last_in(text: bytes) -> tuple[AuditLine | None, int]:
    """The last complete line in the tail of a file, and the number of bytes after it that are no line."""
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    for place in range(len(lines) - 1, -1, -1):
        with suppress(NotALineError):
            return line_from(lines[place]), len(b"\n".join(lines[place + 1 :]))
    return None, len(text)
