"""Runs the conformance suites: `python -m tests.conformance [--spec S] [--side S] [--docs]`.

Exits with 1 when a check fails that is not expected to, when one that is expected to fail passes, and when
anything else came out otherwise than recorded; `--docs` records it and writes docs/conformance.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from bridge.mcp.client.eras import Era
from tests.conformance import page, recorded
from tests.conformance.agents import checked_agents, unexpected
from tests.conformance.client import client_service
from tests.conformance.expected import Verdict, compare, load_expected
from tests.conformance.outcomes import Outcome
from tests.conformance.recorded import Recorded
from tests.conformance.runs import RUN_SECONDS, SUITES, Run, Side, chosen
from tests.conformance.sides import agent_side, round_trip_side
from tests.conformance.tck.expected import Expected
from tests.conformance.tck.outcome import Outcome as TckOutcome
from tests.peers.node import missing_peers

RESULTS: Final = Path(".run") / "conformance"
"""The suites' own files and the results of this run."""
AGAIN_MOST: Final = 8
"""Scenarios of a run; when more are a surprise it is none of time."""
_LEGACY: Final = "2025-11-25"


def main() -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description="The conformance suites."
    )
    parser.add_argument(
        "--spec", default="all", choices=[*dict.fromkeys(suite.spec for suite in SUITES), "all"]
    )
    parser.add_argument("--side", default="all", choices=[*Side, "all"])
    parser.add_argument("--docs", action="store_true", help="record all of it, and write docs/conformance.md")
    options = parser.parse_args()
    is_whole = options.spec == options.side == "all"
    if options.docs and not is_whole:
        parser.error("--docs tells of all specifications and sides")
    if missing := missing_peers():
        print(f"conformance: {missing}", file=sys.stderr)
        return 1
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    logging.basicConfig(filename=RESULTS / "log.txt", level=logging.INFO)
    # a2a-sdk leaves tasks of its own behind in a loop that has ended.
    sys.unraisablehook = lambda left: logging.getLogger(__name__).info("left behind: %r", left.exc_value)
    with tempfile.TemporaryDirectory() as folder:
        # What bridges remember of servers and cards is this run's own.
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder}
        runs = chosen(options.spec, options.side)
        return anyio.run(_judged, runs, Path(folder), is_whole, options.docs)


async def _judged(runs: Sequence[Run], folder: Path, is_whole: bool, docs: bool) -> int:
    complaints: list[str] = []
    outcomes: dict[str, Outcome] = {}
    for run in runs:
        outcomes[run.name], verdict = await _settled(run, folder)
        complaints += [f"{run.name}: {line}" for line in verdict.lines]
    agents = await checked_agents(folder) if is_whole else {}
    complaints += [f"A2A checks: {line}" for line in unexpected(agents)]
    seen = Recorded(outcomes, agents)
    (RESULTS / "results.json").write_text(seen.to_text(), "utf-8")
    if docs and not complaints:
        recorded.FILE.write_text(seen.to_text(), "utf-8")
        told = page.page(seen, load_expected(), TckOutcome.in_file(), Expected.in_file())
        page.FILE.write_text(told, "utf-8")
    elif not complaints:
        differences = Recorded.in_file().differences(seen)
        complaints += [f"not as recorded (--docs records it): {line}" for line in differences]
    for line in complaints:
        print(line, file=sys.stderr)
    print(f"{len(complaints)} surprises; the suites' own files are in {RESULTS}")
    return 1 if complaints else 0


async def _settled(run: Run, folder: Path) -> tuple[Outcome, Verdict]:
    """What came of a run. A few scenarios that are a surprise are run again, each alone: some measure time."""
    entries = load_expected()
    outcome = await _came_of(run, folder, [None])
    verdict = compare(run, outcome, entries)
    again = list(dict.fromkeys([*verdict.scenarios, *Recorded.in_file().moved(run.name, outcome)]))
    if again and len(again) <= AGAIN_MOST:
        outcome = outcome.again(await _came_of(run, folder, again))
        verdict = compare(run, outcome, entries)
    passed = len(outcome.checks) - len(outcome.failures)
    print(
        f"{run.name}: {outcome.clean} of {len(outcome.scenarios)} scenarios, "
        f"{passed} of {len(outcome.checks)} checks, {len(verdict.lines)} surprises",
        flush=True,
    )
    return outcome, verdict


async def _came_of(run: Run, folder: Path, scenarios: Sequence[str | None]) -> Outcome:
    """Run all scenarios (None), or some of them one after the other."""
    outcome = Outcome({})
    async with _address(run, folder) as address:
        for scenario in scenarios:
            results = RESULTS / f"{run.name} {scenario or 'whole'}".replace(" ", "-").replace("/", "-")
            results.mkdir(parents=True)
            await _run_suite(run.command(address, results, scenario), results / "suite.txt")
            outcome = outcome.again(Outcome.in_folder(results))
    return outcome


@asynccontextmanager
async def _address(run: Run, folder: Path) -> AsyncIterator[str]:
    """What the suite is given: a URL, or the port of the client."""
    match run.side:
        case Side.AGENT:
            async with agent_side(folder) as url:
                yield url
        case Side.ROUND_TRIP:
            era = Era.LEGACY if run.suite.spec == _LEGACY else Era.MODERN
            async with round_trip_side(folder, era) as url:
                yield url
        case Side.CLIENT:
            async with client_service() as port:
                yield str(port)


async def _run_suite(command: Sequence[str], log: Path) -> None:
    """Run a suite to its end; its exit status says no more than its checks."""
    with log.open("wb") as sink:
        with anyio.move_on_after(RUN_SECONDS) as life:
            await anyio.run_process(
                [*command], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False
            )
        if life.cancelled_caught:
            sink.write(f"\nended after {RUN_SECONDS} s\n".encode())


if __name__ == "__main__":
    sys.exit(main())
