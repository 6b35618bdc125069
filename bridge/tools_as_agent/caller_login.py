"""A caller's own login, before its call goes to a server that wants a login of each caller.

Without a login the task is AUTH_REQUIRED with a link to a page of this bridge. It goes on by itself once the login is
there, wherever the browser was answered. A message meanwhile brings no login: the task asks again, with a new link. A
link that was not used in time leaves the task waiting for a message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio

from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks.agent import Job
from bridge.errors import PeerError
from bridge.http.logins import CallerLogins
from bridge.jsonvalues import JsonObject
from bridge.mcp.client.contract import ToolServer
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import Follow, ResumeMode, RunTool
from bridge.tools_as_agent.rounds import kept_question
from bridge.tools_as_agent.task_asker import PausableDeadline, QuestionPace, TaskAsker

_QUESTION: Final = "login"
_WANTED: Final = "{} wants you to log in"
_DECLINED: Final = "You declined to log in at {}, so it was not called"


async def logged_in(
    job: Job, upstream: ToolServer, decision: RunTool | Follow, options: AgentOptions
) -> bool:
    """Whether the caller has a login, if the server wants one. Without one the task has ended, or waits for a message.

    Raises:
        PeerError: the place of the logins cannot be read.
    """
    logins, principal = upstream.logins, job.turn.principal.name
    if logins is None or isinstance(decision, Follow):
        return True
    has_asked = False
    while not await logins.is_there(principal):
        has_asked = True
        answer = await _asked(job, logins, upstream.name, decision, options)
        if answer is None:
            return False
        if answer.get("action") != "accept":
            words = Part(text=_DECLINED.format(upstream.name))
            await job.status(TaskState.REJECTED, job.message((words,)), keep=b"")
            return False
    if has_asked:
        job.status(TaskState.WORKING)
    return True


async def _asked(
    job: Job, logins: CallerLogins, server: str, decision: RunTool, options: AgentOptions
) -> JsonObject | None:
    """What became of a link: the answer of a message or of the page; None if there was none in time."""
    principal = job.turn.principal.name
    params: JsonObject = {
        "mode": "url",
        "message": _WANTED.format(server),
        "url": logins.link(principal, f"the agent {server} over A2A"),
        "elicitationId": job.new_id(),
    }
    asker = TaskAsker(
        job,
        PausableDeadline(options.call_timeout_seconds),
        QuestionPace(server, logins.link_seconds, options.held_answer_seconds, 0),
        partial(kept_question, decision, ResumeMode.AGAIN),
        {},
        None,
    )
    found: list[JsonObject] = []
    faults: list[PeerError] = []

    async def from_message() -> JsonObject:
        return (await asker.ask({_QUESTION: params}))[_QUESTION]

    async def from_page() -> JsonObject:
        return {"action": "accept" if await logins.settled(principal) else "decline"}

    async def first(ask: Callable[[], Awaitable[JsonObject]]) -> None:
        try:
            found.append(await ask())
        except PeerError as exc:
            faults.append(exc)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first, from_page)
        tasks.start_soon(first, from_message)
    if faults:
        raise faults[0]
    return None if asker.gave_up else found[0]
