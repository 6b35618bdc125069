"""gRPC behind the face of `drivers.py`, in 1.0 and 0.3: a test says JSON, and protocol buffers are on the wire.

It shares no code with the server: the messages are those of a2a-sdk, and the official JSON mapping converts them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import anyio
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as older
from a2a.types import a2a_pb2 as current
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from bridge.a2a.grpc.server import GrpcServer, GrpcSettings
from bridge.assembly.bridge import Bridge
from bridge.process.serve import GrpcAgents
from tests.support.drivers import PATIENCE_SECONDS, Answer, Driver, Events, Fault, Json, Params
from tests.support.older_drivers import OlderHttpJsonDriver

_DETAILS: Final = {
    f"type.googleapis.com/{kind.DESCRIPTOR.full_name}": kind
    for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
}
_CURRENT: Final = {
    "SendMessage": (current.SendMessageRequest, current.SendMessageResponse),
    "SendStreamingMessage": (current.SendMessageRequest, current.StreamResponse),
    "GetTask": (current.GetTaskRequest, current.Task),
    "ListTasks": (current.ListTasksRequest, current.ListTasksResponse),
    "CancelTask": (current.CancelTaskRequest, current.Task),
    "SubscribeToTask": (current.SubscribeToTaskRequest, current.StreamResponse),
    "CreateTaskPushNotificationConfig": (
        current.TaskPushNotificationConfig,
        current.TaskPushNotificationConfig,
    ),
    "GetTaskPushNotificationConfig": (
        current.GetTaskPushNotificationConfigRequest,
        current.TaskPushNotificationConfig,
    ),
    "ListTaskPushNotificationConfigs": (
        current.ListTaskPushNotificationConfigsRequest,
        current.ListTaskPushNotificationConfigsResponse,
    ),
    "DeleteTaskPushNotificationConfig": (current.DeleteTaskPushNotificationConfigRequest, Empty),
    "GetExtendedAgentCard": (current.GetExtendedAgentCardRequest, current.AgentCard),
}
_OLDER: Final = {
    "SendMessage": ("SendMessage", older.SendMessageRequest, older.SendMessageResponse),
    "SendStreamingMessage": ("SendStreamingMessage", older.SendMessageRequest, older.StreamResponse),
    "GetTask": ("GetTask", older.GetTaskRequest, older.Task),
    "CancelTask": ("CancelTask", older.CancelTaskRequest, older.Task),
    "SubscribeToTask": ("TaskSubscription", older.TaskSubscriptionRequest, older.StreamResponse),
}
_WHOLE_SECOND: Final = re.compile(r"(T\d\d:\d\d:\d\d)Z")
_EMPTY_PAGE: Final[Json] = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}


@asynccontextmanager
async def served_over_grpc(bridge: Bridge, only: str = "", **changes: Any) -> AsyncIterator[GrpcServer]:
    """Serve the agents of a running bridge over gRPC, too, or `only` one. `changes` are those of the settings."""
    profile = bridge.plan.profile
    fields = {"requests": profile.requests, "connections": profile.connections, "streams": profile.streams}
    settings = GrpcSettings("127.0.0.1", 0, **{**fields, **changes})
    async with GrpcServer(settings) as server, anyio.create_task_group() as group:
        bridge.grpc_ports = {**bridge.grpc_ports, only: server.port}
        group.start_soon(server.serve, GrpcAgents(bridge, bridge.plan, only))
        yield server
        server.should_exit = True


def json_of(message: Any) -> Json:
    """A message as JSON. Times have three decimals, also where the mapping leaves out zeros."""
    return _with_decimals(MessageToDict(message))


def _with_decimals(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_decimals(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _WHOLE_SECOND.sub(r"\1.000Z", item)
        if name == "timestamp" and isinstance(item, str)
        else _with_decimals(item)
        for name, item in value.items()
    }


def fault_of(error: aio.AioRpcError) -> Fault:
    """The error of a call, whose details say the same as its status."""
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    details = []
    for held in status.details:
        kind = _DETAILS[held.type_url]
        details.append({"@type": held.type_url, **MessageToDict(kind.FromString(held.value))})
    return Fault(status.code, status.message, details)


class GrpcEvents(Events):
    """The events of a stream."""

    def __init__(self, driver: Driver, call: Any) -> None:
        self._driver = driver
        self.call = call

    async def next(self) -> Json | None:
        with anyio.fail_after(PATIENCE_SECONDS):
            event = await self.call.read()
        return None if event is aio.EOF else self._driver.event_from(json_of(event))


class GrpcDriver(Driver):
    """A2A 1.0 section 10."""

    binding = "GRPC"
    service = "lf.a2a.v1.A2AService"

    def __init__(self, channel: Any, base_url: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(channel, base_url, headers)

    request = answer_from = None  # type: ignore[assignment] # these are of HTTP

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """What each call shows."""
        return [(name.lower(), value) for name, value in self.headers.items()]

    def method(self, operation: str) -> tuple[str, Any, Any]:
        """The method of an operation, with its messages."""
        return (operation, *_CURRENT[operation])

    def message_of(self, operation: str, params: Params) -> Any:
        """The request of an operation. A test with parameters that no protocol buffer can hold is skipped."""
        try:
            request = ParseDict(dict(params), self.method(operation)[1]())
        except ParseError as exc:
            pytest.skip(f"no protocol buffer can say this: {exc}")
        if "no base64!" in str(params):
            pytest.skip("a protocol buffer holds the bytes themselves")
        return request

    def call_of(self, operation: str, params: Params, **options: Any) -> Any:
        """A call that has begun."""
        name, request, answer = self.method(operation)
        channel: aio.Channel = self.client  # type: ignore[assignment]
        kind = channel.unary_stream if answer.__name__ == "StreamResponse" else channel.unary_unary
        method = kind(f"/{self.service}/{name}", request.SerializeToString, answer.FromString)
        return method(self.message_of(operation, params), metadata=self.metadata, **options)

    async def answer(self, operation: str, params: Params) -> Answer:
        call = self.call_of(operation, params)
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                if operation in ("SendStreamingMessage", "SubscribeToTask"):
                    answer = await call.read()
                    raise AssertionError(f"a stream has begun: {answer}")
                return Answer(None, result=self.result_of(operation, json_of(await call)))  # type: ignore[arg-type]
        except aio.AioRpcError as exc:
            return Answer(None, fault=self.fault_from(fault_of(exc)))  # type: ignore[arg-type]

    def result_of(self, operation: str, result: Json) -> Json:
        """A result with the fields that the JSON mapping leaves out because they are empty."""
        return {**_EMPTY_PAGE, **result} if operation == "ListTasks" else result

    def fault_from(self, fault: Fault) -> Fault:
        """An error in the words of 1.0."""
        return fault

    def event_from(self, data: Json) -> Json:
        return data

    @asynccontextmanager
    async def stream(self, operation: str, **params: Json) -> AsyncIterator[GrpcEvents]:
        call = self.call_of(operation, params)
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                await call.initial_metadata()
            yield GrpcEvents(self, call)
        finally:
            call.cancel()


class OlderGrpcDriver(GrpcDriver, OlderHttpJsonDriver):
    """A2A 0.3.0 over gRPC. Operations that 0.3 lacks are those of 1.0."""

    generation = "0.3 "

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [(name.lower(), value) for name, value in self.silent_headers.items()]

    def method(self, operation: str) -> tuple[str, Any, Any]:
        return _OLDER[operation]

    def message_of(self, operation: str, params: Params) -> Any:
        said = self.params(params)
        if "id" in said:
            said["name"] = f"tasks/{said.pop('id')}"
        if 0 in (said.get("historyLength"), (said.get("configuration") or {}).get("historyLength")):
            pytest.skip("in the proto of 0.3, no messages of the history and all of them are the same")
        if operation.startswith("Send") and isinstance(said.setdefault("configuration", {}), dict):
            said["configuration"].setdefault("blocking", True)
        return super().message_of(operation, said)

    @property
    def service(self) -> str:  # type: ignore[override]
        return "a2a.v1.A2AService"

    async def answer(self, operation: str, params: Params) -> Answer:
        if operation not in _OLDER:
            return await GrpcDriver(self.client, self.base_url, self.headers).answer(operation, params)
        return await super().answer(operation, params)

    def result_of(self, operation: str, result: Json) -> Json:
        return self.newer_task(result) if "status" in result else self.newer_wrapped(_finals(result))

    def fault_from(self, fault: Fault) -> Fault:
        return self.fault(fault)

    def event_from(self, data: Json) -> Json:
        return self.newer_wrapped(_finals(data))


def _finals(event: Json) -> Json:
    """An event whose update says whether it is the last one, also where the mapping leaves out false."""
    if "statusUpdate" in event:
        event["statusUpdate"].setdefault("final", False)
    return event


def new_channel(port: int) -> aio.Channel:
    """A channel of its own connection to a server on loopback."""
    return aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


def named_tests(module: ModuleType, *names: str) -> dict[str, FunctionType]:
    """The tests of a module by their names, for a module with other fixtures."""
    return {name: vars(module)[name] for name in (f"test_{name}" for name in names)}
