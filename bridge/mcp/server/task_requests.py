"""Requests about tasks, for clients that declared the tasks extension: tasks/get, tasks/update and tasks/cancel.

This module knows who may call these methods; only the face knows the tasks. Each request has to declare the extension;
an earlier declaration does not count. For legacy clients the methods do not exist.

Spec: the tasks extension, io.modelcontextprotocol/tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RequestParams,
)

from bridge.mcp.messages import TASKS_EXTENSION
from bridge.mcp.server.back_channel import DeclaredCapabilities
from bridge.mcp.server.face import TaskCaller, TaskFace
from bridge.mcp.server.requests import Context, is_modern, param, principal_of
from bridge.text.jsonvalues import JsonObject

_NEEDED: Final[JsonObject] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


class TaskParams(RequestParams):
    """The params that name a task."""

    task_id: str


class UpdateParams(TaskParams):
    """The params of tasks/update."""

    input_responses: dict[str, Any]


PARAMS: Final[Mapping[str, type[TaskParams]]] = {
    "tasks/get": TaskParams,
    "tasks/update": UpdateParams,
    "tasks/cancel": TaskParams,
}
"""The model of the params of each method."""


class TaskMethods:
    """Answers the requests by asking a face."""

    def __init__(self, face: TaskFace) -> None:
        self._face = face
        self.by_name: Mapping[str, Callable[[Context], Awaitable[JsonObject]]] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def _get(self, context: Context) -> JsonObject:
        return await self._face.get(_task_id(context), caller_of(context))

    async def _update(self, context: Context) -> JsonObject:
        await self._face.update(_task_id(context), param(context, "inputResponses"), caller_of(context))
        return {}

    async def _cancel(self, context: Context) -> JsonObject:
        await self._face.cancel(_task_id(context), caller_of(context))
        return {}


def require_declared(context: Context) -> None:
    """Refuse a client that did not declare the extension in this request.

    Raises:
        MCPError: MISSING_REQUIRED_CLIENT_CAPABILITY.
    """
    if not _declared(context).tasks:
        words = f"Missing required client capability: this takes the extension {TASKS_EXTENSION}"
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, words, _NEEDED)


def caller_of(context: Context) -> TaskCaller:
    """The caller, with the modes that it declared."""
    declared = _declared(context)
    principal = principal_of(context)
    return TaskCaller(principal.name, declared.forms, declared.urls, principal.may_use, principal.token)


def _task_id(context: Context) -> str:
    """The task that a request names, after checking that the client may use tasks.

    Raises:
        MCPError: METHOD_NOT_FOUND for a legacy client, MISSING_REQUIRED_CLIENT_CAPABILITY, or HEADER_MISMATCH if the
            routing header names another task or no task.
    """
    if not is_modern(context):
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    require_declared(context)
    task_id = str(param(context, "taskId"))
    if context.request is not None:
        header = context.request.headers.get(MCP_NAME_HEADER)
        if header is None or decode_header_value(header) != task_id:
            raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the parameter taskId")
    return task_id


def _declared(context: Context) -> DeclaredCapabilities:
    return DeclaredCapabilities.in_capabilities(
        context.session.client_capabilities, is_modern=is_modern(context)
    )
