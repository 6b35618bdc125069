"""What came of the latest recorded run (`results.json`), as values. Knows its file and nothing of running."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.matrix.cells import Cell
from tests.matrix.scenarios import Outcome, Scenario, Side

FILE: Final = Path(__file__).with_name("results.json")
Cells = Mapping[Side, Mapping[Scenario, Cell]]


@dataclass(frozen=True)
class PeerResult:
    """What came of one peer."""

    versions: Mapping[str, str]
    cells: Cells


@dataclass(frozen=True)
class Recorded:
    """All that the page tells."""

    peers: Mapping[str, PeerResult] = field(default_factory=dict)

    @classmethod
    def in_file(cls, file: Path = FILE) -> Self:
        """What was recorded; nothing when there is no file."""
        if not file.is_file():
            return cls()
        held = json.loads(file.read_text("utf-8"))
        return cls({name: PeerResult(peer["versions"], _cells(peer["cells"])) for name, peer in held.items()})

    def with_peers(self, peers: Mapping[str, PeerResult]) -> Recorded:
        """The same with what came of some peers now."""
        known = {**self.peers, **peers}
        return Recorded({name: known[name] for name in sorted(known)})

    def differences(self, seen: Mapping[str, PeerResult]) -> list[str]:
        """The cells that came out otherwise than recorded, among the peers that were run."""
        return [
            f"{name} {side} {scenario} is {cell.outcome}"
            for name, peer in seen.items()
            for side, cells in peer.cells.items()
            for scenario, cell in cells.items()
            if self._outcome(name, side, scenario) != cell.outcome
        ]

    def _outcome(self, name: str, side: Side, scenario: Scenario) -> Outcome | None:
        peer = self.peers.get(name)
        cell = peer.cells.get(side, {}).get(scenario) if peer else None
        return cell.outcome if cell else None

    def to_text(self) -> str:
        """As it stands in the file."""
        held = {
            name: {
                "versions": dict(peer.versions),
                "cells": {
                    side: {scenario: [cell.outcome, cell.words] for scenario, cell in cells.items()}
                    for side, cells in peer.cells.items()
                },
            }
            for name, peer in self.peers.items()
        }
        return json.dumps(held, indent=1, ensure_ascii=False) + "\n"


def _cells(held: Mapping[str, Mapping[str, list[str]]]) -> Cells:
    return {
        Side(side): {
            Scenario(name): Cell(Outcome(outcome), words) for name, (outcome, words) in cells.items()
        }
        for side, cells in held.items()
    }
