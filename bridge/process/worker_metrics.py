"""What all workers of a supervisor have counted, as if one process had: each sample says in a label whose it is.

The workers are asked when somebody reads. One that does not answer in time keeps the numbers that it told last. One
that is started anew counts from zero, and what its predecessor told last is added, so that no counter falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final

import anyio

from bridge.concurrency import Signal
from bridge.telemetry.families import (
    KnownNames,
    MetricFamily,
    MetricSample,
    WorkerCounts,
    families_in,
    gauge,
    united,
)

ANSWER_SECONDS: Final = 5.0
"""How long a worker may take to answer: less than the ten seconds that Prometheus waits."""


class WorkerMetrics:
    """Asks workers for what they have counted, and keeps it."""

    def __init__(self, ask: Callable[[int], list[int]]) -> None:
        """`ask` sends the question of this number to all workers that serve, and returns their numbers."""
        self._ask = ask
        self._counts: dict[int, WorkerCounts] = {}
        self._names: dict[int, KnownNames] = {}
        """The names that each worker knows. One that was started anew may not have reached its peers yet."""
        self._answered: dict[int, int] = {}
        """The latest question that each worker has answered."""
        self._told: dict[int, int] = {}
        """The latest question to which each worker has told its names."""
        self._deaths: Counter[int] = Counter()
        self._asked = 0
        self._moved = Signal()
        self._reading = anyio.Lock()

    def hear(self, worker: int, number: int, told: Mapping[str, Any]) -> None:
        """Take the answer of a worker."""
        self._counts.setdefault(worker, WorkerCounts()).take(families_in(told["families"]))
        self._names[worker] = KnownNames.from_json(told["names"])
        self._answered[worker] = self._told[worker] = number
        self._moved.tell()

    def end(self, worker: int) -> None:
        """A worker is gone."""
        self._counts.setdefault(worker, WorkerCounts()).end()
        self._answered[worker] = self._asked
        self._deaths[worker] += 1
        self._moved.tell()

    async def read(self) -> list[MetricFamily]:
        """All metrics of all workers."""
        async with self._reading:
            self._asked += 1
            asked = self._ask(self._asked)
            with anyio.move_on_after(ANSWER_SECONDS):
                while any(self._answered.get(worker, 0) < self._asked for worker in asked):
                    await self._moved.wait()
        names = self._known_names()
        parts = [counts.labelled(worker, names) for worker, counts in self._counts.items()]
        return [*united(parts), *self.families_of_workers(asked)]

    def _known_names(self) -> KnownNames:
        """The names of all workers that have answered now; while none does, those that were told last."""
        now = {one: names for one, names in self._names.items() if self._told[one] == self._asked}
        return reduce(or_, (now or self._names).values(), KnownNames())

    def families_of_workers(self, serving: list[int]) -> list[MetricFamily]:
        """What is told of the workers themselves; these serve now."""
        name, words = "mcp_a2a_worker_ends_total", "How often a worker has ended and was started anew"
        known = sorted({*self._counts, *serving})
        ends = (MetricSample(name, (("worker", str(one)),), float(self._deaths[one])) for one in known)
        up = [({"worker": str(one)}, float(one in serving)) for one in known]
        return [
            MetricFamily(name, words, "counter", tuple(ends)),
            gauge("mcp_a2a_worker_up", "Whether a worker serves", up),
        ]
