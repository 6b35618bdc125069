"""The contestant for starting a face: the SDK's low-level server on stdio with one tool, and nothing of the bridge.

(`tests/support/sdk_server.py` has more tools, but imports the bridge for its HTTP side.)
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_ECHO = types.Tool(name="echo", input_schema={"type": "object", "properties": {"text": {"type": "string"}}})


async def _list(
    _: ServerRequestContext[Any, Any], __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_ECHO])


async def _call(
    _: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    text = (params.arguments or {})["text"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def _main() -> None:
    server: Server[Any] = Server("bare", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)
