"""docs/conformance.md, made of what was recorded, of the expected failures and of the requirements.

Nothing in it changes by itself. `python -m tests.conformance.page` writes it anew, and runs no suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.a2a_checks import CHECKS, Verdict
from tests.a2a_checks.known import KNOWN_FAILURES
from tests.conformance.agents import SDK
from tests.conformance.expected import ExpectedFailure, load_expected
from tests.conformance.outcomes import Outcome
from tests.conformance.recorded import AgentChecks, Recorded
from tests.conformance.runs import RUNS, SIDES, Run
from tests.conformance.tck.expected import Expected
from tests.conformance.tck.outcome import Outcome as TckOutcome
from tests.conformance.tck.page import section
from tests.requirements import REQUIREMENTS
from tests.requirements import page as requirements

FILE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"

_OAUTH: Final = "auth/"
_HEAD: Final = """\
# Conformance

The results of official checks and of our own checks of the two protocols. This page is generated. `make conformance`
runs all checks again, and fails if a result differs from this page, also if a check passes that is expected to fail.

## MCP: the official suite

[`@modelcontextprotocol/conformance`](https://github.com/modelcontextprotocol/conformance), in pinned versions, tests
the bridge from three sides:
"""
_COUNTED: Final = """
A scenario counts as passed if none of its checks fails or warns. A check that warns (a SHOULD) counts as failed here.
A check that a scenario repeats counts once. If a few scenarios have unexpected results, the command runs each of them
again alone, because some measure time. The fixtures of the suites are in `tests/conformance/`. `python -m
tests.conformance -h` says how to run a part.

The OAuth scenarios run the commands of a user, each in its own process: `mcp-a2a login`, with a script as the
browser, and `mcp-a2a wrap`. A secret or a grant without an option is in a file for `mcp-a2a serve`. The server and
the issuer are on one machine, so the commands get `--allow-private`. One issuer has no metadata, so that login gets
`--assume-pkce`. In the other client scenarios the bridge runs in the process of the test.

## What fails, and why

All failures. A2A has no counterpart for what these checks test, the bridge does not support it yet, or the suite has a
fault.
"""
_A2A: Final = """
## A2A: our own checks

`python -m tests.a2a_checks URL` checks whether an agent conforms to A2A 1.0. It works for any agent.
Each check counts once for each binding.

| Agent | MUST | SHOULD | Not tried |
|---|---|---|---|
"""
_UNTRIED: Final = """
A requirement is not tried if it needs something that the agent does not declare, or that nobody has configured.
"""


def page(
    recorded: Recorded, entries: Sequence[ExpectedFailure], tck: TckOutcome, expected_of_tck: Expected
) -> str:
    """The page."""
    return "".join(
        [
            _HEAD,
            *(f"\n- `{side}`: {words}" for side, words in SIDES.items()),
            "\n\n| Suite | MCP | Side | Scenarios | Checks |\n|---|---|---|---|---|\n",
            *(
                row
                for run in RUNS
                if run.name in recorded.runs
                for row in _rows(run, recorded.runs[run.name])
            ),
            _COUNTED,
            *_failures(entries),
            _A2A,
            *(_agent(name, checks) for name, checks in recorded.agents.items()),
            _UNTRIED,
            *_known(recorded.agents),
            section(tck, expected_of_tck),
            requirements.section(REQUIREMENTS.values()),
        ]
    )


def _rows(run: Run, outcome: Outcome) -> Iterator[str]:
    """A line for a run; the scenarios of OAuth, of which a server needs none, have their own."""
    oauth = {name: checks for name, checks in outcome.scenarios.items() if name.startswith(_OAUTH)}
    others = {name: checks for name, checks in outcome.scenarios.items() if name not in oauth}
    if others:
        yield _row(run, f"`{run.side}`", Outcome(others))
    if oauth:
        yield _row(run, f"`{run.side}`, OAuth (`{_OAUTH}*`)", Outcome(oauth))


def _row(run: Run, side: str, outcome: Outcome) -> str:
    checks = outcome.checks
    scenarios = f"{outcome.clean} of {len(outcome.scenarios)}"
    passed = f"{len(checks) - len(outcome.failures)} of {len(checks)}"
    return f"| {run.suite.version} | {run.suite.spec} | {side} | {scenarios} | {passed} |\n"


def _failures(entries: Sequence[ExpectedFailure]) -> Iterator[str]:
    for reason in dict.fromkeys(entry.reason for entry in entries):
        yield f"\n**{reason[0].upper()}{reason[1:]}**\n"
        for entry in entries:
            if entry.reason == reason:
                yield f"\n{_where([run for run in RUNS if entry.holds_for(run)])}:\n\n"
                yield from (f"- {scenario}: {checks}\n" for scenario, checks in _by_scenario(entry.checks))


def _where(runs: Sequence[Run]) -> str:
    sides = dict.fromkeys(f"`{run.side}`" for run in runs)
    specs = dict.fromkeys(f"{run.suite.spec} ({run.suite.version})" for run in runs)
    return f"{' and '.join(sides)}, MCP {', '.join(specs)}"


def _by_scenario(checks: Iterable[str]) -> Iterator[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for check in checks:
        scenario, _, name = check.partition(" / ")
        found.setdefault(scenario, []).append(name)
    for scenario, names in found.items():
        yield f"`{scenario}`", ", ".join(f"`{name}`" for name in names)


def _agent(name: str, checks: AgentChecks) -> str:
    levels = {check.id: check.level.value.upper() for check in CHECKS}
    counted = Counter(
        (levels[check_id], verdict) for check_id, verdicts in checks.items() for verdict in verdicts.values()
    )
    cells = [_of(counted, level) for level in ("MUST", "SHOULD")]
    untried = sum(number for (_, verdict), number in counted.items() if verdict == Verdict.NOT_TRIED)
    return f"| {name} | {' | '.join(cells)} | {untried} |\n"


def _of(counted: Mapping[tuple[str, str], int], level: str) -> str:
    passed, failed = counted[level, Verdict.PASS], counted[level, Verdict.FAIL]
    return f"{passed} of {passed + failed}"


def _known(agents: Mapping[str, AgentChecks]) -> Iterator[str]:
    for name, checks in agents.items():
        failed = {check_id for check_id, verdicts in checks.items() if Verdict.FAIL in verdicts.values()}
        reasons = KNOWN_FAILURES if name == SDK else {}
        if failed:
            yield f"\nWhat fails: {name[0].lower()}{name[1:]}.\n\n"
        yield from (f"- `{check_id}`: {why}\n" for check_id, why in reasons.items() if check_id in failed)
        yield from (f"- `{check_id}`\n" for check_id in checks if check_id in failed - reasons.keys())


def written() -> str:
    """The page of what is on record."""
    return page(Recorded.in_file(), load_expected(), TckOutcome.in_file(), Expected.in_file())


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
