"""A replica that writes: a process of its own, which makes tasks, appends to them, and ends them, until it is killed.

python -m tests.shake.replica URL AGENT LOG

Every event that the store acknowledged is a line of LOG, written before anything else happens. What it adopts from the
dead it ends at once.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import anyio

from bridge.errors import StoreError
from bridge.store.postgres.bounds import Lease
from bridge.store.postgres.store import PostgresStore
from bridge.store.records import Change, StoredTask, TaskHead, TaskOrigin
from tests.shake.history import END
from tests.support.postgres import BOUNDS

SHAKEN: Final = replace(
    BOUNDS, lease=Lease(beat_seconds=0.25, grace_seconds=0.75, silence_seconds=2.0), statement_seconds=2.0
)
TASKS_AT_ONCE: Final = 8
"""How many tasks a replica works on."""

OWNERS: Final = ("ann", "bob", "cleo")


def events_in(task: StoredTask) -> list[str]:
    """All events of a stored task: its snapshot has those up to it."""
    return [*json.loads(task.snapshot), *(event.decode() for event in task.events)]


@dataclass
class Replica:
    """The engine of a replica, and its work."""

    store: PostgresStore
    log: int
    chance: random.Random
    work: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def answer(self, command: bytes) -> bytes:
        """Say it back."""
        return command

    async def adopt(self, task: StoredTask) -> None:
        """End what the dead have left."""
        events = events_in(task)
        await self._append(
            task.task_id, events, f"{END} adopted by {self.store.replicas.epoch} at {time.time()}"
        )

    def fenced(self) -> None:
        """Drop all work, and begin anew."""
        self.work.cancel()

    async def run(self) -> None:
        """Make tasks until killed, and others each time this replica was fenced."""
        while True:
            with anyio.CancelScope() as self.work:
                async with anyio.create_task_group() as tasks:
                    for _ in range(TASKS_AT_ONCE):
                        tasks.start_soon(self._make_tasks)
            await anyio.sleep(0.1)

    async def _make_tasks(self) -> None:
        for number in count():
            task_id = f"t{os.getpid()}-{self.chance.getrandbits(48):x}-{number}"
            events: list[str] = []
            for step in range(self.chance.randint(2, 12)):
                await anyio.sleep(self.chance.random() * 0.03)
                if not await self._append(task_id, events, f"step {step} of {task_id}"):
                    break
            else:
                await self._append(task_id, events, f"{END} of {task_id}")

    async def _append(self, task_id: str, events: list[str], event: str) -> bool:
        """Append an event and wait for the store. Returns whether it was acknowledged."""
        answered, outcome = anyio.Event(), list[Exception | None]()
        now_ms, seq, ends = round(time.time() * 1000), len(events) + 1, event.startswith(END)
        folds = seq == 1 or ends or self.chance.random() < 0.1
        change = Change(
            task_id,
            seq,
            event.encode(),
            head=TaskHead("ended" if ends else "working", ends, now_ms),
            snapshot=json.dumps([*events, event]).encode() if folds else None,
            origin=TaskOrigin(f"c-{task_id}", self.chance.choice(OWNERS), now_ms) if seq == 1 else None,
        )

        def done(error: Exception | None) -> None:
            outcome.append(error)
            if error is None:
                os.write(self.log, json.dumps([task_id, seq, event]).encode() + b"\n")
            answered.set()

        self.store.submit(change, done)
        await answered.wait()
        if outcome == [None]:
            events.append(event)
            return True
        assert isinstance(outcome[0], StoreError), outcome
        return False


async def _main(url: str, agent: str, log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with PostgresStore(url, agent, SHAKEN) as store:
        replica = Replica(store, descriptor, random.Random())
        store.replicas.start(replica)
        await replica.run()


if __name__ == "__main__":
    anyio.run(_main, *sys.argv[1:])
