"""The values that pass between a tool server and its callers. They need no connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.mcp.tools import Tool, UnservableTool
from bridge.text.jsonvalues import JsonObject


@dataclass(frozen=True)
class Greeting:
    """A server's description of itself, from the handshake."""

    name: str
    version: str
    title: str | None = None
    website_url: str | None = None
    instructions: str | None = None
    icon_url: str | None = None


@dataclass(frozen=True)
class ToolListing:
    """The tools that a server lists: those that can be served, and those that cannot."""

    tools: tuple[Tool, ...] = ()
    left_out: tuple[UnservableTool, ...] = ()
    odd: str = ""
    """What is wrong with the list itself, which may have more tools; empty if nothing is."""
    fresh_seconds: float | None = None
    """How long the list is fresh, by the server's word (MCP 2026-07-28 `ttlMs`); None if it does not say."""

    def is_same(self, other: ToolListing) -> bool:
        """Whether the server has listed the same as in another list."""
        return (self.left_out, self.odd) == (other.left_out, other.odd) and [
            one.listed for one in self.tools
        ] == [one.listed for one in other.tools]

    @property
    def odd_fields(self) -> tuple[str, ...]:
        """What was left out of the tools, in words."""
        return tuple(f"the tool {tool.name}: {words}" for tool in self.tools for words in tool.odd)

    def faults_since(self, before: ToolListing) -> list[str]:
        """What is wrong with tools of this listing and was not wrong in an earlier one, in words."""
        known = {tool.name: tool.unchecked for tool in before.tools}
        return [
            *([self.odd] if self.odd and self.odd != before.odd else []),
            *(
                f"not all arguments of the tool {tool.name} are checked: {tool.unchecked}"
                for tool in self.tools
                if tool.unchecked and known.get(tool.name) != tool.unchecked
            ),
            *(words for words in self.odd_fields if words not in before.odd_fields),
            *(
                f"the tool {tool.name} is left out: {tool.reason}"
                for tool in self.left_out
                if tool not in before.left_out
            ),
        ]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tools/call. `input_responses` and `request_state` make it a retry (MCP 2026-07-28 basic/patterns/mrtr)."""

    tool: str
    arguments: JsonObject
    input_responses: JsonObject | None = None
    """The answers to the questions of the round before."""
    request_state: str | None = None
    """The `requestState` that the server sent in that round, unchanged."""
    meta: JsonObject = field(default_factory=dict)
    """What the caller puts into `_meta`, beside what the connection needs."""
    task_ttl_ms: int = field(kw_only=True)
    """How long the server is asked to keep a task that it makes of the call, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress notification, its numbers as they were sent."""

    progress: int | float
    total: int | float | None = None
    message: str | None = None


OnProgress = Callable[[ProgressReport], None]


class Asker(Protocol):
    """Answers the questions that a server asks in the middle of a call."""

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Answer each question (the params of an elicitation/create) with an ElicitResult.

        Cancelled when the answer is no longer awaited. When the server took the question back, `withdraw` is called
        first.
        """
        ...

    @property
    def is_left(self) -> bool:
        """Whether the bridge stops while a question is open. Then the server is not told, and another process may
        ask again."""
        ...

    def withdraw(self, key: str) -> None:
        """The server took this question back. The call goes on."""
        ...

    def miss_question(self, calls: int) -> None:
        """The server asked something while `calls` calls were under way and named none of them. The question may have
        belonged to this call; it was answered with an error."""
        ...
