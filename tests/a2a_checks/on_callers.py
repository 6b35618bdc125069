"""Checks of two callers: what one has begun is not there for the other. Spec: A2A 1.0 sections 3.3.2 and 13.1.

An agent may let callers share their tasks. The two tokens have to be of callers who do not.
"""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, CREATE_PUSH, GET, GET_PUSH, LIST, LIST_PUSH, SEND, SUBSCRIBE
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.on_optional import HOOK
from tests.a2a_checks.shapes import TERMINAL
from tests.a2a_checks.table import Check, Level, Need, NotTried, Section, need, require
from tests.a2a_checks.talk import Talk, new_id, state_of


def _stranger(talk: Talk) -> Talk:
    """The other caller."""
    need(talk.card.needs_credential, "the card requires no authentication")
    if talk.stranger is None:
        raise NotTried("no token of a second caller was given")
    return talk.stranger


async def reads_no_task_of_another(talk: Talk, agent: Occasions) -> None:
    stranger, task = _stranger(talk), await agent.task()
    await stranger.refused(Kind.TASK_NOT_FOUND, GET, {"id": task["id"]})


async def lists_no_task_of_another(talk: Talk, agent: Occasions) -> None:
    stranger, task = _stranger(talk), await agent.task()
    for params in ({}, {"contextId": task["contextId"]}):
        listed = (await stranger.result(LIST, params)).get("tasks") or []
        found = [one.get("id") for one in listed]
        require(task["id"] not in found, "a list without the other caller's task", found)


async def cancels_no_task_of_another(talk: Talk, agent: Occasions) -> None:
    stranger, task = _stranger(talk), await agent.open()
    await stranger.refused(Kind.TASK_NOT_FOUND, CANCEL, {"id": task["id"]})
    now = state_of(await agent.now(task))
    require(now not in TERMINAL, "a task that goes on", now)


async def follows_no_task_of_another(talk: Talk, agent: Occasions) -> None:
    need(talk.card.capabilities.get("streaming") is True, "the agent declares no streaming")
    stranger, task = _stranger(talk), await agent.open()
    await stranger.refused(Kind.TASK_NOT_FOUND, SUBSCRIBE, {"id": task["id"]})


async def answers_no_task_of_another(talk: Talk, agent: Occasions) -> None:
    stranger, task = _stranger(talk), await agent.asking()
    await stranger.refused(Kind.TASK_NOT_FOUND, SEND, agent.send(taskId=task["id"]))
    now = state_of(await agent.now(task))
    require(now == state_of(task), f"the task as it was, {state_of(task)}", now)


async def sees_no_webhook_of_another(talk: Talk, agent: Occasions) -> None:
    need(talk.card.capabilities.get("pushNotifications") is True, "the agent declares no pushNotifications")
    stranger, task = _stranger(talk), await agent.open()
    made = await talk.result(CREATE_PUSH, {"taskId": task["id"], "id": new_id(), "url": HOOK})
    of_task = {"taskId": task["id"]}
    for operation, params in (
        (LIST_PUSH, of_task),
        (GET_PUSH, {**of_task, "id": made["id"]}),
        (CREATE_PUSH, {**of_task, "id": new_id(), "url": HOOK}),
    ):
        await stranger.refused(Kind.TASK_NOT_FOUND, operation, params)


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.ACCESS, spec, Level.MUST, sentence, run, (Need.OTHER_CALLER, *needs))


CHECKS: Final = (
    _check(
        "callers-get",
        "3.3.2",
        "Another caller's task is TaskNotFound",
        reads_no_task_of_another,
        Need.TASK,
    ),
    _check(
        "callers-list",
        "13.1",
        "Another caller's tasks are in no list",
        lists_no_task_of_another,
        Need.TASK,
    ),
    _check(
        "callers-cancel",
        "13.1",
        "Another caller cannot cancel a task",
        cancels_no_task_of_another,
        Need.OPEN,
    ),
    _check(
        "callers-subscribe",
        "13.1",
        "Another caller cannot subscribe to a task",
        follows_no_task_of_another,
        Need.OPEN,
        Need.STREAMS,
    ),
    _check(
        "callers-send",
        "3.3.2",
        "Another caller cannot answer a task that asks",
        answers_no_task_of_another,
        Need.ASKS,
    ),
    _check(
        "callers-push",
        "13.1",
        "Another caller sees no push configuration of a task, and adds none",
        sees_no_webhook_of_another,
        Need.OPEN,
        Need.PUSH,
    ),
)
