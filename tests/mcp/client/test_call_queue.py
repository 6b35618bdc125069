"""Which call gets the next slot on a tool server, and how long a question blocks other calls."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import FrameType
from typing import Any

import anyio
import pytest

from bridge.errors import BusyError
from bridge.mcp.client.call_queue import CallQueue, CallSlot, Claimant, DisplacedError, SlotHold
from bridge.mcp.client.session import Session
from tests.support.limits import command_of, server_settings

pytestmark = pytest.mark.proves("mcp-fair")


def queue_of(
    slots_each: int, *, most_sessions: int = 1, shared: bool = True, contended: float = 60
) -> CallQueue:
    """A queue before sessions that were never started: only their slots count here."""

    def session() -> Session:
        return Session("tools", command_of(("tools",)), settings=server_settings())

    return CallQueue(
        session(),
        slots_each=slots_each,
        contended_seconds=contended,
        most_sessions=most_sessions,
        open_another=session if shared else None,
    )


class Calls:
    """Calls that stand in a queue, each until it is ended."""

    def __init__(self, queue: CallQueue, group: anyio.abc.TaskGroup) -> None:
        self.queue = queue
        self.served: list[str] = []
        """The names of those that got a slot, in that order."""
        self.displaced: list[str] = []
        self.waits: dict[str, list[SlotHold]] = {}
        self.slots: dict[str, CallSlot] = {}
        self._group = group
        self._ends: dict[str, anyio.Event] = {}

    async def start(self, *names: str) -> None:
        """Each name is the principal and a number: `ann1`."""
        for name in names:
            self._ends[name] = anyio.Event()
            self._group.start_soon(self._call, name)
            await anyio.wait_all_tasks_blocked()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await anyio.wait_all_tasks_blocked()

    async def _call(self, name: str) -> None:
        caller = Claimant(name.rstrip("0123456789"), name)
        waits = self.waits.setdefault(name, [])
        try:
            async with self.queue.slot(caller, 60, waits.append) as slot:
                self.served.append(name)
                self.slots[name] = slot
                await self._ends[name].wait()
        except DisplacedError:
            self.displaced.append(name)


@asynccontextmanager
async def calls_on(queue: CallQueue) -> AsyncIterator[Calls]:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            yield Calls(queue, group)
            group.cancel_scope.cancel()
    assert (queue.running, queue.waiting) == (0, 0)


@pytest.mark.proves("mcp-fair")
@pytest.mark.parametrize(
    ("slots", "shared", "alone"), [(1, True, 1), (3, True, 3), (4, True, 3), (16, True, 12), (16, False, 16)]
)
async def test_a_principal_alone_has_all_but_a_quarter_of_shared_slots(
    slots: int, shared: bool, alone: int
) -> None:
    async with calls_on(queue_of(slots, shared=shared)) as calls:
        await calls.start(*(f"ann{number}" for number in range(20)))
        assert len(calls.served) == alone
        await calls.start("bob1")
        assert calls.served[alone:] == (["bob1"] if alone < slots else [])


@pytest.mark.proves("mcp-fair")
async def test_principals_that_wait_are_served_in_turns() -> None:
    async with calls_on(queue_of(1)) as calls:
        await calls.start("ann1", "ann2", "ann3", "ann4", "bob1", "bob2", "cid1")
        for name in ("ann1", "ann2", "bob1", "cid1", "ann3", "bob2"):
            await calls.end(name)
        assert calls.served == ["ann1", "ann2", "bob1", "cid1", "ann3", "bob2", "ann4"]


@pytest.mark.proves("mcp-fair")
async def test_the_newest_waiting_call_makes_room() -> None:
    queue = queue_of(1)
    async with calls_on(queue) as calls:
        await calls.start("ann1", "ann2", "ann3", "bob1")
        assert queue.displace("ann")
        await anyio.wait_all_tasks_blocked()
        assert (calls.displaced, queue.waiting) == (["ann3"], 2)
        assert not queue.displace("cid")
        await calls.end("ann1", "ann2")
        assert calls.served == ["ann1", "ann2", "bob1"]


async def test_sessions_are_opened_only_when_all_slots_are_taken() -> None:
    queue = queue_of(2, most_sessions=2)
    async with calls_on(queue) as calls:
        await calls.start("ann1", "bob1")
        assert len(queue.sessions) == 1
        await calls.start("cid1")
        assert len(queue.sessions) == 2
        await calls.start("dan1", "eve1")
        assert (len(queue.sessions), queue.waiting) == (2, 1)
        taken = [calls.slots[name].session for name in calls.served]
        assert [taken.count(session) for session in queue.sessions] == [2, 2]


async def test_calls_that_run_go_on_when_there_are_fewer_slots_and_no_new_one_starts() -> None:
    queue = queue_of(4, shared=False)
    async with calls_on(queue) as calls:
        await calls.start("ann1", "ann2", "ann3")
        queue.limit(1)
        await calls.start("ann4")
        await calls.end("ann1", "ann2")
        assert calls.served == ["ann1", "ann2", "ann3"]
        await calls.end("ann3")
        assert calls.served[-1] == "ann4"


@pytest.mark.proves("map-contended")
async def test_a_question_that_blocks_other_calls_is_reported_to_both_and_withdrawn_in_time() -> None:
    queue = queue_of(1, contended=0.05)
    told: list[float] = []
    withdrawn = anyio.Event()
    async with calls_on(queue) as calls:
        await calls.start("ann1")
        calls.slots["ann1"].hold(told.append, withdrawn.set)
        assert not told, "nobody waits"
        assert [hold.ends_in_seconds for hold in queue.holds] == [math.inf]
        await calls.start("bob1")
        assert len(told) == len(calls.waits["bob1"]) == 1
        assert calls.waits["bob1"][0].caller == Claimant("ann", "ann1")
        assert 0 < calls.waits["bob1"][0].ends_in_seconds < 0.051
        await withdrawn.wait()
        assert not queue.holds
        await calls.end("ann1")
        assert calls.served == ["ann1", "bob1"]


@pytest.mark.proves("map-contended")
async def test_a_question_that_is_answered_is_not_withdrawn() -> None:
    queue = queue_of(1, contended=0.02)
    told: list[float] = []
    async with calls_on(queue) as calls:
        await calls.start("ann1", "bob1")
        calls.slots["ann1"].hold(told.append, told.clear)
        assert len(told) == 1
        calls.slots["ann1"].go_on()
        with pytest.raises(BusyError, match=r"busy for 0\.1 s"):
            async with queue.slot(Claimant("cid"), 0.1):
                pass
        assert len(told) == 1, "it was not taken back"


async def test_a_free_slot_for_another_call_keeps_a_question_open() -> None:
    queue = queue_of(4, contended=0.001)
    told: list[float] = []
    async with calls_on(queue) as calls:
        await calls.start("ann1", "ann2", "ann3", "ann4")
        assert queue.waiting == 1, "the last quarter is for others"
        calls.slots["ann1"].hold(told.append, lambda: told.append(math.inf))
        await anyio.sleep(0.01)
        assert not told, "a call of another would not have to wait"


async def test_the_question_that_was_open_longest_gives_way() -> None:
    queue = queue_of(1, most_sessions=2, contended=0.02)
    gave_way: list[str] = []
    async with calls_on(queue) as calls, AsyncExitStack():
        await calls.start("ann1", "bob1")
        withdrawn = anyio.Event()
        for name in ("bob1", "ann1"):
            calls.slots[name].hold(lambda _: None, lambda name=name: (gave_way.append(name), withdrawn.set()))
            await anyio.sleep(0)
        await calls.start("cid1")
        await withdrawn.wait()
        assert gave_way == ["bob1"]


@pytest.mark.proves("map-contended")
async def test_a_waiting_call_learns_of_a_question_on_arrival_and_once_it_is_next() -> None:
    queue = queue_of(2)
    async with calls_on(queue) as calls:
        await calls.start("ann1", "ann2")
        for name in ("ann1", "ann2"):
            calls.slots[name].hold(lambda _: None, lambda: None)
        await calls.start(*(f"bob{number}" for number in range(1, 41)))
        assert {name: len(calls.waits[name]) for name in calls.waits if name.startswith("bob")} == {
            f"bob{number}": 1 for number in range(1, 41)
        }
        calls.slots["ann1"].go_on()
        assert [len(calls.waits[name]) for name in ("bob1", "bob2", "bob40")] == [2, 1, 1]
        await calls.end("ann1")
        assert calls.served[-1] == "bob1"
        assert [hold.caller.task_id for hold in calls.waits["bob2"]] == ["ann1", "ann2"]


@pytest.mark.parametrize("open_questions", [10, 1_000])
async def test_the_cost_of_a_question_does_not_grow_with_open_questions_or_waiting_calls(
    open_questions: int,
) -> None:
    queue = queue_of(open_questions + 1, shared=False)
    async with AsyncExitStack() as stack:
        slots = [
            await stack.enter_async_context(queue.slot(Claimant("ann", str(number)), 60))
            for number in range(open_questions + 1)
        ]
        for slot in slots[1:]:
            slot.hold(lambda _: None, lambda: None)

        def ask_and_go_on() -> None:
            slots[0].hold(lambda _: None, lambda: None)
            slots[0].go_on()

        assert steps_of(ask_and_go_on) < 1_500


def steps_of(act: Callable[[], None]) -> int:
    """How many instructions of the interpreter it takes."""
    steps = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(before)
    return steps
