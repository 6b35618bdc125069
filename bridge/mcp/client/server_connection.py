"""One live connection to a tool server, from the handshake to its end.

The same task must enter and leave a connection, since the SDK's clients require it; callers use it from any task. A
connection is never repaired: once `lost` is set, it accepts no new calls, and its session opens another connection.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.inbound import mcp_param_headers
from pydantic import JsonValue

from bridge.concurrency import Backoff, Signal
from bridge.errors import UNAUTHORIZED, PeerError
from bridge.identity.logins.login_credentials import LoginNeededError
from bridge.mcp import apps
from bridge.mcp.client.dispatcher import OnTaskNews, Stamp, UnansweredBounds, Wire
from bridge.mcp.client.elicitation_routing import ElicitationRouter
from bridge.mcp.client.eras import Era, negotiate
from bridge.mcp.client.faults import (
    BROKEN_OFF,
    CALLER_GONE,
    LOGIN_NEEDED,
    LOGIN_REFUSED,
    NO_MCP,
    SESSION_LOST,
    UNREACHABLE,
    CallerTokenGoneError,
    LoginWantedError,
    NotTakenError,
    ServerDownError,
    ServerLostError,
    ServerRefusedError,
    doubts_session,
    fault_of,
    status_of,
)
from bridge.mcp.client.listed_tools import listed_tools
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.subscriptions import LISTEN, LegacySubscriptions
from bridge.mcp.client.transports.http_sse import http_sse, may_be_http_sse
from bridge.mcp.client.transports.in_process import InProcessTarget, in_process
from bridge.mcp.client.transports.stdio import StdioTarget, child
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget, streamable_http
from bridge.mcp.client.values import (
    Asker,
    Greeting,
    LogSink,
    OnNews,
    OnProgress,
    ProgressReport,
    ToolCall,
    ToolListing,
)
from bridge.mcp.log_messages import LEVEL_META, SET_LEVEL
from bridge.mcp.tools import CallOfStandIn, StandIn, StandInKind, Tool
from bridge.settings import ServerSettings
from bridge.text.jsonvalues import JsonObject, words_of
from bridge.text.safe_text import web_link
from bridge.version import __version__

if TYPE_CHECKING:
    from bridge.mcp.client.log_routing import LogRouter

logger = logging.getLogger(__name__)

CLIENT: Final = types.Implementation(name="mcp-a2a", version=__version__)
_SHAREABLE: Final = {"resources", "prompts", "completions", "logging"}
"""The capabilities that an agent may pass on."""
_LEVEL_SECONDS: Final = 5.0
"""How long a server may take to set the level of its log messages."""
_PING_SECONDS: Final = 10.0
"""How long a server may take to say whether it still knows the session."""
_FIRST_LEGACY_ID: Final = 16
"""The first id of the bridge's requests. It is above the ids of the handshake, which the SDK's dispatcher gives."""


class RefusedHandshakeError(PeerError):
    """The server answered the handshake with an error."""


class EndedAtGreetingError(PeerError):
    """The server ended before it sent an MCP message."""


class SilentServerError(PeerError):
    """The server sent no MCP message in time."""


class NoStreamableHttpError(PeerError):
    """The URL answers Streamable HTTP as servers of the older transport may answer."""

    def __init__(self, fault: PeerError, *, is_certain: bool) -> None:
        """`is_certain` says whether the specification names this answer."""
        super().__init__(str(fault), detail=fault.detail)
        self.fault = fault
        self.is_certain = is_certain

    def also(self, other: BaseException) -> PeerError:
        """The fault for a URL that does not speak the older transport, either; `other` is the reason."""
        if not self.is_certain:
            return self.fault
        return PeerError(f"{self.fault}, and HTTP+SSE fails, too: {other}")


@dataclass(frozen=True)
class Deadline:
    """The time for a connection, from its start until the tools are listed."""

    seconds: float
    ends_at: float
    """The end, in seconds by the event loop's clock."""
    setting: str = "connect_seconds"
    """The name of the setting with the limit."""

    @classmethod
    def after(cls, seconds: float, setting: str = "connect_seconds") -> Deadline:
        """A deadline in `seconds` from now."""
        return cls(seconds, anyio.current_time() + seconds, setting)

    @property
    def words(self) -> str:
        """The exceeded time, for messages."""
        return f"within {self.seconds:g} s (`{self.setting}` is the limit)"


@dataclass
class ServerConnection:
    """A connection whose handshake is done."""

    name: str
    wire: Wire
    session: ClientSession
    era: Era
    stamp: Stamp
    questions: ElicitationRouter
    last_words: LastWords
    is_child: bool
    request_ids: Iterator[int]
    """See `_request_ids`."""
    listening: anyio.Event = field(default_factory=anyio.Event)
    """Set once the connection listens for changes of the tools, or cannot: the server announces none, or refused."""
    tools_changed: anyio.Event = field(default_factory=anyio.Event)
    lost: anyio.Event = field(default_factory=anyio.Event)
    """Set when no new call may be sent: the connection or its MCP session is gone, or another connection replaces
    it."""
    why_lost: str = ""
    """Why the bridge ended the connection; empty if it did not. Set before `lost`."""
    calls: int = 0
    """The number of requests under way."""
    subscriptions: LegacySubscriptions = field(default_factory=LegacySubscriptions)
    drained: Signal = field(default_factory=Signal)
    """Signalled when no request is under way any more."""
    logs: LogRouter | None = None
    """The calls whose clients want log messages; None as long as no client has wanted any."""
    stand_ins: frozenset[StandInKind] = frozenset()
    """What the server has of the kinds that are presented as tools."""

    @property
    def is_lost(self) -> bool:
        """Whether new calls need another connection."""
        return self.lost.is_set() or self.wire.ended

    @property
    def greeting(self) -> Greeting:
        """The server's description of itself, from the handshake."""
        info = self.session.server_info
        icons = info.icons if info else None
        return Greeting(
            name=info.name if info else self.name,
            version=info.version if info else "",
            title=info.title if info else None,
            website_url=web_link(info.website_url) if info else None,
            instructions=self.session.instructions,
            icon_url=next((icon.src for icon in icons or () if web_link(icon.src)), None),
            capabilities=self._capabilities,
        )

    @property
    def _capabilities(self) -> JsonObject:
        declared = self.session.server_capabilities
        if declared is None:
            return {}
        shareable = declared.model_dump(by_alias=True, mode="json", exclude_none=True, include=_SHAREABLE)
        return {**shareable}

    def present_as_tools(self, kinds: frozenset[StandInKind]) -> None:
        """Present things of these kinds as tools, as far as the server declares that it has any."""
        if kinds:
            self.stand_ins = kinds & self._capabilities.keys()
            self.wire.list_changes |= {f"notifications/{kind}/list_changed" for kind in self.stand_ins}

    @property
    def _announced(self) -> frozenset[str]:
        """The lists that are presented as tools, and whose changes the server announces."""
        declared = self._capabilities if self.stand_ins else {}
        announced = {
            kind
            for kind in self.stand_ins
            if isinstance(about := declared[kind], dict) and about.get("listChanged") is True
        }
        return frozenset({*announced, *(["tools"] if self.announces_changes else [])})

    @property
    def announces_changes(self) -> bool:
        """Whether the server declares that it announces changes of its tools."""
        capabilities = self.session.server_capabilities
        return bool(capabilities and capabilities.tools and capabilities.tools.list_changed)

    async def list_tools(self, settings: ServerSettings) -> ToolListing:
        """All pages of tools/list.

        Raises:
            PeerError: the server cannot list its tools, or lists more than `settings` allow.
        """
        is_legacy = self.era is Era.LEGACY
        listing = await listed_tools(self.name, self.request, settings, is_legacy=is_legacy)
        if not self.stand_ins:
            return listing
        # Imported only by a bridge that presents prompts or resources as tools.
        from bridge.mcp.client.as_tools.listing import with_stand_ins

        return await with_stand_ins(listing, self.stand_ins, self.request, settings)

    @property
    def takes_calls_as_tasks(self) -> bool:
        """Whether tools may be called as tasks of MCP 2025-11-25."""
        capabilities = self.session.server_capabilities
        requests = capabilities.tasks.requests if capabilities and capabilities.tasks else None
        return self.era is Era.LEGACY and bool(
            requests and requests.tools and requests.tools.call is not None
        )

    async def call(
        self,
        tool: Tool,
        call: ToolCall,
        asker: Asker | None,
        on_progress: OnProgress | None,
        meta: Mapping[str, JsonValue],
        log_sink: LogSink | None = None,
    ) -> JsonObject:
        """Call a tool. Returns the result as the server sent it; it may be a question or a task. `log_sink` takes the
        log messages of the call.

        Raises:
            ServerRefusedError: the server answered with an error.
            NotTakenError: the server did not take the request.
            ServerLostError: the connection ended before the answer.
        """
        has_begun = False

        def heard(report: ProgressReport) -> None:
            nonlocal has_begun
            has_begun = True
            if on_progress is not None:
                on_progress(report)

        rounds = self._rounds_of(call)
        params: JsonObject = {"name": tool.name, "arguments": call.arguments, **rounds}
        if tool.runs_only_as_task and self.takes_calls_as_tasks:
            params["task"] = {"ttl": call.task_ttl_ms}
        headers = mcp_param_headers(tool.header_names, call.arguments)
        token = self.wire.progress_to(heard) if on_progress else None
        request_id: int | None = None
        log_meta: JsonObject = {}
        if log_sink is not None:
            request_id = next(self.request_ids)
            log_meta = await self._begin_logs(request_id, log_sink)
        asking = self.questions.begin(asker, as_task="task" in params)
        stamped = {**call.meta, **({"progressToken": token} if token else {}), **log_meta, **meta}
        try:
            if tool.stands_for is not None:
                return await self._stood_for(tool.stands_for, call, rounds, stamped)
            return await self.request(
                "tools/call",
                params,
                name=tool.name,
                headers=headers,
                meta=stamped,
                request_id=request_id,
                takes_tasks=call.takes_tasks,
            )
        except NotTakenError as exc:
            if has_begun:
                raise ServerLostError(f"{exc}; the call had begun") from exc
            raise
        finally:
            if token:
                self.wire.end_progress(token)
            if request_id is not None and self.logs is not None:
                self.logs.end(request_id)
            self.questions.end(asking)

    def _rounds_of(self, call: ToolCall) -> JsonObject:
        """The answers to the questions of the round before, as they stand in a request."""
        rounds: JsonObject = {}
        if call.input_responses is not None and (call.request_state is not None or self.era is Era.MODERN):
            rounds["inputResponses"] = call.input_responses
        if call.request_state is not None:
            rounds["requestState"] = call.request_state
        return rounds

    async def _begin_logs(self, request_id: int, sink: LogSink) -> JsonObject:
        """Pass the log messages of a call to its sink, until `LogRouter.end`. At a server of MCP 2025-11-25 or older,
        the level is set first. Returns the `_meta` that asks a newer one."""
        if self.logs is None:
            # Imported only if a client wants log messages.
            from bridge.mcp.client.log_routing import LogRouter

            self.logs = logs = LogRouter()
            self.wire.on_log = lambda params: logs.take(params, self.calls)
        level = self.logs.level_with(sink.level)
        if self.era is Era.LEGACY and "logging" in self._capabilities and level != self.logs.level:
            self.logs.level = level
            with anyio.move_on_after(_LEVEL_SECONDS):
                try:
                    await self.request(SET_LEVEL, {"level": level})
                except PeerError as exc:
                    logger.info("%s does not set the level of its log messages: %s", self.name, exc)
        self.logs.begin(request_id, sink)
        return {LEVEL_META: sink.level} if self.era is Era.MODERN else {}

    async def _stood_for(
        self, stand_in: StandIn, call: ToolCall, rounds: JsonObject, meta: JsonObject
    ) -> JsonObject:
        async def ask(method: str, params: JsonObject) -> JsonObject:
            name = params.get("uri", params.get("name"))
            return await self.request(method, params, name=name if isinstance(name, str) else None, meta=meta)

        may_read = call.may_read or (lambda _: False)
        return await stand_in.result(CallOfStandIn(call.arguments, rounds, may_read, ask))

    @contextmanager
    def about_task(self, task_id: str, asker: Asker, on_news: OnTaskNews) -> Iterator[None]:
        """Route the notifications and the questions of one of the server's tasks, while this is open."""
        with self.questions.of_task(task_id, asker), self.wire.task_news_to(task_id, on_news):
            yield

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, JsonValue] | None = None,
        request_id: int | None = None,
        takes_tasks: bool = True,
    ) -> JsonObject:
        """Send one request. Returns the unparsed result. `name` is the name that an HTTP header repeats. `request_id`
        is the id of the request, if it has one already. `takes_tasks` says whether the server may make a task of it.

        Raises:
            ServerRefusedError, NotTakenError, ServerLostError: as `call` does.
        """
        stamp_meta = self.stamp.meta if takes_tasks else self.stamp.meta_without_tasks()
        stamped = {**(meta or {}), **stamp_meta}
        stamped_headers = self.stamp.headers(method, name, headers or {})
        self.calls += 1
        try:
            sent = {**params, "_meta": stamped} if stamped else params
            own_id = next(self.request_ids) if request_id is None else request_id
            return await self.wire.ask(own_id, method, sent, stamped_headers)
        except MCPError as exc:
            if doubts_session(exc) and await self._has_lost_session(exc):
                self.lost.set()
                raise NotTakenError(f"{self.name} no longer knows the session: {exc.message}") from exc
            raise self._error_from(exc) from exc
        finally:
            self.calls -= 1
            if self.calls == 0:
                self.drained.notify()

    async def listen(self, wanted: JsonObject, on_news: OnNews) -> None:
        """Pass changes to `on_news`, until the server ends the subscription. `wanted` is the filter of
        subscriptions/listen. The first news is the acknowledgment. Cancelling this ends the subscription on the server.

        Raises:
            ServerRefusedError: the server answered with an error.
            ServerLostError, NotTakenError: the connection has ended.
        """
        try:
            if self.era is Era.LEGACY:
                return await self._listen_by_resource(wanted, on_news)
            request_id = next(self.request_ids)
            params: JsonObject = {"notifications": wanted, "_meta": self.stamp.meta}
            with self.wire.news_to(request_id, on_news):
                await self.wire.ask(request_id, LISTEN, params, self.stamp.headers(LISTEN, None, {}))
        except MCPError as exc:
            raise self._error_from(exc) from exc

    async def _listen_by_resource(self, wanted: JsonObject, on_news: OnNews) -> None:
        async def ask(method: str, uri: str) -> object:
            return await self.wire.ask(
                next(self.request_ids), method, {"uri": uri}, self.stamp.headers(method, None, {})
            )

        subscription = await self.subscriptions.opened(wanted, ask)
        try:
            with self.wire.news_to(None, subscription.passing_to(on_news)):
                on_news(*subscription.acknowledgment)
                await self.lost.wait()
        finally:
            await self.subscriptions.end(subscription, ask)
        raise ServerLostError(f"The connection to {self.name} ended")

    async def _has_lost_session(self, error: MCPError) -> bool:
        """Whether the server also answers a ping with an unknown session. If it does not, the words were about a
        session of the tool itself, and the tool has run."""
        if self.is_child or self.era is not Era.LEGACY:
            return False
        with anyio.move_on_after(_PING_SECONDS):
            try:
                await self.wire.ask(next(self.request_ids), "ping", {}, self.stamp.headers("ping", None, {}))
            except MCPError as exc:
                is_same = doubts_session(exc) and exc.message == error.message
                return is_same or fault_of(exc) == SESSION_LOST
        return False

    def _error_from(self, exc: MCPError) -> PeerError:
        match fault_of(exc):
            case None:
                return ServerRefusedError(exc.code, exc.message, exc.data)
            case fault if fault in (UNREACHABLE, SESSION_LOST):
                return NotTakenError(exc.message)
            case fault if fault == CALLER_GONE:
                return CallerTokenGoneError(f"{self.name}: {exc.message}")
            case fault if fault == LOGIN_NEEDED:
                return ServerDownError(exc.message)
            case fault if fault == LOGIN_REFUSED:
                return LoginWantedError(exc.message)
            case fault if fault == BROKEN_OFF and self.is_child:
                return ServerLostError(
                    f"The server process of {self.name} ended", detail=str(self.last_words)
                )
            case fault if fault == BROKEN_OFF:
                return ServerLostError(
                    f"The connection to {self.name} ended before its answer ({exc.message})"
                )
            case fault if fault == NO_MCP:
                return ServerLostError(_no_mcp(self.name))
            case _:
                return ServerLostError(f"{self.name}: {exc.message}", outcome=_outcome_of(exc))

    async def watch(self) -> None:
        """Set `lost` when the connection ends, and listen for changes of the tools. Runs as long as the connection."""
        async with anyio.create_task_group() as tasks:
            if self.era is Era.MODERN and self._announced:
                tasks.start_soon(self._listen)
            else:
                self.listening.set()
            await self.wire.closed.wait()
            self.lose()
            tasks.cancel_scope.cancel()

    def lose(self) -> None:
        """Set `lost`, since nothing can be sent any more."""
        self.why_lost = self.why_lost or self.wire.why_closed
        self.lost.set()

    async def _listen(self) -> None:
        """Keep a stream of subscriptions/listen open, and open it again when it is lost. `Wire` handles its
        messages."""
        pauses = Backoff(1.0, 60.0)
        while True:
            try:
                announced = self._announced
                async with listen(
                    self.session,
                    tools_list_changed="tools" in announced,
                    prompts_list_changed="prompts" in announced,
                    resources_list_changed="resources" in announced,
                ) as changes:
                    pauses.reset()
                    if self.listening.is_set():
                        self.tools_changed.set()  # a change may have been missed while no stream was open
                    self.listening.set()
                    async for _ in changes:
                        pass
            except (MCPError, SubscriptionLost) as exc:
                logger.debug("%s: its stream of changes broke off: %s", self.name, exc)
            self.listening.set()
            await anyio.sleep(pauses.next())

    async def retire(self, patience_seconds: float) -> None:
        """Wait for the calls under way, but at most for `patience_seconds`."""
        with anyio.move_on_after(patience_seconds):
            while self.calls and not self.wire.closed.is_set():
                await self.drained.wait()


@asynccontextmanager
async def open_connection(
    name: str,
    target: ServerTarget,
    era: Era,
    deadline: Deadline,
    *,
    attribution_seconds: float,
    on_question: Callable[[], None],
    unanswered_most: int,
    last_words: LastWords | None = None,
    over_http_sse: bool = False,
    is_guess: bool = False,
    shows_apps: bool = False,
) -> AsyncIterator[ServerConnection]:
    """Connect to a server and complete the handshake before the deadline.

    `attribution_seconds` and `on_question` are as in `ElicitationRouter`; `unanswered_most` is the `most` of
    `UnansweredBounds`. `last_words` gets the stderr of a child. `is_guess` says that the URL may not speak the
    transport; then even its first event is waited for only until the deadline. `shows_apps` says whether the bridge
    declares MCP Apps.

    Raises:
        UsageError: the server's command cannot be started (in a group of exceptions).
        EndedAtGreetingError: the server ended during the handshake.
        SilentServerError: the server said nothing before the deadline.
        RefusedHandshakeError: the server refused the handshake of this era.
        NoStreamableHttpError: the URL may speak the older transport, HTTP+SSE.
        PeerError: the server cannot be reached, or does not speak MCP.
    """
    last_words, holder, is_child = last_words or LastWords(), _Holder(), isinstance(target, StdioTarget)
    opening_seconds = max(deadline.ends_at - anyio.current_time(), 0) if is_guess else None
    async with _streams(name, target, last_words, holder.fault, over_http_sse, opening_seconds) as streams:
        questions = ElicitationRouter(name, attribution_seconds, on_question)
        bounds = UnansweredBounds(unanswered_most, target.result_limit_bytes)
        wire = Wire(name, streams, questions, holder.tools_changed, bounds, target.roots)
        async with ClientSession(
            client_info=CLIENT,
            dispatcher=wire,
            elicitation_callback=_answered_by_the_wire,
            extensions=dict(apps.DECLARED) if shows_apps else None,
        ) as session:
            with anyio.CancelScope(deadline=deadline.ends_at) as greeting:
                spoken = await _greet(session, era, name, last_words, is_url=isinstance(target, HttpTarget))
            if greeting.cancelled_caught:
                raise SilentServerError(
                    f"{name} was reached, but gave no MCP answer {deadline.words}", detail=str(last_words)
                )
            stamp = Stamp.of(session, CLIENT, target.roots, apps.DECLARED if shows_apps else {})
            ids = _request_ids(spoken)
            holder.connection = ServerConnection(
                name, wire, session, spoken, stamp, questions, last_words, is_child, ids
            )
            yield holder.connection


def _request_ids(era: Era) -> Iterator[int]:
    """The ids of requests. A modern server needs a new id for a repeated call, even after a restart
    (basic/patterns/mrtr), so its ids start at random. Older servers may have only 32 bits, or fewer, for an id."""
    return count(_FIRST_LEGACY_ID if era is Era.LEGACY else secrets.randbits(30))


async def _answered_by_the_wire(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult | types.ErrorData:
    """Never called, since `Wire` answers questions. The session needs it to declare elicitation."""
    raise NotImplementedError


async def _greet(session: ClientSession, era: Era, name: str, last_words: LastWords, *, is_url: bool) -> Era:
    try:
        return await negotiate(session, era)
    except MCPError as exc:
        fault = _fault_of_greeting(exc, name, last_words)
        if is_url and era is not Era.MODERN and (is_certain := may_be_http_sse(exc)) is not None:
            raise NoStreamableHttpError(fault, is_certain=is_certain) from exc
        raise fault from exc
    except (RuntimeError, ValueError) as exc:
        raise PeerError(f"{name} gave an invalid answer to the MCP handshake: {words_of(exc)}") from exc


def _fault_of_greeting(exc: MCPError, name: str, last_words: LastWords) -> PeerError:
    match fault_of(exc):
        case None:
            return RefusedHandshakeError(f"{name} refused the MCP handshake: {exc.message}")
        case fault if fault == BROKEN_OFF:
            return EndedAtGreetingError(f"{name} ended before it gave an MCP answer", detail=str(last_words))
        case fault if fault == NO_MCP:
            return PeerError(_no_mcp(name))
        case fault if fault == CALLER_GONE:
            return CallerTokenGoneError(f"{name}: {exc.message}")
        case fault if fault in (LOGIN_NEEDED, LOGIN_REFUSED):
            return LoginNeededError(exc.message)
        case fault if fault == UNREACHABLE:
            return ServerDownError(exc.message)
        case _:
            return PeerError(exc.message, outcome=_outcome_of(exc))


def _outcome_of(exc: MCPError) -> str:
    return UNAUTHORIZED if status_of(exc) == 401 else ""


def _no_mcp(name: str) -> str:
    return f"{name} does not answer as an MCP server does; is it the address of an MCP server?"


class _Holder:
    """Passes signals of the wire and the transport to the connection. Signals that come before the connection exists
    are dropped."""

    def __init__(self) -> None:
        self.connection: ServerConnection | None = None

    def tools_changed(self) -> None:
        if self.connection is not None:
            self.connection.tools_changed.set()

    def fault(self, kind: str) -> None:
        if self.connection is not None and kind in (SESSION_LOST, UNREACHABLE, LOGIN_NEEDED):
            self.connection.lost.set()


@asynccontextmanager
async def _streams(
    name: str,
    target: ServerTarget,
    last_words: LastWords,
    on_fault: Callable[[str], None],
    over_http_sse: bool,
    opening_seconds: float | None,
) -> AsyncIterator[TransportStreams]:
    if isinstance(target, StdioTarget):
        async with child(target, name, last_words) as streams:
            yield streams
    elif isinstance(target, InProcessTarget):
        async with in_process(target, name, last_words) as streams:
            yield streams
    elif over_http_sse:
        async with http_sse(target, on_fault, opening_seconds) as streams:
            yield streams
    else:
        async with streamable_http(target, on_fault) as streams:
            yield streams
