"""Which suites are run, with which commands, and what the bridge does as their client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.client import Scenario, arguments_for, calls_of
from tests.conformance.runs import RUNS, SUITES, Run, Side, chosen
from tests.peers.node import require_peers

SCHEMA = {
    "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": {}, "d": {"type": "string"}},
    "required": ["a", "b", "c"],
}


def test_a_part_of_the_runs_can_be_chosen() -> None:
    assert chosen("all", "all") == list(RUNS)
    assert {run.side for run in chosen("2026-07-28", "all")} == set(Side)
    assert {run.suite.spec for run in chosen("2026-07-28", "client")} == {"2026-07-28"}
    assert [run.suite.version for run in chosen("2025-11-25", "client")] == [
        suite.version for suite in SUITES if suite.spec == "2025-11-25"
    ]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_suite_is_run_whole_or_one_scenario_of_it_alone(run: Run, tmp_path: Path) -> None:
    require_peers()
    whole, alone = run.command("here", tmp_path), run.command("here", tmp_path, "ping")
    assert "--scenario" not in whole
    assert alone[alone.index("--scenario") + 1] == "ping"
    assert ("--url" in whole) == (run.side is not Side.CLIENT)
    assert whole[-2:] == alone[-2:] == ["--output-dir", str(tmp_path)]


def test_a_skill_is_called_with_as_few_fields_as_it_takes() -> None:
    assert arguments_for(SCHEMA) == {"a": 2, "b": True, "c": "x"}


def test_the_calls_that_a_scenario_names_are_the_ones_that_are_made() -> None:
    named = Scenario(name="any", url="-", context={"toolCalls": [{"name": "one", "arguments": {"a": None}}]})
    assert calls_of(named, {"two": SCHEMA}) == [("one", {"a": None})]


def test_otherwise_every_skill_is_called() -> None:
    assert calls_of(Scenario(name="any", url="-"), {"one": {}, "two": SCHEMA}) == [
        ("one", {}),
        ("two", {"a": 2, "b": True, "c": "x"}),
    ]


def test_a_schema_is_given_back_where_a_scenario_looks_at_what_came_of_it() -> None:
    schemas = {"json_schema_echo": {}, "json_schema_2020_12_tool": SCHEMA}
    calls = dict(calls_of(Scenario(name="json-schema-2020-12-preservation", url="-"), schemas))
    assert calls["json_schema_echo"] == {"schema": SCHEMA}
