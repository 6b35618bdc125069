"""Both bindings behind one face: a test says the operation and its parameters, a driver says them on the wire.

It shares no code with the server: paths, envelopes and the framing of streams are written down here again.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import anyio
import httpx2

from tests.support.running import VERSION, message

PATIENCE_SECONDS: Final = 15
"""How long a test waits for one answer or event before it fails."""

Json = Any
Params = Mapping[str, Any]

PUSH_OPERATIONS: Final = (
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)


A2A_REASONS: Final = {
    "TASK_NOT_FOUND",
    "TASK_NOT_CANCELABLE",
    "PUSH_NOTIFICATION_NOT_SUPPORTED",
    "UNSUPPORTED_OPERATION",
    "CONTENT_TYPE_NOT_SUPPORTED",
    "INVALID_AGENT_RESPONSE",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    "EXTENSION_SUPPORT_REQUIRED",
    "VERSION_NOT_SUPPORTED",
}
"""The names of the errors that A2A defines (section 3.3.2); every other reason is the bridge's own."""


@dataclass(frozen=True)
class Fault:
    """An error as either binding says it."""

    code: int
    message: str
    details: list[Json]

    @property
    def reason(self) -> str:
        """The ErrorInfo's reason; checks that it is there, and whole."""
        infos = [d for d in self.details if d["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
        assert len(infos) == 1, self.details
        assert infos[0]["domain"] == ("a2a-protocol.org" if infos[0]["reason"] in A2A_REASONS else "mcp-a2a")
        assert all(isinstance(value, str) for value in infos[0].get("metadata", {}).values())
        return str(infos[0]["reason"])

    @property
    def fields(self) -> set[str]:
        """The fields that the BadRequest names."""
        bad = [d for d in self.details if d["@type"] == "type.googleapis.com/google.rpc.BadRequest"]
        return {violation["field"] for found in bad for violation in found["fieldViolations"]}


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, and what the binding put into it."""

    http: httpx2.Response
    result: Json = None
    fault: Fault | None = None


class Events:
    """The events of an open stream, read byte by byte: a blank line, made of line feeds alone, ends one."""

    def __init__(self, driver: Driver, response: httpx2.Response) -> None:
        self.headers = response.headers
        self.raw = b""
        """All that has come so far."""
        self.heartbeats = 0
        self._driver = driver
        self._chunks = response.aiter_raw()
        self._rest = b""

    async def next(self) -> Json | None:
        """The next StreamResponse, or None at the end of the stream."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                block, blank, rest = self._rest.partition(b"\n\n")
                if blank:
                    self._rest = rest
                    if block.startswith(b":"):
                        self.heartbeats += 1
                        continue
                    assert block.startswith(b"data: "), block
                    assert b"\n" not in block, block
                    event = self._driver.event_from(json.loads(block.removeprefix(b"data: ")))
                    if event is None:
                        continue
                    return event
                chunk = await anext(self._chunks, b"")
                if not chunk:
                    assert self._rest == b"", "the stream ended within an event"
                    return None
                self.raw += chunk
                self._rest += chunk

    async def until(self, state: str) -> list[Json]:
        """The events up to the one that brings the task into a state."""
        seen = []
        while True:
            event = await self.next()
            assert event is not None, f"the stream ended before {state}: {seen}"
            seen.append(event)
            if status_of(event) == state:
                return seen

    async def rest(self) -> list[Json]:
        """All events that still come; the stream has to end."""
        seen = []
        while (event := await self.next()) is not None:
            seen.append(event)
        return seen

    async def heartbeat(self) -> None:
        """Wait for a comment."""
        before = self.heartbeats
        with anyio.fail_after(PATIENCE_SECONDS):
            while self.heartbeats == before:
                chunk = await anext(self._chunks, b"")
                assert chunk, "the stream ended"
                self.raw += chunk
                assert chunk == b": \n\n", chunk
                self.heartbeats += 1


class Driver(ABC):
    """A client of one binding, with nothing between the test and the wire."""

    binding: str
    generation = ""
    """How it begins its name, unless it is the current one."""

    def __init__(
        self, client: httpx2.AsyncClient, base_url: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.client = client
        self.base_url = base_url
        self.headers = {**VERSION, **(headers or {})}

    def with_headers(self, **headers: str) -> Driver:
        """The same client with more headers: `with_headers(a2a_extensions="urn:x")`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return type(self)(self.client, self.base_url, {**self.headers, **named})

    @abstractmethod
    def request(self, operation: str, params: Params) -> httpx2.Request:
        """What is sent for an operation."""

    @abstractmethod
    def answer_from(self, response: httpx2.Response) -> Answer:
        """An answer out of its envelope."""

    @abstractmethod
    def event_from(self, data: Json) -> Json:
        """A StreamResponse out of its envelope, or None where more has to come for one."""

    # What tests say

    async def answer(self, operation: str, params: Params) -> Answer:
        """The answer to an operation, whatever it is."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return self.answer_from(await self.client.send(self.request(operation, params)))

    async def call(self, operation: str, **params: Json) -> Json:
        """The result of an operation that has to succeed."""
        answer = await self.answer(operation, params)
        assert answer.fault is None, answer.fault
        return answer.result

    async def refused(self, operation: str, **params: Json) -> Fault:
        """The error of an operation that has to fail."""
        answer = await self.answer(operation, params)
        assert answer.fault is not None, answer.result
        return answer.fault

    async def send(self, *parts: Json, **fields: Json) -> Json:
        """SendMessage; the task."""
        return (await self.call("SendMessage", **message(*parts, **fields)))["task"]

    async def get(self, task_id: str, **params: Json) -> Json:
        """GetTask."""
        return await self.call("GetTask", id=task_id, **params)

    async def cancel(self, task_id: str) -> Json:
        """CancelTask."""
        return await self.call("CancelTask", id=task_id)

    async def listed(self, **params: Json) -> list[str]:
        """ListTasks; the ids on one page."""
        return [task["id"] for task in (await self.call("ListTasks", **params))["tasks"]]

    @asynccontextmanager
    async def stream(self, operation: str, **params: Json) -> AsyncIterator[Events]:
        """An operation that answers with a stream."""
        with anyio.fail_after(PATIENCE_SECONDS):
            response = await self.client.send(self.request(operation, params), stream=True)
        try:
            if response.headers["content-type"] != "text/event-stream":
                raise AssertionError(await response.aread())
            yield Events(self, response)
        finally:
            await response.aclose()

    @asynccontextmanager
    async def working(self, *parts: Json, **fields: Json) -> AsyncIterator[tuple[str, Events]]:
        """A task that is at work, by its id and its stream."""
        async with self.stream("SendStreamingMessage", **message(*parts, **fields)) as events:
            seen = await events.until("WORKING")
            yield seen[0]["task"]["id"], events


class JsonRpcDriver(Driver):
    """Section 9."""

    binding = "JSONRPC"

    def request(self, operation: str, params: Params) -> httpx2.Request:
        body = {"jsonrpc": "2.0", "id": "a-1", "method": operation, "params": params}
        return self.client.build_request("POST", self.base_url, json=body, headers=self.headers)

    def answer_from(self, response: httpx2.Response) -> Answer:
        body = response.json()
        assert response.headers["content-type"] == "application/json"
        assert body["jsonrpc"] == "2.0"
        if "error" in body:
            assert set(body) == {"jsonrpc", "id", "error"}
            error = body["error"]
            return Answer(response, fault=Fault(error["code"], error["message"], error["data"]))
        assert (set(body), body["id"]) == ({"jsonrpc", "id", "result"}, "a-1")
        return Answer(response, result=body["result"])

    def event_from(self, data: Json) -> Json:
        assert (set(data), data["jsonrpc"], data["id"]) == ({"jsonrpc", "id", "result"}, "2.0", "a-1")
        return data["result"]


class HttpJsonDriver(Driver):
    """Section 11."""

    binding = "HTTP+JSON"

    def request(self, operation: str, params: Params) -> httpx2.Request:
        verb, template = _PATHS[operation]
        in_path = {name: quote(str(params[name])) for name in ("id", "taskId") if f"{{{name}}}" in template}
        rest = {name: value for name, value in params.items() if name not in in_path}
        url = f"{self.base_url}{template.format(**in_path)}"
        if verb != "POST":
            query = {name: json.dumps(v) if isinstance(v, bool) else str(v) for name, v in rest.items()}
            return self.client.build_request(verb, url, params=query, headers=self.headers)
        if not rest:
            return self.client.build_request(verb, url, headers=self.headers)
        headers = {"Content-Type": "application/a2a+json", **self.headers}
        return self.client.build_request(verb, url, content=json.dumps(rest).encode(), headers=headers)

    def answer_from(self, response: httpx2.Response) -> Answer:
        body = response.json()
        assert response.headers["content-type"] == "application/a2a+json"
        if response.status_code == 200:
            return Answer(response, result=body)
        error = body["error"]
        assert set(body) == {"error"}
        assert set(error) == {"code", "status", "message", "details"}
        assert error["code"] == response.status_code
        return Answer(response, fault=Fault(error["code"], error["message"], error["details"]))

    def event_from(self, data: Json) -> Json:
        return data


DRIVERS: Final = (JsonRpcDriver, HttpJsonDriver)

_PATHS: Final = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
"""Section 5.3."""


def state_of(task: Json) -> str:
    """A task's state without its prefix, which is checked."""
    state = task["status"]["state"]
    assert state.startswith("TASK_STATE_"), state
    return str(state.removeprefix("TASK_STATE_"))


def status_of(event: Json) -> str | None:
    """The state that an event of a stream brings, or None when it brings none."""
    carrier = event.get("task") or event.get("statusUpdate")
    return state_of(carrier) if carrier else None


def shape_of(events: list[Json]) -> list[str]:
    """A stream in words: `task SUBMITTED`, `statusUpdate WORKING`, `artifactUpdate`."""
    shape = []
    for event in events:
        assert len(event) == 1, event
        shape.append(" ".join(filter(None, [next(iter(event)), status_of(event)])))
    return shape


def new_client() -> httpx2.AsyncClient:
    """An HTTP client that waits as long as the test does."""
    return httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
