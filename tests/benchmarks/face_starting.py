"""Part g: how long `mcp-a2a expose` takes until its tools are listed, and the memory that it has after some calls.

Hosts start it with themselves, as a command on stdio; mostly its agent's card is remembered from the time before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from tests.benchmarks.contestants import bare_mcp_command, bridge_command, expose_command, import_command
from tests.benchmarks.figures import Report, Table, median, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.usage import rss_bytes
from tests.benchmarks.workplace import BenchmarkError, Started, Workplace

FIRST: Final = "expose, first start"
REMEMBERED: Final = "expose, card remembered"
BARE: Final = "bare SDK server"
IMPORT: Final = "import mcp"

_REVISION: Final = "2025-11-25"
_AIM: Final = 1.2
"""Times the import of the SDK that expose may take with a remembered card."""


@dataclass(frozen=True)
class Run:
    """What one process of a contestant did."""

    contestant: str
    ready_seconds: float
    listed_mib: float | None = None
    """Memory once the tools are listed; None for a process that has no tools."""
    called_mib: float | None = None
    """Memory after the calls."""


def measure(place: Workplace, scale: Scale) -> Report:
    """Start every contestant in every round. Each round has an agent of its own, so that its card is new once."""
    runs: list[Run] = []
    for _ in range(scale.rounds):
        port = place.new_port()
        with place.serving(bridge_command(port, "memory:"), port):
            expose = expose_command(f"http://127.0.0.1:{port}")
            for name, command in {FIRST: expose, REMEMBERED: expose, BARE: bare_mcp_command()}.items():
                runs.append(_start_tools(place, name, command, scale.face_calls))
            runs.append(_start_import(place))
    found = {
        name: [run for run in runs if run.contestant == name] for name in (FIRST, REMEMBERED, BARE, IMPORT)
    }
    return Report([_table(found, scale)], [{"part": "face starting", **vars(run)} for run in runs])


def _table(found: dict[str, list[Run]], scale: Scale) -> Table:
    imports = [1000 * run.ready_seconds for run in found[IMPORT]]
    rows = []
    for name, runs in found.items():
        ready = [1000 * run.ready_seconds for run in runs]
        times = [each / base for each, base in zip(ready, imports, strict=True)]
        rows.append(
            [
                name,
                spread(median(ready), ready),
                "-" if name == IMPORT else spread(median(times), times),
                _memory([run.listed_mib for run in runs]),
                _memory([run.called_mib for run in runs]),
            ]
        )
    return Table(
        "Starting `mcp-a2a expose` on stdio",
        ["contestant", "ready ms", "times the import", "RSS MiB, listed", "RSS MiB, called"],
        rows,
        [
            f"Ready is the answer to the first tools/list of revision {_REVISION}, after initialize, from exec on;",
            f"for `{IMPORT}`, that Python has done just this. The aim for a remembered card: {_AIM} times the",
            f"import. Memory is after that answer, and after {scale.face_calls} calls of the echo tool.",
        ],
    )


def _memory(found: Sequence[float | None]) -> str:
    known = [value for value in found if value is not None]
    return spread(median(known), known) if known else "-"


def _start_import(place: Workplace) -> Run:
    with place.started(import_command()) as started:
        started.hear()
        return Run(IMPORT, time.perf_counter() - started.since)


def _start_tools(place: Workplace, name: str, command: Sequence[str], calls: int) -> Run:
    with place.started(command) as started:
        listed_tools(started, name)
        ready_seconds = time.perf_counter() - started.since
        listed_mib = _rss_mib(started)
        for _ in range(calls):
            _require_echo(started)
        return Run(name, ready_seconds, listed_mib, _rss_mib(started))


def listed_tools(started: Started, name: str) -> None:
    """List the tools of a face, as the first thing that its client does."""
    client = {"name": "bench", "version": "1"}
    params = {"protocolVersion": _REVISION, "capabilities": {}, "clientInfo": client}
    _asked(started, "initialize", params)
    started.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
    tools = _asked(started, "tools/list", {})["tools"]
    if "echo" not in [tool["name"] for tool in tools]:
        raise BenchmarkError(f"{name} lists no echo: {tools!r}")


def _require_echo(started: Started) -> None:
    text = uuid4().hex
    result = _asked(started, "tools/call", {"name": "echo", "arguments": {"text": text}})
    if result.get("isError") or result["content"] != [{"type": "text", "text": text}]:
        raise BenchmarkError(f"the tool was to say {text!r} and said {result!r}")


def _asked(started: Started, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request; what a server tells meanwhile is passed over."""
    asked = uuid4().hex
    answer = started.ask({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
    while answer.get("id") != asked:
        answer = started.next()
    if "result" not in answer:
        raise BenchmarkError(f"{method} was refused: {answer!r}")
    result: dict[str, Any] = answer["result"]
    return result


def _rss_mib(started: Started) -> float:
    return rss_bytes(started.pid) / 1024 / 1024
