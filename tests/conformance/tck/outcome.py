"""What came of a run of the TCK: each of its tests, as its JUnit file tells it. Values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self
from xml.etree import ElementTree as ET

FILE: Final = Path(__file__).with_name("results.json")
"""What was recorded."""

_PACKAGE: Final = "tests.compatibility."


class Status(StrEnum):
    """How a test came out."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


_STATUS_OF_TAG: Final = {"failure": Status.FAILED, "error": Status.FAILED, "skipped": Status.SKIPPED}


@dataclass(frozen=True)
class Case:
    """One test."""

    status: Status
    words: str = ""
    """Why it was skipped, or failed."""


@dataclass(frozen=True)
class Outcome:
    """All tests of a run by name: `module.Class.test[parameters]`."""

    revision: str
    """Which TCK it was."""
    tests: Mapping[str, Case]

    @classmethod
    def in_junit(cls, file: Path, revision: str) -> Self:
        """What a run has written."""
        cases = ET.parse(file).getroot().iter("testcase")
        return cls(revision, dict(sorted(map(_test, cases))))

    @classmethod
    def in_file(cls, file: Path = FILE) -> Self:
        """What was recorded."""
        held = json.loads(file.read_text("utf-8"))
        tests = {name: Case(Status(status), words) for name, (status, words) in held["tests"].items()}
        return cls(held["revision"], tests)

    def to_text(self) -> str:
        """As it stands in the file. The words of a failure are left to the run that it is of."""
        tests = {
            name: [test.status, test.words if test.status is Status.SKIPPED else ""]
            for name, test in self.tests.items()
        }
        return json.dumps({"revision": self.revision, "tests": tests}, indent=1) + "\n"

    def of_status(self, status: Status) -> dict[str, str]:
        """The tests that came out so, each with its words."""
        return {name: test.words for name, test in self.tests.items() if test.status is status}


def _test(case: ET.Element) -> tuple[str, Case]:
    name = f"{case.attrib['classname'].removeprefix(_PACKAGE)}.{case.attrib['name']}"
    for told in case:
        if told.tag in _STATUS_OF_TAG:
            return name, Case(_STATUS_OF_TAG[told.tag], told.attrib.get("message", ""))
    return name, Case(Status.PASSED)
