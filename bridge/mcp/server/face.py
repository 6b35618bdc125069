"""The contract between the bridge's MCP server and the face that it serves, as plain values without connections.

A `ToolFace` does not see JSON-RPC, sessions or transports. It sees one difference between the eras of the protocol: how
a client is asked for input. A legacy client is asked in the middle of the call (`IncomingCall.ask`); a modern client
gets an answer that makes it call again.

Spec: MCP 2026-07-28 and 2025-11-25.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from bridge.errors import BridgeError, PeerError, fault_policy_of
from bridge.identity.callers.principals import MayUse, OfferedNames, Principal, may_use_everything
from bridge.identity.tokens.caller_token import Caller, CallerToken
from bridge.text.jsonvalues import JsonObject

INVALID_PARAMS: Literal[-32602] = -32602
INTERNAL_ERROR: Literal[-32603] = -32603
MISSING_REQUIRED_CLIENT_CAPABILITY: Literal[-32021] = -32021


class McpRefusal(Exception):
    """A request is answered with this JSON-RPC error. The client sees all of it."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.outcome = str(code)
        """The outcome of the request's hop."""


def refusal_of(exc: BridgeError, before: str = "") -> McpRefusal:
    """The refusal for a failed request other than tools/call. Its message begins with `before`."""
    return McpRefusal(fault_policy_of(exc).mcp_code, f"{before}{exc}")


class ReportProgress(Protocol):
    """Reports progress to the client. Does nothing for a client that sent no progress token."""

    def __call__(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """Never waits and never raises. Reports made before the result are sent before it.

        Numbers must grow. For None, and for a number that does not grow, the last number plus one is sent, without a
        total. Such a report is dropped if it has no message.
        """
        ...


class SendLog(Protocol):
    """Sends a log message to the client. Does nothing for a client that did not ask for any."""

    def __call__(self, message: JsonObject) -> None:
        """Never waits and never raises. `message` has the params of notifications/message, at the client's level or
        above. Messages that were given before the result are sent before it."""
        ...


class AskClient(Protocol):
    """Asks a legacy client while its call waits."""

    async def __call__(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """Ask all questions at once (the params of elicitation/create). Returns the unparsed ElicitResult of each.

        Cancelling this withdraws the questions that are still open.

        Raises:
            PeerError: the client is modern, did not declare the mode, has gone, or answered with an error or an invalid
                ElicitResult. If the mode of one question is not declared, nothing is asked.
        """
        ...


def _report_to_nobody(
    progress: float | None, total: float | None = None, message: str | None = None
) -> None: ...


def _log_to_nobody(message: JsonObject) -> None: ...


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
    """Which tools the caller may use. A call may name other tools in its arguments."""
    may_see: MayUse = may_use_everything
    """Which tools lists show to the caller: tools that it may use, and tools that it could use with a further scope."""
    caller: CallerToken | None = None
    """The access token of an issuer that came with the request, if any."""
    client: str = ""
    """The name and version that the client gives. They are not verified."""
    is_modern: bool = False
    """Whether the client speaks 2026-07-28, so that an answer may have the `resultType` input_required."""
    takes_forms: bool = False
    """Whether it declared elicitation in form mode."""
    takes_urls: bool = False
    """Whether it declared elicitation in URL mode."""
    takes_tasks: bool = False
    """Whether it declared the tasks extension, and is modern."""
    input_responses: JsonObject | None = None
    """A modern client's unparsed answers to the questions of the round before, by key."""
    request_state: str | None = None
    """The `requestState` of the round before. It comes from the client, so it is untrusted."""
    report: ReportProgress = _report_to_nobody
    log_level: str | None = None
    """The least severe level of the log messages that the client wants; None if it wants none."""
    log: SendLog = _log_to_nobody
    ask: AskClient = _ask_nobody
    """Asks the client for a peer, which gets the answers."""
    ask_here: AskClient = _ask_nobody
    """Asks the client for the bridge itself. The answers go to no peer."""

    @property
    def on_behalf_of(self) -> Caller:
        """The caller on whose behalf peers are called."""
        return Caller(self.principal, self.caller, self.client)


@dataclass(frozen=True, slots=True)
class TaskCaller:
    """The caller of a request about a task, and the modes of elicitation that it declared."""

    principal: str = "local"
    takes_forms: bool = False
    takes_urls: bool = False
    may_use: MayUse = may_use_everything
    """Which tools the caller may use. Tasks of other tools are hidden from it."""
    token: CallerToken | None = None
    """The access token of an issuer that came with the request, if any."""

    @property
    def on_behalf_of(self) -> Caller:
        """The caller on whose behalf peers are called."""
        return Caller(self.principal, self.token)


class TaskWork(NamedTuple):
    """The tool, the peer and the task of a request, for hops."""

    skill: str
    """The tool that is or was called; empty if it is no longer listed."""
    peer: str
    """The peer that runs the tool; empty if there is none, or it is not known."""
    task_id: str
    """The peer's id of the task; empty if the request is not about a task."""


class TaskFace(Protocol):
    """The tasks that calls have become (`resultType` task). For clients that declared the extension.

    A task is returned as a DetailedTask, which is sent without parsing. An unknown or expired id, and the id of another
    caller's task, are refused with INVALID_PARAMS.

    Spec: the tasks extension, io.modelcontextprotocol/tasks.
    """

    def knows(self, task_id: str, caller: TaskCaller) -> bool:
        """Whether this is the id of a task of this caller. Decided from the id alone, without any request."""
        ...

    def work_of(self, task_id: str, caller: TaskCaller) -> TaskWork | None:
        """The work of a task of this caller; None if there is no such task. Decided from the id alone."""
        ...

    async def get(self, task_id: str, caller: TaskCaller) -> JsonObject:
        """The present task.

        Raises:
            McpRefusal: the task is not known.
        """
        ...

    async def update(self, task_id: str, responses: JsonObject, caller: TaskCaller) -> None:
        """Accept the unparsed answers to the task's questions, by key. Answers to questions that are not open are
        ignored.

        Raises:
            McpRefusal: the task is not known, or the answers could not be passed on.
        """
        ...

    async def cancel(self, task_id: str, caller: TaskCaller) -> None:
        """Ask for the cancellation of a task. The task may still go on, or end in another way.

        Raises:
            McpRefusal: the task is not known, or the request could not be passed on.
        """
        ...

    async def watch(self, task_id: str, caller: TaskCaller, tell: Callable[[JsonObject], None]) -> None:
        """Call `tell` with the task now, and after each change, until it has ended or this is cancelled."""
        ...


class ChangeListener(Protocol):
    """Hears of changes of resources and lists that remote agents share."""

    def want(self, wanted: JsonObject) -> None:
        """Replace what is wanted: the `notifications` of a subscriptions/listen. What no agent notifies of, and what
        the principal may not read, is left out."""
        ...

    async def settled(self) -> JsonObject:
        """What will be notified of, in the form of `want`. Waits for the agents, for a limited time."""
        ...

    def close(self) -> None:
        """Hear of nothing any more."""
        ...


class RequestFace(Protocol):
    """The requests of MCP that remote agents answer: about resources, prompts and completions of their tool servers.

    Errors and results are those of the servers.
    """

    @property
    def capabilities(self) -> JsonObject:
        """What the agents can do together, as the capabilities of a server: `resources`, `prompts`, `completions`.
        Empty if no agent shares anything."""
        ...

    def takes(self, method: str, params: JsonObject, principal: Principal) -> bool:
        """Whether an agent answers a request, and not the bridge itself. Any params of the method are accepted."""
        ...

    def meant(self, method: str, params: JsonObject, principal: Principal) -> tuple[str, str]:
        """The agent that a request goes to, and the URI or the name that it is about. Both are empty if no agent
        answers it."""
        ...

    async def answer(self, method: str, params: JsonObject, principal: Principal) -> JsonObject:
        """The result of a request. A page of a list is the agents' part of the list.

        Raises:
            McpRefusal: the answer is a JSON-RPC error: that of the server, or of the bridge.
        """
        ...

    def listener(self, principal: Principal, tell: Callable[[JsonObject], None]) -> ChangeListener:
        """A listener for a client. `tell` is called with each notification, and must not wait."""
        ...


class ToolFace(Protocol):
    """The content of the server. Lists are sent without parsing: they are valid, sorted, and equal for equal rights.

    A tool that the caller may not use is treated as if it did not exist (`may_use`, by the names of the tool). Tools
    that act only on handles are for everyone, since a handle is bound to its principal.

    A legacy client sees no outputSchema of another type than object, and gets structuredContent in an object.
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
        """The tasks that calls may become; None if calls never become tasks."""
        ...

    @property
    def requests(self) -> RequestFace | None:
        """The requests that remote agents answer; None if no agent ever answers any."""
        ...

    @property
    def has_logs(self) -> bool:
        """Whether calls may have log messages."""
        ...

    def tools(self, may_use: MayUse = may_use_everything, *, with_apps: bool = False) -> Sequence[JsonObject]:
        """The tools, each a Tool that is sent without parsing. Called for every request, so it must be fast.
        `with_apps` includes the tools that only MCP Apps may call."""
        ...

    def unknown_tool(self, name: str) -> McpRefusal:
        """The refusal of a call of a tool that the caller may not use, or that does not exist."""
        ...

    def tool(
        self, name: str, may_use: MayUse = may_use_everything, *, with_apps: bool = False
    ) -> JsonObject | None:
        """The tool of this name, as `tools` shows it; None if the caller may use no such tool."""
        ...

    def resources(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """The resources, each a Resource."""
        ...

    def templates(self) -> Sequence[JsonObject]:
        """The templates of resources, each a ResourceTemplate."""
        ...

    def prompts(self, may_use: MayUse = may_use_everything) -> Sequence[JsonObject]:
        """The prompts, each a Prompt."""
        ...

    def tool_called(self, name: str, arguments: JsonObject) -> str | None:
        """The tool that a call runs, by the name that hosts see; None if the call is for everyone."""
        ...

    def names_of(self, tool: str) -> OfferedNames:
        """The names of a tool that rights refer to."""
        ...

    def work_of(self, name: str, arguments: JsonObject, principal: str) -> TaskWork:
        """The work of a principal's call, as far as its name and arguments show it."""
        ...

    @property
    def caller_issuers(self) -> Mapping[str, str]:
        """The tools whose calls need a token of the caller, each with the issuer of the token."""
        ...

    async def call(self, incoming: IncomingCall) -> JsonObject:
        """The CallToolResult, or for a modern client any result with its `resultType`. It is sent without parsing.

        Cancelled when the client cancels the call, and when it disconnects on a transport where this means the same.

        Raises:
            McpRefusal: the answer is a JSON-RPC error. Any other exception is logged, and answered with an internal
                error without details.
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
