"""The first generation on the wire, literally: what its text and its samples write, and what is written for them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from bridge.a2a.client.agent_card import card_from
from bridge.a2a.client.interfaces import interfaces_of
from bridge.a2a.model import operations
from bridge.a2a.model.errors import A2AError, task_not_found
from bridge.a2a.model.objects import (
    GetTaskRequest,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from bridge.a2a.model.task_names import beginning_of, name_of, named_id
from bridge.a2a.wire.spelling import NOTE
from bridge.a2a.wire.v0_1 import V0_1
from bridge.errors import PeerError
from tests.a2a.wire.test_generations import fields_at_fault

pytestmark = pytest.mark.proves("map-first-generation")

FIRST: Final = V0_1()
ASKED: Final = SendMessageRequest.model_validate(
    {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "tell me a joke"}]}}
)
CARD: Final[dict[str, Any]] = {
    "name": "Reimbursement Agent",
    "description": "This agent handles the reimbursement process for the employees",
    "url": "http://agents.example.com:10002/",
    "version": "1.0.0",
    "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False},
    "defaultInputModes": ["text", "text/plain"],
    "defaultOutputModes": ["text", "text/plain"],
    "skills": [{"id": "process", "name": "Process", "description": "Helps", "tags": ["money"]}],
}
"""As the samples serve it."""
OLDER_PLACE: Final = "http://agents.example.com:10002/.well-known/agent.json"


def read(**changes: Any) -> Any:
    return card_from(json.dumps({**CARD, **changes}).encode(), "here", OLDER_PLACE)[0]


@pytest.mark.parametrize(
    ("place", "changes", "version"),
    [
        (OLDER_PLACE, {}, "0.1"),
        ("http://a/.well-known/agent-card.json", {"authentication": {"schemes": ["Bearer"]}}, "0.1"),
        (OLDER_PLACE, {"security": []}, "0.3"),
        (OLDER_PLACE, {"protocolVersion": "0.2.5"}, "0.3"),
        (OLDER_PLACE, {"protocolVersion": "0.2.5", "authentication": {"schemes": []}}, "0.3"),
    ],
)
def test_a_card_tells_the_first_generation_by_its_authentication_or_its_place(
    place: str, changes: dict[str, Any], version: str
) -> None:
    card, _ = card_from(json.dumps({**CARD, **changes}).encode(), "here", place)
    [(interface, dialect)] = interfaces_of(card)
    assert (interface.url, dialect.version) == (CARD["url"], version)


@pytest.mark.proves("a2a01-5.1-card")
def test_schemes_of_a_card_are_read_if_their_name_is_sufficient() -> None:
    card = read(authentication={"schemes": ["Bearer", "OAuth2", "Basic"]})
    assert card.security_schemes == {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
    }


@pytest.mark.proves("a2a01-6.1-id")
def test_a_message_is_written_with_an_id_of_its_task_and_a_session() -> None:
    assert FIRST.params_of(operations.SEND_MESSAGE, ASKED) == {
        "id": "m-1",
        "sessionId": "m-1",
        "historyLength": 2**31 - 1,
        "message": {
            "role": "user",
            "parts": [{"type": "text", "text": "tell me a joke"}],
            "metadata": {NOTE: {"messageId": "m-1"}},
        },
    }
    message = ASKED.message.model_copy(update={"task_id": "t", "context_id": "c"})
    params = FIRST.params_of(operations.SEND_MESSAGE, ASKED.model_copy(update={"message": message}))
    assert (params["id"], params["sessionId"]) == ("t", "c")


@pytest.mark.proves("a2a01-6.5-parts")
def test_a_message_of_the_samples_client_is_read() -> None:
    """With null for what it does not say."""
    params = {
        "id": "t",
        "sessionId": "s",
        "message": {
            "role": "user",
            "parts": [
                {"type": "text", "text": "hi", "metadata": None},
                {
                    "type": "file",
                    "file": {"name": "a.png", "mimeType": "image/png", "bytes": "aGk=", "uri": None},
                    "metadata": None,
                },
                {"type": "data", "data": {"a": 1}, "metadata": None},
            ],
            "metadata": {"conversation_id": "s"},
        },
        "acceptedOutputModes": ["text"],
        "pushNotification": None,
        "historyLength": None,
        "metadata": {"conversation_id": "s"},
    }
    request = FIRST.request_from(operations.SEND_MESSAGE, params).to_object()
    message_id = request["message"].pop("messageId")  # type: ignore[union-attr, call-overload]
    assert message_id
    assert request == {
        "message": {
            "contextId": "s",
            "taskId": "t",
            "role": "ROLE_USER",
            "parts": [
                {"text": "hi"},
                {"raw": "aGk=", "mediaType": "image/png", "filename": "a.png"},
                {"data": {"a": 1}},
            ],
            "metadata": {"conversation_id": "s"},
        },
        "configuration": {"acceptedOutputModes": ["text"], "historyLength": 0},
        "metadata": {"conversation_id": "s"},
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"sessionId": 7}, "sessionId"),
        ({"historyLength": -1}, "historyLength"),
        ({"acceptedOutputModes": "text"}, "acceptedOutputModes"),
        ({"pushNotification": {}}, "pushNotification.url"),
        ({"message": None}, "message"),
        ({"message": {"role": "user", "parts": []}}, "message.parts"),
        (
            {"message": {"role": "user", "parts": [{"type": "file", "file": {"bytes": "?"}}]}},
            "message.parts.0.file.bytes",
        ),
    ],
)
def test_a_faulty_field_has_its_name_of_the_first_generation(changes: dict[str, Any], field: str) -> None:
    params = {"id": "t", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}, **changes}
    with pytest.raises(A2AError) as refused:
        FIRST.request_from(operations.SEND_MESSAGE, params)
    assert fields_at_fault(FIRST, refused.value) == [field]
    assert FIRST.jsonrpc_error(refused.value)["message"].startswith(f"Invalid parameters: {field}: ")  # type: ignore[union-attr]


@pytest.mark.proves("a2a01-6.5-parts", "a2a01-6.7-artifact", "a2a01-7.1-task")
def test_a_task_of_the_samples_server_is_read() -> None:
    """Which lists each piece that it sent, gives many the same place, and writes times without a zone."""
    given = {
        "id": "t",
        "sessionId": "s",
        "status": {
            "state": "input-required",
            "message": {"role": "agent", "parts": [{"type": "text", "text": "which?"}]},
            "timestamp": "2025-04-02T16:59:25.331844",
        },
        "artifacts": [
            {"parts": [{"type": "text", "text": "one "}], "index": 0, "append": False},
            {"parts": [{"type": "text", "text": "two"}], "index": 0, "append": True, "lastChunk": True},
            {"parts": [{"type": "text", "text": "other"}], "index": 0},
            {"name": "last", "parts": [], "index": 3},
        ],
        "history": [],
    }
    task = FIRST.answer_from(operations.GET_TASK, given)
    said = task.status.message
    assert said is not None
    assert (said.task_id, said.context_id, said.role.value) == ("t", "s", "ROLE_AGENT")
    assert task.status.timestamp == "2025-04-02T16:59:25.331844Z"
    assert [
        (one.artifact_id, one.name, [part.text for part in one.parts]) for one in task.artifacts or ()
    ] == [
        ("artifact-0", None, ["one two"]),
        ("artifact-0.1", None, ["other"]),
    ]
    again = FIRST.answer_from(operations.GET_TASK, json.loads(json.dumps(given)))
    assert again == task


@pytest.mark.proves("a2a01-7.2.1-events", "a2a01-6.7-artifact")
def test_a_stream_of_the_text_is_read_event_by_event() -> None:
    """A2A v0.1.0 section 9.2: no event says a session, so it is the one that was asked in."""
    events: list[dict[str, Any]] = [
        {"id": "m-1", "status": {"state": "working", "timestamp": "2024-03-15T10:05:01Z"}, "final": False},
        {
            "id": "m-1",
            "artifact": {"name": "MarsStory.txt", "index": 0, "parts": [{"type": "text", "text": "Unit"}]},
        },
        {
            "id": "m-1",
            "artifact": {
                "name": "MarsStory.txt",
                "index": 0,
                "append": True,
                "lastChunk": True,
                "parts": [{"type": "text", "text": " 734"}],
            },
        },
        {"id": "m-1", "status": {"state": "completed", "timestamp": "2024-03-15T10:05:05Z"}, "final": True},
    ]
    reader = FIRST.reader(operations.SEND_STREAMING_MESSAGE, ASKED)
    read = [one.to_object() for event in events for one in reader.read(event)]
    about = {"taskId": "m-1", "contextId": "m-1"}
    artifact = {"artifactId": "artifact-0", "name": "MarsStory.txt"}
    assert read == [
        {
            "statusUpdate": {
                **about,
                "status": {"state": "TASK_STATE_WORKING", "timestamp": "2024-03-15T10:05:01Z"},
            }
        },
        {"artifactUpdate": {**about, "artifact": {**artifact, "parts": [{"text": "Unit"}]}}},
        {
            "artifactUpdate": {
                **about,
                "append": True,
                "lastChunk": True,
                "artifact": {**artifact, "parts": [{"text": " 734"}]},
            }
        },
        {
            "statusUpdate": {
                **about,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2024-03-15T10:05:05Z"},
            }
        },
    ]


@pytest.mark.proves("a2a01-7.7-resubscribe")
def test_a_task_that_begins_a_stream_is_read_as_one() -> None:
    reader = FIRST.reader(operations.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="t"))
    [event] = reader.read({"id": "t", "sessionId": "s", "status": {"state": "unknown"}})
    assert event.task is not None
    assert (event.task.context_id, event.task.status.state.value) == ("s", "TASK_STATE_WORKING")
    assert event.task.metadata == {NOTE: {"state": "unknown"}}


@pytest.mark.proves("a2a01-7.2.1-events")
def test_a_stream_is_written_as_updates_alone() -> None:
    task = Task.model_validate(
        {
            "id": named_id("u", "t"),
            "contextId": "s",
            "status": {"state": "TASK_STATE_SUBMITTED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}]}],
        }
    )
    writer = FIRST.writer(operations.SEND_STREAMING_MESSAGE)
    [piece, status] = map(json.loads, writer.write(StreamResponse(task=task).to_json(), last=False))
    note = {NOTE: {"isSnapshot": True, "contextId": "s"}}
    assert piece == {
        "id": "t",
        "artifact": {
            "index": 0,
            "parts": [{"type": "text", "text": "x"}],
            "metadata": {NOTE: {"artifactId": "a"}},
        },
        "metadata": note,
    }
    assert status == {"id": "t", "status": {"state": "submitted"}, "final": False, "metadata": note}


@pytest.mark.parametrize("name", ["t", "a/b", "ü", "x" * 256, "u.as.dA"])
def test_a_name_stands_in_the_id_of_its_task(name: str) -> None:
    assert name_of(named_id("u", name)) == name
    assert len(named_id("0" * 36, name)) <= 512
    assert beginning_of(name) != beginning_of(f"{name} ")


@pytest.mark.parametrize("task_id", ["t", "u.as.=", "u.as.\N{SNOWMAN}", "u.as._w"])
def test_an_id_without_a_name_in_it_is_a_name(task_id: str) -> None:
    assert name_of(task_id) == task_id


@pytest.mark.proves("a2a01-8.1-errors")
def test_an_error_names_its_task_as_its_client_does() -> None:
    error = FIRST.jsonrpc_error(task_not_found(named_id("u", "t")))
    assert error["code"] == -32001
    assert error["data"][0]["metadata"] == {"taskId": "t"}  # type: ignore[index, call-overload]


def test_all_of_a_history_is_asked_for_by_a_number() -> None:
    params = FIRST.params_of(operations.GET_TASK, GetTaskRequest(id="t"))
    assert params == {"id": "t", "historyLength": 2**31 - 1}
    assert FIRST.request_from(operations.GET_TASK, {"id": "t"}).history_length == 0


def test_there_is_no_list_of_tasks() -> None:
    with pytest.raises(PeerError, match=r"the agent speaks A2A 0\.1, which has no ListTasks"):
        FIRST.method_of(operations.LIST_TASKS)
