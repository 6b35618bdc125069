"""Writes the chain of a process to standard output, where nothing can be read or taken back.

So each process begins a new chain. As in a file, a fault may leave a fragment of a line; the next line follows the
fragment, and reports its length.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from bridge.audit.batch import AuditWriteError, SealedBatch, sealed_batch
from bridge.audit.chain import ChainHead
from bridge.text.jsonvalues import JsonObject

_PIECE_BYTES: Final = 512
"""The minimum PIPE_BUF of POSIX: a pipe that `poll` reports as writable takes so many bytes without blocking."""

_poll: Final[Any] = getattr(select, "poll", None)
"""None on Windows, which cannot poll a pipe."""
_HAS_ROOM: Final[int] = getattr(select, "POLLOUT", 0)

STALLED_SECONDS: Final = 10.0
"""How long the reader of standard output may pause. After a longer pause the waiting lines are lost."""


class AuditStream:
    """A chain on standard output. Each process begins a new chain, because earlier lines cannot be read."""

    def __init__(self, descriptor: int = 1, stalled_seconds: float = STALLED_SECONDS) -> None:
        self._descriptor = descriptor
        self._stalled_seconds = stalled_seconds
        self._torn_bytes = 0
        self._lacks_end = False
        self.head = ChainHead()
        """The last line that was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close nothing: standard output belongs to the process."""

    def append(
        self,
        entries: Sequence[JsonObject],
        *,
        lasting: bool,  # noqa: ARG002 - the reader of the stream has to keep the lines
        lost: int = 0,
    ) -> list[int]:
        """Write lines, and return their numbers. The first line reports the `lost` lines before it.

        Raises:
            AuditWriteError: not all lines could be written, for example because nobody reads them.
        """
        batch = sealed_batch(entries, self.head, lost=lost, torn_bytes=self._torn_bytes)
        text = batch.text(after_fragment=self._lacks_end)
        written = 0
        try:
            while written < len(text):
                self._wait_for_room()
                with suppress(BlockingIOError):  # another process that shares the pipe was faster
                    written += os.write(self._descriptor, text[written : written + _PIECE_BYTES])
        except OSError as exc:
            numbers = self._broken_off(batch, written)
            words = f"the audit cannot be written to standard output: {exc.strerror}"
            raise AuditWriteError(words, numbers) from exc
        self.head, self._torn_bytes, self._lacks_end = batch.head, 0, False
        return batch.numbers

    def _wait_for_room(self) -> None:
        """Wait until the pipe has room.

        Raises:
            OSError: nobody has read for `stalled_seconds`.
        """
        if _poll is None:
            return
        room = _poll()
        room.register(self._descriptor, _HAS_ROOM)
        if not room.poll(self._stalled_seconds * 1000):
            raise OSError(errno.ETIMEDOUT, f"nobody has read it for {self._stalled_seconds:g} s")

    def _broken_off(self, batch: SealedBatch, written: int) -> list[int]:
        """Remember the state after a part of a batch was written, and return the numbers of the complete lines."""
        if not written:
            return []
        torn_bytes, rest = self._torn_bytes, written - self._lacks_end
        self._lacks_end, whole = False, 0
        for line in batch.lines:
            if rest < len(line) - 1:
                break
            whole, torn_bytes, self._lacks_end = whole + 1, 0, rest < len(line)
            rest = max(rest - len(line), 0)
        if rest:
            torn_bytes, self._lacks_end = torn_bytes + (torn_bytes > 0) + rest, True
        self._torn_bytes = torn_bytes
        if whole:
            self.head = batch.heads[whole - 1]
        return batch.numbers[:whole]
