"""Messages to a client while its call runs: progress, and questions to a legacy client.

Questions and answers are passed on without parsing: the SDK's own models drop the `_meta` of an answer, and fields that
a later revision adds to a question.

Spec: MCP 2025-11-25 and 2025-06-18 client/elicitation; 2026-07-28 and 2025-11-25 basic/utilities/progress: each
number is greater than the one before."""

from __future__ import annotations

import json
import math
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, Notification, Request
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from bridge.errors import PeerError, leaf_of
from bridge.mcp.log_messages import LOG, note_of_left_out
from bridge.mcp.messages import ELICIT, TASKS_EXTENSION
from bridge.text.jsonvalues import JsonObject


@dataclass(frozen=True, slots=True)
class DeclaredCapabilities:
    """The modes of elicitation, and tasks, that a client declared in its request or when it connected."""

    forms: bool = False
    urls: bool = False
    tasks: bool = False

    @classmethod
    def in_capabilities(
        cls, capabilities: ClientCapabilities | None, *, is_modern: bool
    ) -> DeclaredCapabilities:
        """Read the declaration. An empty `elicitation` means forms. The tasks extension counts from 2026-07-28 on."""
        if capabilities is None:
            return cls()
        elicitation = capabilities.elicitation
        return cls(
            forms=elicitation is not None and (elicitation.form is not None or elicitation.url is None),
            urls=elicitation is not None and elicitation.url is not None,
            tasks=is_modern and TASKS_EXTENSION in (capabilities.extensions or {}),
        )


class _Question(Request[dict[str, Any], Literal["elicitation/create"]]):
    method: Literal["elicitation/create"] = ELICIT


class _ElicitResult(BaseModel):
    model_config = ConfigDict(extra="allow")

    action: Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, slots=True)
class LegacyElicitation:
    """Implements `face.AskClient` for one request of a legacy client."""

    context: ServerRequestContext[Any, Any]
    declared: DeclaredCapabilities

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """See `AskClient`."""
        for params in questions.values():
            is_url = params.get("mode") == "url"
            if not (self.declared.urls if is_url else self.declared.forms):
                raise PeerError(
                    f"The client did not declare elicitation in {'URL' if is_url else 'form'} mode"
                )
        answers: dict[str, JsonObject] = {}

        async def ask(key: str, params: JsonObject) -> None:
            answers[key] = await self._answer_to(params)

        try:
            async with anyio.create_task_group() as tasks:
                for key, params in questions.items():
                    tasks.start_soon(ask, key, params)
        except ExceptionGroup as group:
            raise leaf_of(group) from group
        return {key: answers[key] for key in questions}

    async def _answer_to(self, params: JsonObject) -> JsonObject:
        question = dict(params)
        if question.get("mode") == "url":
            question.setdefault("elicitationId", secrets.token_hex(8))
        else:
            question.pop(
                "mode", None
            )  # 2025-06-18 does not have this field, and it is the default in 2025-11-25
        try:
            answer = await self.context.session.send_request(
                _Question(params=question),  # type: ignore[arg-type]  # a ServerRequest with its params unread
                _ElicitResult,
                metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
            )
        except MCPError as exc:
            raise PeerError(f"The client could not ask for input: {exc.error.message}") from exc
        except ValidationError as exc:
            raise PeerError(
                "The client answered a question with something that is not an ElicitResult"
            ) from exc
        return answer.model_dump(by_alias=True)


_WAITING_MOST: Final = 256
"""The most reports that wait for a slow client. Beyond this number, the oldest reports are dropped."""


@dataclass(frozen=True, slots=True)
class _Reported:
    progress: float
    total: float | None
    message: str | None


class RawNotification(Notification[dict[str, Any] | None, str]):
    """A notification whose params are sent without parsing."""


class ProgressSender:
    """Implements `face.ReportProgress` and, with `log`, `face.SendLog`: accepts reports and log messages at any time,
    and sends them one after the other."""

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._session: ServerSession = context.session
        self._request_id = context.request_id
        self._waiting: deque[_Reported | JsonObject] = deque(maxlen=_WAITING_MOST)
        self._left_out = 0
        """The number of log messages that were left out since the last one that was sent."""
        self._news = anyio.Event()
        self._last: float = 0
        self._began = self._ended = False

    def __call__(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """See `ReportProgress`."""
        if progress is None or not math.isfinite(progress) or (self._began and progress <= self._last):
            if message is None:
                return
            progress, total = self._last + 1, None
        if total is not None and not math.isfinite(total):
            total = None
        self._began, self._last = True, progress
        # A lone surrogate could not be written.
        text = None if message is None else message.encode(errors="replace").decode()
        self._waiting.append(_Reported(progress, total, text))
        self._news.set()

    def log(self, message: JsonObject) -> None:
        """See `SendLog`. Beyond a number of waiting messages, further log messages are left out."""
        if len(self._waiting) >= _WAITING_MOST:
            self._left_out += 1
            return
        self._waiting.append(message)
        self._news.set()

    def end(self) -> None:
        """Accept no more reports."""
        self._ended = True
        self._news.set()

    async def send_all(self) -> None:
        """Send the reports, until `end` was called and no report waits."""
        while self._waiting or not self._ended:
            if not self._waiting:
                self._news = anyio.Event()
                await self._news.wait()
                continue
            report = self._waiting.popleft()
            if isinstance(report, _Reported):
                await self._session.report_progress(report.progress, report.total, report.message)
                continue
            await self._send_log(report)
            if self._left_out:
                number, self._left_out = self._left_out, 0
                await self._send_log(note_of_left_out(number, "this client takes them too slowly"))

    async def _send_log(self, message: JsonObject) -> None:
        notification = RawNotification(method=LOG, params=writable(message))
        await self._session.send_notification(
            notification,  # type: ignore[arg-type]  # a ServerNotification with its params unread
            related_request_id=self._request_id,
        )


def writable(result: JsonObject) -> JsonObject:
    """A result that the SDK can write over HTTP. The SDK cannot write lone surrogates."""
    try:
        to_json(result)
    except PydanticSerializationError:
        whole: JsonObject = json.loads(json.dumps(result, ensure_ascii=False).encode(errors="replace"))
        return whole
    return result
