"""What the runs came to when they were recorded (`results.json`), as values. Knows its file and nothing of running."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.conformance.outcomes import Outcome, Status

FILE: Final = Path(__file__).with_name("results.json")

AgentChecks = Mapping[str, Mapping[str, str]]
"""Our A2A checks of one agent: check id to binding to verdict."""


@dataclass(frozen=True)
class Recorded:
    """All that the page tells."""

    runs: Mapping[str, Outcome] = field(default_factory=dict)
    """By the run's name."""
    agents: Mapping[str, AgentChecks] = field(default_factory=dict)
    """By the agent, in words."""

    @classmethod
    def in_file(cls, file: Path = FILE) -> Self:
        """What was recorded; nothing when there is no file."""
        if not file.is_file():
            return cls()
        held = json.loads(file.read_text("utf-8"))
        return cls({name: _outcome(scenarios) for name, scenarios in held["runs"].items()}, held["agents"])

    def to_text(self) -> str:
        """As it stands in the file."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        runs = {name: outcome.scenarios for name, outcome in self.runs.items()}
        return {"runs": runs, "agents": self.agents}

    def moved(self, run: str, seen: Outcome) -> list[str]:
        """The scenarios of a run that came out otherwise than recorded, whatever of them was skipped included."""
        before = self.runs.get(run, Outcome({})).scenarios
        return [name for name, checks in seen.scenarios.items() if before.get(name) != checks]

    def differences(self, seen: Recorded) -> list[str]:
        """Where what was seen is not what was recorded, among what was looked at."""
        lines = []
        for name, outcome in seen.runs.items():
            before = self.runs.get(name, Outcome({}))
            if before != outcome:
                lines.append(f"{name}: {_moved(before, outcome)}")
        lines += [
            f"A2A checks of {name}" for name, agent in seen.agents.items() if self.agents.get(name) != agent
        ]
        return lines


def _moved(before: Outcome, now: Outcome) -> str:
    names = sorted({*before.checks, *now.checks})
    moved = [name for name in names if before.checks.get(name) != now.checks.get(name)]
    return ", ".join(moved) or "what was skipped"


def _outcome(scenarios: Mapping[str, Mapping[str, str]]) -> Outcome:
    return Outcome(
        {
            name: {check: Status(status) for check, status in checks.items()}
            for name, checks in scenarios.items()
        }
    )
