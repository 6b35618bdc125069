"""Hermes behind the face of `drivers.py`: a test says 1.0, and tasks as resources are on the wire.

It shares no code with the server. It notes and reads what there is no field for in metadata, as the bridge documents
it, and so it may also ask that an answer waits for its task. An operation that Hermes does not have is asked in 1.0.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import httpx2
import pytest

from tests.support.drivers import Answer, Fault, HttpJsonDriver, Json, Params
from tests.support.first_driver import FirstDriver
from tests.support.older_drivers import without

_PATHS: Final = {
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("PUT", "/tasks/{id}/cancel"),
}
_UNSAID: Final = "urn:mcp-a2a:unsaid:v1"
_PLACES: Final = {"Invalid parameters: taskId:": "Invalid parameters: message.taskId:"}

NOT_IN_HERMES: Final = {"test_empty_ids_are_no_ids": "a path with an empty id is none of Hermes"}
"""The tests of the shared suites that ask for what Hermes does otherwise, and why."""
_NOT_AT_FAULT: Final = ("messageId", "role")
"""What a message may leave out."""


def is_in_hermes(request: pytest.FixtureRequest) -> bool:
    """Whether Hermes does what a test asks for."""
    callspec = getattr(request.node, "callspec", None)
    change = callspec.params.get("change") if callspec else None
    left_out = [name for name, value in change.items() if value is None] if isinstance(change, dict) else []
    return request.node.originalname not in NOT_IN_HERMES and not any(
        name in left_out for name in _NOT_AT_FAULT
    )


class HermesDriver(FirstDriver):
    """The paths of the dialect."""

    binding = HttpJsonDriver.binding
    generation = "Hermes "

    def request(self, operation: str, params: Params) -> httpx2.Request:
        if operation == "SendMessage":
            body = self.sent(params)
            message = params.get("message")
            task_id = message.get("taskId") if isinstance(message, dict) else None
            path = "/tasks" if task_id is None else f"/tasks/{quote(str(task_id), safe='')}/messages"
            url = f"{self.base_url}{path}"
            return self.client.build_request("POST", url, json=body, headers=self.silent_headers)
        if operation not in _PATHS:
            return HttpJsonDriver.request(self, operation, params)
        verb, template = _PATHS[operation]
        query = {name: str(value) for name, value in params.items() if name != "id"}
        url = f"{self.base_url}{template.format(id=quote(str(params['id']), safe=''))}"
        return self.client.build_request(verb, url, params=query, headers=self.silent_headers)

    def sent(self, params: Params) -> Json:
        said, message = dict(params), params.get("message")
        asked = said.pop("configuration", None) or {}
        configuration = {"returnImmediately": False, **asked} if isinstance(asked, dict) else asked
        metadata = said.get("metadata", {})
        if isinstance(metadata, dict):
            said["metadata"] = {**metadata, _UNSAID: {"configuration": configuration}}
        if isinstance(message, dict):
            if "contextId" in message:
                said["sessionId"] = message["contextId"]
            said["message"] = self.message(without(message, "taskId", "contextId"))
        return said

    def answer_from(self, response: httpx2.Response) -> Answer:
        if "a2a-version" in response.request.headers:
            return HttpJsonDriver.answer_from(self, response)
        body = response.json()
        assert response.headers["content-type"] == "application/json"
        if response.is_error:
            error = body["error"]
            fault = Fault(response.status_code, error["message"], error["data"])
            return Answer(response, fault=self.fault(fault))
        request = response.request
        is_new = request.url.path.endswith("/tasks")
        assert response.status_code == (202 if is_new else 200)
        task = self.newer_task(body)
        return Answer(response, {"task": task} if request.method == "POST" else task)

    def event_from(self, data: Json) -> Json:
        return data

    def newer_task(self, task: Json) -> Json:
        status = dict(task["status"])
        progress = status.pop("progress")
        assert progress == 1.0 if status["state"] == "completed" else 0 <= progress < 1
        renamed = {"messages": "history"}
        read = {renamed.get(name, name): value for name, value in task.items()}
        return super().newer_task({**read, "status": status})

    def fault(self, fault: Fault) -> Fault:
        newer = super().fault(fault)
        message = newer.message
        for older, name in _PLACES.items():
            message = message.replace(older, name)
        return Fault(newer.code, message, newer.details)
