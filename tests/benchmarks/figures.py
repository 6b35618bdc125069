"""Samples, spreads and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample that so many percent of all are at or below."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median(samples: Sequence[float]) -> float:
    """The middle one; the lower of two."""
    return percentile(samples, 50)


def number(value: float) -> str:
    """A figure with three digits that count."""
    if value == 0 or not math.isfinite(value):
        return str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def spread(value: float, rounds: Iterable[float]) -> str:
    """A figure, and the least and most that a round gave for it."""
    each = list(rounds)
    if len(each) < 2:
        return number(value)
    return f"{number(value)} ({number(min(each))}..{number(max(each))})"


@dataclass(frozen=True)
class Table:
    """A table in Markdown, so that it can be read on a terminal and pasted into a page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        widths = [max(len(row[at]) for row in (self.columns, *self.rows)) for at in range(len(self.columns))]
        lines = [_line(self.columns, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
        lines += [_line(row, widths) for row in self.rows]
        notes = ["", *self.notes] if self.notes else []
        return "\n".join([f"### {self.title}", "", *lines, *notes, ""])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


@dataclass
class Report:
    """What one part found: tables for people, and every run for programs."""

    tables: list[Table] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
