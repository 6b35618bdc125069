"""Brings lines to the chain without making a call wait, or with a wait where the call must not go on without its line.

One loop writes. Whatever has come while it wrote goes into the next batch, so that many calls share one wait for the
disk. While nothing can be written the loop tries again by itself, so that a bridge that refuses calls notices the end.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from bridge.audit.batch import AuditWriteError
from bridge.audit.chain import ChainHead
from bridge.concurrency import Signal
from bridge.errors import AuditAwayError
from bridge.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

_QUEUED_MOST: Final = 10_000
"""Lines that wait for a slow disk: some MB. Further ones are lost, and counted."""

_AGAIN_SECONDS: Final = 1.0
"""Between two tries to write while nothing can be written."""


class ChainWriter(Protocol):
    """What a chain is written to."""

    head: ChainHead

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        """Write lines, all or none, and return their numbers. The first tells how many were lost before it.

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

    def __init__(self, writer: ChainWriter) -> None:
        self._writer = writer
        self._queue: deque[_Waiting] = deque()
        self._come = Signal()
        self._lost = 0
        self._is_closing = False
        self._limiter = anyio.CapacityLimiter(1)
        self.fault: str | None = None
        """Why nothing can be written at the moment; None while it can."""

    def note(self, entry: JsonObject) -> None:
        """Have a line written soon. What cannot be written is counted in the next line."""
        if len(self._queue) >= _QUEUED_MOST:
            self._lost += 1
            return
        self._queue.append(_Waiting(entry))
        self._come.tell()

    async def commit(self, entry: JsonObject) -> int:
        """Wait until a line is on the disk, and return its number.

        Raises:
            AuditAwayError: it cannot be written.
        """
        if self.fault is not None or len(self._queue) >= _QUEUED_MOST:
            raise AuditAwayError(self.fault or "the audit waits for a slow disk")
        waiting = _Waiting(entry, anyio.Event())
        assert waiting.written is not None
        self._queue.append(waiting)
        self._come.tell()
        await waiting.written.wait()
        if not waiting.seq:
            raise AuditAwayError("the audit could not be written")
        return waiting.seq

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the context is open, and what is left when it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            try:
                yield
            finally:
                self._is_closing = True
                self._come.tell()

    async def _run(self) -> None:
        # It ends by `_is_closing`, after the last line.
        with anyio.CancelScope(shield=True):
            while self._queue or not self._is_closing:
                come = self._come.next
                if not self._queue:
                    with anyio.move_on_after(None if self.fault is None else _AGAIN_SECONDS):
                        await come.wait()
                if self._queue or (self.fault is not None and not self._is_closing):
                    await self._write()

    async def _write(self) -> None:
        batch, lost = tuple(self._queue), self._lost
        self._queue.clear()
        lasting = any(one.written is not None for one in batch)
        entries = [one.entry for one in batch] or [{"event": "resumed"}]
        write = partial(self._writer.append, entries, lasting=lasting, lost=lost)
        try:
            numbers = await anyio.to_thread.run_sync(write, limiter=self._limiter)
        except AuditWriteError as exc:
            numbers = [*exc.numbers]
            self._lost += len(batch) - len(numbers[: len(batch)])
            self._tell_of(str(exc))
        else:
            self._tell_of(None)
        if numbers:  # the first line has told what was lost before it
            self._lost -= lost
        for one, seq in zip(batch, numbers, strict=False):
            one.seq = seq
        for one in batch:
            if one.written is not None:
                one.written.set()

    def _tell_of(self, fault: str | None) -> None:
        """Log once that nothing can be written, and once that it can be again."""
        if fault is not None and self.fault is None:
            logger.error("%s", fault)
        elif fault is None and self.fault is not None:
            logger.warning("the audit is written again")
        self.fault = fault
