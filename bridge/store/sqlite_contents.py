"""The whole content of a SQLite store, for a file that no bridge has open. See `StoreContents`.

This module reads and writes pages of whole tasks in one long transaction; each step runs in a thread. `sqlite.py` opens
and locks the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio.to_thread

from bridge.errors import StoreError, UsageError
from bridge.local.private_files import require_writable
from bridge.store.sqlite_batch import insert_tasks
from bridge.store.sqlite_reader import read_whole_tasks
from bridge.store.sqlite_schema import STEPS, migrate, version_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from bridge.store.records import WholeTask

T = TypeVar("T")

_PAGE_TASKS: Final = 256
_PAGE_BYTES: Final = 8 * 1024 * 1024
"""The bounds of a page. A single task may be larger."""


def unchanged(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """A connection that reads a file and never changes it. Tables of an older release are updated in a copy, which
    lives as long as the connection.

    Raises:
        UsageError: the file was written by a newer release, or is not a store.
        sqlite3.Error: the file cannot be read.
    """
    log = path.with_name(f"{path.name}-wal")
    # Only a crash leaves a log that is not empty. To read such a log, SQLite makes files beside it.
    has_log = log.exists() and log.stat().st_size > 0
    connection = _connect(f"{path.as_uri()}?{'mode=ro' if has_log else 'immutable=1'}")
    stack.callback(connection.close)
    version = version_of(connection, path)
    if not version:
        raise UsageError(f"{path} holds no tasks: it is an empty file")
    if version == len(STEPS):
        return connection
    copy = _connect("")  # a temporary file, which SQLite deletes
    stack.callback(copy.close)
    connection.backup(copy)
    migrate(copy, path)
    return copy


def require_usable(path: Path) -> None:
    """Refuse a file that a bridge could not use, without creating or locking anything, because a bridge may use it now.

    Never call this in the process of that bridge, which would lose SQLite's locks (see `file_lock.py`).

    Raises:
        UsageError: the file or its folder cannot be used.
    """
    try:
        _look_at(path)
    except (OSError, sqlite3.Error) as exc:
        raise UsageError(f"the store {path} cannot be opened: {exc}") from exc


def _look_at(path: Path) -> None:
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link: name the file that it leads to, {path.readlink()}")
    require_writable(path)
    if not path.exists():
        return
    with closing(_connect(f"{path.as_uri()}?immutable=1")) as connection:
        version_of(connection, path)


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)


class SQLiteContents:
    """The contents of an open file. See `StoreContents`."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    @asynccontextmanager
    async def in_one_transaction(self, *, writes: bool) -> AsyncIterator[Self]:
        """Keep all tasks added in the block, or none if it ends with an exception.

        Raises:
            StoreError: the added tasks cannot be kept.
        """
        execute = self._connection.execute
        await self._run(lambda: execute("BEGIN IMMEDIATE" if writes else "BEGIN"))
        try:
            yield self
            await self._run(lambda: execute("COMMIT"))
        except BaseException:
            with suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise

    async def count(self) -> int:
        """The number of tasks."""
        (number,) = await self._run(lambda: self._connection.execute("SELECT count(*) FROM tasks").fetchone())
        return int(number)

    async def tasks(self) -> AsyncIterator[WholeTask]:
        """Yield every task, ordered by id."""
        after = ""
        while page := await self._page(after):
            for task in page:
                yield task
            after = page[-1].task.task_id

    async def _page(self, after: str) -> list[WholeTask]:
        return await self._run(lambda: read_whole_tasks(self._connection, after, _PAGE_TASKS, _PAGE_BYTES))

    async def add(self, tasks: Sequence[WholeTask]) -> None:
        """Add tasks with new ids.

        Raises:
            StoreError: the file cannot keep them.
        """
        await self._run(lambda: insert_tasks(self._connection, tasks))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work)
        except (sqlite3.Error, OverflowError, UnicodeError) as exc:
            raise StoreError(f"{self._name}: {exc}") from exc
