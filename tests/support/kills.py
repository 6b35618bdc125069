"""A tool server that is killed again and again while many callers call it, and the count of what they were told."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from tests.support.limits import command_of
from tests.support.processes import children_of, children_with
from tests.support.running import (
    RAW_SERVER,
    Rpc,
    Running,
    call_part,
    config_for,
    message,
    profile_with,
    running,
    texts,
)

CALLERS: Final = 16
# Without `site` and the environment, Python starts in 30 ms.
SERVER: Final = command_of((sys.executable, "-S", "-E", str(RAW_SERVER), "--to-be-killed"))
_ANSWER_SECONDS: Final = 30


@dataclass
class Tally:
    """What the callers were told."""

    statuses: Counter[int] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    """Of the tasks that failed."""
    kills: int = 0
    _completed: anyio.Event = field(default_factory=anyio.Event)

    def add(self, answer: httpx2.Response) -> None:
        """Count one answer."""
        self.statuses[answer.status_code] += 1
        task: Any = answer.json()["result"]["task"]
        state, said = task["status"]["state"], task["status"].get("message", {}).get("parts", [])
        self.states[state] += 1
        if state == "TASK_STATE_FAILED":
            self.words[" ".join(texts(said))] += 1
        else:
            self._completed.set()
            self._completed = anyio.Event()

    def check(self) -> None:
        """Every call was answered with a task that has ended, and those that failed say why."""
        assert set(self.statuses) == {200}, self
        assert set(self.states) <= {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}, self
        assert self.states["TASK_STATE_COMPLETED"] >= self.kills, self
        assert all("raw" in words for words in self.words), self
        # At most the calls that were under way, one of each caller, are lost with a server.
        assert self.states["TASK_STATE_FAILED"] <= self.kills * CALLERS, self

    async def another(self) -> None:
        """Wait until a call completes."""
        await self._completed.wait()


async def kill_often(kills: int, store: str) -> Tally:
    """Kill the server as often, each time once it has answered again; nothing may be left of it all."""
    tasks_before, files_before = _tasks(), _files()
    profile = profile_with(server={"longest_pause_seconds": 0.02})
    async with running(config_for(SERVER, profile=profile, store=store)) as bridge:
        async with httpx2.AsyncClient() as http:
            await Rpc(http, bridge.base_url).send(call_part("echo", text="warm"))
        with_bridge = await _settled(_files)
        tally = await _kill_while_calling(bridge, kills)
        await _reached(_files, with_bridge)
        assert bridge.bridge.engine.running == 0
        assert not list(bridge.bridge.engine.registry)
        (child,) = children_with("--to-be-killed")
        assert not children_of(child)
    assert not children_with("--to-be-killed")
    await _reached(_files, files_before)
    await _reached(_tasks, tasks_before)
    return tally


async def _kill_while_calling(bridge: Running, kills: int) -> Tally:
    tally, over = Tally(), anyio.Event()
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(timeout=_ANSWER_SECONDS, limits=limits) as http,
        anyio.create_task_group() as tasks,
    ):
        rpc = Rpc(http, bridge.base_url)
        for number in range(CALLERS):
            tasks.start_soon(_call, rpc, number, tally, over)
        killed: set[int] = set()
        while tally.kills < kills:
            with anyio.fail_after(_ANSWER_SECONDS):
                await tally.another()
            for child in set(children_with("--to-be-killed")) - killed:
                os.kill(child, 9)
                killed.add(child)
                tally.kills += 1
        over.set()
    async with httpx2.AsyncClient() as http:
        await Rpc(http, bridge.base_url).send(call_part("echo", text="it works"))
    return tally


async def _call(rpc: Rpc, number: int, tally: Tally, over: anyio.Event) -> None:
    part = call_part("progress", steps=50) if number % 2 else call_part("echo", text="hello")
    while not over.is_set():
        with anyio.fail_after(_ANSWER_SECONDS):
            tally.add(await rpc.post("SendMessage", message(part)))


def _files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _tasks() -> int:
    return len(asyncio.all_tasks())


async def _settled(count: Callable[[], int]) -> int:
    """The count once connections that were closed at one end are closed at the other."""
    gc.collect()
    before = -1
    while before != (before := count()):
        await anyio.sleep(0.1)
    return before


async def _reached(count: Callable[[], int], goal: int) -> None:
    """Wait until as many are left as there were before."""
    gc.collect()
    with anyio.move_on_after(10):
        while count() > goal:
            await anyio.sleep(0.05)
    assert count() <= goal, f"{count()} {count.__name__}, {goal} before"
