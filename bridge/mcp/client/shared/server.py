"""A tool server that one worker runs for all: the same to its callers in every worker.

The supervisor says which worker holds the server. That worker runs it as one process does (`Upstream`), and lets the
others use it (`holder.py`). They know its tools and its state from the holder, and pass their calls on (`passed.py`).
A worker holds a server until it ends. The supervisor names another holder only once the last one, and all that it
started, is gone: two processes on one file would destroy it.

A call that was under way fails when the holder dies. A call that comes meanwhile waits for the next holder, and then
until that has started the server, each at most as long as connecting to the server may take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import anyio.abc

from bridge.concurrency import Backoff, Signal
from bridge.errors import BridgeError, PeerError, counted
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.client.call_queue import Claimant, OnHeld, SlotHold
from bridge.mcp.client.contract import ToolQueue, ToolSession, ToolSlot
from bridge.mcp.client.faults import ServerDownError
from bridge.mcp.client.kept_listings import KeptListing
from bridge.mcp.client.opening import SessionPace
from bridge.mcp.client.shared.frames import ServerState, SessionPlace, fault_in, opening, state_in
from bridge.mcp.client.shared.holder import HeldServers
from bridge.mcp.client.shared.passed import PassedQueue
from bridge.mcp.client.upstream import QueueFullError, SessionRules, Upstream
from bridge.mcp.client.values import Greeting, ToolListing
from bridge.worker_link import LinkEndedError, WorkerLink

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
"""The pauses before a holder that does not listen yet is tried again: it may have only just started."""

_UNKNOWN: Final = "no worker has started it yet"

_HOLDER_ENDED: Final = "the process that ran it for all workers has ended, and another one starts it"


@dataclass(eq=False)
class Holders:
    """Which worker holds which server, as the supervisor says."""

    own_address: str
    """The unix socket of this worker."""
    by_server: dict[str, str] = field(default_factory=dict)
    """The unix sockets of the workers that hold the servers. A server without a holder is not there."""
    changed: Signal = field(default_factory=Signal)

    def update(self, by_server: dict[str, str]) -> None:
        """Take over what the supervisor says."""
        self.by_server = by_server
        self.changed.tell()


@dataclass(frozen=True)
class SharedRules:
    """The limits of a server that workers share."""

    pace: SessionPace
    rules: SessionRules
    workers: int

    @property
    def most(self) -> int:
        """The most calls that a worker which does not hold the server has running or waiting: its share."""
        whole = self.pace.concurrency * max(self.rules.shared, 1) + self.rules.queue
        return max(whole // self.workers, 1)


class SharedServer:
    """A tool server of several workers. Implements `ToolServer`."""

    def __init__(
        self,
        name: str,
        shared_as: str,
        make: Callable[[Callable[[], None]], Upstream],
        *,
        limits: SharedRules,
        holders: Holders,
        held: HeldServers,
        on_change: Callable[[], None],
        kept: KeptListing | None = None,
    ) -> None:
        """`shared_as` is the server's name among the workers. `make` gives the server as one process runs it, with
        what to call when it has changed. `kept` is what the server listed when an earlier process reached it."""
        self.name = name
        self._shared_as = shared_as
        self._limits = limits
        self._holders = holders
        self._held = held
        self._on_change = on_change
        self._local = make(self._has_changed)
        self._is_holder = False
        self._kept = kept
        self._state = ServerState(ToolListing(), None, _UNKNOWN)
        self._fault: BridgeError | None = None
        self._tried = anyio.Event()
        self._changed = Signal()
        self._reserved: Counter[str] = Counter()
        self._freed = Signal()

    @property
    def target(self) -> object:
        """How it is reached."""
        return self._local.target

    @property
    def is_process(self) -> bool:
        """See `ToolServer.is_process`: one worker runs it."""
        return True

    @property
    def logins(self) -> None:
        """A command has no logins."""

    @property
    def caller_issuer(self) -> None:
        """A command gets no tokens."""

    @property
    def has_own_sessions(self) -> bool:
        """False: whichever worker calls, the one that runs the server has the session of the caller."""
        return False

    def own_session(self, server: str, principal: str, context_id: str) -> None:  # noqa: ARG002
        """See `has_own_sessions`."""
        return

    @property
    def listing(self) -> ToolListing:
        """The tools that it lists."""
        if self._knows_more:
            return self._local.listing
        return self._state.listing if self._earlier is None else self._earlier.listing

    @property
    def greeting(self) -> Greeting | None:
        """Its own description."""
        if self._knows_more:
            return self._local.greeting
        return self._state.greeting if self._earlier is None else self._earlier.greeting

    @property
    def down(self) -> str | None:
        """Why it cannot be called; None while it can."""
        return self._local.down if self._is_holder else self._state.down

    @property
    def needs_login(self) -> bool:
        """False: a command has no logins."""
        return False

    @property
    def is_unauthorized(self) -> bool:
        """False: a command is shown no credentials."""
        return False

    @property
    def holds(self) -> tuple[SlotHold, ...]:
        """The calls that keep their slots; known to the holder alone."""
        return self._local.holds if self._is_holder else ()

    @property
    def waiting(self) -> int:
        """How many calls wait; known to the holder alone."""
        return self._local.waiting if self._is_holder else 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator[SharedServer]:
        """Hold the server, or follow its holder; end on exit."""
        async with anyio.create_task_group() as tasks:
            self._group = tasks
            tasks.start_soon(self._follow_holders)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def ready(self) -> None:
        """See `Session.ready`."""
        await self._tried.wait()
        if self._is_holder:
            await self._local.ready()
        elif self._fault is not None:
            raise self._fault
        elif self._state.down is not None:
            raise PeerError(self._state.down)

    def reserve(self, principal: str, *, even_if_full: bool = False) -> None:
        """Count a call of this principal until `release`. Raises QueueFullError: there is no room.

        A worker that does not hold the server has a share of the room. One principal cannot take the last quarter of
        it.
        """
        if self._is_holder:
            self._local.reserve(principal, even_if_full=even_if_full)
            return
        most, calls = self._limits.most, self._reserved.total()
        is_greedy = self._reserved[principal] >= max(most - most // 4, 1)
        if (calls >= most or is_greedy) and not even_if_full:
            run_or_wait = "runs or waits" if calls == 1 else "run or wait"
            raise QueueFullError(
                f"{self.name} is busy: {counted(calls, 'call')} of this worker {run_or_wait}"
            )
        self._reserved[principal] += 1

    def release(self, principal: str) -> None:
        """End what `reserve` began."""
        if not self._reserved[principal]:
            self._local.release(principal)  # it was reserved since this worker holds the server
            return
        self._reserved[principal] -= 1
        if not self._reserved[principal]:
            del self._reserved[principal]
        if not self._reserved:
            self._freed.tell()

    async def idle(self) -> None:
        """Wait until no call runs or waits, of this worker, or of any if this one holds the server."""
        while self._reserved:
            await self._freed.wait()
        if self._is_holder:
            await self._local.idle()

    def forget_logins(self, principal: str) -> None:
        """A command has no logins."""

    @asynccontextmanager
    async def queue(
        self,
        principal: str,
        context_id: str,
        caller: CallerToken | None = None,  # noqa: ARG002 - a command gets no tokens
        since: float | None = None,  # noqa: ARG002 - nor has it logins
    ) -> AsyncIterator[ToolQueue]:
        """See `Upstream.queue`."""
        place = self._place_of(principal, context_id)
        either = _EitherQueue(self, place)
        if self._is_holder:
            async with self._local.queue(place.principal, place.context_id):
                yield either
        elif place == SessionPlace():
            yield either
        else:
            async with self._kept_open(place):
                yield either

    @property
    def own(self) -> Upstream | None:
        """The server, if this worker holds it."""
        return self._local if self._is_holder else None

    @property
    def _knows_more(self) -> bool:
        """Whether this worker has had a connection of its own. Until then it knows what the last holder has said."""
        return self._is_holder and self._local.greeting is not None

    @property
    def _earlier(self) -> KeptListing | None:
        """What an earlier process knew of the server; None once a worker of this one has told of it."""
        return self._kept if self._state.greeting is None else None

    # Linking to the holder

    async def open(self, login_config: str, place: SessionPlace, **more: Any) -> WorkerLink:
        """See `Links.open`."""
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        seconds = self._limits.pace.connect_seconds
        more["start_seconds"] = seconds  # the holder may have to start the server first
        with anyio.move_on_after(seconds):
            while True:
                changed, holder = self._holders.changed.next, self._holder
                if holder is not None:
                    with suppress(LinkEndedError):
                        link = await WorkerLink.to(holder)
                        link.post(opening(self._held.secret, self._shared_as, login_config, place, more))
                        return link
                with anyio.move_on_after(None if holder is None else pauses.next()):
                    await changed.wait()
        raise ServerDownError(f"{self.name} is down: {self.down or _UNKNOWN}")

    def in_background(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See `Links.in_background`."""
        self._group.start_soon(work)

    @asynccontextmanager
    async def _kept_open(self, place: SessionPlace) -> AsyncIterator[None]:
        """Keep a session of the holder open for its callers.

        Raises:
            BusyError: all sessions that there may be are in use.
        """
        link = await self.open("session", place)
        try:
            with suppress(LinkEndedError):  # the holder died: the next one opens another session
                if (fault := fault_in(await link.receive())) is not None:
                    raise fault
            yield
        finally:
            await link.close()

    def _place_of(self, principal: str, context_id: str) -> SessionPlace:
        match self._limits.rules.per:
            case "shared":
                return SessionPlace()
            case "principal":
                return SessionPlace(principal)
            case "context":
                return SessionPlace(principal, context_id)

    @property
    def _holder(self) -> str | None:
        return self._holders.by_server.get(self._shared_as)

    # Following the holder

    async def _follow_holders(self) -> None:
        while (holder := self._holder) != self._holders.own_address:
            async with anyio.create_task_group() as watching:
                watching.start_soon(self._watch)
                while self._holder == holder:
                    await self._holders.changed.wait()
                watching.cancel_scope.cancel()
        async with self._local.run():
            self._is_holder = True
            with self._held.holding(self._shared_as, self._local, self, self._changed):
                self._tried.set()
                self._has_changed()
                await anyio.sleep_forever()

    async def _watch(self) -> None:
        """Learn the server's state from its holder."""
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                link = await self.open("state", SessionPlace())
                try:
                    while True:
                        frame = await link.receive()
                        self._fault = fault = fault_in(frame)
                        if fault is not None and "tools" not in frame:
                            raise fault
                        self._take(state_in(frame, self._limits.pace.list_bounds.schema_values))
                        pauses.reset()
                finally:
                    await link.close()
            except LinkEndedError:
                self._take(replace(self._state, down=_HOLDER_ENDED))
            except BridgeError as exc:  # nobody has started it, or its holder failed
                self._fault = exc
                self._take(self._state)
            await anyio.sleep(pauses.next())

    def _take(self, state: ServerState) -> None:
        self._state = state
        self._tried.set()
        self._on_change()

    def _has_changed(self) -> None:
        """The server that this worker holds has changed."""
        self._changed.tell()
        self._on_change()


class _EitherQueue:
    """The queue of some callers, wherever the server is held when a call comes."""

    def __init__(self, server: SharedServer, place: SessionPlace) -> None:
        self._server = server
        self._place = place

    @property
    def session(self) -> ToolSession:
        """A session for requests that need no slot. This worker's own server is reached by a link, too."""
        return PassedQueue(self._server, self._place).session

    @asynccontextmanager
    async def slot(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld = lambda _: None
    ) -> AsyncIterator[ToolSlot]:
        """See `CallQueue.slot`."""
        if (local := self._server.own) is not None:
            async with (
                local.queue(self._place.principal, self._place.context_id) as queue,
                queue.slot(caller, within_seconds, on_held) as slot,
            ):
                yield slot
            return
        async with PassedQueue(self._server, self._place).slot(caller, within_seconds, on_held) as passed:
            yield passed
