"""What several workers have counted, read at one place: each sample has its worker, and no counter falls."""

from __future__ import annotations

from typing import Any, Final

import anyio

from bridge.process.worker_metrics import WorkerMetrics
from bridge.telemetry.families import (
    KnownNames,
    MetricFamily,
    MetricSample,
    families_as_json,
    families_in,
    gauge,
)

NAMES: Final = KnownNames({"face": frozenset({"echo"})}, frozenset({"far"}))


def counted(calls: int, up: int = 1, face: str = "face", **more: str) -> list[MetricFamily]:
    """What one worker says."""
    labels = (("face", face), *more.items())
    calls_total = MetricFamily(
        "calls_total", "Calls", "counter", (MetricSample("calls_total", labels, calls),)
    )
    return [calls_total, gauge("peer_up", "Up", [({"peer": "far"}, up)])]


class Workers:
    """Workers that answer at once, by number."""

    def __init__(self, **_: Any) -> None:
        self.say: dict[int, list[MetricFamily]] = {}
        self.names: dict[int, KnownNames] = {}
        self.metrics = WorkerMetrics(self._asked)

    def _asked(self, number: int) -> list[int]:
        for worker, families in self.say.items():
            names = self.names.get(worker, NAMES)
            told = {"families": families_as_json(families), "names": names.to_json()}
            self.metrics.hear(worker, number, told)
        return list(self.say)

    async def read(self, name: str) -> dict[str, float]:
        """The samples of a family by worker."""
        families = {family.name: family for family in await self.metrics.read()}
        samples = families[name].samples if name in families else ()
        return {dict(one.labels)["worker"]: one.value for one in samples}


async def test_no_counter_falls_when_a_worker_is_started_anew() -> None:
    workers = Workers()
    workers.say = {1: counted(5), 2: counted(7)}
    assert await workers.read("calls_total") == {"1": 5, "2": 7}
    del workers.say[1]
    workers.metrics.end(1)
    assert await workers.read("calls_total") == {"1": 5, "2": 7}
    assert await workers.read("peer_up") == {"2": 1}
    assert await workers.read("mcp_a2a_worker_up") == {"1": 0, "2": 1}
    for calls, total in ((0, 5), (2, 7)):
        workers.say[1] = counted(calls)
        assert await workers.read("calls_total") == {"1": total, "2": 7}
    workers.metrics.end(1)
    workers.say[1] = counted(1)
    assert await workers.read("calls_total") == {"1": 8, "2": 7}
    assert await workers.read("mcp_a2a_worker_ends_total") == {"1": 2, "2": 0}


async def test_what_a_dead_worker_counted_is_gone_once_no_name_of_it_is_known() -> None:
    workers = Workers()
    workers.say = {1: counted(5, face="removed"), 2: counted(7)}
    assert await workers.read("calls_total") == {"2": 7}


async def test_a_worker_that_has_not_reached_its_peers_hides_nothing_that_others_count() -> None:
    workers = Workers()
    workers.say = {1: counted(5, skill="echo"), 2: counted(7, skill="echo")}
    assert await workers.read("calls_total") == {"1": 5, "2": 7}
    workers.metrics.end(2)
    workers.say[2] = counted(0)
    workers.names[2] = KnownNames({"face": frozenset()}, frozenset({"far"}))
    families = {family.name: family for family in await workers.metrics.read()}
    told = [(dict(one.labels), one.value) for one in families["calls_total"].samples]
    for worker, calls in (("1", 5), ("2", 7)):
        assert ({"face": "face", "skill": "echo", "worker": worker}, calls) in told
    workers.names[1] = workers.names[2]
    families = {family.name: family for family in await workers.metrics.read()}
    assert all("skill" not in dict(one.labels) for one in families["calls_total"].samples)


async def test_a_worker_that_dies_while_it_is_asked_does_not_hold_up_the_reading() -> None:
    metrics = WorkerMetrics(lambda _: [1])
    found: list[Any] = []

    async def read() -> None:
        found.append(await metrics.read())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        metrics.end(1)
    assert len(found) == 1


def test_families_and_names_go_to_another_process_as_plain_values() -> None:
    assert families_in(families_as_json(counted(3))) == counted(3)  # type: ignore[arg-type]
    assert KnownNames.from_json(NAMES.to_json()) == NAMES
