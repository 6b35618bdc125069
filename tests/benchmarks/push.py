"""Part j: what a slow receiver of push notifications costs the streams of the same tasks.

The rounds with a webhook and without one take turns, in one process with one store in a file. Each event of a task
carries the time at which it was made, and the reader of its stream notes when it came.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic_core import from_json
from starlette.responses import Response

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import TaskState
from bridge.a2a.push.sender import WallClock
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.engine import Engine
from bridge.store.outbox import WebhookLimits
from bridge.store.sqlite import SQLiteStore
from tests.benchmarks.figures import Report, Table, median, number, percentile, spread
from tests.benchmarks.scale import Scale
from tests.benchmarks.workplace import Workplace
from tests.support.agents import ALICE, asked, engine_of, give, say
from tests.support.receiver import Notification, receiving, sending, webhooks_of

STREAMS: Final = 8
EVENTS: Final = 200
_SLOW_SECONDS: Final = 5.0
_WITHOUT: Final = "none"
_WITH: Final = "slow"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Clock:
    ids = IdsAndClock(lambda: uuid.uuid4().hex, _now_ms, lambda: time.monotonic_ns() // 1_000_000)


async def _work(job: Job) -> None:
    await say(job, TaskState.WORKING)
    for _ in range(EVENTS):
        await give(job, str(time.perf_counter_ns()))
        await anyio.sleep(0.002)
    await say(job, TaskState.COMPLETED)


async def _read(engine: Engine, configuration: dict[str, Any], took: list[float]) -> None:
    watcher = await engine.stream(asked(configuration=configuration), ALICE)
    while (seen := await watcher.next()) is not None:
        now = time.perf_counter_ns()
        event = from_json(seen.text)
        if "artifactUpdate" in event:
            took.append((now - int(event["artifactUpdate"]["artifact"]["parts"][0]["text"])) / 1e6)


async def _round(engine: Engine, url: str | None) -> list[float]:
    took: list[float] = []
    wish = {} if url is None else {"taskPushNotificationConfig": {"url": url}}
    async with anyio.create_task_group() as group:
        for _ in range(STREAMS):
            group.start_soon(_read, engine, wish, took)
    return took


@dataclass(frozen=True)
class Run:
    """How long the events of one round took to their streams."""

    webhook: str
    milliseconds: Sequence[float]


def measure(place: Workplace, scale: Scale) -> Report:
    """Stream with and without a slow receiver, in turns."""
    runs = anyio.run(_rounds, place.new_file(".db"), scale)
    notes = [
        f"{STREAMS} streams of {EVENTS} events at once, one process, SQLite. The receiver takes {_SLOW_SECONDS:g} s for"
        " each notification.",
    ]
    rows = [_row(name, [run for run in runs if run.webhook == name]) for name in (_WITHOUT, _WITH)]
    table = Table("Events of streams beside a slow webhook", ["webhook", "p50 ms", "p99 ms"], rows, notes)
    return Report([table], [{"part": "push", **vars(run)} for run in runs])


def _row(name: str, runs: Sequence[Run]) -> list[str]:
    every = [took for run in runs for took in run.milliseconds]
    each = [percentile(run.milliseconds, 99) for run in runs]
    return [name, number(median(every)), spread(percentile(every, 99), each)]


async def _rounds(file: Path, scale: Scale) -> list[Run]:
    ids, runs, store = _Clock.ids, [], SQLiteStore(file)
    over = anyio.Event()

    async def slow(_: Notification) -> Response:
        with anyio.move_on_after(_SLOW_SECONDS):
            await over.wait()
        return Response(status_code=204)

    async with receiving(*[slow] * 100_000) as receiver:
        webhooks = webhooks_of(store, ids, receiver.place, limits=WebhookLimits(16, 10_000))
        engine = engine_of(_work, store, _Clock(), webhooks)  # type: ignore[arg-type]
        async with store, sending(store, webhooks, WallClock(_now_ms), receiver.place), engine:
            for _ in range(scale.push_rounds):
                runs.append(Run(_WITHOUT, await _round(engine, None)))
                runs.append(Run(_WITH, await _round(engine, receiver.url(f"/{uuid.uuid4().hex}"))))
            await engine.drain(0)
            over.set()
    return runs
