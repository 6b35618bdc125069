"""The contract between the bridge's MCP server and what it serves, as plain values without any connection.

A `ToolFace` sees no JSON-RPC, no session and no difference between transports. One difference between the eras of
the protocol stays visible: how a client is asked for input. A legacy client is asked in the middle of the call
(`IncomingCall.ask`); a modern client gets an answer that makes it call again.

Spec: MCP 2026-07-28 and 2025-11-25.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from bridge.errors import BridgeError, PeerError, fault_policy_of
from bridge.identity.callers.principals import MayUse, OfferedNames, may_use_everything
from bridge.identity.tokens.caller_token import Caller, CallerToken
from bridge.text.jsonvalues import JsonObject

INVALID_PARAMS: Literal[-32602] = -32602
INTERNAL_ERROR: Literal[-32603] = -32603
MISSING_REQUIRED_CLIENT_CAPABILITY: Literal[-32021] = -32021


class McpRefusal(Exception):
    """A request is answered with this JSON-RPC error. The client sees all of it."""

    def __init__(
        self, code: Literal[-32602, -32603, -32021], message: str, data: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def refusal_of(exc: BridgeError, before: str = "") -> McpRefusal:
    """The refusal for a failed request other than tools/call. Its message begins with `before`."""
    return McpRefusal(fault_policy_of(exc).mcp_code, f"{before}{exc}")


class ReportProgress(Protocol):
    """Reports progress to the client. Does nothing for a client that sent no progress token."""

    def __call__(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """Never waits and never raises. Reports made before the result are sent before it.

        Numbers have to grow. For None, and for a number that does not grow, the last number plus one is sent,
        without a total. Such a report is dropped when it has no message.
        """
        ...


class AskClient(Protocol):
    """Asks a legacy client while its call waits."""

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Ask all questions at once (the params of elicitation/create). Returns an ElicitResult for each, unread.

        Cancelling this withdraws the questions that are still open.

        Raises:
            PeerError: the client is a modern one, did not declare the mode, has gone, or answered with an error or
                an invalid ElicitResult. When one mode is not declared, nothing is asked.
        """
        ...


def _report_to_nobody(
    progress: float | None, total: float | None = None, message: str | None = None
) -> None: ...


async def _ask_nobody(questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:  # noqa: ARG001
    raise PeerError("The client cannot be asked anything in the middle of a call")


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """One tools/call. Its tool is listed for the caller."""

    name: str
    arguments: JsonObject
    meta: JsonObject = field(default_factory=dict)
    """The request's `_meta`, as it was sent."""
    principal: str = "local"
    may_use: MayUse = may_use_everything
    """Which tools the caller may use. Needed since a call may name other tools in its arguments."""
    may_see: MayUse = may_use_everything
    """Which tools lists show to the caller: those that it may use, and those that a further scope would open."""
    caller: CallerToken | None = None
    """The access token of an issuer that came with the request, if one did."""
    client: str = ""
    """What the client says of itself: its name and version. Nobody has checked it."""
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
    """The `requestState` of the round before. It comes from the client, so it cannot be trusted."""
    report: ReportProgress = _report_to_nobody
    ask: AskClient = _ask_nobody
    """Asks the client for a peer, which gets the answers."""
    ask_here: AskClient = _ask_nobody
    """Asks the client for the bridge itself: no peer gets the answers."""

    @property
    def on_behalf_of(self) -> Caller:
        """For whom peers are called."""
        return Caller(self.principal, self.caller, self.client)


@dataclass(frozen=True, slots=True)
class TaskCaller:
    """The caller of a request about a task, and the modes of elicitation that it declared."""

    principal: str = "local"
    takes_forms: bool = False
    takes_urls: bool = False
    may_use: MayUse = may_use_everything
    """Which tools the caller may use. It learns nothing of the tasks of other tools."""
    token: CallerToken | None = None
    """The access token of an issuer that came with the request, if one did."""

    @property
    def on_behalf_of(self) -> Caller:
        """For whom peers are called."""
        return Caller(self.principal, self.token)


class TaskWork(NamedTuple):
    """What a request is about, for those who listen to hops."""

    skill: str
    """The tool that is or was called; empty if it is not listed any more."""
    peer: str
    """The peer that runs it; empty if there is none, or none is known."""
    task_id: str
    """The id that the peer has given the task; empty if the request is about none."""


class TaskFace(Protocol):
    """The tasks that calls were answered with (`resultType` task). Asked by clients that declared the extension.

    A task is returned as a DetailedTask, which goes out unread. An unknown or expired id, and an id of another
    caller's task, are refused with INVALID_PARAMS.

    Spec: the tasks extension, io.modelcontextprotocol/tasks.
    """

    def knows(self, task_id: str, caller: TaskCaller) -> bool:
        """Whether this is the id of a task of this caller. Decided from the id alone, without any request."""
        ...

    def work_of(self, task_id: str, caller: TaskCaller) -> TaskWork | None:
        """What a task of this caller is about; None if there is no such task. Decided from the id alone."""
        ...

    async def get(self, task_id: str, caller: TaskCaller) -> JsonObject:
        """The task as it stands.

        Raises:
            McpRefusal: it is not known.
        """
        ...

    async def update(self, task_id: str, responses: JsonObject, caller: TaskCaller) -> None:
        """Take the answers to its questions, by key and unread. Answers to questions that are not open are ignored.

        Raises:
            McpRefusal: the task is not known, or the answers could not be passed on.
        """
        ...

    async def cancel(self, task_id: str, caller: TaskCaller) -> None:
        """Ask for its cancellation. The task may still go on, or end in another way.

        Raises:
            McpRefusal: the task is not known, or the request could not be passed on.
        """
        ...

    async def watch(self, task_id: str, caller: TaskCaller, tell: Callable[[JsonObject], None]) -> None:
        """Call `tell` with the task now, and after each change, until it has ended or this is cancelled."""
        ...


class ToolFace(Protocol):
    """What is served. Lists go out unread: they are valid, sorted, and equal for clients with equal rights.

    A tool that the caller may not use is treated as if it did not exist (`may_use`, by the names of the tool). Tools
    that act only on handles are for everyone, since a handle is bound to its principal.

    A legacy client is shown no outputSchema whose type is not object, and gets structuredContent in an object.
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
        """The tasks that calls may become; None when calls never become tasks."""
        ...

    def tools(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """The tools, each a Tool that goes out unread. Called for every request: it has to be quick."""
        ...

    def tool(self, name: str, may_use: MayUse = may_use_everything) -> JsonObject | None:
        """The tool of this name, as `tools` shows it; None when the caller may use no such tool."""
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

    def tool_called(self, name: str, arguments: JsonObject) -> str | None:
        """The tool that a call runs, by the name that hosts see; None if the call is for everyone."""
        ...

    def names_of(self, tool: str) -> OfferedNames:
        """The names of a tool by which rights hold."""
        ...

    def work_of(self, name: str, arguments: JsonObject, principal: str) -> TaskWork:
        """What a call of a principal is about, as far as its name and arguments say so."""
        ...

    @property
    def caller_issuers(self) -> Mapping[str, str]:
        """The issuers of whose tokens each call of some tools needs one, by these tools."""
        ...

    async def call(self, incoming: IncomingCall) -> JsonObject:
        """A CallToolResult, or for a modern client any result with its `resultType`; it goes out unread.

        Cancelled when the client cancels the call, and when it disconnects on a transport where that means the same.

        Raises:
            McpRefusal: the answer is a JSON-RPC error. Any other exception is answered with an internal error
                that says nothing of it, and logged.
        """
        ...

    async def read(
        self,
        uri: str,
        principal: str,
        may_use: MayUse = may_use_everything,
        caller: CallerToken | None = None,
    ) -> JsonObject:
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
