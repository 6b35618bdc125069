"""Checks of GetTask and CancelTask. Spec: A2A 1.0 sections 3.1.3, 3.1.5, 3.2.4, 3.7, 5.1."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, GET
from tests.a2a_checks.errors import Fault, Kind
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.shapes import without_defaults
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, state_of


async def omits_history_at_zero(talk: Talk, agent: Occasions) -> None:
    task = await agent.task(configuration={"historyLength": 0})
    found = await talk.result(GET, {"id": task["id"], "historyLength": 0})
    require(
        "history" not in task and "history" not in found,
        "no field history",
        [task.get("history"), found.get("history")],
    )


async def limits_history(talk: Talk, agent: Occasions) -> None:
    task = await agent.task(configuration={"historyLength": 1})
    for limit in (1, 2, 0):
        found = await talk.result(GET, {"id": task["id"], "historyLength": limit})
        require(len(found.get("history") or ()) <= limit, f"at most {limit} messages", found.get("history"))
    require(len(task.get("history") or ()) <= 1, "at most 1 message", task.get("history"))


async def keeps_its_last_words(talk: Talk, agent: Occasions) -> None:
    canceled = await agent.canceled(await agent.open())
    words = canceled["status"].get("message")
    need(isinstance(words, dict), "a task is canceled without a word")
    params = {"id": canceled["id"]}
    for found in (
        canceled,
        await talk.result(GET, params),
        await talk.result(GET, {**params, "historyLength": 1}),
    ):
        last_ids = [said.get("messageId") for said in found.get("history") or ()]
        fine = last_ids[-1:] == [words["messageId"]] and last_ids.count(words["messageId"]) == 1
        require(
            fine, f"a history that ends with the message {words['messageId']}, once", found.get("history")
        )


async def refuses_negative_history(talk: Talk, agent: Occasions) -> None:
    task = await agent.task()
    await talk.refused(Fault.INVALID_PARAMS, GET, {"id": task["id"], "historyLength": -5})


async def finds_no_unknown_task(talk: Talk, agent: Occasions) -> None:
    for task_id in (UNKNOWN_TASK, "00000000-0000-4000-8000-000000000000", "no such: \u00e4 ?#%&+"):
        await talk.refused(Kind.TASK_NOT_FOUND, GET, {"id": task_id})


async def cancels_no_unknown_task(talk: Talk, agent: Occasions) -> None:
    await talk.refused(Kind.TASK_NOT_FOUND, CANCEL, {"id": UNKNOWN_TASK})


async def cancels_no_ended_task(talk: Talk, agent: Occasions) -> None:
    task = await agent.ended()
    await talk.refused(Kind.TASK_NOT_CANCELABLE, CANCEL, {"id": task["id"]})


async def cancels(talk: Talk, agent: Occasions) -> None:
    task = await agent.open()
    canceled = await talk.result(CANCEL, {"id": task["id"]})
    require(canceled.get("id") == task["id"], f"the task {task['id']}", canceled)
    found = await agent.now(task)
    require(state_of(found) == state_of(canceled), f"GetTask to agree: {state_of(canceled)}", state_of(found))


async def cancels_what_waits(talk: Talk, agent: Occasions) -> None:
    task = await agent.asking()
    canceled = await talk.result(CANCEL, {"id": task["id"]})
    require(canceled.get("id") == task["id"], f"the task {task['id']}", canceled)
    require(state_of(await agent.now(task)) == state_of(canceled), "GetTask to agree", canceled)


async def cancels_again(talk: Talk, agent: Occasions) -> None:
    task = await agent.canceled(await agent.open())
    reply = await talk.ask(CANCEL, {"id": task["id"]})
    if reply.refusal is None:
        require(state_of(reply.result) == state_of(task), f"still {state_of(task)}", reply.result)
    else:
        talk.require_refusal(reply, Kind.TASK_NOT_CANCELABLE, Kind.TASK_NOT_FOUND)
    require(state_of(await agent.now(task)) == state_of(task), f"still {state_of(task)}", "another state")


async def is_the_same_over_both(talk: Talk, agent: Occasions) -> None:
    need(bool(talk.others), "the card declares one binding only")
    task = await agent.task()
    here = await talk.result(GET, {"id": task["id"]})
    for other in talk.others:
        there = await other.result(GET, {"id": task["id"]})
        same = without_defaults(here) == without_defaults(there)
        require(same, f"the same task over {other.binding.name}: {here}", there)


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.OPERATIONS, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check(
        "history-zero",
        "3.2.4",
        "With historyLength 0 there is no field history",
        omits_history_at_zero,
        Need.TASK,
        level=Level.SHOULD,
    ),
    _check(
        "history-limit",
        "3.2.4",
        "There are never more messages in history than historyLength",
        limits_history,
        Need.TASK,
    ),
    _check(
        "history-final",
        "3.7",
        "What a task ended with is the newest message of its history, once",
        keeps_its_last_words,
        Need.OPEN,
        level=Level.SHOULD,
    ),
    _check(
        "history-negative",
        "3.3.2",
        "A negative historyLength is refused",
        refuses_negative_history,
        Need.TASK,
    ),
    _check(
        "get-unknown", "3.1.3", "GetTask of a task that does not exist is TaskNotFound", finds_no_unknown_task
    ),
    _check("cancel-open", "3.1.5", "CancelTask answers with the task as it then is", cancels, Need.OPEN),
    _check(
        "cancel-ended",
        "3.1.5",
        "CancelTask of a task that has ended is TaskNotCancelable",
        cancels_no_ended_task,
        Need.TASK,
    ),
    _check(
        "cancel-twice", "3.3.1", "Canceling twice has the effect of canceling once", cancels_again, Need.OPEN
    ),
    _check(
        "cancel-unknown",
        "3.1.5",
        "CancelTask of a task that does not exist is TaskNotFound",
        cancels_no_unknown_task,
    ),
    _check(
        "same-over-both",
        "5.1",
        "A task is the same over each binding",
        is_the_same_over_both,
        Need.TASK,
        Need.BOTH_BINDINGS,
    ),
    _check(
        "cancel-waiting",
        "3.1.5",
        "CancelTask takes a task that asks for input, too",
        cancels_what_waits,
        Need.ASKS,
    ),
)
