"""The values between a tool server and its callers. They need no connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bridge.frozen import frozen
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
    capabilities: JsonObject = field(default_factory=dict, hash=False)
    """What the server declared of resources, prompts and completions, in MCP's own shape."""


OnNews = Callable[[str, JsonObject], None]
"""Called with the method and the params of a notification about resources or prompts."""


@dataclass(frozen=True)
class ToolListing:
    """The tools that a server lists: tools that can be served, and tools that cannot."""

    tools: tuple[Tool, ...] = ()
    left_out: tuple[UnservableTool, ...] = ()
    odd: str = ""
    """The fault of the list itself, which may have more tools; empty if there is none."""
    fresh_seconds: float | None = None
    """How long the list is fresh (MCP 2026-07-28 `ttlMs`); None if the server does not say."""
    stand_ins: tuple[Tool, ...] = ()
    """The tools that stand for prompts and resources of the server, if the configuration wants such tools."""
    held_back: tuple[UnservableTool, ...] = ()
    """Those of `tools` and `stand_ins` that must not be offered, and why. Their names stay taken."""

    def is_same(self, other: ToolListing) -> bool:
        """Whether two listings are equal."""
        return (self.left_out, self.odd) == (other.left_out, other.odd) and [
            tool.listed for tool in (*self.tools, *self.stand_ins)
        ] == [tool.listed for tool in (*other.tools, *other.stand_ins)]

    @property
    def odd_fields(self) -> tuple[str, ...]:
        """Descriptions of the fields that were left out of the tools."""
        return tuple(f"the tool {tool.name}: {words}" for tool in self.tools for words in tool.odd)

    def faults_since(self, before: ToolListing) -> list[str]:
        """Descriptions of the faults of tools that an earlier listing did not have."""
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


SharedItemKind = Literal["prompts", "templates"]


class Approver(Protocol):
    """Says which definitions of a server are approved."""

    @property
    def refuses(self) -> bool:
        """Whether what is not approved must be held back."""
        ...

    def __call__(self, listing: ToolListing) -> ToolListing:
        """The listing with what is held back of it."""
        ...

    def refusal(self, kind: SharedItemKind, name: str, entry: JsonObject | None) -> str:
        """Why a prompt or a resource template must not be offered, in words; "" if it may. None says that the server
        does not list it."""
        ...


@frozen
class ToolCall:
    """One tools/call. `input_responses` and `request_state` make it a retry (MCP 2026-07-28 basic/patterns/mrtr)."""

    tool: str
    arguments: JsonObject
    input_responses: JsonObject | None = None
    """The answers to the questions of the round before."""
    request_state: str | None = None
    """The `requestState` of the round before, unchanged."""
    meta: JsonObject = field(default_factory=dict)
    """The `_meta` of the caller. The connection adds its own keys."""
    may_read: Callable[[str], bool] | None = None
    """Whether the caller may read a resource, by URI. Only a tool that stands for resources needs it."""
    takes_tasks: bool = True
    """Whether the call may become a task of a server of MCP 2026-07-28."""
    task_ttl_ms: int = field(kw_only=True)
    """How long the server should keep a task that it makes of the call, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """One progress notification, with its numbers as they were sent."""

    progress: int | float
    total: int | float | None = None
    message: str | None = None


OnProgress = Callable[[ProgressReport], None]


@dataclass(frozen=True, slots=True)
class LogSink:
    """The log messages that the client of a call wants."""

    level: str
    """The least severe level that it wants."""
    take: Callable[[JsonObject], None]
    """Called with the fields of each message."""
    is_sole: bool
    """Whether the session serves nobody but the principal of the call."""


class ResponseParams(dict[str, Any]):
    """The params of a notification that came on the response to a request. Only the transport makes them, so a server
    cannot pretend that a notification belongs to another request."""

    def __init__(self, params: Mapping[str, Any], request_id: int) -> None:
        super().__init__(params)
        self.request_id = request_id


class Asker(Protocol):
    """Answers the questions that a server asks in the middle of a call."""

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Answer each question (the params of an elicitation/create) with an ElicitResult.

        Cancelled when the answer is no longer needed. If the server withdrew the question, `withdraw` is called first.
        """
        ...

    @property
    def is_left(self) -> bool:
        """Whether the bridge stops while a question is open. Then the server is not told, so that another process can
        ask again."""
        ...

    def withdraw(self, key: str) -> None:
        """Note that the server withdrew this question. The call goes on."""
        ...

    def miss_question(self, calls: int) -> None:
        """Note that the server asked a question while `calls` calls were under way, and named none of them. The
        question may have belonged to this call. It was answered with an error."""
        ...
