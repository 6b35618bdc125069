"""Part e: how long it takes until something can be called, and the memory that it has then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.contestants import (
    BRIDGE,
    DIRECT,
    SDK_AGENT,
    bridge_command,
    direct_command,
    many_servers_command,
    sdk_agent_command,
)
from tests.benchmarks.figures import Report, Table, median, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.usage import rss_bytes
from tests.benchmarks.workplace import Workplace

MANY: Final = "bridges in one process"
_SERVED: Final = {BRIDGE: bridge_command, SDK_AGENT: sdk_agent_command}
_SETTLE_SECONDS: Final = 0.3
"""Between the first answer and the look at the memory."""


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did."""

    contestant: str
    servers: int
    ready_seconds: float
    rss_mib: float


def measure(place: Workplace, scale: Scale) -> Report:
    """Start every contestant in every round."""
    runs = []
    for _ in range(scale.rounds):
        runs += [_start_served(place, name) for name in _SERVED]
        for servers in (1, scale.many):
            runs.append(_start_told(place, DIRECT, servers, direct_command(servers)))
            runs.append(_start_told(place, MANY, servers, many_servers_command(servers)))
    keys = dict.fromkeys((run.contestant, run.servers) for run in runs)
    rows = [
        _row(name, servers, [run for run in runs if (run.contestant, run.servers) == (name, servers)])
        for name, servers in sorted(keys, key=lambda key: key[1])
    ]
    notes = [
        f"Ready is, for `{BRIDGE}` (mcp-a2a wrap) and `{SDK_AGENT}`, the first answer to a GET of the agent card,",
        "from exec on; for the others, that all tools are listed. A wrap has one server: the bridges in one process",
        "are a script that enters a Bridge once for each, all at once and with the memory store, and that",
        "serves no HTTP; the client opens its connections all at once too. The start of the tool servers is in the",
        "time, and their memory is in no figure.",
    ]
    columns = ["contestant", "servers", "ready ms", "RSS MiB"]
    return Report(
        [Table("Starting", columns, rows, notes)], [{"part": "starting", **vars(run)} for run in runs]
    )


def _start_served(place: Workplace, name: str) -> Run:
    port = place.new_port()
    with place.started(_SERVED[name](port, "memory:")) as started:
        return _run_of(name, 1, started.ready_on(port), started.pid)


def _start_told(place: Workplace, name: str, servers: int, command: list[str]) -> Run:
    with place.started(command) as started:
        started.hear()
        return _run_of(name, servers, time.perf_counter() - started.since, started.pid)


def _run_of(name: str, servers: int, ready_seconds: float, pid: int) -> Run:
    time.sleep(_SETTLE_SECONDS)
    return Run(name, servers, ready_seconds, rss_bytes(pid) / 1024 / 1024)


def _row(name: str, servers: int, runs: Sequence[Run]) -> list[str]:
    ready, rss = [1000 * run.ready_seconds for run in runs], [run.rss_mib for run in runs]
    return [name, str(servers), spread(median(ready), ready), spread(median(rss), rss)]
