"""Part d: what an idle stream costs: memory, and CPU for its heartbeats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.config.tables.profile import mappings_folder
from tests.benchmarks.contestants import bare_streams_command, bridge_command, load_command
from tests.benchmarks.figures import Report, Table, number, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.usage import raise_open_files
from tests.benchmarks.workplace import Workplace

SUBSCRIBERS: Final = "bridge, subscribers of one task"
TASKS: Final = "bridge, each with a task of its own"
BARE: Final = "Starlette StreamingResponse"

_SPARE_FILES: Final = 200
_SETTLE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did."""

    contestant: str
    streams: int
    kib: float
    """A stream."""
    cpu_us: float
    """A stream and second."""
    opening_seconds: float


def measure(place: Workplace, scale: Scale) -> Report:
    """Run every contestant in every round."""
    allowed = raise_open_files()
    held = min(scale.held, allowed - _SPARE_FILES)
    profile = _roomy_profile(place.new_file(".toml"), held)
    commands: Mapping[str, Callable[[int], list[str]]] = {
        SUBSCRIBERS: lambda port: bridge_command(port, "memory:"),
        TASKS: lambda port: bridge_command(port, "memory:", options=["--mapping", str(profile)]),
        BARE: bare_streams_command,
    }
    runs = [
        _run(place, scale, name, command, held)
        for _ in range(min(scale.rounds, 2))
        for name, command in commands.items()
    ]
    notes = [
        f"Each stream had one event, then heartbeats only (every 2.5 s), for {number(scale.idle_seconds)} s.",
        "Subscribers (SubscribeToTask) cost a stream alone. For streams with tasks (SendStreamingMessage to the raw",
        "server's `wait`) a copy of the default profile lets that many calls run at once: there, a stream is also a",
        "task, a call that waits, and a record in the memory store.",
    ]
    if held < scale.held:
        notes.append(f"Only {held} streams: this system lets a process open {allowed} files.")
    rows = [_row(name, [run for run in runs if run.contestant == name]) for name in commands]
    columns = ["contestant", "RSS KiB/stream", "CPU us/stream/s", "opening ms/stream"]
    table = Table(f"{held} idle streams", columns, rows, notes)
    return Report([table], [{"part": "idle", **vars(run)} for run in runs])


def _roomy_profile(path: Path, streams: int) -> Path:
    """The default profile, but that many calls may run at once."""
    text = (mappings_folder() / "default.toml").read_text()
    changed, times = re.subn(r"(?m)^concurrency = \d+", f"concurrency = {2 * streams}", text)
    assert times == 1
    path.write_text(changed)
    return path


def _run(place: Workplace, scale: Scale, name: str, command: Callable[[int], list[str]], held: int) -> Run:
    port = place.new_port()
    plan: dict[str, Any] = {
        "kind": "hold",
        "method": "SubscribeToTask" if name == SUBSCRIBERS else "SendStreamingMessage",
        "tool": "wait",
        "warm_up": held // 10,
        "streams": held,
        "settle_seconds": _SETTLE_SECONDS,
        "idle_seconds": scale.idle_seconds,
        "port": port,
    }
    with place.serving(command(port), port) as server, place.started(load_command()) as load:
        found = load.ask(plan | {"pid": server.pid})
    kib = (found["rss_after"] - found["rss_before"]) / 1024 / held
    every = held + plan["warm_up"]
    cpu_us = 1e6 * found["cpu_seconds"] / found["idle_seconds"] / every
    return Run(name, held, kib, cpu_us, found["opening_seconds"])


def _row(name: str, runs: Sequence[Run]) -> list[str]:
    kib, cpu = [run.kib for run in runs], [run.cpu_us for run in runs]
    opening = [1000 * run.opening_seconds / run.streams for run in runs]
    return [name, *(spread(sum(each) / len(each), each) for each in (kib, cpu, opening))]
