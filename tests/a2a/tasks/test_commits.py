"""What a task costs a store in a file: how many transactions, and how many pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
import pytest

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import Task, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.assembly.ids import OrderedIds
from bridge.store.contract import OnStored
from bridge.store.memory import MemoryStore
from bridge.store.records import Change
from bridge.store.sqlite import SQLiteStore
from tests.support.agents import ALICE, Clock, asked, engine_of, give, say
from tests.support.sqlite_log import WrittenLog, log_of

W, C = TaskState.WORKING, TaskState.COMPLETED
CALLS: Final = 25
"""So few that SQLite does not begin the log anew."""


MOST_FRAMES: Final = 15
"""The most pages that a call may write. Each takes two writes, of its header and of the page."""


class RunningClock(Clock):
    """A clock that goes on, and the ids that a bridge makes."""

    @property
    def ids(self) -> IdsAndClock:
        """As the engine takes them."""
        return IdsAndClock(OrderedIds(self._next_ms).new, self._next_ms, self._next_ms)

    def _next_ms(self) -> int:
        self.pass_ms(1)
        return self.now_ms


async def complete(job: Job) -> None:
    say(job, W)
    await job.accepted
    give(job, "x" * 100)
    await say(job, C)


async def written_by(
    path: Path, script: Callable[[Job], Awaitable[None]], *, watch: bool = False
) -> WrittenLog:
    """What the calls wrote into the log of a new file, in all."""
    async with SQLiteStore(path) as store, engine_of(script, store, RunningClock()) as engine:
        before = log_of(path)
        for _ in range(CALLS):
            request = asked({"text": "x" * 100}, messageId=str(uuid4()))
            if watch:
                with await engine.stream(request, ALICE) as watcher:
                    while await watcher.next() is not None:
                        pass
            else:
                await engine.send(request, ALICE)
        after = log_of(path)
    return WrittenLog(after.commits - before.commits, after.frames - before.frames)


@pytest.mark.proves("store-visible")
async def test_a_call_that_nobody_watches_has_two_commits_and_few_pages(tmp_path: Path) -> None:
    written = await written_by(tmp_path / "tasks.db", complete)
    assert written.commits == 2 * CALLS
    assert written.frames <= MOST_FRAMES * CALLS


@pytest.mark.proves("store-visible")
async def test_a_watched_call_has_a_commit_for_each_event_that_comes_alone(tmp_path: Path) -> None:
    async def slowly(job: Job) -> None:
        await job.accepted
        await say(job, W)
        give(job, "x" * 100)
        await say(job, C)

    written = await written_by(tmp_path / "tasks.db", slowly, watch=True)
    assert written.commits == 3 * CALLS


@pytest.mark.proves("store-visible")
async def test_the_beginning_of_long_work_is_stored_although_nobody_watches(tmp_path: Path) -> None:
    stored = anyio.Event()

    async def work(job: Job) -> None:
        await say(job, W)
        stored.set()
        await anyio.sleep_forever()

    path = tmp_path / "tasks.db"
    async with (
        SQLiteStore(path) as store,
        engine_of(work, store) as engine,
        anyio.create_task_group() as group,
    ):
        group.start_soon(engine.send, asked(), ALICE)
        with anyio.fail_after(10):
            await stored.wait()
        (live,) = [task async for task in store.unfinished()]
        assert live.head.state == W
        group.cancel_scope.cancel()


class RememberingStore(MemoryStore):
    """A store that remembers which states may wait for the commit of the next event."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, bool]] = []

    def submit(self, change: Change, on_stored: OnStored) -> None:
        if change.head is not None:
            self.waits.append((change.head.state, change.may_wait))
        super().submit(change, on_stored)


@pytest.mark.proves("store-visible")
async def test_working_after_an_answer_waits_for_no_other_event() -> None:
    """A process that is killed then would leave a task that seems to ask still, and the answer could run twice."""

    async def ask_first(job: Job) -> None:
        if job.turn.task is None:
            say(job, W)
            await say(job, TaskState.INPUT_REQUIRED, "Which?")
        else:
            await complete(job)

    async with RememberingStore() as store, engine_of(ask_first, store) as engine:
        task = await engine.send(asked(), ALICE)
        assert isinstance(task, Task)
        await engine.send(asked({"text": "this"}, taskId=task.id), ALICE)
    assert [waits for state, waits in store.waits if state == W] == [True, False, False]
