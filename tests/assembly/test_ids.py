"""Ids by a clock that ticks seldom, as that of Windows does, and by one that is set back."""

from __future__ import annotations

from uuid import RFC_4122, UUID

import pytest

from bridge.a2a.model.life import IdsAndClock
from bridge.a2a.model.objects import ListTasksRequest, Task, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.engine import Engine
from bridge.assembly.ids import OrderedIds
from bridge.store.memory import MemoryStore
from tests.support.agents import ALICE, Scripted, asked, say
from tests.support.limits import engine_limits

NOW_MS = 1_700_000_000_000
TICK_MS = 15


def test_an_id_is_a_uuid_of_its_millisecond() -> None:
    made = UUID(OrderedIds(lambda: NOW_MS).new())
    assert (made.version, made.variant, made.int >> 80) == (7, RFC_4122, NOW_MS)


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param([NOW_MS] * 10_000, id="stands still"),
        pytest.param([NOW_MS + number // 500 * TICK_MS for number in range(10_000)], id="ticks"),
        pytest.param([NOW_MS + 60_000] * 5 + [NOW_MS] * 5, id="is set back"),
    ],
)
def test_ids_sort_as_they_were_made_when_the_clock(clock: list[int]) -> None:
    times = iter(clock)
    ids = OrderedIds(lambda: next(times))
    made = [ids.new() for _ in clock]
    assert made == sorted(made)
    assert len(set(made)) == len(clock)


async def test_tasks_of_one_tick_are_listed_newest_first() -> None:
    async def script(job: Job) -> None:
        await say(job, TaskState.COMPLETED)

    ids = IdsAndClock(OrderedIds(lambda: NOW_MS).new, lambda: NOW_MS, lambda: 0)
    async with Engine(Scripted(script), MemoryStore(), ids, engine_limits()) as engine:
        made = []
        for _ in range(20):
            task = await engine.send(asked(), ALICE)
            assert isinstance(task, Task)
            made.append(task.id)
        listed = (await engine.list(ListTasksRequest(), ALICE)).tasks
    assert [task.id for task in listed] == made[::-1]
