"""Part h: what replicas on one PostgreSQL add. Each runs on its own, with its own tool server, and is asked by its own
load; the database is one.

A slow tool shows that nothing makes the replicas wait for each other: most of the time nobody computes. Under a quota
of CPU time each replica computes as much as it is let, so that two cores can hold several. The gates are ratios of one
run: four replicas to one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contestants import BRIDGE, load_command
from tests.benchmarks.figures import Report, Table, median, number, percentile, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.workplace import Workplace
from tests.support.postgres import database, new_agent
from tests.support.running import RAW_SERVER

SLOW_GATE: Final = 3.5
"""The least that four replicas give of one's rate, with a slow tool."""
QUOTA_GATE: Final = 3.0
"""The same under a quota of CPU time."""

_MANY: Final = 4
_AT_ONCE: Final = 16
"""Calls at once, of each replica."""
_SLOW_MS: Final = 100
_QUOTA: Final = 0.15
"""The share of a core that a replica may take."""
_PERIOD_US: Final = 20_000
_CGROUPS: Final = Path("/sys/fs/cgroup/cpu")
_SLOW_SERVER: Final = Path(__file__).with_name("slow_server.py")
_KEY: Final = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Run:
    """What so many replicas did at the same time."""

    case: str
    replicas: int
    rate: float
    """Calls a second of all replicas."""
    latencies: Sequence[float]
    cpu_ms: float
    """A call, of the bridge alone."""


def measure(place: Workplace, scale: Scale) -> Report:
    """Ask one and four replicas in every round, and one call of each store beside the other."""
    runs: list[Run] = []
    with database() as server:
        for _ in range(scale.rounds):
            for replicas in (1, _MANY):
                runs.append(asked(place, server.url, "slow", replicas, scale.slow_calls))
            for store in (str(place.new_file(".db")), server.url):
                name = "SQLite" if store.endswith(".db") else "PostgreSQL"
                runs.append(asked(place, store, name, 1, scale.requests, slow=False))
        if os.access(_CGROUPS, os.W_OK):
            for _ in range(scale.quota_rounds):
                for replicas in (1, _MANY):
                    calls = scale.quota_calls
                    runs.append(asked(place, server.url, "quota", replicas, calls, slow=False, quota=_QUOTA))
    tables = [
        rates(runs, "slow", SLOW_GATE, f"{_AT_ONCE} calls of {_SLOW_MS} ms at once at each replica"),
        _stores(runs),
    ]
    quota = f"{_AT_ONCE} quick calls at once at each replica, {_QUOTA:.0%} of a core for each"
    if any(run.case == "quota" for run in runs):
        tables.append(rates(runs, "quota", QUOTA_GATE, quota))
    else:
        tables.append(Table(quota, ["not measured"], [[f"{_CGROUPS} cannot be written"]]))
    return Report(tables, [_as_json(run) for run in runs])


def asked(
    place: Workplace,
    store: str,
    case: str,
    replicas: int,
    requests: int,
    *,
    slow: bool = True,
    quota: float | None = None,
) -> Run:
    """Start replicas that share a store, let each be asked by a load of its own, all at once, and end them."""
    agent = new_agent()
    plan: dict[str, Any] = {
        "kind": "send",
        "requests": requests,
        "warm_up": 2 * _AT_ONCE,
        "concurrency": _AT_ONCE,
        "tool": "slow" if slow else "echo",
        "argument": "text",
        "prefix": "",
    }
    tool_server = [str(_SLOW_SERVER), str(_SLOW_MS)] if slow else ["-S", "-E", str(RAW_SERVER)]
    with ExitStack() as stack:
        loads = []
        for _ in range(replicas):
            port = place.new_port()
            command = _command(place, agent, store, tool_server, port)
            served = stack.enter_context(place.serving(command, port))
            if quota is not None:
                stack.enter_context(_limited(served.pid, quota))
            load = stack.enter_context(place.started(load_command()))
            loads.append((load, plan | {"port": port, "pid": served.pid}))
        for load, planned in loads:
            load.tell(planned)
        answers = [load.next() for load, _ in loads]
    return Run(
        case,
        replicas,
        sum(requests / answer["seconds"] for answer in answers),
        [1000 * seconds for answer in answers for seconds in answer["latencies"]],
        1000 * sum(answer["cpu_seconds"] for answer in answers) / (requests * replicas),
    )


def _command(place: Workplace, agent: str, store: str, tool_server: Sequence[str], port: int) -> list[str]:
    file = place.new_file(".toml")
    words = ", ".join(f'"{word}"' for word in (sys.executable, *tool_server))
    key = place.folder / "bench.key"
    key.write_text(_KEY)
    key.chmod(0o600)
    file.write_text(
        f'[bridge]\nstore = "{store}"\nkeys = [{{ file = "{key}" }}]\n\n'
        f'[tool_servers.tools]\ncommand = [{words}]\nera = "legacy"\n\n'
        f'[tools_as_agent.{agent}]\nfrom = ["tools"]\n'
    )
    words_of_serve = ["serve", "--port", str(port), "--log-level", "warning", str(file)]
    return [sys.executable, "-P", "-m", "bridge", *words_of_serve]


@contextmanager
def _limited(pid: int, share: float) -> Iterator[None]:
    """Let a process have this share of a core."""
    group = _CGROUPS / f"mcp-a2a-bench-{pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * _PERIOD_US)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            (_CGROUPS / "cgroup.procs").write_text(line)
        group.rmdir()


def rates(runs: Sequence[Run], case: str, gate: float, title: str) -> Table:
    """The table of one case: four replicas beside one, with what the gate says."""
    one, many = ([run for run in runs if (run.case, run.replicas) == (case, n)] for n in (1, _MANY))
    ratios = [after.rate / before.rate for before, after in zip(one, many, strict=True)]
    found = median(ratios)
    rows = [_row(str(some[0].replicas), some) for some in (one, many)]
    judged = "kept" if found >= gate else "BROKEN"
    return Table(
        title,
        ["replicas", "calls/s", "p50 ms", "p99 ms", "CPU ms/call"],
        rows,
        [f"{_MANY} replicas to one: {spread(found, ratios)}; the gate is {gate:g}: {judged}."],
    )


def _stores(runs: Sequence[Run]) -> Table:
    cases = {name: [run for run in runs if run.case == name] for name in ("SQLite", "PostgreSQL")}
    ratios = [after.cpu_ms / before.cpu_ms for before, after in zip(*cases.values(), strict=True)]
    return Table(
        f"SendMessage to the echo tool, concurrency {_AT_ONCE}, one replica",
        ["store", "calls/s", "p50 ms", "p99 ms", "CPU ms/call"],
        [_row(name, some) for name, some in cases.items()],
        [f"CPU of the {BRIDGE} a call, PostgreSQL / SQLite: {spread(median(ratios), ratios)}."],
    )


def _row(name: str, runs: Sequence[Run]) -> list[str]:
    rates, cpus = [run.rate for run in runs], [run.cpu_ms for run in runs]
    latencies = [sample for run in runs for sample in run.latencies]
    return [
        name,
        spread(median(rates), rates),
        number(percentile(latencies, 50)),
        number(percentile(latencies, 99)),
        spread(median(cpus), cpus),
    ]


def _as_json(run: Run) -> dict[str, Any]:
    return {"part": "replicas", **vars(run), "latencies": len(run.latencies)}
