"""Checks of ListTasks. Spec: A2A 1.0 section 3.1.4, and ListTasksRequest in the proto.

Each looks at the tasks of one context only: what others have the agent do does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tests.a2a_checks.bindings import LIST
from tests.a2a_checks.errors import Fault
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.shapes import without_defaults
from tests.a2a_checks.table import Check, Level, Need, Section, need, require
from tests.a2a_checks.talk import Talk, new_id, state_of

TASKS: Final = 3
MAX_PAGES: Final = 20


async def _context(agent: Occasions) -> tuple[str, list[dict[str, Any]]]:
    """A context with three tasks."""
    first = await agent.task()
    need(isinstance(first.get("contextId"), str), "tasks have no contextId")
    context = str(first["contextId"])
    return context, [first, *[await agent.task(contextId=context) for _ in range(TASKS - 1)]]


async def _page(talk: Talk, context: str, **more: Any) -> Mapping[str, Any]:
    page = await talk.result(LIST, {"contextId": context, **more})
    require(isinstance(page, dict), "an object", page)
    require(isinstance(page.get("tasks", []), list), "an array of tasks", page)
    return dict(page)


async def has_all_fields(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    page = await _page(talk, context)
    types = {"tasks": list, "pageSize": int, "totalSize": int}
    fine = all(isinstance(page.get(name), kind) for name, kind in types.items())
    require(fine, "tasks, pageSize and totalSize", page)
    one = await _page(talk, context, pageSize=1)
    for total in (page["totalSize"], one.get("totalSize")):
        require(total == len(tasks), f"totalSize {len(tasks)}, however many a page has", total)


async def always_has_a_token(talk: Talk, agent: Occasions) -> None:
    context, _ = await _context(agent)
    for asked in ({}, {"pageSize": 1}):
        page = await _page(talk, context, **asked)
        require(isinstance(page.get("nextPageToken"), str), "nextPageToken, a string", page)
    whole = await _page(talk, context, pageSize=100)
    require(whole.get("nextPageToken") == "", "an empty nextPageToken at the end", whole)
    nothing = await _page(talk, new_id())
    require(nothing.get("nextPageToken") == "", "an empty nextPageToken where nothing is found", nothing)


async def pages_by_cursor(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    found: list[str] = []
    token = ""
    for _ in range(MAX_PAGES):
        page = await _page(talk, context, pageSize=1, **({"pageToken": token} if token else {}))
        require(len(page["tasks"]) <= 1, "at most one task a page", page)
        found += [task["id"] for task in page["tasks"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    require(sorted(found) == sorted(task["id"] for task in tasks), "each task once", found)


async def sorts_newest_first(talk: Talk, agent: Occasions) -> None:
    context, _ = await _context(agent)
    listed = (await _page(talk, context)).get("tasks") or []
    times = [task.get("status", {}).get("timestamp") for task in listed]
    need(all(isinstance(time, str) for time in times), "statuses have no timestamp")
    moments = [datetime.fromisoformat(time) for time in times]
    require(moments == sorted(moments, reverse=True), "status timestamps in descending order", times)


async def lists_only_the_context(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    await agent.task()
    listed = (await _page(talk, context))["tasks"]
    require({task["id"] for task in listed} == {task["id"] for task in tasks}, "the context's tasks", listed)
    nothing = await _page(talk, new_id())
    require(not nothing.get("tasks"), "no task of an unknown context", nothing)


async def filters_by_status(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    state = state_of(tasks[0])
    listed = (await _page(talk, context, status=state))["tasks"]
    expected = {task["id"] for task in tasks if state_of(task) == state}
    require({task["id"] for task in listed} == expected, f"the tasks that are {state}", listed)
    other = await _page(talk, context, status="TASK_STATE_SUBMITTED")
    require(not other.get("tasks"), "no task that is TASK_STATE_SUBMITTED", other)


async def filters_by_time(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    last = tasks[-1]["status"].get("timestamp")
    need(isinstance(last, str), "statuses have no timestamp")
    listed = (await _page(talk, context, statusTimestampAfter=last))["tasks"]
    require(
        tasks[-1]["id"] in [task["id"] for task in listed], f"the task of {last}, which is not before", listed
    )
    for time in ("2000-01-01T00:00:00Z", "2000-01-01T00:00:00.123456789Z"):
        everything = await _page(talk, context, statusTimestampAfter=time)
        require(len(everything["tasks"]) == len(tasks), f"all tasks since {time}", everything)
    nothing = await _page(talk, context, statusTimestampAfter="2999-01-01T00:00:00Z")
    require(not nothing.get("tasks"), "no task of the future", nothing)


async def omits_artifacts(talk: Talk, agent: Occasions) -> None:
    context = (await agent.completed())["contextId"]
    for asked in ({}, {"includeArtifacts": False}):
        listed = (await _page(talk, context, **asked))["tasks"]
        require(bool(listed), "the task", listed)
        require(all("artifacts" not in task for task in listed), "no field artifacts", listed)


async def includes_artifacts(talk: Talk, agent: Occasions) -> None:
    task = await agent.completed()
    listed = (await _page(talk, task["contextId"], includeArtifacts=True))["tasks"]
    found = next((one.get("artifacts") for one in listed if one["id"] == task["id"]), None)
    same = without_defaults(found) == without_defaults(task["artifacts"])
    require(same, f"the task's artifacts: {task['artifacts']}", found)


async def limits_history(talk: Talk, agent: Occasions) -> None:
    context, _ = await _context(agent)
    for limit in (0, 1):
        listed = (await _page(talk, context, historyLength=limit))["tasks"]
        fine = all(len(task.get("history") or ()) <= limit for task in listed)
        require(fine, f"at most {limit} messages of history", listed)


async def keeps_to_page_sizes(talk: Talk, agent: Occasions) -> None:
    context, _ = await _context(agent)
    page = await _page(talk, context)
    require(page.get("pageSize", 0) <= 50, "at most 50 tasks by default", page.get("pageSize"))
    for size in (1, 100):
        require(len((await _page(talk, context, pageSize=size))["tasks"]) <= size, f"at most {size}", "more")


async def _refused(talk: Talk, **asked: Any) -> None:
    await talk.refused(Fault.INVALID_PARAMS, LIST, {"contextId": new_id(), **asked})


async def begins_at_an_empty_token(talk: Talk, agent: Occasions) -> None:
    context, tasks = await _context(agent)
    page = await _page(talk, context, pageToken="")
    require(len(page["tasks"]) == len(tasks), "the first page", page)


async def refuses_page_sizes(talk: Talk, agent: Occasions) -> None:
    for size in (0, -1, 101):
        await _refused(talk, pageSize=size)


async def refuses_unknown_states(talk: Talk, agent: Occasions) -> None:
    await _refused(talk, status="TASK_STATE_RUNNING")


async def refuses_strange_tokens(talk: Talk, agent: Occasions) -> None:
    await _refused(talk, pageToken="a2a-checks: no token of yours")


async def refuses_strange_times(talk: Talk, agent: Occasions) -> None:
    await _refused(talk, statusTimestampAfter="yesterday")


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.LISTING, spec, level, sentence, run, needs)


CHECKS: Final = (
    _check("list-fields", "3.1.4", "A page has tasks, pageSize and totalSize", has_all_fields, Need.TASK),
    _check(
        "list-token",
        "3.1.4",
        'nextPageToken is always there, and "" at the end',
        always_has_a_token,
        Need.TASK,
    ),
    _check("list-pages", "3.1.4", "Pages by cursor show each task once", pages_by_cursor, Need.TASK),
    _check(
        "list-order",
        "3.1.4",
        "Tasks come by status timestamp, the newest first",
        sorts_newest_first,
        Need.TASK,
    ),
    _check(
        "list-context",
        "3.1.4",
        "contextId lists the tasks of that context alone",
        lists_only_the_context,
        Need.TASK,
    ),
    _check(
        "list-status", "3.1.4", "status lists the tasks in that state alone", filters_by_status, Need.TASK
    ),
    _check(
        "list-after",
        "3.1.4",
        "statusTimestampAfter lists what changed then or later",
        filters_by_time,
        Need.TASK,
    ),
    _check(
        "list-no-artifacts",
        "3.1.4",
        "Artifacts are left out unless they are asked for",
        omits_artifacts,
        Need.ARTIFACT,
    ),
    _check(
        "list-artifacts",
        "3.1.4",
        "includeArtifacts shows them",
        includes_artifacts,
        Need.ARTIFACT,
        level=Level.SHOULD,
    ),
    _check("list-history", "3.2.4", "historyLength limits the history of each", limits_history, Need.TASK),
    _check(
        "list-page-size",
        "3.1.4",
        "A page has at most pageSize tasks, 50 by default",
        keeps_to_page_sizes,
        Need.TASK,
    ),
    _check("list-page-size-range", "3.3.2", "A pageSize outside 1 to 100 is refused", refuses_page_sizes),
    _check("list-unknown-status", "3.3.2", "A status that does not exist is refused", refuses_unknown_states),
    _check(
        "list-strange-token",
        "3.3.2",
        "A pageToken that the agent has not given out is refused",
        refuses_strange_tokens,
    ),
    _check(
        "list-strange-time",
        "3.3.2",
        "A statusTimestampAfter that is no timestamp is refused",
        refuses_strange_times,
    ),
    _check(
        "list-empty-token",
        "3.1.4",
        "An empty pageToken is none: the first page",
        begins_at_an_empty_token,
        Need.TASK,
    ),
)
