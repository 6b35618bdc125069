"""The dashboard and the rules of examples/operate ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.assembly.telemetry import ReloadCount
from bridge.telemetry.families import MetricFamily
from tests.operate.asked import ALL, BOARD, RULE_TESTS, RULES, alerts, panels
from tests.support.command import ROOT
from tests.support.limits import url_at
from tests.support.observed import in_row
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening
from tests.telemetry.test_metrics import COUNTED
from tests.telemetry.test_notices import NOTICES

SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
COLUMNS: Final = 24
"""Of Grafana's grid."""

_OF_PROMETHEUS: Final = frozenset({"up", "job", "instance", "le"})
_OF_A_MOMENT: Final = frozenset(
    {
        "a2a_tasks_running",
        "a2a_push_waiting",
        "a2a_push_oldest_seconds",
        "a2a_push_backed_off",
        "mcp_a2a_login_usable",
        "a2a_client_queue_wait_seconds_bucket",
        "a2a_client_queue_depth",
        "mcp_a2a_audit_ok",
        "mcp_a2a_audit_lost_lines_total",
    }
)
"""What nothing is told of here: other tests read them."""
_NAME: Final = re.compile(r"\b((?:mcp|a2a)_[a-z0-9_]+)\b")
_LABEL: Final = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"|by \(([^)]*)\)')


def names_and_labels(families: list[MetricFamily]) -> tuple[set[str], set[str]]:
    """The names of all samples, and the labels that they have."""
    samples = [sample for family in families for sample in family.samples]
    return {one.name for one in samples}, {label for one in samples for label, _ in one.labels}


@pytest.mark.outside
async def test_the_dashboard_and_the_rules_ask_for_what_there_is(tmp_path: Path) -> None:
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp"), COUNTED) as there:
        await there.mcp.tool(1, "echo", {}, text="x")
        await Rpc(there.mcp.client, there.agent_url).send(call_part("echo"))
        for notice in NOTICES:
            there.inner.telemetry.notify(notice)
            there.outer.telemetry.notify(notice)
        told = [
            *await there.inner.telemetry.families(),
            *await there.outer.telemetry.families(),
            *ReloadCount().families(),
        ]
    names, labels = names_and_labels(told)
    for expression in (asked.text for asked in (*panels(), *alerts())):
        asked = set(_NAME.findall(expression))
        assert asked <= names | _OF_A_MOMENT, expression
        found = {part for pair in _LABEL.findall(expression) for part in pair if part}
        words = {word.strip() for part in found for word in part.split(",")}
        assert words <= labels | _OF_PROMETHEUS, expression


def test_every_panel_has_its_place_its_source_and_its_words() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert cells
        assert not cells & taken
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells
        assert panel["title"]
        assert panel["targets"]
        assert all(one["datasource"] == SOURCE for one in (panel, *panel["targets"]))
        letters = [target["refId"] for target in panel["targets"]]
        assert len({*letters}) == len(letters)
        # What is called by a name shows it: two series with one legend cannot be told apart.
        for target in panel["targets"]:
            by = re.search(r"by \(([^)]*)\)", target["expr"])
            names = {name for name in by[1].split(", ") if name != "le"} if by else set()
            assert {*re.findall(r"{{(\w+)}}", target["legendFormat"])} == names, target
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    # Without rows of their own, panels lie in lines without a gap.
    assert len(taken) == COLUMNS * (max(y for _, y in taken) + 1)


def test_a_panel_shows_what_each_alert_looks_at() -> None:
    shown = {name for asked in panels() for name in _metrics_in(asked.text)}
    looked_at = {name for asked in alerts() for name in _metrics_in(asked.text)}
    assert looked_at <= shown


def _metrics_in(expression: str) -> set[str]:
    return {re.sub("_(?:bucket|count|sum)$", "", name) for name in _NAME.findall(expression)}


def test_a_panel_of_a_state_says_it_in_words_and_colours() -> None:
    states = [panel for panel in BOARD["panels"] if panel["type"] in ("state-timeline", "stat")]
    asked = {panel["id"]: panel["targets"][0]["expr"] for panel in states}
    assert len(states) == 6
    for panel in states:
        if "time()" not in asked[panel["id"]]:
            (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
            assert {number: shown["color"] for number, shown in mapping["options"].items()} == {
                "0": "red",
                "1": "green",
            }


def test_the_variables_of_the_dashboard_are_those_that_it_uses() -> None:
    made = {one["name"]: one for one in BOARD["templating"]["list"]}
    used = {name for asked in panels() for name in re.findall(r"\$\{?(\w+)\}?", asked.text)}
    queries = {name: one["query"] for name, one in made.items() if one["type"] == "query"}
    used |= {name for query in queries.values() for name in re.findall(r"\$(\w+)", query)}
    assert used == (made.keys() - {"source"}) | {"__rate_interval"}
    assert (made["source"]["type"], made["source"]["query"]) == ("datasource", "prometheus")
    for name, query in queries.items():
        assert re.fullmatch(rf"label_values\((\w+)({{.*}})?, {name}\)", query)
        assert made[name]["datasource"] == SOURCE
        assert made[name]["includeAll"]
        assert made[name]["allValue"] == ALL


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """By the types that Grafana makes of its own schemas: what they do not know is lost on the way there and back."""
    if find_spec("grafana_foundation_sdk") is None:
        pytest.skip("grafana-foundation-sdk is not installed (make operate installs it)")
    dashboard = import_module("grafana_foundation_sdk.models.dashboard").Dashboard
    import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    there = json.loads(encoder(sort_keys=True).encode(dashboard.from_json(BOARD)))
    assert [*_lost(BOARD, there)] == []
    wrong = {**BOARD, "panels": [{**BOARD["panels"][0], "gridPosition": {}}]}
    assert [*_lost(wrong, json.loads(encoder(sort_keys=True).encode(dashboard.from_json(wrong))))]
    units = vars(import_module("grafana_foundation_sdk.models.units")).values()
    known = {one for one in units if isinstance(one, str)}
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in BOARD["panels"]} <= known


def _lost(given: Any, there: Any, where: str = "") -> Iterator[str]:
    """Where something of a JSON value is missing, or another one, in what came back."""
    if isinstance(given, dict) and isinstance(there, dict):
        for key, value in given.items():
            if key in there:
                yield from _lost(value, there[key], f"{where}/{key}")
            else:
                yield f"{where}/{key}"
    elif isinstance(given, list) and isinstance(there, list) and len(given) == len(there):
        for number, (one, other) in enumerate(zip(given, there, strict=True)):
            yield from _lost(one, other, f"{where}/{number}")
    elif given != there:
        yield where


def test_every_rule_has_its_words_and_a_name_of_its_own() -> None:
    rules = RULES["groups"][0]["rules"]
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_every_alert_is_seen_to_fire_and_seen_to_be_silent_where_all_is_well() -> None:
    names = {asked.where for asked in alerts()}
    well, *faults = RULE_TESTS["tests"]
    assert {one["alertname"] for one in well["alert_rule_test"]} == names
    assert not any(one["exp_alerts"] for one in well["alert_rule_test"])
    cases = [one for test in faults for one in test["alert_rule_test"]]
    for fires in (True, False):
        assert {one["alertname"] for one in cases if bool(one["exp_alerts"]) == fires} == names
    # While all is well each rule looks at something: a rule without a series would be silent for that.
    series = " ".join(one["series"] for one in well["input_series"])
    for asked in alerts():
        assert any(name in series for name in re.findall(r"(?:mcp|a2a)_\w+|\bup\b", asked.text)), asked


def test_the_page_tells_of_every_alert_and_for_how_long_it_waits() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([A-Z]\w+)` \| .* \| (\d+m|-) \| .* \|$", page, re.MULTILINE)
    assert told == [(rule["alert"], rule.get("for", "-")) for rule in RULES["groups"][0]["rules"]]
