"""Brings lines to the chain without making a call wait, or with a wait where the call must not go on without its line.

One loop writes. Whatever has come while it wrote goes into the next batch, so that many calls share one wait for the
disk. While nothing can be written the loop tries again by itself, so that a bridge that refuses calls notices the end.

A disk or a reader may also take nothing and say nothing. So every wait has an end: that of a call, and that of the
bridge when it stops.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio

from bridge.audit.batch import AuditWriteError
from bridge.audit.chain import ChainHead
from bridge.audit.thread import DiskThread
from bridge.concurrency import Signal
from bridge.errors import AuditAwayError
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

_QUEUED_MOST: Final = 10_000
"""Lines that wait for a slow disk: some MB. Further ones are lost, and counted."""

_AGAIN_SECONDS: Final = 1.0
"""Between two tries to write while nothing can be written."""

_UNLISTED: Final = "unlisted"
"""The field that counts refusals without a line of their own. It goes on to the next line when its line is lost."""

STALLED_SECONDS: Final = 30.0
"""How long a call waits for its line, and how long a write may take until nothing counts as written any more. A disk
that is only busy is faster."""

CLOSE_SECONDS: Final = 10.0
"""How long a bridge that stops waits for the last lines, as for its stores."""


class ChainWriter(Protocol):
    """What a chain is written to."""

    head: ChainHead

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        """Write all lines or none, and return their numbers. The first line says how many lines were lost before it.

        Raises:
            AuditWriteError: they could not be written.
        """
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A line, and who waits for it."""

    entry: JsonObject
    written: anyio.Event | None = None
    seq: int = 0
    """Its number; 0 while it is not written."""


class AuditJournal:
    """Writes the lines of one process."""

    def __init__(
        self,
        writer: ChainWriter,
        *,
        stalled_seconds: float = STALLED_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._writer = writer
        self._stalled_seconds = stalled_seconds
        self._close_seconds = close_seconds
        self._queue: deque[_Waiting] = deque()
        self._come = Signal()
        self._lost = 0
        self._unlisted = 0
        """How many refusals without a line of their own were told by lines that are lost."""
        self._is_closing = False
        self._fault: str | None = None
        self._writing_since: float | None = None
        self.lost_lines = 0
        """How many lines this process could not write."""
        self.is_stuck = False
        """Whether a write is under way that has been given up. Its writer must not be closed."""

    @property
    def fault(self) -> str | None:
        """Why nothing can be written at the moment; None while it can."""
        since = self._writing_since
        if self._fault is None and since is not None and time.monotonic() - since >= self._stalled_seconds:
            return f"the audit has not been written for {self._stalled_seconds:g} s: its disk takes nothing"
        return self._fault

    def note(self, entry: JsonObject) -> None:
        """Have a line written soon. What cannot be written is counted in the next line."""
        if len(self._queue) >= _QUEUED_MOST:
            self._lose([entry])
            return
        self._queue.append(_Waiting(entry))
        self._come.tell()

    async def commit(self, entry: JsonObject) -> int:
        """Wait until a line is on the disk, and return its number. Cancelled, this withdraws a line that waits still.

        Raises:
            AuditAwayError: it cannot be written, or not in time.
        """
        if self.fault is not None or len(self._queue) >= _QUEUED_MOST:
            raise AuditAwayError(self.fault or "the audit waits for a slow disk")
        waiting = _Waiting(entry, anyio.Event())
        assert waiting.written is not None
        self._queue.append(waiting)
        self._come.tell()
        try:
            with anyio.move_on_after(self._stalled_seconds):
                await waiting.written.wait()
        finally:
            if not waiting.seq:
                with suppress(ValueError):  # what is being written stays
                    self._queue.remove(waiting)
        if not waiting.seq:
            raise AuditAwayError("the audit could not be written in time")
        return waiting.seq

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the context is open, and what is left when it ends, as far as that is possible in time."""
        scope = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, scope)
            try:
                yield
            finally:
                self._is_closing = True
                scope.deadline = anyio.current_time() + self._close_seconds
                self._come.tell()

    async def _run(self, scope: anyio.CancelScope) -> None:
        # It ends by `_is_closing`, after the last line.
        thread: DiskThread[list[int]] = DiskThread("audit")
        with scope:
            while self._queue or not self._is_closing:
                come = self._come.next
                if not self._queue:
                    with anyio.move_on_after(None if self.fault is None else _AGAIN_SECONDS):
                        await come.wait()
                if self._queue or (self.fault is not None and not self._is_closing):
                    await self._write(thread)
        thread.end()
        self.is_stuck = scope.cancelled_caught
        self._lose([one.entry for one in self._queue])
        _let_go(self._queue)
        if self._lost:
            logger.error("the audit ends without its last lines: %d are lost", self._lost)

    async def _write(self, thread: DiskThread[list[int]]) -> None:
        batch, lost, unlisted = tuple(self._queue), self._lost, self._unlisted
        self._queue.clear()
        lasting = any(one.written is not None for one in batch)
        entries = [one.entry for one in batch] or [{"event": "resumed"}]
        if unlisted:
            entries[0] = {**entries[0], _UNLISTED: _unlisted_in(entries[0]) + unlisted}
        numbers: Sequence[int] = ()
        self._writing_since = time.monotonic()
        try:
            numbers = await thread.run(partial(self._writer.append, entries, lasting=lasting, lost=lost))
        except AuditWriteError as exc:
            numbers = exc.numbers
            self._tell_of(str(exc))
        else:
            self._tell_of(None)
        finally:
            self._writing_since = None
            if numbers:  # the first line has told what was lost before it
                self._lost -= lost
                self._unlisted -= unlisted
            self._lose([one.entry for one in batch[len(numbers) :]])
            for one, seq in zip(batch, numbers, strict=False):
                one.seq = seq
            _let_go(batch)

    def _lose(self, entries: Sequence[JsonObject]) -> None:
        self._lost += len(entries)
        self.lost_lines += len(entries)
        self._unlisted += sum(map(_unlisted_in, entries))

    def _tell_of(self, fault: str | None) -> None:
        """Log once that nothing can be written, and once that it can be again."""
        if fault is not None and self._fault is None:
            logger.error("%s", fault)
        elif fault is None and self._fault is not None:
            logger.info("the audit is written again")
        self._fault = fault


def _unlisted_in(entry: JsonObject) -> int:
    count = entry.get(_UNLISTED, 0)
    return count if isinstance(count, int) else 0


def _let_go(lines: Iterable[_Waiting]) -> None:
    """Let those go on who wait for these lines."""
    for one in lines:
        if one.written is not None:
            one.written.set()
