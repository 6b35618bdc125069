"""Turns an agent's answer into the result of a tool, in the same way for a call, its follow-ups and an MCP task."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge import trace
from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import Message, Part, Task, TaskState, TaskStatus
from bridge.agents_as_tools.handles import FarContext, FarTask, Handles, tool_mark
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.resources import links_of
from bridge.errors import PeerError
from bridge.mcp.server.face import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    McpRefusal,
)
from bridge.remotes.remote_agent import RemoteAgent
from bridge.seal import HandleTooLongError
from bridge.text.jsonvalues import JsonObject
from bridge.translate.agent_questions import (
    AgentQuestion,
    question_words,
    questions_of_agent,
    status_with_question,
    with_lasting_keys,
)
from bridge.translate.blocks import ResultRules, text_block
from bridge.translate.extensions.passed_metadata import metadata_of_outcome
from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal
from bridge.translate.result import (
    UnfinishedCall,
    result_from_message,
    result_from_task,
    server_error_in,
    unfinished_result,
)
from bridge.translate.skill_tools import AgentTool, takes_context

logger = logging.getLogger(__name__)

_HOW_ENDED: Final[Mapping[ElicitAction, str]] = {
    ElicitAction.DECLINE: ". The agent has not said how a client declines, so the task was canceled there",
    ElicitAction.CANCEL: ", so the task was canceled there",
}
"""The consequence of a refusal, in words that follow `UntoldRefusal.sentence_about`."""
_NEW_EACH_TIME: Final = frozenset({"elicitationId", "url", "_meta"})
_CONTEXT_META: Final = "mcp-a2a/context"
"""The `_meta` key of a result for the handle of its conversation."""


_GO_ON: Final = "(To go on with this conversation, give context: {})"
_BEGAN_ANEW: Final = (
    "(The agent did not go on with the conversation of this context, but began a new one: it may know nothing of what"
    " was said before.)"
)


@dataclass(frozen=True, slots=True)
class ToolResults:
    """One agent's answers to one principal, as results of one tool."""

    agent: RemoteAgent
    tool: AgentTool | None
    """None when the tool does not matter, or is no longer listed."""
    principal: str
    handles: Handles
    options: FaceOptions
    continues: str | None = None
    """The context that the call continues; None when the call begins a conversation."""

    def answer(self, outcome: Task | Message) -> JsonObject:
        """The result of tools/call.

        Raises:
            McpRefusal: the server behind another bridge's agent answered with this JSON-RPC error.
            ValueError: the task has not ended.
        """
        if self.agent.extension_active and isinstance(outcome, Task):
            error = server_error_in(outcome)
            if error is not None:
                raise _refusal_of(error)
        return self.result(outcome)

    def result(self, outcome: Task | Message) -> JsonObject:
        """The outcome as a result; a JSON-RPC error becomes a result with isError.

        Raises:
            ValueError: the task has not ended.
        """
        if isinstance(outcome, Message):
            result, task_id = result_from_message(outcome, self._reading(None)), outcome.task_id
        else:
            result, task_id = result_from_task(outcome, self._reading(outcome)), outcome.id
        if about := metadata_of_outcome(self.agent.named_extensions, outcome):
            meta = result.get("_meta")
            result = {**result, "_meta": {**about, **(meta if isinstance(meta, dict) else {})}}
        is_canceled = isinstance(outcome, Task) and outcome.status.state is TaskState.CANCELED
        return self._with_context(result, outcome.context_id, task_id, goes_on=not is_canceled)

    def questions(self, task: Task) -> tuple[AgentQuestion, ...]:
        """The questions of a task, under stable keys; empty when the task asks in words only."""
        status = self._asking(task)
        questions = questions_of_agent(
            status.message, status.state, extension_active=self.agent.extension_active
        )
        return with_lasting_keys(questions, status)

    def question_words(self, task: Task) -> str:
        """The question of a task, as text for a person."""
        status = self._asking(task)
        return question_words(status.message, status.state)

    def question_in_words(self, task: Task, handle: str | None = None) -> JsonObject:
        """The question of a task as a result, for a host that does not support this mode of question. `handle` is the
        task's handle, if the host already has one."""
        state = task.status.state
        # A user who has to sign in may do so elsewhere; the agent notices that by itself.
        or_else = ", or task_result once it is done elsewhere," if state is TaskState.AUTH_REQUIRED else ""
        unfinished = UnfinishedCall(
            self.question_words(task),
            state,
            "task_reply",
            handle or self.handle(task.id),
            "to answer",
            or_else,
        )
        result = unfinished_result(unfinished, output=self._output)
        return self._with_context(result, task.context_id, task.id)

    def not_answered(self, task: Task, why: str) -> JsonObject:
        """The failed result of a call whose question is still open, since the host's answer could not be passed on."""
        handle = self.handle(task.id)
        how = "" if handle is None else f": answer again with task_reply and this handle: {handle}"
        return failure(f"{why}. The question of the agent {self.agent.key} is still open{how}")

    def refused(self, refusal: UntoldRefusal, task: Task) -> JsonObject:
        """The result of a call after a refusal that could not be sent to the agent. `task` is the task after
        CancelTask. If the task has ended by itself, its own result is returned."""
        if task.status.state in ENDED and task.status.state is not TaskState.CANCELED:
            return self.answer(task)
        words = refusal.sentence_about(self.agent.key)
        if task.status.state is not TaskState.CANCELED:
            outcome = "The agent was asked to cancel its task, and has not ended it yet"
            return failure(f"{words}. {outcome}{self._to_look_again(task.id)}")
        result = self.result(task)
        content = result.get("content")
        block: JsonObject = {"type": "text", "text": f"{words}{_HOW_ENDED[refusal.action]}."}
        return {**result, "content": [block, *(content if isinstance(content, list) else ())]}

    def refused_in_vain(self, refusal: UntoldRefusal, task_id: str, exc: PeerError) -> JsonObject:
        """The result of a refused call when the agent did not cancel its task, so that the task may still wait."""
        sentence = refusal.sentence_about(self.agent.key)
        words = f"{sentence}. The agent was sent no answer, but its task could not be canceled"
        return failure(f"{words}, and may still wait: {exc}{self._to_look_again(task_id)}")

    def _to_look_again(self, task_id: str) -> str:
        handle = self.handle(task_id)
        return "" if handle is None else f". To read its state, call task_result with this handle: {handle}"

    def still_at_work(self, handle: str | None, after: str = "", of_handle: str = "") -> JsonObject:
        """The result that says that the agent still works. `of_handle` is a note about the handle."""
        words = f"The agent {self.agent.key} is still at work{after}.{of_handle}"
        call = UnfinishedCall(words, TaskState.WORKING, "task_result", handle, "to get its result")
        return unfinished_result(call, output=self._output)

    def handle(self, task_id: str) -> str | None:
        """The handle of a task for the follow-up tools; None if these tools are not offered."""
        if not self.options.agents.follow_up_tools:
            return None
        return self.handles.of_task(self.far(task_id), self.principal)

    def far(self, task_id: str) -> FarTask:
        """A task of the agent, as handles name it, with the trace of the current request."""
        tool = tool_mark(self.tool.skill_id) if self.tool else ""
        return FarTask(self.agent.mark, task_id, tool, trace.context.get().sealable)

    def _asking(self, task: Task) -> TaskStatus:
        return task.status if self.agent.extension_active else status_with_question(task)

    @property
    def _output(self) -> Validator | None:
        return self.tool.output if self.tool else None

    def _reading(self, task: Task | None) -> ResultRules:
        links = links_of(task, self.agent, self.handles, self.principal) if task else None
        return ResultRules(
            extension_active=self.agent.extension_active,
            output=self._output,
            inline_limit_bytes=self.options.agents.part_inline_limit_bytes,
            link_for=links,
            preview=self._preview(),
            shown_uri=self.tool.shown_uri if self.tool else None,
        )

    def _preview(self) -> Callable[[Part, str], list[JsonValue] | None] | None:
        """Shortens long texts, if the configuration wants that. The text of a tool with an output schema stays whole,
        since it repeats the structured result."""
        agents = self.options.agents
        if not agents.preview_bytes or self._output is not None:
            return None
        # Imported only by a server that shortens texts.
        from bridge.translate.previews import preview

        return partial(preview, limit_bytes=agents.preview_bytes, has_tool=agents.follow_up_tools)

    def _with_context(
        self, result: JsonObject, context_id: str | None, task_id: str | None, *, goes_on: bool = True
    ) -> JsonObject:
        """A result with the handle of its conversation, for tools that take a context. The handle is also in the
        content, since a model sees only content, except after a canceled task, which nobody wanted to continue."""
        if self.tool is None or context_id is None or not takes_context(self.tool):
            return result
        context = FarContext(self.agent.mark, context_id, task_id)
        try:
            handle = self.handles.of_context(context, self.principal)
        except HandleTooLongError as exc:
            logger.warning("%s: a conversation cannot be continued: %s", self.agent.key, exc)
            return result
        meta, content = result.get("_meta"), result.get("content")
        words = self._words_on_context(context_id, handle, goes_on=goes_on)
        return {
            **result,
            "content": [*(content if isinstance(content, list) else ()), *map(text_block, words)],
            "_meta": {**(meta if isinstance(meta, dict) else {}), _CONTEXT_META: handle},
        }

    def _words_on_context(self, context_id: str, handle: str, *, goes_on: bool) -> tuple[str, ...]:
        """The words for a model about the conversation: how to continue it, or that the agent began a new
        conversation."""
        if self.continues not in (None, context_id):
            return (_BEGAN_ANEW,)
        is_told = goes_on and self.options.agents.context_hint and not self.agent.begins_anew
        return (_GO_ON.format(handle),) if is_told else ()


def same_question(questions: Iterable[AgentQuestion]) -> str:
    """A short digest of the questions, without their keys and links. It stays the same when an agent asks the same
    questions again."""
    params = [
        {key: item for key, item in question.params.items() if key not in _NEW_EACH_TIME}
        for question in questions
    ]
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:8]


def failure(words: str) -> JsonObject:
    """The result of a call that failed, with isError."""
    return {"content": [{"type": "text", "text": words}], "isError": True}


def _refusal_of(error: JsonObject) -> McpRefusal:
    """The JSON-RPC error of a server behind another bridge's agent. The code is kept if the error is about the call or
    the host itself; otherwise the whole error goes into the data."""
    code, message = error.get("code"), str(error.get("message", ""))
    data = error.get("data")
    for kept_code in (INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY):
        if code == kept_code:
            return McpRefusal(kept_code, message, data if isinstance(data, dict) else None)
    return McpRefusal(INTERNAL_ERROR, message, error)
