"""The writer of a SQLite store: one thread, and one transaction for all that is queued.

A commit costs one wait for the disk however much is in it, so changes share it. What is submitted in one
turn of the event loop reaches the thread together; the thread takes all that has come in the meantime,
decides which changes follow, writes the rest of the batch in one transaction and answers with one call to
the loop. A change that does not follow is refused alone; a transaction that fails refuses its whole batch.

    submit -> _pending -> (end of the turn) -> _queue -> thread: BEGIN, fold, write, COMMIT -> _answers -> deliver: done

Answers are delivered by a task, `deliver`, and not by a bare callback of the loop: whoever is told may start another
task, or look at the time, which anyio has for tasks alone.

The thread owns the connection, `_standings`, `_lost` and `_trouble`; all else is the loop's. The file has one owner
(`lock.py`), so what the thread remembers of a task between two batches is what the file says.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from bridge.errors import StoreConflictError, StoreError
from bridge.store.sqlite_batch import Batch, read_context_owners, read_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bridge.store.records import Change, OnStored, TaskPosition

logger = logging.getLogger(__name__)

REMEMBERED_TASKS: Final = 50_000
"""How many unfinished tasks the thread remembers, about 20 MB; beyond that it asks the file again."""


@dataclass(frozen=True, slots=True)
class _Submitted:
    change: Change
    done: OnStored


@dataclass(frozen=True, slots=True)
class _Job:
    run: Callable[[sqlite3.Connection], int]
    result: asyncio.Future[int]


_Item: TypeAlias = "_Submitted | _Job"
_Answer: TypeAlias = "tuple[OnStored, Exception | None]"
_Answers: TypeAlias = "tuple[Sequence[_Answer], str | None]"
"""The answers to a batch, and why the store cannot write."""


class _LostError(Exception):
    """The file was taken away from underneath."""


class Writer:
    """Writes changes in the order of their submission. All methods are for the event loop's thread, and a task of its
    owner has to `deliver`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        name: str,
        release: Callable[[], None],
        loss: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Start the thread. `name` says in messages what is written.

        The thread calls `release` when it will not touch the connection again, and before it ends, and `loss` before
        and after each transaction, and so after each checkpoint: it says what became of the file underneath, if
        anything did. Nothing is written from then on, and what may not be found again is not acknowledged.
        """
        self.failure: str | None = None
        """Why the last transaction failed, in words; None once one succeeds."""
        self._connection = connection
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Item] = []
        self._closing = False
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._answers: asyncio.Queue[_Answers | None] = asyncio.Queue()
        self._delivery = anyio.CancelScope(shield=True)
        self._queue: queue.SimpleQueue[list[_Item] | None] = queue.SimpleQueue()
        self._release = release
        self._loss = loss
        self._lost: str | None = None
        self._standings: dict[str, TaskPosition] = {}
        self._trouble: str | None = None
        # A daemon, so that a disk that hangs for good cannot keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change; see `Store.submit`. After `close` it is refused at once."""
        if self._closing:
            done(StoreError(f"{self._name} is closed; task {change.task_id} is not changed"))
            return
        self._queue_item(_Submitted(change, done))

    async def run(self, job: Callable[[sqlite3.Connection], int]) -> int:
        """Run a function that writes, in a transaction of its own and in order with the changes.

        Returns what it returns. Raises StoreError when the store cannot write, or is closed.
        """
        if self._closing:
            raise StoreError(f"{self._name} is closed")
        result: asyncio.Future[int] = self._loop.create_future()
        self._queue_item(_Job(job, result))
        return await result

    def _queue_item(self, item: _Item) -> None:
        if not self._pending:
            self._loop.call_soon(self._hand_over)
        self._pending.append(item)

    def _hand_over(self) -> None:
        if self._pending:
            self._queue.put(self._pending)
            self._pending = []

    async def close(self, wait_seconds: float) -> None:
        """Write and answer what is queued, and end the thread.

        Cancellation does not shorten the wait: not that of a cancel scope, and not a bare `Task.cancel`,
        which is raised again afterwards. A disk that takes longer than `wait_seconds` is left to the thread.
        """
        self._closing = True
        self._hand_over()
        self._queue.put(None)
        cancelled: asyncio.CancelledError | None = None
        deadline = self._loop.time() + wait_seconds
        with anyio.CancelScope(shield=True):
            while not self._stopped.done() and (left := deadline - self._loop.time()) > 0:
                try:
                    await asyncio.wait({self._stopped}, timeout=left)
                except asyncio.CancelledError as exc:
                    cancelled = exc
        if self._stopped.done():
            self._thread.join()
        else:
            logger.error("%s is not closed after %s s; changes may be lost", self._name, wait_seconds)
            self._delivery.cancel()
        if cancelled is not None:
            raise cancelled

    async def deliver(self) -> None:
        """Tell how changes ended, until the thread has ended; no cancellation from outside cuts it short."""
        with self._delivery:
            while (told := await self._answers.get()) is not None:
                answers, self.failure = told
                for done, error in answers:
                    _deliver(done, error)
            self._stopped.set_result(None)

    # From here on: the thread.

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            self._release()
            self._tell(None)

    def _serve(self) -> None:
        ends = False
        while not ends:
            items, ends = self._take()
            for kind, run in groupby(items, type):
                if kind is _Submitted:
                    answers = self._keep([item for item in run if isinstance(item, _Submitted)])
                else:
                    answers = [self._do(item) for item in run if isinstance(item, _Job)]
                self._tell((answers, self._trouble))

    def _take(self) -> tuple[list[_Item], bool]:
        """All that is queued, at least one entry, and whether it is the last."""
        items: list[_Item] = []
        entry = self._queue.get()
        with suppress(queue.Empty):
            while entry is not None:
                items += entry
                entry = self._queue.get_nowait()
            return items, True
        return items, False

    def _tell(self, answers: _Answers | None) -> None:
        with suppress(RuntimeError):  # the loop was closed without closing us: nobody is left to be told
            self._loop.call_soon_threadsafe(self._answers.put_nowait, answers)

    def _keep(self, batch: Sequence[_Submitted]) -> list[_Answer]:
        """Keep changes, all that follow in one transaction, and say how each ended."""
        try:
            with self._transaction():
                answers = self._write(batch)
        except Exception as exc:
            if len(batch) > 1 and not _is_storage_fault(exc):
                # Text that is not Unicode, or bytes beyond SQLite's limit: the other changes must not suffer.
                return [answer for item in batch for answer in self._keep([item])]
            if self._trouble is None:
                logger.exception("%s: refusing changes, %d so far", self._name, len(batch))
            return [(item.done, self._refusal(exc)) for item in batch]
        if any(error is None for _, error in answers):
            self._trouble = None
        self._forget(batch)
        return answers

    def _write(self, batch: Sequence[_Submitted]) -> list[_Answer]:
        changes = [item.change for item in batch]
        unknown = {change.task_id for change in changes} - self._standings.keys()
        self._standings.update(read_positions(self._connection, unknown))
        contexts = {change.origin.context_id for change in changes if change.origin is not None}
        rows = Batch(self._standings, read_context_owners(self._connection, contexts))
        answers: list[_Answer] = []
        for item in batch:
            try:
                rows.add(item.change)
            except StoreConflictError as conflict:
                answers.append((item.done, conflict))
            else:
                answers.append((item.done, None))
        rows.write(self._connection)
        return answers

    def _forget(self, batch: Sequence[_Submitted]) -> None:
        """Nothing follows what has ended: forget it, so that what is remembered is what is running."""
        if len(self._standings) > REMEMBERED_TASKS:
            self._standings.clear()
        for item in batch:
            standing = self._standings.get(item.change.task_id)
            if standing is not None and standing.ended:
                del self._standings[item.change.task_id]

    def _do(self, job: _Job) -> _Answer:
        self._standings.clear()
        try:
            with self._transaction():
                number = job.run(self._connection)
        except Exception as exc:
            if self._trouble is None:
                logger.exception("%s: a transaction failed", self._name)
            return partial(_settle, job.result, 0), self._refusal(exc)
        self._trouble = None
        return partial(_settle, job.result, number), None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        connection = self._connection
        try:
            self._require_file()
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("COMMIT")
            self._require_file()
        except BaseException:
            self._standings.clear()
            # After some failures SQLite has rolled back by itself; a disk that is gone may fail this as well.
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    def _require_file(self) -> None:
        self._lost = self._lost or self._loss()
        if self._lost is not None:
            raise _LostError(f"{self._lost}, so nothing more is kept until the bridge is restarted")

    def _refusal(self, cause: Exception) -> StoreError:
        if _is_storage_fault(cause):
            self._trouble = f"{self._name} cannot be written: {cause}"
            hint = "" if self._lost else "; see to the disk, new work is refused until it can be"
            refusal = StoreError(f"{self._trouble}{hint}")
        else:
            refusal = StoreError(f"{self._name} cannot keep this: {cause}")
        refusal.__cause__ = cause
        return refusal


def _deliver(done: OnStored, error: Exception | None) -> None:
    try:
        done(error)
    except Exception:  # one that fails must not take the answers of others with it
        logger.exception("what was to be told about a change failed")


def _is_storage_fault(exc: Exception) -> bool:
    """Whether the file or the disk is at fault, and not what was to be written.

    A damaged file is a plain DatabaseError; DatabaseError's other subclasses speak of one value.
    """
    return isinstance(exc, (sqlite3.OperationalError, _LostError)) or type(exc) is sqlite3.DatabaseError


def _settle(result: asyncio.Future[int], number: int, error: Exception | None) -> None:
    if result.done():  # its caller was cancelled
        return
    if error is None:
        result.set_result(number)
    else:
        result.set_exception(error)
