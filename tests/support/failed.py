"""The tests of a run that failed, one a line in a file: `--failed-to FILE`. `tests.run` runs them once more alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

OPTION: Final = "--failed-to"


@dataclass(eq=False)
class Failed:
    """A plugin that names each test, or module that cannot be collected, once."""

    file: Path
    _names: dict[str, None] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed, in its fixtures too, or whose worker crashed."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot be imported."""
        self._note(report)

    def pytest_sessionfinish(self) -> None:
        """Write the file, where no other run's names are left."""
        self.file.write_text("".join(f"{name}\n" for name in self._names), encoding="utf-8")

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None
