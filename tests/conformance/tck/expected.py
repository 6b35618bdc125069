"""What is expected of the TCK's tests: which of them fail, and which are not made, each with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from tests.conformance.tck.outcome import Outcome, Status

FILE: Final = Path(__file__).with_name("expected.toml")


class Failures(BaseModel):
    """Some tests that fail for one reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=1)
    tests: tuple[str, ...] = Field(min_length=1)


class Skips(BaseModel):
    """Tests that are not made for one reason, by what the TCK says of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=1)
    says: tuple[str, ...] = Field(min_length=1)
    """How its words begin."""


class Expected(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: tuple[Failures, ...]
    skips: tuple[Skips, ...]

    @classmethod
    def in_file(cls, file: Path = FILE) -> Expected:
        """The entries of the file.

        Raises:
            ValidationError: one of them is none.
        """
        return cls.model_validate(tomllib.loads(file.read_text("utf-8")))

    def surprises(self, outcome: Outcome) -> list[str]:
        """Where a run came out otherwise. What fails because it could not be set up, the TCK skips: so a test that is
        skipped for another reason than these is a surprise, too."""
        failed = outcome.of_status(Status.FAILED)
        expected = {test for entry in self.failures for test in entry.tests}
        return [
            *(f"failed, which is not expected: {name}: {failed[name]}" for name in failed.keys() - expected),
            *(f"is expected to fail and does not: {name}" for name in expected - failed.keys()),
            *(f"was not made: {name}: {words}" for name, words in self._unexplained(outcome)),
            *([] if outcome.tests else ["no test was made"]),
        ]

    def _unexplained(self, outcome: Outcome) -> Iterator[tuple[str, str]]:
        for name, words in outcome.of_status(Status.SKIPPED).items():
            if not words.startswith(tuple(begins for entry in self.skips for begins in entry.says)):
                yield name, words
