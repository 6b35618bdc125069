"""One owner for a file, by each system's lock: on the file itself, or on a file beside it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import StoreLockedError
from bridge.local.file_lock import own_file

pytestmark = pytest.mark.outside

BESIDE = pytest.mark.parametrize(
    "locks_the_file",
    [
        pytest.param(
            True, id="the file", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux locks it")
        ),
        pytest.param(False, id="a file beside it"),
    ],
)

TAKES = """
import sys
from pathlib import Path
from bridge.errors import StoreLockedError
from bridge.local.file_lock import own_file
try:
    with own_file(Path(sys.argv[1]), locks_the_file=sys.argv[2] == "True"):
        print("owned")
except StoreLockedError:
    print("refused")
"""
WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("INSERT INTO seen VALUES (2)")
    print("written")
except sqlite3.OperationalError as exc:
    print(exc)
connection.close()
"""


def printed_by(program: str, *arguments: object) -> str:
    """The output of another process that runs this code."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root, timeout=60, check=True)
    return done.stdout.strip()


@BESIDE
def test_a_file_has_one_owner_among_processes(tmp_path: Path, locks_the_file: bool) -> None:
    path = tmp_path / "tasks.db"
    with own_file(path, locks_the_file=locks_the_file):
        assert printed_by(TAKES, path, locks_the_file) == "refused"
    assert printed_by(TAKES, path, locks_the_file) == "owned"


@BESIDE
def test_a_second_owner_in_the_process_leaves_the_first_its_locks(
    tmp_path: Path, locks_the_file: bool
) -> None:
    path = tmp_path / "tasks.db"
    with own_file(path, locks_the_file=locks_the_file):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("CREATE TABLE seen (number)")
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError), own_file(path, locks_the_file=locks_the_file):
            pass
        assert printed_by(WRITES, path) == "database is locked"
        connection.close()


@pytest.mark.windows
def test_windows_locks_the_file_beside_the_store(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with own_file(path) as file:
        assert (path.with_name("tasks.db.mcp-a2a-lock").exists(), file.loss()) == (
            True,
            f"{path}-wal was deleted or moved",
        )
        with pytest.raises(StoreLockedError), own_file(path.with_name("TASKS.DB")):
            pass
