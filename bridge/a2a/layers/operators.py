"""Operators see the tasks of all principals, and may answer and cancel them.

This layer finds the owner of a task, and passes the operation on in the owner's name (`CallContext.acting`). The layers
inside know no operators. Without this layer an operator is a client like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from bridge import trace
from bridge.a2a.layers.operations import Layer, TaskOperations
from bridge.a2a.model.life import with_note
from bridge.a2a.model.objects import (
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    Task,
)
from bridge.a2a.model.operators import (
    ANSWERED_BY,
    OWNER,
    is_for_its_owner,
    needs_role_answer,
    withheld_event,
    withheld_task,
)
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.live import LiveTask
from bridge.a2a.tasks.watcher import Watcher
from bridge.identity.callers.principals import EVERYONE, OperatorRole, Principal


class AllTasks(Protocol):
    """The tasks of all principals, for this layer. `Engine` has them."""

    async def find(self, task_id: str) -> LiveTask | None:
        """The task with this id, whoever owns it."""
        ...

    async def page(
        self,
        request: ListTasksRequest,
        caller: CallContext,
        owner: str | None,
        shown: Callable[[Task, str], Task],
    ) -> ListTasksResponse:
        """One page of tasks. `shown` gets each task with the name of its owner, and returns what the caller sees."""
        ...

    def tell_of_refusal(self, live: LiveTask) -> None:
        """Tell the hop of a refused request, if there is one, its task and skill."""
        ...


class Operators(Layer):
    """Acts for operators on the tasks of others."""

    def __init__(self, inner: TaskOperations, tasks: AllTasks) -> None:
        super().__init__(inner)
        self._tasks = tasks

    async def send(self, request: SendMessageRequest, caller: CallContext) -> Task | Message:
        """See `TaskOperations.send`. An operator may answer what a task asks for as input."""
        if caller.operator is None:
            return await self._inner.send(request, caller)
        request, caller = await self._answering(request, caller)
        answer = await self._inner.send(request, caller)
        return _shown_to(caller, answer, caller.principal.name) if isinstance(answer, Task) else answer

    async def stream(self, request: SendMessageRequest, caller: CallContext) -> Watcher:
        """See `TaskOperations.stream`."""
        if caller.operator is not None:
            request, caller = await self._answering(request, caller)
        return _shown_events(caller, await self._inner.stream(request, caller))

    async def get(self, task_id: str, history_length: int | None, caller: CallContext) -> Task:
        """See `TaskOperations.get`."""
        return await self._on_task(
            task_id,
            caller,
            OperatorRole.READ,
            lambda acting: self._inner.get(task_id, history_length, acting),
        )

    async def list(self, request: ListTasksRequest, caller: CallContext) -> ListTasksResponse:
        """See `TaskOperations.list`. An operator gets the tasks of all principals."""
        if caller.operator is None:
            return await self._inner.list(request, caller)
        if (hop := trace.hop.get()) is not None:
            hop.owner = EVERYONE
        return await self._tasks.page(
            request, caller, None, lambda task, owner: _shown_to(caller, task, owner)
        )

    async def cancel(self, task_id: str, caller: CallContext) -> Task:
        """See `TaskOperations.cancel`."""
        return await self._on_task(
            task_id, caller, OperatorRole.ANSWER, lambda acting: self._inner.cancel(task_id, acting)
        )

    async def subscribe(self, task_id: str, caller: CallContext) -> Watcher:
        """See `TaskOperations.subscribe`."""
        caller = await self._acting(task_id, caller, OperatorRole.READ)
        return _shown_events(caller, await self._inner.subscribe(task_id, caller))

    async def _on_task(
        self,
        task_id: str,
        caller: CallContext,
        needed: OperatorRole,
        operation: Callable[[CallContext], Awaitable[Task]],
    ) -> Task:
        caller = await self._acting(task_id, caller, needed)
        return _shown_to(caller, await operation(caller), caller.principal.name)

    async def _acting(self, task_id: str, caller: CallContext, needed: OperatorRole) -> CallContext:
        """The caller of an operation on a task. If an operator acts on another principal's task, this is the owner.

        Raises:
            A2AError: FORBIDDEN, the operator's role does not allow it.
        """
        if caller.operator is None or caller.names_tasks:
            return caller
        live = await self._tasks.find(task_id)
        if live is None or live.origin.owner == caller.principal.name:
            return caller
        if (hop := trace.hop.get()) is not None:
            hop.owner = live.origin.owner
        if needed is OperatorRole.ANSWER and caller.operator is not needed:
            self._tasks.tell_of_refusal(live)
            raise needs_role_answer()
        return replace(caller, principal=Principal(live.origin.owner), acting=caller.principal.name)

    async def _answering(
        self, request: SendMessageRequest, caller: CallContext
    ) -> tuple[SendMessageRequest, CallContext]:
        """A message and its caller. If an operator answers another principal's task, the message names the operator.

        Raises:
            A2AError: FORBIDDEN, the operator may not answer.
        """
        message = request.message
        if message.task_id is None:
            return request, caller
        caller = await self._acting(message.task_id, caller, OperatorRole.ANSWER)
        if caller.acting:
            if request.configuration and request.configuration.task_push_notification_config:
                raise is_for_its_owner("say where notifications go")
            metadata = {**(message.metadata or {}), ANSWERED_BY: caller.acting}
            request = request.changed(message=message.changed(metadata=metadata))
        return request, caller


def _shown_to(caller: CallContext, task: Task, owner: str) -> Task:
    """A task as its caller sees it. An operator sees the owner, and may not see the contents of the tasks of others."""
    if caller.operator is None:
        return task
    visible = task if caller.sees_contents or owner == caller.asker else withheld_task(task)
    return with_note(visible, {OWNER: owner})


def _shown_events(caller: CallContext, watcher: Watcher) -> Watcher:
    """A watcher that shows only what its caller may see."""
    if caller.acting and not caller.sees_contents:
        watcher.view = withheld_event
    return watcher
