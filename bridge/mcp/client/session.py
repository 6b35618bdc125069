"""One session with a tool server: it stays connected, and knows the server's tools.

A session outlives its connections. When a connection is lost, the session makes another, with growing pauses. A request
waits for a connection at most as long as connecting may take. Once the server has been down for that long, a request
waits for only one attempt, which begins after the request has come. A request under way fails if its connection is
lost. The session does not send it again, since only the caller knows whether this is safe. A request that the server
certainly did not take (no connection, or an unknown session) is sent once more.
"""

# The life of a session
# =====================
#
# A session has at most one current connection (a `ServerConnection`). Four fields show where the session stands:
#
#   state     _connection down      _up     requests
#   first     None        reason    clear   wait for `_up`
#   up        live        None      set     are sent on `_connection`
#   lost      lost        None      set     wait; the owner has not run yet
#   down      None/lost   reason    clear   wait for `_up`
#   over      None/lost   reason    set     fail
#
# The legal moves are first -> up, first -> down, down -> up, up -> lost, lost -> down, and down -> down with another
# reason. A session that acts for a caller is over (`_is_over`) once it would have to connect with an expired token or
# a login that is gone: first -> over, lost -> over, down -> over. This state is final. `_connection` never becomes None
# again: a lost connection stays there until the next connection replaces it. So code must check `is_lost` before it
# uses `_connection`. The listing and the greeting outlive their connection, too: a server that is down keeps its tools,
# and the agent's card keeps its skills.
#
# Which code makes the moves
# --------------------------
#
# `_own` is the only task that connects. It starts one `_hold` for each connection. `_hold` opens the connection and
# closes it, in one task, as the SDK's cancel scopes demand. `_came_up` and `_went_down` make the moves to up and to
# down.
#
# A process that is not up after `connect_seconds` makes the move to down while its attempt goes on, by `_is_late`: its
# start may take minutes, and if it were ended and started again, it would never come up. The same attempt may still
# bring it up, until `start_seconds` are over.
#
# Other code can make the move to lost by `connection.lost.set()`: `ServerConnection.watch` when the wire closes, a
# transport whose server is unreachable or has forgotten the session, `_let_it_ask` when another handshake is needed,
# and `_connected`. (`_hold` sets it, too, when the connection ends with an exception.) `lost` is never cleared. A
# reason goes into `why_lost` before `lost` is set: `_own` reads it when `lost` wakes it. `is_lost` may be true even
# before that: as soon as nothing can be written, while the last messages are still read. `_connected` sets `lost` then,
# so that a request does not wait for the end of the reading.
#
# A failed attempt sets `_up`, too, if requests need not wait for the next attempt: only a person can repair the server,
# or it has been down for long. This wakes the waiting requests, which then fail at once.
#
# Requests make no other moves. A request may set `_wanted`, which ends the pause before the next attempt, and clear
# `_up`.
#
# Which orders are possible
# -------------------------
#
# * A request may find the connection lost before `_own` does. `_up` is still set then, and waiting for it would return
#   at once, with the lost connection. That is why `_connected` clears `_up` itself.
# * A connection may be lost before `_own` waits for the loss. `lost` is an event that stays set, so nothing is missed.
# * A connection may be up and lost again before a waiting request runs. The request goes on waiting.
# * The next connection may be up while the last connection retires. Calls on the last connection go on, for at most
#   `retire_seconds`; then its `_hold` closes it. A listing for the last connection may come after the listing of the
#   next connection. So `_follow` accepts a listing only while its connection is `_connection`, and ends after that.
# * A server may change its tools while they are listed for the first time. `_first_listing` waits until the connection
#   listens for changes, and `_follow` lists the tools again after a change.
# * A request may set `_wanted` before an attempt that fails. The attempt answers it, so `_own` makes a new event as it
#   begins. Otherwise one request would end every pause until the server is up. After a loss `_wanted` is kept.
# * A request may come during an attempt that fails. The server may be repaired in between, so this attempt does not
#   count for the request. The request waits for the next attempt, and has set `_wanted` for it.
#
# What breaks without the rules
# -----------------------------
#
# * Up before the tools are listed: calls fail, since "the server no longer lists the tool".
# * An exception leaves `_hold` after the connection was up: it cancels the task group of `run`, and with it all users
#   of the session. So `_hold` logs it and sets `lost`. Before the connection is up, the exception is the reason to be
#   down.
# * A second try of a request that the server may have taken: the tool runs twice.

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import anyio.abc
from pydantic import JsonValue

from bridge import trace
from bridge.concurrency import Backoff
from bridge.errors import UNAUTHORIZED, BridgeError, PeerError, UsageError, leaf_of
from bridge.http.probe import FaultExplainer
from bridge.identity.logins.login_credentials import LoginNeededError
from bridge.mcp.client.dispatcher import OnTaskNews
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import (
    CallerTokenGoneError,
    LoginWantedError,
    NotTakenError,
    ServerDownError,
    ServerRefusedError,
    cannot_ask,
)
from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.listed_tools import ListingPace
from bridge.mcp.client.opening import Opener
from bridge.mcp.client.server_connection import Deadline, RefusedHandshakeError, ServerConnection
from bridge.mcp.client.subscriptions import LISTEN
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget, explained_at, is_local
from bridge.mcp.client.values import Asker, Greeting, LogSink, OnNews, OnProgress, ToolCall, ToolListing
from bridge.mcp.messages import result_as_specified, state_of_result
from bridge.mcp.tools import StandInKind, Tool
from bridge.settings import ServerSettings
from bridge.text.jsonvalues import JsonObject
from bridge.trace import UNHEARD, Hops

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.2
"""The pause before the second attempt to connect. It doubles with each attempt, up to `longest_pause_seconds`."""

STEADY_SECONDS: Final = 10.0
"""A connection that lasted this long resets the pauses. After a shorter connection they go on growing, so that a server
that dies at once is not started five times a second."""

_LONGEST_SETTLING: Final = 10
"""The tools of a server that goes on announcing changes are listed after this many times `settle_seconds`."""

_LISTEN_SECONDS: Final = 5.0
"""How long the first listing waits until the server acknowledges the subscription to changes."""


@dataclass(slots=True)
class _ConnectionAttempts:
    """The attempts of a session to connect, which are counted from 1 on."""

    begun: int = 0
    """The number of the latest attempt; 0 before the first."""
    failed: int = 0
    """The number of the last failed attempt; 0 if none has failed."""
    down_since: float | None = None
    """When the server went down, by the event loop's clock; None while it is up, and before the first attempt."""


class Session:
    """A session with a tool server. It is connected while it is entered."""

    def __init__(
        self,
        name: str,
        target: ServerTarget,
        *,
        era: Era = Era.AUTO,
        memory: ServerMemory | None = None,
        settings: ServerSettings,
        baggage_keys: frozenset[str] = frozenset(),
        on_change: Callable[[], None] = lambda: None,
        on_question: Callable[[], None] = lambda: None,
        on_refusal: Callable[[str], None] | None = None,
        peer: str | None = None,
        hops: Hops = UNHEARD,
        stand_ins: frozenset[StandInKind] = frozenset(),
        shows_apps: bool = False,
    ) -> None:
        """`on_change` is called when the tools have changed, or the server went up or down. `on_question` is called
        when the server asks something in the middle of a call and does not name the call. `on_refusal` is called with
        the reason when the server refuses a request for lack of credentials, and with an empty text when it accepts a
        request. `peer` is the server's name in hops; None if it is `name`. `stand_ins` are the kinds of things that are
        presented as tools. `shows_apps` says whether the bridge declares MCP Apps to the server. `baggage_keys` are the
        keys of a trace's baggage that are sent to a server on another machine.
        """
        self._name = name
        self._peer = name if peer is None else peer
        self._hops = hops
        self._stand_ins = stand_ins
        self.target = target
        self.listing = ToolListing()
        self.greeting: Greeting | None = None
        """The server's own description, from the latest connection."""
        self.down: str | None = "not connected yet"
        """Why the server cannot be called; None while it can."""
        self.needs_login = False
        """Whether the server is down until a person logs in."""
        self.is_unauthorized = False
        """Whether the server is down because it refuses the bridge's credentials."""
        self._is_over = False
        """Whether the caller's token or login is no longer valid, so that the session never connects again."""
        self._attempts = _ConnectionAttempts()
        self.on_hop: trace.OnHop | None = None
        """Called with each message once the server is up. Set this before the session is entered."""
        self._era = era
        self._memory = memory or ServerMemory(None)
        self._settings = settings
        self._opener = Opener(target, era, self._memory, settings, on_question, shows_apps=shows_apps)
        self._tell_of_trace = partial(
            trace.told_to_peer, is_local=is_local(target), baggage_keys=baggage_keys
        )
        self._on_change = on_change
        self._on_refusal = on_refusal
        self._connection: ServerConnection | None = None
        self._up = anyio.Event()
        self._tried = anyio.Event()
        self._wanted = anyio.Event()
        self._tools: dict[str, Tool] = {}
        self._detail = ""
        self._explainer = _explainer_of(target)
        self._at_fault: type[PeerError | UsageError] = PeerError

    @property
    def roots(self) -> tuple[str, ...]:
        """The file URIs of the folders that the server may ask for."""
        return self.target.roots

    @property
    def name(self) -> str:
        """The server's name in messages and logs."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        if self._connection is not None:
            self._connection.name = self._connection.questions.name = name

    @property
    def is_over(self) -> bool:
        """Whether the session never connects again, because the caller's token or login is no longer valid."""
        return self._is_over

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Session]:
        """Connect now, and again after each loss; end the session on exit."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._own, tasks)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def ready(self) -> None:
        """Wait for the first connection.

        Raises:
            UsageError: the command cannot be started.
            PeerError: the connection could not be made. In both cases the session goes on trying.
        """
        await self._tried.wait()
        if self.down is not None:
            raise self._at_fault(self.down, detail=self._detail)

    # Calling

    async def call(
        self,
        call: ToolCall,
        on_progress: OnProgress | None = None,
        asker: Asker | None = None,
        log_sink: LogSink | None = None,
    ) -> JsonObject:
        """Call a tool. Returns the result as the server sent it; it may be a question or a task.

        `asker` answers what a legacy server asks in the middle of the call, and `log_sink` takes the log messages of
        the call. Cancelling this cancels the call on
        the server.

        Raises:
            ServerRefusedError: the server answered with an error.
            ServerDownError: the server cannot be reached; nothing was sent.
            ServerLostError: the connection ended before the answer.
        """

        named = self._tools.get(call.tool)
        method = named.stands_for.method if named is not None and named.stands_for else "tools/call"
        hop = self._hops.sent("mcp", method, self._peer, call.tool)

        async def call_on(connection: ServerConnection) -> JsonObject:
            tool = self._tools.get(call.tool)
            if tool is None:
                raise ServerDownError(f"{self.name} no longer lists the tool {call.tool}")
            try:
                answer = await connection.call(
                    tool, call, asker, on_progress, self._tell_of_trace(hop), log_sink
                )
            except ServerRefusedError as exc:
                if connection.era is Era.MODERN and cannot_ask(exc):
                    words = f"{exc} {self._let_it_ask(connection)}"
                    raise ServerRefusedError(exc.code, words, exc.data) from exc
                raise
            result = result_as_specified(answer)
            if connection.era is Era.MODERN and cannot_ask(result):
                result["isError"] = True  # some servers put the error into a result, as a text
                result["content"] = [*_blocks(result), {"type": "text", "text": self._let_it_ask(connection)}]
            return result

        if hop is None:
            return await self._on_connection(call_on)
        with hop:
            result = await self._on_connection(call_on)
            hop.state = state_of_result(result)
        return result

    async def request(
        self, method: str, params: JsonObject, *, name: str | None = None, meta: JsonObject | None = None
    ) -> JsonObject:
        """Send a request. Returns the result as the server sent it. `name` is the name that an HTTP header repeats, and
        `meta` the `_meta` of the caller, to which the connection adds its own keys.

        Raises:
            ServerRefusedError, ServerDownError, ServerLostError: as `call` does.
        """
        with self._hops.sent("mcp", method, self._peer) or nullcontext() as hop:
            return await self._on_connection(
                lambda connection: connection.request(
                    method, params, name=name, meta={**(meta or {}), **self._tell_of_trace(hop)}
                )
            )

    async def listen(self, wanted: JsonObject, on_news: OnNews) -> None:
        """Subscribe to changes; see `ServerConnection.listen`. A subscription ends with its connection.

        Raises:
            ServerRefusedError, ServerDownError, ServerLostError: as `call` does.
        """
        with self._hops.sent("mcp", LISTEN, self._peer) or nullcontext():
            await (await self._connected()).listen(wanted, on_news)

    @contextmanager
    def about_task(self, task_id: str, asker: Asker, on_news: OnTaskNews) -> Iterator[Callable[[], None]]:
        """Route the notifications and the questions of one of the server's tasks, while this is open.

        Yields a function. The caller calls it whenever the connection may have changed, to listen on the new
        connection.
        """
        heard: ServerConnection | None = None
        with ExitStack() as hearing:

            def keep_up() -> None:
                nonlocal heard
                if self._connection is not heard:
                    hearing.close()
                    heard = self._connection
                    if heard is not None:
                        hearing.enter_context(heard.about_task(task_id, asker, on_news))

            keep_up()
            yield keep_up

    async def _on_connection(
        self, request: Callable[[ServerConnection], Awaitable[JsonObject]]
    ) -> JsonObject:
        """Send a request. If the server has not taken it, send it once more, on a new connection."""
        try:
            try:
                result = await request(await self._connected())
            except NotTakenError as exc:
                logger.debug("%s: %s; sending again", self.name, exc)
                result = await request(await self._connected())
        except PeerError as exc:
            if exc.outcome == UNAUTHORIZED and self.down is None and self._on_refusal is not None:
                self._on_refusal(str(exc))
            raise
        if self._on_refusal is not None:
            self._on_refusal("")
        return result

    async def _connected(self) -> ServerConnection:
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        begun = self._attempts.begun
        self._wanted.set()
        with anyio.move_on_after(self._settings.connect_seconds):
            while self._connection is None or self._connection.is_lost:
                if self._is_over:
                    raise CallerTokenGoneError(str(self.down))
                if self._attempts.failed > begun and not self._is_waited_for:
                    break
                if self._connection is not None:
                    self._connection.lose()
                self._clear_up()
                await self._up.wait()
            else:
                return self._connection
        fault = LoginWantedError if self.needs_login else ServerDownError
        outcome = UNAUTHORIZED if self.is_unauthorized else ""
        raise fault(f"{self.name} is down: {self.down or 'its connection was lost again'}", outcome=outcome)

    @property
    def _is_long_down(self) -> bool:
        since = self._attempts.down_since
        return since is not None and anyio.current_time() - since >= self._settings.connect_seconds

    @property
    def _is_waited_for(self) -> bool:
        """Whether requests wait for the next attempt after a failed attempt. They do not wait if a person has to
        act."""
        return not (self.needs_login or self.is_unauthorized or self._is_long_down)

    def _let_it_ask(self, connection: ServerConnection) -> str:
        """Change to the older handshake, under which the server can ask. Returns an explanation for the caller."""
        failed = f"{self.name} asks questions in a form that MCP {connection.stamp.version} does not have"
        if self._era is not Era.AUTO:
            return f'{failed}; era = "modern" is set for it, and with era = "legacy" it can ask.'
        self._memory.remember(Fact.MUTE, str(self.target), "yes")
        if not connection.lost.is_set():
            connection.why_lost = "it is connected again by the older handshake"
            connection.lost.set()
            self._wanted.set()
        how = "the older handshake, under which it can ask"
        return f"{failed}. From now on the bridge speaks to it by {how}: call again."

    def _clear_up(self) -> None:
        if self._up.is_set():
            self._up = anyio.Event()

    # Owning

    async def _own(self, tasks: anyio.abc.TaskGroup) -> None:
        pauses = Backoff(FIRST_PAUSE_SECONDS, self._settings.longest_pause_seconds)
        while True:
            self._attempts.begun += 1
            self._wanted = anyio.Event()
            try:
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(self._opener.tell_of_start, self.name, self._is_late)
                    connection: ServerConnection = await tasks.start(self._hold)
                    waiting.cancel_scope.cancel()
            except Exception as exc:  # noqa: BLE001 - whatever stops a connection is why the server is down
                fault = await self._explained(leaf_of(exc))
                self._at_fault = UsageError if isinstance(fault, UsageError) else PeerError
                self.needs_login = isinstance(fault, LoginNeededError)
                self.is_unauthorized = isinstance(fault, PeerError) and fault.outcome == UNAUTHORIZED
                self._went_down(_words(fault), fault.detail if isinstance(fault, BridgeError) else "")
                self._is_over = isinstance(fault, CallerTokenGoneError)
                self._attempts.failed = self._attempts.begun
                if self._is_over or not self._is_waited_for:
                    self._up.set()
                if self._is_over:
                    return
            else:
                since = anyio.current_time()
                await connection.lost.wait()
                if anyio.current_time() - since >= STEADY_SECONDS:
                    pauses.reset()
                if connection.why_lost:
                    self._went_down(connection.why_lost, "")
                else:
                    ended = "its process ended" if connection.is_child else "the connection was lost"
                    self._went_down(f"{ended}; connecting again", str(connection.last_words))
            with anyio.move_on_after(pauses.next()):
                await self._wanted.wait()
                await anyio.sleep(FIRST_PAUSE_SECONDS / 4)

    def _is_late(self, words: str, detail: str) -> None:
        """Count the server as down while its process is still starting."""
        self._at_fault = PeerError
        self._went_down(words, detail)

    async def _explained(self, fault: BaseException) -> BaseException:
        """Why a connection failed. For a URL, a probe finds out what answers there instead of MCP, once for each
        fault."""
        if (
            self._explainer is None
            or not isinstance(fault, PeerError)
            or isinstance(fault, ServerDownError | LoginNeededError)
        ):
            return fault
        return await self._explainer.of(fault)

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[ServerConnection]) -> None:
        """One connection, from start to end. Gives the connection to `_own` once its tools are listed."""
        server = str(self.target)
        era, deadline = self._opener.next_era(), self._opener.deadline()
        held: ServerConnection | None = None
        try:
            async with AsyncExitStack() as stack:
                connection = await self._opener.open(stack, self.name, era, deadline)
                tasks = await stack.enter_async_context(anyio.create_task_group())
                connection.present_as_tools(self._stand_ins)
                tasks.start_soon(connection.watch)
                listing = await self._first_listing(connection, deadline)
                if self._era is Era.AUTO:
                    self._memory.remember(Fact.ERA, server, connection.era)
                self._memory.remember(Fact.NAME, server, connection.greeting.name)
                held = connection
                self._came_up(connection, listing)
                task_status.started(connection)
                tasks.start_soon(self._follow, connection)
                await connection.lost.wait()
                await connection.retire(self._settings.retire_seconds)
                tasks.cancel_scope.cancel()
        except Exception as exc:
            if held is None:
                if self._era is Era.AUTO and era is Era.LEGACY:
                    self._memory.forget(Fact.ERA, server)
                    if isinstance(leaf_of(exc), RefusedHandshakeError):
                        self._memory.forget(Fact.MUTE, server)
                raise
            logger.debug("%s: the connection ended with %r", self.name, leaf_of(exc))
            held.lost.set()

    async def _first_listing(self, connection: ServerConnection, deadline: Deadline) -> ToolListing:
        """The tools. They are listed only after the connection listens for changes, so that no change is missed.

        Raises:
            PeerError: the tools are not listed by the deadline.
        """
        with anyio.CancelScope(deadline=deadline.ends_at):
            with anyio.move_on_after(_LISTEN_SECONDS):
                await connection.listening.wait()
            return await connection.list_tools(self._settings)
        raise PeerError(
            f"{self.name} did not list its tools {deadline.words}", detail=str(connection.last_words)
        )

    async def _follow(self, connection: ServerConnection) -> None:
        """List the tools again after announced changes, once the server has announced none for `settle_seconds`.

        Ends once another connection has replaced this connection.
        """
        pace = ListingPace(self._settings)
        while connection is self._connection:
            why = await self._due_again(connection, pace)
            connection.tools_changed = anyio.Event()
            try:
                with anyio.fail_after(self._settings.connect_seconds):
                    listing = await connection.list_tools(self._settings)
            except (PeerError, TimeoutError) as exc:
                logger.warning("%s: %s, but cannot be listed: %s", self.name, why, _words(exc))
                pace.note(is_news=False)
                continue
            if connection is self._connection:
                is_news = not listing.is_same(self.listing)
                pace.note(is_news=is_news)
                if is_news:
                    self._listed(listing)
                else:
                    self.listing = replace(self.listing, fresh_seconds=listing.fresh_seconds)

    async def _due_again(self, connection: ServerConnection, pace: ListingPace) -> str:
        """Wait until the tools have to be listed again. Returns the reason, for messages."""
        fresh_until = pace.fresh_until(self.listing, announces_changes=connection.announces_changes)
        with anyio.CancelScope(deadline=fresh_until):
            await connection.tools_changed.wait()
            # The tools of a server that never stops announcing changes are listed now and then, too.
            with anyio.move_on_after(self._settings.settle_seconds * _LONGEST_SETTLING):
                while connection.tools_changed.is_set():
                    connection.tools_changed = anyio.Event()
                    with anyio.move_on_after(self._settings.settle_seconds):
                        await connection.tools_changed.wait()
            await anyio.sleep(pace.seconds_left)
            return "its tools changed"
        return "its list of tools is no longer fresh"

    def _came_up(self, connection: ServerConnection, listing: ToolListing) -> None:
        if self._tried.is_set():
            logger.info("%s is up%s", self.name, " again" if self._connection else "")
        self._connection, self.greeting, self.down, self.needs_login = (
            connection,
            connection.greeting,
            None,
            False,
        )
        self.is_unauthorized = False
        self._attempts.down_since = None
        connection.wire.on_hop = self.on_hop
        self._wanted = anyio.Event()
        self._listed(listing)
        self._up.set()
        self._tried.set()

    def _went_down(self, why: str, detail: str) -> None:
        """Note that the server is down. `detail` is for the log and the user; `why` is also shown to peers."""
        if self.down != why and self._tried.is_set():
            logger.warning("%s is down: %s%s", self.name, why, detail)
        self.down, self._detail = why, detail
        if self._attempts.down_since is None:
            self._attempts.down_since = anyio.current_time()
        self._clear_up()
        self._tried.set()
        self._on_change()

    def _listed(self, listing: ToolListing) -> None:
        before, self.listing = self.listing, listing
        self._tools = {tool.name: tool for tool in (*listing.tools, *listing.stand_ins)}
        for fault in listing.faults_since(before):
            logger.warning("%s: %s", self.name, fault)
        self._on_change()


def _explainer_of(target: ServerTarget) -> FaultExplainer | None:
    return FaultExplainer(partial(explained_at, target)) if isinstance(target, HttpTarget) else None


def _blocks(result: JsonObject) -> list[JsonValue]:
    content = result.get("content")
    return content if isinstance(content, list) else []


def _words(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "it did not answer in time"
    return str(exc) or type(exc).__name__


async def resource_of(session: Session, uri: str) -> list[JsonValue]:
    """Read a resource of a server. Returns the `contents` of resources/read.

    Raises:
        PeerError: the resource cannot be read.
    """
    result = await session.request("resources/read", {"uri": uri}, name=uri)
    contents = result.get("contents")
    return contents if isinstance(contents, list) else []
