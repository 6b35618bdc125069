"""An MCP server with the tools that the suites call, in both eras, on the official SDK's low-level Server.

Behaves as the specification asks of servers: what a client has not declared it is never asked for. What a tool was
answered in the rounds before stands in `requestState`. Must not import `bridge`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp

from tests.conformance import shared
from tests.conformance.wanted_tools import (
    ASKING,
    EMBEDDED_URI,
    MIXED_URI,
    PNG,
    STEPS,
    WANTS_ROOTS,
    WANTS_SAMPLING,
    WAV,
    WORK_SECONDS,
    Asking,
    Question,
    listed,
    words_of,
)

MISSING_CAPABILITY: Final = -32021
TASKS: Final = "io.modelcontextprotocol/tasks"
NEEDS_TASKS: Final = "failing_job"
"""The tool that a client without tasks may not call."""
Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]
Given = types.CallToolResult | types.InputRequiredResult


def _text(words: str) -> types.CallToolResult:
    return _content(types.TextContent(type="text", text=words))


def _content(*blocks: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=[*blocks])


def _image() -> types.ImageContent:
    return types.ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")


def _resource(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    held = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=held)


class FixtureServer:
    """The tools of one server."""

    def __init__(self) -> None:
        self._grown = False
        self._bus = InMemorySubscriptionBus()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ASGIApp]:
        """The ASGI application of its endpoint, which serves as long as this is entered."""
        listen = ListenHandler(self._bus)
        server: Server[Any] = Server(
            "Fixture",
            version="1.0.0",
            instructions="The tools that the conformance suites call.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=shared.list_resources,
            on_list_resource_templates=shared.list_templates,
            on_read_resource=shared.read,
            on_subscribe_resource=shared.subscribe,
            on_unsubscribe_resource=shared.unsubscribe,
            on_list_prompts=shared.list_prompts,
            on_get_prompt=shared.get_prompt,
            on_completion=shared.complete,
            on_subscriptions_listen=listen,
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, shared.set_level)
        manager = StreamableHTTPSessionManager(server)
        async with manager.run():
            try:
                yield manager.asgi_app
            finally:
                listen.close()

    async def _list(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [types.Tool.model_validate(tool) for tool in listed(grown=self._grown)]
        return types.ListToolsResult(tools=tools)

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Given:
        arguments = params.arguments or {}
        if params.name in WANTS_SAMPLING | WANTS_ROOTS:
            wanted = "sampling" if params.name in WANTS_SAMPLING else "roots"
            raise MCPError(MISSING_CAPABILITY, f"It takes {wanted}", {"requiredCapabilities": {wanted: {}}})
        if params.name == NEEDS_TASKS and _is_modern(context) and not _takes_tasks(context):
            needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(MISSING_CAPABILITY, "It can only be called as a task", needed)
        if (asking := ASKING.get(params.name)) is not None:
            return await _ask(context, params, asking)
        if params.name in ("test_trigger_tool_change", "test_trigger_prompt_change"):
            return await self._change(context)
        return await _TOOLS.get(params.name, _simple_text)(context, arguments)

    async def _change(self, context: Context) -> types.CallToolResult:
        self._grown = not self._grown
        if _is_modern(context):
            await self._bus.publish(ToolsListChanged())
        else:
            await context.session.send_tool_list_changed()
        return _text("The list is another one now")


async def _simple_text(_: Context, __: Arguments) -> types.CallToolResult:
    return _text("A text, and nothing but a text.")


async def _image_content(_: Context, __: Arguments) -> types.CallToolResult:
    return _content(_image())


async def _audio(_: Context, __: Arguments) -> types.CallToolResult:
    data = base64.b64encode(WAV).decode()
    return _content(types.AudioContent(type="audio", data=data, mime_type="audio/wav"))


async def _embedded(_: Context, __: Arguments) -> types.CallToolResult:
    return _content(_resource(EMBEDDED_URI, "text/plain", "What stands in the resource."))


async def _mixed(_: Context, __: Arguments) -> types.CallToolResult:
    said = types.TextContent(type="text", text="Several kinds:")
    return _content(said, _image(), _resource(MIXED_URI, "application/json", '{"value": 123}'))


async def _fail(_: Context, __: Arguments) -> types.CallToolResult:
    return _text("This goes wrong, as it is meant to").model_copy(update={"is_error": True})


async def _fail_at_work(context: Context, arguments: Arguments) -> types.CallToolResult:
    await anyio.sleep(WORK_SECONDS)
    return await _fail(context, arguments)


async def _protocol_error(_: Context, __: Arguments) -> types.CallToolResult:
    await anyio.sleep(WORK_SECONDS)
    raise MCPError(types.INTERNAL_ERROR, "Something broke")


async def _log(context: Context, _: Arguments) -> types.CallToolResult:
    for words in ("begun", "at work", "done"):
        await context.session.send_log_message("info", words, related_request_id=context.request_id)
    return _text("Logged")


async def _progress(context: Context, _: Arguments) -> types.CallToolResult:
    for step in STEPS:
        await context.session.report_progress(step, STEPS[-1], f"{step} of {STEPS[-1]}")
    return _text("Done, step by step")


async def _greet(_: Context, arguments: Arguments) -> types.CallToolResult:
    return _text(f"Hello, {arguments.get('name', 'you')}!")


async def _slow(_: Context, arguments: Arguments) -> types.CallToolResult:
    await anyio.sleep(arguments.get("seconds", 0))
    return _text(f"Computed {arguments.get('label', 'it')}")


_TOOLS: Final[dict[str, Callable[[Context, Arguments], Awaitable[types.CallToolResult]]]] = {
    "test_image_content": _image_content,
    "test_audio_content": _audio,
    "test_embedded_resource": _embedded,
    "test_multiple_content_types": _mixed,
    "test_error_handling": _fail,
    "test_tool_with_logging": _log,
    "test_tool_with_progress": _progress,
    "greet": _greet,
    "slow_compute": _slow,
    "failing_job": _fail_at_work,
    "protocol_error_job": _protocol_error,
}
"""What the tools do that ask for nothing; the others say a text."""


# Asking


async def _ask(context: Context, params: types.CallToolRequestParams, asking: Asking) -> Given:
    """Asks the round that comes next, or says what was answered."""
    before = json.loads(params.request_state) if params.request_state else {}
    answers: dict[str, Any] = dict(before)
    if asking.works_first and not params.request_state:
        await anyio.sleep(WORK_SECONDS)
    for key, response in (params.input_responses or {}).items():
        if isinstance(response, types.ElicitResult):
            answers[key] = response.content if response.action == "accept" else None
    for round_ in asking.rounds:
        left = [question for question in round_ if question.key not in answers]
        if left and _is_modern(context):
            return _round(left, params, answers)
        for question in left:
            answers[question.key] = await _answer(context, question, params)
    if any(answer is None for answer in answers.values()):
        return _text("Then not").model_copy(update={"is_error": True})
    if asking.works_last:
        await anyio.sleep(WORK_SECONDS)
    return _text(words_of(answers))


def _round(
    left: list[Question], params: types.CallToolRequestParams, answers: dict[str, Any]
) -> types.InputRequiredResult:
    requests = {question.key: types.ElicitRequest(params=_form(question, params)) for question in left}
    return types.InputRequiredResult(input_requests={**requests}, request_state=json.dumps(answers))


async def _answer(context: Context, question: Question, params: types.CallToolRequestParams) -> Any:
    form = _form(question, params)
    result = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
    return result.content if result.action == "accept" else None


def _form(question: Question, params: types.CallToolRequestParams) -> types.ElicitRequestFormParams:
    words = question.words or (params.arguments or {}).get("message", "")
    return types.ElicitRequestFormParams(message=words, requested_schema=question.schema)


def _takes_tasks(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and TASKS in (capabilities.extensions or {})


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS
