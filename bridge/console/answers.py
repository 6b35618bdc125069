"""The page of tasks that wait for a person, and the answers to their questions.

An answer is sent to the task as a message, as any client of the agent would send it.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import urlencode

from pydantic import JsonValue

from bridge.a2a.model.objects import Task
from bridge.assembly.bridge import Bridge
from bridge.concurrency import done_slowly
from bridge.console.console_access import Visit
from bridge.console.forms import WrongValuesError, form_problems
from bridge.console.operations import WAITING, AgentOperations, operations_of, operations_on
from bridge.console.questions import asked_of, questions_in, schema_of
from bridge.console.task_pages import row_of, skill_of
from bridge.http.request_checks import RefusedError
from bridge.text.jsonvalues import JsonObject
from bridge.translate.agent_questions import (
    AgentQuestion,
    AskingTask,
    answer_message,
    questions_mark,
)
from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal

WAITING_MOST: Final = 20
"""The most tasks of one agent in one state on the page."""


async def waiting_page(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page of waiting tasks, the newest first. If an agent has more tasks in a state, a link leads to them."""
    agent, word, token = (visit.query.get(name, "") for name in ("agent", "state", "page"))
    states = {state.word: state for state in WAITING}
    if word and word not in states:
        raise RefusedError(400, "No task waits in this state")
    rows: list[JsonObject] = []
    more: list[JsonValue] = []
    total = 0
    chosen = [operations_on(bridge, visit, agent)] if agent else operations_of(bridge, visit)
    for operations in chosen:
        for state in [states[word]] if word else WAITING:
            page = await operations.to_answer(state, WAITING_MOST, token if agent and word else "")
            rows += [
                {**row_of(task, operations), **asked_of(task, may_answer=operations.may_answer(task))}
                for task in page.tasks
            ]
            total += page.total_size
            if page.next_page_token:
                query = {"agent": operations.agent.name, "state": state.word, "page": page.next_page_token}
                more.append({**query, "next": f"/answer?{urlencode(query)}"})
    unseen = 0 if agent else sum([await operations.waiting_unseen() for operations in chosen])
    newest = sorted(rows, key=lambda row: str(row["since"]), reverse=True)
    return {"tasks": [*newest], "total": total, "more": more, "is_part": bool(agent), "unseen": unseen}


async def answer(bridge: Bridge, visit: Visit, agent: str, task_id: str, body: JsonObject) -> None:
    """Answer all questions of a task in one message.

    Raises:
        RefusedError: 400, the answer is malformed; 409, it is for another question.
        WrongValuesError: the answer does not fit its form.
        A2AError: the agent refuses the answer.
    """
    operations = operations_on(bridge, visit, agent)
    task = await operations.task(task_id)
    questions = questions_in(task)
    if not questions or questions_mark(questions) != body.get("mark"):
        raise RefusedError(409, "The question of the task has changed or is answered: load the page again")
    action, given = body.get("action"), body.get("answers")
    if action not in set(ElicitAction):
        raise RefusedError(400, "An answer has the action accept, decline or cancel")
    contents = given if isinstance(given, dict) else {}
    if action == ElicitAction.ACCEPT:
        await done_slowly(partial(_require_fitting, questions, contents))
    await _send(
        operations,
        task,
        questions,
        {question.key: _response(str(action), contents.get(question.key)) for question in questions},
    )


async def _send(
    operations: AgentOperations, task: Task, questions: tuple[AgentQuestion, ...], responses: JsonObject
) -> None:
    state = f"{task.id} {questions_mark(questions)}"
    waiting = AskingTask(state, task.id, task.context_id, skill_of(task, operations.agent.agent) or None)
    message = answer_message(questions, responses, waiting)
    if isinstance(message, UntoldRefusal):
        await operations.cancel(task.id)
    elif message is not None:
        await operations.send(message)


def _response(action: str, content: JsonValue) -> JsonObject:
    return {"action": action, **({"content": content} if action == ElicitAction.ACCEPT else {})}


def _require_fitting(questions: tuple[AgentQuestion, ...], contents: JsonObject) -> None:
    problems: list[JsonObject] = []
    for question in questions:
        content = contents.get(question.key)
        values = content if isinstance(content, dict) else {}
        if question.mode == "form":
            problems += [
                {**problem, "question": question.key}
                for problem in form_problems(schema_of(question), values)
            ]
    if problems:
        raise WrongValuesError(problems)
