"""The system under test of the A2A TCK: an MCP server whose tools do what its scenarios ask of an agent.

The TCK tells an agent what to do by the beginning of the messageId (its `scenarios/*.feature`), which no tool gets to
see: `directed` names the tool in the message's metadata instead, and changes nothing else. Must not import `bridge`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.a2a_checks.spoiling import body_of, changed_headers, repeating

Context = ServerRequestContext[Any, Any]
Given = types.CallToolResult | types.InputRequiredResult

COMPLETES: Final = "complete_task"
ASKS: Final = "input_required"
REJECTS: Final = "reject_task"
SAYS: Final = "message_response"
GOES_ON: Final = "TCK history message"
"""The beginning of an answer after which the task is to ask again."""

TOOL_OF_PREFIX: Final[Mapping[str, str]] = {
    "tck-artifact-file-url": "artifact_file_url",
    "tck-artifact-file": "artifact_file",
    "tck-artifact-data": "artifact_data",
    "tck-artifact-text": "artifact_text",
    "tck-message-response": SAYS,
    "tck-input-required": ASKS,
    "tck-reject-task": REJECTS,
}
"""The beginnings of message ids that mean something, the longer before what it begins with; the others complete."""

_SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_FILE_URL: Final = "https://example.com/output.txt"
_DATA: Final = {"key": "value", "count": 42}
_FORM: Final = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def _content(*blocks: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=[*blocks])


def _text(words: str) -> types.CallToolResult:
    return _content(types.TextContent(type="text", text=words))


_RESULTS: Final[Mapping[str, types.CallToolResult]] = {
    COMPLETES: _text("Hello from TCK"),
    "artifact_text": _text("Generated text content"),
    "artifact_file": _content(
        types.EmbeddedResource(
            type="resource",
            resource=types.BlobResourceContents(
                uri="tck://files/output.txt", mime_type="text/plain", blob=base64.b64encode(b"tck").decode()
            ),
        )
    ),
    "artifact_file_url": _content(
        types.ResourceLink(type="resource_link", uri=_FILE_URL, name="output.txt", mime_type="text/plain")
    ),
    "artifact_data": types.CallToolResult(content=[], structured_content=_DATA),
    SAYS: _text("Direct message response"),
}
"""What the tools say that ask for nothing."""


class TckServer:
    """The tools, which say that they only read: the TCK gives many messages one id and means a new one each time, which
    the bridge can take it for at once where a call that is made twice does no harm."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ASGIApp]:
        """The ASGI application of its endpoint, which serves as long as this is entered."""
        server: Server[Any] = Server("TCK", version="1.0.0", on_list_tools=self._list, on_call_tool=_call)
        manager = StreamableHTTPSessionManager(server)
        async with manager.run():
            yield manager.asgi_app

    async def _list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [
            {"name": name, "inputSchema": _SCHEMA, "annotations": {"readOnlyHint": True}}
            for name in (*_RESULTS, ASKS, REJECTS)
        ]
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])


async def _call(_: Context, params: types.CallToolRequestParams) -> Given:
    if params.name == REJECTS:
        raise MCPError(types.INVALID_PARAMS, "rejected")
    if params.name == ASKS and not _is_over(params):
        question = types.ElicitRequestFormParams(message="What else?", requested_schema=_FORM)
        rounds = json.loads(params.request_state or "0") + 1
        asked = {f"question-{rounds}": types.ElicitRequest(params=question)}
        return types.InputRequiredResult(input_requests={**asked}, request_state=json.dumps(rounds))
    return _RESULTS.get(params.name, _RESULTS[COMPLETES])


def _is_over(params: types.CallToolRequestParams) -> bool:
    """Whether an answer came that asks for nothing more."""
    answers = [one for one in (params.input_responses or {}).values() if isinstance(one, types.ElicitResult)]
    said = [str((answer.content or {}).get("answer", "")) for answer in answers]
    return bool(said) and not said[-1].startswith(GOES_ON)


def tool_for(message_id: str) -> str:
    """The tool that does what the scenario of a message asks for."""
    return next((tool for prefix, tool in TOOL_OF_PREFIX.items() if message_id.startswith(prefix)), COMPLETES)


def directed(app: ASGIApp) -> ASGIApp:
    """The application, told by metadata what it is told by message ids."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        body = with_tool_named(await body_of(receive))
        headers = changed_headers(scope["headers"], {"content-length": str(len(body))})
        await app({**scope, "headers": headers}, repeating(body, receive), send)

    return named


def with_tool_named(body: bytes) -> bytes:
    """A request that names the tool, if it is one that begins a task; any other stays as it is."""
    try:
        said = json.loads(body)
        message = said.get("params", said)["message"]
        if "taskId" in message:
            return body
        message["metadata"] = {"skillId": tool_for(message["messageId"]), **message.get("metadata", {})}
    except (ValueError, TypeError, KeyError, AttributeError):
        return body
    return json.dumps(said).encode()
