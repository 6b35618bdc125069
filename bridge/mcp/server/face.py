"""What our MCP server serves and how it is asked: plain values, known without any connection.

Whoever implements `ToolFace` sees no JSON-RPC, no session and no difference between transports. What differs
between the eras of the protocol and cannot be hidden is how a client is asked for input: a legacy client in
the middle of the call (`Incoming.ask`), a modern one by an answer that makes it call again.

Spec: MCP 2026-07-28 and 2025-11-25.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bridge.access.principals import MayUse, may_use_everything
from bridge.errors import BridgeError, PeerError, telling_of
from bridge.jsonvalues import JsonObject

INVALID_PARAMS: Literal[-32602] = -32602
INTERNAL_ERROR: Literal[-32603] = -32603


class McpRefusal(Exception):
    """A request that is answered with a JSON-RPC error; all of it is for the client."""

    def __init__(self, code: Literal[-32602, -32603], message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def refusal_of(exc: BridgeError, before: str = "") -> McpRefusal:
    """How a request fails that is no call of a tool; its text follows what is said `before`."""
    return McpRefusal(telling_of(exc).mcp_code, f"{before}{exc}")


class ReportProgress(Protocol):
    """Tells the client how far its call has come; does nothing for a client that gave no progress token."""

    def __call__(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """Never waits and never raises; what was reported before the result is sent before it.

        Numbers have to grow. None, and a number that does not grow, count one on from the last one (then
        without a total); without a message such a report is dropped.
        """
        ...


class AskClient(Protocol):
    """Asks a legacy client while its call waits."""

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """All questions at once (the params of elicitation/create), each with its ElicitResult, unread.

        Cancelled, it withdraws what is still open.

        Raises:
            PeerError: the client is a modern one, did not declare the mode, answered with an error or with what
                is no ElicitResult, or has gone. Nothing is asked when one of the modes is not declared.
        """
        ...


def _report_to_nobody(
    progress: float | None, total: float | None = None, message: str | None = None
) -> None: ...


async def _ask_nobody(questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:  # noqa: ARG001
    raise PeerError("The client cannot be asked anything in the middle of a call")


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """One tools/call, of a tool that is listed."""

    name: str
    arguments: JsonObject
    meta: JsonObject = field(default_factory=dict)
    """The request's `_meta`, as it was sent."""
    principal: str = "local"
    may_use: MayUse = may_use_everything
    """Which tools the caller may use: this one, but a call may name others in its arguments."""
    is_modern: bool = False
    """Whether the client speaks 2026-07-28: it may be answered with `resultType` input_required."""
    takes_forms: bool = False
    """Whether it declared elicitation in form mode."""
    takes_urls: bool = False
    """Whether it declared elicitation in URL mode."""
    takes_tasks: bool = False
    """Whether it declared the tasks extension, and is modern."""
    input_responses: JsonObject | None = None
    """A modern client's answers to the questions of the round before, by key, unread."""
    request_state: str | None = None
    """What the round before was answered with; it comes from the client."""
    report: ReportProgress = _report_to_nobody
    ask: AskClient = _ask_nobody


@dataclass(frozen=True, slots=True)
class TaskCaller:
    """Who asks about a task, and how it can be asked itself."""

    principal: str = "local"
    takes_forms: bool = False
    takes_urls: bool = False
    may_use: MayUse = may_use_everything
    """Which tools it may use: it is told nothing of the tasks of others."""


class TaskFace(Protocol):
    """The tasks that calls were answered with (`resultType` task). Asked by clients that declared the extension.

    A task as it stands is a DetailedTask: it goes out unread. An id that is not known, no longer, or not to this
    caller, is refused with INVALID_PARAMS.

    Spec: the tasks extension, io.modelcontextprotocol/tasks.
    """

    def knows(self, task_id: str, caller: TaskCaller) -> bool:
        """Whether an id is one of a task of this caller. Looks nowhere else."""
        ...

    async def get(self, task_id: str, caller: TaskCaller) -> JsonObject:
        """The task as it stands.

        Raises:
            McpRefusal: it is not known.
        """
        ...

    async def update(self, task_id: str, responses: JsonObject, caller: TaskCaller) -> None:
        """Take answers to what it asks, by key and unread. Those to nothing that is open are passed over.

        Raises:
            McpRefusal: it is not known, or the answers could not be passed on.
        """
        ...

    async def cancel(self, task_id: str, caller: TaskCaller) -> None:
        """Ask for its end; it may go on, or end otherwise.

        Raises:
            McpRefusal: it is not known, or the wish could not be passed on.
        """
        ...

    async def watch(self, task_id: str, caller: TaskCaller, tell: Callable[[JsonObject], None]) -> None:
        """Tell how it stands, now and whenever that has changed, until it has ended or this is cancelled."""
        ...


class ToolFace(Protocol):
    """What is served. Lists are as they go out: valid, sorted, equal for every client that may use the same.

    What a caller may not use is answered like what is not there (`may_use`, asked with the name of a tool). Tools
    that reach only what handles name, which are bound to their principals, are for everyone.

    A legacy client loses a whole list to one outputSchema that is no object's, and a result to a
    structuredContent that is no object.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def instructions(self) -> str | None: ...
    @property
    def website_url(self) -> str | None: ...
    @property
    def icons(self) -> Sequence[JsonObject]: ...
    @property
    def tasks(self) -> TaskFace | None:
        """The tasks that calls may be answered with; None when none ever is."""
        ...

    def tools(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """Each a Tool; what stands in it goes out unread. Asked for with every call: it has to be quick."""
        ...

    def resources(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """Each a Resource."""
        ...

    def templates(self) -> Sequence[JsonObject]:
        """Each a ResourceTemplate."""
        ...

    def prompts(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """Each a Prompt."""
        ...

    async def call(self, incoming: IncomingCall) -> JsonObject:
        """A CallToolResult, or for a modern client any result with its `resultType`; it goes out unread.

        Cancelled when the client cancels the call, or has gone where that means the same.

        Raises:
            McpRefusal: the answer is a JSON-RPC error. Any other exception is answered with an internal error
                that says nothing of it, and logged.
        """
        ...

    async def read(self, uri: str, principal: str, may_use: MayUse = may_use_everything) -> JsonObject:
        """A ReadResourceResult.

        Raises:
            McpRefusal: there is no such resource for this principal.
        """
        ...

    async def prompt(
        self, name: str, arguments: Mapping[str, str], may_use: MayUse = may_use_everything
    ) -> JsonObject:
        """A GetPromptResult.

        Raises:
            McpRefusal: there is no such prompt, or an argument is missing.
        """
        ...
