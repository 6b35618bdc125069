"""What a call costs this checkout of the bridge beside another one that came before it: a ratio, and how sure it is.

Each run is a new process of one checkout, which says itself whose code it runs; both have the same Python and the same
raw tool server. The checkouts take turns, and which of a pair goes first alternates, so that a machine that gets slower
does not speak for one of them. What counts is the CPU time of the bridge's own process, without its children.

The bridge is `wrap`, which writes to the pipes of the server that it has started, or `expose`, whose own stdin and
stdout are the connection. `observed` is `wrap` too: this checkout of it counts and logs each call.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from tests.benchmarks.contestants import (
    ECHOES,
    bridge_command,
    face_client_command,
    load_command,
    server_command,
)
from tests.benchmarks.figures import Table, number, spread
from tests.benchmarks.workplace import BenchmarkError, Started, Workplace, workplace
from tests.support.command import ROOT

CONCURRENCY: Final = 32
MOST: Final = 1.03
"""The ratio that this checkout may have: less than this cannot be told from noise within reasonable time."""
MOST_OBSERVED: Final = 1.10
"""The ratio that it may have with metrics and a log line for each call, beside the other without."""

_T_975: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t that 95 % lie within, by degrees of freedom from 1; beyond, the last one, which is a little too wide."""

_OBSERVED: Final = """
[bridge]
port = {port}
store = "memory:"
metrics = "127.0.0.1:{metrics}"
log_calls = true

[tool_servers.raw]
command = {command}
era = "legacy"

[tools_as_agent.raw]
from = ["raw"]
"""

_RUN: Final = """
import pathlib, runpy, sys
import bridge
checkout = pathlib.Path(sys.argv.pop(1))
if pathlib.Path(bridge.__file__).parent != checkout / "bridge":
    sys.exit(f"it runs {bridge.__file__}, and not what is in {checkout}")
runpy.run_module("bridge", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Pair:
    """CPU time of one run of each checkout, in milliseconds a call."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """Over 1 when a call costs more now."""
        return self.after / self.before


@dataclass(frozen=True)
class Ratio:
    """The mean of some ratios, and the interval that holds the true one in 95 of 100 such measurements."""

    mean: float
    low: float
    high: float

    def is_over(self, most: float) -> bool:
        """Whether all of the interval is more than may be."""
        return self.low > most


def ratio_of(pairs: Sequence[Pair]) -> Ratio:
    """The geometric mean of the ratios of at least two pairs, with Student's interval of their logarithms."""
    logarithms = [math.log(pair.ratio) for pair in pairs]
    freedom = len(logarithms) - 1
    half = _T_975[min(freedom, len(_T_975)) - 1] * stdev(logarithms) / math.sqrt(len(logarithms))
    mean = fmean(logarithms)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def measure(
    place: Workplace, before: Path, pairs: int, calls: int, of: str = "wrap", concurrency: int = CONCURRENCY
) -> list[Pair]:
    """Run so many pairs, and say each as soon as it is known."""
    found = []
    for at in range(pairs):
        order = (before, ROOT) if at % 2 == 0 else (ROOT, before)
        each = {checkout: cpu_ms_per_call(place, checkout, calls, of, concurrency) for checkout in order}
        found.append(Pair(each[before], each[ROOT]))
        said = f"pair {at + 1} of {pairs}: {each[before]:.3f} ms, now {each[ROOT]:.3f} ms"
        print(f"{said}, ratio {found[-1].ratio:.3f}", file=sys.stderr, flush=True)
    return found


def cpu_ms_per_call(place: Workplace, checkout: Path, calls: int, of: str, concurrency: int) -> float:
    """What one call costs a new process of a checkout."""
    echo = ECHOES["raw"]
    plan: dict[str, Any] = {
        "kind": "send",
        "requests": calls,
        "warm_up": max(2 * concurrency, calls // 10),
        "concurrency": concurrency,
        "tool": "echo",
        "argument": echo.argument,
        "prefix": echo.prefix,
    }
    with BRIDGES[of].asking(place, checkout) as (asking, whose):
        answer = asking.ask(plan | whose)
    return float(1000 * answer["cpu_seconds"] / calls)


@contextmanager
def _asking_wrap(place: Workplace, checkout: Path) -> Iterator[tuple[Started, Mapping[str, Any]]]:
    port = place.new_port()
    command = wrap_command(checkout, port)
    with place.serving(command, port, checkout) as server, place.started(load_command()) as load:
        yield load, {"port": port, "pid": server.pid}


@contextmanager
def _asking_observed(place: Workplace, checkout: Path) -> Iterator[tuple[Started, Mapping[str, Any]]]:
    """This checkout with metrics and a log line for each call; the other one without, as it may know of neither."""
    if checkout != ROOT:
        with _asking_wrap(place, checkout) as asking:
            yield asking
        return
    port, file = place.new_port(), place.new_file(".toml")
    file.write_text(
        _OBSERVED.format(port=port, metrics=place.new_port(), command=json.dumps(server_command("raw")))
    )
    command = [sys.executable, "-P", "-c", _RUN, str(checkout), "serve", str(file)]
    with place.serving(command, port, checkout) as server, place.started(load_command()) as load:
        yield load, {"port": port, "pid": server.pid}


@contextmanager
def _asking_expose(place: Workplace, checkout: Path) -> Iterator[tuple[Started, Mapping[str, Any]]]:
    port = place.new_port()
    client = face_client_command("legacy", *expose_command(checkout, port))
    with (
        place.serving(bridge_command(port, "memory:"), port),
        place.started(client, checkout) as asking,
    ):
        asking.hear()
        yield asking, {"cpu_of": "server"}


def wrap_command(checkout: Path, port: int, store: str = "memory:") -> list[str]:
    """`mcp-a2a wrap` of a checkout, which ends at once when another one's code would run."""
    words = ["wrap", "--era", "legacy", "--log-level", "warning", "--port", str(port), "--store", store]
    return [sys.executable, "-P", "-c", _RUN, str(checkout), *words, "--", *server_command("raw")]


def expose_command(checkout: Path, port: int) -> list[str]:
    """`mcp-a2a expose` of a checkout on stdio, in front of the agent on a port."""
    words = ["expose", "--log-level", "error", f"http://127.0.0.1:{port}"]
    return [sys.executable, "-P", "-c", _RUN, str(checkout), *words]


@dataclass(frozen=True)
class MeasuredBridge:
    """One of the bridge's commands, and what is asked of it."""

    call: str
    asking: Callable[[Workplace, Path], AbstractContextManager[tuple[Started, Mapping[str, Any]]]]
    """Who asks it, and what the plans say of whose CPU time counts."""
    most: float = MOST
    """The ratio that it may have."""


BRIDGES: Final = {
    "wrap": MeasuredBridge("SendMessage to the raw stdio server", _asking_wrap),
    "observed": MeasuredBridge(
        "SendMessage to the raw stdio server, with metrics and log lines now", _asking_observed, MOST_OBSERVED
    ),
    "expose": MeasuredBridge("tools/call over stdio", _asking_expose),
}


def table_of(pairs: Sequence[Pair], calls: int, of: str, concurrency: int) -> Table:
    """What was found, for people."""
    ratio = ratio_of(pairs)
    before, after = ([getattr(pair, name) for pair in pairs] for name in ("before", "after"))
    rows = [
        ["before", spread(fmean(before), before)],
        ["now", spread(fmean(after), after)],
        ["now / before", f"{number(ratio.mean)}, 95 % within {number(ratio.low)}..{number(ratio.high)}"],
    ]
    title = (
        f"CPU ms/call, {len(pairs)} pairs of {calls} calls each, concurrency {concurrency}, store in memory"
    )
    return Table(title, ["checkout", BRIDGES[of].call], rows)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.cost",
        description="Measure the CPU time of a call beside that of another checkout. Ends with 1 when all of the"
        f" interval of the ratio is over {MOST}, or over {MOST_OBSERVED} of `observed`.",
    )
    made.add_argument("before", type=Path, metavar="BEFORE", help="the folder of the other checkout")
    made.add_argument("--pairs", type=_from(2), default=20, metavar="N", help="runs of each (20)")
    made.add_argument("--of", choices=BRIDGES, default="wrap", help="the bridge that is asked (wrap)")
    made.add_argument(
        "--concurrency", type=_from(1), default=CONCURRENCY, metavar="N", help="calls at once (32)"
    )
    made.add_argument("--calls", type=_from(1), default=3000, metavar="N", help="calls of a run (3000)")
    return made


def _from(least: int) -> Any:
    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least}")
        return int(text)

    return whole


def main() -> int:
    """Measure and print; 1 when it costs too much, or when a run did not do what it had to."""
    options = parser().parse_args()
    before = options.before.resolve()
    if not (before / "bridge" / "__init__.py").is_file():
        print(f"{before} is no checkout: it has no bridge/__init__.py", file=sys.stderr)
        return 2
    try:
        with workplace() as place:
            pairs = measure(place, before, options.pairs, options.calls, options.of, options.concurrency)
    except BenchmarkError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(table_of(pairs, options.calls, options.of, options.concurrency))
    most = BRIDGES[options.of].most
    is_too_high = ratio_of(pairs).is_over(most)
    print(f"{'too high: all' if is_too_high else 'not all'} of the interval is over {most}")
    return 1 if is_too_high else 0


if __name__ == "__main__":
    sys.exit(main())
