"""Shake replicas of one PostgreSQL: kill, stop and crash at random, and check the history of every task afterwards.

python -m tests.shake --seconds 30
python -m tests.shake --seconds 120 --faults kill,stop,crash --seed 7

It starts a PostgreSQL of its own and four replicas, which write to it. A watcher follows every task that it sees. At
the end each acknowledged event has to be in the store, once, in order, with nothing after a task's first end, and the
watcher must have been told the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from bridge.errors import StoreError
from bridge.store.postgres.store import PostgresStore
from bridge.store.records import Cursor, Query, StoredTask
from bridge.store.replicas import ForeignEvent
from tests.shake.history import END, Stored, Told, faults_of
from tests.shake.replica import OWNERS, SHAKEN, Replica, events_in
from tests.support.command import ROOT
from tests.support.postgres import Database, database

REPLICAS: Final = 4
FAULTS: Final = ("kill", "stop", "crash")
_PAUSE_SECONDS: Final = 1.2
"""The mean pause between two faults."""
_STOPPED_SECONDS: Final = 4.0
_AGENT: Final = "shaken"


@dataclass
class _Watch:
    """Follows every task from its beginning."""

    store: PostgresStore
    told: list[Told] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    async def answer(self, command: bytes) -> bytes:
        return command

    async def adopt(self, task: StoredTask) -> None:
        raise AssertionError(f"the watcher was given {task.task_id}")

    def fenced(self) -> None:
        raise AssertionError("the watcher was fenced")

    def follow(self, task_id: str) -> None:
        if task_id in self.seen:
            return
        self.seen.add(task_id)
        events: list[str] = []

        def tell(news: tuple[ForeignEvent, ...]) -> None:
            for one in news:
                if one.snapshot is not None:
                    fresh = json.loads(one.snapshot)[len(events) :]
                else:
                    assert one.event is not None
                    fresh = [one.event.decode()]
                for event in fresh:
                    events.append(event)
                    self.told.append(Told(task_id, len(events), event))

        self.store.replicas.follow(task_id, 0, tell)


@dataclass
class _Shaken:
    url: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed_at: dict[int, float] = field(default_factory=dict)
    """When each process was killed, by its id, in seconds since the epoch."""
    done: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        log = self.folder / f"acknowledged-{len(list(self.folder.iterdir()))}"
        command = [sys.executable, "-m", "tests.shake.replica", self.url, _AGENT, str(log)]
        self.processes.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL))

    def acknowledged(self) -> list[Told]:
        lines = (line for log in self.folder.iterdir() for line in log.read_text().splitlines(keepends=True))
        return [Told(*json.loads(line)) for line in lines if line.endswith("\n")]


async def _shake(
    shaken: _Shaken, server: Database, seconds: float, faults: list[str], chance: random.Random
) -> None:
    ends_at = anyio.current_time() + seconds
    async with anyio.create_task_group() as group:
        while anyio.current_time() < ends_at:
            await anyio.sleep(_PAUSE_SECONDS * (0.5 + chance.random()))
            fault = chance.choice(faults)
            shaken.done[fault] += 1
            victim = chance.choice(shaken.processes)
            if fault == "kill":
                shaken.processes.remove(victim)
                victim.kill()
                shaken.killed_at[victim.pid] = time.time()
                victim.wait()
                shaken.start()
            elif fault == "stop":
                group.start_soon(_stop_for_a_while, victim)
            else:
                await anyio.to_thread.run_sync(server.crash)


async def _stop_for_a_while(victim: subprocess.Popen[bytes]) -> None:
    victim.send_signal(signal.SIGSTOP)
    await anyio.sleep(_STOPPED_SECONDS)
    victim.send_signal(signal.SIGCONT)


async def _main(seconds: float, faults: list[str], seed: int) -> int:
    chance = random.Random(seed)
    print(f"seed {seed}, {seconds:g} s of {', '.join(faults)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mcp-a2a-shake-") as folder, database() as server:
        shaken = _Shaken(server.url, Path(folder))
        async with (
            PostgresStore(server.url, _AGENT, SHAKEN) as store,
            anyio.create_task_group() as group,
        ):
            watch = _Watch(store)
            group.start_soon(_follow_all, watch)
            for _ in range(REPLICAS):
                shaken.start()
            try:
                await _shake(shaken, server, seconds, faults, chance)
                await anyio.sleep(2)
            finally:
                for process in shaken.processes:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    process.wait()
            await _end_what_is_left(store, shaken)
            stored = {task.task_id: events_in(task) for task in await _all_tasks(store)}
            group.cancel_scope.cancel()
        acknowledged = shaken.acknowledged()
    found = faults_of(stored, acknowledged, watch.told)
    taken = sorted(_taken_over(stored, shaken.killed_at))
    ended = sum(events[-1].startswith(END) for events in stored.values())
    adopted = sum("adopted" in events[-1] for events in stored.values())
    print(
        f"{dict(shaken.done)}: {len(stored)} tasks, {ended} ended, {adopted} adopted, "
        f"{len(acknowledged)} events acknowledged, {len(watch.told)} watched, {len(found)} faults"
    )
    if taken:
        print(
            f"from kill to end by another: median {statistics.median(taken):.2f} s, longest {taken[-1]:.2f} s"
        )
    for fault in found[:20]:
        print(f"    {fault}")
    return 1 if found else 0


async def _follow_all(watch: _Watch) -> None:
    while True:
        try:
            for owner in OWNERS:
                for task in (await watch.store.list(Query(owner, 100))).tasks:
                    watch.follow(task.task_id)
        except StoreError:
            pass  # the database has crashed, and will be back
        await anyio.sleep(0.1)


async def _end_what_is_left(store: PostgresStore, shaken: _Shaken) -> None:
    """End what the killed have left, and let the watcher hear of it."""
    log = os.open(shaken.folder / "acknowledged-last", os.O_WRONLY | os.O_CREAT, 0o600)
    store.replicas.start(Replica(store, log, random.Random(0)))
    with anyio.fail_after(30):
        while any(not task.head.ended for task in await _all_tasks(store)):
            await anyio.sleep(0.1)
    await anyio.sleep(2 * SHAKEN.poll_seconds)


async def _all_tasks(store: PostgresStore) -> list[StoredTask]:
    found: list[StoredTask] = []
    for owner in OWNERS:
        after: Cursor | None = None
        while True:
            page = await store.list(Query(owner, 500, after=after))
            found += page.tasks
            if not page.more:
                break
            after = Cursor(page.tasks[-1].head.status_ms, page.tasks[-1].task_id)
    return found


def _taken_over(stored: Stored, killed_at: Mapping[int, float]) -> Iterator[float]:
    """How long after the death of its replica each adopted task was ended, in seconds."""
    for task_id, events in stored.items():
        words, pid = events[-1].split(), int(task_id[1:].split("-")[0])
        if words[:2] == [END, "adopted"] and pid in killed_at:
            yield float(words[-1]) - killed_at[pid]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.shake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", type=float, default=30, help="how long faults happen (30)")
    made.add_argument("--faults", default=",".join(FAULTS), metavar="a,b,...", help=", ".join(FAULTS))
    made.add_argument(
        "--seed", type=int, default=None, help="the order of faults; else a new one, which is printed"
    )
    return made


def main() -> int:
    """Shake, and say what was found; 1 when a history does not hold."""
    options = parser().parse_args()
    faults = options.faults.split(",")
    if unknown := set(faults) - set(FAULTS):
        raise SystemExit(f"there is no such fault: {', '.join(sorted(unknown))}")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    return anyio.run(_main, options.seconds, faults, seed)


if __name__ == "__main__":
    sys.exit(main())
