"""The operations of A2A, independent of version and binding, with their request and answer types.

Spec: A2A 1.0 sections 3.1 and 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bridge.a2a.model import objects, push_objects

RequestT = TypeVar("RequestT", bound=objects.Model)
AnswerT = TypeVar("AnswerT", bound=objects.Model)
RequestT_co = TypeVar("RequestT_co", bound=objects.Model, covariant=True)
AnswerT_co = TypeVar("AnswerT_co", bound=objects.Model, covariant=True)


@dataclass(frozen=True, eq=False, slots=True)
class Operation(Generic[RequestT_co, AnswerT_co]):
    """One operation. Each has one object, below."""

    name: str
    """The name in section 5.3, in the column for JSON-RPC and gRPC."""
    request: type[RequestT_co]
    answer: type[AnswerT_co]
    """The type of the answer; for a streamed operation, of each event."""

    def __str__(self) -> str:
        return self.name


class Unary(Operation[RequestT_co, AnswerT_co]):
    """An operation with one answer."""

    __slots__ = ()


class Streamed(Operation[RequestT_co, AnswerT_co]):
    """An operation with a stream of events."""

    __slots__ = ()


AnyOperation = Operation[objects.Model, objects.Model]

SEND_MESSAGE: Final = Unary("SendMessage", objects.SendMessageRequest, objects.SendMessageResponse)
SEND_STREAMING_MESSAGE: Final = Streamed(
    "SendStreamingMessage", objects.SendMessageRequest, objects.StreamResponse
)
GET_TASK: Final = Unary("GetTask", objects.GetTaskRequest, objects.Task)
LIST_TASKS: Final = Unary("ListTasks", objects.ListTasksRequest, objects.ListTasksResponse)
CANCEL_TASK: Final = Unary("CancelTask", objects.CancelTaskRequest, objects.Task)
SUBSCRIBE_TO_TASK: Final = Streamed("SubscribeToTask", objects.SubscribeToTaskRequest, objects.StreamResponse)
CREATE_PUSH_CONFIG: Final = Unary(
    "CreateTaskPushNotificationConfig", objects.TaskPushNotificationConfig, objects.TaskPushNotificationConfig
)
GET_PUSH_CONFIG: Final = Unary(
    "GetTaskPushNotificationConfig",
    push_objects.GetTaskPushNotificationConfigRequest,
    objects.TaskPushNotificationConfig,
)
LIST_PUSH_CONFIGS: Final = Unary(
    "ListTaskPushNotificationConfigs",
    push_objects.ListTaskPushNotificationConfigsRequest,
    push_objects.ListTaskPushNotificationConfigsResponse,
)
DELETE_PUSH_CONFIG: Final = Unary(
    "DeleteTaskPushNotificationConfig",
    push_objects.DeleteTaskPushNotificationConfigRequest,
    push_objects.Empty,
)
GET_EXTENDED_AGENT_CARD: Final = Unary("GetExtendedAgentCard", objects.Model, objects.AgentCard)

PUSH: Final[frozenset[AnyOperation]] = frozenset(
    {CREATE_PUSH_CONFIG, GET_PUSH_CONFIG, LIST_PUSH_CONFIGS, DELETE_PUSH_CONFIG}
)
"""Operations on webhooks. An agent without push notifications refuses them, and does not read their parameters."""

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    GET_TASK,
    LIST_TASKS,
    CANCEL_TASK,
    SUBSCRIBE_TO_TASK,
    *(CREATE_PUSH_CONFIG, GET_PUSH_CONFIG, LIST_PUSH_CONFIGS, DELETE_PUSH_CONFIG),
    GET_EXTENDED_AGENT_CARD,
)
