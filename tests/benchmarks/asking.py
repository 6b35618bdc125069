"""What the clients that are coroutines have in common: they take plans on stdin, and ask so many things at once.

A plan is a line of JSON as in `load`, and so is what it found.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import anyio.to_thread

from tests.benchmarks.messages import LIMIT_SECONDS, Plan, texts_for
from tests.benchmarks.usage import cpu_seconds

T = TypeVar("T")


async def plans() -> AsyncIterator[Plan]:
    """The plans on stdin, until it ends."""
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        yield json.loads(line)


async def carried_out(work: Awaitable[Plan]) -> None:
    """Print what a plan found, within the limit."""
    with anyio.fail_after(LIMIT_SECONDS):
        print(json.dumps(await work), flush=True)


async def asked(
    plan: Plan, ask: Callable[[str], Awaitable[T]], require: Callable[[T, str], None], pid: int
) -> Plan:
    """So many questions, so many of them at once, and the CPU time of a process; `require` checks each answer."""
    warm, counted = texts_for(plan)
    await _ask_all(plan["concurrency"], ask, require, warm)
    cpu, begun = cpu_seconds(pid), time.perf_counter()
    latencies = await _ask_all(plan["concurrency"], ask, require, counted)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "latencies": latencies, "cpu_seconds": cpu_seconds(pid) - cpu}


async def _ask_all(
    concurrency: int,
    ask: Callable[[str], Awaitable[T]],
    require: Callable[[T, str], None],
    texts: Sequence[str],
) -> list[float]:
    latencies: list[float] = []
    waiting = iter(texts)

    async def worker() -> None:
        for text in waiting:
            begun = time.perf_counter()
            answer = await ask(text)
            latencies.append(time.perf_counter() - begun)
            require(answer, text)

    async with anyio.create_task_group() as tasks:
        for _ in range(concurrency):
            tasks.start_soon(worker)
    return latencies


async def followed(plan: Plan, follow: Callable[[], Awaitable[Plan]], pid: int) -> Plan:
    """So many streams, one after the other, after one that is not counted, and the CPU time of a process."""
    await follow()
    cpu = cpu_seconds(pid)
    streams = [await follow() for _ in range(plan["streams"])]
    return {"streams": streams, "cpu_seconds": cpu_seconds(pid) - cpu}
