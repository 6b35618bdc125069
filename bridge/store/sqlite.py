"""A store in a SQLite file. Its promises hold across a crash of the process and of the machine.

This module knows how the file is opened, owned and closed. `sqlite_writer.py` writes and `sqlite_reader.py` reads. The
file is in write-ahead mode, so readers and the writer never wait for each other.

SQLite's automatic checkpoint copies the log back into the file every 1000 pages. It runs inside a commit on the
writer's thread, so the event loop never waits for it. Every read is short, so the log can always restart and stays near
4 MB. After a burst the log is truncated to `LOG_LIMIT_BYTES`.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from bridge.errors import StoreError, UsageError
from bridge.local.file_lock import LOCK_ENDING, OwnedFile, own_file
from bridge.local.file_names import length_hint, refusal_of
from bridge.local.private_files import private_file, private_folder
from bridge.store.contract import OnStored
from bridge.store.records import Change, Query, Quota, StoredMessage, StoredTask, TaskPage
from bridge.store.retention import surplus_of, tasks_over_byte_quota
from bridge.store.sqlite_batch import delete_tasks
from bridge.store.sqlite_contents import SQLiteContents, unchanged
from bridge.store.sqlite_outbox import SQLiteOutbox
from bridge.store.sqlite_reader import Reader
from bridge.store.sqlite_schema import migrate, touch
from bridge.store.sqlite_writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
    from types import TracebackType

T = TypeVar("T")

Synchronous: TypeAlias = Literal["full", "normal"]
"""When a commit waits for the disk: "full" every time, "normal" only when the log is copied back. Both survive a crash
of the process. Only "full" keeps the last commits across a crash of the machine."""

OLDEST_SQLITE: Final = (3, 33, 0)
"""The release of 2020 that introduced UPDATE FROM."""

INLINE_LIMIT_BYTES: Final = 64 * 1024
"""The largest task that is read on the event loop, which takes 40 us. A larger task, where a megabyte takes 400 us, is
read in a thread, which costs 200 us more. A listing reads many tasks and counts the rest, so it always runs in a
thread."""

_ENDINGS: Final = ("", "-wal", "-shm")
"""The suffixes of the names of a database's files."""

PAGE_TASKS: Final = 64
"""The number of unfinished tasks that are read at a time."""

EVICTED_AT_ONCE: Final = 256
"""The most tasks that one transaction deletes. Changes can be written between such transactions."""

LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The largest size that the write-ahead log keeps on the disk after a burst."""

CLOSE_SECONDS: Final = 30.0
"""How long closing waits for the last changes to reach the disk."""


class SQLiteStore:
    """Keeps tasks in a SQLite file, which one process owns. See `Store` for the promises."""

    def __init__(self, path: str | Path, *, synchronous: Synchronous = "full") -> None:
        """Name the file. Entering the store creates a missing file.

        Raises:
            UsageError: the path is ":memory:", or names a device.
        """
        if str(path) == ":memory:":
            raise UsageError("a SQLite store needs a file; a store in memory is MemoryStore")
        if (refusal := refusal_of(Path(path))) is not None:
            raise UsageError(refusal)
        self._path = Path(path).parent.resolve() / Path(path).name
        self._synchronous = synchronous
        self._resources = ExitStack()

    async def __aenter__(self) -> Self:
        """Lock and open the file. A missing file or folder is created.

        Raises:
            StoreLockedError: another process owns the file.
            UsageError: the file cannot be opened, is not a store, was written by a newer release, or other users of
                this machine can access it.
        """
        # Unlike a scan, this runs on the loop's thread: nothing is served yet, and a cancellation cannot
        # separate the lock from the store that has to release it.
        connection, file = self._open()
        # Look-ups on the loop never wait for a scan, because scans have another connection.
        self._scans_at_once = anyio.CapacityLimiter(1)
        hooked = self._look_ups.hooked()
        self._writer = Writer(connection, str(self._path), self._resources.close, file.loss, hooked)
        self._outbox = SQLiteOutbox(self._writer, self._look_ups)
        # Entering a task group does not wait either.
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._writer.deliver)
        return self

    def _open(self) -> tuple[sqlite3.Connection, OwnedFile]:
        with self._as_usage_errors(), ExitStack() as stack:
            connection, file = self._own(stack)
            self._look_ups = stack.enter_context(Reader(self._path))
            self._scans = stack.enter_context(Reader(self._path))
            self._resources = stack.pop_all()
        return connection, file

    def _own(self, stack: ExitStack) -> tuple[sqlite3.Connection, OwnedFile]:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise UsageError(f"SQLite {sqlite3.sqlite_version} is too old: {OLDEST_SQLITE} is needed")
        private_folder(self._path.parent)
        # This creates the file, because SQLite would make it readable for everyone. The log inherits the mode.
        file = stack.enter_context(own_file(self._path))
        # Before SQLite opens the files: closing any descriptor of a file releases all its POSIX locks.
        for ending in _ENDINGS:
            private_file(self._path.with_name(self._path.name + ending))
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        stack.callback(connection.close)
        self._configure(connection)
        migrate(connection, self._path)
        if (loss := file.loss()) is not None:
            raise UsageError(f"the store {self._path} cannot be opened: {loss}")
        return connection, file

    @contextmanager
    def _as_usage_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as exc:
            hint = length_hint(self._path, len(LOCK_ENDING))
            raise UsageError(f"the store {self._path} cannot be opened: {exc}{hint}") from exc

    @asynccontextmanager
    async def contents(self, *, create: bool) -> AsyncIterator[SQLiteContents]:
        """The whole content of the store; see `Store.contents`."""
        with ExitStack() as stack:
            with self._as_usage_errors():
                if create:
                    connection, _ = self._own(stack)
                elif self._path.exists():
                    stack.enter_context(own_file(self._path))
                    connection = unchanged(self._path, stack)
                else:
                    raise UsageError(f"there is no store {self._path}")
            async with SQLiteContents(connection, str(self._path)).in_one_transaction(
                writes=create
            ) as whole_contents:
                yield whole_contents

    def _configure(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise UsageError(f"{self._path} is on a file system without shared memory: use a local disk")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        # On macOS a plain fsync does not flush the drive's cache.
        connection.execute(f"PRAGMA fullfsync = {self._synchronous == 'full'}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write and answer the submitted changes, then release the file, within `CLOSE_SECONDS`.

        A cancellation does not shorten this.
        """
        # The writer's thread closes the connections and the lock after its last write. It closes the writing
        # connection last, which copies the log back into the file and removes the log.
        try:
            await self._writer.close(CLOSE_SECONDS)
        finally:
            # Without the block's own exception, which the group would wrap in an exception group.
            await self._group.__aexit__(None, None, None)

    @property
    def path(self) -> Path:
        """The path of the file, which may not exist yet."""
        return self._path

    def submit(self, change: Change, done: OnStored) -> None:
        """Queue a change; see `Store.submit`."""
        self._writer.submit(change, done)

    async def load(self, task_id: str) -> StoredTask | None:
        """The task with this id, of any owner; None if there is none.

        Raises:
            StoreError: the file cannot be read. All reads raise it.
        """
        weight_bytes = self._look_ups.weigh(task_id)
        if weight_bytes is None:
            return None
        if weight_bytes <= INLINE_LIMIT_BYTES:
            return self._look_ups.task(task_id)
        return await self._scan(partial(self._scans.task, task_id))

    async def list(self, query: Query) -> TaskPage:
        """A page of the owner's tasks, or of the tasks of all owners."""
        return await self._scan(partial(self._scans.listing, query))

    async def context_owner(self, context_id: str) -> str | None:
        """The owner of a context; None if it has no task."""
        return self._look_ups.context_owner(context_id)

    async def find_message(self, owner: str, message_id: str) -> StoredMessage | None:
        """The stored message of this owner with this id; None if there is none."""
        return self._look_ups.message(owner, message_id)

    @property
    def replicas(self) -> None:
        """None: this replica holds every task."""

    @property
    def outbox(self) -> SQLiteOutbox:
        """The webhooks of the tasks, and the events still to be sent to them."""
        return self._outbox

    async def unfinished(self) -> AsyncIterator[StoredTask]:
        """Yield every unfinished task, oldest first. Each task has the state that it had when its page was read."""
        task_ids = await self._scan(self._scans.unfinished)
        for start in range(0, len(task_ids), PAGE_TASKS):
            page = task_ids[start : start + PAGE_TASKS]
            for task in await self._scan(partial(self._scans.tasks, page)):
                yield task

    async def waiting(self, states: Collection[str]) -> Mapping[str, int]:
        """The ids of the unfinished tasks in one of these states, each with its `status_ms`."""
        return await self._scan(partial(self._scans.waiting, states))

    async def evict(self, ended_before_ms: int, quota: Quota) -> int:
        """Delete ended tasks that are too old or beyond a quota, and return their number.

        Raises:
            StoreError: the store cannot write. Tasks deleted before the error stay deleted.
        """
        evicted = 0
        while task_ids := await self._scan(partial(self._scans.aged, ended_before_ms, EVICTED_AT_ONCE)):
            evicted += await self._writer.run(partial(delete_tasks, task_ids=task_ids))
        for owner, number in surplus_of(await self._scan(self._scans.count_ended), quota).items():
            evicted += await self._evict_oldest(owner, number)
        heavy = tasks_over_byte_quota(await self._scan(self._scans.ended_sizes), quota)
        for start in range(0, len(heavy), EVICTED_AT_ONCE):
            task_ids = heavy[start : start + EVICTED_AT_ONCE]
            evicted += await self._writer.run(partial(delete_tasks, task_ids=task_ids))
        return evicted

    async def _evict_oldest(self, owner: str, number: int) -> int:
        evicted = 0
        while number > 0:
            task_ids = await self._scan(
                partial(self._scans.oldest_ended, owner, min(number, EVICTED_AT_ONCE))
            )
            if not task_ids:
                break
            evicted += await self._writer.run(partial(delete_tasks, task_ids=task_ids))
            number -= len(task_ids)
        return evicted

    @property
    def lasts(self) -> bool:
        """True: the store is a file."""
        return True

    @property
    def failure(self) -> str | None:
        """The reason why the store cannot write; None while it can."""
        return self._writer.failure

    async def probe(self) -> bool:
        """Try to write, and return whether it worked. Success clears `failure`."""
        try:
            await self._writer.run(touch)
        except StoreError:
            return False
        return True

    async def check(self) -> None:
        """Check, with a transaction that changes nothing, that the opened file still exists at its path."""
        with suppress(StoreError):
            await self._writer.run(lambda _: 0)

    async def _scan(self, read: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(read, limiter=self._scans_at_once)
