"""The benchmarks run and say what they found; how quick anything is, no test says."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from tests.benchmarks import agent_client, page, replicas
from tests.benchmarks.__main__ import PARTS, parser, run
from tests.benchmarks.cost import BRIDGES, MOST, Pair, measure, ratio_of, wrap_command
from tests.benchmarks.direct_client import require_text
from tests.benchmarks.figures import number, percentile, spread
from tests.benchmarks.load_calls import require_completed
from tests.benchmarks.load_streams import checked
from tests.benchmarks.picture import bars
from tests.benchmarks.workplace import BenchmarkError, Workplace, workplace
from tests.support import forked
from tests.support.command import ROOT, environment
from tests.support.forked import Forked
from tests.support.postgres import database

WAIT_SECONDS = 60.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see CPU time"),
]


SMALL = ("--requests", "20", "--rounds", "1", "--servers", "raw", "--stores", "memory")


def measured(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    """The runs of the smallest measurement, whose contestants are forked: what they take is not looked at."""
    file = tmp_path / "runs.json"
    assert run(parser().parse_args([*SMALL, "--json", str(file), *options]), start=Forked) == 0
    runs: list[dict[str, Any]] = json.loads(file.read_text())["runs"]
    return runs


def test_the_smallest_run_measures_the_bridge_beside_the_client(tmp_path: Path) -> None:
    """As a user starts it."""
    file = tmp_path / "runs.json"
    command = [sys.executable, "-m", "tests.benchmarks", *SMALL, "--json", str(file), "--only", "a"]
    done = forked.run(command, WAIT_SECONDS, text=True, cwd=ROOT, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    said, runs = done.stdout, json.loads(file.read_text())["runs"]
    assert "### SendMessage to the echo tool of the raw stdio server, concurrency 32" in said
    assert [(run["contestant"], run["concurrency"], run["requests"]) for run in runs] == [
        ("bridge", 1, 10),
        ("MCP SDK client", 1, 10),
        ("bridge", 32, 20),
        ("MCP SDK client", 32, 20),
    ]


def test_the_smallest_run_of_streams_measures_all_three(tmp_path: Path) -> None:
    runs = measured(tmp_path, "--quick", "--only", "c")
    assert [(run["contestant"], len(run["streams"])) for run in runs] == [
        ("bridge", 1),
        ("a2a-sdk agent", 1),
        ("MCP SDK client", 1),
    ]
    assert all(0 < stream["events"] <= 1000 for run in runs for stream in run["streams"])


def test_the_smallest_run_of_a_face_measures_it_beside_the_clients_of_its_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = measured(tmp_path, "--quick", "--only", "f", "--faces", "stdio-modern")
    said = capsys.readouterr().out
    assert "### A task with 1000 reports of progress at once (`flood`), through `mcp-a2a expose`" in said
    assert [(run["contestant"], len(run["streams"])) for run in runs] == [
        ("expose, stdio-modern", 1),
        ("AgentClient", 0),
        ("AgentClient, streamed", 1),
        ("a2a-sdk client", 1),
    ]
    assert all(run["calls"]["32"]["requests"] == 32 for run in runs)
    assert all(0 < stream["events"] <= 1000 for run in runs for stream in run["streams"])


def test_the_smallest_stock_of_tasks_is_asked_in_both_stores(tmp_path: Path) -> None:
    runs = measured(tmp_path, "--quick", "--only", "i")
    kinds = [(run["store"], run["kind"]) for run in runs]
    assert len(kinds) == len(set(kinds)) == 20
    assert all(len(run["seconds"]) == 50 for run in runs if run["bound_ms"] is not None)


def test_replicas_are_asked_at_the_same_time(tmp_path: Path) -> None:
    with database() as server, workplace(Forked) as place:
        run = replicas.asked(place, server.url, "slow", 2, 16)
    assert (run.replicas, len(run.latencies)) == (2, 32)
    assert min(run.latencies) >= 100


@pytest.mark.parametrize(("rate", "judged"), [(35.0, "kept"), (34.9, "BROKEN")])
def test_a_gate_says_whether_it_is_kept(rate: float, judged: str) -> None:
    runs = [replicas.Run("slow", 1, 10.0, [1.0], 1.0), replicas.Run("slow", 4, rate, [1.0], 1.0)]
    assert replicas.rates(runs, "slow", 3.5, "").notes[0].endswith(f"the gate is 3.5: {judged}.")


def test_the_help_names_every_part() -> None:
    said = parser().format_help()
    assert all(f"  {name}  {what}\n" in said for name, what in PARTS.items())


TASK = {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"parts": [{"text": "hi"}]}]}


def answer(task: Any, status: str = "200 OK") -> bytes:
    """A response with a task, as it comes over the wire."""
    return f"HTTP/1.1 {status}\r\n\r\n{json.dumps({'result': {'task': task}})}".encode()


def test_an_answer_with_the_echoed_text_counts() -> None:
    require_completed(answer(TASK), "hi")


@pytest.mark.parametrize(
    "raw",
    [
        answer(TASK, status="503 Service Unavailable"),
        answer(TASK | {"status": {"state": "TASK_STATE_FAILED"}}),
        answer(TASK | {"artifacts": []}),
        answer(TASK | {"artifacts": [{"parts": [{"text": "something else"}]}]}),
        b'HTTP/1.1 200 OK\r\n\r\n{"error": {"code": -32603}}',
    ],
)
def test_any_other_answer_fails_the_run(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no completed task"):
        require_completed(raw, "hi")


def test_a_tool_that_says_something_else_fails_the_run() -> None:
    require_text(CallToolResult(content=[TextContent(type="text", text="hi")]), "hi")
    with pytest.raises(ValueError, match="was to say 'hi'"):
        require_text(CallToolResult(content=[TextContent(type="text", text="ho")]), "hi")


def chunked(*events: dict[str, Any]) -> bytes:
    """A stream as it comes over the wire."""
    frames = [b"data: " + json.dumps({"result": event}).encode() + b"\n\n" for event in events]
    return b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(f), f) for f in frames) + b"0\r\n\r\n"


REPORT = {
    "statusUpdate": {"status": {"state": "TASK_STATE_WORKING", "message": {"parts": [{"text": "step 1"}]}}}
}
RESULT = {"artifactUpdate": {"artifact": {"parts": [{"text": "2 steps"}]}}}
ENDED = {"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}}


def test_a_stream_counts_the_reports_that_it_delivered() -> None:
    assert checked(chunked(REPORT, REPORT, RESULT, ENDED), {"steps": 2}) == 2


@pytest.mark.parametrize("events", [(REPORT, RESULT), (REPORT, ENDED), ()])
def test_a_stream_without_its_result_or_end_fails_the_run(events: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ValueError, match="no stream that ends completed"):
        checked(chunked(*events), {"steps": 2})


def test_percentiles_are_samples() -> None:
    samples = [float(value) for value in range(1, 101)]
    assert (percentile(samples, 50), percentile(samples, 99), percentile([7.0], 99)) == (50, 99, 7)


def test_an_agent_asked_directly_has_to_give_the_text_and_to_end() -> None:
    events: list[dict[str, Any]] = [{"task": {"id": "1"}}, REPORT, REPORT, RESULT, ENDED]
    assert agent_client.reports_in(events, "2 steps") == [1, 2]
    agent_client.require_completed({"task": TASK}, "hi")
    with pytest.raises(ValueError, match="no stream that ends completed"):
        agent_client.reports_in(events[:-1], "2 steps")
    with pytest.raises(ValueError, match="no completed task"):
        agent_client.require_completed({"task": TASK}, "ho")


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0.0"), (0.01234, "0.0123"), (1.5, "1.50"), (12.34, "12.3"), (1234.6, "1235")]
)
def test_figures_have_three_digits_that_count(value: float, said: str) -> None:
    assert number(value) == said


def test_a_spread_is_the_least_and_the_most_of_the_rounds() -> None:
    assert spread(2.0, [3.0, 1.0]) == "2.00 (1.00..3.00)"
    assert spread(2.0, [2.0]) == "2.00"


# The page of all contestants


def test_a_page_gets_new_figures_between_its_marks() -> None:
    old = f"# Benchmarks\n\n{page.BEGIN}\n\nold\n{page.END}\n\n## More\n"
    assert page.written(old, "new") == f"# Benchmarks\n\n{page.BEGIN}\n\nnew\n{page.END}\n\n## More\n"
    with pytest.raises(ValueError, match="the page has no"):
        page.written("# Benchmarks\n", "new")


def test_a_figure_that_was_measured_in_one_round_is_shown_of_this_round() -> None:
    values = {f"{name}.memory_cpu": cpu for name, cpu in (("now", 1.0), ("before", 1.5), ("a2a-sdk", 4.5))}
    both = values | {"direct.cpu": 0.5}
    rows = {row[0]: row[1:] for row in page.ratios_table([both | {"now.idle_kib": 14.0}, both]).rows}
    assert rows["own CPU a call, of a2a-sdk's, memory"] == [
        "0.250 (0.250..0.250)",
        "0.125 (0.125..0.125)",
        "≤ 0.16",
    ]
    assert rows["idle stream: KiB"] == ["-", "14.0", "≤ 15"]
    assert rows["`pwrite64` a call"] == ["-", "-", "≤ 30"]


def test_a_picture_has_a_bar_for_each_value() -> None:
    drawn = bars({"A & B": [("mcp-a2a", 1.0), ("other", 2.0)]}, "1 and 2")
    assert re.findall(r'<rect[^>]* width="([^"]+)"', drawn) == ["235.0", "470.0"]
    assert ">A &amp; B<" in drawn


# What a call costs beside another checkout


def pairs_of(*ratios: float) -> list[Pair]:
    return [Pair(before=2.0, after=2.0 * ratio) for ratio in ratios]


def test_a_ratio_is_the_geometric_mean_with_students_interval() -> None:
    ratio = ratio_of(pairs_of(1.0, 1.1, 1.21))
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((1.1, 0.8681, 1.3939), abs=1e-4)
    back = ratio_of([Pair(before=pair.after, after=pair.before) for pair in pairs_of(1.0, 1.1, 1.21)])
    assert (back.mean, back.low, back.high) == pytest.approx((1 / 1.1, 1 / 1.3939, 1 / 0.8681), abs=1e-4)


@pytest.mark.parametrize(
    ("ratios", "too_high"),
    [
        ([1.05, 1.06, 1.07] * 6, True),
        ([1.02, 1.021, 1.029] * 6, False),
        ([0.8, 1.2, 1.4] * 2, False),
        ([1.1, 1.2], False),
        ([0.5, 0.5], False),
        ([1.04] * 100, True),
    ],
)
def test_a_cost_is_too_high_when_all_of_its_interval_is(ratios: list[float], too_high: bool) -> None:
    assert ratio_of(pairs_of(*ratios)).is_over(MOST) is too_high


def other_checkout(folder: Path) -> Path:
    """A copy of what the bridge is made of."""
    for name in ("bridge", "mappings"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("of", BRIDGES)
def test_each_checkout_of_a_pair_runs_its_own_code(of: str, tmp_path: Path) -> None:
    place, other = Workplace(tmp_path), other_checkout(tmp_path / "other")
    (pair,) = measure(place, other, pairs=1, calls=10, of=of, concurrency=2)
    assert pair.before > 0 < pair.after
    port = place.new_port()
    with (
        pytest.raises(BenchmarkError, match=f"it runs {ROOT}/bridge/__init__.py, and not what is in {other}"),
        place.serving(wrap_command(other, port), port),
    ):
        pass
