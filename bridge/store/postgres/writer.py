"""The writer of a store in PostgreSQL: it stores groups of changes, also across outages of the database.

It has one task and one connection. While a group is being stored, the next group collects. Only the answer to a COMMIT
answers a change: if the connection is lost during a commit, the writer checks on a new connection whether the group is
stored (`append(in_doubt=True)`), and writes the rest.

During an outage changes wait, for a bounded time and up to a bounded size. Then they are refused, and the engine ends
their tasks when the store can write again. After a refusal, every change of the same task and epoch that was submitted
before the refusal was reported is refused too, because its sender relied on the refused change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import psycopg

from bridge.concurrency import Backoff
from bridge.errors import StoreAwayError, StoreConflictError, StoreError
from bridge.store.postgres.append import AnswerEntry, Entry, FencedError, Outcome, Release, append
from bridge.store.postgres.connections import (
    bounded,
    close,
    connect,
    cut,
    first_line,
    is_of_content,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from bridge.store.contract import OnStored
    from bridge.store.postgres.bounds import PostgresBounds
    from bridge.store.postgres.connections import DatabaseAddress
    from bridge.store.postgres.table_steps import Namespace
    from bridge.store.records import Change

logger = logging.getLogger(__name__)

GROUP_ENTRIES: Final = 256
GROUP_BYTES: Final = 16 * 1024 * 1024
"""The bounds of a transaction. The first change of a group may be larger."""

_RACES: Final = 20
"""The number of attempts to store a group while other replicas are faster."""


class RaceError(Exception):
    """Another replica stored a row between the read and the write. The transaction must be repeated."""


class ContentError(Exception):
    """The database cannot store the content at all, such as text with a NUL or a value beyond the size limit."""


@dataclass(frozen=True, slots=True)
class _SubmittedChange:
    change: Change
    done: OnStored
    epoch: int
    """The epoch in which it was submitted."""
    number: int
    refusal: StoreError | None = None
    """The reason if the change was refused at once. The refusal waits for earlier answers, because answers come in
    order."""

    @property
    def size(self) -> int:
        return len(self.change.event) + len(self.change.snapshot or b"") + len(self.change.private or b"")


@dataclass(frozen=True, slots=True)
class _Note:
    """An entry without an answer."""

    entry: Release | AnswerEntry
    epoch: int
    size = 0


_Item: TypeAlias = "_SubmittedChange | _Note"


class GroupWriter:
    """Stores changes in the order of their submission. Call all methods on the event loop's thread."""

    def __init__(
        self,
        address: DatabaseAddress,
        place: Namespace,
        bounds: PostgresBounds,
        epoch: Callable[[], int],
        on_stored: Callable[[Sequence[Change]], None],
        on_fenced: Callable[[int], Awaitable[None]],
    ) -> None:
        """`epoch` returns the epoch to write under. `on_stored` gets the stored changes, to send hints to others.
        `on_fenced` gets an epoch that was found gone, and begins another epoch before changes are refused; it raises
        StoreError if no epoch can begin.
        """
        self.failure: str | None = None
        """Why the store cannot write; None while it can."""
        self._address = address
        self._place = place
        self._bounds = bounds
        self._epoch = epoch
        self._on_stored = on_stored
        self._on_fenced = on_fenced
        self._waiting: deque[_Item] = deque()
        self._waiting_bytes = 0
        self._last_number = 0
        """The number of the last change that was submitted."""
        self._refused: dict[tuple[str, int], int] = {}
        """For each task and epoch: the last submitted number when a change of them was refused."""
        self._more = anyio.Event()
        self._closing = anyio.Event()
        self._ended = anyio.Event()
        self._connection: AsyncConnection | None = None

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change; see `Store.submit`."""
        if self._closing.is_set():
            done(StoreError(f"the store is closed; task {change.task_id} is not changed"))
            return
        self._last_number += 1
        item = _SubmittedChange(change, done, self._epoch(), self._last_number)
        if self._waiting_bytes + item.size > self._bounds.store.waiting_limit_bytes:
            refusal = StoreError(
                f"too many changes wait for the database; task {change.task_id} is not changed"
            )
            change_alone = replace(change, event=b"", snapshot=None, private=None)
            item = replace(item, change=change_alone, refusal=refusal)
        self._waiting_bytes += item.size
        self._queue(item)

    def note(self, entry: Release | AnswerEntry) -> None:
        """Queue an entry without an answer, after the changes submitted before."""
        if not self._closing.is_set():
            self._queue(_Note(entry, self._epoch()))

    def _queue(self, item: _Item) -> None:
        self._waiting.append(item)
        self._more.set()

    async def close(self) -> None:
        """Accept no more changes, and wait until all submitted changes are answered. Changes that the database does not
        store in time are refused."""
        self._closing.set()
        self._more.set()
        with anyio.move_on_after(self._bounds.store.close_seconds):
            await self._ended.wait()

    def cut(self) -> None:
        """Fail the group that is being stored now."""
        if self._connection is not None:
            cut(self._connection)

    async def run(self) -> None:
        """Write until closed."""
        try:
            while self._waiting or not self._closing.is_set():
                if not self._waiting:
                    self._refused.clear()
                    self._more = anyio.Event()
                    await self._more.wait()
                elif group := self._group():
                    await self._answer(group)
        finally:
            left = StoreError("the store was closed before this could be stored")
            self._report(tuple(self._waiting), [left] * len(self._waiting))
            self._waiting.clear()
            self._ended.set()
            await self._disconnect()

    def _group(self) -> list[_Item]:
        """The next items for a transaction, all of the same epoch."""
        group = [self._waiting.popleft()]
        size = group[0].size
        while self._waiting and len(group) < GROUP_ENTRIES:
            item = self._waiting[0]
            if item.epoch != group[0].epoch or size + item.size > GROUP_BYTES:
                break
            size += item.size
            group.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return group

    async def _answer(self, group: Sequence[_Item]) -> None:
        outcomes: list[Outcome] = [StoreError("the store was closed; this may or may not be stored")]
        outcomes *= len(group)
        try:
            outcomes = await self._outcomes_of(group)
        finally:
            self._report(group, outcomes)

    def _report(self, group: Sequence[_Item], outcomes: Sequence[Outcome]) -> None:
        answers = [
            (item, error)
            for item, error in zip(group, outcomes, strict=True)
            if isinstance(item, _SubmittedChange)
        ]
        if stored := [item.change for item, error in answers if error is None]:
            self._on_stored(stored)
        for item, error in answers:
            key = item.change.task_id, item.epoch
            if error is not None and item.number > self._refused.get(key, 0):
                self._refused[key] = self._last_number
            try:
                item.done(error)
            except Exception:  # a failing callback must not stop the answers of other changes
                logger.exception("the callback for a change failed")

    async def _outcomes_of(self, group: Sequence[_Item]) -> list[Outcome]:
        """The outcomes of a group: of the items that go into its transaction, and of the items refused before."""
        refused: set[str] = set()
        refusals = [self._refusal(item, refused) for item in group]
        fit = [item for item, refusal in zip(group, refusals, strict=True) if refusal is None]
        stored = iter(await self._stored(fit) if fit else [])
        return [next(stored) if refusal is None else refusal for refusal in refusals]

    def _refusal(self, item: _Item, refused: set[str]) -> Outcome:
        """Why an item is refused without asking the database, or None. `refused` collects the tasks of such items."""
        if not isinstance(item, _SubmittedChange):
            return None
        task_id = item.change.task_id
        if item.refusal is not None:
            refused.add(task_id)
            return item.refusal
        if task_id in refused or item.number <= self._refused.get((task_id, item.epoch), 0):
            return _after_a_refused_one(task_id)
        return None

    async def _stored(self, group: Sequence[_Item]) -> list[Outcome]:
        """Store a group, with retries after outages and races."""
        entries = [item.change if isinstance(item, _SubmittedChange) else item.entry for item in group]
        ends_at, pauses = anyio.current_time() + self._bounds.store.patience_seconds, Backoff(0.1, 2.0)
        epoch, in_doubt, races = group[0].epoch, False, 0
        while True:
            has_rested = self._connection is not None
            try:
                outcomes = await self._try_once(epoch, entries, in_doubt=in_doubt)
            except FencedError as exc:
                try:
                    await self._on_fenced(epoch)
                except StoreError as outdated:
                    return [outdated] * len(group)
                return [StoreConflictError(str(exc))] * len(group)
            except RaceError:
                races += 1
                if races == _RACES:
                    return [StoreConflictError("other replicas were faster in every attempt")] * len(group)
            except StoreAwayError as exc:
                in_doubt = True
                if has_rested and not self._closing.is_set():
                    continue  # only the idle connection may be lost, and not the database
                self._note_failure(str(exc))
                if self._closing.is_set() or anyio.current_time() >= ends_at:
                    return [exc] * len(group)
                with anyio.move_on_after(pauses.next()):
                    await self._closing.wait()
            except ContentError as exc:
                if len(group) > 1:
                    return await self._one_by_one(group)
                return [StoreError(f"the store cannot store this: {exc}")]
            else:
                self._address.sight.found(self)
                self.failure = None
                return outcomes

    async def _one_by_one(self, group: Sequence[_Item]) -> list[Outcome]:
        """Store the items of a group individually, so that an item that cannot be stored does not refuse the others."""
        outcomes: list[Outcome] = []
        refused: set[str] = set()
        for item in group:
            outcome = self._refusal(item, refused) or (await self._stored([item]))[0]
            if outcome is not None and isinstance(item, _SubmittedChange):
                refused.add(item.change.task_id)
            outcomes.append(outcome)
        return outcomes

    async def _try_once(self, epoch: int, entries: Sequence[Entry], *, in_doubt: bool) -> list[Outcome]:
        """Try once to store the entries.

        Raises:
            StoreAwayError: the connection is lost, and the changes may or may not be stored.
            FencedError: the epoch is gone; nothing was stored.
            RaceError: another replica was faster; nothing was stored.
            ContentError: a part of this group cannot be stored at all; nothing was stored.
        """
        seconds = self._bounds.store.statement_seconds
        if self._connection is None:
            self._connection = await connect(self._address.url, seconds, is_direct=self._address.is_direct)
        try:
            with bounded(self._connection, seconds):
                return await append(
                    self._connection,
                    self._place,
                    epoch,
                    entries,
                    seconds=min(seconds, self._bounds.lease.silence_seconds),
                    in_doubt=in_doubt,
                )
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation) as exc:
            raise RaceError from exc
        except UnicodeError as exc:
            raise ContentError(str(exc)) from exc
        except psycopg.Error as exc:
            if is_of_content(exc) and not self._connection.closed:
                raise ContentError(first_line(exc)) from exc
            await self._disconnect()
            raise StoreAwayError(f"the database is away: {first_line(exc)}") from exc

    def _note_failure(self, why: str) -> None:
        if self.failure is None:
            self._address.sight.lost(self, why)
        self.failure = why

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)


def _after_a_refused_one(task_id: str) -> StoreConflictError:
    return StoreConflictError(f"an earlier change of task {task_id} was refused")
