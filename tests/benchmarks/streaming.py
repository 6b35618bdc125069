"""Part c: streams of a tool that reports a thousand steps as fast as it can, as SendStreamingMessage shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.contestants import (
    BRIDGE,
    DIRECT,
    SDK_AGENT,
    Store,
    bridge_command,
    direct_command,
    load_command,
    sdk_agent_command,
)
from tests.benchmarks.figures import Report, Table, median, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.workplace import Workplace

_COMMANDS: Final = {BRIDGE: bridge_command, SDK_AGENT: sdk_agent_command}
_TOOL: Final = "flood"


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did."""

    contestant: str
    store: Store | None
    streams: Sequence[dict[str, float]]
    """`first_seconds`, `seconds` and `events` of each."""
    cpu_ms: float
    """A stream."""

    @property
    def rate(self) -> float:
        """Events a second that were delivered."""
        return sum(each["events"] for each in self.streams) / sum(each["seconds"] for each in self.streams)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"part": "streams", "events_per_second": self.rate, **vars(self)}


def measure(place: Workplace, scale: Scale) -> Report:
    """Run every contestant in every round; with SQLite once."""
    runs = []
    for at in range(scale.rounds):
        runs += [_run(place, scale, name, "memory", scale.streams) for name in _COMMANDS]
        runs.append(_run(place, scale, DIRECT, None, scale.streams))
        if at == 0 and scale.slow_streams:
            runs += [_run(place, scale, name, "sqlite", 1) for name in _COMMANDS]
    keys = dict.fromkeys((run.contestant, run.store) for run in runs)
    rows = [
        _row(name, store, [run for run in runs if (run.contestant, run.store) == (name, store)], scale)
        for name, store in keys
    ]
    columns = ["contestant", "store", "streams", "first byte ms", "stream ms", "events", "events/s"]
    table = Table(
        f"SendStreamingMessage to the raw server's `{_TOOL}`: {scale.steps} reports of progress at once",
        [*columns, "reports/s", "CPU ms/stream"],
        rows,
        [
            "Events are the status updates delivered, of those reports. The bridge leaves out a report that a newer",
            "one overtook before it was stored; reports/s counts what the tool reported. The client's events are the",
            "calls of its progress callback. First byte is that of the first event, or the first such call.",
        ],
    )
    return Report([table], [run.as_json() for run in runs])


def _run(place: Workplace, scale: Scale, name: str, store: Store | None, streams: int) -> Run:
    plan: dict[str, Any] = {"kind": "stream", "streams": streams, "steps": scale.steps, "tool": _TOOL}
    answer = _ask_client(place, plan) if store is None else _ask_server(place, name, store, plan)
    return Run(name, store, answer["streams"], 1000 * answer["cpu_seconds"] / streams)


def _ask_client(place: Workplace, plan: dict[str, Any]) -> dict[str, Any]:
    with place.started(direct_command()) as client:
        client.hear()
        return client.ask(plan)


def _ask_server(place: Workplace, name: str, store: Store, plan: dict[str, Any]) -> dict[str, Any]:
    port = place.new_port()
    command = _COMMANDS[name](port, "memory:" if store == "memory" else str(place.new_file(".db")))
    with place.serving(command, port) as server, place.started(load_command()) as load:
        return load.ask(plan | {"port": port, "pid": server.pid})


def _row(name: str, store: Store | None, runs: Sequence[Run], scale: Scale) -> list[str]:
    streams = [each for run in runs for each in run.streams]
    seconds = [each["seconds"] for each in streams]
    rates, cpus = [run.rate for run in runs], [run.cpu_ms for run in runs]
    return [
        name,
        store or "-",
        str(len(streams)),
        spread(
            1000 * median(each := [run["first_seconds"] for run in streams]), (1000 * value for value in each)
        ),
        spread(1000 * median(seconds), (1000 * value for value in seconds)),
        _whole([each["events"] for each in streams]),
        spread(sum(rates) / len(rates), rates),
        spread(scale.steps * len(seconds) / sum(seconds), (scale.steps / value for value in seconds)),
        spread(sum(cpus) / len(cpus), cpus),
    ]


def _whole(counts: Sequence[float]) -> str:
    least, most = round(min(counts)), round(max(counts))
    return str(least) if least == most else f"{round(median(counts))} ({least}..{most})"
