"""Where benchmarks run: a temporary folder, and child processes that are ended by their pid whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.messages import CARD_PATH
from tests.support.command import ROOT, environment
from tests.support.ports import free_port
from tests.support.processes import children_of

READY_SECONDS: Final = 60.0
"""How long a contestant may take to start: twenty servers on two busy cores take a while."""

_PATIENCE_SECONDS: Final = (2.0, 8.0)
"""How long a process may take to end after each SIGTERM; the second one tells the bridge not to drain."""

_POLL_SECONDS: Final = 0.002


class BenchmarkError(Exception):
    """A run that did not do what it had to; `str()` of it says what, with the last lines of the log."""


class Started:
    """A child process that takes a plan as a line of JSON, or a server that listens."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.since = time.perf_counter()

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def ask(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Have it carry out a plan; what it found."""
        self.tell(plan)
        return self.next()

    def next(self) -> dict[str, Any]:
        """Its next line, as JSON."""
        answer: dict[str, Any] = json.loads(self.hear())
        return answer

    def tell(self, message: Mapping[str, Any]) -> None:
        """Write it a line, and wait for none."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and `hear` says why
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def hear(self) -> bytes:
        """Its next line."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line
        raise self._failure("ended without an answer")

    def ready_on(self, port: int) -> float:
        """Wait until its agent card can be read; the seconds that this took since it was started."""
        return self._wait_until(_gives_card, port)

    def listens_on(self, port: int) -> float:
        """The same for a server without a card: wait until it takes connections."""
        return self._wait_until(_takes_connections, port)

    def _wait_until(self, holds: Callable[[int], bool], port: int) -> float:
        while (seconds := time.perf_counter() - self.since) < READY_SECONDS:
            if holds(port):
                return time.perf_counter() - self.since
            if self.process.poll() is not None:
                raise self._failure("ended before it served")
            time.sleep(_POLL_SECONDS)
        raise self._failure(f"did not serve within {seconds:.0f} s")

    def _failure(self, what: str) -> BenchmarkError:
        said = self.log.read_text(errors="replace").splitlines()[-15:]
        command = " ".join(map(str, self.process.args))  # type: ignore[arg-type]
        return BenchmarkError("\n".join([f"{command} {what}; it said:", *said]))


class Workplace:
    """A temporary folder, and the processes that run in it."""

    def __init__(self, folder: Path, start: type[subprocess.Popen[bytes]] = subprocess.Popen) -> None:
        self.folder = folder
        self._start = start
        self._numbers = count(1)

    def new_file(self, suffix: str) -> Path:
        """The path of a file that is not there yet."""
        return self.folder / f"{next(self._numbers)}{suffix}"

    @contextmanager
    def started(self, command: Sequence[str], checkout: Path = ROOT) -> Iterator[Started]:
        """A child process, which runs the code of a checkout; ended on exit with all that it started.

        It has a session of its own, so that Ctrl+C comes to us alone and we end it in our order.
        """
        log = self.new_file(".log")
        with log.open("wb") as errors:
            process = self._start(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=checkout,
                env=environment(self.folder, XDG_CACHE_HOME=str(self.folder), PYTHONPATH=str(checkout)),
                start_new_session=True,
            )
        try:
            yield Started(process, log)
        finally:
            with _signals_held():
                _end(process)

    @contextmanager
    def serving(self, command: Sequence[str], port: int, checkout: Path = ROOT) -> Iterator[Started]:
        """A server, once its agent card can be read."""
        with self.started(command, checkout) as started:
            started.ready_on(port)
            yield started

    @staticmethod
    def new_port() -> int:
        """A port of loopback that nobody listens on at the moment."""
        return free_port()


@contextmanager
def workplace(start: type[subprocess.Popen[bytes]] = subprocess.Popen) -> Iterator[Workplace]:
    """A workplace, removed on exit; a SIGTERM or SIGHUP ends it like Ctrl+C does. `start` starts what runs in it."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with tempfile.TemporaryDirectory(prefix="mcp-a2a-bench-") as folder:
            yield Workplace(Path(folder), start)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _gives_card(port: int) -> bool:
    request = f"GET {CARD_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS) as connection:
            connection.sendall(request.encode())
            return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS).close()
    except OSError:
        return False
    return True


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let a second Ctrl+C wait, so that it cannot leave a process behind."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _end(process: subprocess.Popen[bytes]) -> None:
    below = children_of(process.pid)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()
    for patience_seconds in _PATIENCE_SECONDS:
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_seconds)
            break
    else:
        process.kill()
        process.wait()
    _end_orphans(below)


def _end_orphans(commands: Mapping[int, str]) -> None:
    """Kill what a process has left behind, once that had a moment to see its stdin close."""
    deadline = time.monotonic() + _PATIENCE_SECONDS[0]
    while (left := _still_running(commands)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _still_running(commands: Mapping[int, str]) -> list[int]:
    """Those of some processes that run still: a pid that now has another command line is someone else's."""
    found = []
    for pid, command in commands.items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if " ".join(words).strip() == command:
                found.append(pid)
    return found
