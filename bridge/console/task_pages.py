"""The searchable list of tasks, and the page of each task: its timeline, and the task in both protocols."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import ListTasksRequest, Role, Task, TaskState, is_id, milliseconds, timestamp
from bridge.a2a.model.progress import PROGRESS
from bridge.a2a.model.timeline import MOMENTS, Moment, MomentKind, timeline_of
from bridge.agents_as_agent.agent import ForwardingAgent
from bridge.assembly.bridge import Bridge
from bridge.concurrency import SlowWork
from bridge.console.console_access import Visit
from bridge.console.news import progress_words
from bridge.console.operations import WAITING, AgentOperations, operations_of, operations_on
from bridge.console.parts import answer_word, shown_message, shown_parts
from bridge.console.paths import path_of
from bridge.console.questions import asked_of
from bridge.http.request_checks import RefusedError
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.translate.blocks import ResultRules
from bridge.translate.extensions.bridge import SKILL
from bridge.translate.message_to_call import SkillCall, call_from_message
from bridge.translate.result import result_from_task

PAGE_SIZE: Final = 50
"""Tasks on a page of one agent."""

_FIRST_SIZE: Final = 10
"""Tasks of each agent on the page of all agents."""

_LOOKED_AT: Final = 1000
"""The most tasks that one search for a skill or principal reads."""

_LINE: Final = 200
"""The most characters of a task's text in a list."""

_ASKED: Final = ("agent", "state", "skill", "context", "principal")
"""The search fields. Only operators search by principal, because they see the tasks of all."""

_LOOKED_FOR: Final = {"skill": "skill", "principal": "owner"}
"""The search fields that no store supports, each with its field in a line of the list."""

_STATES: Final = {state.word: state for state in TaskState}

_MOMENTS: Final = {
    MomentKind.RECEIVED: "asked",
    MomentKind.SENT: "sent",
    MomentKind.MESSAGE: "another message",
    MomentKind.SAID: "the agent said something",
    MomentKind.CANCEL: "asked to cancel",
    MomentKind.RESUMED: "taken over by another process",
}


async def task_list(bridge: Bridge, visit: Visit) -> JsonObject:
    """The page of the list. The query may have the fields in `_ASKED`, and `page`."""
    asked = {name: visit.query.get(name, "").strip() for name in _ASKED}
    if asked["state"] and asked["state"] not in _STATES:
        raise RefusedError(400, "There is no such state")
    if asked["context"] and not is_id(asked["context"]):
        raise RefusedError(400, "There is no such context")
    known = operations_of(bridge, visit)
    chosen = [operations_on(bridge, visit, asked["agent"])] if asked["agent"] else known
    size = PAGE_SIZE if len(chosen) == 1 else _FIRST_SIZE
    return {
        "asked": {**asked},
        "agents": [one.agent.name for one in known],
        "of_all": visit.who.operator is not None,
        "states": [*_STATES],
        "lists": [await _listed(one, asked, visit, size) for one in chosen],
    }


async def _listed(one: AgentOperations, asked: Mapping[str, str], visit: Visit, size: int) -> JsonObject:
    """The tasks of one agent. A search by skill or principal reads a limited number of tasks, and shows the number."""
    token, looked, total = visit.query.get("page", "") if asked["agent"] else "", 0, 0
    looks = any(asked[key] for key in _LOOKED_FOR)
    rows: list[JsonObject] = []
    while True:
        request = ListTasksRequest(
            context_id=asked["context"] or None,
            status=_STATES.get(asked["state"]),
            page_size=size,
            page_token=token or None,
        )
        page = await one.tasks(request)
        found = [row_of(task, one) for task in page.tasks]
        rows += [
            row for row in found if all(asked[key] in ("", row[name]) for key, name in _LOOKED_FOR.items())
        ]
        token, looked, total = page.next_page_token, looked + len(found), page.total_size
        if not token or not looks or len(rows) >= size or looked >= _LOOKED_AT:
            break
    query = {**asked, "agent": one.agent.name, "page": token}
    return {
        "agent": one.agent.name,
        "tasks": [*rows],
        "total": total,
        "looked_at": looked if looks else None,
        "is_later_page": bool(visit.query.get("page")),
        "next": f"/tasks?{urlencode(_without_empty(query))}" if token else None,
        "all": f"/tasks?{urlencode(_without_empty({**query, 'page': ''}))}",
    }


def _without_empty(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def row_of(task: Task, one: AgentOperations) -> JsonObject:
    """A task as a line of a list."""
    return {
        "id": task.id,
        "agent": one.agent.name,
        "path": path_of_task(one.agent.name, task.id),
        "state": task.status.state.word,
        "skill": skill_of(task, one.agent.agent),
        "owner": one.owner_of(task),
        "context": task.context_id or "",
        "since": task.status.timestamp or "",
        "took_ms": _took_ms(task),
        "says": "" if one.withholds(task) else _says(task),
        "waits": task.status.state in WAITING,
    }


def _took_ms(task: Task) -> int | None:
    """How long a task took until its end, or has taken so far; None if its beginning is not recorded."""
    began = next((one.at_ms for one in timeline_of(task).moments if one.at_ms is not None), None)
    if began is None or not task.status.timestamp:
        return None
    is_over = task.status.state in ENDED
    until = milliseconds(task.status.timestamp) if is_over else int(time.time() * 1000)
    return max(until - began, 0)


def _says(task: Task) -> str:
    """The text of a task in a list: its progress, its question, or why it failed; "" for a completed task."""
    if task.status.state is TaskState.COMPLETED:
        return ""
    message = task.status.message
    words = " ".join(part.text for part in (message.parts if message else ()) if part.text)
    first = " ".join([*filter(None, [_numbers_of(task), words])]).strip().partition("\n")[0]
    return first if len(first) <= _LINE else f"{first[:_LINE]}…"


def _numbers_of(task: Task) -> str:
    """The progress of a working task in numbers; "" if its tool reports none."""
    if task.status.state is not TaskState.WORKING:
        return ""
    return progress_words((task.metadata or {}).get(PROGRESS))


def path_of_task(agent: str, task_id: str) -> str:
    """The path of a task's page, below the console."""
    return path_of("tasks", agent, task_id)


def skill_of(task: Task, agent: ToolsAgent | ForwardingAgent) -> str:
    """The skill of a task, from its metadata or its first message; "" if neither names a skill."""
    for metadata in (task.metadata, *(one.metadata for one in task.artifacts or ())):
        if isinstance(named := (metadata or {}).get(SKILL), str):
            return named
    call = call_of(task, agent)
    return "" if call is None else call.skill_id


def call_of(task: Task, agent: ToolsAgent | ForwardingAgent) -> SkillCall | None:
    """The call in the first message of a task; None if the message calls no skill that is served now."""
    first = next((message for message in task.history or () if message.role is Role.USER), None)
    if first is None or not isinstance(agent, ToolsAgent):
        return None
    tools = {skill.id: skill.tool for skill in agent.published}
    try:
        call = call_from_message(first, {}, tools, agent.options.route, agent.skill_set.book)
    except SlowWork:  # a page does not wait for a slow check
        return None
    return call if isinstance(call, SkillCall) else None


async def task_page(bridge: Bridge, visit: Visit, name: str, task_id: str) -> JsonObject:
    """The page of one task."""
    one = operations_on(bridge, visit, name)
    task = await one.task(task_id)

    def link(place: str) -> str:
        return f"{visit.root}{path_of_task(name, task_id)}/files/{place}"

    status = task.status
    return {
        **row_of(task, one),
        **asked_of(task, may_answer=one.may_answer(task)),
        "may_cancel": one.may_cancel(task),
        "withheld": one.withholds(task),
        "ended": status.state in ENDED,
        "progress": "" if one.withholds(task) or status.state is not TaskState.WORKING else _says(task),
        "said": None if status.message is None else shown_message(status.message, "s", link),
        "artifacts": [
            {
                "name": artifact.name or "",
                "description": artifact.description or "",
                "parts": shown_parts(f"a{number}", artifact.parts, link),
            }
            for number, artifact in enumerate(task.artifacts or ())
        ],
        "messages": [
            shown_message(message, f"m{number}", link) for number, message in enumerate(task.history or ())
        ],
        **_timeline(task, answers_in(task)),
        "a2a": task.to_object(),
        "mcp": {"call": None, "result": None} if one.withholds(task) else _as_mcp(task, one.agent.agent),
    }


def answers_in(task: Task) -> dict[str, str]:
    """The words for the answers in a client's messages, by message id."""
    found = {one.message_id: answer_word(one) for one in task.history or () if one.role is Role.USER}
    return {message_id: word for message_id, word in found.items() if word}


def _timeline(task: Task, answers: Mapping[str, str]) -> JsonObject:
    timeline = timeline_of(task)
    return {
        "moments": [_moment(moment, answers) for moment in timeline.moments],
        "left_out": timeline.left_out,
        "left_out_before": timeline.place_left_out,
        "is_recorded": isinstance((task.metadata or {}).get(MOMENTS), dict),
    }


def _moment(moment: Moment, answers: Mapping[str, str]) -> JsonObject:
    return {
        "what": answers.get(moment.message) or _MOMENTS.get(moment.kind, ""),
        "state": moment.state if moment.kind is MomentKind.STATE else "",
        "at": "" if moment.at_ms is None else timestamp(moment.at_ms),
        "by": moment.by,
        "peer": moment.peer,
        "trace": moment.trace,
    }


def _as_mcp(task: Task, agent: ToolsAgent | ForwardingAgent) -> JsonObject:
    """The task in MCP: the call of its first message, and its result. An unknown value is null. A task of a remote
    agent has neither."""
    if not isinstance(agent, ToolsAgent):
        return {"call": None, "result": None}
    call = call_of(task, agent)
    skills = {skill.id: skill for skill in agent.published}
    request: JsonObject | None = None
    if call is not None and (skill := skills.get(call.skill_id)) is not None:
        request = {"method": "tools/call", "params": {"name": skill.tool.name, "arguments": call.arguments}}
    is_over = task.status.state in ENDED
    result = result_from_task(task, ResultRules(extension_active=True)) if is_over else None
    return {"call": request, "result": result}
