"""Checks of SubscribeToTask. Spec: A2A 1.0 sections 3.1.6 and 3.5.2."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, SUBSCRIBE
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import Occasions, need_streams
from tests.a2a_checks.shapes import TERMINAL
from tests.a2a_checks.table import (
    Check,
    Level,
    Need,
    Section,
    require,
)
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, state_in, state_of


async def subscribes_with_a_snapshot(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.open()
    before = state_of(await agent.now(task))
    async with talk.stream(SUBSCRIBE, {"id": task["id"]}) as stream:
        first = (await stream.first()).value()
        require("task" in first and first["task"].get("id") == task["id"], "the task", first)
        states = (before, state_of(await agent.now(task)))
        require(state_of(first["task"]) in states, f"the task as it is, {' or '.join(states)}", first)


async def subscribes_to_what_waits(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.asking()
    async with talk.stream(SUBSCRIBE, {"id": task["id"]}) as stream:
        first = (await stream.first()).value()
        same = "task" in first and first["task"].get("id") == task["id"]
        require(same and state_of(first["task"]) == state_of(task), "the task as it is", first)


async def ends_subscriptions_at_the_end(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.working()
    async with talk.stream(SUBSCRIBE, {"id": task["id"]}) as stream:
        (await stream.first()).value()
        ended = await agent.canceled(task)
        events = await stream.rest()
    require(bool(events) and state_in(events[-1]) == state_of(ended), f"{state_of(ended)} last", events)


async def tells_all_the_same(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.working()
    params = {"id": task["id"]}
    async with talk.stream(SUBSCRIBE, params) as one, talk.stream(SUBSCRIBE, params) as two:
        for stream in (one, two):
            (await stream.first()).value()
        await talk.result(CANCEL, params)
        told = [await one.rest(), await two.rest()]
    fewer, more = sorted(told, key=len)  # the one that came later may have missed the task's beginning
    require(bool(fewer) and more[-len(fewer) :] == fewer, "the same events in each stream", told)


async def goes_on_without_a_stream(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.working()
    params = {"id": task["id"]}
    async with talk.stream(SUBSCRIBE, params) as left:
        async with talk.stream(SUBSCRIBE, params) as dropped:
            (await dropped.first()).value()
        (await left.first()).value()
        state = state_of(await agent.now(task))
        require(state not in TERMINAL, "a task that goes on", state)
        await talk.result(CANCEL, params)
        require(bool(await left.rest()), "the end in the stream that is left", "nothing")


async def subscribes_to_no_ended_task(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    task = await agent.ended()
    await talk.refused(Kind.UNSUPPORTED_OPERATION, SUBSCRIBE, {"id": task["id"]})


async def subscribes_to_no_unknown_task(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    await talk.refused(Kind.TASK_NOT_FOUND, SUBSCRIBE, {"id": UNKNOWN_TASK})


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.STREAMING, spec, Level.MUST, sentence, run, needs)


_S: Final = Need.STREAMS

CHECKS: Final = (
    _check(
        "subscribe-snapshot",
        "3.1.6",
        "SubscribeToTask begins with the Task as it is",
        subscribes_with_a_snapshot,
        _S,
        Need.OPEN,
    ),
    _check(
        "subscribe-closes",
        "3.1.6",
        "A subscription closes at the terminal state",
        ends_subscriptions_at_the_end,
        _S,
        Need.LONG,
    ),
    _check(
        "subscribe-same",
        "3.5.2",
        "Each stream gets the same events in the same order",
        tells_all_the_same,
        _S,
        Need.LONG,
    ),
    _check(
        "subscribe-dropped",
        "3.5.2",
        "Closing one stream affects no other stream, and not the task",
        goes_on_without_a_stream,
        _S,
        Need.LONG,
    ),
    _check(
        "subscribe-ended",
        "3.1.6",
        "SubscribeToTask of a task that has ended is UnsupportedOperation",
        subscribes_to_no_ended_task,
        _S,
        Need.TASK,
    ),
    _check(
        "subscribe-unknown",
        "3.1.6",
        "SubscribeToTask of a task that does not exist is TaskNotFound",
        subscribes_to_no_unknown_task,
        _S,
    ),
    _check(
        "subscribe-waiting",
        "3.1.6",
        "SubscribeToTask takes a task that asks for input",
        subscribes_to_what_waits,
        _S,
        Need.ASKS,
    ),
)
