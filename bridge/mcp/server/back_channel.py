"""Messages to a client while its call runs: progress, and questions to a legacy client.

Questions and answers are passed on without parsing: the SDK's own models drop the `_meta` of an answer, and fields that
a later revision adds to a question.

Spec: MCP 2025-11-25 and 2025-06-18 client/elicitation; 2026-07-28 and 2025-11-25 basic/utilities/progress: each
number is greater than the one before."""

from __future__ import annotations

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
from mcp_types import ClientCapabilities, Request
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.errors import PeerError, leaf_of
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


class ProgressSender:
    """Implements `face.ReportProgress`: accepts reports at any time, and sends them one after the other."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._waiting: deque[_Reported] = deque(maxlen=_WAITING_MOST)
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
            await self._session.report_progress(report.progress, report.total, report.message)
