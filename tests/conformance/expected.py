"""The failures that are expected, each with its reason, and what is to be said of a run beside them.

One file has all of them (`expected.toml`). An entry holds for every run that it does not leave out, and each of
its checks has to fail in each of these.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tests.conformance.outcomes import Outcome
from tests.conformance.runs import SUITES, Run, Side

FILE: Final = Path(__file__).with_name("expected.toml")


class ExpectedFailure(BaseModel):
    """Some checks that fail for one reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(pattern=r"^(no A2A counterpart|needs [^:]+|a fault of the suite): .")
    checks: tuple[str, ...] = Field(min_length=1)
    """Each `scenario / check`."""
    suites: tuple[str, ...] = ()
    """Versions; none stands for all, also below."""
    specs: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()

    @field_validator("suites", "specs")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = set(names) - {name for suite in SUITES for name in (suite.version, suite.spec)}
        if unknown:
            raise ValueError(f"no suite is of {', '.join(sorted(unknown))}")
        return names

    def holds_for(self, run: Run) -> bool:
        """Whether it speaks of this run."""
        return all(
            not wanted or value in wanted
            for wanted, value in (
                (self.suites, run.suite.version),
                (self.specs, run.suite.spec),
                (self.sides, run.side),
            )
        )


@dataclass(frozen=True)
class Verdict:
    """How a run differs from what is expected of it."""

    failed: tuple[str, ...] = ()
    """Failed, and nobody expected it."""
    passed: tuple[str, ...] = ()
    """Passed, although it is expected to fail; or was not made at all."""
    empty: tuple[str, ...] = ()
    """Scenarios that came to no check."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Where it differs."""
        named = (*self.failed, *self.empty, *self.passed)
        return tuple(dict.fromkeys(name.partition(" / ")[0] for name in named))

    @property
    def lines(self) -> list[str]:
        """What there is to say; nothing when all is as expected."""
        return [
            *(f"failed, which is not expected: {name}" for name in self.failed),
            *(f"is expected to fail and does not: {name}" for name in self.passed),
            *(f"no check was made: {name}" for name in self.empty),
        ]


def load_expected(file: Path = FILE) -> tuple[ExpectedFailure, ...]:
    """The entries of the file.

    Raises:
        ValidationError: one of them is none.
    """
    entries = tomllib.loads(file.read_text("utf-8"))["failures"]
    return tuple(ExpectedFailure.model_validate(entry) for entry in entries)


def expected_of(run: Run, entries: Iterable[ExpectedFailure]) -> dict[str, str]:
    """The reasons of a run's expected failures, by check.

    Raises:
        ValueError: a check has two.
    """
    reasons: dict[str, str] = {}
    for entry in entries:
        for check in entry.checks if entry.holds_for(run) else ():
            if check in reasons:
                raise ValueError(f"{run.name}: {check} has two reasons")
            reasons[check] = entry.reason
    return reasons


def compare(run: Run, outcome: Outcome, entries: Sequence[ExpectedFailure]) -> Verdict:
    """What is to be said of a run."""
    expected = frozenset(expected_of(run, entries))
    return Verdict(
        failed=tuple(sorted(outcome.failures - expected)),
        passed=tuple(sorted(expected - outcome.failures)),
        empty=outcome.empty,
    )
