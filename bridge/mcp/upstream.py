"""A tool server that the bridge depends on: its sessions, and how many calls it is given.

By default all callers share one session. A server that keeps something per session (a browser, a shell, who
is logged in) can be given one for each principal or each context; these are made when they are needed and
closed when they were idle for a while. The first session is always there: it knows the tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import anyio
import anyio.abc
from pydantic import JsonValue

from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject
from bridge.mcp.eras import Era
from bridge.mcp.faults import ServerDownError
from bridge.mcp.memory import ServerMemory
from bridge.mcp.session import Session, SessionPace
from bridge.mcp.transport import Target
from bridge.mcp.values import Greeting, Listing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionRules:
    """Which callers share a session."""

    per: Literal["shared", "principal", "context"] = "shared"
    shared: int = 1
    """How many sessions the callers share; more than one helps a server that is given one call at a time."""
    most: int = 64
    """Sessions of principals or contexts at the same time."""
    idle_seconds: float = 600
    """How long such a session may be without a call before it is closed."""
    queue: int = 256
    """Calls that wait for their turn, beyond those that run; one more is refused."""


class QueueFullError(PeerError):
    """As many calls wait for this server as may."""


@dataclass(eq=False)
class _Own:
    """The session of one principal or context."""

    session: Session
    users: int = 0
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when it is taken, given back or to be closed."""
    closing: bool = False

    def move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()


class Upstream:
    """A tool server, connected as long as it is entered."""

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        era: Era = Era.AUTO,
        memory: ServerMemory | None = None,
        pace: SessionPace | None = None,
        rules: SessionRules | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when the tools, or whether the server is up, have changed."""
        self.target = target
        self._rules = rules or SessionRules()
        self._pace = pace or SessionPace()
        make = partial(Session, target=target, era=era, memory=memory or ServerMemory(None), pace=self._pace)
        self._make = make
        self._first = make(name, on_change=on_change)
        self._shared = (self._first, *(make(name) for _ in range(self._rules.shared - 1)))
        self._own: dict[str, _Own] = {}
        self._reserved = 0
        self._freed = anyio.Event()

    @property
    def name(self) -> str:
        """What the server is called in messages and logs."""
        return self._first.name

    @name.setter
    def name(self, name: str) -> None:
        for session in (*self._shared, *(own.session for own in self._own.values())):
            session.name = name

    @property
    def listing(self) -> Listing:
        """What the server lists."""
        return self._first.listing

    @property
    def greeting(self) -> Greeting | None:
        """What the server said of itself when it was last connected."""
        return self._first.greeting

    @property
    def down(self) -> str | None:
        """Why the server cannot be called, in words; None while it can."""
        return self._first.down

    @property
    def own_sessions(self) -> int:
        """How many sessions of principals or contexts there are."""
        return len(self._own)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Upstream]:
        """Connect now and whenever it is needed; end every session on exit."""
        async with AsyncExitStack() as stack:
            for session in self._shared:
                await stack.enter_async_context(session.run())
            self._group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._group.cancel_scope.cancel)
            yield self

    async def ready(self) -> None:
        """Wait for the first connection; see `Session.ready`."""
        await self._first.ready()

    def reserve(self, *, even_if_full: bool = False) -> None:
        """Take a place among the calls that run or wait; `release` gives it back.

        Raises:
            QueueFullError: there is none.
        """
        running = self._pace.concurrency * max(self._rules.shared, 1)
        if self._reserved >= running + self._rules.queue and not even_if_full:
            raise QueueFullError(f"{self.name} is busy: {running} calls run and {self._rules.queue} wait")
        self._reserved += 1

    def release(self) -> None:
        """Give a reserved place back."""
        self._reserved -= 1
        if not self._reserved:
            self._freed.set()
            self._freed = anyio.Event()

    async def idle(self) -> None:
        """Wait until no call runs or waits."""
        while self._reserved:
            await self._freed.wait()

    @asynccontextmanager
    async def session(self, principal: str, context_id: str) -> AsyncIterator[Session]:
        """The session for a caller, kept open as long as this is entered.

        Raises:
            ServerDownError: as many sessions are in use as there may be.
        """
        match self._rules.per:
            case "shared":
                yield min(self._shared, key=lambda session: (session.down is not None, session.load))
            case "principal":
                async with self._own_session(principal) as session:
                    yield session
            case "context":
                async with self._own_session(context_id) as session:
                    yield session

    async def read(self, uri: str) -> list[JsonValue]:
        """Read a resource of the server: the `contents` of resources/read.

        Raises:
            PeerError: it cannot be read.
        """
        result: JsonObject = await self._first.request("resources/read", {"uri": uri}, name=uri)
        contents = result.get("contents")
        return contents if isinstance(contents, list) else []

    @asynccontextmanager
    async def _own_session(self, key: str) -> AsyncIterator[Session]:
        own = self._own.get(key) or self._open(key)
        own.users += 1
        own.move()
        try:
            yield own.session
        finally:
            own.users -= 1
            own.move()

    def _open(self, key: str) -> _Own:
        if len(self._own) >= self._rules.most:
            self._make_room()
        own = self._own[key] = _Own(self._make(self.name))
        self._group.start_soon(self._keep, key, own)
        return own

    def _make_room(self) -> None:
        """Close the session that has been idle for longest."""
        idle = next((key for key, own in self._own.items() if own.users == 0), None)
        if idle is None:
            raise ServerDownError(f"all {self._rules.most} sessions with {self.name} are in use")
        own = self._own.pop(idle)
        own.closing = True
        own.move()

    async def _keep(self, key: str, own: _Own) -> None:
        """Hold a session open until it was idle for long enough."""
        async with own.session.run():
            while not own.closing:
                with anyio.move_on_after(None if own.users else self._rules.idle_seconds) as idle:
                    await own.moved.wait()
                if idle.cancelled_caught and not own.users:
                    break
                if self._own.get(key) is own and not own.closing:
                    self._own[key] = self._own.pop(key)  # the newest stands last
            if self._own.get(key) is own:
                del self._own[key]
        logger.debug("%s: an idle session was closed", self.name)
