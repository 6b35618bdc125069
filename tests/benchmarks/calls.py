"""Parts a and b: SendMessage, from the request to the completed task, beside the same tool called directly.

What a contestant costs by itself is its CPU time a call less that of the MCP SDK's client at the same concurrency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.contestants import (
    BRIDGE,
    DIRECT,
    ECHOES,
    SDK_AGENT,
    STORED,
    Server,
    Store,
    bridge_command,
    direct_command,
    load_command,
    sdk_agent_command,
)
from tests.benchmarks.figures import Report, Table, number, percentile, spread
from tests.benchmarks.scale import Scale, requests_for
from tests.benchmarks.workplace import Workplace

CONCURRENCIES: Final = (1, 32)
_COMMANDS: Final = {BRIDGE: bridge_command, SDK_AGENT: sdk_agent_command}


@dataclass(frozen=True)
class Case:
    """One contestant in one setting."""

    contestant: str
    server: Server
    store: Store | None
    """None for the client, which has none."""
    concurrency: int


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did. Times in milliseconds."""

    case: Case
    latencies: Sequence[float]
    rate: float
    """Requests a second."""
    cpu: float
    """A call."""

    def as_json(self) -> dict[str, Any]:
        """For programs: without the samples."""
        return vars(self.case) | {
            "part": "calls",
            "requests": len(self.latencies),
            "p50_ms": percentile(self.latencies, 50),
            "p99_ms": percentile(self.latencies, 99),
            "requests_per_second": self.rate,
            "cpu_ms_per_call": self.cpu,
        }


def measure(place: Workplace, scale: Scale, contestants: Sequence[str]) -> Report:
    """Run every case in every round, and show them side by side. The client is always among them."""
    cases = [
        Case(contestant, server, store, concurrency)
        for server in scale.servers
        for concurrency in CONCURRENCIES
        for store in scale.stores
        for contestant in contestants
    ]
    direct = [
        Case(DIRECT, server, None, concurrency) for server in scale.servers for concurrency in CONCURRENCIES
    ]
    runs = [
        _run(place, scale, case)
        for _ in range(scale.rounds)
        for case in sorted([*cases, *direct], key=lambda case: (case.server, case.concurrency))
    ]
    found = Found(runs)
    tables = [
        _calls_table(found, scale, server, concurrency)
        for server in scale.servers
        for concurrency in CONCURRENCIES
    ]
    tables.append(_against_direct_table(found, [case for case in cases if case.contestant == BRIDGE]))
    if SDK_AGENT in contestants:
        tables.append(_ratio_table(found, [case for case in cases if case.contestant == BRIDGE]))
    tables.append(_stored_table(scale, contestants))
    return Report(tables, [run.as_json() for run in runs])


def _run(place: Workplace, scale: Scale, case: Case) -> Run:
    requests = requests_for(scale, case.server, case.store or "memory", case.concurrency)
    echo = ECHOES[case.server]
    plan: dict[str, Any] = {
        "kind": "send",
        "requests": requests,
        "warm_up": max(2 * case.concurrency, requests // 10),
        "concurrency": case.concurrency,
        "tool": "echo",
        "argument": echo.argument,
        "prefix": echo.prefix,
    }
    answer = _ask_client(place, case, plan) if case.store is None else _ask_server(place, case, plan)
    latencies = [1000 * seconds for seconds in answer["latencies"]]
    return Run(case, latencies, requests / answer["seconds"], 1000 * answer["cpu_seconds"] / requests)


def _ask_client(place: Workplace, case: Case, plan: dict[str, Any]) -> dict[str, Any]:
    with place.started(direct_command(server=case.server)) as client:
        client.hear()
        return client.ask(plan)


def _ask_server(place: Workplace, case: Case, plan: dict[str, Any]) -> dict[str, Any]:
    port = place.new_port()
    store = "memory:" if case.store == "memory" else str(place.new_file(".db"))
    command = _COMMANDS[case.contestant](port, store, case.server)
    with place.serving(command, port) as server, place.started(load_command()) as load:
        return load.ask(plan | {"port": port, "pid": server.pid})


class Found:
    """The runs of each case, in the order of rounds."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs: dict[Case, list[Run]] = {}
        for run in runs:
            self._runs.setdefault(run.case, []).append(run)

    def __getitem__(self, case: Case) -> list[Run]:
        return self._runs[case]

    def direct(self, case: Case) -> list[Run]:
        """The client's runs at the same server and concurrency."""
        return self[Case(DIRECT, case.server, None, case.concurrency)]

    def at(self, server: Server, concurrency: int) -> list[Case]:
        """The cases of one table, the client first."""
        cases = [case for case in self._runs if (case.server, case.concurrency) == (server, concurrency)]
        return sorted(cases, key=lambda case: (case.store or "", case.contestant))

    def own_cpu(self, case: Case) -> list[float]:
        """CPU a call less the client's, by round."""
        pairs = zip(self[case], self.direct(case), strict=True)
        return [run.cpu - direct.cpu for run, direct in pairs]


def _calls_table(found: Found, scale: Scale, server: Server, concurrency: int) -> Table:
    rows = []
    for case in found.at(server, concurrency):
        runs = found[case]
        latencies = [sample for run in runs for sample in run.latencies]
        rates, cpus, own = [run.rate for run in runs], [run.cpu for run in runs], found.own_cpu(case)
        rows.append(
            [
                case.contestant,
                case.store or "-",
                str(len(latencies)),
                spread(percentile(latencies, 50), (percentile(run.latencies, 50) for run in runs)),
                spread(percentile(latencies, 99), (percentile(run.latencies, 99) for run in runs)),
                spread(_mean(rates), rates),
                spread(_mean(cpus), cpus),
                spread(_mean(own), own) if case.store else "-",
            ]
        )
    columns = [
        "contestant",
        "store",
        "calls",
        "p50 ms",
        "p99 ms",
        "calls/s",
        "CPU ms/call",
        "own CPU ms/call",
    ]
    title = f"SendMessage to the echo tool of {_SERVERS[server]}, concurrency {concurrency}"
    return Table(title, columns, rows)


_SERVERS: Final[dict[Server, str]] = {
    "raw": "the raw stdio server",
    "everything": "server-everything (Node.js)",
}


def _against_direct_table(found: Found, cases: Sequence[Case]) -> Table:
    rows = []
    for case in cases:
        pairs = list(zip(found[case], found.direct(case), strict=True))
        p50 = [percentile(a.latencies, 50) / percentile(b.latencies, 50) for a, b in pairs]
        rates, cpus = [a.rate / b.rate for a, b in pairs], [a.cpu / b.cpu for a, b in pairs]
        columns = (p50, rates, cpus)
        rows.append(
            [case.server, str(case.concurrency), str(case.store), *(spread(_mean(c), c) for c in columns)]
        )
    return Table(
        "The bridge / the MCP SDK client (what a bridge costs over none)",
        ["server", "concurrency", "store", "p50", "calls/s", "CPU"],
        rows,
    )


def _ratio_table(found: Found, cases: Sequence[Case]) -> Table:
    rows = []
    for case in cases:
        other = Case(SDK_AGENT, case.server, case.store, case.concurrency)
        pairs = list(zip(found[case], found[other], strict=True))
        own = found.own_cpu(case), found.own_cpu(other)
        each = [ours / theirs for ours, theirs in zip(*own, strict=True)]
        p50 = [percentile(a.latencies, 50) / percentile(b.latencies, 50) for a, b in pairs]
        rates = [a.rate / b.rate for a, b in pairs]
        rows.append(
            [
                case.server,
                str(case.concurrency),
                str(case.store),
                number(_mean(own[0])),
                number(_mean(own[1])),
                spread(_mean(own[0]) / _mean(own[1]), each),
                spread(_mean(p50), p50),
                spread(_mean(rates), rates),
            ]
        )
    return Table(
        "The bridge / the a2a-sdk agent (the aim: own CPU at most 0.25 at concurrency 32)",
        ["server", "concurrency", "store", "own ms, bridge", "own ms, a2a-sdk", "own CPU", "p50", "calls/s"],
        rows,
        ["Own CPU is CPU a call less that of the MCP SDK client at the same concurrency."],
    )


def _stored_table(scale: Scale, contestants: Sequence[str]) -> Table:
    rows = [[name, store, STORED[name, store]] for store in scale.stores for name in contestants]
    return Table(
        "What is on the disk, fsynced, once SendMessage has answered",
        ["contestant", "store", "durable"],
        rows,
        ["What is on the disk survives kill -9 and a power cut; what is not ends with the process."],
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
