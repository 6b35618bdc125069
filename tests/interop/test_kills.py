"""A thousand deaths under load: of a tool server, and of a process that writes its tasks to a SQLite file."""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path

import anyio
import pytest

from bridge.store.records import Cursor, Query, StoredTask
from bridge.store.sqlite import SQLiteStore
from tests.shake.history import History, StoredEvent, Told, View
from tests.shake.writer import END, OWNER, events_in
from tests.support.fork_server import ROOT
from tests.support.forked import Forked
from tests.support.kills import kill_often
from tests.support.processes import PROC


@pytest.mark.slow
@pytest.mark.skipif(not PROC.is_dir(), reason="processes and descriptors are looked up in /proc")
@pytest.mark.proves("map-lost", "mcp-no-leak")
async def test_a_server_that_is_killed_a_thousand_times_leaves_no_call_unanswered_and_nothing_behind(
    tmp_path: Path,
) -> None:
    tally = await kill_often(1000, str(tmp_path / "tasks.db"))
    print(tally)
    assert tally.kills >= 1000
    tally.check()


@pytest.mark.slow
async def test_a_file_whose_writer_is_killed_a_thousand_times_has_every_acknowledged_event(
    tmp_path: Path,
) -> None:
    file, chance = tmp_path / "tasks.db", random.Random()
    logs = [tmp_path / f"log-{number}" for number in range(1000)]
    for log in logs:
        command = [sys.executable, "-m", "tests.shake.writer", str(file), str(log)]
        with Forked(command, cwd=ROOT) as writer:
            with anyio.fail_after(30):
                while not log.exists() or not log.stat().st_size:
                    await anyio.sleep(0.005)
            await anyio.sleep(chance.random() * 0.05)
            writer.kill()
    # A process that is killed while it writes a line leaves a part of it.
    all_lines = [line for log in logs for line in log.read_text().splitlines(keepends=True)]
    lines = [line for line in all_lines if line.endswith("\n")]
    streams: defaultdict[tuple[str, int], int] = defaultdict(count().__next__)
    told = [
        Told(task_id, event, at, streams[task_id, writer])
        for at, (task_id, event, writer) in enumerate(map(json.loads, lines))
    ]
    async with SQLiteStore(file) as store:
        stored = {task.task_id: _events_of(task) for task in await _all_tasks(store)}
    history = History(stored, told)
    print(f"{len(stored)} tasks, {len(told)} events acknowledged")
    assert history.faults() == []


def _events_of(task: StoredTask) -> list[StoredEvent]:
    return [StoredEvent(event, View(event), event.startswith(END)) for event in events_in(task)]


async def _all_tasks(store: SQLiteStore) -> list[StoredTask]:
    found: list[StoredTask] = []
    after: Cursor | None = None
    while True:
        page = await store.list(Query(OWNER, 500, after=after))
        found += page.tasks
        if not page.more:
            return found
        after = Cursor(page.tasks[-1].head.status_ms, page.tasks[-1].task_id)
