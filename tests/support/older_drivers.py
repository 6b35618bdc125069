"""Both bindings of A2A 0.3 behind the face of `drivers.py`: a test says 1.0, and what 0.3 has for it is on the wire.

It shares no code with the server: what 0.3 calls things is written down here again, and what comes is checked to be of
0.3 throughout. An operation that 0.3 does not have is asked in 1.0: its tasks are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx2

from tests.support.drivers import DRIVERS, Answer, Fault, HttpJsonDriver, Json, JsonRpcDriver, Params

_METHODS: Final = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
    "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
    "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
    "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}
_PATHS: Final = {
    "SendMessage": ("POST", "/v1/message:send"),
    "SendStreamingMessage": ("POST", "/v1/message:stream"),
    "GetTask": ("GET", "/v1/tasks/{id}"),
    "CancelTask": ("POST", "/v1/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/v1/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/v1/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/v1/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/v1/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/v1/card"),
}
_STATES: Final = {
    "submitted": "SUBMITTED",
    "working": "WORKING",
    "input-required": "INPUT_REQUIRED",
    "auth-required": "AUTH_REQUIRED",
    "completed": "COMPLETED",
    "canceled": "CANCELED",
    "failed": "FAILED",
    "rejected": "REJECTED",
}
_LAST: Final = {"COMPLETED", "CANCELED", "FAILED", "REJECTED", "INPUT_REQUIRED"}
_UNSAID: Final = "urn:mcp-a2a:unsaid:v1"
_WRAPPED: Final = "data_part_compat"


class OlderJsonRpcDriver(JsonRpcDriver):
    """A2A 0.3.0 section 7, without a version header."""

    file_names: Mapping[str, str] = {
        "raw": "bytes",
        "url": "uri",
        "mediaType": "mimeType",
        "filename": "name",
    }
    parts_name = "parts"
    push_name = "pushNotificationConfig"
    generation = "0.3 "

    def request(self, operation: str, params: Params) -> httpx2.Request:
        if operation not in _METHODS:
            return super().request(operation, params)
        body = {"jsonrpc": "2.0", "id": "a-1", "method": _METHODS[operation], "params": self.params(params)}
        return self.client.build_request("POST", self.base_url, json=body, headers=self.silent_headers)

    def answer_from(self, response: httpx2.Response) -> Answer:
        answer = super().answer_from(response)
        if "a2a-version" in response.request.headers:
            return answer
        if answer.fault:
            return Answer(response, fault=self.fault(answer.fault))
        said = answer.result
        newer = self.newer_bare(said)
        return Answer(response, result=newer["task"] if _asked(response) in _GIVES_TASK else newer)

    def event_from(self, data: Json) -> Json:
        return self.newer_bare(super().event_from(data))

    # Out

    @property
    def silent_headers(self) -> dict[str, str]:
        """Those of 0.3: it names no version, and extensions by another header."""
        names = {"a2a-extensions": "X-A2A-Extensions"}
        headers = {names.get(name.lower(), name): value for name, value in self.headers.items()}
        return {name: value for name, value in headers.items() if name != "A2A-Version"}

    def params(self, params: Params) -> Json:
        """The parameters of an operation."""
        said = dict(params)
        if isinstance(message := said.get("message"), dict):
            said["message"] = self.message(message)
        if isinstance(configuration := said.get("configuration"), dict):
            said["configuration"] = self.configuration(configuration)
        return said

    def configuration(self, configuration: Json) -> Json:
        """How a message is to be answered: over JSON-RPC it blocks unless it says otherwise."""
        said = dict(configuration)
        if (immediately := said.pop("returnImmediately", None)) is not None:
            said["blocking"] = not immediately
        if (push := said.pop("taskPushNotificationConfig", None)) is not None:
            said[self.push_name] = push
        return said

    def message(self, message: Json) -> Json:
        """A message."""
        said = {"kind": "message", **message}
        if isinstance(role := said.get("role"), str):
            said["role"] = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(role, f"no {role}")
        if isinstance(parts := said.get("parts"), list):
            said["parts"] = [self.part(part) if isinstance(part, dict) else part for part in parts]
        return said

    def part(self, part: Json) -> Json:
        """A part: what 0.3 has no field for is noted."""
        said = dict(part)
        if "raw" in said or "url" in said:
            file = {older: said.pop(name) for name, older in self.file_names.items() if name in said}
            return {"kind": "file", "file": file, **said}
        if note := {name: said.pop(name) for name in ("mediaType", "filename") if name in said}:
            said["metadata"] = {**said.get("metadata", {}), _UNSAID: note}
        if "data" in said and not isinstance(said["data"], dict):
            said["data"] = {"value": said["data"]}
            said["metadata"] = {**said.get("metadata", {}), _WRAPPED: True}
        return {"kind": "text" if "text" in said else "data", **said}

    # In

    def newer_bare(self, said: Json) -> Json:
        """What says by `kind` what it is, as an event of 1.0."""
        kinds = {
            "task": ("task", self.newer_task),
            "message": ("message", self.newer_message),
            "status-update": ("statusUpdate", self.newer_status_update),
            "artifact-update": ("artifactUpdate", self.newer_artifact_update),
        }
        name, newer = kinds[said["kind"]]
        return {name: newer(without(said, "kind"))}

    def newer_task(self, task: Json) -> Json:
        """A task."""
        assert task["contextId"]
        newer = {**task, "status": self.newer_status(task["status"])}
        if "history" in task:
            newer["history"] = [self.newer_message(self.unkinded(one, "message")) for one in task["history"]]
        if "artifacts" in task:
            newer["artifacts"] = [self.newer_artifact(one) for one in task["artifacts"]]
        return newer

    def newer_status_update(self, update: Json) -> Json:
        """A status update, whose `final` says whether the stream closes with it."""
        newer = {**without(update, "final"), "status": self.newer_status(update["status"])}
        state = newer["status"]["state"].removeprefix("TASK_STATE_")
        assert update["final"] is (state in _LAST), update
        return newer

    def newer_artifact_update(self, update: Json) -> Json:
        """An artifact update."""
        return {**update, "artifact": self.newer_artifact(update["artifact"])}

    def newer_artifact(self, artifact: Json) -> Json:
        """An artifact."""
        return {**artifact, "parts": [self.newer_part(part) for part in artifact["parts"]]}

    def newer_status(self, status: Json) -> Json:
        """A status."""
        newer = {**status, "state": self.newer_state(status["state"])}
        if "message" in status:
            newer["message"] = self.newer_message(self.unkinded(status["message"], "message"))
        return newer

    def newer_state(self, state: str) -> str:
        """A state."""
        return f"TASK_STATE_{_STATES[state]}"

    def newer_message(self, message: Json) -> Json:
        """A message."""
        assert message["role"] in ("user", "agent")
        newer = {**message, "role": f"ROLE_{message['role'].upper()}"}
        return {**newer, "parts": [self.newer_part(part) for part in message["parts"]]}

    def newer_part(self, part: Json) -> Json:
        """A part."""
        kind = part["kind"]
        assert set(part) <= {"kind", kind, "metadata"}, part
        newer = self.newer_file(part["file"]) if kind == "file" else {kind: part[kind]}
        return noted(newer, part)

    def newer_file(self, file: Json) -> Json:
        """The fields of a file."""
        newer = {older: name for name, older in self.file_names.items()}
        return {newer[name]: value for name, value in file.items()}

    def unkinded(self, said: Json, kind: str) -> Json:
        """An object that says what it is, without that."""
        assert said["kind"] == kind, said
        return without(said, "kind")

    def fault(self, fault: Fault) -> Fault:
        """An error whose fields are named as 1.0 does."""
        newer = {f".file.{older}": f".{name}" for name, older in self.file_names.items()}
        newer[f"message.{self.parts_name}"] = "message.parts"
        details = [dict(detail) for detail in fault.details]
        for detail in details:
            if "fieldViolations" in detail:
                detail["fieldViolations"] = [
                    {**one, "field": _renamed(one["field"], newer)} for one in detail["fieldViolations"]
                ]
        return Fault(fault.code, _renamed(fault.message, newer), details)


_UNAUTHENTICATED: Final = 401
"""Which a caller is told before the version of the request is looked at, so in the form of 1.0."""


class OlderHttpJsonDriver(OlderJsonRpcDriver, HttpJsonDriver):
    """A2A 0.3.0 section 3.2.3, with the JSON of its proto."""

    binding = HttpJsonDriver.binding
    file_names: Mapping[str, str] = {
        "raw": "fileWithBytes",
        "url": "fileWithUri",
        "mediaType": "mimeType",
        "filename": "name",
    }
    parts_name = "content"
    push_name = "pushNotification"

    def request(self, operation: str, params: Params) -> httpx2.Request:
        if operation not in _PATHS:
            return HttpJsonDriver.request(self, operation, params)
        verb, template = _PATHS[operation]
        in_path = {name: quote(str(params[name])) for name in ("id", "taskId") if f"{{{name}}}" in template}
        rest = self.params({name: value for name, value in params.items() if name not in in_path})
        url = f"{self.base_url}{template.format(**in_path)}"
        if verb != "POST":
            return self.client.build_request(verb, url, params=rest, headers=self.silent_headers)
        if "message" in rest and isinstance(rest.setdefault("configuration", {}), dict):
            rest["configuration"].setdefault("blocking", True)
        return self.client.build_request(verb, url, json=rest, headers=self.silent_headers)

    def answer_from(self, response: httpx2.Response) -> Answer:
        if "a2a-version" in response.request.headers or response.status_code == _UNAUTHENTICATED:
            return HttpJsonDriver.answer_from(self, response)
        body = response.json()
        assert response.headers["content-type"] == "application/json"
        if response.status_code != 200:
            assert set(body) == {"code", "message", "data"}
            return Answer(
                response, fault=self.fault(Fault(response.status_code, body["message"], body["data"]))
            )
        is_task = "status" in body
        return Answer(response, result=self.newer_task(body) if is_task else self.newer_wrapped(body))

    def event_from(self, data: Json) -> Json:
        return self.newer_wrapped(data)

    def newer_wrapped(self, said: Json) -> Json:
        """What stands under its name, as an event of 1.0."""
        kinds = {
            "task": self.newer_task,
            "message": self.newer_message,
            "statusUpdate": self.newer_status_update,
            "artifactUpdate": self.newer_artifact_update,
        }
        [(name, value)] = said.items()
        return {name: kinds[name](value)}

    def message(self, message: Json) -> Json:
        said = without(message, "parts", *(name for name in message if name not in _MESSAGE))
        if message.get("role", "ROLE_USER") not in ("ROLE_USER", "ROLE_AGENT"):
            said["role"] = f"no {message['role']}"
        if isinstance(parts := message.get("parts"), list):
            said["content"] = [self.part(part) if isinstance(part, dict) else part for part in parts]
        elif "parts" in message:
            said["content"] = message["parts"]
        if note := {name: value for name, value in message.items() if name not in _MESSAGE}:
            said["metadata"] = {**message.get("metadata", {}), _UNSAID: note}
        return said

    def part(self, part: Json) -> Json:
        said = without(super().part(part), "kind")
        return {**said, "data": {"data": said["data"]}} if "data" in said else said

    def newer_message(self, message: Json) -> Json:
        assert set(message) <= {*_MESSAGE, "content"} - {"parts"}, message
        newer = {
            **without(message, "content"),
            "parts": [self.newer_part(part) for part in message["content"]],
        }
        return noted(newer, message)

    def newer_part(self, part: Json) -> Json:
        assert set(part) <= {"text", "file", "data", "metadata"}, part
        if "file" in part:
            newer = self.newer_file(part["file"])
        elif "data" in part:
            newer = {"data": part["data"]["data"]}
        else:
            newer = {"text": part["text"]}
        return noted(newer, part)

    def newer_state(self, state: str) -> str:
        assert state.startswith("TASK_STATE_")
        return {"TASK_STATE_CANCELLED": "TASK_STATE_CANCELED"}.get(state, state)

    def unkinded(self, said: Json, kind: str) -> Json:
        assert "kind" not in said
        return said


EVERY_DRIVER: Final = (*DRIVERS, OlderJsonRpcDriver, OlderHttpJsonDriver)

_MESSAGE: Final = ("messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions")
_GIVES_TASK: Final = ("tasks/get", "tasks/cancel")


def name_of(kind: type[Any]) -> str:
    """A driver, as the name of a test has it."""
    return f"{kind.generation}{kind.binding}"


def without(said: Json, *names: str) -> Json:
    """An object without some of its fields."""
    return {name: value for name, value in said.items() if name not in names}


def noted(newer: Json, said: Json) -> Json:
    """An object with the metadata of what it was, but for what was noted there."""
    metadata = dict(said.get("metadata", {}))
    newer = {**newer, **metadata.pop(_UNSAID, {})}
    if metadata.pop(_WRAPPED, False):
        newer["data"] = newer["data"]["value"]
    if metadata or ("metadata" in said and said["metadata"] == {}):
        return {**newer, "metadata": metadata}
    return without(newer, "metadata")


def _asked(response: httpx2.Response) -> str:
    body: Json = httpx2.Response(200, content=response.request.content).json()
    return str(body["method"])


def _renamed(field: str, names: Mapping[str, str]) -> str:
    for older, newer in names.items():
        field = field.replace(older, newer)
    return field
