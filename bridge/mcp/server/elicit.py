"""Asks a legacy client something while its call waits (elicitation/create, the client as the server).

What is asked and what is answered go through as they are: the SDK's own models know neither `_meta` of an
answer nor what a later revision adds to a question.

Spec: MCP 2025-11-25 and 2025-06-18 client/elicitation.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, Request
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.errors import PeerError, leaf_of
from bridge.jsonvalues import JsonObject
from bridge.mcp.names import ELICIT, TASKS_EXTENSION


@dataclass(frozen=True, slots=True)
class DeclaredCapabilities:
    """What a client said that it can be asked, with its request or when it connected."""

    forms: bool = False
    urls: bool = False
    tasks: bool = False

    @classmethod
    def in_capabilities(
        cls, capabilities: ClientCapabilities | None, *, is_modern: bool
    ) -> DeclaredCapabilities:
        """An empty `elicitation` stands for forms. The tasks extension counts from 2026-07-28 on."""
        if capabilities is None:
            return cls()
        asked = capabilities.elicitation
        return cls(
            forms=asked is not None and (asked.form is not None or asked.url is None),
            urls=asked is not None and asked.url is not None,
            tasks=is_modern and TASKS_EXTENSION in (capabilities.extensions or {}),
        )


class _Question(Request[dict[str, Any], Literal["elicitation/create"]]):
    method: Literal["elicitation/create"] = ELICIT


class _ElicitResult(BaseModel):
    model_config = ConfigDict(extra="allow")

    action: Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, slots=True)
class LegacyElicitation:
    """`serving.Ask` for one request of a legacy client."""

    context: ServerRequestContext[Any, Any]
    declared: DeclaredCapabilities

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """See `serving.Ask`."""
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
            question.pop("mode", None)  # which 2025-06-18 does not know and 2025-11-25 takes for granted
        try:
            answer = await self.context.session.send_request(
                _Question(params=question),  # type: ignore[arg-type]  # a ServerRequest with its params unread
                _ElicitResult,
                metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
            )
        except MCPError as exc:
            raise PeerError(f"The client could not ask for input: {exc.error.message}") from exc
        except ValidationError as exc:
            raise PeerError("The client answered a question with what is no ElicitResult") from exc
        return answer.model_dump(by_alias=True)
