"""The operations on the tasks of one agent, as the engine and each layer around it offer them.

Spec: A2A 1.0 section 3.1.
"""

from __future__ import annotations

from typing import Protocol

from bridge.a2a.model.objects import (
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    Task,
)
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.watcher import Watcher


class TaskOperations(Protocol):
    """Each method raises A2AError if the operation is refused. The methods of `Engine` say with which errors."""

    async def send(self, request: SendMessageRequest, caller: CallContext) -> Task | Message:
        """Accept a message, and answer with its task or with a Message."""
        ...

    async def stream(self, request: SendMessageRequest, caller: CallContext) -> Watcher:
        """Accept a message and watch its task. The caller closes the watcher."""
        ...

    async def get(self, task_id: str, history_length: int | None, caller: CallContext) -> Task:
        """The visible state of a task."""
        ...

    async def list(self, request: ListTasksRequest, caller: CallContext) -> ListTasksResponse:
        """One page of tasks."""
        ...

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """Cancel a task."""
        ...

    async def subscribe(self, task_id: str, caller: CallContext) -> Watcher:
        """Watch a task from its current state. The caller closes the watcher."""
        ...

    async def id_of(self, task_id: str, caller: CallContext) -> str:
        """The id of the caller's task, from its id or the caller's name for it."""
        ...


class Layer:
    """A layer that passes every operation on. Each layer replaces the methods that it changes."""

    def __init__(self, inner: TaskOperations) -> None:
        self._inner = inner

    async def send(self, request: SendMessageRequest, caller: CallContext) -> Task | Message:
        """See `TaskOperations.send`."""
        return await self._inner.send(request, caller)

    async def stream(self, request: SendMessageRequest, caller: CallContext) -> Watcher:
        """See `TaskOperations.stream`."""
        return await self._inner.stream(request, caller)

    async def get(self, task_id: str, history_length: int | None, caller: CallContext) -> Task:
        """See `TaskOperations.get`."""
        return await self._inner.get(task_id, history_length, caller)

    async def list(self, request: ListTasksRequest, caller: CallContext) -> ListTasksResponse:
        """See `TaskOperations.list`."""
        return await self._inner.list(request, caller)

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """See `TaskOperations.cancel`."""
        return await self._inner.cancel(task_id, caller)

    async def subscribe(self, task_id: str, caller: CallContext) -> Watcher:
        """See `TaskOperations.subscribe`."""
        return await self._inner.subscribe(task_id, caller)

    async def id_of(self, task_id: str, caller: CallContext) -> str:
        """See `TaskOperations.id_of`."""
        return await self._inner.id_of(task_id, caller)
