"""An MCP server built on the official SDK's low-level Server: both eras, over stdio and Streamable HTTP.

Over stdio it is a program, `python sdk_server.py`; over HTTP it is served in the test's own process, where
the test also sees what arrives and can break what is answered (see `HttpServer`). Its tools are a part of
the raw server's, with the same names and answers:

echo       gives `text` back                      refuse     a JSON-RPC error with `code`
progress   `steps` reports, then a result         wait       answers only when it is cancelled
cancelled  how many waits were cancelled, once    grow       adds `tools` tools, and says so after each
           there is one
ask        asks for a name in the older way       ask-tool   the same, as a framework that makes its failures results
hold       answers once `released` is set
big        a text of `bytes` bytes, and `values` numbers; with `stream` after progress, which makes HTTP stream it
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from tests.support.running import listening

NAMES = ("echo", "refuse", "progress", "wait", "cancelled", "grow", "big")
Context = ServerRequestContext[Any, Any]


@dataclass
class Tools:
    """The tools of one server, and what was asked of them."""

    pages: int = 1
    endless: bool = False
    """After each page of the list comes the first one."""
    unlisted: bool = False
    """The list is refused."""
    names: list[str] = field(default_factory=lambda: list(NAMES))
    listings: int = 0
    """How often the list was asked for, from its beginning."""
    waiting: int = 0
    cancelled: int = 0
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when a wait begins or is cancelled."""
    released: anyio.Event = field(default_factory=anyio.Event)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)

    def server(self) -> tuple[Server[Any], ListenHandler]:
        """A server with these tools."""
        listen = ListenHandler(self.bus)
        server: Server[Any] = Server(
            "sdk",
            version="3.2.1",
            title="SDK Server",
            instructions="Tools for tests.",
            on_list_tools=self.list,
            on_call_tool=self.call,
            on_subscriptions_listen=listen,
            get_tool_input_schema=lambda _: None,
        )
        return server, listen

    async def list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if self.unlisted:
            raise MCPError(-32603, "not now")
        start = int(params.cursor) if params and params.cursor else 0
        self.listings += start == 0
        size = -(-len(self.names) // self.pages)
        tools = [
            types.Tool(name=name, input_schema={"type": "object"})
            for name in self.names[start : start + size]
        ]
        cursor = str(start + size) if start + size < len(self.names) else None
        return types.ListToolsResult(tools=tools, next_cursor="0" if self.endless else cursor)

    async def call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        match params.name:
            case "echo":
                return _said(arguments["text"])
            case "refuse":
                raise MCPError(arguments["code"], "not today", {"until": "tomorrow"})
            case "progress":
                for step in range(1, arguments["steps"] + 1):
                    await context.session.report_progress(step, arguments["steps"], f"step {step}")
                return _said(f"{arguments['steps']} steps")
            case "wait":
                return await self._wait()
            case "cancelled":
                await self.until(lambda: self.cancelled > 0)
                return _said(str(self.cancelled))
            case "grow":
                for _ in range(arguments.get("tools", 1)):
                    await self._grow(context)
                return _said("grown")
            case "ask" | "ask-tool":
                return await _ask(context, is_caught=params.name == "ask-tool")
            case "ask-everything":
                try:
                    return await _ask(context, is_caught=False)
                except MCPError as exc:
                    return _said(f"Elicitation not supported or error: {exc}")
            case "quote":
                return _said(arguments["text"])
            case "hold":
                self.waiting += 1
                self._move()
                await self.released.wait()
                return _said("held")
            case "big":
                if arguments.get("stream"):
                    await context.session.report_progress(1, 2)
                rows = {"rows": [0] * arguments.get("values", 0)}
                return _said("x" * arguments["bytes"]).model_copy(update={"structured_content": rows})
        return _said(f"I am {params.name}")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not condition():
            await self.moved.wait()

    async def _wait(self) -> types.CallToolResult:
        self.waiting += 1
        self._move()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            self._move()
            raise
        raise AssertionError

    async def _grow(self, context: Context) -> None:
        self.names.append(f"grown-{len(self.names) - len(NAMES) + 1}")
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self.bus.publish(ToolsListChanged())
        else:
            await context.session.send_tool_list_changed()

    def _move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()


async def _ask(context: Context, *, is_caught: bool) -> types.CallToolResult:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    try:
        return _said((await context.session.elicit_form("Who?", schema)).action)
    except MCPError as exc:
        if not is_caught:
            raise
        return _said(f"Error calling tool 'ask-tool': {exc}").model_copy(update={"is_error": True})


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


@dataclass
class HttpServer:
    """A server over Streamable HTTP whose answers can be broken from the moment a test says so."""

    tools: Tools = field(default_factory=Tools)
    only: str | None = None
    """`legacy` or `modern`: the other era is answered as servers without it do."""
    broken: Response | None = None
    """What every request is answered with."""
    get_status: int | None = None
    """What a GET is answered with."""
    lost_status: int = 404
    """What a session that is not known is answered with."""
    json_response: bool = False
    posted: list[str] = field(default_factory=list)
    """The methods of the messages that were posted."""
    url: str = ""
    _manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def run(self, port: int = 0) -> AsyncIterator[HttpServer]:
        """Serve as long as this is entered, on a free port or the one that is named."""
        async with listening(self, port) as root_url:
            self.url = f"{root_url}/mcp"
            async with self.session():
                yield self

    @asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """Serve with nothing known of earlier sessions."""
        server, listen = self.tools.server()
        before = self._manager
        manager = StreamableHTTPSessionManager(server, json_response=self.json_response)
        try:
            async with manager.run():
                self._manager = manager
                try:
                    yield
                finally:
                    self._manager = before
                    listen.close()
        finally:
            self._manager = before

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2].partition("/")[0])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive) if scope["method"] == "POST" else b""
        message = json.loads(body) if body else {}
        self.posted += [message["method"]] if "method" in message else []
        answer = self._refusal(scope, message)
        if answer is not None:
            return await answer(scope, receive, send)
        assert self._manager is not None
        return await self._manager.handle_request(scope, _again(body, receive), self._judged(send))

    def _judged(self, send: Send) -> Send:
        """Sends what is sent, but for the status that a lost session is given."""

        async def send_judged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                message["status"] = self.lost_status
            await send(message)

        return send_judged

    def _refusal(self, scope: Scope, message: dict[str, Any]) -> Response | None:
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        is_modern = version in MODERN_PROTOCOL_VERSIONS
        if self._manager is None:
            return Response(status_code=503)
        if self.broken is not None:
            return self.broken
        if self.get_status is not None and scope["method"] == "GET":
            return Response(status_code=self.get_status)
        if (self.only == "legacy" and is_modern) or (self.only == "modern" and not is_modern):
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            return JSONResponse({"jsonrpc": "2.0", "error": error, "id": message.get("id")}, 400)
        return None


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, then what comes."""
    first = [body]

    async def receive_again() -> Message:
        if first:
            return {"type": "http.request", "body": first.pop(), "more_body": False}
        return await receive()

    return receive_again


async def _main() -> None:
    server, _ = Tools().server()
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)
