"""Checks of conversations. Spec: A2A 1.0 sections 3.4 and 7.6.1."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import SEND
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import ANSWERS, ASKS, Occasions
from tests.a2a_checks.shapes import TERMINAL
from tests.a2a_checks.table import Check, Level, Need, Section, require
from tests.a2a_checks.talk import Talk, new_id, state_of


async def makes_its_own_ids(talk: Talk, agent: Occasions) -> None:
    ids = [(await agent.task())["id"] for _ in range(3)]
    require(len(set(ids)) == len(ids), "three ids", ids)


async def takes_no_task_ids(talk: Talk, agent: Occasions) -> None:
    await talk.refused(Kind.TASK_NOT_FOUND, SEND, agent.send(taskId=new_id()))


async def gives_contexts(talk: Talk, agent: Occasions) -> None:
    task = await agent.task()
    context = task.get("contextId")
    require(isinstance(context, str) and bool(context), "the contextId that the agent made", task)


async def keeps_contexts(talk: Talk, agent: Occasions) -> None:
    context = new_id()
    reply = await talk.ask(SEND, agent.send(contextId=context))
    if reply.refusal is None:
        result = reply.result.get("task") or reply.result.get("message") or {}
        require(result.get("contextId") == context, f"{context}, or an error", result.get("contextId"))


async def goes_on_in_contexts(talk: Talk, agent: Occasions) -> None:
    first = await agent.task()
    second = await agent.task(contextId=first["contextId"])
    require(second.get("contextId") == first["contextId"], f"the context {first['contextId']}", second)
    require(second["id"] != first["id"], "another task", second["id"])


async def infers_contexts(talk: Talk, agent: Occasions) -> None:
    asking = await agent.asking()
    task = await agent.task(ANSWERS, taskId=asking["id"])
    same = (task["id"], task.get("contextId")) == (asking["id"], asking["contextId"])
    require(same, f"task {asking['id']} in context {asking['contextId']}", task)


async def takes_answers(talk: Talk, agent: Occasions) -> None:
    asking = await agent.asking()
    task = await agent.task(ANSWERS, taskId=asking["id"], contextId=asking["contextId"])
    require(task["id"] == asking["id"], f"task {asking['id']}", task["id"])
    require(state_of(await agent.now(task)) == state_of(task), "GetTask to agree", "another state")


async def refuses_mismatches(talk: Talk, agent: Occasions) -> None:
    asking = await agent.asking()
    params = agent.send(ASKS, taskId=asking["id"], contextId=new_id())
    talk.require_refusal(await talk.ask(SEND, params))
    state = state_of(await agent.now(asking))
    require(state == state_of(asking), "the task untouched", state)


async def explains_logins(talk: Talk, agent: Occasions) -> None:
    task = await agent.wanting_login()
    require(bool(task["status"].get("message")), "a message in the status", task["status"])


async def takes_messages_during_logins(talk: Talk, agent: Occasions) -> None:
    task = await agent.wanting_login()
    reply = await talk.ask(SEND, agent.send(taskId=task["id"], configuration={"returnImmediately": True}))
    result = reply.value()
    require("task" in result or "message" in result, "an answer", result)


async def lets_asking_tasks_be(talk: Talk, agent: Occasions) -> None:
    task = await agent.asking()
    state = state_of(await agent.now(task))
    require(state not in TERMINAL, "a task that waits", state)


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.TURNS, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check("turn-task-ids", "3.4.2", "Each new task has an id of its own", makes_its_own_ids, Need.TASK),
    _check(
        "turn-no-client-ids", "3.4.2", "A client cannot make a task's id: TaskNotFound", takes_no_task_ids
    ),
    _check(
        "turn-context-given",
        "3.4.1",
        "A task tells the contextId that the agent made",
        gives_contexts,
        Need.TASK,
    ),
    _check(
        "turn-context-kept",
        "3.4.1",
        "A client's contextId is kept or refused, never replaced",
        keeps_contexts,
    ),
    _check(
        "turn-context-goes-on",
        "3.4.3",
        "contextId alone begins another task in the same context",
        goes_on_in_contexts,
        Need.TASK,
    ),
    _check(
        "turn-context-inferred",
        "3.4.3",
        "taskId alone goes on in the task's context",
        infers_contexts,
        Need.ASKS,
        Need.ANSWERS,
    ),
    _check(
        "turn-answer",
        "3.4.3",
        "A message with taskId and contextId goes on with that task",
        takes_answers,
        Need.ASKS,
        Need.ANSWERS,
    ),
    _check(
        "turn-mismatch",
        "3.4.3",
        "A contextId that is not the task's is refused",
        refuses_mismatches,
        Need.ASKS,
    ),
    _check("turn-waits", "3.4.3", "A task that asks for input waits", lets_asking_tasks_be, Need.ASKS),
    _check(
        "turn-auth-explained",
        "7.6.1",
        "A task that asks for a login says what for",
        explains_logins,
        Need.LOGIN,
    ),
    _check(
        "turn-auth-messages",
        "7.6.1",
        "A task that asks for a login takes messages",
        takes_messages_during_logins,
        Need.LOGIN,
        level=Level.SHOULD,
    ),
)
