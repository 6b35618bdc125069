"""The writer of a SQLite store: one thread, and one transaction for all queued changes.

A commit waits for the disk once, regardless of its size, so changes share commits. The changes submitted in one turn of
the event loop reach the thread together. The thread takes the whole queue, decides which changes follow, writes them in
one transaction, and answers with one call to the loop. It refuses a change that does not follow, and the whole batch if
the transaction fails. A change that may wait stays in `_pending` until another change comes, for at most
`WAIT_SECONDS`.

    submit -> _pending -> (end of the turn) -> _queue -> thread: BEGIN, fold, write, COMMIT -> _answers -> deliver: done

The task `deliver` makes the callbacks, because a callback may start another task or read the clock, and anyio allows
both only inside a task, not in a bare callback of the loop.

The thread owns the connection, `_positions`, `_hooked`, `_lost` and `_last_failure`; the loop owns all else. Only one
process owns the file (`file_lock.py`), so the thread's memory of a task between two batches agrees with the file.
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

    from bridge.store.contract import OnStored
    from bridge.store.outbox import OnRows
    from bridge.store.records import Change, TaskPosition

logger = logging.getLogger(__name__)

_FULL: Final = 13
"""SQLITE_FULL (https://www.sqlite.org/rescode.html)."""

REMEMBERED_TASKS: Final = 50_000
"""The most unfinished tasks whose positions the thread remembers, about 20 MB. Above that it reads them again."""


WAIT_SECONDS: Final = 0.05
"""How long a change waits that may wait. A call that takes longer is long enough that a commit of its own costs little,
and after a crash the file then says that the call was made."""


@dataclass(frozen=True, slots=True)
class _Submitted:
    change: Change
    done: OnStored


@dataclass(frozen=True, slots=True)
class _WriteJob:
    run: Callable[[sqlite3.Connection], int]
    result: asyncio.Future[int]
    hooks: str | None = None


_Item: TypeAlias = "_Submitted | _WriteJob"
_Answer: TypeAlias = "tuple[OnStored, Exception | None]"
_Answers: TypeAlias = "tuple[Sequence[_Answer], str | None]"
"""The answers to a batch, and why the store cannot write, or None."""


class _LostError(Exception):
    """The file was deleted, replaced or damaged while it was open."""


class Writer:
    """Writes changes in the order of their submission.

    Call all methods on the event loop's thread. The owner must run `deliver` in a task.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        name: str,
        release: Callable[[], None],
        loss: Callable[[], str | None] = lambda: None,
        hooked: set[str] | None = None,
    ) -> None:
        """Start the thread. `name` names the store in messages.

        The thread calls `release` after its last use of the connection. It calls `loss` before and after each
        transaction, and so after each checkpoint. If the file was lost, `loss` returns a message: then the current
        transaction is not acknowledged, and nothing more is written. `hooked` are the unfinished tasks with webhooks.
        """
        self.on_rows: OnRows = lambda _: None
        """Called with the tasks that have new rows in the outbox."""
        self.failure: str | None = None
        """Why the last transaction failed; None after a success."""
        self._connection = connection
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Item] = []
        self._is_due = False
        """Whether `_hand_over` runs at the end of this turn."""
        self._closing = False
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._answers: asyncio.Queue[_Answers | None] = asyncio.Queue()
        self._delivery = anyio.CancelScope(shield=True)
        self._queue: queue.SimpleQueue[list[_Item] | None] = queue.SimpleQueue()
        self._release = release
        self._loss = loss
        self._lost: str | None = None
        self._positions: dict[str, TaskPosition] = {}
        self._hooked = hooked or set()
        self._last_failure: str | None = None
        self._hand_overs = 0
        """How often pending changes were handed to the thread."""
        # A daemon thread, so that a disk that hangs forever cannot keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"writer of {name}", daemon=True)
        self._thread.start()

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change; see `Store.submit`. After `close` the change is refused at once."""
        if self._closing:
            done(StoreError(f"{self._name} is closed; task {change.task_id} is not changed"))
            return
        self._pending.append(_Submitted(change, done))
        if not change.may_wait:
            self._hurry()
        elif len(self._pending) == 1:
            # The timer must not hold the change: the task would stay in memory with it.
            self._loop.call_later(WAIT_SECONDS, self._hurry_for, self._hand_overs)

    async def run(self, job: Callable[[sqlite3.Connection], int], *, hooks: str | None = None) -> int:
        """Run a function that writes, in its own transaction, in order with the changes. Returns its result.

        `hooks` is the task that gets a webhook from the function.

        Raises:
            StoreError: the store cannot write, or is closed.
        """
        if self._closing:
            raise StoreError(f"{self._name} is closed")
        result: asyncio.Future[int] = self._loop.create_future()
        self._pending.append(_WriteJob(job, result, hooks))
        self._hurry()
        return await result

    def _hurry(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._hand_over)

    def _hurry_for(self, hand_overs: int) -> None:
        if self._hand_overs == hand_overs:
            self._hand_over()

    def _hand_over(self) -> None:
        self._is_due = False
        if self._pending:
            self._queue.put(self._pending)
            self._pending = []
            self._hand_overs += 1

    async def close(self, wait_seconds: float) -> None:
        """Write and answer all queued changes, and end the thread.

        Neither the cancellation of a scope nor a bare `Task.cancel` shortens the wait; after the wait, the latter is
        raised again. If the disk takes longer than `wait_seconds`, the thread is abandoned.
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
        """Call back with the outcomes of changes until the thread has ended. A cancellation does not shorten this."""
        with self._delivery:
            while (posted := await self._answers.get()) is not None:
                answers, self.failure = posted
                for done, error in answers:
                    _deliver(done, error)
            self._stopped.set_result(None)

    # The methods below run in the thread.

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            self._release()
            self._post_answers(None)

    def _serve(self) -> None:
        ends = False
        while not ends:
            items, ends = self._take()
            for kind, run in groupby(items, type):
                if kind is _Submitted:
                    answers = self._store_batch([item for item in run if isinstance(item, _Submitted)])
                else:
                    answers = [self._run_job(item) for item in run if isinstance(item, _WriteJob)]
                self._post_answers((answers, self._last_failure))

    def _take(self) -> tuple[list[_Item], bool]:
        """Wait for an entry of the queue. Returns all queued items, and whether the writer must end after them."""
        items: list[_Item] = []
        entry = self._queue.get()
        with suppress(queue.Empty):
            while entry is not None:
                items += entry
                entry = self._queue.get_nowait()
            return items, True
        return items, False

    def _post_answers(self, answers: _Answers | None) -> None:
        # RuntimeError: the loop was closed before the writer, so nothing waits for the answers.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answers.put_nowait, answers)

    def _store_batch(self, batch: Sequence[_Submitted]) -> list[_Answer]:
        """Write the changes that follow, in one transaction, and return the outcome of each change."""
        try:
            with self._transaction():
                answers = self._write(batch)
        except Exception as exc:  # noqa: BLE001 - every caller of the batch gets it
            if len(batch) > 1 and not _is_storage_fault(exc):
                # Invalid Unicode, or bytes beyond SQLite's limit, in one change must not refuse the others.
                return [answer for item in batch for answer in self._store_batch([item])]
            self._log_first("changes cannot be stored", exc)
            return [(item.done, self._refusal(exc)) for item in batch]
        if any(error is None for _, error in answers):
            self._last_failure = None
        self._forget(batch)
        return answers

    def _write(self, batch: Sequence[_Submitted]) -> list[_Answer]:
        changes = [item.change for item in batch]
        if unknown := {change.task_id for change in changes} - self._positions.keys():
            self._positions.update(read_positions(self._connection, unknown))
        contexts = {change.origin.context_id for change in changes if change.origin is not None}
        owners = read_context_owners(self._connection, contexts) if contexts else {}
        rows = Batch(self._positions, owners, self._hooked)
        answers: list[_Answer] = []
        for item in batch:
            try:
                rows.add(item.change)
            except StoreConflictError as conflict:
                answers.append((item.done, conflict))
            else:
                answers.append((item.done, None))
        rows.write(self._connection)
        if rows.pushed:
            answers.append((partial(self._tell_of_rows, rows.pushed), None))
        return answers

    def _tell_of_rows(self, task_ids: set[str], error: Exception | None) -> None:
        """Called in the loop after the rows are written."""
        if error is None:
            self.on_rows(task_ids)

    def _forget(self, batch: Sequence[_Submitted]) -> None:
        """Forget the positions of ended tasks, because no change can follow them."""
        if len(self._positions) > REMEMBERED_TASKS:
            self._positions.clear()
        for item in batch:
            position = self._positions.get(item.change.task_id)
            if position is not None and position.ended:
                del self._positions[item.change.task_id]
                self._hooked.discard(item.change.task_id)

    def _run_job(self, job: _WriteJob) -> _Answer:
        self._positions.clear()
        if job.hooks is not None:
            self._hooked.add(job.hooks)
        try:
            with self._transaction():
                number = job.run(self._connection)
        except Exception as exc:  # noqa: BLE001 - the caller of the job gets it
            self._log_first("a transaction failed", exc)
            return partial(_settle, job.result, 0), self._refusal(exc)
        self._last_failure = None
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
            self._positions.clear()
            # After some failures SQLite has rolled back itself; on a lost disk the rollback may fail too.
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    def _require_file(self) -> None:
        self._lost = self._lost or self._loss()
        if self._lost is not None:
            raise _LostError(f"{self._lost}, so nothing more is stored until the bridge is restarted")

    def _log_first(self, what: str, cause: Exception) -> None:
        """Log a failure if it is the first since the last success. A full or broken disk needs no traceback, because
        the fault is not in this code."""
        if self._last_failure is None:
            if getattr(cause, "sqlite_errorcode", None) == _FULL:
                words = "the disk is full: %s takes no changes, and new work is refused until there is room"
                logger.error(words, self._name)
                return
            has_reason = _is_storage_fault(cause)
            reason = f": {cause}" if has_reason else ""
            logger.error("%s: %s%s", self._name, what, reason, exc_info=None if has_reason else cause)

    def _refusal(self, cause: Exception) -> StoreError:
        if _is_storage_fault(cause):
            self._last_failure = f"{self._name} cannot be written: {cause}"
            hint = (
                "" if self._lost else "; check the disk: new work is refused until the store can be written"
            )
            refusal = StoreError(f"{self._last_failure}{hint}")
        else:
            refusal = StoreError(f"{self._name} cannot store this: {cause}")
        refusal.__cause__ = cause
        return refusal


def _deliver(done: OnStored, error: Exception | None) -> None:
    try:
        done(error)
    except Exception:  # a failing callback must not stop the answers of other changes
        logger.exception("the callback for a change failed")


def _is_storage_fault(exc: Exception) -> bool:
    """Whether the fault is in the file or the disk, and not in a value of a change.

    SQLite reports a damaged file as a plain DatabaseError. The other subclasses of DatabaseError concern a value.
    """
    return isinstance(exc, (sqlite3.OperationalError, _LostError)) or type(exc) is sqlite3.DatabaseError


def _settle(result: asyncio.Future[int], number: int, error: Exception | None) -> None:
    if result.done():  # its caller was cancelled
        return
    if error is None:
        result.set_result(number)
    else:
        result.set_exception(error)
