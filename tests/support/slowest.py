"""The slowest tests of a run, with how long each computed and how long it waited: `--slowest COUNT`.

The report is for reading: no test fails because it is slow. A fixture of a module counts for the first test that needs
it. The CPU time of a process counts when the test has waited for its end.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

import pytest

OPTION: Final = "--slowest"

CPU: Final = "cpu_seconds"
"""The attribute of a report, which workers send with it."""


@dataclass
class Spent:
    """Seconds that tests took."""

    wall: float = 0.0
    cpu: float = 0.0

    @property
    def wait(self) -> float:
        """What is left of the wall time; several processes may compute for longer than it."""
        return max(self.wall - self.cpu, 0.0)

    def __str__(self) -> str:
        return f"{self.wall:8.2f} {self.cpu:8.2f} {self.wait:8.2f}"


def lines_of(spent: dict[str, Spent], count: int) -> Iterable[str]:
    """A table of the slowest tests, and the sums of all."""
    yield "    wall      CPU     wait  seconds"
    for name in sorted(spent, key=lambda one: -spent[one].wall)[:count]:
        yield f"{spent[name]}  {name}"
    total = Spent(sum(one.wall for one in spent.values()), sum(one.cpu for one in spent.values()))
    yield f"{total}  all {len(spent)} tests"


@dataclass(eq=False)
class Slowest:
    """A plugin that measures each test, in a worker or in the only process, and reports where the run is reported."""

    count: int
    _spent: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    _cpu: float = 0.0

    def pytest_runtest_logstart(self) -> None:
        """The first phase of a test begins here."""
        self._cpu = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note in the report of a phase what the phase computed."""
        report = yield
        before, self._cpu = self._cpu, _cpu_seconds()
        setattr(report, CPU, self._cpu - before)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase to its test. A worker that crashed sent no CPU time."""
        spent = self._spent[report.nodeid]
        spent.wall += report.duration
        spent.cpu += getattr(report, CPU, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        terminalreporter.section(f"slowest {self.count} tests")
        for line in lines_of(self._spent, self.count):
            terminalreporter.write_line(line)


def _cpu_seconds() -> float:
    """What this process and its ended children computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
