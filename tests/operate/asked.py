"""What the dashboard and the rules of examples/operate ask Prometheus for. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.support.command import ROOT

OPERATE: Final = ROOT / "examples" / "operate"


def _yaml(name: str) -> Any:
    """The content of a file. The loader in C takes a tenth of the time."""
    return yaml.load((OPERATE / name).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


BOARD: Final = json.loads((OPERATE / "dashboard.json").read_text(encoding="utf-8"))
RULES: Final[Any] = _yaml("alerts.yaml")
RULE_TESTS: Final[Any] = _yaml("alerts_test.yaml")
ALL: Final = ".*"
"""What a variable of names stands for while *All* is chosen."""

_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True)
class Asked:
    """One expression, as it stands in its file."""

    where: str
    """The title of the panel with the letter of its query, or the name of the alert."""
    text: str

    def filled(self, interval: str = "1m") -> str:
        """It as Prometheus gets it: every name is chosen, and a rate is of this interval."""
        values = {"__rate_interval": interval, "instance": ALL, "face": ALL, "peer": ALL}
        return _VARIABLE.sub(lambda found: values[found[1]], self.text)


def panels() -> Iterator[Asked]:
    """What the dashboard asks."""
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield Asked(f"{panel['title']} {target['refId']}", target["expr"])


def alerts() -> Iterator[Asked]:
    """What the rules ask."""
    for group in RULES["groups"]:
        yield from (Asked(rule["alert"], rule["expr"]) for rule in group["rules"])


def choices() -> Iterator[Asked]:
    """What gives the names to choose among, as a query that gives a series for each name."""
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            assert found is not None, variable
            yield Asked(f"choice of {variable['name']}", f"count by ({found[2]}) ({found[1]})")


def everything() -> list[Asked]:
    """All of it."""
    return [*panels(), *choices(), *alerts()]
