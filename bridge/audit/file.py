"""Writes the chain of one process to its file, and survives what happens to a file: a full disk, a kill, a rotation.

A chain goes on from process to process, since each begins with the hash of the last line that it finds. Lines are only
added. What could not be written is counted in the next line. A fragment that a killed process or a full disk left at
the end stays, and the next line says how long it is, also where that line is the first of the next file.

Other programs may move the file, empty it after they have copied it (logrotate's `copytruncate`), or put another one in
its place. So before each line it is looked at what is there.

All methods wait for the disk; they are called in a thread.
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
"""Digits of the number in the name of a rotated file, so that names sort as numbers do."""

_TAIL_BYTES: Final = 4 * LINE_BYTES
"""What is read of the end of a file: a line and the fragments behind it."""

_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class AuditFile:
    """A file that this process alone adds lines to. Enter it before anything is written."""

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        """Open nothing yet. The file is rotated when it has grown beyond `rotate_bytes`."""
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
        """Own the file, and find the last line in it.

        Raises:
            UsageError: another process writes it, it is not an audit, or it cannot be opened or kept private.
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
                f"another bridge writes the audit {self.path}: stop that one, or give this one another file"
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
        """Write lines, all or none, and return their numbers. `lasting` ones are on the disk afterwards.

        `lost` is how many lines could not be written before, which the first one tells.

        Raises:
            AuditWriteError: they could not be written.
        """
        try:
            self._follow_the_name()
            self._notice_changes()
            if self._size >= self._rotate_bytes and not self._torn_bytes:  # a fragment is closed where it is
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
            self._take_back()
            raise
        self.head, self._size = batch.head, self._size + len(text)
        self._torn_bytes, self._lacks_end = 0, False
        return batch.numbers

    def _take_back(self) -> None:
        """Remove what was written of lines that are lost. What cannot be removed is a fragment, or a line."""
        with suppress(OSError):
            # Another program may have emptied the file meanwhile: to make it longer would fill it with zeros.
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
        """Go on in a file that another program has emptied, or added to. Nobody vouches for what it has added."""
        size = os.fstat(self._descriptor).st_size
        if size != self._size:
            self._size = size
            self._last_line()
            if size:  # what another program has taken away whole is in the copy that it made
                self._torn_bytes = 0

    def _follow_the_name(self) -> None:
        """Begin a new file when another program has moved or deleted this one."""
        with suppress(FileNotFoundError):
            if self._descriptor >= 0 and os.path.samestat(self.path.lstat(), os.fstat(self._descriptor)):
                return
        self._begin_file()

    def _rotate(self) -> None:
        """Give the file a name of its own, which no file has, and go on in a new one."""
        self._close()  # Windows renames no open file
        name = f"{self.path.name}.{self.head.seq:0{_SEQ_DIGITS}d}"
        names = (self.path.with_name(name if not again else f"{name}-{again}") for again in count())
        os.rename(self.path, next(path for path in names if not os.path.lexists(path)))
        self._begin_file()

    def _begin_file(self) -> None:
        """Go on in a new file. In one that another program has put there, the chain goes on as well."""
        self._close()
        self._take_up()
        self._size = os.fstat(self._descriptor).st_size
        if self._size:
            self._torn_bytes = self._last_line()[1]
        else:  # a fragment at the end of the file before is told here
            self._lacks_end = False

    def _take_up(self) -> None:
        """Open the file for its owner alone. It is in its folder afterwards, whatever happens to the machine."""
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
            self._take_up()
            self._size = os.fstat(self._descriptor).st_size
            last, self._torn_bytes = self._last_line()
            if last is None and self._size > LINE_BYTES:
                raise UsageError(f"{self.path} does not end as an audit does: give the audit another file")
            if last is None:
                self._go_on_from_a_moved_file()
            else:
                self.head = last.head
        except BaseException:
            self._close()
            raise

    def _last_line(self) -> tuple[AuditLine | None, int]:
        """The last whole line, and the bytes behind it that are none."""
        text = _tail_of(self.path)
        self._lacks_end = bool(text) and not text.endswith(b"\n")
        return _last_in(text)

    def _go_on_from_a_moved_file(self) -> None:
        """Go on behind the last line in the files beside, whoever moved them there, when this file has none.

        A process that was killed may have left a fragment there, too.
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
    """The head of a file, from its last whole line.

    Raises:
        NotALineError: none of its last lines is one of an audit.
        OSError: it cannot be read.
    """
    last, _ = _last_in(_tail_of(path))
    if last is None:
        raise NotALineError(f"{path} does not end as an audit does")
    return last.head


def _tail_of(path: Path) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
        return file.read()


def _last_in(text: bytes) -> tuple[AuditLine | None, int]:
    """The last whole line in the end of a file, and the bytes behind it that are none."""
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    for place in range(len(lines) - 1, -1, -1):
        with suppress(NotALineError):
            return line_from(lines[place]), len(b"\n".join(lines[place + 1 :]))
    return None, len(text)
