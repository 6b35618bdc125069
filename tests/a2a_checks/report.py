"""What came of the checks, as values, as JSON, and as a table for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tests.a2a_checks.table import Check, Level


class Verdict(StrEnum):
    """How one check went over one binding."""

    PASS = "pass"
    FAIL = "fail"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check over one binding."""

    verdict: Verdict
    expected: str = ""
    came: str = ""
    why: str = ""
    """Why it was not tried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One check that failed over one binding."""

    id: str
    binding: str
    level: Level
    expected: str
    came: str


@dataclass(frozen=True, slots=True)
class Result:
    """One check over all of its bindings."""

    check: Check
    outcomes: Mapping[str, Outcome]

    @property
    def id(self) -> str:
        """The check's id."""
        return self.check.id

    @property
    def section(self) -> str:
        """What it is about."""
        return self.check.section.value

    @property
    def spec(self) -> str:
        """The specification's section."""
        return self.check.spec

    @property
    def level(self) -> Level:
        """MUST or SHOULD."""
        return self.check.level

    @property
    def sentence(self) -> str:
        """What the agent has to do."""
        return self.check.sentence

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        said = {name: getattr(self, name) for name in ("id", "section", "spec", "level", "sentence")}
        return {**said, "outcomes": {name: asdict(outcome) for name, outcome in self.outcomes.items()}}


@dataclass(frozen=True, slots=True)
class Report:
    """All checks against one agent."""

    url: str
    agent: str
    """The card's name."""
    results: tuple[Result, ...]

    def failures(self, level: Level | None = None) -> tuple[Failure, ...]:
        """What failed, of this level or of both."""
        return tuple(
            Failure(result.id, binding, result.level, outcome.expected, outcome.came)
            for result, binding, outcome in self._outcomes()
            if outcome.verdict is Verdict.FAIL and level in (None, result.level)
        )

    def untried(self) -> Mapping[tuple[str, str], str]:
        """(id, binding) to why it was not tried."""
        return {
            (result.id, binding): outcome.why
            for result, binding, outcome in self._outcomes()
            if outcome.verdict is Verdict.NOT_TRIED
        }

    def counts(self) -> Mapping[tuple[Level, Verdict], int]:
        """How many outcomes of each kind."""
        return Counter((result.level, outcome.verdict) for result, _, outcome in self._outcomes())

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "url": self.url,
            "agent": self.agent,
            "results": [result.to_json() for result in self.results],
        }

    def _outcomes(self) -> Iterator[tuple[Result, str, Outcome]]:
        for result in self.results:
            for binding, outcome in result.outcomes.items():
                yield result, binding, outcome


def table_lines(report: Report) -> Iterator[str]:
    """The report for people: one line an outcome, and what was expected and came where it failed."""
    yield f"{report.agent} at {report.url}"
    section = ""
    for result in report.results:
        if result.section != section:
            section = result.section
            yield f"\n{section}"
        for binding, outcome in result.outcomes.items():
            yield _line(result, binding, outcome)
            yield from _more(outcome)
    yield ""
    counts = report.counts()
    for level in Level:
        yield f"{level}: " + ", ".join(f"{counts.get((level, kind), 0)} {kind}" for kind in Verdict)


def _line(result: Result, binding: str, outcome: Outcome) -> str:
    return (
        f"  {outcome.verdict:<10} {result.level:<7} {binding:<10} {result.id:<28} "
        f"{result.spec:<7} {result.sentence}"
    )


def _more(outcome: Outcome) -> Iterator[str]:
    for name in ("expected", "came", "why"):
        if said := getattr(outcome, name):
            yield f"  {'':<10} {name}: {said}"
