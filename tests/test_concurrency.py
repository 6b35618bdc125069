"""How tasks wait for one another, and a loop before it tries again."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from bridge.concurrency import Backoff, Signal, WaitingLine


async def test_who_waits_goes_on_once_it_happens_and_not_because_it_happened_before() -> None:
    signal, heard = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        heard.append(number)

    signal.notify()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 1)
        tasks.start_soon(wait, 2)
        await anyio.wait_all_tasks_blocked()
        assert heard == []
        signal.notify()
        await anyio.wait_all_tasks_blocked()
        assert sorted(heard) == [1, 2]
        tasks.start_soon(wait, 3)
        await anyio.wait_all_tasks_blocked()
        assert sorted(heard) == [1, 2]
        signal.notify()
    assert sorted(heard) == [1, 2, 3]


async def test_what_happens_between_a_look_and_the_wait_is_not_missed() -> None:
    signal = Signal()
    news = signal.next
    signal.notify()
    with anyio.fail_after(5):
        await news.wait()


def given(pauses: Backoff, count: int) -> list[float]:
    return [pauses.next() for _ in range(count)]


def test_pauses_grow_to_the_longest_and_no_further() -> None:
    assert given(Backoff(1, 10, jitter=0), 6) == [1, 2, 4, 8, 10, 10]
    assert given(Backoff(1, 3, factor=1.5, jitter=0), 5) == [1, 1.5, 2.25, 3, 3]


def test_after_a_success_pauses_begin_anew() -> None:
    pauses = Backoff(1, 10, jitter=0)
    given(pauses, 5)
    pauses.reset()
    assert given(pauses, 2) == [1, 2]


def test_a_first_pause_is_no_longer_than_the_longest() -> None:
    assert given(Backoff(5, 2, jitter=0), 2) == [2, 2]


@pytest.mark.parametrize("seed", range(20))
def test_chance_shortens_a_pause_by_a_share_and_never_lengthens_it(seed: int) -> None:
    by_chance, whole = given(Backoff(1, 10, jitter=0.2, chance=Random(seed)), 6), (1, 2, 4, 8, 10, 10)
    assert all(most * 0.8 <= seconds <= most for seconds, most in zip(by_chance, whole, strict=True))
    assert by_chance == given(Backoff(1, 10, jitter=0.2, chance=Random(seed)), 6)


def test_loops_that_began_together_do_not_try_together() -> None:
    together = [given(Backoff(1, 10, chance=Random(seed)), 4) for seed in range(20)]
    assert len({tuple(pauses) for pauses in together}) == 20


async def test_a_line_passes_its_waiters_on_in_their_order_and_leaves_out_who_waits_no_more() -> None:
    seen, done = list[str](), anyio.Event()

    def tell(waiter: str) -> None:
        seen.append(waiter)
        if waiter == "last":
            done.set()

    line = WaitingLine[str](0.01, tell)
    for waiter in ("first", "gone", "last"):
        line.add(waiter)
    line.add("first")
    line.add("last")
    line.discard("gone")
    with anyio.fail_after(5):
        await done.wait()
    assert seen == ["first", "last"]
    assert not line


async def test_waiters_that_are_nearly_due_are_passed_on_in_the_same_turn() -> None:
    seen, first = list[int](), anyio.Event()

    def tell(waiter: int) -> None:
        seen.append(waiter)
        first.set()

    line = WaitingLine[int](0.05, tell, early_seconds=0.04)
    line.add(1)
    await anyio.sleep(0.005)
    line.add(2)
    with anyio.fail_after(5):
        await first.wait()
    assert seen == [1, 2]
