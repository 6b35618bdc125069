"""Hermes as foreign agents write it, and parts of a task that must be read at other paths."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.client.interfaces import interfaces_of
from bridge.a2a.model import operations
from bridge.a2a.model.errors import TASK_NOT_CANCELABLE, TASK_NOT_FOUND, A2AError
from bridge.a2a.model.objects import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from bridge.a2a.model.progress import PROGRESS
from bridge.a2a.wire.versions import VERSIONS
from tests.support.agents import found_at

pytestmark = pytest.mark.proves("map-hermes")

HERMES = VERSIONS.chosen("hermes").current
ABOUT = SubscribeToTaskRequest(id="t-1")


def heard(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that one of the wire is."""
    reader = HERMES.reader(operations.SUBSCRIBE_TO_TASK, ABOUT)
    return [one.to_object() for one in reader.read(event)]


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"type": "working", "status": "working", "progress": 0.5}, {"state": "TASK_STATE_WORKING"}),
        ({"type": "working", "progress": 0.5}, {"state": "TASK_STATE_WORKING"}),
        ({"status": {"state": "working", "progress": 0.5}}, {"state": "TASK_STATE_WORKING"}),
        ({"type": "progress", "status": "working", "progress": 0.5}, {"state": "TASK_STATE_WORKING"}),
    ],
)
def test_the_state_of_an_event_is_read_at_each_allowed_place(
    event: dict[str, Any], status: dict[str, Any]
) -> None:
    update = {
        "taskId": "t-1",
        "contextId": "t-1",
        "status": status,
        "metadata": {PROGRESS: {"progress": 0.5, "total": 1}},
    }
    assert heard(event) == [{"statusUpdate": update}]


def test_the_words_of_a_status_are_a_message_of_the_agent() -> None:
    [event] = heard({"id": "t-1", "sessionId": "s", "status": {"state": "failed", "message": "It broke"}})
    message = event["statusUpdate"]["status"]["message"]
    assert (message["role"], message["parts"]) == ("ROLE_AGENT", [{"text": "It broke"}])
    assert (message["taskId"], message["contextId"]) == ("t-1", "s")


@pytest.mark.parametrize("event", [{"type": "ping"}, {}, {"type": "artifact", "artifact": {"name": "a"}}])
def test_an_event_without_a_state_is_ignored(event: dict[str, Any]) -> None:
    assert heard(event) == []


@pytest.mark.parametrize("progress", [0, 0.0, 1, 1.0, True, "0.5", None])
def test_empty_progress_is_no_progress(progress: Any) -> None:
    [event] = heard({"type": "working", "progress": progress})
    assert "metadata" not in event["statusUpdate"]


@pytest.mark.parametrize(
    ("value", "unread"),
    [
        ({"id": "t", "status": "working"}, set()),
        ({"id": "t", "status": {"state": "completed"}}, {"artifacts", "messages"}),
        ({"id": "t", "status": "input-required", "artifacts": []}, {"messages"}),
        ({"id": "t", "status": "failed", "artifacts": [], "messages": []}, set()),
        ({"accepted": True}, set()),
        ([], set()),
    ],
)
def test_fields_that_a_settled_task_omits_are_read_at_their_paths(value: Any, unread: set[str]) -> None:
    found = HERMES.unread(operations.GET_TASK, {"id": "t"}, value)
    assert {name: HERMES.target_of(*asked).path for name, asked in found.items()} == {
        name: f"/tasks/t/{name}" for name in unread
    }


def test_an_answer_without_a_task_causes_a_read_of_the_task() -> None:
    ((name, asked),) = HERMES.unread(operations.SEND_MESSAGE, {"taskId": "t"}, {"accepted": True}).items()
    target = HERMES.target_of(*asked)
    assert (name, target.verb, target.path) == ("task", "GET", "/tasks/t")
    assert not HERMES.unread(
        operations.SEND_MESSAGE, {}, {"accepted": True, "task": {"id": "t", "status": "working"}}
    )


def test_lists_may_be_wrapped_under_their_names() -> None:
    task = HERMES.answer_from(
        operations.GET_TASK,
        {
            "id": "t",
            "status": "completed",
            "artifacts": {"artifacts": [{"name": "a", "parts": [{"type": "text", "text": "x"}]}]},
            "messages": {"messages": [{"role": "agent", "parts": [{"type": "text", "text": "y"}]}]},
        },
    )
    assert [part.text for one in task.artifacts or () for part in one.parts] == ["x"]
    assert [part.text for one in task.history or () for part in one.parts] == ["y"]
    assert task.status.state is TaskState.COMPLETED


def test_a_question_that_an_agent_still_shows_is_the_one_that_was_answered() -> None:
    said = [
        {"role": role, "parts": [{"type": "text", "text": words}]}
        for role, words in (("user", "go"), ("agent", "How many?"), ("user", "three"))
    ]
    asked, answered = (
        HERMES.answer_from(
            operations.GET_TASK,
            {"id": "t", "status": "input-required", "artifacts": [], "messages": messages},
        )
        for messages in (said[:2], said)
    )
    assert asked.status == answered.status
    assert asked.status.message is not None
    assert asked.status.message.parts[0].text == "How many?"
    assert [len(one.history or ()) for one in (asked, answered)] == [1, 3]


@pytest.mark.parametrize(
    ("operation", "request_", "target"),
    [
        (operations.GET_TASK, GetTaskRequest(id="a/b"), ("GET", "/tasks/a%2Fb")),
        (operations.CANCEL_TASK, CancelTaskRequest(id="t"), ("PUT", "/tasks/t/cancel")),
        (operations.SUBSCRIBE_TO_TASK, ABOUT, ("GET", "/tasks/t-1/stream")),
    ],
)
def test_each_operation_has_its_path(operation: Any, request_: Any, target: tuple[str, str]) -> None:
    found = HERMES.target_of(operation, HERMES.params_of(operation, request_))
    assert (found.verb, found.path, found.query, found.body) == (*target, {}, None)


def test_a_message_makes_a_task_or_goes_to_one() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    targets = []
    for about in ({}, {"taskId": "t", "contextId": "s"}):
        request = SendMessageRequest.model_validate({"message": {**message, **about}})
        targets.append(
            HERMES.target_of(operations.SEND_MESSAGE, HERMES.params_of(operations.SEND_MESSAGE, request))
        )
    assert [(one.verb, one.path) for one in targets] == [("POST", "/tasks"), ("POST", "/tasks/t/messages")]
    assert [one.body and one.body.get("sessionId") for one in targets] == [None, "s"]


@pytest.mark.parametrize("body", [{"error": "Task not found"}, {"error": {"message": "Task not found"}}])
def test_an_error_may_be_a_text_only(body: dict[str, Any]) -> None:
    refusal = HERMES.http_refusal(body, 404)
    assert refusal is not None
    assert (refusal.code, refusal.message) == (TASK_NOT_FOUND.jsonrpc_code, "Task not found")
    assert HERMES.http_refusal(HERMES_ERROR, HERMES.http_status(CONFLICT)) is not None


CONFLICT = A2AError(TASK_NOT_CANCELABLE, "ended")
HERMES_ERROR = {"error": {"code": -32002, "message": "ended", "data": CONFLICT.details()}}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "0.3 JSONRPC", "0.1 JSONRPC"])
def test_hermes_is_spoken_if_configured_whatever_the_card_says(binding: str) -> None:
    card: AgentCard = found_at("http://127.0.0.1:1/a", binding).card
    ((interface, dialect),) = interfaces_of(card, VERSIONS.chosen("hermes"))
    assert (interface.url, interface.protocol_binding, dialect) == (
        "http://127.0.0.1:1/a",
        "HTTP+JSON",
        HERMES,
    )
    assert interfaces_of(card)[0][1] is not HERMES
