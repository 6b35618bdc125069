"""What passes between a tool server and those who use it: plain values, known without any connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.jsonvalues import JsonObject
from bridge.mcp.tools import Tool, UnservableTool


@dataclass(frozen=True)
class Greeting:
    """What a server says of itself."""

    name: str
    version: str
    title: str | None = None
    website_url: str | None = None
    instructions: str | None = None
    icon_url: str | None = None


@dataclass(frozen=True)
class ToolListing:
    """The tools that a server lists and that can be served, and the others."""

    tools: tuple[Tool, ...] = ()
    left_out: tuple[UnservableTool, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tools/call. `input_responses` and `request_state` make it a retry (MCP 2026-07-28 basic/patterns/mrtr)."""

    tool: str
    arguments: JsonObject
    input_responses: JsonObject | None = None
    """The answers to the questions of the round before."""
    request_state: str | None = None
    """What the server gave with that round, exactly."""
    task_ttl_ms: int = field(kw_only=True)
    """How long the server is asked to keep a task that it makes of the call."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress notification, its numbers as they were sent."""

    progress: int | float
    total: int | float | None = None
    message: str | None = None


OnProgress = Callable[[ProgressReport], None]


class Asker(Protocol):
    """Whoever made a call, as a server that asks in the middle of it sees them."""

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Answer each question (the params of an elicitation/create) with an ElicitResult.

        Cancelled when nobody waits for the answer any more: `withdraw` says so first if it was the server that
        took the question back.
        """
        ...

    @property
    def is_left(self) -> bool:
        """Whether the bridge stops while this asks: the server is told nothing, and another process may ask again."""
        ...

    def withdraw(self, key: str) -> None:
        """The server no longer wants the answer to this question; the call goes on."""
        ...

    def miss_question(self, calls: int) -> None:
        """The server asked something while so many calls were under way, and nothing said that it was for this one
        or for another: it was answered with an error."""
        ...
