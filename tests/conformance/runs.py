"""The suites, pinned, and what each is run against. Values, and the commands that start them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.peers.install import MANIFEST, node
from tests.peers.node import package_manifest

RUN_SECONDS: Final = 150
"""The longest run that is not called a hang: the longest one takes a sixth of it."""
SCENARIO_SECONDS: Final = 120
"""The longest that a suite may wait for the client of one scenario: it starts all at once, and they take turns."""

_LOOPBACK: Final = Path(__file__).parents[1] / "peers" / "loopback.cjs"
_CLIENT_COMMAND: Final = Path(__file__).with_name("client_command.py")


class Side(StrEnum):
    """What of the bridge is before the suite."""

    AGENT = "server-agent"
    """An A2A agent, exposed."""
    ROUND_TRIP = "server-roundtrip"
    """An MCP server, wrapped and exposed again."""
    CLIENT = "client"
    """The suite's own MCP servers, wrapped."""


SIDES: Final = {
    Side.AGENT: "an A2A agent, exposed as an MCP server",
    Side.ROUND_TRIP: "an MCP server, wrapped as an agent and exposed again",
    Side.CLIENT: "the bridge as the client of the suite's servers, which it wraps",
}
"""The sides, in words."""


@dataclass(frozen=True)
class Suite:
    """One version of the suite, and what it is asked to run."""

    package: str
    """What it is called in tests/peers/package.json."""
    spec: str
    whole: tuple[str, ...]
    """The options that have it run all of its scenarios."""
    alone: tuple[str, ...]
    """The options beside the name of a scenario that is run alone."""
    sides: tuple[Side, ...] = tuple(Side)
    """The sides that it has scenarios for."""

    @property
    def version(self) -> str:
        """The pinned one."""
        pinned: str = json.loads(MANIFEST.read_text(encoding="utf-8"))["dependencies"][self.package]
        return pinned.rpartition("@")[2]


@dataclass(frozen=True)
class Run:
    """One suite before one side."""

    suite: Suite
    side: Side

    @property
    def name(self) -> str:
        """What it is called in the expected failures, and everywhere else."""
        return f"{self.suite.version} {self.suite.spec} {self.side}"

    def command(self, address: str, results: Path, scenario: str | None = None) -> list[str]:
        """The program, which writes into the folder `results`; `address` is a URL, or the port of the client.

        All scenarios, or the one that is named.
        """
        target = ["server", "--url", address]
        if self.side is Side.CLIENT:
            # The suite splits it at spaces.
            target = ["client", "--command", f"{sys.executable} -I -S {_CLIENT_COMMAND} {address}"]
            target += ["--timeout", str(SCENARIO_SECONDS * 1000)]
        program = package_manifest(self.suite.package).parent / "dist" / "index.js"
        base = [str(node()), "--require", str(_LOOPBACK), str(program)]
        wanted = self.suite.whole if scenario is None else ("--scenario", scenario, *self.suite.alone)
        return [*base, *target, *wanted, "--output-dir", str(results)]


SUITES: Final = (
    Suite(
        "conformance-2025",
        "2025-11-25",
        ("--suite", "all", "--spec-version", "2025-11-25"),
        ("--spec-version", "2025-11-25"),
    ),
    *(
        # All that a revision asks for, and the extensions, which are at home in none (hence the force).
        Suite("conformance-2026", spec, ("--requirements", spec), ("--spec-version", spec, "--force"))
        for spec in ("2025-11-25", "2026-07-28")
    ),
    # The OAuth of the first revision that had it, which old servers still speak.
    Suite(
        "conformance-2026",
        "2025-03-26",
        ("--suite", "backcompat"),
        ("--spec-version", "2025-03-26", "--force"),
        (Side.CLIENT,),
    ),
)
RUNS: Final = tuple(Run(suite, side) for suite in SUITES for side in suite.sides)


def chosen(spec: str, side: str) -> Sequence[Run]:
    """The runs of a specification and a side, either of which may be `all`."""
    return [run for run in RUNS if spec in ("all", run.suite.spec) and side in ("all", run.side)]
