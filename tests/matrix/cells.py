"""What came of one scenario with one peer."""

from __future__ import annotations

from dataclasses import dataclass

from tests.matrix.scenarios import Outcome


@dataclass(frozen=True)
class Cell:
    """One scenario, one peer, one side."""

    outcome: Outcome
    words: str = ""
    """Why it is no pass, as the run says it."""
