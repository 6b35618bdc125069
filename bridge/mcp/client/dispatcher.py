"""One JSON-RPC connection to a tool server, below the SDK's session.

The SDK's session validates each result against its own models and drops unknown fields. A bridge has to pass on all
fields. So the SDK's session does only the handshake. This module lists and calls tools on the same connection and with
the same stamp, and does not parse the results.

Notifications are handled here in the order of the wire. (The SDK runs progress callbacks concurrently, so the last may
come first.)

Spec: MCP 2026-07-28 basic (per-request `_meta`), transports (headers), utilities/progress.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
from mcp import ClientSession, MCPError
from mcp.client._transport import TransportStreams
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
)
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, MessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    Implementation,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bridge.errors import counted
from bridge.mcp.client.elicitation_routing import MODES, ElicitationRouter
from bridge.mcp.client.faults import FLOODED, UNREACHABLE, error_of
from bridge.mcp.client.incoming import Incoming
from bridge.mcp.client.roots import LIST, capabilities_with_roots, roots_result, with_roots_declared
from bridge.mcp.client.values import OnNews, OnProgress, ProgressReport
from bridge.mcp.log_messages import LOG
from bridge.mcp.messages import ELICIT, TASKS_EXTENSION, UnreadableError
from bridge.text.jsonvalues import JsonObject, exceeds_floats, json_bytes
from bridge.trace import OnHop

logger = logging.getLogger(__name__)

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_PROGRESS: Final = "notifications/progress"
_TASK_NEWS: Final = frozenset({"notifications/tasks", "notifications/tasks/status"})
"""The notifications about a task: of the tasks extension, and of MCP 2025-11-25."""

_SUBSCRIBED: Final = "notifications/subscriptions/acknowledged"
"""Says which changes will be notified; with the tasks extension, also of which tasks."""

_CHANGES: Final = frozenset(
    {
        "notifications/resources/updated",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    }
)
"""The notifications that a subscription may ask for, besides changes of tools."""
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
"""The key in `_meta` that names the request of a subscription (basic/patterns/subscriptions)."""

_HANDSHAKE: Final = frozenset({"server/discover", "initialize"})
"""The requests that start a session. The SDK gives up `server/discover` after 10 s and ignores a later answer; here
only the deadline of the connection counts. `initialize` must not be cancelled."""

_SHOWN_CHARACTERS: Final = 80
"""How many characters of an ignored message are logged."""
_MAY_BE_A_RESULT: Final = re.compile(r'"(jsonrpc|result|content|structuredContent)"\s*:')
"""The signs that a line may be an answer, which may have the result of a tool."""
_CLOSED: Final = "Connection closed"
"""The message of the SDK for a closed connection."""
_CANCEL_SECONDS: Final = 5.0
"""How long sending notifications/cancelled may take."""

CAPABILITIES: Final[JsonObject] = {
    "elicitation": {mode: {} for mode in MODES},
    "extensions": {TASKS_EXTENSION: {}},
}
"""The capabilities that every request of MCP 2026-07-28 declares. Sampling is not declared, and roots only to a server
for which the file names folders."""

_NO_EXTENSIONS: Final[Mapping[str, Any]] = {}

_NOT_TAKEN_IN: Final = (
    "it sent {} requests ({} bytes) without reading the answers, so its connection was ended: `unanswered_most` and"
    " `result_limit_bytes` of the tool server are the limits"
)

OnTaskNews = Callable[[JsonObject], None]
"""Called with the task in a notification. A task without `status` says that notifications begin now; earlier changes
have to be asked for."""


@dataclass(frozen=True, slots=True)
class UnansweredBounds:
    """The bounds on the requests of a server (pings, questions) whose answers it has not read."""

    most: int
    """The most requests. It leaves ample room for a question of each running call and some pings."""
    most_bytes: int
    """The most bytes in these requests together."""


class Wire(JSONRPCDispatcher):
    """The SDK's dispatcher, with notifications in order, an event for its end, and a faster path for requests.

    The SDK's own requests (the handshake) take the SDK's path. `ask` writes to the same streams without the span, the
    clock and the pair of streams that the SDK makes for each request: these cost a tenth of the time of a call.
    """

    def __init__(
        self,
        name: str,
        streams: TransportStreams,
        questions: ElicitationRouter,
        on_tools_changed: Callable[[], None],
        bounds: UnansweredBounds,
        roots: tuple[str, ...] = (),
    ) -> None:
        """`roots` are the file URIs of the folders that the server may ask for; without any, none are declared."""
        super().__init__(*streams, on_stream_exception=self._unreadable)
        self._name = name
        self._messages = streams[0]
        self._warned: set[str] = set()
        """The kinds of ignored messages for which a warning was logged."""
        self.closed = anyio.Event()
        """Set once the connection has ended, for whatever reason."""
        self.why_closed = ""
        """Why the bridge ended the connection; empty if it did not."""
        self._bounds = bounds
        self._roots = roots
        self._unanswered = self._unanswered_bytes = 0
        self._questions = questions
        self._on_tools_changed = on_tools_changed
        self.list_changes = frozenset({TOOLS_CHANGED})
        """The notifications after which the tools are listed again."""
        self._writable = True
        self._answers: dict[RequestId, asyncio.Future[JsonObject | ErrorData]] = {}
        self._progress: dict[str, OnProgress] = {}
        self._task_news: dict[str, OnTaskNews] = {}
        self._news: dict[RequestId | None, list[OnNews]] = {}
        """The listeners for changes, by the request of their subscription; None listens to all changes."""
        self._tokens = itertools.count(1)
        self.on_log: Callable[[Mapping[str, Any]], None] | None = None
        """Called with the params of the server's log messages, if a client of a call wants any."""
        self.on_hop: OnHop | None = None
        """Called with the bridge's requests and their answers, and with the server's notifications and questions."""

    @property
    def ended(self) -> bool:
        """Whether nothing can be sent any more. This is true before `closed` is set: the last messages of the server
        are still being read."""
        return self._closed or not self._writable

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Receive until the connection ends."""

        def see(method: str, params: Mapping[str, Any] | None) -> bool:
            self._see(method, params or {})
            if on_notify_intercept is not None:
                on_notify_intercept(method, params)
            return True  # nobody else handles these, and the session would log a traceback for each unreadable message

        async def answer(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method == ELICIT:
                self._hop("<", method=method, params=params)
                answered = await self._questions.answer(params or {}, context.cancel_requested.is_set)
                self._hop(">", result=answered)
                return answered
            if method == LIST and self._roots:
                self._hop("<", method=method, params=params)
                result = roots_result(self._roots)
                self._hop(">", result=result)
                return dict(result)
            return await on_request(context, method, params)

        def take_at_once(item: SessionMessage) -> bool:
            if not isinstance(item.message, JSONRPCResponse):
                return False
            self._resolve_pending(item.message.id, item.message.result)
            return True

        if isinstance(self._messages, Incoming):
            self._messages.take_at_once = take_at_once
        try:
            await super().run(answer, on_notify, see, task_status=task_status)
        finally:
            self.closed.set()

    async def ask(
        self, request_id: int, method: str, params: JsonObject, headers: Mapping[str, str]
    ) -> JsonObject:
        """Send a request and wait for its result. Cancelling this sends notifications/cancelled.

        Raises:
            MCPError: the server answered with an error, or the connection ended. The fault UNREACHABLE means that the
                connection ended before the request was sent.
        """
        if self.ended:
            raise self._not_sent()
        await anyio.lowlevel.checkpoint_if_cancelled()
        answer: asyncio.Future[JsonObject | ErrorData] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        request = JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params=params)
        if self.on_hop is not None:
            self._hop(">", method=method, params=params)
        try:
            await self._write(request, ClientMessageMetadata(headers=dict(headers)))
            outcome = await answer
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._writable = False  # nobody took the request
            raise self._not_sent() from None
        except anyio.get_cancelled_exc_class():
            cancelled = {"requestId": request_id, "reason": "cancelled"}
            self._hop(">", method="notifications/cancelled", params=cancelled)
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
                await self.notify("notifications/cancelled", cancelled)
            raise
        finally:
            del self._answers[request_id]
        if isinstance(outcome, ErrorData):
            self._hop("<", error=outcome.model_dump(exclude_none=True))
            raise MCPError.from_error_data(outcome)
        if self.on_hop is not None:
            self._hop("<", result=outcome)
        return outcome

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """Send a request of the SDK's session. The handshake is never cancelled, and has no timeout of its own."""
        if method in _HANDSHAKE:
            opts = {**(opts or {}), "cancel_on_abandon": False}
            opts.pop("timeout", None)
            params = with_roots_declared(params) if self._roots else params
        return await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)

    async def _dispatch_request(
        self,
        req: JSONRPCRequest,
        metadata: MessageMetadata,
        on_request: OnRequest,
        sender_ctx: Context | None,
    ) -> None:
        """Handle a request of the server. Each request stays in memory until the server has read its answer, so too
        many requests end the connection."""
        self._unanswered += 1
        self._unanswered_bytes += _weight_of(req)
        if (
            self._unanswered > self._bounds.most or self._unanswered_bytes > self._bounds.most_bytes
        ) and self._tg is not None:
            self.why_closed = _NOT_TAKEN_IN.format(self._unanswered, self._unanswered_bytes)
            await self._write_stream.aclose()
            self._tg.cancel_scope.cancel()
            return
        await super()._dispatch_request(req, metadata, on_request, sender_ctx)

    async def _handle_request(
        self,
        req: JSONRPCRequest,
        dctx: DispatchContext[TransportContext],
        scope: anyio.CancelScope,
        on_request: OnRequest,
    ) -> None:
        try:
            await super()._handle_request(req, dctx, scope, on_request)  # type: ignore[arg-type]  # its own class
        finally:
            self._unanswered -= 1
            self._unanswered_bytes -= _weight_of(req)

    def _hop(self, direction: str, **message: Any) -> None:
        """Call `on_hop`, if it is set, with a message."""
        if self.on_hop is not None:
            self.on_hop(direction, json.dumps(message, ensure_ascii=False))

    def _not_sent(self) -> MCPError:
        words = f"The connection to {self._name} ended before the request was sent"
        return MCPError.from_error_data(error_of(UNREACHABLE, words))

    def _resolve_pending(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> None:
        """Settle the request of `ask` or of the SDK's session that an answer belongs to.

        An error that names no request may be about a notification, so it settles no waiting request.
        """
        if request_id is None and isinstance(outcome, ErrorData):
            self._pass_over("an error without the id of a request", repr(outcome.message[:_SHOWN_CHARACTERS]))
        answer = self._answers.get(coerce_request_id(request_id)) if request_id is not None else None
        if answer is None:
            super()._resolve_pending(request_id, outcome)
        elif not answer.done():
            answer.set_result(outcome)

    def _fan_out_closed(self) -> None:
        """Settle all waiting requests with an error, since the connection has ended."""
        for answer in self._answers.values():
            if not answer.done():
                closed = ErrorData(code=CONNECTION_CLOSED, message=_CLOSED)
                answer.set_result(error_of(FLOODED, self.why_closed) if self.why_closed else closed)
        super()._fan_out_closed()

    async def _unreadable(self, exc: Exception) -> None:
        """Handle input that is not a message, or is a message above a limit."""
        self._pass_over("a line that is not an MCP message", _beginning(exc))

    def _pass_over(self, kind: str, words: str) -> None:
        """Log an ignored message. Each kind is a warning only once, since there may be thousands."""
        level = logging.DEBUG if kind in self._warned else logging.WARNING
        self._warned.add(kind)
        logger.log(level, "%s sends %s. It is ignored: %s", self._name, kind, words)

    def _see(self, method: str, params: Mapping[str, Any]) -> None:
        if self.on_hop is not None:
            self._hop("<", method=method, params=params)
        if method in self.list_changes:
            self._on_tools_changed()
        elif method == _PROGRESS:
            listener = self._progress.get(str(params.get("progressToken")))
            progress = _progress_from(params)
            if progress is None:
                self._pass_over("progress without a number", repr(params.get("progress"))[:_SHOWN_CHARACTERS])
            elif listener is not None:
                listener(progress)
        elif method == LOG:
            if self.on_log is not None:
                self.on_log(params)
        elif method in _TASK_NEWS:
            on_news = self._task_news.get(str(params.get("taskId")))
            if on_news is not None:
                on_news(dict(params))
        elif method == _SUBSCRIBED:
            for task_id in _subscribed_tasks(params):
                if (on_news := self._task_news.get(task_id)) is not None:
                    on_news({"taskId": task_id})
        if self._news and (method in _CHANGES or method == _SUBSCRIBED):
            self._tell_of_change(method, dict(params))

    def _tell_of_change(self, method: str, params: JsonObject) -> None:
        meta = params.get("_meta")
        subscription = meta.get(_SUBSCRIPTION) if isinstance(meta, dict) else None
        request_id = coerce_request_id(subscription) if isinstance(subscription, str | int) else None
        for on_news in tuple(self._news.get(request_id, ())):
            on_news(method, params)

    def progress_to(self, listener: OnProgress) -> str:
        """A new progress token. Reports with it go to `listener`, until `end_progress`."""
        token = f"p{next(self._tokens)}"
        self._progress[token] = listener
        return token

    def end_progress(self, token: str) -> None:
        """Pass on no more reports with a token."""
        del self._progress[token]

    @contextmanager
    def news_to(self, request_id: int | None, on_news: OnNews) -> Iterator[None]:
        """Pass changes of resources and prompts to `on_news` while this is open: those of a subscription by the id of
        its request, or with None those that belong to no subscription, as MCP 2025-11-25 sends them."""
        listeners = self._news.setdefault(request_id, [])
        listeners.append(on_news)
        try:
            yield
        finally:
            listeners.remove(on_news)
            if not listeners:
                del self._news[request_id]

    @contextmanager
    def task_news_to(self, task_id: str, on_news: OnTaskNews) -> Iterator[None]:
        """Pass the notifications about one of the server's tasks to `on_news` while this is open."""
        self._task_news[task_id] = on_news
        try:
            yield
        finally:
            del self._task_news[task_id]


def _subscribed_tasks(params: Mapping[str, Any]) -> list[str]:
    notified = params.get("notifications")
    ids = notified.get("taskIds") if isinstance(notified, dict) else None
    return [task_id for task_id in ids if isinstance(task_id, str)] if isinstance(ids, list) else []


@dataclass(frozen=True)
class Stamp:
    """The `_meta` and headers of every request of a connection, by the negotiated version."""

    version: str
    meta: JsonObject = field(default_factory=dict)
    modern: bool = False

    @classmethod
    def of(
        cls,
        session: ClientSession,
        client: Implementation,
        roots: tuple[str, ...] = (),
        extensions: Mapping[str, Any] = _NO_EXTENSIONS,
    ) -> Stamp:
        """The stamp for a session whose handshake is done, with a server that has these `roots`. `extensions` are
        declared besides those of every session."""
        version = session.protocol_version
        assert version is not None
        if version not in MODERN_PROTOCOL_VERSIONS:
            return cls(version)
        meta: JsonObject = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: client.model_dump(by_alias=True, mode="json", exclude_none=True),
            CLIENT_CAPABILITIES_META_KEY: capabilities_with_roots(_with_extensions(extensions), roots),
        }
        return cls(version, meta, modern=True)

    def meta_without_tasks(self) -> JsonObject:
        """The `_meta` of a request that does not declare the tasks extension."""
        capabilities = self.meta.get(CLIENT_CAPABILITIES_META_KEY)
        if not isinstance(capabilities, dict):
            return self.meta
        extensions = capabilities["extensions"]
        assert isinstance(extensions, dict)
        rest = {uri: settings for uri, settings in extensions.items() if uri != TASKS_EXTENSION}
        return {**self.meta, CLIENT_CAPABILITIES_META_KEY: {**capabilities, "extensions": rest}}

    def headers(self, method: str, name: str | None, headers: Mapping[str, str]) -> dict[str, str]:
        """The HTTP headers of a request; other transports ignore them."""
        stamped = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.modern:
            stamped[MCP_METHOD_HEADER] = method
            if name is not None:
                stamped[MCP_NAME_HEADER] = encode_header_value(name)
            stamped.update(headers)
        return stamped


def _with_extensions(extensions: Mapping[str, Any]) -> JsonObject:
    """The capabilities of a client, with further extensions."""
    own = CAPABILITIES["extensions"]
    assert isinstance(own, dict)
    return {**CAPABILITIES, "extensions": {**own, **extensions}} if extensions else CAPABILITIES


def _weight_of(request: JSONRPCRequest) -> int:
    """The approximate size of a request of the server, in bytes."""
    return len(json_bytes([request.id, request.method, request.params]))


def _beginning(exc: Exception) -> str:
    """The beginning of the input, for the log. Text that may be a result is not shown; a log line in JSON on stdout
    is."""
    text = exc.text if isinstance(exc, UnreadableError) else ""
    if text.lstrip("\ufeff \t").startswith(("{", "[")) and _MAY_BE_A_RESULT.search(text):
        return f"{counted(len(text), 'character')} of JSON: {exc}"
    return repr(text[:_SHOWN_CHARACTERS]) if text else str(exc).partition("\n")[0][:200]


def _progress_from(params: Mapping[str, Any]) -> ProgressReport | None:
    progress, total = _number(params.get("progress")), _number(params.get("total"))
    message = params.get("message")
    if progress is None:
        return None
    return ProgressReport(progress, total, message if isinstance(message, str) else None)


def _number(value: Any) -> int | float | None:
    """The value, if it is a number that every JSON reader can represent; else None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not exceeds_floats(value) else None
