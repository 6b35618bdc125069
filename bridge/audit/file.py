"""Writes the chain of one process to its file, and survives what happens to a file: a full disk, a kill, a rotation.

A chain goes on from process to process, since each begins with the hash of the last line that it finds. Lines are only
added. What could not be written is counted in the next line. A fragment that a killed process or a full disk left at
the end stays, and the next line says how long it is.

All methods wait for the disk; they are called in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bridge.audit.chain import LINE_BYTES, AuditLine, ChainHead, NotALineError, line_from, sealed
from bridge.errors import OwnError, StoreLockedError, UsageError
from bridge.jsonvalues import JsonObject
from bridge.private_files import private_file, private_folder
from bridge.store.lock import LOCK_ENDING, own_file

STANDARD_OUTPUT: Final = "-"

_OPEN: Final = (
    os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
_SEQ_DIGITS: Final = 12
"""Digits of the number in the name of a rotated file, so that names sort as numbers do."""

_TAIL_BYTES: Final = 4 * LINE_BYTES
"""What is read of the end of a file: a line and the fragments behind it."""

_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class AuditWriteError(OwnError):
    """Lines could not be written."""


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
            if self._size >= self._rotate_bytes:
                self._rotate()
            return self._write(list(self._marked(entries, lost)), lasting=lasting)
        except OSError as exc:
            raise AuditWriteError(f"the audit {self.path} cannot be written: {exc.strerror}") from exc

    def _write(self, entries: Sequence[JsonObject], *, lasting: bool) -> list[int]:
        head, numbers, lines = self.head, [], []
        for one in entries:
            line, head = sealed(one, head)
            numbers.append(head.seq)
            lines.append(line + b"\n")
        text = (b"\n" if self._lacks_end else b"") + b"".join(lines)
        try:
            _write_all(self._descriptor, text)
            if lasting:
                _sync(self._descriptor)
        except OSError:
            self._take_back()
            raise
        self.head, self._size = head, self._size + len(text)
        self._torn_bytes, self._lacks_end = 0, False
        return numbers

    def _marked(self, entries: Sequence[JsonObject], lost: int) -> Iterator[JsonObject]:
        """The entries, the first of which tells what was lost before it."""
        told = {"lost": lost, "torn_bytes": self._torn_bytes}
        marks: JsonObject = {name: count for name, count in told.items() if count}
        for one in entries:
            yield {**one, **marks}
            marks = {}

    def _take_back(self) -> None:
        """Remove what was written of lines that are lost. What cannot be removed is a fragment."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
        with suppress(OSError):
            self._size = os.fstat(self._descriptor).st_size
            self._torn_bytes = self._last_line()[1]

    def _follow_the_name(self) -> None:
        """Begin a new file when another program has moved or deleted this one."""
        with suppress(FileNotFoundError):
            if self._descriptor >= 0 and os.path.samestat(self.path.lstat(), os.fstat(self._descriptor)):
                return
        self._begin_file()

    def _rotate(self) -> None:
        """Give the file a name of its own, and go on in a new one."""
        self._close()  # Windows renames no open file
        os.replace(self.path, self.path.with_name(f"{self.path.name}.{self.head.seq:0{_SEQ_DIGITS}d}"))
        self._begin_file()

    def _begin_file(self) -> None:
        """Go on in a new file. In one that another program has put there, the chain goes on as well."""
        self._close()
        self._descriptor = os.open(self.path, _OPEN, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        self._torn_bytes = self._last_line()[1]

    def _open(self) -> None:
        self._descriptor = os.open(self.path, _OPEN, 0o600)
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{self.path} is not a file; the audit is a file, or - for standard output")
            self._size = found.st_size
            last, self._torn_bytes = self._last_line()
            if last is None and self._size > LINE_BYTES:
                raise UsageError(f"{self.path} does not end as an audit does: give the audit another file")
            self.head = self._rotated_head() if last is None else last.head
        except BaseException:
            self._close()
            raise

    def _last_line(self) -> tuple[AuditLine | None, int]:
        """The last whole line, and the bytes behind it that are none."""
        with open(self.path, "rb") as file:
            file.seek(max(self._size - _TAIL_BYTES, 0))
            text = file.read()
        self._lacks_end = bool(text) and not text.endswith(b"\n")
        lines = text.removesuffix(b"\n").split(b"\n") if text else []
        for place in range(len(lines) - 1, -1, -1):
            with suppress(NotALineError):
                return line_from(lines[place]), len(b"\n".join(lines[place + 1 :]))
        return None, len(text)

    def _rotated_head(self) -> ChainHead:
        """The head of the file that was rotated last, when a process was killed before it began the next one."""
        digits = "[0-9]" * _SEQ_DIGITS
        for path in sorted(self.path.parent.glob(f"{self.path.name}.{digits}"), reverse=True):
            with suppress(OSError, NotALineError):
                return last_head(path)
        return ChainHead()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class AuditStream:
    """A chain on standard output. It begins anew with each process, since nothing can be read there."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self.head = ChainHead()
        """The last line that was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Standard output belongs to the process, and stays open."""

    def append(
        self,
        entries: Sequence[JsonObject],
        *,
        lasting: bool,  # noqa: ARG002 - what a collector reads is its own to keep
        lost: int = 0,
    ) -> list[int]:
        """Write lines, and return their numbers. The first tells how many were lost before it.

        Raises:
            AuditWriteError: they could not be written.
        """
        head, numbers, lines = self.head, [], []
        for place, one in enumerate(entries):
            marked = {**one, "lost": lost} if lost and not place else one
            line, head = sealed(marked, head)
            numbers.append(head.seq)
            lines.append(line + b"\n")
        try:
            _write_all(self._descriptor, b"".join(lines))
        except OSError as exc:
            raise AuditWriteError(f"the audit cannot be written to standard output: {exc.strerror}") from exc
        self.head = head
        return numbers


def last_head(path: Path) -> ChainHead:
    """The head of a file, from its last whole line.

    Raises:
        NotALineError: none of its last lines is one of an audit.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        for line in reversed(file.read().split(b"\n")):
            with suppress(NotALineError):
                return line_from(line).head
    raise NotALineError(f"{path} does not end as an audit does")


def _write_all(descriptor: int, text: bytes) -> None:
    written = 0
    while written < len(text):
        written += os.write(descriptor, text[written:])
