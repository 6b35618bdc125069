"""What is seen of the process and of its honest callers, and whether that is flat. Starts nothing and asks nobody."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Final

from tests.benchmarks.figures import Table, number, percentile
from tests.benchmarks.usage import cpu_seconds, rss_bytes
from tests.support.processes import children_of

MEGABYTE: Final = 1_000_000
RISE_BYTES: Final = 32 * MEGABYTE
"""An hour. A page of 4 KB that each honest call left behind would be three times as much."""
RISE_DESCRIPTORS: Final = 10
"""An hour."""
WAIT_SECONDS: Final = 0.5
"""What 99 of 100 honest calls have to be answered within."""
JUDGED_SECONDS: Final = 480.0
"""A run that is shorter says nothing of an hour: what a process keeps of its first minutes is no leak."""

_WINDOW_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Sample:
    """What the process holds at a time, in seconds since the load began."""

    at: float
    rss_bytes: int
    open: Mapping[str, int]
    """Its descriptors, by what is behind them."""
    threads: int
    children: int
    cpu_seconds: float

    @property
    def descriptors(self) -> int:
        """How many it has open."""
        return sum(self.open.values())


@dataclass(frozen=True)
class Call:
    """An honest call: when it was made, how long it took, and what was wrong with its answer."""

    kind: str
    at: float
    seconds: float
    fault: str = ""


@dataclass(frozen=True)
class Attacked:
    """What the attacks say: each with its begin and end, and what they met instead of what the bridge is to answer."""

    spans: Sequence[tuple[str, float, float]]
    faults: Mapping[str, int]

    def at(self, begin: float, end: float) -> list[str]:
        """Those that went on within this time."""
        return sorted({name for name, begun, ended in self.spans if begun <= end and ended >= begin})

    def __str__(self) -> str:
        made = Counter(name for name, _, _ in self.spans)
        lines = ["attacks made: " + ", ".join(f"{name} {times}" for name, times in sorted(made.items()))]
        lines += [
            f"  {times} times otherwise than it is to be: {said}" for said, times in self.faults.items()
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Finding:
    """What one rule says of a run."""

    rule: str
    seen: str
    holds: bool | None
    """None when the run is too short for it."""

    def __str__(self) -> str:
        said = {True: "yes", False: "NO", None: "not judged"}[self.holds]
        return f"{said:>10}  {self.rule}: {self.seen}"


def sample(pid: int, at: float) -> Sample:
    """Look at a process."""
    threads = len(os.listdir(f"/proc/{pid}/task"))
    return Sample(at, rss_bytes(pid), _open(pid), threads, len(children_of(pid)), cpu_seconds(pid))


def _open(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # closed meanwhile
            found[os.readlink(f"/proc/{pid}/fd/{descriptor}").partition(":[")[0]] += 1
    return found


def rise_per_hour(points: Sequence[tuple[float, float]]) -> float:
    """How fast the least of each minute rises over the last half: a peak goes away again, and what leaks does not.

    Points are (seconds, value), some in each of at least two minutes of that half. What is left beyond its whole
    minutes counts to the last one.
    """
    half = (points[-1][0] - points[0][0]) / 2
    begin, last = points[0][0] + half, int(half // _WINDOW_SECONDS) - 1
    least: dict[int, tuple[float, float]] = {}
    for at, value in points:
        if at >= begin:
            window = min(int((at - begin) // _WINDOW_SECONDS), last)
            least[window] = min(least.get(window, (at, value)), (at, value), key=lambda point: point[1])
    times, values = zip(*least.values(), strict=True)
    return 3600 * linear_regression(times, values).slope


def findings(
    samples: Sequence[Sample], calls: Sequence[Call], attacked: Attacked, before: Sample, after: Sample
) -> list[Finding]:
    """The verdict, rule by rule. `before` and `after` the load nothing is asked of the process."""
    is_judged = samples[-1].at - samples[0].at >= JUDGED_SECONDS
    faults = [call for call in calls if call.fault]
    waits = [call.seconds for call in calls]
    told = "".join(f"; {call.kind} at {call.at:.0f} s: {call.fault}" for call in faults[:3])
    found = [
        Finding("every honest call is answered", f"{len(faults)} of {len(calls)} not{told}", not faults),
        Finding(
            f"99 of 100 within {WAIT_SECONDS:g} s",
            f"p99 {number(percentile(waits, 99))} s, longest {number(max(waits))} s",
            percentile(waits, 99) < WAIT_SECONDS,
        ),
        Finding(
            "no more descriptors after the load than before",
            f"{before.descriptors} before, {after.descriptors} after{_more(before, after)}",
            after.descriptors <= before.descriptors,
        ),
        Finding(
            "every attack is answered as it is to be",
            f"{sum(attacked.faults.values())} of {len(attacked.spans)} not",
            not attacked.faults,
        ),
        Finding(
            "no more child processes",
            f"{before.children} before, {after.children} after",
            after.children <= before.children,
        ),
    ]
    for name, most, unit, values in (
        ("memory", RISE_BYTES / MEGABYTE, " MB", [(one.at, one.rss_bytes / MEGABYTE) for one in samples]),
        ("descriptors", float(RISE_DESCRIPTORS), "", [(one.at, float(one.descriptors)) for one in samples]),
    ):
        rule = (
            f"the least {name} of each minute, over the last half, rises by less than {most:g}{unit} an hour"
        )
        rise = rise_per_hour(values) if is_judged else None
        seen = "too short a run" if rise is None else f"{rise:.1f}{unit} an hour"
        found.append(Finding(rule, seen, None if rise is None else rise < most))
    return found


def _more(before: Sample, after: Sample) -> str:
    more = Counter(after.open)
    more.subtract(before.open)
    return "".join(f", {times} more {name}" for name, times in more.items() if times > 0)


def table_of(samples: Sequence[Sample], calls: Sequence[Call], spans: int = 6) -> Table:
    """The run in so many equal spans."""
    end = samples[-1].at
    rows = []
    for span in range(spans):
        begin, until = end * span / spans, end * (span + 1) / spans
        seen = [one for one in samples if begin <= one.at <= until]
        made = [call for call in calls if begin <= call.at < until]
        if len(seen) > 1 and made:
            rows.append([f"{begin / 60:.1f}..{until / 60:.1f}", *_cells(seen, made)])
    columns = ["minutes", "RSS MB", "descriptors", "children", "threads", "CPU %"]
    return Table(
        "Mixed load, good and hostile",
        [*columns, "honest calls", "p50 ms", "p99 ms", "longest ms", "not answered"],
        rows,
        [
            "RSS to threads: the least and the most of that time. CPU is that of the bridge alone, of one core."
        ],
    )


def slowest(calls: Sequence[Call], attacked: Attacked) -> str:
    """The call of each kind that took longest, with the attacks of its time."""
    found: dict[str, Call] = {}
    for call in calls:
        found[call.kind] = max(found.get(call.kind, call), call, key=lambda one: one.seconds)
    lines = [
        f"  {call.seconds:.2f} s {call.kind} at {call.at:.0f} s, during "
        + ", ".join(attacked.at(call.at, call.at + call.seconds))
        for call in sorted(found.values(), key=lambda call: call.seconds, reverse=True)
    ]
    return "\n".join(["the longest honest call of each kind:", *lines])


def _cells(seen: Sequence[Sample], made: Sequence[Call]) -> list[str]:
    cpu = (seen[-1].cpu_seconds - seen[0].cpu_seconds) / (seen[-1].at - seen[0].at)
    waits = [1000 * call.seconds for call in made]
    return [
        _range([round(one.rss_bytes / MEGABYTE) for one in seen]),
        _range([one.descriptors for one in seen]),
        _range([one.children for one in seen]),
        _range([one.threads for one in seen]),
        f"{100 * cpu:.0f}",
        str(len(made)),
        number(percentile(waits, 50)),
        number(percentile(waits, 99)),
        number(max(waits)),
        str(sum(1 for call in made if call.fault)),
    ]


def _range(values: Sequence[int]) -> str:
    return f"{min(values)}..{max(values)}"


def log_size(log: Path) -> str:
    """What the process has written to its log."""
    text = log.read_bytes()
    lines, tracebacks = text.count(b"\n"), text.count(b"Traceback")
    return f"{lines} lines of log, {len(text) / MEGABYTE:.1f} MB, {tracebacks} tracebacks"
