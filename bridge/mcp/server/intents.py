"""Passes on a POST to the endpoint only after the audit has recorded the intent of the request.

This comes before the SDK. A request whose intent cannot be recorded is refused with 503, but once a method is called,
the SDK may have begun its answer with 200. The requests that come here are not passed to another replica any more, so
an intent is recorded only once.

The answer of a legacy client to a question names no method, and belongs to a call whose response has begun. Its intent
is recorded where the call gets the answer, both over HTTP and over stdio.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge import trace
from bridge.errors import AuditAwayError
from bridge.http.request_checks import RefusedError
from bridge.identity.callers.principals import Principal
from bridge.mcp.messages import ELICIT
from bridge.mcp.server.endpoint import AdmittedUser
from bridge.mcp.server.face import AskClient, TaskCaller, TaskWork, ToolFace
from bridge.notices import AnswerTaken, Notify
from bridge.text.jsonvalues import JsonObject
from bridge.trace import Hop, IntentWriter

AWAY = "The bridge cannot write its audit at the moment"
_ABOUT_TASKS: Final = frozenset({"tasks/update", "tasks/cancel"})
"""The methods about a task that go to the task's agent."""


@dataclass(frozen=True)
class IntentMiddleware:
    """The ASGI application with the audit's gate before it."""

    inner: ASGIApp
    gate: IntentWriter
    face: str
    tools: ToolFace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of an admitted user.

        Raises:
            RefusedError: 503, the intent cannot be recorded.
        """
        if scope["method"] != "POST":
            await self.inner(scope, receive, send)
            return
        body = await receive()  # the endpoint has read the whole body
        if body["type"] != "http.request":
            raise ClientDisconnect
        user: AdmittedUser = scope["user"]
        try:
            user.intent = await self._intend(_message_in(body.get("body", b"")), scope, user)
        except AuditAwayError as exc:
            again = {"Retry-After": str(exc.retry_after_seconds)}
            raise RefusedError(503, AWAY, again) from exc
        waiting: list[Message] = [body]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.inner(scope, replayed, send)

    async def _intend(self, message: JsonObject, scope: Scope, user: AdmittedUser) -> int:
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return 0
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        context = trace.context_from(
            meta if isinstance(meta, dict) else {}, trace.in_headers(scope["headers"])
        )
        hop = Hop("server", "mcp", (), context, method, face=self.face, principal=user.principal.name)
        foretell(hop, self.tools, params, user.principal)
        user.method, user.tool = method, hop.skill
        return await self.gate.intend(hop)


def foretell(hop: Hop, tools: ToolFace, params: Mapping[str, JsonValue], principal: Principal) -> None:
    """Tell a hop what its request is about, and which peer it goes to, before the request is performed."""
    task_id = params.get("taskId")
    if hop.method == "tools/call":
        hop.skill, hop.peer, hop.task_id = call_meant(
            tools, params.get("name"), params.get("arguments"), principal.name
        )
    elif hop.method in _ABOUT_TASKS and tools.tasks is not None and isinstance(task_id, str):
        work = tools.tasks.work_of(task_id, TaskCaller(principal.name, may_use=principal.may_use))
        if work is not None:
            hop.skill, hop.peer, hop.task_id = work
    elif tools.requests is not None:
        hop.peer, hop.subject = tools.requests.meant(hop.method, {**params}, principal)


@dataclass(frozen=True, slots=True)
class AnnouncedAnswers:
    """Implements `face.AskClient` for a call: the intent of the answers is recorded before they can go to the agent."""

    asking: AskClient
    call: Hop
    meant: TaskWork
    """The work of the call."""
    notify: Notify

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """See `AskClient`.

        Raises:
            AuditAwayError: the intent cannot be recorded, so the answers must not be passed on.
        """
        answers = await self.asking(questions)
        call, (skill, peer, _) = self.call, self.meant
        answer = Hop("server", "mcp", (), call.context, ELICIT, call.face, peer, skill, call.principal)
        if call.gate is not None:
            try:
                answer.intent = await call.gate.intend(answer)
            except AuditAwayError as exc:
                raise AuditAwayError(f"{AWAY}, so the answer was not passed on") from exc
        self.notify(AnswerTaken(call.face, call.principal, skill, peer, call.trace_id, answer.intent))
        return answers


def call_meant(tools: ToolFace, name: JsonValue, arguments: JsonValue, principal: str) -> TaskWork:
    """The work of a call, as far as it is known before the call is made."""
    if not isinstance(name, str):
        return TaskWork("", "", "")
    return tools.work_of(name, arguments if isinstance(arguments, dict) else {}, principal)


def _message_in(body: bytes) -> JsonObject:
    """The message in a body; empty if the SDK will refuse it."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
