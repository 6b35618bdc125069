"""The MCP server that the peers of the matrix call through the bridge, over stdio: one tool for each scenario.

echo    gives `text` back                       ask   asks for a colour, and gives it back
add     a sum, as words and as structured data  fail  fails in words
copy    gives a file back                       wait  answers only when it is cancelled
steps   reports `count` steps on its way

It asks as MCP 2026-07-28 does, so that a question that a peer leaves open holds up no other call.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any, Any]
COLOUR: Final = {
    "type": "object",
    "properties": {"colour": {"type": "string", "description": "Any colour"}},
    "required": ["colour"],
}


async def echo(_: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    return _said(f"echo: {arguments['text']}")


async def add(_: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    a, b = arguments["a"], arguments["b"]
    return _said(f"{a} and {b} make {a + b}").model_copy(update={"structured_content": {"sum": a + b}})


async def copy(_: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    size = len(base64.b64decode(arguments["file"]))
    resource = types.BlobResourceContents(
        uri="matrix://copy.bin", mime_type="application/octet-stream", blob=arguments["file"]
    )
    said = types.TextContent(type="text", text=f"{size} bytes")
    return types.CallToolResult(content=[said, types.EmbeddedResource(type="resource", resource=resource)])


async def steps(context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    count = int(arguments["count"])
    for step in range(1, count + 1):
        await context.session.report_progress(step, count, f"step {step} of {count}")
    return _said(f"{count} steps taken")


def ask(answers: types.InputResponses | None) -> types.CallToolResult | types.InputRequiredResult:
    answer = (answers or {}).get("colour")
    if not isinstance(answer, types.ElicitResult):
        form = types.ElicitRequestFormParams(message="Which colour?", requested_schema=COLOUR)
        return types.InputRequiredResult(input_requests={"colour": types.ElicitRequest(params=form)})
    return _said(f"{(answer.content or {}).get('colour')} it is")


async def fail(_: Context, __: dict[str, Any]) -> types.CallToolResult:
    return _said("Out of paper").model_copy(update={"is_error": True})


async def wait(context: Context, _: dict[str, Any]) -> types.CallToolResult:
    await context.session.report_progress(1, 2, "waiting")
    await anyio.sleep_forever()
    raise AssertionError


TOOLS: Final[dict[str, tuple[Callable[[Context, dict[str, Any]], Awaitable[types.CallToolResult]], dict]]] = {
    "echo": (echo, {"text": {"type": "string"}}),
    "add": (add, {"a": {"type": "integer"}, "b": {"type": "integer"}}),
    "copy": (copy, {"file": {"type": "string", "contentEncoding": "base64"}}),
    "steps": (steps, {"count": {"type": "integer"}}),
    "fail": (fail, {}),
    "wait": (wait, {}),
}


async def listed(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                description=f"The tool {name} of the matrix.",
                input_schema={"type": "object", "properties": properties, "required": [*properties]},
                annotations=types.ToolAnnotations(read_only_hint=True) if name == "echo" else None,
            )
            for name, (_, properties) in [*TOOLS.items(), ("ask", (None, {}))]
        ]
    )


async def called(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if params.name == "ask":
        return ask(params.input_responses)
    function, _ = TOOLS[params.name]
    return await function(context, params.arguments or {})


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main() -> None:
    server: Server[Any] = Server(
        "matrix",
        version="1.0",
        instructions="Tools for every client.",
        on_list_tools=listed,
        on_call_tool=called,
        get_tool_input_schema=lambda _: None,
    )
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
