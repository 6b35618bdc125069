"""Families of metrics as plain values: what a process counts, what several processes have counted, and their text.

Each of several workers sends its families to the supervisor, which serves them all and says in a label whose each
sample is. A worker that is started anew counts from zero; what its predecessor had counted when it was last read is
added, so that no counter falls.

Source: the text format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pydantic import JsonValue

from bridge.text.jsonvalues import JsonObject

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


def families_as_json(families: Iterable[MetricFamily]) -> list[JsonValue]:
    """The families as plain values, for another process."""
    return [
        {
            "name": family.name,
            "words": family.words,
            "kind": family.kind,
            "samples": [[one.name, [[*label] for label in one.labels], one.value] for one in family.samples],
        }
        for family in families
    ]


def families_in(told: Iterable[Mapping[str, Any]]) -> list[MetricFamily]:
    """The families again."""
    return [
        MetricFamily(
            family["name"],
            family["words"],
            family["kind"],
            tuple(
                MetricSample(name, tuple((label, said) for label, said in labels), value)
                for name, labels, value in family["samples"]
            ),
        )
        for family in told
    ]


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

    def __or__(self, other: KnownNames) -> KnownNames:
        """The names that are known here or there."""
        faces = (*self.skills, *other.skills)
        none = frozenset[str]()
        skills = {face: self.skills.get(face, none) | other.skills.get(face, none) for face in faces}
        return KnownNames(skills, self.peers | other.peers)

    def to_json(self) -> JsonObject:
        """As plain values, for another process."""
        return {"skills": {face: [*skills] for face, skills in self.skills.items()}, "peers": [*self.peers]}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> KnownNames:
        """The names again."""
        skills = {face: frozenset(skills) for face, skills in told["skills"].items()}
        return cls(skills, frozenset(told["peers"]))


@dataclass(eq=False)
class WorkerCounts:
    """What the workers of one number have counted, one after another."""

    _now: Sequence[MetricFamily] = ()
    """What the present one said last."""
    _before: Sequence[MetricFamily] = ()
    """What its predecessors had counted."""

    def take(self, families: Sequence[MetricFamily]) -> None:
        """Take over what the present worker says."""
        self._now = families

    def end(self) -> None:
        """Keep what the present worker had counted, since it is gone, and forget its gauges."""
        self._before = [family for family in _sum_of(self._before, self._now) if family.kind != "gauge"]
        self._now = ()

    def labelled(self, worker: int, names: KnownNames) -> list[MetricFamily]:
        """What is counted under these names, with the number of the worker in each sample."""
        label = ("worker", str(worker))
        return [
            replace(
                family,
                samples=tuple(
                    MetricSample(one.name, (*one.labels, label), one.value)
                    for one in family.samples
                    if names.knows(one.labels)
                ),
            )
            for family in _sum_of(self._before, self._now)
        ]


def united(parts: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """The families of several workers, each name once."""
    found: dict[str, MetricFamily] = {}
    for family in (family for part in parts for family in part):
        known = found.get(family.name)
        found[family.name] = (
            family if known is None else replace(known, samples=(*known.samples, *family.samples))
        )
    return list(found.values())


def _sum_of(before: Sequence[MetricFamily], now: Sequence[MetricFamily]) -> list[MetricFamily]:
    summed = []
    for family in united([before, now]):
        values: dict[tuple[str, SampleLabels], float] = {}
        for one in family.samples:
            values[one.name, one.labels] = values.get((one.name, one.labels), 0.0) + one.value
        samples = (MetricSample(name, labels, value) for (name, labels), value in values.items())
        summed.append(replace(family, samples=tuple(samples)))
    return summed
