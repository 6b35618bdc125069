"""The operations of one agent: a request in, an answer or a stream out, for every version and binding.

Spec: A2A 1.0 sections 3.1 and 3.3.4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, overload

from bridge import trace
from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.model.errors import (
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    UNSUPPORTED_OPERATION,
    A2AError,
    Violation,
    invalid_params,
)
from bridge.a2a.model.objects import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Model,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    made,
)
from bridge.a2a.model.operations import (
    GET_EXTENDED_AGENT_CARD,
    PUSH,
    AnswerT,
    AnyOperation,
    RequestT,
    Streamed,
    Unary,
)
from bridge.a2a.model.operators import require_no_forged_notes
from bridge.a2a.model.push_objects import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
)
from bridge.a2a.tasks.callers import CallContext
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.tasks.watcher import WatchedEvent, Watcher
from bridge.a2a.tasks.webhooks import Webhooks, target_of
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.frozen import frozen
from bridge.trace import Hop


def _nothing() -> None:
    pass


@frozen
class OperationAnswer(Generic[AnswerT]):
    """The answer of an operation."""

    value: AnswerT
    written: Callable[[], None] = _nothing
    """Called once the answer was written in full to a connected client."""


class Stream:
    """A task's events for one client, as JSON. Close the stream when the client is gone."""

    def __init__(
        self,
        watcher: Watcher,
        gate: ExtensionFilter,
        caller: CallContext,
        written: Callable[[], None] = _nothing,
    ) -> None:
        """`written` is called once the whole stream was written to a connected client."""
        self.written = written
        self._watcher = watcher
        self._gate = gate
        self._extensions = caller.extensions
        self._state: TaskState | None = None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended and every event was read."""
        return self._watcher.is_over

    @property
    def was_cut_off(self) -> bool:
        """Whether the stream ended because its reader was too slow."""
        return self._watcher.cut_off

    def take(self) -> WatchedEvent | None:
        """The next event; None if none is at hand."""
        seen = self._watcher.take()
        if seen is None:
            return None
        self._state = seen.state or self._state
        visible = self._gate.filtered(seen.text, self._extensions)
        return seen if visible is seen.text else replace(seen, text=visible)

    async def wait(self) -> None:
        """Wait until an event is at hand, the stream has ended, or `wake` is called."""
        await self._watcher.wait()

    def wake(self) -> None:
        """Let a `wait` return."""
        self._watcher.wake()

    def note_in(self, hop: Hop) -> None:
        """Note in the hop of the stream its task, and the last state that was read."""
        hop.task_id, hop.state = self._watcher.task_id, "" if self._state is None else self._state.word

    def close(self) -> None:
        """Stop watching; the task goes on."""
        self._watcher.close()


class AgentService:
    """One agent's operations."""

    def __init__(
        self, engine: Engine, gate: ExtensionFilter, max_parts: int, tasks: TaskOperations | None = None
    ) -> None:
        """`tasks` are the operations of the engine with the layers around it; None is the engine alone."""
        self._engine = engine
        self.tasks: TaskOperations = engine if tasks is None else tasks
        """May be replaced at any time. Running operations keep the layers with which they began."""
        self._gate = gate
        self._max_parts = max_parts

    def require_served(self, operation: AnyOperation) -> None:
        """Require an operation that this agent serves.

        Raises:
            A2AError: PUSH_NOTIFICATION_NOT_SUPPORTED, UNSUPPORTED_OPERATION.
        """
        if operation in PUSH and self._engine.webhooks is None:
            raise A2AError(PUSH_NOTIFICATION_NOT_SUPPORTED, "This agent does not send push notifications")
        if operation is GET_EXTENDED_AGENT_CARD:
            raise A2AError(UNSUPPORTED_OPERATION, "This agent has no extended card")

    def new_id(self) -> str:
        """A fresh id, for a message that has none."""
        return self._engine.new_id()

    async def is_named(self, task_id: str, caller: CallContext) -> bool:
        """Whether this id is a name that the caller gave to a task."""
        return await self._engine.is_named(task_id, caller)

    @overload
    async def perform(
        self, operation: Unary[RequestT, AnswerT], request: RequestT, caller: CallContext
    ) -> OperationAnswer[AnswerT]: ...

    @overload
    async def perform(
        self, operation: Streamed[RequestT, AnswerT], request: RequestT, caller: CallContext
    ) -> Stream: ...

    async def perform(
        self,
        operation: Unary[RequestT, AnswerT] | Streamed[RequestT, AnswerT],
        request: RequestT,
        caller: CallContext,
    ) -> OperationAnswer[AnswerT] | Stream:
        """Perform one operation. Returns its answer, or for a streamed operation a stream of StreamResponses.

        Raises:
            A2AError: the operation is refused.
        """
        written = _nothing
        if operation in PUSH:
            assert isinstance(operation, Unary)
            assert self._engine.webhooks is not None
            changed = await _ON_WEBHOOKS[operation.request](
                self.tasks, self._engine.webhooks, request, caller
            )
            assert isinstance(changed, operation.answer)
            return OperationAnswer(changed)
        if isinstance(request, SendMessageRequest):
            if self._engine.webhooks is None:
                _require_no_push(request)
            self._require_few_parts(request)
            require_no_forged_notes(request)
            written = partial(self._engine.written, request, caller)
        if isinstance(operation, Streamed):
            watcher = await _WATCHED[operation.request](self.tasks, request, caller)
            return Stream(watcher, self._gate, caller, written)
        answer = await _ANSWERED[operation.request](self.tasks, request, caller)
        assert isinstance(answer, operation.answer)
        return OperationAnswer(answer, written)

    def hidden_keys(self, caller: CallContext) -> frozenset[str]:
        """The keys of metadata that belong to extensions that the caller did not activate."""
        return self._gate.hidden_keys(caller.extensions)

    def filtered(self, text: bytes, caller: CallContext) -> bytes:
        """The JSON of an answer, without the metadata of extensions that the caller did not activate."""
        return self._gate.filtered(text, caller.extensions)

    def _require_few_parts(self, request: SendMessageRequest) -> None:
        if len(request.message.parts) > self._max_parts:
            raise invalid_params(Violation("message.parts", f"more than {self._max_parts} parts"))


_PUSH_FIELD: Final = "configuration.taskPushNotificationConfig"


def _require_no_push(request: SendMessageRequest) -> None:
    if request.configuration and request.configuration.task_push_notification_config:
        raise A2AError(
            PUSH_NOTIFICATION_NOT_SUPPORTED,
            f"This agent does not send push notifications: leave out {_PUSH_FIELD}",
            names=(_PUSH_FIELD,),
        )


async def _create_webhook(
    tasks: TaskOperations, webhooks: Webhooks, config: TaskPushNotificationConfig, caller: CallContext
) -> TaskPushNotificationConfig:
    if (hop := trace.hop.get()) is not None:
        hop.target = target_of(config.url)
    if not config.task_id:
        raise invalid_params(Violation("taskId", "is needed"))
    task_id = await tasks.id_of(config.task_id, caller)
    return await webhooks.create(config, task_id, caller.principal.name, caller.extensions)


def _of_task(
    answer: Callable[[Webhooks, str, Any], Awaitable[Model]],
) -> Callable[[TaskOperations, Webhooks, Any, CallContext], Awaitable[Model]]:
    """The function that answers a request about the webhooks of the caller's task."""

    async def answered(tasks: TaskOperations, webhooks: Webhooks, request: Any, caller: CallContext) -> Model:
        return await answer(webhooks, await tasks.id_of(request.task_id, caller), request)

    return answered


_ON_WEBHOOKS: Final[
    Mapping[type[Model], Callable[[TaskOperations, Webhooks, Any, CallContext], Awaitable[Model]]]
] = {
    TaskPushNotificationConfig: _create_webhook,
    GetTaskPushNotificationConfigRequest: _of_task(Webhooks.get),
    ListTaskPushNotificationConfigsRequest: _of_task(Webhooks.list),
    DeleteTaskPushNotificationConfigRequest: _of_task(Webhooks.delete),
}
"""The function that answers each operation on webhooks."""


async def _sent(
    tasks: TaskOperations, request: SendMessageRequest, caller: CallContext
) -> SendMessageResponse:
    reply = await tasks.send(request, caller)
    if isinstance(reply, Task):
        return made(SendMessageResponse, task=reply)
    return made(SendMessageResponse, message=reply)


_ANSWERED: Final[Mapping[type[Model], Callable[[TaskOperations, Any, CallContext], Awaitable[Model]]]] = {
    SendMessageRequest: _sent,
    GetTaskRequest: lambda tasks, request, caller: tasks.get(request.id, request.history_length, caller),
    ListTasksRequest: lambda tasks, request, caller: tasks.list(request, caller),
    CancelTaskRequest: lambda tasks, request, caller: tasks.cancel(request.id, caller),
}
"""The methods that answer operations with one answer, by the type of the request: dialects have their own operations
with the same requests. The endpoint answers operations on cards."""

_WATCHED: Final[Mapping[type[Model], Callable[[TaskOperations, Any, CallContext], Awaitable[Watcher]]]] = {
    SendMessageRequest: lambda tasks, request, caller: tasks.stream(request, caller),
    SubscribeToTaskRequest: lambda tasks, request, caller: tasks.subscribe(request.id, caller),
}
"""The methods that answer operations with a stream, by the type of the request."""
