"""A process that makes tasks in a SQLite file, appends to them and ends them, until it is killed.

python -m tests.shake.writer FILE LOG

Every event that the store acknowledged is a line of LOG, with its task and this process, written before anything else
happens. What another process left it ends first. A task keeps all its events in its snapshot.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import anyio

from bridge.store.records import Change, StoredTask, TaskHead, TaskOrigin
from bridge.store.sqlite import SQLiteStore

OWNER: Final = "ann"
END: Final = "end"
"""How the event begins that ends a task."""
_TASKS_AT_ONCE: Final = 8
_MOST_EVENTS: Final = 12


def events_in(task: StoredTask) -> list[str]:
    """All events of a stored task: its snapshot has those up to it."""
    return [*json.loads(task.snapshot), *(event.decode() for event in task.events)]


@dataclass
class Writing:
    """One task, as its writer knows it."""

    store: SQLiteStore
    log: int
    chance: random.Random
    task_id: str
    events: list[str] = field(default_factory=list)

    async def append(self, event: str) -> None:
        """Append an event, and wait until the store has acknowledged it."""
        answered, now_ms = anyio.Event(), round(time.time() * 1000)
        seq, ends = len(self.events) + 1, event.startswith(END)
        self.events.append(event)
        folds = seq == 1 or ends or self.chance.random() < 0.1

        def done(error: Exception | None) -> None:
            if error is not None:
                raise error
            os.write(self.log, json.dumps([self.task_id, event, os.getpid()]).encode() + b"\n")
            answered.set()

        change = Change(
            self.task_id,
            seq,
            event.encode(),
            head=TaskHead("ended" if ends else "working", ends, now_ms),
            snapshot=json.dumps(self.events).encode() if folds else None,
            origin=TaskOrigin(f"c-{self.task_id}", OWNER, now_ms) if seq == 1 else None,
        )
        self.store.submit(change, done)
        await answered.wait()


async def _make_tasks(store: SQLiteStore, log: int, chance: random.Random) -> None:
    for number in count():
        task = Writing(store, log, chance, f"t{os.getpid()}-{chance.getrandbits(48):x}-{number}")
        for step in range(chance.randint(1, _MOST_EVENTS)):
            await task.append(f"step {step}")
        await task.append(END)


async def _main(arguments: Sequence[str]) -> None:
    path, log_path = arguments
    log, chance = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), random.Random()
    async with SQLiteStore(path) as store:
        left = [task async for task in store.unfinished()]
        for task in left:
            await Writing(store, log, chance, task.task_id, events_in(task)).append(f"{END} of the dead")
        async with anyio.create_task_group() as group:
            for _ in range(_TASKS_AT_ONCE):
                group.start_soon(_make_tasks, store, log, chance)


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1:])
