"""The bridge's MCP server: serves a `ToolFace` to clients of every revision, over stdio and Streamable HTTP.

The SDK handles the wire: sessions, eras, headers, cancellation; it checks each request (see `sdk_server.py`). The
face's answers are sent without parsing. Exceptions become protocol errors here, and only here.

Spec: MCP 2026-07-28 and 2025-11-25, server and basic.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import ValidationError
from starlette.types import ASGIApp

from bridge import trace
from bridge.concurrency import Signal
from bridge.errors import ECHO_CHARACTERS, AuditAwayError, echoed, leaf_of
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import MayUse, Principal, PrincipalNames, may_use_everything
from bridge.identity.callers.verifiers import Access
from bridge.mcp.host_schemas import for_legacy, result_for_legacy
from bridge.mcp.log_messages import SET_LEVEL
from bridge.mcp.messages import state_of_result
from bridge.mcp.server.back_channel import ProgressSender, writable
from bridge.mcp.server.endpoint import Endpoint
from bridge.mcp.server.face import INTERNAL_ERROR, INVALID_PARAMS, IncomingCall, McpRefusal, ToolFace
from bridge.mcp.server.intents import AWAY, AnnouncedAnswers, IntentMiddleware, foretell
from bridge.mcp.server.log_levels import LogLevels
from bridge.mcp.server.requests import (
    Context,
    asks_for_progress,
    begin_trace,
    incoming_of,
    intent_of,
    is_modern,
    note_heard,
    param,
    principal_of,
    require_admitted,
    require_readable,
    takes_apps,
    without_null_token,
)
from bridge.mcp.server.sdk_server import checked_server, introduce
from bridge.mcp.server.shared_requests import SHARED_METHODS, RequestsToAgents
from bridge.mcp.server.shared_sessions import SessionSharing, SharedSessions
from bridge.mcp.server.stdio import stdio_streams
from bridge.mcp.server.subscriptions import ListenStreams
from bridge.mcp.server.task_requests import TaskMethods
from bridge.notices import Notify, ignore_notice
from bridge.settings import RequestSettings, StreamSettings
from bridge.text.jsonvalues import JsonObject
from bridge.trace import UNHEARD, Hop, Hops

logger = logging.getLogger(__name__)

_Method = Callable[[Context], Awaitable[JsonObject]]

_TELL_SECONDS: Final = 5.0
"""How long notifying a client of a change may take. After that, the client is skipped."""


@dataclass(frozen=True, slots=True)
class McpLimits:
    """The limits on the messages of clients, on their streams and sessions, and on how long they may cache lists."""

    requests: RequestSettings
    streams: StreamSettings
    sessions: int = 10_000
    """The most open sessions of legacy HTTP clients."""
    session_idle_seconds: float = 1800
    list_ttl_ms: int = 10_000
    """How long a modern client that does not listen may cache a list."""


class McpServer:
    """Serves one face over stdio or HTTP. It can be entered only once."""

    def __init__(
        self,
        face: ToolFace,
        limits: McpLimits,
        name: str = "",
        hops: Hops = UNHEARD,
        notify: Notify = ignore_notice,
    ) -> None:
        """`name` is the name of the face in hops and notices."""
        self._face = face
        self._name = name
        self._hops = hops
        self._notify = notify
        self._limits = limits
        self._listening = ListenStreams(face.tasks, face.requests, self._limits.streams.open)
        self._shared = RequestsToAgents(face, self._limits.list_ttl_ms, self._is_for_one_principal)
        self._legacy: dict[ServerSession, Principal] = {}
        self._changed = anyio.Event()
        self._running = 0
        self._running_of: Counter[str] = Counter()
        """The number of running calls, for principals with a limit."""
        self._freed = Signal()
        self._endpoint: Endpoint | None = None
        self._levels = LogLevels()
        self._methods: dict[str, _Method] = {
            "tools/list": self._list("tools", self._tools_for, for_legacy),
            "tools/call": self._call,
            "resources/list": self._list("resources", lambda context: face.resources(_may_see(context))),
            "resources/templates/list": self._list("resourceTemplates", lambda _: face.templates()),
            "resources/read": self._read,
            "prompts/list": self._list("prompts", lambda context: face.prompts(_may_see(context))),
            "prompts/get": self._prompt,
            SET_LEVEL: self._levels.set,
            **({} if face.tasks is None else TaskMethods(face.tasks).by_name),
        }
        self._server = checked_server(
            face, self._answer, self._listening, partial(self._input_schema, with_apps=True)
        )
        self._server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._remember_legacy
        )

    async def run_stdio(self) -> None:
        """Serve the client at stdin and stdout until it leaves. After this, other code cannot print to stdout."""
        options = self._server.create_initialization_options()
        async with (
            self._telling(),
            stdio_streams(
                self._limits.requests.body_limit_bytes, self._limits.requests.json_values
            ) as client,
            anyio.create_task_group() as eras,
        ):
            for messages in client.of_each_era:
                eras.start_soon(self._server.run, messages, client.sink.clone(), options)

    @asynccontextmanager
    async def at(
        self,
        access: Access,
        place: FaceAddress,
        path: str = "/mcp",
        name: str = "",
        sharing: SessionSharing | None = None,
    ) -> AsyncIterator[ASGIApp]:
        """Yield the ASGI application of the endpoint. It serves while this is entered.

        `name` is the name of the face, which the rights of principals refer to. With `sharing`, each replica answers
        requests for the sessions of all replicas.
        """
        manager, app = self._sessions()
        gate = self._hops.gate
        inner = app if gate is None else IntentMiddleware(app, gate, name, self._face)
        shared = None if sharing is None else SharedSessions(inner, sharing, path, name)
        self._endpoint = Endpoint(
            shared or inner,
            access,
            place,
            path,
            name,
            self._face.tool_called,
            self._face.names_of,
            lambda: self._face.caller_issuers,
            self._limits.requests.body_limit_bytes,
            self._limits.requests.json_values,
            shared,
            resumes=self._limits.streams.resume_messages > 0,
            hops=self._hops,
        )
        async with self._telling(), manager.run():
            try:
                yield self._endpoint
            finally:
                self.stop()
                self._endpoint.end()

    def _sessions(self) -> tuple[StreamableHTTPSessionManager, ASGIApp]:
        """The SDK's sessions, and the application with them."""
        bounds: dict[str, Any] = {
            "session_idle_timeout": self._limits.session_idle_seconds,
            "max_request_body_size": self._limits.requests.body_limit_bytes,
            "max_sessions": self._limits.sessions,
        }
        if not self._limits.streams.resume_messages:
            manager = StreamableHTTPSessionManager(self._server, **bounds)
            return manager, manager.asgi_app
        # Imported only by a server whose clients can resume streams.
        from bridge.mcp.server.resumption import ResumableSessions, ending_with_the_answer

        resumable = ResumableSessions(self._server, self._limits.streams, **bounds)
        return resumable, ending_with_the_answer(resumable.asgi_app)

    def changed(self) -> None:
        """Notify every client that the lists may have changed, and update the server's description for new clients."""
        introduce(self._server, self._face)
        self._changed.set()

    def admit_anew(self, principals: PrincipalNames) -> None:
        """End the notification streams of these principals, since their rights have changed."""
        self._listening.end_streams_of(principals)
        self._shared.end_of(principals)

    def revoke(self, principals: PrincipalNames) -> None:
        """Revoke the access of these principals: end their streams, refuse their requests. Running calls go on."""
        self._listening.end_streams_of(principals)
        self._shared.end_of(principals)
        if self._endpoint is not None:
            self._endpoint.revoke(principals)

    def stop(self) -> None:
        """The first stage of stopping over HTTP: new requests are refused, streams end, and calls go on."""
        self._listening.close()
        self._shared.stop()
        if self._endpoint is not None:
            self._endpoint.stop()

    # What is asked

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The middleware. `call_next` raises an error if the SDK finds a fault in the request."""
        ctx = without_null_token(ctx)
        method = self._method(ctx.method)
        if method is None or ctx.request_id is None:
            require_admitted(ctx)
            # The SDK would repeat a long name in full, and answer what no agent shares.
            if len(ctx.method) > ECHO_CHARACTERS or ctx.method in (*SHARED_METHODS, SET_LEVEL):
                raise MCPError(types.METHOD_NOT_FOUND, "Method not found", echoed(ctx.method))
            return await call_next(ctx)
        begin_trace(ctx)
        if not self._hops.listeners:
            return await self._checked(ctx, call_next, method)
        note_heard(ctx)
        principal, known = principal_of(ctx), self._endpoint is None or self._endpoint.access.needs_token
        with self._hops.admitted(
            "mcp", self._name, ctx.method, principal.name, is_authenticated=known
        ) as hop:
            assert hop is not None, "hops have listeners"
            hop.intent = intent_of(ctx)
            try:
                result = await self._checked(ctx, call_next, method, hop)
            except MCPError as exc:
                hop.error = str(exc.error.code)
                raise
            except ValidationError:
                hop.error = str(INVALID_PARAMS)
                raise
            hop.state = state_of_result(result) if ctx.method == "tools/call" else ""
            return result

    def _method(self, name: str) -> _Method | None:
        """The method of this name, if an agent shares what it needs."""
        if name == SET_LEVEL and not self._face.has_logs:
            return None
        return self._methods.get(name) or self._shared.method(name)

    async def _checked(
        self, ctx: Context, call_next: CallNext, method: _Method, hop: Hop | None = None
    ) -> JsonObject:
        """The answer to a request, if the SDK finds no fault in it."""
        require_admitted(ctx)
        await call_next(ctx)
        if hop is not None and hop.is_gated and not hop.intent:
            await self._intend(hop, ctx)
        return await self._performed(ctx, method)

    async def _intend(self, hop: Hop, ctx: Context) -> None:
        """Record the intent of a request that did not come over HTTP.

        Raises:
            MCPError: INTERNAL_ERROR, the intent cannot be recorded.
        """
        foretell(hop, self._face, ctx.params or {}, principal_of(ctx))
        try:
            await hop.intend()
        except AuditAwayError as exc:
            raise MCPError(INTERNAL_ERROR, AWAY) from exc
        hop.forget()  # the call itself tells its subject again

    async def _performed(self, ctx: Context, method: _Method) -> JsonObject:
        try:
            if self._endpoint is not None and self._endpoint.is_stopping:
                raise McpRefusal(INTERNAL_ERROR, "The bridge is stopping")
            require_readable(ctx, self._limits.requests.json_depth)
            return self._dressed(ctx, await method(ctx))
        except MCPError:
            raise
        except McpRefusal as refusal:
            error = writable({"message": refusal.message, "data": refusal.data})
            raise MCPError(refusal.code, str(error["message"]), error["data"]) from refusal
        except Exception as exc:
            logger.exception("a request failed: %s", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error; the bridge's log says why") from exc

    def _list(
        self,
        key: str,
        items: Callable[[Context], Sequence[JsonObject]],
        for_legacy: Callable[[JsonObject], JsonObject] | None = None,
    ) -> Callable[[Context], Awaitable[JsonObject]]:
        async def answer(context: Context) -> JsonObject:
            is_further, is_shared = param(context, "cursor") is not None, self._shared.takes(context)
            if is_further and not is_shared:
                raise McpRefusal(INVALID_PARAMS, "The cursor is not known: this list has one page")
            # A list may depend on the caller (2026-07-28 tools/list), never on earlier requests.
            listed = [] if is_further else items(context)
            if is_shared:
                return await self._shared.page(context, key, [*listed])
            if for_legacy is not None and not is_modern(context):
                listed = [for_legacy(tool) for tool in listed]
            result: JsonObject = {key: list(listed)}
            if is_modern(context):
                result |= {"ttlMs": self._limits.list_ttl_ms, "cacheScope": "private"}
            return result

        return answer

    def _tools_for(self, context: Context) -> Sequence[JsonObject]:
        return self._face.tools(_may_see(context), with_apps=takes_apps(context))

    @property
    def open_streams(self) -> int:
        """The number of notification streams."""
        of_legacy = 0 if self._endpoint is None else self._endpoint.open_streams
        return self._listening.open + of_legacy

    @property
    def running(self) -> int:
        """The number of running tool calls."""
        return self._running

    async def idle(self) -> None:
        """Wait until no call is running."""
        while self._running:
            await self._freed.wait()

    async def called(self, incoming: IncomingCall) -> JsonObject:
        """The result of a call that did not come over MCP, such as a trial in the console.

        Raises:
            McpRefusal: the call is refused.
            AuditAwayError: the intent of the call cannot be recorded.
        """
        if self._endpoint is not None and self._endpoint.is_stopping:
            raise McpRefusal(INTERNAL_ERROR, "The bridge is stopping")
        if self._input_schema(incoming.name, incoming.may_use) is None:
            raise self._face.unknown_tool(incoming.name)
        trace.begin()
        with (
            self._hops.admitted(
                "mcp", self._name, "tools/call", incoming.principal, is_authenticated=True
            ) as hop,
            self._counted(),
        ):
            if hop is not None:
                meant = self._face.work_of(incoming.name, incoming.arguments, incoming.principal)
                hop.skill, hop.peer, hop.task_id = meant
                await hop.intend()
                hop.peer = hop.task_id = ""
            result = await self._face.call(incoming)
            if hop is not None:
                hop.state = state_of_result(result)
            return result

    async def _call(self, context: Context) -> JsonObject:
        principal = principal_of(context)
        if principal.open_tasks is None:
            with self._counted():
                return await self._answered(context)
        if self._running_of[principal.name] >= principal.open_tasks:
            words = (
                f"{principal.open_tasks} of your calls are under way here, and there may be no more: nothing was done;"
                " call again once one of them has ended"
            )
            return {"content": [{"type": "text", "text": words}], "isError": True}
        self._running_of[principal.name] += 1
        try:
            with self._counted():
                return await self._answered(context)
        finally:
            self._running_of[principal.name] -= 1
            self._running_of += Counter()  # the counter drops principals without a call

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._freed.notify()

    async def _answered(self, context: Context) -> JsonObject:
        name = param(context, "name")
        with_apps = takes_apps(context)
        if self._input_schema(name, principal_of(context).may_use, with_apps=with_apps) is None:
            raise self._face.unknown_tool(name)
        if (hop := trace.hop.get()) is not None:
            hop.skill, hop.is_answer = name, bool(param(context, "inputResponses"))
        level = self._levels.of(context) if self._face.has_logs else None
        reports = ProgressSender(context)
        incoming = incoming_of(context, reports)
        if level is not None:
            incoming = replace(incoming, log_level=level, log=reports.log)
        if hop is not None:
            meant = self._face.work_of(name, incoming.arguments, incoming.principal)
            incoming = replace(incoming, ask=AnnouncedAnswers(incoming.ask, hop, meant, self._notify))
        if level is None and not asks_for_progress(context):
            return await self._face.call(incoming)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reports.send_all)
                result = await self._face.call(incoming)
                reports.end()
        except ExceptionGroup as group:
            raise leaf_of(group) from group
        return result

    async def _read(self, context: Context) -> JsonObject:
        principal = principal_of(context)
        if self._shared.takes(context):
            return await self._shared.read(context)
        result = await self._face.read(
            param(context, "uri"), principal.name, principal.may_see, principal.token
        )
        return {"ttlMs": 0, "cacheScope": "private", **result} if is_modern(context) else result

    async def _prompt(self, context: Context) -> JsonObject:
        if self._shared.takes(context):
            return await self._shared.ask(context)
        name, arguments = param(context, "name"), param(context, "arguments") or {}
        return await self._face.prompt(name, arguments, principal_of(context).may_see)

    def _dressed(self, context: Context, result: JsonObject) -> JsonObject:
        """The result with the fields that its era requires."""
        if not is_modern(context):
            if (kind := result.get("resultType", "complete")) != "complete":
                raise ValueError(f"a legacy client cannot get an answer of the kind {kind}")
            plain = {key: value for key, value in result.items() if key != "resultType"}
            if context.method == "tools/call":
                plain = result_for_legacy(plain)
            return plain if context.request is None else writable(plain)
        meta = result.get("_meta")
        stamp: JsonObject = {types.SERVER_INFO_META_KEY: self._server.server_info_stamp}
        dressed: JsonObject = {
            "resultType": "complete",
            **result,
            "_meta": {**stamp, **(meta if isinstance(meta, dict) else {})},
        }
        return dressed if context.request is None else writable(dressed)

    # What is told

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce_changes)
            self._shared.run_in(tasks)
            try:
                yield
            finally:
                self._shared.run_in(None)
                tasks.cancel_scope.cancel()

    async def _announce_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            self._listening.changed()
            async with anyio.create_task_group() as tasks:
                for session, principal in tuple(self._legacy.items()):
                    self._shared.welcome(session, principal)
                    tasks.start_soon(_tell_legacy, session)

    async def _remember_legacy(self, context: Context, _: types.NotificationParams) -> None:
        """Remember a legacy client until its connection ends. The SDK has no public access to this connection."""
        session = context.session
        self._legacy[session] = principal_of(context)
        session._connection.exit_stack.callback(self._legacy.pop, session, None)
        self._shared.welcome(session, principal_of(context))

    def _is_for_one_principal(self) -> bool:
        return self._endpoint is None or not self._endpoint.access.needs_token

    def _input_schema(
        self, name: str, may_use: MayUse = may_use_everything, *, with_apps: bool = False
    ) -> JsonObject | None:
        """The input schema of a tool; None if the caller may use no tool of this name."""
        tool = self._face.tool(name, may_use, with_apps=with_apps)
        if tool is None:
            return None
        schema = tool.get("inputSchema")
        return schema if isinstance(schema, dict) else {}


def _may_see(context: Context) -> MayUse:
    return principal_of(context).may_see


async def _tell_legacy(session: ServerSession) -> None:
    with anyio.move_on_after(_TELL_SECONDS):
        await session.send_tool_list_changed()
        await session.send_resource_list_changed()
        await session.send_prompt_list_changed()
