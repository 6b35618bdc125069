"""A PgBouncer of the tests' own, in transaction mode: each transaction of a connection may get another session.

Where the program is not installed, tests that need it are skipped by name. It refuses to be run by root, so that root
runs it as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_WAIT_SECONDS: Final = 30.0
_SETTINGS: Final = """
[databases]
postgres = host={behind} user=postgres dbname=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 5432
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
logfile = {folder}/log
"""


@contextmanager
def pgbouncer(behind: Path) -> Iterator[str]:
    """One in front of the server whose socket is in a folder; its URL. It has fewer sessions than clients."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="mcp-a2a-pool-"))
    try:
        (folder / "settings").write_text(_SETTINGS.format(folder=folder, behind=behind))
        user = "nobody" if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user)
        with subprocess.Popen([program, "-q", str(folder / "settings")], user=user, cwd="/") as process:
            try:
                _wait_for(folder / ".s.PGSQL.5432", process)
                yield f"postgresql://postgres@/postgres?host={folder}"
            finally:
                process.kill()
    finally:
        shutil.rmtree(folder)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + _WAIT_SECONDS
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > ends_at:
            raise RuntimeError("PgBouncer did not start")
        time.sleep(0.01)
