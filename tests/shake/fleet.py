"""The replicas that are shaken: processes of `mcp-a2a serve`, each with its own way to the database, and clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import httpx2

from tests.shake.network import SilentProxy
from tests.shake.webhooks import ATTEMPT_SECONDS
from tests.support.command import environment
from tests.support.fork_server import ROOT
from tests.support.forked import Forked
from tests.support.ports import free_port

AGENT: Final = "shaken"
LEASE_SECONDS: Final = 2.0
TOKENS: Final = {name: f"the-token-of-{name}-which-nobody-else-has" for name in ("ann", "bob")}
_KEY: Final = "the key of all the replicas that are shaken"
_START_SECONDS: Final = 60.0
_NO_DATABASE: Final = 2
"""The exit code of a start that finds no database: whatever supervises it starts it again."""
_SHIFTS: Final = (0, 3600, -3600, 0)
"""How the clock of each replica is wrong, in seconds."""

_PROFILE: Final = f"""
extends = "default"
[run]
drain_seconds = 1
concurrency = 64
[requests]
open_tasks = 100000
[push]
pauses_seconds = [0.2, 0.5, {", ".join(["1"] * 60)}]
attempt_seconds = {ATTEMPT_SECONDS}
each_principal = 10000
each_host = 16
[store]
lease_seconds = {LEASE_SECONDS:g}
statement_seconds = 5
keep_events_seconds = 100000
keep_ended_tasks = 10000000
keep_ended_tasks_each = 10000000
"""
_FILE: Final = """
[bridge]
store = {store}
keys = [{{ env = "BRIDGE_KEY" }}]
mapping = "profile.toml"
public_url = "http://127.0.0.1:9"
[push]
enabled = true
allow = ["{receiver}"]
[principals.ann]
bearer = {{ env = "TOKEN_OF_ANN" }}
[principals.bob]
bearer = {{ env = "TOKEN_OF_BOB" }}
[tool_servers.notes]
command = ["{python}", "-S", "-E", "{tests}/shake/tool_server.py", "{folder}/runs"]
[tool_servers.jobs]
command = ["{python}", "-S", "-E", "{tests}/support/asking_server.py", "--era", "modern", "--jobs", "{folder}/jobs"]
[tools_as_agent.{agent}]
from = ["notes", "jobs"]
mapping = "profile.toml"
"""
_LIBRARIES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")


def faketime_library() -> Path | None:
    """The library of Debian's package `faketime`; FAKETIME_LIBRARY names it where it stands elsewhere."""
    named = os.environ.get("FAKETIME_LIBRARY")
    found = [Path(named)] if named else [one for way in _LIBRARIES for one in Path("/").glob(way[1:])]
    return next((one for one in found if one.is_file()), None)


def write_files(folder: Path, store: str, receiver: str) -> Path:
    """Write the configuration of all replicas. `store` is its value in TOML, `receiver` where webhooks are."""
    (folder / "profile.toml").write_text(_PROFILE)
    file = folder / "bridge.toml"
    file.write_text(
        _FILE.format(
            store=store,
            receiver=receiver,
            python=sys.executable,
            tests=ROOT / "tests",
            folder=folder,
            agent=AGENT,
        )
    )
    return file


@dataclass
class ShakenReplica:
    """A replica, which is another process after each kill."""

    number: int
    file: Path
    shift_seconds: int = 0
    proxy: SilentProxy | None = None
    """Its way to the database; None for a file."""
    port: int = field(default_factory=free_port)
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What the database calls it: another name after each start."""
        return f"replica-{self.number}-{self.starts}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.file.with_name(f"log-{self.number}")

    def start(self) -> None:
        """Start a process."""
        self.starts += 1
        more = {f"TOKEN_OF_{name.upper()}": token for name, token in TOKENS.items()}
        if self.proxy is not None:
            place = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/postgres"
            more["DATABASE_URL"] = f"{place}?application_name={self.name}"
        start: type[subprocess.Popen[bytes]] = Forked
        library = faketime_library()
        if self.shift_seconds and library is not None:
            start = subprocess.Popen
            more |= {
                "LD_PRELOAD": str(library),
                "FAKETIME": f"{self.shift_seconds:+d}",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        command = [sys.executable, "-P", "-m", "bridge", "serve", "--no-reload", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = start(
                [*command, str(self.file)],
                env=environment(self.file.parent, BRIDGE_KEY=_KEY, **more),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> float:
        """End the process at once. Returns when that was, in seconds since the epoch."""
        assert self.process is not None
        self.process.kill()
        at = time.time()
        self.process.wait()
        return at

    def send(self, number: signal.Signals) -> float:
        """Send a signal, unless the process has ended."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return time.time()


@dataclass
class ShakenFleet:
    """All replicas."""

    replicas: list[ShakenReplica]
    without_database: int = 0
    """How many starts found no database, and ended as they should."""
    deaths: list[str] = field(default_factory=list)
    """Processes that ended otherwise without being killed."""

    @property
    def runs(self) -> Path:
        """Where the tool server notes each run."""
        return self.replicas[0].file.with_name("runs")

    @property
    def ports(self) -> Sequence[int]:
        """Where they listen."""
        return [replica.port for replica in self.replicas]

    async def start(self) -> None:
        """Start all, and wait until they are ready."""
        for replica in self.replicas:
            if replica.proxy is not None:
                await replica.proxy.start()
            replica.start()
        await self.ready()
        if self.deaths or self.without_database:
            raise RuntimeError(f"the replicas did not start: {self.replicas[0].log.read_text()}")

    async def ready(self) -> None:
        """Wait until all are ready."""
        async with httpx2.AsyncClient() as client:
            with anyio.fail_after(_START_SECONDS):
                for replica in self.replicas:
                    while not await _is_ready(client, replica):
                        self.restart_dead()
                        await anyio.sleep(0.1)

    async def stop(self) -> None:
        """End all at once."""
        for replica in self.replicas:
            if replica.process is not None:
                replica.send(signal.SIGCONT)
                replica.kill()
            if replica.proxy is not None:
                await replica.proxy.stop()

    def restart_dead(self) -> None:
        """Start again what ended by itself, and note it."""
        for replica in self.replicas:
            code = None if replica.process is None else replica.process.poll()
            if code is None:
                continue
            if code == _NO_DATABASE:
                self.without_database += 1
            else:
                self.deaths.append(f"{replica.name} ended by itself with {code}: see {replica.log}")
            replica.start()

    def tracebacks(self) -> list[str]:
        """The last lines of the tracebacks in what they said."""
        found = []
        for replica in self.replicas:
            inside = False
            for line in replica.log.read_text(errors="replace").splitlines():
                if line.startswith("Traceback"):
                    inside = True
                elif inside and line and not line.startswith(" "):
                    found.append(line[:200])
                    inside = False
        return found


async def _is_ready(client: httpx2.AsyncClient, replica: ShakenReplica) -> bool:
    try:
        answer = await client.get(f"http://127.0.0.1:{replica.port}/readyz", timeout=5)
    except httpx2.TransportError:
        return False
    return answer.status_code == 200


def fleet_on(
    folder: Path, behind: Path | None, number: int, *, with_clocks: bool, receiver: str = "127.0.0.1:9"
) -> ShakenFleet:
    """Replicas with a store behind a unix socket of PostgreSQL, or one with a file."""
    store = '{ env = "DATABASE_URL" }' if behind is not None else f'"{folder}/tasks.db"'
    file = write_files(folder, store, receiver)
    return ShakenFleet(
        [
            ShakenReplica(
                place,
                file,
                _SHIFTS[place % len(_SHIFTS)] if with_clocks else 0,
                SilentProxy(behind) if behind is not None else None,
            )
            for place in range(number)
        ]
    )
