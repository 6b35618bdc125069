"""Metric families as plain values, and their text format.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OTHER: Final = "other"
"""The label for an unknown name, which a client may have made up."""

FamilyKind = Literal["counter", "gauge", "histogram"]

SampleLabels = tuple[tuple[str, str], ...]
"""The names of labels with their values, in order."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A sample: a number with its labels."""

    name: str
    labels: SampleLabels
    value: float


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The samples of a metric."""

    name: str
    words: str
    kind: FamilyKind
    samples: tuple[MetricSample, ...]


def gauge(name: str, words: str, values: Iterable[tuple[Mapping[str, str], float]]) -> MetricFamily:
    """A family of gauges: numbers that may rise and fall."""
    samples = (MetricSample(name, tuple(labels.items()), value) for labels, value in values)
    return MetricFamily(name, words, "gauge", tuple(samples))


def text_of(families: Iterable[MetricFamily]) -> bytes:
    """The metric families in the text format of Prometheus."""
    return "".join(_lines_of(families)).encode()


def _lines_of(families: Iterable[MetricFamily]) -> Iterator[str]:
    for family in families:
        words = family.words.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {family.name} {words}\n# TYPE {family.name} {family.kind}\n"
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
            yield (
                f"{sample.name}{{{labels}}} {_number(sample.value)}\n"
                if labels
                else (f"{sample.name} {_number(sample.value)}\n")
            )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() else repr(value)


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that labels may have: those of the plan, and those that its peers list now."""

    skills: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The skills or tools of each endpoint."""
    peers: frozenset[str] = frozenset()

    def knows(self, labels: SampleLabels) -> bool:
        """Whether the endpoint, the skill and the peer of a sample still exist."""
        values = dict(labels)
        face, skill, peer = values.get("face", ""), values.get("skill", ""), values.get("peer", "")
        if peer not in self.peers and peer not in ("", OTHER):
            return False
        if face in ("", OTHER):
            return True
        return face in self.skills and (skill in ("", OTHER) or skill in self.skills[face])
