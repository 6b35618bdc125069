"""The operations of A2A, independent of any binding: their names, and the request that each one takes.

Spec: A2A 1.0 sections 3.1 and 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic import ValidationError

from bridge.a2a.model import objects
from bridge.a2a.model.errors import invalid_params, violations_from


class Operation(StrEnum):
    """Section 5.3, the JSON-RPC and gRPC column."""

    SEND_MESSAGE = "SendMessage"
    SEND_STREAMING_MESSAGE = "SendStreamingMessage"
    GET_TASK = "GetTask"
    LIST_TASKS = "ListTasks"
    CANCEL_TASK = "CancelTask"
    SUBSCRIBE_TO_TASK = "SubscribeToTask"
    CREATE_PUSH_CONFIG = "CreateTaskPushNotificationConfig"
    GET_PUSH_CONFIG = "GetTaskPushNotificationConfig"
    LIST_PUSH_CONFIGS = "ListTaskPushNotificationConfigs"
    DELETE_PUSH_CONFIG = "DeleteTaskPushNotificationConfig"
    GET_EXTENDED_AGENT_CARD = "GetExtendedAgentCard"


PUSH: Final = frozenset(
    {
        Operation.CREATE_PUSH_CONFIG,
        Operation.GET_PUSH_CONFIG,
        Operation.LIST_PUSH_CONFIGS,
        Operation.DELETE_PUSH_CONFIG,
    }
)

REQUESTS: Final[Mapping[Operation, type[objects.Model]]] = {
    Operation.SEND_MESSAGE: objects.SendMessageRequest,
    Operation.SEND_STREAMING_MESSAGE: objects.SendMessageRequest,
    Operation.GET_TASK: objects.GetTaskRequest,
    Operation.LIST_TASKS: objects.ListTasksRequest,
    Operation.CANCEL_TASK: objects.CancelTaskRequest,
    Operation.SUBSCRIBE_TO_TASK: objects.SubscribeToTaskRequest,
}
"""What each served operation takes. The others are answered without looking at their parameters."""


def parse_request(operation: Operation, params: object) -> objects.Model:
    """The parameters of an operation as its request.

    Raises:
        A2AError: INVALID_PARAMS, with every field that is at fault.
    """
    try:
        return REQUESTS[operation].model_validate(params)
    except ValidationError as exc:
        raise invalid_params(*violations_from(exc)) from exc
