"""An MCP server over HTTP in the test's own process, with the tools that a test lists and a record of their calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from bridge.mcp.client.transports.streamable_http import HttpTarget
from tests.support.limits import url_at
from tests.support.running import listening

Context = ServerRequestContext[Any, Any]


def listed(name: str, required: str = "", *, hints: dict[str, bool] | None = None, **properties: Any) -> dict:
    """A tool as a server lists it; `hints` are its annotations without their "Hint"."""
    schema = {"type": "object", "properties": properties, "required": required.split()}
    annotations = {"annotations": {f"{hint}Hint": said for hint, said in hints.items()}} if hints else {}
    return {"name": name, "inputSchema": schema, **annotations}


@dataclass
class ToolServer:
    """Answers each call with its own name, the tool's and the arguments, as JSON text; calls of `fail` fail."""

    name: str
    tools: list[dict[str, Any]]
    instructions: str | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Each tool that was called, and with what."""
    running: int = 0
    most: int = 0
    """How many calls of `hold` run, and how many ran at the same time."""
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when a call of `hold` begins."""
    released: anyio.Event = field(default_factory=anyio.Event)
    """Until then calls of `hold` do not end."""
    url: str = ""
    ttl_ms: int = 0
    """How long its list of tools is fresh; 0 leaves that to its clients."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ToolServer]:
        """Serve as long as this is entered."""
        server: Server[Any] = Server(
            self.name,
            version="1.0",
            instructions=self.instructions,
            on_list_tools=self._list,
            on_call_tool=self._call,
            get_tool_input_schema=lambda _: None,
        )
        manager = StreamableHTTPSessionManager(server)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await manager.handle_request(scope, receive, send)

        async with manager.run(), listening(app) as root_url:
            self.url = f"{root_url}/mcp"
            yield self

    @property
    def target(self) -> HttpTarget:
        """Where it is."""
        return url_at(self.url)

    async def holding(self, calls: int) -> None:
        """Wait until so many calls of `hold` run."""
        while self.running < calls:
            await self.moved.wait()

    async def _list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [types.Tool.model_validate(one) for one in self.tools]
        return types.ListToolsResult(tools=tools, ttl_ms=self.ttl_ms)

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls.append((params.name, params.arguments or {}))
        if params.name == "report":
            await context.session.report_progress(1, 2, "on the way")
        if params.name == "hold":
            await self._hold()
        text = json.dumps([self.name, params.name, params.arguments or {}])
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=params.name == "fail")

    async def _hold(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.moved.set()
        self.moved = anyio.Event()
        try:
            await self.released.wait()
        finally:
            self.running -= 1
