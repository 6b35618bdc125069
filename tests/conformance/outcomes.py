"""What came of a suite's run: for each scenario its checks, and for each check its status. Reads the suite's files.

A check that a scenario makes several times counts once, with the worst that came of it. Whatever the suite only
tells (INFO) is no check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

_TIME: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
"""The end of the name of a scenario's folder."""


class Status(StrEnum):
    """How a check went; the later, the worse."""

    SKIPPED = "skipped"
    PASSED = "passed"
    WARNED = "warned"
    """A SHOULD that was not met."""
    FAILED = "failed"


_STATUSES: Final = {
    "SKIPPED": Status.SKIPPED,
    "SUCCESS": Status.PASSED,
    "WARNING": Status.WARNED,
    "FAILURE": Status.FAILED,
}
_WORSE: Final = {status: place for place, status in enumerate(Status)}

Checks = Mapping[str, Status]


@dataclass(frozen=True)
class Outcome:
    """All scenarios of a run by name, each with its checks by name."""

    scenarios: Mapping[str, Checks]

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """What a suite has written. A scenario without its file of checks has none."""
        found: dict[str, Checks] = {}
        for place in sorted(folder.rglob("*")):
            if place.is_dir() and _TIME.search(place.name):
                name = _TIME.sub("", place.relative_to(folder).as_posix()).removeprefix("server-")
                file = place / "checks.json"
                found[name] = checks_from(json.loads(file.read_text("utf-8"))) if file.is_file() else {}
        return cls(found)

    def again(self, other: Outcome) -> Outcome:
        """With the scenarios of a later run in the place of its own."""
        return Outcome({**self.scenarios, **other.scenarios})

    @property
    def checks(self) -> dict[str, Status]:
        """Every check that was made, as `scenario / check`."""
        return {
            f"{scenario} / {check}": status
            for scenario, checks in self.scenarios.items()
            for check, status in checks.items()
            if status is not Status.SKIPPED
        }

    @property
    def failures(self) -> frozenset[str]:
        """Those that did not pass."""
        return frozenset(name for name, status in self.checks.items() if status is not Status.PASSED)

    @property
    def empty(self) -> tuple[str, ...]:
        """The scenarios that came to no check at all."""
        return tuple(name for name, checks in self.scenarios.items() if not checks)

    @property
    def clean(self) -> int:
        """How many scenarios had nothing to say against it."""
        return sum(
            all(status in (Status.PASSED, Status.SKIPPED) for status in checks.values())
            for checks in self.scenarios.values()
        )


def checks_from(said: Iterable[Mapping[str, Any]]) -> dict[str, Status]:
    """The checks of one scenario: by id, with the name behind it where several share an id."""
    worst: dict[tuple[str, str], Status] = {}
    for check in said:
        if (status := _STATUSES.get(check["status"])) is not None:
            key = check["id"], check["name"]
            worst[key] = max(worst.get(key, status), status, key=_WORSE.__getitem__)
    ids = [check_id for check_id, _ in worst]
    return {
        check_id if ids.count(check_id) == 1 else f"{check_id} ({name})": status
        for (check_id, name), status in sorted(worst.items())
    }
