"""A process that is killed while it sends: it makes tasks with webhooks in a file, and prints each that was accepted.

    python -m tests.support.push_killed STORE URL HOST:PORT TASKS

With no TASKS it only sends what is left, and ends once nothing is.
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Final

import anyio

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import SendMessageRequest, Task, TaskState
from bridge.a2a.push.sender import PushPace, WallClock
from bridge.a2a.tasks.agent import Job
from bridge.store.outbox import WebhookLimits
from bridge.store.sqlite import SQLiteStore
from tests.support.agents import ALICE, engine_of, give, say
from tests.support.receiver import sending, webhooks_of

PACE: Final = PushPace(retry_seconds=(0.05,) * 64, jitter=0.0, each_host=4, at_once=16, folded_rows=256)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Clock:
    ids = IdsAndClock(lambda: uuid.uuid4().hex, _now_ms, lambda: time.monotonic_ns() // 1_000_000)


async def _work(job: Job) -> None:
    await say(job, TaskState.WORKING)
    for number in range(3):
        await give(job, str(number))
        await anyio.sleep(0.002)
    await say(job, TaskState.COMPLETED)


async def _main(path: str, url: str, place: str, tasks: int) -> None:
    store, ids = SQLiteStore(Path(path)), _Clock.ids
    webhooks = webhooks_of(store, ids, place, limits=WebhookLimits(16, 1_000_000))
    engine = engine_of(_work, store, _Clock(), webhooks)  # type: ignore[arg-type]
    async with store, sending(store, webhooks, WallClock(_now_ms), place, pace=PACE), engine:
        print("begun", flush=True)
        for _ in range(tasks):
            name = uuid.uuid4().hex
            message = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "go"}]}
            wish = {"taskPushNotificationConfig": {"url": f"{url}/{name}"}, "returnImmediately": True}
            request = SendMessageRequest.model_validate({"message": message, "configuration": wish})
            task = await engine.send(request, ALICE)
            assert isinstance(task, Task)
            print(name, flush=True)
        while await store.outbox.waiting() or engine.running:
            await anyio.sleep(0.01)


if __name__ == "__main__":
    anyio.run(_main, *sys.argv[1:4], int(sys.argv[4]))
