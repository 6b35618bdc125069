"""How tasks wait for one another."""

from __future__ import annotations

import anyio

from bridge.concurrency import Signal


async def test_who_waits_goes_on_once_it_happens_and_not_because_it_happened_before() -> None:
    signal, heard = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        heard.append(number)

    signal.tell()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 1)
        tasks.start_soon(wait, 2)
        await anyio.wait_all_tasks_blocked()
        assert heard == []
        signal.tell()
        await anyio.wait_all_tasks_blocked()
        assert sorted(heard) == [1, 2]
        tasks.start_soon(wait, 3)
        await anyio.wait_all_tasks_blocked()
        assert sorted(heard) == [1, 2]
        signal.tell()
    assert sorted(heard) == [1, 2, 3]


async def test_what_happens_between_a_look_and_the_wait_is_not_missed() -> None:
    signal = Signal()
    news = signal.next
    signal.tell()
    with anyio.fail_after(5):
        await news.wait()
