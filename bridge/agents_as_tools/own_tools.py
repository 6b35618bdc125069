"""Runs calls of the bridge's own tools; `translate/own_tools.py` defines how they are listed.

`task_result` waits longer for a task, `task_reply` answers the task's question, and `task_cancel` cancels the task. The
host's handle names the task, and the agent knows its state, so no state is kept here. `find_skill` and `call_skill`
replace the skills when there are too many skills to list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

import anyio

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import Pause, converse, wait_until_settled
from bridge.a2a.model.life import ENDED, INTERRUPTED, SETTLED
from bridge.a2a.model.objects import Message, SendMessageConfiguration, SendMessageRequest, Task, TaskState
from bridge.agents_as_tools.handles import FarTask
from bridge.agents_as_tools.sending import FaceRuntime, UnnamedMessages, canceled_task
from bridge.agents_as_tools.tool_results import ToolResults
from bridge.agents_as_tools.tools import PublishedTool, Tools
from bridge.concurrency import done_slowly
from bridge.errors import PeerError, echoed
from bridge.mcp.server.face import IncomingCall
from bridge.remotes.remote_agent import RemoteAgent
from bridge.text.jsonvalues import JsonObject
from bridge.translate.agent_questions import AskingTask, answer_message
from bridge.translate.call_to_message import (
    BadArgumentsError,
    MessageIds,
    message_from_reply,
    refusal_in_reply,
)
from bridge.translate.extensions.passed_metadata import with_extension_metadata
from bridge.translate.overrides import hidden_arguments_in
from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal
from bridge.translate.skill_tools import AgentTool, find_skills, found_as_text


class FollowUp:
    """One call of a follow-up tool."""

    def __init__(
        self,
        agent: RemoteAgent,
        far: FarTask,
        incoming: IncomingCall,
        around: FaceRuntime,
        tool: PublishedTool | None,
    ) -> None:
        """`tool` is the tool that began the task; None if it is no longer offered."""
        self._tool = tool
        self._agent = agent
        self._far = far
        self._incoming = incoming
        self._around = around

    async def result(self) -> JsonObject:
        """The task's result; or the words that the task still works, or that it asks.

        Raises:
            PeerError: the agent cannot be asked.
            BadArgumentsError: `wait_seconds` is not a number.
        """
        longest = self._around.options.agents.follow_up_seconds
        wanted = self._incoming.arguments.get("wait_seconds", longest)
        if not isinstance(wanted, int | float) or isinstance(wanted, bool):
            raise BadArgumentsError("wait_seconds: it is not a number")
        seconds = min(max(wanted, 0), longest)
        if UnnamedMessages.is_id(self._far.task_id):
            return await self._unnamed_within(seconds)
        return await self._shown_within(seconds)

    async def reply(self) -> JsonObject:
        """Answer the task's question; raises as `result` does.

        An answer is for the tool that began the task. It can neither name another tool, nor set a hidden argument.
        """
        client = self._agent.client_for(self._incoming.on_behalf_of)
        self._require_task("answered")
        skill_id = self._skill_to_answer()
        task = await client.get(self._far.task_id)
        answer = await done_slowly(partial(self._answer, task, skill_id))
        if isinstance(answer, UntoldRefusal):
            return await self._refuse(answer, client)
        message = with_extension_metadata(answer, self._agent.named_extensions, self._incoming.meta)
        request = SendMessageRequest(message=message, configuration=SendMessageConfiguration())
        outcome: Task | Message | None = None
        with anyio.move_on_after(self._around.options.agents.answer_within_seconds), self._hints() as pause:
            pace = self._around.options.pace
            outcome = await converse(client, request, pace=pace, answered=task.status, pause=pause)
        if outcome is None:
            self._around.webhooks.ask(self._agent, client, self._far, self._incoming.principal)
        return self._result_of(outcome)

    def _answer(self, task: Task, skill_id: str | None) -> Message | UntoldRefusal:
        """The message that answers the task; or a refusal, if no message can tell it to the agent.

        Raises:
            BadArgumentsError: the arguments do not fit the tool's schema, or they refuse although the task asks
                nothing.
        """
        questions = self._results.questions(task)
        fields = frozenset(name for question in questions for name in question.names)
        action = refusal_in_reply(self._incoming.arguments, fields)
        if action is None:
            conversation = MessageIds(str(uuid4()), task.context_id, task.id)
            return message_from_reply(self._incoming.arguments, conversation, skill_id)
        if task.status.state not in INTERRUPTED:
            raise BadArgumentsError(f"action: the task asks nothing, it is {task.status.state.word}")
        responses: JsonObject = {question.key: {"action": action} for question in questions}
        waiting = AskingTask(task.id, task.id, task.context_id, skill_id)
        return answer_message(questions, responses, waiting) or UntoldRefusal(ElicitAction(action))

    async def _refuse(self, refusal: UntoldRefusal, client: AgentClient) -> JsonObject:
        try:
            task = await canceled_task(
                client, self._far.task_id, self._around.options.run.cancel_grace_seconds
            )
        except PeerError as exc:
            return self._results.refused_in_vain(refusal, self._far.task_id, exc)
        self._around.webhooks.ended(self._far, self._incoming.principal)
        return self._results.refused(refusal, task)

    async def cancel(self) -> JsonObject:
        """End the task; raises as `result` does."""
        if UnnamedMessages.is_id(self._far.task_id):
            self._around.unnamed.drop(self._far.task_id)
        self._require_task("canceled; the bridge only stops waiting")
        return self._result_of(
            await self._agent.client_for(self._incoming.on_behalf_of).cancel(self._far.task_id)
        )

    def _skill_to_answer(self) -> str | None:
        """The skill that an answer is for.

        Raises:
            BadArgumentsError: the caller may no longer use the tool, or the answer sets a hidden argument.
        """
        if not self._far.tool:
            return None
        if self._tool is None or not self._incoming.may_use(self._tool.names):
            raise BadArgumentsError("handle: the tool that began the task is no longer offered")
        data = self._incoming.arguments.get("data")
        inner = data.get("arguments") if isinstance(data, dict) else None
        for values in (data, inner):
            if isinstance(values, dict) and (
                theirs := hidden_arguments_in(values, self._tool.override.arguments)
            ):
                raise BadArgumentsError(
                    f"data: the tool {self._tool.name} has no argument {', '.join(theirs)}"
                )
        return self._tool.skill_id

    def _require_task(self, done: str) -> None:
        if UnnamedMessages.is_id(self._far.task_id):
            raise PeerError(f"The agent {self._agent.key} has named no task, so it cannot be {done}")

    async def _unnamed_within(self, seconds: float) -> JsonObject:
        """The outcome of a message for which the agent named no task. The bridge keeps it until the host has it."""
        sending = self._around.unnamed.find(self._far.task_id)
        with anyio.move_on_after(seconds):
            await sending.done.wait()
        if sending.fault is not None:
            self._around.unnamed.drop(self._far.task_id)
            raise sending.fault
        return self._result_of(sending.outcome)

    async def _shown_within(self, seconds: float) -> JsonObject:
        """The outcome of the task so far. The bridge reads the task at least once. It also waits for a task in
        AUTH_REQUIRED, since the user may sign in elsewhere."""
        client, task_id = self._agent.client_for(self._incoming.on_behalf_of), self._far.task_id
        task = await client.get(task_id)
        if task.status.state in SETTLED and task.status.state is not TaskState.AUTH_REQUIRED:
            return self._result_of(task)
        with anyio.move_on_after(seconds), self._hints() as pause:
            pace = self._around.options.pace
            task = await wait_until_settled(client, task_id, pace=pace, answered=task.status, pause=pause)
        return self._result_of(task)

    def _hints(self) -> AbstractContextManager[Pause]:
        return self._around.webhooks.waiting(self._far, self._incoming.principal)

    @property
    def _results(self) -> ToolResults:
        incoming, around = self._incoming, self._around
        return ToolResults(self._agent, None, incoming.principal, around.handles, around.options)

    def _result_of(self, outcome: Task | Message | None) -> JsonObject:
        handle, shown = str(self._incoming.arguments["handle"]), self._results
        if isinstance(outcome, Message) or (outcome is not None and outcome.status.state in ENDED):
            self._around.webhooks.ended(self._far, self._incoming.principal)
            return shown.result(outcome)
        if outcome is None or outcome.status.state not in SETTLED:
            return shown.still_at_work(handle)
        return shown.question_in_words(outcome, handle)


_FOUND: Final = 10
"""How many skills find_skill returns by default."""


def found_skills(
    incoming: IncomingCall, tools: Sequence[PublishedTool], most: int, is_ready: Callable[[AgentTool], bool]
) -> JsonObject:
    """The result of find_skill.

    Raises:
        BadArgumentsError: the arguments do not fit the schema of find_skill.
    """
    query, limit = incoming.arguments.get("query", ""), incoming.arguments.get("limit", _FOUND)
    if not isinstance(query, str) or not isinstance(limit, int):
        raise BadArgumentsError("query: what the skill should do, in words; limit: a number")
    seen = [tool.tool for tool in tools if incoming.may_see(tool.names)]
    matching = find_skills(seen, query, limit, most, is_ready)
    structured: JsonObject = {"skills": [tool.listed for tool in matching]}
    words = found_as_text(matching) if matching else "No skill was found."
    return {"content": [{"type": "text", "text": words}], "structuredContent": structured}


def call_of_skill(incoming: IncomingCall, tools: Tools) -> IncomingCall:
    """The call that call_skill stands for.

    Raises:
        BadArgumentsError: the arguments do not fit the schema of call_skill, or there is no such skill.
    """
    name, arguments = incoming.arguments.get("skill"), incoming.arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadArgumentsError("skill: the name of a skill that find_skill returned; arguments: an object")
    if (tool := tools.by_name.get(name)) is None or not incoming.may_use(tool.names):
        raise BadArgumentsError(f"There is no skill {echoed(name)!r}; find_skill gives their names")
    return replace(incoming, name=name, arguments=arguments)
