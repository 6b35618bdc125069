"""Prometheus metrics: histograms of the durations of hops, and counters of notices.

A name that a client sends becomes a label value only if it is known, else the label is `other`: so clients cannot
create series. Series of names that a reload removes disappear at the next reading.

Everything here runs on the event loop, without locks. A reading copies the values there; a thread makes the text.

Source: OpenTelemetry semantic conventions of MCP (names and bounds of histograms); those for A2A have the same form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from bridge.notices import (
    AnswerTaken,
    DefinitionDiffers,
    LoginNotice,
    LoginTaken,
    ModelAsked,
    Notice,
    PushAttempt,
    PushReceived,
    TokenNotice,
    WebhookAsked,
)
from bridge.telemetry.families import OTHER, KnownNames, MetricFamily, MetricSample, SampleLabels
from bridge.trace import Hop

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of the buckets in seconds, as the conventions advise."""
_LE: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")

SERIES_MOST: Final = 5000
"""The most label sets of a histogram. Further label sets use `other` for all names."""

_WORDS: Final[Mapping[str, str]] = {
    "mcp_server_operation_duration_seconds": "Requests of MCP that a face has answered",
    "a2a_server_operation_duration_seconds": "Requests of A2A that a face has answered",
    "mcp_client_operation_duration_seconds": "Requests of MCP to a tool server",
    "a2a_client_operation_duration_seconds": "Requests of A2A to an agent",
    "mcp_client_queue_wait_seconds": "How long calls waited for their turn at a tool server",
    "a2a_client_queue_wait_seconds": "How long calls waited for their turn at an agent, of tools with a bound",
    "mcp_a2a_token_request_duration_seconds": "Requests for access tokens for a peer",
    "mcp_a2a_model_request_duration_seconds": "Questions to a model about what a text means",
}
_MODEL: Final = "mcp_a2a_model_request_duration_seconds"
_MODEL_TOKENS: Final = "mcp_a2a_model_tokens_total"
_COUNTED: Final[Mapping[str, str]] = {
    "mcp_a2a_logins_total": "What happened to the logins of people at a peer",
    "a2a_push_attempts_total": "Push notifications that an agent has sent, by how it went",
    "a2a_push_received_total": "Push notifications that remote agents have sent to the bridge",
    "mcp_a2a_model_tokens_total": "Tokens that a model has used",
}
_DURATIONS: Final = {
    (protocol, side): f"{protocol}_{side}_operation_duration_seconds"
    for protocol in ("mcp", "a2a")
    for side in ("server", "client")
}
_WAITS: Final = {"a2a": "mcp_client_queue_wait_seconds", "mcp": "a2a_client_queue_wait_seconds"}
"""The histogram of waits, by the protocol of the endpoint. The peers of an endpoint speak the other protocol."""
_TOKENS: Final = "mcp_a2a_token_request_duration_seconds"


@dataclass(slots=True, eq=False)
class _Durations:
    """The durations for a label set."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_LE))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """A copy of a histogram's durations for a label set."""

    labels: SampleLabels
    counts: Sequence[int]
    """The number of durations in each bucket, not cumulative."""
    sum: float


class HopMetrics:
    """Counts hops."""

    def __init__(self, names: Callable[[], KnownNames]) -> None:
        """`names` returns the names that labels may have."""
        self._names = names
        self._series: dict[str, dict[SampleLabels, _Durations]] = {name: {} for name in _WORDS}
        self._counts: dict[str, dict[SampleLabels, int]] = {name: {} for name in _COUNTED}
        self._seen: dict[tuple[str, ...], _Durations] = {}
        """A cache of the durations by the fields of a hop."""

    def began(self, hop: Hop) -> None:
        """See `HopListener`."""

    def waited(self, hop: Hop, peer: str, seconds: float) -> None:
        """Count how long a call waited for its turn at a peer."""
        name = _WAITS[hop.protocol]
        seen = self._seen.get((name, peer))
        if seen is None:
            seen = self._durations((name, peer), name, (("peer", peer),))
        seen.add(seconds)

    def ended(self, hop: Hop) -> None:
        """Count a hop."""
        key = (hop.protocol, hop.side, hop.method, hop.face, hop.skill, hop.peer, hop.outcome)
        seen = self._seen.get(key)
        if seen is None:
            where = (
                (("face", hop.face), ("skill", hop.skill)) if hop.side == "server" else (("peer", hop.peer),)
            )
            labels = (("method", hop.method or OTHER), *where, ("outcome", hop.outcome))
            seen = self._durations(key, _DURATIONS[hop.protocol, hop.side], labels)
        seen.add(hop.seconds)

    def noticed(self, notice: Notice) -> None:
        """Count a notice. Its names come from a plan, which may not be in force yet, so they are not checked."""
        match notice:
            case TokenNotice():
                labels = (("peer", notice.peer), ("grant", notice.grant), ("outcome", notice.outcome))
                self._series[_TOKENS].setdefault(labels, _Durations()).add(notice.seconds)
            case LoginNotice():
                self._count("mcp_a2a_logins_total", (("peer", notice.peer), ("event", notice.event)))
            case PushAttempt():
                self._count("a2a_push_attempts_total", (("face", notice.face), ("outcome", notice.outcome)))
            case PushReceived():
                peer = notice.peer or OTHER
                self._count("a2a_push_received_total", (("peer", peer), ("outcome", notice.outcome)))
            case ModelAsked():
                face = ("face", notice.face)
                of_outcome = self._series[_MODEL].setdefault(
                    (face, ("outcome", notice.outcome)), _Durations()
                )
                of_outcome.add(notice.seconds)
                self._count(_MODEL_TOKENS, (face,), notice.tokens)
            case WebhookAsked() | AnswerTaken() | LoginTaken() | DefinitionDiffers():
                pass

    def _count(self, name: str, labels: SampleLabels, number: int = 1) -> None:
        self._counts[name][labels] = self._counts[name].get(labels, 0) + number

    def counters(self, foretold: Iterable[tuple[str, SampleLabels]] = ()) -> list[MetricFamily]:
        """The counters with names that are still known; the others are deleted.

        `foretold` are counters, by family and labels, that are shown as 0 before anything is counted.
        """
        names = self._names()
        begun: dict[str, dict[SampleLabels, int]] = {name: {} for name in _COUNTED}
        for name, labels in foretold:
            begun[name][labels] = 0
        self._counts = {
            name: {labels: count for labels, count in counts.items() if names.knows(labels)}
            for name, counts in self._counts.items()
        }
        return [
            MetricFamily(
                name,
                words,
                "counter",
                tuple(
                    MetricSample(name, labels, float(count))
                    for labels, count in (begun[name] | self._counts[name]).items()
                ),
            )
            for name, words in _COUNTED.items()
        ]

    def read(self) -> Mapping[str, Sequence[HistogramReading]]:
        """A copy of the histograms with names that are still known; the others are deleted."""
        names = self._names()
        self._series = {
            name: {labels: durations for labels, durations in series.items() if names.knows(labels)}
            for name, series in self._series.items()
        }
        self._seen.clear()
        return {
            name: [
                HistogramReading(labels, tuple(histogram.counts), histogram.sum)
                for labels, histogram in series.items()
            ]
            for name, series in self._series.items()
        }

    def _durations(self, key: tuple[str, ...], name: str, labels: SampleLabels) -> _Durations:
        series = self._series[name]
        if labels not in series and (len(series) >= SERIES_MOST or not self._names().knows(labels)):
            labels = _with_others(labels)
        durations = series.setdefault(labels, _Durations())
        if len(self._seen) < SERIES_MOST:
            self._seen[key] = durations
        return durations


def _with_others(labels: SampleLabels) -> SampleLabels:
    return tuple(
        (label, OTHER if label in ("face", "skill", "peer") and value else value) for label, value in labels
    )


def families_of(readings: Mapping[str, Sequence[HistogramReading]]) -> list[MetricFamily]:
    """The readings as metric families."""
    return [
        MetricFamily(
            name,
            _WORDS[name],
            "histogram",
            tuple(sample for series in read for sample in _samples(name, series)),
        )
        for name, read in readings.items()
    ]


def _samples(name: str, histogram: HistogramReading) -> list[MetricSample]:
    buckets = [
        MetricSample(f"{name}_bucket", (*histogram.labels, ("le", le)), float(count))
        for le, count in zip(_LE, accumulate(histogram.counts), strict=True)
    ]
    count = MetricSample(f"{name}_count", histogram.labels, float(sum(histogram.counts)))
    return [*buckets, MetricSample(f"{name}_sum", histogram.labels, histogram.sum), count]
