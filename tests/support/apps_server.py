"""An MCP server with an app, in this process and in either era. Built on the official SDK.

Its tools have their links to the app only for clients that declare MCP Apps, as the specification wishes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.client.extension import advertise
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from bridge.mcp.client.transports.in_process import InProcessTarget, low_level

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]

UI: Final = "io.modelcontextprotocol/ui"
TYPE: Final = "text/html;profile=mcp-app"
SHOWS: Final = [advertise(UI, {"mimeTypes": [TYPE]})]
"""The extension of a client that shows apps."""
PAGE: Final = "ui://clock/page.html"
LINK: Final = {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE}
CSP: Final[Json] = {
    "csp": {
        "connectDomains": ["https://*.example.com", "javascript:alert(1)", "'; script-src *", 7],
        "frameDomains": None,
        "future": {"kept": True},
    },
    "permissions": {"camera": {}, "everything": {"odd": [1]}},
    "domain": "\u202e\u0000",
    "prefersBorder": True,
}
"""What a page says of itself. Some values are strange: only hosts judge them."""


def tool(name: str, meta: Json | None = None, **more: Any) -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"}, _meta=meta, **more)


@dataclass
class AppServer:
    """The server, and what was asked of it."""

    tools: list[types.Tool] = field(
        default_factory=lambda: [
            tool("show_time", LINK),
            tool("tick", {"ui": {"resourceUri": PAGE, "visibility": ["app"]}, "vendor/k": [1]}),
            tool("plain"),
        ]
    )
    html: str = "<!doctype html><script>parent.postMessage(1)</script>"
    skill: str = "---\nname: tell-time\n---\nCall show_time."
    called: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    declared: list[Json | None] = field(default_factory=list)
    """The extensions that the client declared, at each list of tools."""

    def target(self, name: str = "clock", limit_bytes: int = 1 << 20) -> InProcessTarget:
        """The server as a bridge reaches it."""
        return InProcessTarget(
            name,
            low_level(name, self.server()),
            exit_seconds=2.0,
            result_limit_bytes=limit_bytes,
            result_json_values=20_000,
        )

    def server(self) -> Server[Any]:
        """The server of the SDK."""
        return Server(
            "clock",
            version="1",
            on_list_tools=self._tools,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_read_resource=self._read,
        )

    async def _tools(self, context: Context, _: Any) -> types.ListToolsResult:
        capabilities = context.session.client_capabilities
        extensions = None if capabilities is None else capabilities.extensions
        self.declared.append(extensions)
        return types.ListToolsResult(tools=self.tools, ttl_ms=0, cache_scope="private")

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.called.append(params.name)
        return types.CallToolResult(
            content=[types.TextContent(text=f"{params.name}: noon")],
            structured_content={"time": "12:00"},
            _meta={"view/k": 1},
        )

    async def _resources(self, context: Context, _: Any) -> types.ListResourcesResult:
        listed = [
            types.Resource(uri=PAGE, name="page", mime_type=TYPE, _meta={"ui": CSP}),
            types.Resource(uri="skill://tell-time/SKILL.md", name="tell-time", mime_type="text/markdown"),
        ]
        return types.ListResourcesResult(resources=listed, ttl_ms=0, cache_scope="public")

    async def _read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        self.read.append(uri)
        texts = {
            PAGE: (TYPE, self.html, {"ui": CSP}),
            "skill://tell-time/SKILL.md": ("text/markdown", self.skill, None),
        }
        if uri not in texts:
            raise MCPError(-32002, "Resource not found", {"uri": uri})
        kind, text, meta = texts[uri]
        contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text, _meta=meta)
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="public")
