"""Families of metrics as plain values, and their text.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OTHER: Final = "other"
"""The label of a name that is not known: a client may have made it up."""

FamilyKind = Literal["counter", "gauge", "histogram"]

SampleLabels = tuple[tuple[str, str], ...]
"""Names of labels and their values, in their order."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One number."""

    name: str
    labels: SampleLabels
    value: float


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Samples of one meaning."""

    name: str
    words: str
    kind: FamilyKind
    samples: tuple[MetricSample, ...]


def gauge(name: str, words: str, values: Iterable[tuple[Mapping[str, str], float]]) -> MetricFamily:
    """A family of numbers that may rise and fall."""
    samples = (MetricSample(name, tuple(labels.items()), value) for labels, value in values)
    return MetricFamily(name, words, "gauge", tuple(samples))


def text_of(families: Iterable[MetricFamily]) -> bytes:
    """The families in the text format."""
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
    """The names that labels may have: what the plan names, and what its peers list now."""

    skills: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The skills or tools of each face."""
    peers: frozenset[str] = frozenset()

    def knows(self, labels: SampleLabels) -> bool:
        """Whether the face, the skill and the peer of a sample are still there."""
        said = dict(labels)
        face, skill, peer = said.get("face", ""), said.get("skill", ""), said.get("peer", "")
        if peer not in self.peers and peer not in ("", OTHER):
            return False
        if face in ("", OTHER):
            return True
        return face in self.skills and (skill in ("", OTHER) or skill in self.skills[face])
