"""Queues lines for the chain. A call does not wait, unless it must not continue without its line.

One loop writes. Lines that arrive during a write go into the next batch, so that many calls share one wait for the
disk. During an outage the loop retries by itself, so that a bridge that refuses calls notices the end of the outage.

A disk or a reader may also hang without an error. So every wait is bounded: the wait of a call, and the wait of the
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
"""The most lines that wait for a slow disk: some MB. Further lines are lost, and counted."""

_AGAIN_SECONDS: Final = 1.0
"""The pause between two attempts to write during an outage."""

_UNLISTED: Final = "unlisted"
"""The field that counts refusals without their own line. If its line is lost, the next line carries the count."""

STALLED_SECONDS: Final = 30.0
"""How long a call waits for its line, and how long a write may take until the audit counts as away. A disk that is only
busy is faster."""

CLOSE_SECONDS: Final = 10.0
"""How long a stopping bridge waits for the last lines."""


class ChainWriter(Protocol):
    """The target of a chain: a file or a stream."""

    head: ChainHead

    def append(self, entries: Sequence[JsonObject], *, lasting: bool, lost: int = 0) -> list[int]:
        """Write all lines or none, and return their numbers. The first line reports the `lost` lines before it.

        Raises:
            AuditWriteError: the lines could not be written.
        """
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A line in the queue."""

    entry: JsonObject
    written: anyio.Event | None = None
    """Set when the line is written or lost; None if no call waits for it."""
    seq: int = 0
    """Its number; 0 until it is written."""


class AuditJournal:
    """Writes the audit lines of a process."""

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
        self._arrived = Signal()
        self._lost = 0
        self._unlisted = 0
        """The number of refusals that lost lines would have counted."""
        self._is_closing = False
        self._fault: str | None = None
        self._writing_since: float | None = None
        self.lost_lines = 0
        """The number of lines that this process could not write."""
        self.is_stuck = False
        """Whether a hanging write was abandoned. Its writer must not be closed then."""

    @property
    def fault(self) -> str | None:
        """Why no line can be written now; None if lines can be written."""
        since = self._writing_since
        if self._fault is None and since is not None and time.monotonic() - since >= self._stalled_seconds:
            return (
                f"the audit has not been written for {self._stalled_seconds:g} s: its disk does not respond"
            )
        return self._fault

    def note(self, entry: JsonObject) -> None:
        """Queue a line. If it cannot be written, the next line counts it."""
        if len(self._queue) >= _QUEUED_MOST:
            self._count_lost([entry])
            return
        self._queue.append(_Waiting(entry))
        self._arrived.notify()

    async def commit(self, entry: JsonObject) -> int:
        """Wait until a line is on the disk, and return its number. A cancellation withdraws a line that still waits.

        Raises:
            AuditAwayError: the line cannot be written in time.
        """
        if self.fault is not None or len(self._queue) >= _QUEUED_MOST:
            raise AuditAwayError(self.fault or "the audit waits for a slow disk")
        waiting = _Waiting(entry, anyio.Event())
        assert waiting.written is not None
        self._queue.append(waiting)
        self._arrived.notify()
        try:
            with anyio.move_on_after(self._stalled_seconds):
                await waiting.written.wait()
        finally:
            if not waiting.seq:
                with suppress(ValueError):  # a line that is being written is no longer in the queue
                    self._queue.remove(waiting)
        if not waiting.seq:
            raise AuditAwayError("the audit could not be written in time")
        return waiting.seq

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the context is open. At its end, write the remaining lines, within `close_seconds`."""
        scope = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, scope)
            try:
                yield
            finally:
                self._is_closing = True
                scope.deadline = anyio.current_time() + self._close_seconds
                self._arrived.notify()

    async def _run(self, scope: anyio.CancelScope) -> None:
        # The loop ends through `_is_closing`, after the last line.
        thread: DiskThread[list[int]] = DiskThread("audit")
        with scope:
            while self._queue or not self._is_closing:
                arrived = self._arrived.next
                if not self._queue:
                    with anyio.move_on_after(None if self.fault is None else _AGAIN_SECONDS):
                        await arrived.wait()
                if self._queue or (self.fault is not None and not self._is_closing):
                    await self._write(thread)
        thread.end()
        self.is_stuck = scope.cancelled_caught
        self._count_lost([line.entry for line in self._queue])
        _wake(self._queue)
        if self._lost:
            logger.error("the audit ends without its last lines: %d lost", self._lost)

    async def _write(self, thread: DiskThread[list[int]]) -> None:
        batch, lost, unlisted = tuple(self._queue), self._lost, self._unlisted
        self._queue.clear()
        lasting = any(line.written is not None for line in batch)
        entries = [line.entry for line in batch] or [{"event": "resumed"}]
        if unlisted:
            entries[0] = {**entries[0], _UNLISTED: _unlisted_in(entries[0]) + unlisted}
        numbers: Sequence[int] = ()
        self._writing_since = time.monotonic()
        try:
            numbers = await thread.run(partial(self._writer.append, entries, lasting=lasting, lost=lost))
        except AuditWriteError as exc:
            numbers = exc.numbers
            self._log_outage(str(exc))
        else:
            self._log_outage(None)
        finally:
            self._writing_since = None
            if numbers:  # the first written line has reported the lost lines
                self._lost -= lost
                self._unlisted -= unlisted
            self._count_lost([line.entry for line in batch[len(numbers) :]])
            for line, seq in zip(batch, numbers, strict=False):
                line.seq = seq
            _wake(batch)

    def _count_lost(self, entries: Sequence[JsonObject]) -> None:
        self._lost += len(entries)
        self.lost_lines += len(entries)
        self._unlisted += sum(map(_unlisted_in, entries))

    def _log_outage(self, fault: str | None) -> None:
        """Log the start of an outage once, and its end once."""
        if fault is not None and self._fault is None:
            logger.error("%s", fault)
        elif fault is None and self._fault is not None:
            logger.info("the audit is written again")
        self._fault = fault


def _unlisted_in(entry: JsonObject) -> int:
    count = entry.get(_UNLISTED, 0)
    return count if isinstance(count, int) else 0


def _wake(lines: Iterable[_Waiting]) -> None:
    """Wake the calls that wait for these lines."""
    for line in lines:
        if line.written is not None:
            line.written.set()
