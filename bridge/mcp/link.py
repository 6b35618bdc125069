"""One live connection to a tool server, from the handshake to its end.

A link is entered and left by one task (the SDK's clients require it); callers use it from any task. It does
not heal: once `lost` is set it takes no new calls, and its owner builds another.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from mcp import ClientSession, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map
from mcp_types import Implementation
from pydantic import JsonValue

from bridge import __version__
from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject
from bridge.mcp.eras import Era, negotiate
from bridge.mcp.faults import (
    BROKEN_OFF,
    NO_MCP,
    SESSION_LOST,
    UNREACHABLE,
    NotTakenError,
    ServerLostError,
    ServerRefusedError,
    fault_of,
)
from bridge.mcp.tools import LeftOut, Tool, tools_from
from bridge.mcp.transport import Command, LastWords, Target, child, streamable_http
from bridge.mcp.wire import OnProgress, Stamp, Wire

logger = logging.getLogger(__name__)

CLIENT: Final = Implementation(name="mcp-a2a", version=__version__)
MAX_PAGES: Final = 1000
"""Pages of one tools/list: a server that never ends its list cannot hang the bridge."""


@dataclass(frozen=True)
class Greeting:
    """What a server says of itself."""

    name: str
    version: str
    title: str | None = None
    website_url: str | None = None
    instructions: str | None = None
    icon_url: str | None = None


@dataclass(frozen=True)
class Listing:
    """The tools that a server lists and that can be served, and the others."""

    tools: tuple[Tool, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass
class Link:
    """A connection that works."""

    name: str
    wire: Wire
    session: ClientSession
    era: Era
    stamp: Stamp
    last_words: LastWords
    is_child: bool
    listening: anyio.Event = field(default_factory=anyio.Event)
    """What the server says of its tools is heard from here on, as far as it says anything."""
    tools_changed: anyio.Event = field(default_factory=anyio.Event)
    lost: anyio.Event = field(default_factory=anyio.Event)
    """No new calls: the connection is gone, or its session is."""
    calls: int = 0
    """Requests that are under way."""
    drained: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_lost(self) -> bool:
        """Whether new calls have to go elsewhere."""
        return self.lost.is_set() or self.wire.ended

    @property
    def greeting(self) -> Greeting:
        """What the server said of itself in the handshake."""
        info = self.session.server_info
        icons = info.icons if info else None
        return Greeting(
            name=info.name if info else self.name,
            version=info.version if info else "",
            title=info.title if info else None,
            website_url=info.website_url if info else None,
            instructions=self.session.instructions,
            icon_url=next((icon.src for icon in icons or () if icon.src.startswith("https:")), None),
        )

    @property
    def announces_changes(self) -> bool:
        """Whether the server says that it tells when its tools change."""
        capabilities = self.session.server_capabilities
        return bool(capabilities and capabilities.tools and capabilities.tools.list_changed)

    async def list_tools(self) -> Listing:
        """Every page of tools/list.

        Raises:
            PeerError: the server cannot list its tools.
        """
        listed: list[JsonValue] = []
        cursor: JsonValue = None
        for _ in range(MAX_PAGES):
            page = await self.request("tools/list", {} if cursor is None else {"cursor": cursor})
            tools = page.get("tools")
            if not isinstance(tools, list):
                raise PeerError(f"{self.name} answered tools/list without a list of tools")
            listed += tools
            before, cursor = cursor, page.get("nextCursor")
            if cursor is None:
                return Listing(*tools_from(listed))
            if cursor == before:
                break
        raise PeerError(f"{self.name} never ends its list of tools ({len(listed)} so far)")

    async def call(
        self, tool: Tool, arguments: JsonObject, on_progress: OnProgress | None, meta: Mapping[str, JsonValue]
    ) -> JsonObject:
        """Call a tool: its result as the server sent it.

        Raises:
            ServerRefusedError: the server answered with an error.
            NotTakenError: the server has not taken the request.
            ServerLostError: the connection ended before the answer.
        """
        with self.wire.progress_to(on_progress) as asked:
            params: JsonObject = {"name": tool.name, "arguments": arguments}
            headers = mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)
            return await self.request(
                "tools/call", params, name=tool.name, headers=headers, meta={**asked, **meta}
            )

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, JsonValue] | None = None,
    ) -> JsonObject:
        """Send one request and give back its result, raw. `name` is what it names, as HTTP headers repeat it.

        Raises:
            ServerRefusedError, NotTakenError, ServerLostError: as `call` does.
        """
        stamped = {**(meta or {}), **self.stamp.meta}
        options = self.stamp.options(method, name, headers or {})
        self.calls += 1
        try:
            sent = {**params, "_meta": stamped} if stamped else params
            return await self.wire.send_raw_request(method, sent, options)
        except MCPError as exc:
            raise self._error_from(exc) from exc
        finally:
            self.calls -= 1
            if self.calls == 0:
                self.drained.set()

    def _error_from(self, exc: MCPError) -> PeerError:
        match fault_of(exc):
            case None:
                return ServerRefusedError(exc.code, exc.message, exc.data)
            case fault if fault in (UNREACHABLE, SESSION_LOST):
                return NotTakenError(exc.message)
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
                return ServerLostError(f"{self.name}: {exc.message}")

    async def watch(self) -> None:
        """Notice that the connection ends, and what the server says of its tools. Runs as long as the link."""
        async with anyio.create_task_group() as tasks:
            if self.era is Era.MODERN and self.announces_changes:
                tasks.start_soon(self._listen)
            else:
                self.listening.set()
            await self.wire.closed.wait()
            self.lost.set()
            tasks.cancel_scope.cancel()

    async def _listen(self) -> None:
        """Hold a listen stream open; what it brings is seen on the wire. A lost one is opened again."""
        pause = 1.0
        while True:
            try:
                async with listen(self.session, tools_list_changed=True) as changes:
                    pause = 1.0
                    if self.listening.is_set():
                        self.tools_changed.set()  # nothing was heard of changes for a while
                    self.listening.set()
                    async for _ in changes:
                        pass
            except (MCPError, SubscriptionLost) as exc:
                logger.debug("%s: its list of changes broke off: %s", self.name, exc)
            self.listening.set()
            await anyio.sleep(pause)
            pause = min(pause * 2, 60.0)

    async def retire(self, patience_seconds: float) -> None:
        """Wait for the calls that are under way, but not for ever."""
        with anyio.move_on_after(patience_seconds):
            while self.calls and not self.wire.closed.is_set():
                self.drained = anyio.Event()
                await self.drained.wait()


@asynccontextmanager
async def open_link(name: str, target: Target, era: Era, connect_seconds: float) -> AsyncIterator[Link]:
    """Connect to a server and greet it.

    Raises:
        UsageError: its command cannot be started (in a group of exceptions).
        PeerError: it cannot be reached, or does not speak MCP.
    """
    last_words, holder = LastWords(), _Holder()
    async with _streams(name, target, last_words, holder.fault) as streams:
        wire = Wire(name, streams, holder.tools_changed)
        async with ClientSession(client_info=CLIENT, dispatcher=wire) as session:
            with anyio.move_on_after(connect_seconds) as deadline:
                spoken = await _greet(session, era, name, last_words)
            if deadline.cancelled_caught:
                raise PeerError(
                    f"{name} was reached, but said nothing of MCP within {connect_seconds:g} s",
                    detail=str(last_words),
                )
            stamp = Stamp.of(session, CLIENT)
            holder.link = Link(
                name, wire, session, spoken, stamp, last_words, is_child=isinstance(target, Command)
            )
            yield holder.link


async def _greet(session: ClientSession, era: Era, name: str, last_words: LastWords) -> Era:
    try:
        return await negotiate(session, era)
    except MCPError as exc:
        fault = fault_of(exc)
        if fault == BROKEN_OFF:
            raise PeerError(f"{name} ended before it said anything of MCP", detail=str(last_words)) from exc
        if fault == NO_MCP:
            raise PeerError(_no_mcp(name)) from exc
        raise PeerError(exc.message if fault else f"{name} refused the MCP handshake: {exc.message}") from exc
    except (RuntimeError, ValueError) as exc:
        raise PeerError(f"{name} does not speak MCP as we know it: {exc}") from exc


def _no_mcp(name: str) -> str:
    return f"{name} answers with what is no MCP; is it the address of an MCP server?"


class _Holder:
    """Lets what is heard before there is a link wait for it."""

    def __init__(self) -> None:
        self.link: Link | None = None

    def tools_changed(self) -> None:
        if self.link is not None:
            self.link.tools_changed.set()

    def fault(self, kind: str) -> None:
        if self.link is not None and kind in (SESSION_LOST, UNREACHABLE):
            self.link.lost.set()


@asynccontextmanager
async def _streams(
    name: str, target: Target, last_words: LastWords, on_fault: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    if isinstance(target, Command):
        async with child(target, name, last_words) as streams:
            yield streams
    else:
        async with streamable_http(target, on_fault) as streams:
            yield streams
