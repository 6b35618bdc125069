"""Why some cells of the matrix are not green: `explained.toml`, by peer, side and scenario.

A cell that fails has a reason there or is a surprise; a reason for a cell that does not fail is one, too. A cell whose
peer has no way to do it brings its words from the run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.matrix.recorded import PeerResult
from tests.matrix.scenarios import Outcome, Scenario, Side

FILE: Final = Path(__file__).with_name("explained.toml")
CellName = tuple[str, Side, Scenario]


@dataclass(frozen=True)
class Explained:
    """The reasons."""

    reasons: Mapping[CellName, str] = field(default_factory=dict)

    @classmethod
    def in_file(cls, file: Path = FILE) -> Self:
        """What the file says: `[[cells]]` with peer, side, scenarios and reason."""
        tables = tomllib.loads(file.read_text("utf-8")).get("cells", [])
        return cls(
            {
                (table["peer"], Side(table["side"]), Scenario(scenario)): table["reason"]
                for table in tables
                for scenario in table["scenarios"]
            }
        )


def complaints(seen: Mapping[str, PeerResult], explained: Explained) -> list[str]:
    """What came out otherwise than explained, among the peers that were run."""
    failed = {
        (name, side, scenario): cell.words
        for name, peer in seen.items()
        for side, cells in peer.cells.items()
        for scenario, cell in cells.items()
        if cell.outcome is Outcome.FAIL
    }
    expected = {cell for cell in explained.reasons if cell[0] in seen}
    return [
        *(f"{' '.join(cell)} fails: {words}" for cell, words in failed.items() if cell not in expected),
        *(f"{' '.join(cell)} does not fail any more" for cell in sorted(expected - failed.keys())),
    ]
