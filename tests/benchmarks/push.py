"""What a slow receiver of push notifications costs the streams of the same tasks: `python -m tests.benchmarks.push`.

The rounds with a webhook and without one take turns, in one process with one store in a file. Each event of a task
carries the time at which it was made, and the reader of its stream notes when it came.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
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
from tests.support.agents import ALICE, asked, engine_of, give, say
from tests.support.receiver import Notification, receiving, sending, webhooks_of

ROUNDS: Final = 12
STREAMS: Final = 8
EVENTS: Final = 200
_SLOW_SECONDS: Final = 5.0


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


async def _slow(_: Notification) -> Response:
    await anyio.sleep(_SLOW_SECONDS)
    return Response(status_code=204)


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


def _shown(name: str, took: list[float]) -> str:
    cuts = statistics.quantiles(took, n=100)
    return f"{name:>8}: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, of {len(took)} events"


async def _main() -> None:
    ids = _Clock.ids
    results: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "tasks.db")
        async with receiving(*[_slow] * 100_000) as receiver:
            webhooks = webhooks_of(store, ids, receiver.place, limits=WebhookLimits(16, 10_000))
            engine = engine_of(_work, store, _Clock(), webhooks)  # type: ignore[arg-type]
            async with store, sending(store, webhooks, WallClock(_now_ms), receiver.place), engine:
                for _ in range(ROUNDS):
                    results["without"] += await _round(engine, None)
                    results["with"] += await _round(engine, receiver.url(f"/{uuid.uuid4().hex}"))
                await engine.drain(0)
            for name, took in results.items():
                print(_shown(name, took))


if __name__ == "__main__":
    anyio.run(_main)
