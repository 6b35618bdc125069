"""The handles by which a host comes back to a task, a question or a conversation. A handle is sealed and holds all
state, so no state is kept here."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from bridge.seal import (
    LIFETIME_SECONDS,
    Handle,
    HandleBinding,
    HandleError,
    HandlePurpose,
    HandleTooLongError,
    Seal,
    agent_mark,
)
from bridge.trace import NO_TRACE, TraceContext


@dataclass(frozen=True, slots=True)
class FarTask:
    """A task of an agent, as a handle names it."""

    agent: str
    """The mark of the agent, see `agent_mark`."""
    task_id: str
    tool: str = ""
    """The mark of the tool that began the task, see `tool_mark`; "" where the tool does not matter."""
    traceparent: str = ""
    """The trace of the turn in which the handle was made; "" without a trace, or without room for it."""

    @property
    def trace(self) -> TraceContext:
        """The trace that an answer continues."""
        return TraceContext(self.traceparent) if self.traceparent else NO_TRACE


@dataclass(frozen=True, slots=True)
class FarQuestion:
    """A question of an agent's task, as a requestState names it."""

    task: FarTask
    asked: str
    """Distinguishes this question from later questions of the same task, which may have the same keys; see
    `questions_mark`."""
    same: str = ""
    """Stays the same when the task asks the same question again; see `same_question`."""
    times: int = 1
    """How often the question was asked."""


@dataclass(frozen=True, slots=True)
class FarCall:
    """A call that became an MCP task, as the task's id names it."""

    task: FarTask
    tool: str
    """The mark of the tool, see `tool_mark`. If the tool is renamed, its mark stays."""
    created_seconds: int
    """When the call became a task, in seconds since the epoch."""
    ttl_seconds: int = 0
    """How long the id is valid after that."""


@dataclass(frozen=True, slots=True)
class FarContext:
    """A conversation with an agent, as a handle names it."""

    agent: str
    context_id: str
    task_id: str | None


@dataclass(frozen=True, slots=True)
class FarWebhook:
    """A task whose agent notifies the bridge, as the token in the notifications names it."""

    agent: str
    task_id: str
    principal: str
    """The mark of the principal that owns the task, see `webhook_of`."""

    @property
    def key(self) -> str:
        """Identifies the webhook, in 32 hexadecimal digits."""
        named = "\0".join((self.agent, self.task_id, self.principal))
        return blake2b(named.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def webhook_of(task: FarTask, principal: str) -> FarWebhook:
    """The webhook for a task of a principal."""
    return FarWebhook(task.agent, task.task_id, agent_mark(principal))


def tool_mark(skill_id: str | None) -> str:
    """The short mark of a tool in handles. It depends on the skill's id, not on the tool's name."""
    return agent_mark(skill_id or "")


_BETWEEN: Final = "."
"""Separates the fields of a question in a requestState."""


class Handles:
    """Seals and opens handles. A handle is valid for one purpose and one principal."""

    def __init__(self, seal: Seal, now_seconds: Callable[[], float] = time.time) -> None:
        self._seal = seal
        self._now_seconds = now_seconds

    def of_question(self, question: FarQuestion, principal: str, request: bytes) -> str:
        """The requestState of a question, valid only for the same request."""
        task, expires = question.task, self._expires(HandlePurpose.REQUEST_STATE)
        binding = HandleBinding(HandlePurpose.REQUEST_STATE, principal, request)
        text = _BETWEEN.join((question.asked, question.same, str(question.times)))
        return self._sealed_with_trace(task, (task.task_id, text), expires, binding)

    def of_task(self, task: FarTask, principal: str) -> str:
        """The handle of a task, for the follow-up tools."""
        ids = (task.task_id, *((task.tool,) if task.tool or task.traceparent else ()))
        expires = self._expires(HandlePurpose.FOLLOW_UP)
        return self._sealed_with_trace(task, ids, expires, HandleBinding(HandlePurpose.FOLLOW_UP, principal))

    def of_context(self, context: FarContext, principal: str) -> str:
        """The handle of a conversation."""
        ids = (context.context_id, *((context.task_id,) if context.task_id else ()))
        return self._sealed(HandlePurpose.CONTEXT, context.agent, ids, principal)

    def of_call(self, task: FarTask, tool: str, ttl_seconds: int, principal: str) -> tuple[str, FarCall]:
        """The id of an MCP task, valid for `ttl_seconds`, and the value that it holds."""
        now = int(self._now_seconds())
        ids, binding = (task.task_id, tool, str(now)), HandleBinding(HandlePurpose.TASK_ID, principal)
        handle = self._sealed_with_trace(task, ids, now + ttl_seconds, binding)
        return handle, FarCall(task, tool, now, ttl_seconds)

    def of_webhook(self, webhook: FarWebhook) -> str:
        """The token of a webhook. It names the principal instead of being bound to one, since a notification names no
        principal."""
        return self._sealed(HandlePurpose.WEBHOOK, webhook.agent, (webhook.task_id, webhook.principal), "")

    def webhook(self, text: str) -> FarWebhook:
        """The webhook that a token is for; raises as `question` does."""
        handle = self._seal.open(text, HandleBinding(HandlePurpose.WEBHOOK, ""), self._now_seconds())
        if len(handle.ids) != 2:
            raise HandleError
        return FarWebhook(handle.agent, *handle.ids)

    def call(self, text: str, principal: str) -> FarCall:
        """The call that the id of an MCP task names; raises as `question` does."""
        handle = self._seal.open(text, HandleBinding(HandlePurpose.TASK_ID, principal), self._now_seconds())
        if not 3 <= len(handle.ids) <= 4:
            raise HandleError
        task_id, tool, created, *trace = handle.ids
        began = int(created)
        return FarCall(
            FarTask(handle.agent, task_id, "", *trace), tool, began, handle.expires_seconds - began
        )

    def question(self, text: str, principal: str, request: bytes) -> FarQuestion:
        """The question that a requestState names.

        Raises:
            HandleError: the state is forged, too old, or of another principal or request.
        """
        binding = HandleBinding(HandlePurpose.REQUEST_STATE, principal, request)
        handle = self._seal.open(text, binding, self._now_seconds())
        if not 2 <= len(handle.ids) <= 3:
            raise HandleError
        task_id, joined, *trace = handle.ids
        # Earlier releases sealed the mark alone.
        mark, same, times = (*joined.split(_BETWEEN), "", "1")[:3]
        return FarQuestion(FarTask(handle.agent, task_id, "", *trace), mark, same, int(times))

    def task(self, text: str, principal: str) -> FarTask:
        """The task that a handle names; raises as `question` does."""
        handle = self._seal.open(text, HandleBinding(HandlePurpose.FOLLOW_UP, principal), self._now_seconds())
        if not 1 <= len(handle.ids) <= 3:
            raise HandleError
        return FarTask(handle.agent, *handle.ids)

    def context(self, text: str, principal: str) -> FarContext:
        """The conversation that a handle names; raises as `question` does."""
        handle = self._seal.open(text, HandleBinding(HandlePurpose.CONTEXT, principal), self._now_seconds())
        if not 1 <= len(handle.ids) <= 2:
            raise HandleError
        return FarContext(handle.agent, handle.ids[0], handle.ids[1] if len(handle.ids) > 1 else None)

    def _sealed_with_trace(
        self, task: FarTask, ids: tuple[str, ...], expires_seconds: int, binding: HandleBinding
    ) -> str:
        """The sealed handle of a task. It holds the trace of the task, too, unless the ids leave no room."""
        if task.traceparent:
            traced = Handle(task.agent, (*ids, task.traceparent), expires_seconds)
            with suppress(HandleTooLongError):
                return self._seal.seal(traced, binding)
        return self._seal.seal(Handle(task.agent, ids, expires_seconds), binding)

    def _sealed(self, purpose: HandlePurpose, agent: str, ids: tuple[str, ...], principal: str) -> str:
        return self._seal.seal(Handle(agent, ids, self._expires(purpose)), HandleBinding(purpose, principal))

    def _expires(self, purpose: HandlePurpose) -> int:
        return int(self._now_seconds()) + LIFETIME_SECONDS[purpose]


__all__ = [
    "FarCall",
    "FarContext",
    "FarQuestion",
    "FarTask",
    "FarWebhook",
    "Handles",
    "agent_mark",
    "tool_mark",
    "webhook_of",
]
