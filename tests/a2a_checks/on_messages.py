"""Checks of which message is which, and which task it is for. Spec: A2A 1.0 sections 3.3.1 and 3.4.3.

The specification leaves most of it to the agent: these sentences are what a client can count on with good agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from tests.a2a_checks.bindings import CANCEL, SEND, Reply
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.occasions import ANSWERS_IN_PART, ASKS, Occasions
from tests.a2a_checks.table import Check, Level, Need, Section, require
from tests.a2a_checks.talk import Talk, new_id, state_of


async def tells_messages_apart_by_content(talk: Talk, agent: Occasions) -> None:
    message_id = new_id()
    first = await agent.task(messageId=message_id)
    second = await agent.task(ASKS, messageId=message_id)
    require(second["id"] != first["id"], "another task", f"the task {first['id']} of the other message")


async def knows_a_message_again(talk: Talk, agent: Occasions) -> None:
    message_id = new_id()
    first = await agent.working(messageId=message_id)
    again = await agent.working(messageId=message_id)
    require(again["id"] == first["id"], f"the task {first['id']} again", again["id"])


async def loses_no_message_while_it_works(talk: Talk, agent: Occasions) -> None:
    """The end of the task ends the wait for an answer: some answer no earlier."""
    working = await agent.working()
    said = agent.message(parts=[{"text": "and quickly"}], taskId=working["id"])
    replies: list[Reply] = []
    answered = anyio.Event()

    async def send() -> None:
        replies.append(await talk.ask(SEND, {"message": said}))
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        with anyio.move_on_after(talk.silence_seconds):
            await answered.wait()
        await talk.result(CANCEL, {"id": working["id"]})
        await answered.wait()
    (reply,) = replies
    if reply.refusal is not None:
        talk.require_refusal(reply, Kind.UNSUPPORTED_OPERATION)
        return
    task = reply.result.get("task") or {}
    require(
        task.get("id") == working["id"], f"the task {working['id']}, or UnsupportedOperation", reply.result
    )
    _require_in_history(said["messageId"], await agent.now(working))


async def keeps_questions_for_their_answers(talk: Talk, agent: Occasions) -> None:
    asking = await agent.asking()
    beside = await agent.task(contextId=asking["contextId"], configuration={"returnImmediately": True})
    require(beside["id"] != asking["id"], f"another task than {asking['id']}, which asks", beside["id"])
    state = state_of(await agent.now(asking))
    require(state == state_of(asking), "its question left open", state)


async def takes_the_same_words_again(talk: Talk, agent: Occasions) -> None:
    asking = await agent.asking_again(await agent.asking())
    said = agent.message(ANSWERS_IN_PART, taskId=asking["id"])
    task = (await talk.result(SEND, {"message": said})).get("task") or {}
    require(task.get("id") == asking["id"], f"the task {asking['id']}", task.get("id"))
    require(task.get("status") != asking["status"], "what came of the second answer", task.get("status"))
    _require_in_history(said["messageId"], await agent.now(asking))


def _require_in_history(message_id: str, task: Mapping[str, Any]) -> None:
    """An agent that tells no history at all says nothing of it."""
    ids = [said.get("messageId") for said in task.get("history") or ()]
    require(not ids or message_id in ids, f"a history with the message {message_id}", task.get("history"))


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.TURNS, spec, Level.SHOULD, sentence, run, needs)


CHECKS: Final = (
    _check(
        "message-id-other-content",
        "3.3.1",
        "The same messageId with other content is another message",
        tells_messages_apart_by_content,
        Need.TASK,
        Need.ASKS,
    ),
    _check(
        "message-id-at-work",
        "3.3.1",
        "The same messageId and content, while its task works, is the same message",
        knows_a_message_again,
        Need.LONG,
    ),
    _check(
        "turn-while-working",
        "3.4.3",
        "A message to a task that works is refused, or becomes part of it",
        loses_no_message_while_it_works,
        Need.LONG,
    ),
    _check(
        "turn-context-question",
        "3.4.3",
        "A message for a skill, with contextId alone, answers no task's question",
        keeps_questions_for_their_answers,
        Need.TASK,
        Need.ASKS,
    ),
    _check(
        "turn-same-words",
        "3.4.3",
        "The same words are an answer to the next question, too",
        takes_the_same_words_again,
        Need.ASKS,
        Need.ANSWERS_IN_PART,
    ),
)
