"""The SDK's server, set up to check requests and leave the answers to a middleware.

The SDK passes a handler's result through models. They drop unknown fields, and refuse a content block of an unknown
type after the tool has run. The result of a middleware is sent without parsing. So the handlers here only return an
empty result, which the middleware replaces. A handler is called only if the SDK accepts the request: its parameters,
its era, and a client that has initialized.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import ServerMiddleware
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bridge.mcp.log_messages import SET_LEVEL
from bridge.mcp.messages import TASKS_EXTENSION
from bridge.mcp.server.face import ToolFace
from bridge.mcp.server.requests import Context
from bridge.mcp.server.subscriptions import ListenStreams
from bridge.mcp.server.task_requests import PARAMS

InputSchemas = Callable[[str], Mapping[str, Any] | None]

_CHANGES: Final = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)

_ResultT = TypeVar("_ResultT")


def checked_server(
    face: ToolFace, answers: ServerMiddleware[Any], listen: ListenStreams, input_schema: InputSchemas
) -> Server[Any]:
    """The SDK's server with a face's description. Its middleware `answers` answers every request."""
    kind = _Server if face.tasks is None else _TaskServer
    server = kind(
        face,
        face.name,
        version=face.version,
        title=face.title,
        instructions=face.instructions,
        website_url=face.website_url,
        icons=_icons(face),
        get_tool_input_schema=input_schema,
        on_list_tools=_giving(types.ListToolsResult(tools=[])),
        on_call_tool=_giving(types.CallToolResult(content=[])),
        on_list_resources=_giving(types.ListResourcesResult(resources=[])),
        on_list_resource_templates=_giving(types.ListResourceTemplatesResult(resource_templates=[])),
        on_read_resource=_giving(types.ReadResourceResult(contents=[])),
        on_list_prompts=_giving(types.ListPromptsResult(prompts=[])),
        on_get_prompt=_giving(types.GetPromptResult(messages=[])),
        on_completion=_giving(types.CompleteResult(completion=types.Completion(values=[]))),
        on_subscribe_resource=_giving(types.EmptyResult()),
        on_unsubscribe_resource=_giving(types.EmptyResult()),
        on_subscriptions_listen=listen,
    )
    if face.tasks is not None:
        for method, params in PARAMS.items():
            server.add_request_handler(method, params, _giving(types.EmptyResult()))
    server.add_request_handler(SET_LEVEL, types.SetLevelRequestParams, _giving(types.EmptyResult()))
    server.middleware.append(answers)
    return server


def introduce(server: Server[Any], face: ToolFace) -> None:
    """Update the server's name, title, instructions, URL and icons from its face. The SDK assumes they never change."""
    server.name, server.title, server.instructions = face.name, face.title, face.instructions
    server.website_url, server.icons = face.website_url, _icons(face)
    server.__dict__.pop("_server_info_stamp_source", None)  # the SDK's cache, which the first answer fills


def _icons(face: ToolFace) -> list[types.Icon] | None:
    return [types.Icon.model_validate(icon) for icon in face.icons] or None


class _Server(Server[Any]):
    """The SDK's server. It also declares to legacy HTTP clients that its lists may change, and declares updates and
    completions as far as the agents share them."""

    def __init__(self, face: ToolFace, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._face = face

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        capabilities = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        shared = {} if self._face.requests is None else self._face.requests.capabilities
        resources = shared.get("resources")
        if capabilities.resources is not None and protocol_version not in MODERN_PROTOCOL_VERSIONS:
            capabilities.resources.subscribe = isinstance(resources, dict) and "subscribe" in resources
        if "completions" not in shared:
            capabilities.completions = None
        if not self._face.has_logs:
            capabilities.logging = None
        return capabilities

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or _CHANGES, experimental_capabilities, extensions
        )


class _TaskServer(_Server):
    """A server whose calls may become tasks. It declares the tasks extension only to modern clients."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            extensions = {**(extensions or {}), TASKS_EXTENSION: {}}
        return super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )


def _giving(result: _ResultT) -> Callable[[Context, Any], Awaitable[_ResultT]]:
    async def answer(_: Context, __: Any) -> _ResultT:
        return result

    return answer
