"""Which failed tests run once more alone, and what then is said of them. `tests.run` asks, at the end of a run.

A test that then passes is flaky: the run passes and names the test in its last lines. A run may have two such tests.
A test of what must hold always is never run again: a store, replicas, the audit, cancellation. Nor is a test that was
flaky before: `flaky.toml` lists these tests, with the cause.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

FLAKY: Final = Path(__file__).with_name("flaky.toml")

MOST: Final = 2
"""How many tests of a run may be flaky."""
NEVER: Final = ("store", "replica", "audit", "cancel")
"""Words in the name of a test or of its file that say what must hold always."""


def listed(text: str) -> dict[str, tuple[dt.date, str]]:
    """When each test was flaky, and why, by its name without parameters.

    Raises:
        ValueError: an entry lacks a name, a date or a cause.
    """
    found: dict[str, tuple[dt.date, str]] = {}
    for entry in tomllib.loads(text).get("flaky", ()):
        match entry:
            case {"test": str(test), "date": dt.date() as date, "cause": str(cause)} if cause.strip():
                found[test.partition("[")[0]] = date, cause
            case _:
                raise ValueError(f"{FLAKY.name}: an entry needs `test`, `date` and `cause`, not {entry}")
    return found


def refusal(failed: Sequence[str], known: Sequence[str]) -> str:
    """Why failed tests do not run again; empty if they do."""
    if not failed:
        return "The run failed, but no test of it."
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, and at most {MOST} run again."
    for name in failed:
        if "::" not in name:
            return f"{name} cannot be collected."
        if word := next((word for word in NEVER if word in name.lower()), ""):
            return f"{name} does not run again: it is about what must hold always ({word})."
        if name.partition("[")[0] in known:
            return f"{name} does not run again: {FLAKY.name} says that it was flaky before."
    return ""


def judged(
    failed: Sequence[str], known: Sequence[str], passes: Callable[[str], bool]
) -> tuple[bool, list[str]]:
    """Whether a run with these failed tests passes, and its last lines; `passes` runs a test alone."""
    if why := refusal(failed, known):
        return False, [why]
    outcomes = {name: passes(name) for name in failed}
    lines = [f"{name} failed alone too." for name, passed in outcomes.items() if not passed]
    lines += [
        f"flaky: {name} failed, and passed alone. Mend it before the next change, and list it in tests/{FLAKY.name}."
        for name, passed in outcomes.items()
        if passed
    ]
    return all(outcomes.values()), lines
