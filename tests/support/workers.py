"""Shares the tests of a run among processes that are forks of it: `--workers COUNT`, on Linux.

The run collects its tests once, and each worker is a fork that has them. Workers of pytest-xdist each collect all
tests, which takes 10 s of CPU for each, and 30 s in a new clone. A worker takes the tests of one module after another
from a pipe, and sends the reports of a test as the test ends. A worker that dies fails the test that it ran, and a new
worker runs the other tests that it had taken. A test finds in a worker what a worker of pytest-xdist has: `workerinput`
in the configuration, and the variable of the environment.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NoReturn

import pytest

from tests.support import slowest

OPTION: Final = "--workers"
ARE_POSSIBLE: Final = sys.platform == "linux"
"""Windows has no fork, and on macOS a fork must not use the system's libraries."""

_VARIABLE: Final = "PYTEST_XDIST_WORKER"
_MOST_TOGETHER: Final = 100
"""How many tests of a module are taken at once. More would keep one worker busy at the end of a run."""
_PLACE_BYTES: Final = 4
"""How long the number of a batch is in the pipe. A read of a pipe gives a whole number."""


def batches_of(modules: Sequence[str]) -> list[range]:
    """The tests of each module, by their places in the run; several batches of a large module."""
    batches: list[range] = []
    for _, group in groupby(range(len(modules)), modules.__getitem__):
        places = [*group]
        end = places[-1] + 1
        starts = range(places[0], end, _MOST_TOGETHER)
        batches += [range(start, min(start + _MOST_TOGETHER, end)) for start in starts]
    return batches


@dataclass(eq=False)
class Workers:
    """A plugin of the process that collects, which runs no test itself. `begin` is called first in each worker, with a
    folder of the worker's own."""

    count: int
    begin: Callable[[Path], None]
    _batches: list[range] = field(default_factory=list)
    _running: dict[Connection, _Worker] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in workers, and report what they report."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest says so itself
        session.config._tmp_path_factory.getbasetemp()  # of which each worker has a part
        self._batches = batches_of([item.nodeid.partition("::")[0] for item in session.items])
        queue, writable = os.pipe()
        # The last folders have the longest single tests, which would keep one worker busy at the end of the run.
        places = reversed(range(len(self._batches)))
        os.write(writable, b"".join(place.to_bytes(_PLACE_BYTES, "big") for place in places))
        os.close(writable)
        try:
            for number in range(self.count):
                self._start(session, queue, number, ())
            while self._running:
                for connection in wait([*self._running]):
                    assert isinstance(connection, Connection)
                    self._receive(session, queue, connection)
                if session.shouldfail or session.shouldstop:
                    while os.read(queue, 1 << 16):
                        pass
        finally:
            for worker in self._running.values():
                os.kill(worker.pid, signal.SIGINT)
            for worker in self._running.values():
                os.waitpid(worker.pid, 0)
            os.close(queue)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _start(self, session: pytest.Session, queue: int, number: int, first: Sequence[int]) -> None:
        readable, writable = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            for connection in (readable, *self._running):
                connection.close()
            _work(session, _Taken(queue, self._batches, deque(first), writable), number, self.begin)
        writable.close()
        self._running[readable] = _Worker(number, pid, deque(first))

    def _receive(self, session: pytest.Session, queue: int, connection: Connection) -> None:
        worker = self._running[connection]
        try:
            kind, value = connection.recv()
        except EOFError:
            kind, value = "died", None
        match kind:
            case "taken":
                worker.left += self._batches[value]
            case "reports":
                item = session.items[worker.left.popleft()]
                for data in value:
                    session.config.hook.pytest_runtest_logreport(report=_report(item, data))
                session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            case "warning":
                session.config.hook.pytest_warning_recorded.call_historic(kwargs=value)
            case "stopped":
                session.shouldstop = value
            case _:
                connection.close()
                del self._running[connection]
                _, status = os.waitpid(worker.pid, 0)
                if status and worker.left:
                    self._replace(session, queue, worker, os.waitstatus_to_exitcode(status))

    def _replace(self, session: pytest.Session, queue: int, worker: _Worker, code: int) -> None:
        """Fail the test at which a worker died, and give the other tests of the worker to a new worker."""
        item = session.items[worker.left.popleft()]
        why = f"The worker ended with {code} in this test."
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._start(session, queue, worker.number, [*worker.left])


@dataclass
class _Worker:
    number: int
    pid: int
    left: deque[int]
    """Places of the tests that it has taken and not reported."""


@dataclass
class _Taken:
    """The places of the tests that a worker runs, one after another."""

    queue: int
    batches: Sequence[range]
    left: deque[int]
    results: Connection

    def __iter__(self) -> Iterator[int]:
        while self.left or self._take():
            yield self.left.popleft()

    def _take(self) -> bool:
        if number := os.read(self.queue, _PLACE_BYTES):
            batch = int.from_bytes(number, "big")
            self.results.send(("taken", batch))
            self.left += self.batches[batch]
        return bool(number)


@dataclass(eq=False)
class _Sender:
    """A plugin of a worker, which sends what the plugins of the first process report."""

    config: pytest.Config
    results: Connection
    is_told: bool = False
    """Whether a warning is sent: pytest repeats earlier warnings to a new plugin."""
    _of_test: list[Any] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a phase. Of a phase that passed only its times are told."""
        if report.passed:
            cpu_seconds = getattr(report, slowest.CPU, 0.0)
            self._of_test.append((report.when, report.duration, report.start, report.stop, cpu_seconds))
        else:
            hook = self.config.hook
            self._of_test.append(hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        """Send the reports of a test."""
        self.results.send(("reports", self._of_test))
        self._of_test = []

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning."""
        if self.is_told:
            names = "warning_message", "when", "nodeid", "location"
            values = warning_message, when, nodeid, location
            self.results.send(("warning", dict(zip(names, values, strict=True))))


def _report(item: pytest.Item, data: Any) -> pytest.TestReport:
    """A report that a worker sent."""
    if not isinstance(data, tuple):
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        assert isinstance(report, pytest.TestReport)
        return report
    when, duration, start, stop, cpu_seconds = data
    return pytest.TestReport(
        item.nodeid, item.location, {}, "passed", None, when, (), duration, start, stop,
        **{slowest.CPU: cpu_seconds},
    )  # fmt: skip


def _work(session: pytest.Session, taken: _Taken, number: int, begin: Callable[[Path], None]) -> NoReturn:
    """Be a worker, in a new fork, until no test is left."""
    code = 1
    try:
        atexit._clear()  # those of the first process are its own
        _become_worker(session.config, number, begin)
        sender = _Sender(session.config, taken.results)
        session.config.pluginmanager.register(sender)
        sender.is_told = True
        _run(session, taken)
        taken.results.send(("ended", None))
        code = 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except Exception:  # noqa: BLE001 - the first process tells of it
        taken.results.send(("stopped", traceback.format_exc()))
    finally:
        with suppress(Exception):
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=code)
        with suppress(Exception):
            atexit._run_exitfuncs()  # `os._exit` skips them, and a database of the worker would go on
        os._exit(code)


def _become_worker(config: pytest.Config, number: int, begin: Callable[[Path], None]) -> None:
    """Leave the terminal to the first process, and have files of its own."""
    name = f"gw{number}"
    os.environ[_VARIABLE] = name
    config.workerinput = {"workerid": name}
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    if config.option.capture == "fd":
        captured = plugins.getplugin("capturemanager")._global_capturing
        for stream in (captured.out, captured.err):
            with TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())
    folders = config._tmp_path_factory
    folder = folders._basetemp = folders.getbasetemp() / name
    folder.mkdir(exist_ok=True)
    begin(folder)


def _run(session: pytest.Session, taken: _Taken) -> None:
    places = iter(taken)
    place = next(places, None)
    while place is not None and not session.shouldstop and not session.shouldfail:
        following = next(places, None)
        session.config.hook.pytest_runtest_protocol(
            item=session.items[place], nextitem=None if following is None else session.items[following]
        )
        place = following
