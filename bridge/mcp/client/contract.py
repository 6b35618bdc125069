"""What the callers of a tool server use of it, whether this process runs it (`upstream.py`) or another worker does
(`shared/server.py`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from bridge.mcp.client.call_queue import Claimant, OnHeld, SlotHold
from bridge.mcp.client.dispatcher import OnTaskNews
from bridge.mcp.client.values import Asker, Greeting, OnProgress, ToolCall, ToolListing
from bridge.text.jsonvalues import JsonObject

if TYPE_CHECKING:
    from bridge.identity.logins.kept_logins import CallerLogins
    from bridge.identity.tokens.caller_token import CallerToken


class ToolSession(Protocol):
    """A session with a tool server; see `Session`."""

    @property
    def name(self) -> str:
        """The server's name in messages and logs."""
        ...

    async def call(
        self, call: ToolCall, on_progress: OnProgress | None = None, asker: Asker | None = None
    ) -> JsonObject:
        """Call a tool; see `Session.call`."""
        ...

    async def request(self, method: str, params: JsonObject, *, name: str | None = None) -> JsonObject:
        """Send a request; see `Session.request`."""
        ...

    def about_task(
        self, task_id: str, asker: Asker, on_news: OnTaskNews
    ) -> AbstractContextManager[Callable[[], None]]:
        """Route what concerns one of the server's tasks; see `Session.about_task`."""
        ...


class OwnSession(Protocol):
    """The session of one caller, by a name that is the same wherever the server has the same key in its agent."""

    @property
    def name(self) -> str:
        """The server's key, and a hash of what the session is for."""
        ...

    @property
    def idle_seconds(self) -> float:
        """How long it may be without a call before it ends."""
        ...

    def open(self, on_end: Callable[[], None]) -> None:
        """Let it be opened here; see `Upstream.open_own`."""
        ...

    def hold(self) -> Callable[[], None] | None:
        """Keep it open until what is returned is called; None if it is not open. See `Upstream.hold_own`."""
        ...

    def end(self) -> None:
        """End it; see `Upstream.end_own`."""
        ...


class ToolSlot(Protocol):
    """The slot of a call; see `CallSlot`."""

    @property
    def session(self) -> ToolSession:
        """The session on which the call runs."""
        ...

    def hold(self, tell: Callable[[float], None], give_up: Callable[[], None]) -> None:
        """Keep the slot while the call's client is asked something; see `CallSlot.hold`."""
        ...

    def go_on(self) -> None:
        """End the hold."""
        ...


class ToolQueue(Protocol):
    """The calls of some callers, in turn; see `CallQueue`."""

    @property
    def session(self) -> ToolSession:
        """A session for requests that need no slot."""
        ...

    def slot(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld = ...
    ) -> AbstractAsyncContextManager[ToolSlot]:
        """Wait for a slot, and keep it as long as this is entered; see `CallQueue.slot`."""
        ...


class DescribedServer(Protocol):
    """What is known of a tool server beside its calls."""

    @property
    def listing(self) -> ToolListing:
        """The tools that it lists."""
        ...

    @property
    def greeting(self) -> Greeting | None:
        """Its own description."""
        ...

    @property
    def down(self) -> str | None:
        """Why it cannot be called, in words; None while it can."""
        ...


class ToolServer(DescribedServer, Protocol):
    """A tool server; see `Upstream`."""

    name: str

    @property
    def target(self) -> object:
        """How it is reached, in words that may be shown."""
        ...

    @property
    def is_process(self) -> bool:
        """Whether it is a process of this bridge, so that what it knows of a call ends with it."""
        ...

    @property
    def logins(self) -> CallerLogins | None:
        """The logins of its callers; None if it wants none of them."""
        ...

    @property
    def caller_issuer(self) -> str | None:
        """The issuer of the tokens that its callers need; None if it is not called in their names."""
        ...

    @property
    def has_own_sessions(self) -> bool:
        """Whether callers have sessions of their own, each at one replica."""
        ...

    def own_session(self, server: str, principal: str, context_id: str) -> OwnSession | None:
        """A caller's own session; see `Upstream.own_session`."""
        ...

    @property
    def needs_login(self) -> bool:
        """Whether it is down until a person logs in."""
        ...

    @property
    def is_unauthorized(self) -> bool:
        """Whether it is down since it does not take the credentials of the bridge."""
        ...

    @property
    def holds(self) -> tuple[SlotHold, ...]:
        """The calls that keep their slots while their clients are asked something, as far as this process knows."""
        ...

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot, as far as this process knows."""
        ...

    def run(self) -> AbstractAsyncContextManager[ToolServer]:
        """Connect now, and again after each loss; end on exit."""
        ...

    async def ready(self) -> None:
        """Wait for the first connection; see `Session.ready`."""
        ...

    def reserve(self, principal: str, *, even_if_full: bool = False) -> None:
        """Count a call among those that run or wait, until `release`; see `Upstream.reserve`."""
        ...

    def release(self, principal: str) -> None:
        """End what `reserve` began."""
        ...

    async def idle(self) -> None:
        """Wait until no call runs or waits."""
        ...

    def forget_logins(self, principal: str) -> None:
        """Use no login of a principal from memory; see `Upstream.forget_logins`."""
        ...

    def queue(
        self, principal: str, context_id: str, caller: CallerToken | None = None, since: float | None = None
    ) -> AbstractAsyncContextManager[ToolQueue]:
        """The queue for a caller; see `Upstream.queue`."""
        ...


async def resource_of(session: ToolSession, uri: str) -> list[JsonValue]:
    """Read a resource of a server. Returns the `contents` of resources/read.

    Raises:
        PeerError: the resource cannot be read.
    """
    result = await session.request("resources/read", {"uri": uri}, name=uri)
    contents = result.get("contents")
    return contents if isinstance(contents, list) else []
