"""A tool server that the bridge depends on: its sessions, and how many calls run or wait.

By default all callers share one session, or a few that are opened when they are needed. A server that keeps state in
a session (a browser, a shell, a login) can have a session for each principal, or for each context of a principal. A
server that is called in the names of callers has one for each token that a caller has shown, since all requests of a
session are sent with one token. Such a session is opened when it is needed, and closed after it was idle for a while.
A session in use is never taken away. The first session is always there: it knows the tools.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.abc

from bridge.concurrency import Signal
from bridge.errors import BusyError, counted
from bridge.identity.logins.kept_logins import CallerLogins
from bridge.identity.logins.login_credentials import LoginToken
from bridge.identity.tokens.caller_token import CallerToken
from bridge.identity.tokens.token_exchange import CallerTokens
from bridge.mcp.client.call_queue import CallQueue, SlotHold
from bridge.mcp.client.eras import Era
from bridge.mcp.client.kept_listings import KeptListing
from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.session import Session
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget, ServerTarget
from bridge.mcp.client.values import Approver, Greeting, ToolListing
from bridge.mcp.tools import StandInKind
from bridge.settings import ServerSettings
from bridge.source_state import HeardRefusal
from bridge.text.jsonvalues import JsonObject, json_bytes
from bridge.trace import UNHEARD, Hops

logger = logging.getLogger(__name__)


class QueueFullError(BusyError):
    """The queue of this server is full."""


@dataclass(eq=False)
class _Own:
    """The session of one principal, or of one context of a principal."""

    queue: CallQueue
    caller: CallerToken | None = None
    """The token in whose name the session is; it is not kept longer than it counts."""
    users: int = 0
    moved: Signal = field(default_factory=Signal)
    """Told when a caller takes the session or gives it back, and when it is to be closed."""
    closing: bool = False
    on_end: list[Callable[[], None]] = field(default_factory=list)
    """Called once nobody is given the session any more."""

    @property
    def login(self) -> LoginToken | None:
        """The login of the caller with which the session was made; None if it was made with none."""
        target = self.queue.session.target
        tokens = target.tokens if isinstance(target, HttpTarget) else None
        return tokens if isinstance(tokens, LoginToken) and tokens.login_config.of_each else None


class Upstream:
    """A tool server, connected as long as it is entered."""

    def __init__(
        self,
        name: str,
        target: ServerTarget,
        *,
        era: Era = Era.AUTO,
        memory: ServerMemory | None = None,
        settings: ServerSettings,
        concurrency: int,
        queue: int,
        baggage_keys: frozenset[str] = frozenset(),
        logins: CallerLogins | None = None,
        on_change: Callable[[], None] = lambda: None,
        hops: Hops = UNHEARD,
        known_listing: KeptListing | None = None,
        stand_ins: frozenset[StandInKind] = frozenset(),
        shows_apps: bool = False,
        approver: Approver | None = None,
    ) -> None:
        """`on_change` is called when the tools have changed, or the server went up or down; see `Session`.
        `known_listing` is what the server listed when an earlier process reached it. `stand_ins` are the kinds
        of things that are presented as tools. `shows_apps` says whether the bridge declares MCP Apps to the server.
        `approver` says what of a listing is held back; None offers all of it."""
        self.target = target
        self.logins = logins
        """The logins of the callers, each of whom has a session of its own; None if the server wants none of them."""
        self.settings = settings
        self._concurrency, self._queue_most = concurrency, queue
        self._kept = known_listing
        self.approver = approver
        """Says which definitions are approved; None if all may be offered."""
        self._memory = memory or ServerMemory(None)
        self._make = partial(
            Session,
            target=target,
            era=era,
            memory=self._memory,
            settings=settings,
            baggage_keys=baggage_keys,
            on_question=self._go_serial,
            on_refusal=self._hear_refusal if isinstance(target, HttpTarget) else None,
            peer=name,
            hops=hops,
            stand_ins=stand_ins,
            shows_apps=shows_apps,
        )
        is_serial = self._memory.recall(Fact.SERIAL, str(target)) is not None
        self._slots_each = 1 if is_serial else self._concurrency
        self._on_change = on_change
        self._refusal = HeardRefusal(logger)
        """Whether the connected server takes the credentials of the bridge, by its last answer."""
        self._was_tried = False
        self._first = self._make(name, on_change=self._hear_change)
        self._shared = self._queue(
            self._first, most_sessions=max(self.settings.sessions, 1), open_another=self._open
        )
        self._own: dict[tuple[str, ...], _Own] = {}
        self._reserved: Counter[str] = Counter()
        self._freed = Signal()

    def _queue(
        self, session: Session, *, most_sessions: int = 1, open_another: Callable[[], Session] | None = None
    ) -> CallQueue:
        return CallQueue(
            session,
            slots_each=self._slots_each,
            contended_seconds=self.settings.contended_question_seconds,
            most_sessions=most_sessions,
            open_another=open_another,
        )

    def _queues(self) -> Iterator[CallQueue]:
        yield self._shared
        for own in tuple(self._own.values()):
            yield own.queue

    def _hear_change(self) -> None:
        """Pass a change of the first session on. Its first failure is no line of a log, as `ready` tells it. One for
        want of credentials is: only a person can mend that, and what is served without the server tells nobody."""
        if not self._was_tried and self._first.is_unauthorized:
            self._refusal.log(self.name, self._first.down or "")
        self._was_tried = True
        self._on_change()

    def _hear_refusal(self, words: str) -> None:
        """Note that the server has not taken a request for want of credentials; with no words, that it has taken one.
        What it says of the credentials of a caller is not about the bridge's."""
        if self._callers is None and self.logins is None and self._refusal.note(self.name, words):
            self._on_change()

    def _go_serial(self) -> None:
        """Run one call at a time in each session, since the server asks without naming the call."""
        if self._slots_each > 1:
            self._slots_each = 1
            self._memory.remember(Fact.SERIAL, str(self.target), "yes")
            for queue in self._queues():
                queue.limit(1)

    @property
    def name(self) -> str:
        """The server's name in messages and logs."""
        return self._first.name

    @name.setter
    def name(self, name: str) -> None:
        for queue in self._queues():
            for session in queue.sessions:
                session.name = name

    @property
    def is_process(self) -> bool:
        """Whether the server is a process of this bridge, so that no other bridge reaches its memory."""
        return isinstance(self.target, StdioTarget)

    @property
    def listing(self) -> ToolListing:
        """The tools that the server lists, and which of them are held back; until it is reached, those that it listed
        last."""
        whole = self.whole_listing
        return whole if self.approver is None or self.greeting is None else self.approver(whole)

    @property
    def whole_listing(self) -> ToolListing:
        """The tools that the server lists; until it is reached, those that it listed last."""
        return self._first.listing if self._earlier is None else self._earlier.listing

    @property
    def greeting(self) -> Greeting | None:
        """The server's own description, from the latest connection."""
        return self._first.greeting if self._earlier is None else self._earlier.greeting

    @property
    def _earlier(self) -> KeptListing | None:
        """What an earlier process knew of the server; None once this one has reached it."""
        return self._kept if self._first.greeting is None else None

    @property
    def down(self) -> str | None:
        """Why the server cannot be called, in words; None while it can. One that takes no credentials is asked all the
        same with each call: it may take them again."""
        return self._first.down or self._refusal.words or None

    @property
    def is_unauthorized(self) -> bool:
        """Whether it is down since it does not take the credentials of the bridge."""
        return self._first.is_unauthorized or (self._first.down is None and bool(self._refusal.words))

    @property
    def needs_login(self) -> bool:
        """Whether it is down until a person logs in."""
        return self._first.needs_login

    @property
    def holds(self) -> tuple[SlotHold, ...]:
        """The calls that keep their slots while their clients are asked something."""
        return tuple(hold for queue in self._queues() for hold in queue.holds)

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return sum(queue.waiting for queue in self._queues())

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Upstream]:
        """Connect now, and again after each loss; end every session on exit."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._first.run())
            self._group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._group.cancel_scope.cancel)
            yield self

    async def ready(self) -> None:
        """Wait for the first connection; see `Session.ready`."""
        await self._first.ready()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request in the name of the bridge, beside the calls of callers; see `Session.request`."""
        return await self._first.request(method, params)

    def reserve(self, principal: str, *, even_if_full: bool = False) -> None:
        """Count a call of this principal among those that run or wait, until `release`.

        In a full queue, the principal with the most calls loses its newest one to a principal with fewer.

        Raises:
            QueueFullError: there is no room.
        """
        most = self._concurrency * max(self.settings.sessions, 1) + self._queue_most
        if (
            self._reserved.total() >= most
            and not even_if_full
            and not self._make_room_in_queue(principal, most)
        ):
            running = self._reserved.total() - self.waiting
            runs, waits = ("runs" if running == 1 else "run"), ("waits" if self.waiting == 1 else "wait")
            raise QueueFullError(
                f"{self.name} is busy: {counted(running, 'call')} {runs} and {self.waiting} {waits}"
            )
        self._reserved[principal] += 1

    def _make_room_in_queue(self, principal: str, most: int) -> bool:
        greediest, calls = self._reserved.most_common(1)[0]
        if self._reserved[principal] + 1 >= calls:
            return False
        displaced = any(queue.displace(greediest) for queue in self._queues())
        # Calls that follow a task of the server do not wait, so none can be displaced: a principal with few calls is
        # admitted above the limit.
        return displaced or self._reserved[principal] < most // 4

    def release(self, principal: str) -> None:
        """End what `reserve` began."""
        self._reserved[principal] -= 1
        if not self._reserved[principal]:
            del self._reserved[principal]
        if not self._reserved:
            self._freed.notify()

    async def idle(self) -> None:
        """Wait until no call runs or waits."""
        while self._reserved:
            await self._freed.wait()

    def queue(
        self, principal: str, context_id: str, caller: CallerToken | None = None, since: float | None = None
    ) -> AbstractAsyncContextManager[CallQueue]:
        """The queue for a caller, with the token that it has shown, or with the login that it made at `since`. Its
        session stays open as long as this is entered. What was begun with an earlier login does not go on.

        Raises:
            BusyError: all sessions that there may be are in use.
            TokenError: the server is called in the names of callers, and there is no token for it in this one's name.
        """
        if (callers := self._callers) is not None:
            return self._queue_of_token(callers, principal, caller, since)
        key = self._key_of(principal, context_id)
        return nullcontext(self._shared) if key is None else self._own_queue(key, caller, since)

    @asynccontextmanager
    async def _queue_of_token(
        self, callers: CallerTokens, principal: str, caller: CallerToken | None, since: float | None
    ) -> AsyncIterator[CallQueue]:
        caller = callers.require(caller)
        await callers.of(caller)()  # a session without a token would make its calls wait for one
        async with self._own_queue((principal, caller.mark.hex()), caller, since) as queue:
            yield queue

    def forget_logins(self, principal: str) -> None:
        """Give out no session of a principal any more that was made with its login, and send nothing on one before it
        is looked whether that login is still there."""
        for key in [key for key in self._own if key[0] == principal]:
            own = self._own[key]
            if own.login is not None:
                own.login.look_again()
                self._drop_own(key, own)

    def _require_login(self, key: tuple[str, ...], since: float) -> None:
        """Give out no session that was made with another login of its principal. Whoever wants to know of the end of a
        caller's session hears of that of the one in its place."""
        own = self._own.get(key)
        if own is None or own.login is None or (own.login.bind(since) and not own.queue.session.is_over):
            return
        on_end, own.on_end = own.on_end, []
        self.forget_logins(key[0])
        self._open_own(key).on_end = on_end

    @property
    def _callers(self) -> CallerTokens | None:
        return self.target.callers if isinstance(self.target, HttpTarget) else None

    @property
    def is_called_for_callers(self) -> bool:
        """Whether the server is called with a login or a token of each caller."""
        return self.logins is not None or self._callers is not None

    @property
    def caller_issuer(self) -> str | None:
        """The issuer of the tokens that the callers need; None if the server is not called in their names."""
        return None if self._callers is None else self._callers.issuer

    def _key_of(self, principal: str, context_id: str) -> tuple[str, ...] | None:
        """The key of a caller's own session; None where callers share one."""
        match self.settings.session:
            case "shared":
                return None
            case "principal":
                return (principal,)
            case "context":
                # Clients choose the ids of contexts: two principals may use the same id.
                return principal, context_id

    @property
    def has_own_sessions(self) -> bool:
        """Whether callers have sessions of their own, which the server keeps something in. A session for a token is
        opened wherever the token comes."""
        return self.settings.session != "shared" and self._callers is None

    def own_session(self, server: str, principal: str, context_id: str) -> OwnSession | None:
        """A caller's own session; None where callers share one. `server` is the server's key in its agent."""
        key = self._key_of(principal, context_id) if self._callers is None else None
        return None if key is None else OwnSession(self, server, key)

    @property
    def idle_seconds(self) -> float:
        """How long a caller's own session may be without a call before it ends."""
        return self.settings.session_idle_seconds

    def open_own(self, key: tuple[str, ...], on_end: Callable[[], None]) -> None:
        """Open a caller's own session, unless it is open. `on_end` is called once it has ended.

        Raises:
            BusyError: all sessions that there may be are in use.
        """
        own = self._own.get(key) or self._open_own(key)
        own.on_end.append(on_end)

    def hold_own(self, key: tuple[str, ...]) -> Callable[[], None] | None:
        """Keep a session open until the function that is returned is called; None if it is not open."""
        own = self._own.get(key)
        if own is None:
            return None
        own.users += 1
        own.moved.notify()

        def release() -> None:
            own.users -= 1
            own.moved.notify()

        return release

    def end_own(self, key: tuple[str, ...]) -> None:
        """Give a session to nobody any more, and end it once nobody uses it."""
        if (own := self._own.get(key)) is not None:
            self._drop_own(key, own)

    def _open(self) -> Session:
        """Open one more session for all callers."""
        session = self._make(self.name)
        self._group.start_soon(_hold_open, session)
        return session

    @asynccontextmanager
    async def _own_queue(
        self, key: tuple[str, ...], caller: CallerToken | None, since: float | None
    ) -> AsyncIterator[CallQueue]:
        if since is not None:
            self._require_login(key, since)
        own = self._own.get(key) or self._open_own(key, caller)
        if since is not None and own.login is not None:
            own.login.bind(since)
        own.users += 1
        own.moved.notify()
        try:
            yield own.queue
        finally:
            own.users -= 1
            own.moved.notify()

    def _open_own(self, key: tuple[str, ...], caller: CallerToken | None = None) -> _Own:
        if len(self._own) >= self.settings.sessions_most:
            self._make_room()
        session = self._make(self.name, target=self._target_of(key, caller))
        own = self._own[key] = _Own(self._queue(session), caller if self._callers else None)
        self._group.start_soon(self._keep, key, own)
        return own

    def _target_of(self, key: tuple[str, ...], caller: CallerToken | None) -> ServerTarget:
        """The server as the principal of a session reaches it."""
        return (
            self.target.of_principal(key[0], caller) if isinstance(self.target, HttpTarget) else self.target
        )

    def _idle_seconds_of(self, own: _Own) -> float:
        left = math.inf if own.caller is None else own.caller.seconds_left()
        return min(self.settings.session_idle_seconds, max(left, 0.0))

    def _make_room(self) -> None:
        """Close the session that has been idle for longest.

        Raises:
            BusyError: no session is idle.
        """
        idle = next((key for key, own in self._own.items() if own.users == 0), None)
        if idle is None:
            raise BusyError(
                f"all sessions with {self.name} are in use ({self.settings.sessions_most}): "
                "`sessions_most` is the limit"
            )
        self._drop_own(idle, self._own[idle])

    def _drop_own(self, key: tuple[str, ...], own: _Own) -> None:
        if self._own.get(key) is own:
            del self._own[key]
        own.closing = True
        own.moved.notify()
        callbacks, own.on_end = own.on_end, []
        for on_end in callbacks:
            on_end()

    async def _keep(self, key: tuple[str, ...], own: _Own) -> None:
        """Hold a session open until it was idle for `idle_seconds`, its token has expired, or its room is needed."""
        async with own.queue.session.run():
            try:
                while not own.closing or own.users:
                    with anyio.move_on_after(None if own.users else self._idle_seconds_of(own)) as idle:
                        await own.moved.wait()
                    if idle.cancelled_caught and not own.users:
                        break
                    if self._own.get(key) is own and not own.closing:
                        self._own[key] = self._own.pop(key)  # the latest used stands last
            finally:
                self._drop_own(key, own)
        logger.debug("%s: an idle session was closed", self.name)


@dataclass(frozen=True)
class OwnSession:
    """Implements `OwnSession`."""

    upstream: Upstream
    server: str
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        """See `OwnSession.name`. The hash is there since clients choose the ids of contexts."""
        return f"{self.server}:{hashlib.sha256(json_bytes([*self.key])).hexdigest()}"

    @property
    def idle_seconds(self) -> float:
        """See `OwnSession.idle_seconds`."""
        return self.upstream.idle_seconds

    def open(self, on_end: Callable[[], None]) -> None:
        """See `Upstream.open_own`."""
        self.upstream.open_own(self.key, on_end)

    def hold(self) -> Callable[[], None] | None:
        """See `Upstream.hold_own`."""
        return self.upstream.hold_own(self.key)

    def end(self) -> None:
        """See `Upstream.end_own`."""
        self.upstream.end_own(self.key)


async def _hold_open(session: Session) -> None:
    async with session.run():
        await anyio.sleep_forever()
