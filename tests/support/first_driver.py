"""The first generation of A2A behind the face of `drivers.py`: a test says 1.0, and `tasks/send` is on the wire.

It does what the client of the 2025 samples does: it makes the ids of tasks, posts to one URL without a header that says
a version, and writes null for what it does not say. It shares no code with the server. What there is no field for it
notes and reads in metadata, as the bridge documents it. An operation that this generation does not have is asked in
1.0, where a task has another id, in which its name stands.
"""

from __future__ import annotations

import base64
import uuid
from typing import Final

import httpx2
import pytest

from tests.support.drivers import Answer, Fault, Json, Params
from tests.support.older_drivers import OlderJsonRpcDriver, noted, without

_METHODS: Final = {
    "SendMessage": "tasks/send",
    "SendStreamingMessage": "tasks/sendSubscribe",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotification/set",
    "GetTaskPushNotificationConfig": "tasks/pushNotification/get",
}
_UNSAID: Final = "urn:mcp-a2a:unsaid:v1"
_ALL: Final = 2**31 - 1
_FIELDS: Final = {
    "Invalid parameters: id:": "Invalid parameters: message.taskId:",
    "Invalid parameters: sessionId:": "Invalid parameters: message.contextId:",
    "Invalid parameters: historyLength:": "Invalid parameters: configuration.historyLength:",
}
_PLACES: Final = {"id": "message.taskId", "sessionId": "message.contextId"}

_NO_IDS: Final = "messages have no ids, so the same words again are another message"
_OPENS: Final = "an id that no task has, or one that has ended, makes a task"
NOT_IN_IT: Final = {
    "test_a_send_waits_until_the_task_has_ended": _NO_IDS,
    "test_the_same_message_soon_again_finds_its_task_where_its_tool_may_do_harm": _NO_IDS,
    "test_the_same_message_finds_its_task_when_its_answer_was_not_read": _NO_IDS,
    "test_the_same_message_twice_at_once_makes_one_task": _NO_IDS,
    "test_the_same_message_while_its_task_runs_joins_it": _NO_IDS,
    "test_the_same_message_streamed_after_its_end_gives_the_task_and_closes": _NO_IDS,
    "test_the_same_answer_again_finds_the_task_it_answered": _NO_IDS,
    "test_a_message_to_a_task_that_does_not_exist_is_refused": _OPENS,
    "test_a_message_to_a_task_that_has_ended_is_refused": _OPENS,
    "test_a_task_that_waits_for_input_can_be_cancelled_once": _OPENS,
    "test_a_silent_subscription_by_get_has_heartbeats": "it knows JSON-RPC alone, whose calls are posted",
    "test_a_context_that_is_not_the_tasks_is_refused": "the samples' client makes another session each time",
}
"""The tests of the shared suites that ask for what this generation does otherwise, and why."""
_NOT_AT_FAULT: Final = ("messageId", "taskId")


def is_in_it(request: pytest.FixtureRequest) -> bool:
    """Whether this generation does what a test asks for. A message without an id is at fault elsewhere only, and what
    an id of a task may be is told in a test of its own."""
    callspec = getattr(request.node, "callspec", None)
    change = callspec.params.get("change") if callspec else None
    change = change if isinstance(change, dict) else {}
    return request.node.originalname not in NOT_IN_IT and not any(name in change for name in _NOT_AT_FAULT)


def name_in(task_id: str) -> str:
    """What its client calls a task, out of its id in other generations."""
    _, is_named, name = task_id.partition(".as.")
    return base64.urlsafe_b64decode(name + "==").decode() if is_named else task_id


class FirstDriver(OlderJsonRpcDriver):
    """A2A v0.1.0 section 7."""

    generation = "0.1 "

    def __init__(self, *args: Json) -> None:
        super().__init__(*args)
        self._pieces: dict[str, list[Json]] = {}

    def request(self, operation: str, params: Params) -> httpx2.Request:
        if operation not in _METHODS:
            return super(OlderJsonRpcDriver, self).request(operation, params)
        asked = (
            self.sent(params) if operation.startswith("Send") else {"metadata": None, **self.about(params)}
        )
        if operation == "GetTask":
            asked.setdefault("historyLength", _ALL)
        body = {"jsonrpc": "2.0", "id": "a-1", "method": _METHODS[operation], "params": asked}
        return self.client.build_request("POST", self.base_url, json=body, headers=self.silent_headers)

    def about(self, params: Params) -> Json:
        """What is asked of a task."""
        return {name: value for name, value in params.items() if name != "taskId"}

    def sent(self, params: Params) -> Json:
        """The parameters of a message: the client of the samples names the task, and makes a session for each."""
        said, message = dict(params), params.get("message")
        configuration = dict(said.pop("configuration", None) or {})
        about = message if isinstance(message, dict) else {}
        said["id"] = about.get("taskId") or self.new_id("task", about)
        said["sessionId"] = about.get("contextId")
        if "taskId" not in about and not said["sessionId"]:
            said["sessionId"] = self.new_id("session", about)
        said["historyLength"] = configuration.pop("historyLength", _ALL)
        said["acceptedOutputModes"] = configuration.pop("acceptedOutputModes", None)
        said["pushNotification"] = configuration.pop("taskPushNotificationConfig", None)
        if configuration:
            said["metadata"] = {**said.get("metadata", {}), _UNSAID: {"configuration": configuration}}
        if isinstance(message, dict):
            said["message"] = self.message(without(message, "taskId", "contextId"))
        return {"metadata": None, **said}

    def new_id(self, of: str, message: Json) -> str:
        """The id of the task or session that a message begins."""
        return uuid.uuid4().hex

    def message(self, message: Json) -> Json:
        said = without(super().message(message), "kind")
        note = {name: said.pop(name) for name in tuple(said) if name not in ("role", "parts", "metadata")}
        if note and isinstance(said.get("metadata", {}), dict):
            said["metadata"] = {**said.get("metadata", {}), _UNSAID: note}
        return said

    def part(self, part: Json) -> Json:
        said = super().part(part)
        return {"type": said["kind"], "metadata": None, **without(said, "kind")}

    # In

    def answer_from(self, response: httpx2.Response) -> Answer:
        answer = super(OlderJsonRpcDriver, self).answer_from(response)
        if "a2a-version" in response.request.headers:
            return Answer(response, self.with_names(answer.result), answer.fault)
        if answer.fault:
            return Answer(response, fault=self.fault(answer.fault))
        method = httpx2.Response(200, content=response.request.content).json()["method"]
        task = self.newer_task(answer.result)
        return Answer(response, {"task": task} if method == "tasks/send" else task)

    def event_from(self, data: Json) -> Json:
        said = super(OlderJsonRpcDriver, self).event_from(data)
        assert set(said) in ({"id", "status", "final", "metadata"}, {"id", "artifact", "metadata"}), said
        read = noted(said, said)
        is_snapshot = read.pop("isSnapshot", False)
        read["taskId"] = read.pop("id")
        if "artifact" in read:
            return self.newer_piece(read, is_snapshot)
        if not is_snapshot:
            return {"statusUpdate": self.newer_status_update(self.owning(read, read["taskId"]))}
        del read["final"]
        read["id"] = read.pop("taskId")
        if pieces := self._pieces.pop(read["id"], None):
            read["artifacts"] = pieces
        self.owned(read.get("history", ()), read["id"], read["contextId"])
        return {"task": {**read, "status": self.newer_status(self.owning(read, read["id"])["status"])}}

    def newer_piece(self, update: Json, is_snapshot: bool) -> Json:
        """An artifact update, or None while a task as it is comes piece by piece."""
        artifact = noted(update["artifact"], update["artifact"])
        assert artifact.pop("index") >= 0
        chunk = {name: artifact.pop(name) for name in ("append", "lastChunk") if name in artifact}
        artifact["parts"] = [self.newer_part(part) for part in artifact["parts"]]
        if is_snapshot:
            self._pieces.setdefault(update["taskId"], []).append(artifact)
            return None
        return {"artifactUpdate": {**update, **chunk, "artifact": artifact}}

    def newer_task(self, task: Json) -> Json:
        assert task["sessionId"]
        assert set(task) <= {"id", "sessionId", "status", "artifacts", "history", "metadata"}
        read = noted(task, task)
        read["contextId"] = read.pop("sessionId")
        for index, artifact in enumerate(read.get("artifacts", ())):
            assert artifact.pop("index") == index
        newer = super().newer_task(self.owning(read, read["id"]))
        self.owned(newer.get("history", ()), read["id"], read["contextId"])
        return newer

    def newer_artifact(self, artifact: Json) -> Json:
        return super().newer_artifact(noted(artifact, artifact))

    def owning(self, said: Json, task_id: str) -> Json:
        """A task or an update, whose state is the one that was noted, and whose message says whose it is."""
        if "state" in said:
            said["status"]["state"] = said.pop("state").removeprefix("TASK_STATE_").lower().replace("_", "-")
        if "message" in said["status"]:
            message = said["status"]["message"]
            said["status"]["message"] = {"taskId": task_id, "contextId": said["contextId"], **message}
        return said

    def owned(self, messages: Json, task_id: str, context_id: str) -> None:
        """Let messages say whose they are."""
        for message in messages:
            message.setdefault("taskId", task_id)
            message.setdefault("contextId", context_id)

    def newer_message(self, message: Json) -> Json:
        return super().newer_message(noted(message, message))

    def newer_part(self, part: Json) -> Json:
        return super().newer_part({"kind": part["type"], **without(part, "type")})

    def unkinded(self, said: Json, kind: str) -> Json:
        assert "kind" not in said
        return said

    def with_names(self, said: Json) -> Json:
        """What 1.0 says of tasks, by the names that their client gave them."""
        if isinstance(said, list):
            return [self.with_names(one) for one in said]
        if not isinstance(said, dict):
            return said
        ids = ("id", "taskId")
        return {
            name: name_in(one) if name in ids and isinstance(one, str) else self.with_names(one)
            for name, one in said.items()
        }

    def fault(self, fault: Fault) -> Fault:
        newer = super().fault(fault)
        message = newer.message
        for older, name in _FIELDS.items():
            message = message.replace(older, name)
        details = [
            {**one, "fieldViolations": [_in_place(field) for field in one["fieldViolations"]]}
            if "fieldViolations" in one
            else one
            for one in newer.details
        ]
        return Fault(newer.code, message, details)


def _in_place(violation: Json) -> Json:
    return {**violation, "field": _PLACES.get(violation["field"], violation["field"])}
