"""What several workers get of a plan: their part of its limits, and the servers of which one runs each for all."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

from bridge.assembly.plan import Plan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.assembly.workers import for_workers, shared_servers, shares_in_words
from bridge.config.load import load

FILE = """
[bridge]
store = { env = "DATABASE_URL" }
keys = [{ env = "KEY" }]

[principals.ops]
bearer = { env = "KEY" }

[tool_servers.one]
command = ["one"]

[tool_servers.own]
command = ["own"]
each_replica = true
concurrency = 6
sessions = 2

[tool_servers.far]
url = "https://tools.example.com/mcp"

[agents.remote]
card = "https://agents.example.com"

[tools_as_agent.all]
from = ["one", "own", "far"]

[tools_as_agent.all.skills."*"]
concurrency = 3

[agents_as_tools.desk]
from = ["remote", "all"]
"""


def plan_of(folder: Path, text: str = FILE) -> Plan:
    file = folder / "bridge.toml"
    file.write_text(text)
    return plan_from_file(load(file, {"DATABASE_URL": "postgresql:///tasks", "KEY": "k" * 40}))


def test_a_plan_is_the_same_in_another_process(tmp_path: Path) -> None:
    plan = for_workers(plan_of(tmp_path), 2)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_limits_that_are_meant_for_the_whole_are_divided_and_at_least_one(tmp_path: Path) -> None:
    whole = plan_of(tmp_path)
    part = for_workers(whole, 4)
    assert (part.profile.connections.most, part.profile.streams.open) == (3000, 2500)
    assert part.profile.requests.bodies_limit_bytes == 64 * 1024 * 1024
    assert part.profile.store.connections == 1
    assert part.published["all"].overrides["*"].concurrency == 1
    own, far = part.servers["own"], part.servers["far"]
    assert (own.pace.concurrency, own.rules.shared, own.rules.queue) == (1, 1, 64)
    assert far.pace.concurrency == 4
    assert (
        for_workers(whole, 1000).profile.requests.bodies_limit_bytes
        == whole.profile.requests.body_limit_bytes
    )
    assert shares_in_words(whole, 4) == "3000 connections, 2500 streams, 64 MiB of requests being read"


def test_a_server_that_one_worker_runs_for_all_keeps_its_limits_and_its_name_until_it_changes(
    tmp_path: Path,
) -> None:
    first = for_workers(plan_of(tmp_path), 4)
    same = for_workers(plan_of(tmp_path), 4, first)
    other = for_workers(plan_of(tmp_path, FILE.replace('["one"]', '["one", "more"]')), 4, same)
    assert first.servers["one"] == replace(plan_of(tmp_path).servers["one"])
    assert [shared_servers(plan) for plan in (first, same, other)] == [("one#1",), ("one#1",), ("one#2",)]
