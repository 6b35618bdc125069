"""The promises of the store in a file only: it has one owner, and accepted changes outlive the process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.errors import StoreConflictError, StoreError, StoreLockedError, UsageError
from bridge.store.records import Change, Query, TaskHead
from bridge.store.sqlite import SQLiteStore
from bridge.store.sqlite_schema import APPLICATION_ID, STEPS, migrate
from bridge.store.sqlite_writer import Writer
from tests.store.changes import first, keep, keep_all
from tests.support.lines import Lines
from tests.support.sqlite_log import log_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX modes, limits or signals")
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the lock is on a file beside the store"
)

WRITES_WITHOUT_END = """
import asyncio, sys
from bridge.store.records import Change, TaskHead, TaskOrigin
from bridge.store.sqlite import SQLiteStore

async def main(path):
    async with SQLiteStore(path) as store:
        def write(task_id, seq):
            def done(error):
                assert error is None, error
                print(task_id, seq, flush=True)
                write(task_id, seq + 1)
            snapshot = b"%d" % seq if seq % 7 == 1 else None
            origin = TaskOrigin(task_id, "ann", 1) if seq == 1 else None
            head = TaskHead("working", False, seq) if seq % 5 == 1 else None
            store.submit(Change(task_id, seq, b"%d" % seq, head, snapshot, origin=origin), done)
        for number in range(5):
            write(f"t{number}", 1)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""

FILLS_THE_DISK = """
import asyncio, logging, resource, sys
from bridge.store.records import Change, TaskHead, TaskOrigin
from bridge.store.sqlite import SQLiteStore

logging.basicConfig(stream=sys.stdout, format="%(message)s")

async def main(path):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with SQLiteStore(path) as store:
        async def keep(number):
            kept = asyncio.get_running_loop().create_future()
            head, origin = TaskHead("working", False, 1), TaskOrigin("talk", "ann", 1)
            change = Change(f"t{number:04}", 1, b"", head, b"s" * 9000, origin=origin)
            store.submit(change, kept.set_result)
            return await kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
        number, error = 0, None
        while error is None:
            number += 1
            error = await keep(number)
        print(number, type(error).__name__, store.failure is not None)
        print(type(await keep(number)).__name__, await store.load(f"t{number:04}"), store.failure is not None)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        print(await keep(number) is None and await keep(number + 1) is None, store.failure)

asyncio.run(main(sys.argv[1]))
"""

FAILS_A_PROBE = """
import asyncio, resource, sys
from bridge.store.sqlite import SQLiteStore

async def main(path):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with SQLiteStore(path) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))
        print(await store.probe(), store.failure is not None)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        print(await store.probe(), store.failure)

asyncio.run(main(sys.argv[1]))
"""

TAKES_THE_FILE = """
import asyncio, sys
from bridge.errors import StoreError
from bridge.store.sqlite import SQLiteStore

async def main(path):
    try:
        async with SQLiteStore(path):
            print("owned")
    except StoreError as exc:
        print(type(exc).__name__)

asyncio.run(main(sys.argv[1]))
"""

COMES_FROM_OUTSIDE = """
import os, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("UPDATE tasks SET state = 'mine'")
    print("written")
except sqlite3.OperationalError as exc:
    print(exc)
connection.close()
print("the log is", "there" if os.path.exists(sys.argv[1] + "-wal") else "gone")
"""

OWNS_THE_FILE = """
import asyncio, sys
from bridge.store.sqlite import SQLiteStore

async def main(path):
    async with SQLiteStore(path):
        print("owned", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


@contextmanager
def running(program: str, path: Path) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    """A child process that runs a program on a store's path, killed at the end, and what it prints."""
    command = [sys.executable, "-W", "error", "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        try:
            yield child, Lines(child, child.stdout)
        finally:
            child.kill()


def printed_by(program: str, path: Path) -> list[str]:
    """The lines that a program prints. The program must succeed."""
    command = [sys.executable, "-W", "error", "-c", program, str(path)]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=True)
    return child.stdout.splitlines()


async def test_stored_tasks_are_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"), Change("t1", 2, b"two"))
        task = await store.load("t1")
    async with SQLiteStore(path) as store:
        assert await store.load("t1") == task
        (error,) = await keep_all(store, Change("t1", 2, b"two again"))
        assert isinstance(error, StoreConflictError)
        await keep(store, Change("t1", 3, b"three"))


async def test_closing_the_store_leaves_one_file_without_a_log(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        assert (tmp_path / "tasks.db-wal").exists()
    assert {file.name for file in tmp_path.iterdir()} - {"tasks.db.mcp-a2a-lock"} == {"tasks.db"}


async def test_a_second_owner_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path):
        with pytest.raises(StoreLockedError, match=r"tasks\.db is in use"):
            await SQLiteStore(path).__aenter__()
    async with SQLiteStore(path):
        pass


@posix_only
async def test_a_symbolic_link_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "tasks.db")
    with pytest.raises(UsageError, match=r"link\.db is a symbolic link: name the file that it leads to"):
        await SQLiteStore(tmp_path / "link.db").__aenter__()
    assert [file.name for file in tmp_path.iterdir()] == ["link.db"]


@linux_only
@pytest.mark.proves("store-owner")
async def test_another_name_of_the_file_makes_no_second_owner(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "tasks.db"):
        (tmp_path / "other.db").hardlink_to(tmp_path / "tasks.db")
        with pytest.raises(StoreLockedError):
            await SQLiteStore(tmp_path / "other.db").__aenter__()
        assert printed_by(TAKES_THE_FILE, tmp_path / "other.db") == ["StoreLockedError"]


@linux_only
@pytest.mark.proves("store-owner")
async def test_deleting_the_lock_file_makes_no_second_owner(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "tasks.db"):
        for file in tmp_path.glob("*lock*"):
            file.unlink()
        assert printed_by(TAKES_THE_FILE, tmp_path / "tasks.db") == ["StoreLockedError"]


@posix_only
@pytest.mark.proves("store-owner")
async def test_no_other_process_can_write_within_a_transaction(
    tmp_path: Path,
) -> None:
    """Closing any descriptor of the file would silently release SQLite's own locks."""
    path, writes = tmp_path / "tasks.db", threading.Barrier(2, timeout=30)

    def hold(connection: sqlite3.Connection) -> int:
        connection.execute("UPDATE tasks SET state = 'held'")
        writes.wait()
        writes.wait()
        return 0

    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        for _ in range(1_000):
            await store.check()
        assert await store.probe()
        with pytest.raises(StoreLockedError):
            await SQLiteStore(path).__aenter__()
        async with anyio.create_task_group() as group:
            group.start_soon(store._writer.run, hold)
            await anyio.to_thread.run_sync(writes.wait)
            assert printed_by(COMES_FROM_OUTSIDE, path) == ["database is locked", "the log is there"]
            await anyio.to_thread.run_sync(writes.wait)
        await keep(store, first("t2"))
    async with SQLiteStore(path) as store:
        assert await store.load("t2") is not None


@posix_only
async def test_access_of_others_to_the_files_is_removed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    path = folder / "tasks.db"
    async with SQLiteStore(path):
        pass
    folder.chmod(0o777)
    path.chmod(0o664)
    async with SQLiteStore(path):
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (folder, path)]
    assert modes == [0o775, 0o660]
    assert f"everyone on this machine could write to {folder}; its mode is 775 from now on" in caplog.text
    assert f"everyone on this machine could read {path}; its mode is 660 from now on" in caplog.text


@posix_only
async def test_a_file_of_another_user_in_a_shared_folder_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file to another user")
    tmp_path.chmod(0o1777)
    path = tmp_path / "tasks.db"
    path.touch()
    os.chown(path, 65_534, -1)
    with pytest.raises(UsageError, match="belongs to another user, in a folder that everyone can write to"):
        await SQLiteStore(path).__aenter__()


@pytest.mark.proves("store-owner")
@posix_only
async def test_another_process_owns_the_file_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with running(OWNS_THE_FILE, path) as (child, lines):
        assert lines.until("\n") == "owned\n"
        with pytest.raises(StoreLockedError):
            await SQLiteStore(path).__aenter__()
        child.kill()
        child.wait(timeout=10)
        async with SQLiteStore(path) as store:
            await keep(store, first("t1"))


@pytest.mark.proves("store-kill")
@posix_only
@pytest.mark.parametrize("lines_before_death", [1, 40, 600])
async def test_every_acknowledged_change_outlives_a_killed_process(
    tmp_path: Path, lines_before_death: int
) -> None:
    path = tmp_path / "tasks.db"
    with running(WRITES_WITHOUT_END, path) as (child, lines):
        for _ in range(lines_before_death):
            lines.until("\n")
        child.kill()
        lines.rest()
        acknowledged = [line for line in lines.said if line.endswith("\n")]
    newest: dict[str, int] = {}
    for line in acknowledged:
        task_id, number = line.split()
        assert int(number) == newest.get(task_id, 0) + 1
        newest[task_id] = int(number)
    async with SQLiteStore(path) as store:
        for task_id, seq in newest.items():
            task = await store.load(task_id)
            assert task is not None
            assert task.seq >= seq
            history = [int(task.snapshot), *(int(event) for event in task.events)]
            assert history == list(range(history[0], task.seq + 1))
            await keep(store, Change(task_id, task.seq + 1, b"goes on"))
        assert {task.task_id async for task in store.unfinished()} >= newest.keys()


@posix_only
def test_a_full_disk_refuses_changes_until_there_is_room_again(tmp_path: Path) -> None:
    """One log line reports it, without a traceback."""
    logged, filled, refused, recovered = printed_by(FILLS_THE_DISK, tmp_path / "tasks.db")
    assert logged.startswith(f"{tmp_path / 'tasks.db'}: changes cannot be stored: ")
    assert filled.split()[1:] == ["StoreError", "True"]
    assert refused == "StoreError None True"
    assert recovered == "True None"
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        (tasks,) = connection.execute("SELECT count(*) FROM tasks").fetchone()
        assert tasks == int(filled.split()[0]) + 1
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@posix_only
def test_a_probe_tells_whether_the_disk_can_be_written(tmp_path: Path) -> None:
    assert printed_by(FAILS_A_PROBE, tmp_path / "tasks.db") == ["False True", "True None"]


async def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path):
        pass
    set_version(path, len(STEPS) + 1)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"newer release \(schema 5, this release reads up to 4\): install"):
        await SQLiteStore(path).__aenter__()
    assert path.read_bytes() == before
    set_version(path, len(STEPS))
    async with SQLiteStore(path):
        pass


def set_version(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


async def test_opening_updates_a_file_of_the_first_version(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(STEPS[0])
        connection.executemany(
            "INSERT INTO tasks VALUES (?, 'talk', 'ann', 1, ?, ?, 1)",
            [("a", "asks", 0), ("b", "asks", 0), ("c", "runs", 0), ("d", "done", 1)],
        )
        connection.execute(
            "INSERT INTO snapshots SELECT task_id, 1, CAST(task_id || ' made' AS BLOB) FROM tasks"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    path.chmod(0o600)
    async with SQLiteStore(path) as store:
        assert (await store.list(Query("ann", 1))).total == 4
        assert (await store.list(Query("ann", 1, state="done"))).total == 1
        assert [task.task_id async for task in store.unfinished()] == ["a", "b", "c"]
        assert (await store.list(Query("ann", 1, state="asks"))).total == 2
        await keep(store, Change("a", 2, b"", head=TaskHead("runs", ended=False, status_ms=2)))
        assert (await store.list(Query("ann", 1, state="asks"))).total == 1
        assert [task.snapshot for task in (await store.list(Query("ann", 4))).tasks] == [
            b"a made",
            b"d made",
            b"c made",
            b"b made",
        ]


async def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE history (url TEXT)")
    connection.close()
    with pytest.raises(UsageError, match="not a store of this bridge"):
        await SQLiteStore(path).__aenter__()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and they are long enough to have a header " * 20)
    with pytest.raises(UsageError, match="cannot be opened"):
        await SQLiteStore(path).__aenter__()


def test_memory_is_no_path_of_a_sqlite_store() -> None:
    with pytest.raises(UsageError, match="MemoryStore"):
        SQLiteStore(":memory:")


@posix_only
async def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with SQLiteStore(folder / "tasks.db") as store:
        await keep(store, first("t1"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes.keys() >= {"tasks.db", "tasks.db-wal"}
    assert set(modes.values()) == {0o600}


async def test_changes_of_one_turn_share_a_transaction(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None, check_same_thread=False)
    migrate(connection, tmp_path / "tasks.db")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    writer = Writer(connection, "tasks.db", connection.close)
    async with anyio.create_task_group() as group:
        group.start_soon(writer.deliver)
        for number in range(41):
            writer.submit(first(f"t{number}"), lambda _: None)
        await writer.close(wait_seconds=10)
    assert statements.count("COMMIT") == 1
    # A statement is traced once more for each trigger that it fires.
    assert len(set(statements)) < 10


async def test_a_change_that_may_wait_shares_the_transaction_of_the_next_change(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        before, answers = log_of(path).commits, []
        store.submit(Change("t1", 2, b"", may_wait=True), answers.append)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not answers
        store.submit(first("t2"), answers.append)
        while len(answers) < 2:
            await asyncio.sleep(0)
        assert answers == [None, None]
        assert log_of(path).commits == before + 1


async def test_a_change_that_may_wait_is_stored_although_no_other_change_comes(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        await keep(store, first("t1"))
        await keep(store, Change("t1", 2, b"", may_wait=True))
        store.submit(Change("t1", 3, b"", may_wait=True), lambda _: None)
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        task = await store.load("t1")
        assert task is not None
        assert task.seq == 3


async def test_events_that_a_later_snapshot_covers_are_never_written(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await keep(
            store,
            first("t1"),
            Change("t1", 2, b"covered"),
            Change("t1", 3, b"", snapshot=b"s"),
            Change("t1", 4, b"kept"),
        )
        assert b"covered" not in path.read_bytes() + path.with_name("tasks.db-wal").read_bytes()


async def test_a_change_that_cannot_be_stored_is_refused_alone(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        answers = await keep_all(
            store,
            first("t1"),
            first("t2", context_id="\ud800"),
            first("t3", head=TaskHead("working", ended=False, status_ms=1 << 70)),
            first("t4"),
        )
        assert [type(answer) for answer in answers] == [type(None), StoreError, StoreError, type(None)]
        assert store.failure is None
        assert await store.load("t4") is not None


async def test_a_failing_callback_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        store.submit(first("t1"), lambda _: 1 // 0)  # type: ignore[arg-type]  # it never answers
        await keep(store, first("t2"))
    assert "ZeroDivisionError" in caplog.text


async def test_closing_answers_all_submitted_changes_and_then_refuses(tmp_path: Path) -> None:
    answers: list[Exception | None] = []
    async with SQLiteStore(tmp_path / "tasks.db") as store:
        for number in range(100):
            store.submit(first(f"t{number}"), answers.append)
    assert answers == [None] * 100
    store.submit(first("late"), answers.append)
    assert isinstance(answers[-1], StoreError)
    with pytest.raises(StoreError, match="closed"):
        await store.load("t1")
    assert not await store.probe()


async def test_closing_finishes_although_its_scope_is_cancelled(tmp_path: Path) -> None:
    answers: list[Exception | None] = []
    path = tmp_path / "tasks.db"
    with anyio.CancelScope() as scope:
        async with SQLiteStore(path) as store:
            store.submit(first("t1"), answers.append)
            scope.cancel()
    assert answers == [None]
    async with SQLiteStore(path) as store:
        assert await store.load("t1") is not None


async def test_closing_finishes_although_its_task_is_cancelled(tmp_path: Path) -> None:
    answers: list[Exception | None] = []
    path = tmp_path / "tasks.db"
    entered = asyncio.Event()

    async def own() -> None:
        async with SQLiteStore(path) as store:
            store.submit(first("t1"), answers.append)
            entered.set()

    task = asyncio.create_task(own())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answers == [None]
    async with SQLiteStore(path) as store:
        assert await store.load("t1") is not None


async def test_the_log_starts_over_instead_of_growing(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with SQLiteStore(path) as store:
        await keep(store, first("t1"))
        for seq in range(2, 302):
            await keep(store, Change("t1", seq, b"", snapshot=b"s" * 100_000))
        assert path.with_name("tasks.db-wal").stat().st_size < 8 * 1024 * 1024
