"""Waiting for a task: what wakes the waiters, and how often they read the task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from bridge.agents_as_tools.handles import FarTask, webhook_of
from bridge.agents_as_tools.push_hints import HintWaiter, PushHints
from bridge.seal import agent_mark
from tests.support.limits import PROFILE

pytestmark = pytest.mark.proves("a2a-4.3.3-received")

WAIT_SECONDS = 30
TASK = FarTask(agent_mark("https://agent.example"), "t-1")
WEBHOOK = webhook_of(TASK, "alice")
NEVER = 3600.0


@asynccontextmanager
async def waiting(waiter: HintWaiter, seconds: float) -> AsyncIterator[anyio.Event]:
    """A waiter in its pause. Gives an event that is set once the pause is over."""
    over = anyio.Event()

    async def pause() -> None:
        await waiter.pause(seconds)
        over.set()

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(pause)
            await anyio.wait_all_tasks_blocked()
            yield over
            group.cancel_scope.cancel()


async def test_a_notification_ends_the_pause_of_waiters_for_its_task_only() -> None:
    hints, options = (
        PushHints(),
        PROFILE.agents.having(push_poll_seconds=NEVER, push_look_seconds=0, push_tasks=1),
    )
    others = (
        webhook_of(FarTask(TASK.agent, "t-2"), "alice"),
        webhook_of(FarTask(agent_mark("https://other.example"), "t-1"), "alice"),
        webhook_of(TASK, "bob"),
    )
    with hints.waiting(WEBHOOK, options) as waiter:
        async with waiting(waiter, NEVER) as over:
            for other in others:
                hints.take(other)
            await anyio.wait_all_tasks_blocked()
            assert not over.is_set()
            hints.take(WEBHOOK)
            await over.wait()


async def test_a_task_is_polled_slowly_once_its_agent_is_known_to_notify() -> None:
    hints, options = (
        PushHints(),
        PROFILE.agents.having(push_poll_seconds=NEVER, push_look_seconds=0, push_tasks=1),
    )
    with anyio.fail_after(WAIT_SECONDS), hints.waiting(WEBHOOK, options) as waiter:
        await waiter.pause(0)
        with hints.in_place(WEBHOOK):
            await waiter.pause(NEVER)  # what happened before the webhook is read at once
            await waiter.pause(0)  # no notification of the agent has arrived yet
            hints.take(WEBHOOK)
            await waiter.pause(NEVER)
            async with waiting(waiter, 0) as over:
                assert not over.is_set()
                hints.take(WEBHOOK)
                await over.wait()
        await waiter.pause(NEVER)  # the webhook is gone
        await waiter.pause(0)


async def test_the_slow_poll_reads_a_task_whose_notification_was_lost() -> None:
    hints, options = (
        PushHints(),
        PROFILE.agents.having(push_poll_seconds=0.01, push_look_seconds=0, push_tasks=1),
    )
    with anyio.fail_after(WAIT_SECONDS), hints.waiting(WEBHOOK, options) as waiter, hints.in_place(WEBHOOK):
        hints.take(WEBHOOK)
        await waiter.pause(0)
        await waiter.pause(0)


async def test_a_notification_that_comes_while_the_task_is_read_is_not_lost() -> None:
    hints, options = (
        PushHints(),
        PROFILE.agents.having(push_poll_seconds=NEVER, push_look_seconds=0, push_tasks=1),
    )
    with anyio.fail_after(WAIT_SECONDS), hints.waiting(WEBHOOK, options) as waiter:
        hints.take(WEBHOOK)
        await waiter.pause(NEVER)
        hints.take(WEBHOOK)
        hints.take(WEBHOOK)
        await waiter.pause(NEVER)
        async with waiting(waiter, NEVER) as over:
            assert not over.is_set()


async def test_many_notifications_cause_only_one_read_per_interval() -> None:
    hints, options = (
        PushHints(),
        PROFILE.agents.having(push_poll_seconds=NEVER, push_look_seconds=NEVER, push_tasks=1),
    )
    with anyio.fail_after(WAIT_SECONDS), hints.waiting(WEBHOOK, options) as waiter:
        hints.take(WEBHOOK)
        await waiter.pause(NEVER)
        async with waiting(waiter, NEVER) as over:
            for _ in range(10_000):
                hints.take(WEBHOOK)
            await anyio.wait_all_tasks_blocked()
            assert not over.is_set()


async def test_a_hint_of_another_replica_wakes_its_waiters_and_a_lost_hint_wakes_all() -> None:
    here, there = PushHints(), PushHints()
    here.pass_on = there.take_word
    options = PROFILE.agents.having(push_poll_seconds=NEVER, push_look_seconds=0, push_tasks=1)
    with anyio.fail_after(WAIT_SECONDS), there.waiting(WEBHOOK, options) as waiter:
        here.take(WEBHOOK)
        await waiter.pause(NEVER)
        there.take_word("")
        await waiter.pause(NEVER)
        there.take_word("another word that nobody waits for")
        await waiter.pause(0)
