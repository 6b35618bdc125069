"""`python -m tests.benchmarks.page`: measure everybody side by side, and write docs/benchmarks.md and its picture."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Final, Protocol

from tests.benchmarks.figures import Table, number, spread
from tests.benchmarks.picture import bars
from tests.benchmarks.side_by_side import (
    AGENT,
    BEFORE,
    CONCURRENCY,
    DIRECT,
    ECHO,
    NOW,
    SDK,
    SMALL,
    Measuring,
    Round,
    Size,
    checkout_of,
)
from tests.benchmarks.workplace import BenchmarkError, workplace
from tests.support.command import ROOT

COMMIT: Final = "3d4ec44e"
"""The commit before the operations of the engine became layers, which `before` is by default."""
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "benchmarks.svg"
BEGIN: Final = "<!-- figures: written by `make bench` -->"
END: Final = "<!-- end of the figures -->"


class RatioOf(Protocol):
    """Makes a figure of a round, for the checkout `name`."""

    def __call__(self, each: Round, name: str) -> float: ...


@dataclass(frozen=True)
class Ratio:
    """A figure with an aim: what it says, how a round gives it for a checkout, and the most that it should be."""

    words: str
    of: RatioOf
    aim: float
    is_least: bool = False
    """Whether the aim is the least that the figure should be."""


def _own_cpu(store: str) -> RatioOf:
    def ratio(each: Round, name: str) -> float:
        direct = each[f"{DIRECT}.cpu"]
        return (each[f"{name}.{store}_cpu"] - direct) / (each[f"{SDK}.{store}_cpu"] - direct)

    return ratio


def _own_to_before(each: Round, name: str) -> float:
    direct = each[f"{DIRECT}.cpu"]
    return (each[f"{name}.memory_cpu"] - direct) / (each[f"{BEFORE}.memory_cpu"] - direct)


def _expose_p50(each: Round, name: str) -> float:
    return each[f"{name}.expose_p50"] / (each[f"{AGENT}.expose_p50"] + 1.3 * each[f"{ECHO}.expose_p50"])


RATIOS: Final[Sequence[Ratio]] = (
    Ratio("own CPU a call, of a2a-sdk's, memory", _own_cpu("memory"), 0.16),
    Ratio("own CPU a call, of the one before, memory", _own_to_before, 0.62),
    Ratio("own CPU a call, of a2a-sdk's, SQLite", _own_cpu("sqlite"), 0.045),
    Ratio("`fdatasync` a call", lambda each, name: each[f"{name}.fdatasync"], 2),
    Ratio("`pwrite64` a call", lambda each, name: each[f"{name}.pwrite64"], 30),
    Ratio(
        "p50, times the direct call, memory",
        lambda each, name: each[f"{name}.memory_p50"] / each[f"{DIRECT}.p50"],
        2.6,
    ),
    Ratio(
        "p50 less two flushes, times the direct call, SQLite",
        lambda each, name: (each[f"{name}.sqlite_p50"] - 2 * each["flush.ms"]) / each[f"{DIRECT}.p50"],
        4,
    ),
    Ratio("expose: p50, of the agent client's and 1.3 echoes", _expose_p50, 1),
    Ratio(
        "expose: CPU a call, times the agent client's",
        lambda each, name: each[f"{name}.expose_cpu"] / each[f"{AGENT}.expose_cpu"],
        1.5,
    ),
    Ratio(
        "expose: start on stdio, times `import mcp`",
        lambda each, name: each[f"{name}.start"] / each["import.ms"],
        1.2,
    ),
    Ratio("idle stream: KiB", lambda each, name: each[f"{name}.idle_kib"], 15),
    Ratio("idle stream: µs of CPU a second", lambda each, name: each[f"{name}.idle_us"], 25),
    Ratio(
        "reports of a stream a second, times a2a-sdk's",
        lambda each, name: each[f"{name}.reports"] / each[f"{SDK}.reports"],
        6,
        is_least=True,
    ),
)

_VALUES: Final = {
    "memory_cpu": f"CPU ms/call, memory, concurrency {CONCURRENCY}",
    "sqlite_cpu": f"CPU ms/call, SQLite, concurrency {CONCURRENCY}",
    "memory_p50": "p50 ms, memory, concurrency 1",
    "sqlite_p50": "p50 ms, SQLite, concurrency 1",
    "reports": "reports/s of a stream",
    "expose_p50": "p50 ms through expose, concurrency 1",
    "expose_cpu": "CPU ms/call of expose",
    "start": "start of expose, ms",
}
_EACH: Final = {
    f"{DIRECT}.cpu": f"MCP SDK client, direct: CPU ms/call, concurrency {CONCURRENCY}",
    f"{DIRECT}.p50": "MCP SDK client, direct: p50 ms, concurrency 1",
    f"{AGENT}.expose_p50": "agent client: p50 ms, concurrency 1",
    f"{AGENT}.expose_cpu": "agent client: CPU ms/call",
    f"{ECHO}.expose_p50": "echo of the MCP SDK on stdio: p50 ms, concurrency 1",
    "import.ms": "`import mcp`, ms",
    "flush.ms": "one flush of the disk (`fdatasync`), ms",
}


def ratios_table(rounds: Sequence[Round]) -> Table:
    """The figures that have an aim, of the commit before and of this one."""
    rows = []
    for ratio in RATIOS:
        cells = [_of_rounds(rounds, partial(ratio.of, name=name)) for name in (BEFORE, NOW)]
        sign = "≥" if ratio.is_least else "≤"
        rows.append([ratio.words, *cells, f"{sign} {ratio.aim:g}"])
    return Table("Ratios", ["", BEFORE, NOW, "aim"], rows)


def values_table(rounds: Sequence[Round]) -> Table:
    """What was measured of each bridge and of a2a-sdk."""
    rows = [
        [words, *(_of_rounds(rounds, itemgetter(f"{name}.{key}")) for name in (BEFORE, NOW, SDK))]
        for key, words in _VALUES.items()
    ]
    return Table("Values", ["", BEFORE, NOW, SDK], rows)


def others_table(rounds: Sequence[Round]) -> Table:
    """What was measured of everything else."""
    rows = [[words, _of_rounds(rounds, itemgetter(key))] for key, words in _EACH.items()]
    return Table("What they are compared with", ["", ""], rows)


def _of_rounds(rounds: Sequence[Round], of: Callable[[Round], float]) -> str:
    """A figure of the rounds that have it; "-" if none has."""
    values = []
    for each in rounds:
        try:
            values.append(of(each))
        except KeyError:  # measured in the first round only, or not at all
            continue
    return spread(fmean(values), values) if values else "-"


def about(commit: str, size: Size) -> str:
    """When, where and with what the figures were measured."""
    names = ("a2a-sdk", "mcp", "uvicorn", "starlette")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    where = f"{os.cpu_count()} cores ({platform.system()}), Python {platform.python_version()}, {versions}"
    return (
        f"Measured {time.strftime('%Y-%m-%d')} on {where}. The load before was {os.getloadavg()[0]:.1f}.\n"
        f"Rounds in turns: {size.rounds}, of {size.calls} calls each; *before* is the commit {commit}. Each figure is\n"
        f"the mean of the rounds, with (least..most) of them behind it. Compare only ratios within one run: a load\n"
        "above 0.5 says that other work took part of the time."
    )


def picture_of(rounds: Sequence[Round]) -> str:
    """The picture for the README: CPU and latency of the direct call, of the bridge and of a2a-sdk."""

    def mean(key: str) -> float:
        return fmean(each[key] for each in rounds)

    panels = {
        f"CPU of a call, ms (memory, {CONCURRENCY} at once)": ("cpu", "memory_cpu"),
        "Latency of a call, ms (memory, one at a time)": ("p50", "memory_p50"),
    }
    named = {
        title: [
            ("direct call, no agent", mean(f"{DIRECT}.{direct}")),
            ("mcp-a2a", mean(f"{NOW}.{key}")),
            ("agent made with a2a-sdk", mean(f"{SDK}.{key}")),
        ]
        for title, (direct, key) in panels.items()
    }
    words = "; ".join(
        f"{title}: " + ", ".join(f"{name} {number(value)}" for name, value in rows)
        for title, rows in named.items()
    )
    return bars(named, words)


def written(page: str, figures: str) -> str:
    """The page with new figures between its two marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    above, _, rest = page.partition(BEGIN)
    _, end, below = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{above}{BEGIN}\n\n{figures}\n{END}{below}"


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m tests.benchmarks.page", description=__doc__)
    made.add_argument("--before", default=COMMIT, metavar="COMMIT", help=f"the commit before ({COMMIT})")
    made.add_argument("--small", action="store_true", help="to see that it works, not for figures: 2 minutes")
    made.add_argument(
        "--to", type=Path, metavar="FOLDER", help="write benchmarks.md and benchmarks.svg there"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write every round to this file as well")
    return made


def main() -> int:
    """Measure, print, and write the page and the picture; 1 when a run did not do what it had to."""
    options = parser().parse_args()
    size, begun = SMALL if options.small else Size(), time.monotonic()
    said = about(options.before, size)
    try:
        with workplace() as place:
            before = checkout_of(options.before, place.new_file(".before"))
            rounds = Measuring(place, before, size).rounds()
    except BenchmarkError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    tables = "\n".join(map(str, (ratios_table(rounds), values_table(rounds), others_table(rounds))))
    print(f"{said}\n\n{tables}\ntook {time.monotonic() - begun:.0f} s")
    page, picture = (
        (options.to / "benchmarks.md", options.to / "benchmarks.svg") if options.to else (PAGE, PICTURE)
    )
    page.write_text(written(PAGE.read_text(), f"{said}\n\n{tables}"))
    picture.write_text(picture_of(rounds))
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
