"""The dashboard and the rules of examples/operate ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bridge.assembly.telemetry import ReloadCount
from bridge.process.worker_metrics import WorkerMetrics
from bridge.telemetry.families import MetricFamily
from tests.support.command import ROOT
from tests.support.limits import url_at
from tests.support.observed import in_row
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening
from tests.telemetry.test_metrics import COUNTED
from tests.telemetry.test_notices import NOTICES

OPERATE: Final = ROOT / "examples" / "operate"
BOARD: Final = json.loads((OPERATE / "dashboard.json").read_text(encoding="utf-8"))
RULES: Final[Any] = yaml.safe_load((OPERATE / "alerts.yaml").read_text(encoding="utf-8"))

_OF_PROMETHEUS: Final = frozenset({"up", "job", "instance", "le"})
_OF_A_MOMENT: Final = frozenset(
    {
        "a2a_tasks_running",
        "a2a_push_waiting",
        "a2a_push_oldest_seconds",
        "a2a_push_backed_off",
        "mcp_a2a_login_usable",
    }
)
"""Gauges that nothing is told of here: other tests read them."""
_NAME: Final = re.compile(r"\b((?:mcp|a2a)_[a-z0-9_]+)\b")
_MATCHED: Final = re.compile(r'__name__=~"([^"]+)"')
_LABEL: Final = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"|by \(([^)]*)\)')


def expressions() -> Iterator[str]:
    """Every expression of PromQL in the two files."""
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in RULES["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def names_and_labels(families: list[MetricFamily]) -> tuple[set[str], set[str]]:
    """The names of all samples, and the labels that they have."""
    samples = [sample for family in families for sample in family.samples]
    return {one.name for one in samples}, {label for one in samples for label, _ in one.labels}


@pytest.mark.outside
async def test_the_dashboard_and_the_rules_ask_for_what_there_is(tmp_path: Path) -> None:
    workers = WorkerMetrics(lambda _: [1])
    workers.end(1)
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp"), COUNTED) as there:
        await there.mcp.tool(1, "echo", {}, text="x")
        await Rpc(there.mcp.client, there.agent_url).send(call_part("echo"))
        for notice in NOTICES:
            there.inner.telemetry.tell(notice)
            there.outer.telemetry.tell(notice)
        told = [
            *await there.inner.telemetry.families(),
            *await there.outer.telemetry.families(),
            *ReloadCount().families(),
            *workers.families_of_workers([1]),
        ]
    names, labels = names_and_labels(told)
    for expression in expressions():
        for pattern in _MATCHED.findall(expression):
            assert any(re.fullmatch(pattern, name) for name in names), expression
        asked = set(_NAME.findall(_MATCHED.sub("", expression)))
        assert asked <= names | _OF_A_MOMENT, expression
        found = {part for pair in _LABEL.findall(_MATCHED.sub("", expression)) for part in pair if part}
        words = {word.strip() for part in found for word in part.split(",")}
        assert words <= labels | _OF_PROMETHEUS, expression


def test_every_panel_has_its_place_and_every_rule_its_words() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    rules = RULES["groups"][0]["rules"]
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)
