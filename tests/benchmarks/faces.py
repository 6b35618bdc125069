"""Part f: a call, and a stream of reports, through `mcp-a2a expose`, beside the same agent asked over A2A.

The agent is `mcp-a2a wrap` of the raw server with the memory store, a new one for each run. A run is one process of
a contestant that does calls one at a time, calls at once, and then the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.contestants import (
    AGENT_CLIENT,
    AGENT_CLIENTS,
    STREAMED,
    agent_client_command,
    bridge_command,
    expose_command,
    face_client_command,
)
from tests.benchmarks.figures import Report, Table, median, percentile, spread
from tests.benchmarks.scale import Scale, requests_for
from tests.benchmarks.workplace import Started, Workplace

CONCURRENCIES: Final = (1, 32)
_TOOL: Final = "flood"


@dataclass(frozen=True)
class Calls:
    """What a run found at one concurrency. Times in milliseconds."""

    latencies: Sequence[float]
    rate: float
    """Calls a second."""
    cpu: float
    """A call."""

    @property
    def p50(self) -> float:
        """Its median."""
        return percentile(self.latencies, 50)


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did."""

    contestant: str
    calls: dict[int, Calls]
    """By concurrency."""
    streams: Sequence[dict[str, float]]
    """`first_seconds`, `seconds` and `events` of each."""
    stream_cpu: float
    """Milliseconds a stream."""

    def as_json(self) -> dict[str, Any]:
        """For programs: without the samples."""
        calls = {
            concurrency: {
                "requests": len(found.latencies),
                "p50_ms": found.p50,
                "p99_ms": percentile(found.latencies, 99),
                "calls_per_second": found.rate,
                "cpu_ms_per_call": found.cpu,
            }
            for concurrency, found in self.calls.items()
        }
        return {"part": "faces", **vars(self), "calls": calls}


def measure(place: Workplace, scale: Scale) -> Report:
    """Run every face and every client in every round."""
    faces = [f"expose, {face}" for face in scale.faces]
    names = [*faces, *AGENT_CLIENTS]
    found: dict[str, list[Run]] = {name: [] for name in names}
    for _ in range(scale.rounds):
        for name in names:
            found[name].append(_run(place, scale, name))
    tables = [_calls_table(found, concurrency) for concurrency in CONCURRENCIES]
    tables += [_ratio_table(found, faces), _streams_table(found, scale)]
    return Report(tables, [run.as_json() for runs in found.values() for run in runs])


def _run(place: Workplace, scale: Scale, name: str) -> Run:
    with _asking(place, name) as (asking, whose):
        calls = {concurrency: _calls(asking, whose, scale, concurrency) for concurrency in CONCURRENCIES}
        if name == AGENT_CLIENT:  # its streams are those of `STREAMED`
            return Run(name, calls, [], 0)
        plan = {"kind": "stream", "streams": scale.streams, "steps": scale.steps, "tool": _TOOL}
        answer = asking.ask(plan | whose)
    return Run(name, calls, answer["streams"], 1000 * answer["cpu_seconds"] / scale.streams)


@contextmanager
def _asking(place: Workplace, name: str) -> Iterator[tuple[Started, dict[str, Any]]]:
    """Who asks, and what its plans say of whose CPU time counts."""
    port = place.new_port()
    url = f"http://127.0.0.1:{port}"
    if name in AGENT_CLIENTS:
        # Both at once: this one connects at its first plan.
        with (
            place.started(bridge_command(port, "memory:")) as agent,
            place.started(agent_client_command(name, url)) as asking,
        ):
            agent.ready_on(port)
            yield asking, {}
        return
    transport, _, mode = name.removeprefix("expose, ").partition("-")
    with place.serving(bridge_command(port, "memory:"), port):
        if transport == "stdio":
            with place.started(face_client_command(mode, *expose_command(url))) as asking:
                asking.hear()
                yield asking, {"cpu_of": "server"}
            return
        face_port = place.new_port()
        with place.started(expose_command(url, face_port)) as face:
            face.listens_on(face_port)
            with place.started(face_client_command(mode, f"http://127.0.0.1:{face_port}/mcp")) as asking:
                asking.hear()
                yield asking, {"cpu_of": face.pid}


def _calls(asking: Started, whose: dict[str, Any], scale: Scale, concurrency: int) -> Calls:
    requests = max(10, concurrency, requests_for(scale, "raw", "memory", concurrency) // 2)
    plan = {
        "kind": "send",
        "requests": requests,
        "warm_up": max(concurrency, requests // 10),
        "concurrency": concurrency,
        "tool": "echo",
        "argument": "text",
        "prefix": "",
    }
    answer = asking.ask(plan | whose)
    latencies = [1000 * seconds for seconds in answer["latencies"]]
    return Calls(latencies, requests / answer["seconds"], 1000 * answer["cpu_seconds"] / requests)


def _calls_table(found: dict[str, list[Run]], concurrency: int) -> Table:
    rows = []
    for name, runs in found.items():
        each = [run.calls[concurrency] for run in runs]
        latencies = [sample for calls in each for sample in calls.latencies]
        rates, cpus = [calls.rate for calls in each], [calls.cpu for calls in each]
        rows.append(
            [
                name,
                str(len(latencies)),
                spread(percentile(latencies, 50), (calls.p50 for calls in each)),
                spread(percentile(latencies, 99), (percentile(calls.latencies, 99) for calls in each)),
                spread(_mean(rates), rates),
                spread(_mean(cpus), cpus),
            ]
        )
    notes = [
        "CPU is that of expose; for the clients, which call the agent themselves, that of the client. Who asks",
        f"expose is the MCP SDK's client. `{STREAMED}` asks as expose does, by SendStreamingMessage; the other",
        "clients by SendMessage.",
    ]
    return Table(
        f"The echo tool of a wrapped raw server through `mcp-a2a expose`, concurrency {concurrency}",
        ["contestant", "calls", "p50 ms", "p99 ms", "calls/s", "CPU ms/call"],
        rows,
        notes if concurrency == CONCURRENCIES[-1] else [],
    )


def _ratio_table(found: dict[str, list[Run]], faces: Sequence[str]) -> Table:
    rows = [
        [
            name,
            str(concurrency),
            *(
                _ratio(found, name, other, concurrency, of)
                for of in _COMPARED.values()
                for other in AGENT_CLIENTS
            ),
        ]
        for concurrency in CONCURRENCIES
        for name in faces
    ]
    columns = [f"{what} / {other}" for what in _COMPARED for other in AGENT_CLIENTS]
    return Table(
        "expose / the clients (what MCP costs in front of an agent)", ["face", "concurrency", *columns], rows
    )


_COMPARED: Final[dict[str, Callable[[Calls], float]]] = {
    "p50": lambda calls: calls.p50,
    "calls/s": lambda calls: calls.rate,
}


def _ratio(
    found: dict[str, list[Run]], name: str, other: str, concurrency: int, of: Callable[[Calls], float]
) -> str:
    pairs = zip(found[name], found[other], strict=True)
    each = [of(run.calls[concurrency]) / of(base.calls[concurrency]) for run, base in pairs]
    return spread(_mean(each), each)


def _streams_table(found: dict[str, list[Run]], scale: Scale) -> Table:
    rows = [_streams_row(name, runs) for name, runs in found.items() if name != AGENT_CLIENT]
    return Table(
        f"A task with {scale.steps} reports of progress at once (`{_TOOL}`), through `mcp-a2a expose`",
        ["contestant", "streams", "first report ms", "reports", "stream ms", "CPU ms/stream"],
        rows,
        [
            "Reports are, through expose, the calls of the MCP client's progress callback; for the clients, the",
            "status updates with a message.",
        ],
    )


def _streams_row(name: str, runs: Sequence[Run]) -> list[str]:
    streams = [each for run in runs for each in run.streams]
    first, seconds, events = (
        [each[key] for each in streams] for key in ("first_seconds", "seconds", "events")
    )
    cpus = [run.stream_cpu for run in runs]
    return [
        name,
        str(len(streams)),
        spread(1000 * median(first), (1000 * value for value in first)),
        _whole(events),
        spread(1000 * median(seconds), (1000 * value for value in seconds)),
        spread(_mean(cpus), cpus),
    ]


def _whole(counts: Sequence[float]) -> str:
    least, most = round(min(counts)), round(max(counts))
    return str(least) if least == most else f"{round(median(counts))} ({least}..{most})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
