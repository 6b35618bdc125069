"""A2A 0.3 on the wire, literally: what its specification and its SDKs write, and what is written for them."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge.a2a.model import operations
from bridge.a2a.model.errors import INVALID_PARAMS, TASK_NOT_FOUND, A2AError, task_not_found
from bridge.a2a.model.objects import (
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from bridge.a2a.model.operations import OPERATIONS
from bridge.a2a.model.push_objects import GETS_TASKS
from bridge.a2a.wire.spelling import NOTE
from bridge.a2a.wire.v0_3 import V0_3
from bridge.a2a.wire.v0_3_proto import V0_3Proto
from bridge.errors import PeerError
from tests.a2a.wire.test_generations import fields_at_fault

pytestmark = pytest.mark.proves("a2a03-6-objects")

RPC: Final = V0_3()
REST: Final = V0_3Proto()
PIXEL: Final = base64.b64encode(b"\x89PNG\r\n").decode()
ASKED: Final = SendMessageRequest.model_validate(
    {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}}
)
TWICE: Final = base64.b64encode(PIXEL.encode()).decode()

PARTS: Final[list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = [
    ({"text": "a"}, {"kind": "text", "text": "a"}, {"text": "a"}),
    (
        {"text": "a", "metadata": {"m": 1}},
        {"kind": "text", "text": "a", "metadata": {"m": 1}},
        {"text": "a", "metadata": {"m": 1}},
    ),
    (
        {"text": "a", "mediaType": "text/html", "filename": "a.html"},
        {
            "kind": "text",
            "text": "a",
            "metadata": {NOTE: {"filename": "a.html", "mediaType": "text/html"}},
        },
        {"text": "a", "metadata": {NOTE: {"filename": "a.html", "mediaType": "text/html"}}},
    ),
    (
        {"raw": PIXEL, "mediaType": "image/png", "filename": "a.png"},
        {"kind": "file", "file": {"bytes": PIXEL, "mimeType": "image/png", "name": "a.png"}},
        {"file": {"fileWithBytes": PIXEL, "mimeType": "image/png", "name": "a.png"}},
    ),
    (
        {"url": "https://example.com/a"},
        {"kind": "file", "file": {"uri": "https://example.com/a"}},
        {"file": {"fileWithUri": "https://example.com/a"}},
    ),
    ({"data": {"a": 1}}, {"kind": "data", "data": {"a": 1}}, {"data": {"data": {"a": 1}}}),
    (
        {"data": [1]},
        {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}},
        {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}},
    ),
    (
        {"data": None},
        {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}},
        {"data": {"data": {"value": None}}, "metadata": {"data_part_compat": True}},
    ),
]
"""A part as 1.0, as JSON-RPC of 0.3 and as HTTP+JSON of 0.3 have it."""


def message_of(*parts: dict[str, Any]) -> Message:
    """A message of the agent in these parts."""
    return Message.model_validate({"messageId": "m", "role": "ROLE_AGENT", "parts": [*parts]})


def answered(dialect: V0_3, message: Message) -> Any:
    """The answer that a message is."""
    return json.loads(dialect.result(operations.SEND_MESSAGE, SendMessageResponse(message=message)))


@pytest.mark.proves("map-unsaid")
@pytest.mark.parametrize(("part", "in_json", "in_proto"), PARTS)
def test_each_kind_of_part_is_written_and_read(
    part: dict[str, Any], in_json: dict[str, Any], in_proto: dict[str, Any]
) -> None:
    message = message_of(part)
    written = {"kind": "message", "messageId": "m", "role": "agent", "parts": [in_json]}
    assert answered(RPC, message) == written
    assert RPC.answer_from(operations.SEND_MESSAGE, written).message == message
    written = {"message": {"messageId": "m", "role": "ROLE_AGENT", "content": [in_proto]}}
    assert answered(REST, message) == written
    assert REST.answer_from(operations.SEND_MESSAGE, written).message == message


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ({"text": "a"}, {"text": "a"}),
        ({"kind": "text", "text": "a", "metadata": None, "data": None, "file": None}, {"text": "a"}),
        (
            {"kind": "file", "file": {"bytes": PIXEL, "uri": None, "mimeType": None, "name": None}},
            {"raw": PIXEL},
        ),
        (
            {"file": {"uri": "https://example.com", "name": "a"}},
            {"url": "https://example.com", "filename": "a"},
        ),
        ({"kind": "data", "data": {"value": 1}}, {"data": {"value": 1}}),
        (
            {"kind": "data", "data": {"kind": "text"}, "metadata": {}},
            {"data": {"kind": "text"}, "metadata": {}},
        ),
        ({"raw": PIXEL, "mediaType": "image/png"}, {"raw": PIXEL, "mediaType": "image/png"}),
    ],
)
def test_parts_are_read_as_others_write_them(written: dict[str, Any], part: dict[str, Any]) -> None:
    said = {"kind": "message", "messageId": "m", "role": "agent", "parts": [written]}
    assert RPC.answer_from(operations.SEND_MESSAGE, said).message == message_of(part)


@pytest.mark.parametrize(
    ("written", "media_type", "raw"),
    [
        (PIXEL, "image/png", PIXEL),
        (TWICE, "image/png", PIXEL),
        (TWICE, "", PIXEL),
        (base64.b64encode(b"aGVsbG8=").decode(), "text/plain", "aGVsbG8="),
        (base64.b64encode(b"test").decode(), "text/plain", base64.b64encode(b"test").decode()),
        (base64.b64encode(b"{}").decode(), "application/json", base64.b64encode(b"{}").decode()),
        ("", "image/png", ""),
        ("-_8=", "image/png", "-_8="),
    ],
)
def test_bytes_that_a2a_sdk_encodes_twice_are_read_once(written: str, media_type: str, raw: str) -> None:
    file = {"fileWithBytes": written, **({"mimeType": media_type} if media_type else {})}
    said = {"message": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"file": file}]}}
    message = REST.answer_from(operations.SEND_MESSAGE, said).message
    assert message is not None
    assert message.parts[0].raw == raw


def test_the_names_of_the_protos_own_fields_are_read() -> None:
    """As a2a-sdk 1.3.0 writes to an agent of 0.3."""
    said = {
        "request": {
            "message_id": "m",
            "context_id": "c",
            "role": "ROLE_USER",
            "content": [
                {"file": {"file_with_uri": "https://example.com", "mime_type": "text/plain"}},
                {"data": {"data": {"message_id": 1, "request": 2}}},
            ],
            "metadata": {"task_id": 3},
        },
        "configuration": {"accepted_output_modes": ["text/plain"], "history_length": 2},
    }
    assert REST.request_from(operations.SEND_MESSAGE, said) == SendMessageRequest.model_validate(
        {
            "message": {
                "messageId": "m",
                "contextId": "c",
                "role": "ROLE_USER",
                "parts": [
                    {"url": "https://example.com", "mediaType": "text/plain"},
                    {"data": {"message_id": 1, "request": 2}},
                ],
                "metadata": {"task_id": 3},
            },
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 2,
                "returnImmediately": True,
            },
        }
    )


BLOCKING: Final[list[tuple[dict[str, Any], bool, bool]]] = [
    ({}, True, False),
    ({"configuration": None}, True, False),
    ({"configuration": {}}, True, False),
    ({"configuration": {"blocking": None}}, True, False),
    ({"configuration": {"blocking": True}}, True, True),
    ({"configuration": {"blocking": False}}, False, False),
]
"""What is asked, and whether it blocks over JSON-RPC, and over HTTP+JSON."""


@pytest.mark.parametrize(("asked", "rpc", "rest"), BLOCKING)
def test_a_message_blocks_by_the_default_of_each_binding(
    asked: dict[str, Any], rpc: bool, rest: bool
) -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "a"}]}
    proto = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "a"}]}
    for dialect, said, blocks in ((RPC, message, rpc), (REST, proto, rest)):
        request = dialect.request_from(operations.SEND_MESSAGE, {"message": said, **asked})
        assert request.configuration is not None
        assert request.configuration.return_immediately is not blocks
        assert request.message.parts[0].text == "a"


def test_a_message_says_its_output_modes_since_0_2_requires_them() -> None:
    """As a2a-sdk 0.3.26 does; a2a-sdk 0.2.5 refuses a configuration without them."""
    request = SendMessageRequest.model_validate(
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}}
    )
    for dialect in (RPC, REST):
        params = dialect.params_of(operations.SEND_MESSAGE, request)
        assert params["configuration"] == {"acceptedOutputModes": [], "blocking": True}
        read = dialect.request_from(operations.SEND_MESSAGE, params)
        assert read.configuration is not None
        assert read.configuration.accepted_output_modes is None


def test_a_blocking_that_is_not_a_boolean_is_refused_by_its_name() -> None:
    with pytest.raises(A2AError, match=r"configuration\.blocking: must be true or false") as refused:
        RPC.request_from(operations.SEND_MESSAGE, {"message": {}, "configuration": {"blocking": "yes"}})
    assert refused.value.kind is INVALID_PARAMS


@pytest.mark.parametrize(("dialect", "name"), [(RPC, "pushNotificationConfig"), (REST, "pushNotification")])
def test_a_webhook_in_a_message_is_the_same_both_ways(dialect: V0_3, name: str) -> None:
    push = {"url": "https://hooks.example.com", "authentication": {"scheme": "Bearer", "credentials": "x"}}
    request = SendMessageRequest.model_validate(
        {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]},
            "configuration": {"taskPushNotificationConfig": push, "returnImmediately": True},
        }
    )
    params = dialect.params_of(operations.SEND_MESSAGE, request)
    assert params["configuration"] == {
        "acceptedOutputModes": [],
        "blocking": False,
        name: {**push, "authentication": {"schemes": ["Bearer"], "credentials": "x"}},
    }
    read = dialect.request_from(operations.SEND_MESSAGE, params).to_object()
    assert read["configuration"]["taskPushNotificationConfig"].pop(GETS_TASKS) is True
    assert read == request.to_object()


@pytest.mark.parametrize(("dialect", "name"), [(RPC, "pushNotificationConfig"), (REST, "pushNotification")])
@pytest.mark.parametrize(
    "nothing", [{}, {"schemes": []}, {"schemes": [], "credentials": ""}, {"schemes": None}]
)
def test_a_webhook_whose_authentication_names_no_scheme_asks_for_none(
    dialect: V0_3, name: str, nothing: Any
) -> None:
    message = {"messageId": "m", "role": "ROLE_USER" if name == "pushNotification" else "user"}
    push = {"url": "https://hooks.example.com", "token": "t", "authentication": nothing}
    text: Any = {"kind": "text", "text": "a"} if dialect is RPC else {"text": "a"}
    said = {"message": {**message, dialect.spelling.parts_name: [text]}, "configuration": {name: push}}
    request = dialect.request_from(operations.SEND_MESSAGE, said)
    assert isinstance(request, SendMessageRequest)
    assert request.configuration is not None
    read = request.configuration.task_push_notification_config
    assert read is not None
    assert (read.url, read.token, read.authentication) == ("https://hooks.example.com", "t", None)


def test_all_schemes_of_a_webhook_come_back() -> None:
    push = {"url": "https://hooks.example.com", "authentication": {"schemes": ["Bearer", "Basic"]}}
    said: Any = {"taskId": "t", "pushNotificationConfig": push}
    read = RPC.request_from(operations.CREATE_PUSH_CONFIG, said)
    assert isinstance(read, TaskPushNotificationConfig)
    assert read.authentication is not None
    assert read.authentication.scheme == "Bearer"
    kept = {name: item for name, item in read.to_object().items() if name != GETS_TASKS}
    assert RPC.push_spelling.answer(operations.CREATE_PUSH_CONFIG, kept) == said


@pytest.mark.parametrize("name", ["historyLength", "history_length"])
def test_the_history_length_has_two_names_over_http(name: str) -> None:
    said = REST.routes.params_from(operations.GET_TASK, {"id": "t"}, [(name, "1")], {})
    read = REST.request_from(operations.GET_TASK, said)
    assert isinstance(read, GetTaskRequest)
    assert read.history_length == 1


@pytest.mark.parametrize(("dialect", "name"), [(RPC, "pushNotificationConfig"), (REST, "pushNotification")])
def test_an_invalid_webhook_is_refused_by_its_name(dialect: V0_3, name: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}
    with pytest.raises(A2AError) as refused:
        dialect.request_from(operations.SEND_MESSAGE, {"message": message, "configuration": {name: "no"}})
    assert fields_at_fault(dialect, refused.value) == [f"configuration.{name}"]


def task_of(status: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task as an agent of 0.3 writes it."""
    return {"kind": "task", "id": "t", "contextId": "c", "status": status, **more}


@pytest.mark.proves("map-unsaid")
@pytest.mark.parametrize("dialect", [RPC, REST])
@pytest.mark.parametrize("state", ["unknown", "TASK_STATE_UNSPECIFIED"])
def test_a_state_that_1_0_does_not_have_is_at_work_and_noted(dialect: V0_3, state: str) -> None:
    task = dialect.answer_from(operations.GET_TASK, task_of({"state": state}, metadata={"a": 1}))
    assert task.status.state is TaskState.WORKING
    assert task.metadata == {"a": 1, NOTE: {"state": state}}


def test_messages_and_artifacts_with_nothing_in_them_are_read() -> None:
    """0.3 asks for no part."""
    empty = {"kind": "message", "messageId": "m", "role": "agent", "parts": []}
    said = task_of(
        {"state": "completed", "message": empty},
        history=[empty],
        artifacts=[{"artifactId": "a", "parts": []}],
    )
    task = RPC.answer_from(operations.GET_TASK, said)
    assert (task.status.message, task.history, task.artifacts) == (None, (), ())
    answer = RPC.answer_from(operations.SEND_MESSAGE, empty)
    assert answer.message == message_of({"text": ""}), "an empty answer is one"


@pytest.mark.proves("a2a03-7.2.2-final")
def test_the_stream_of_the_specification_is_read_event_by_event() -> None:
    """A2A 0.3.0 section 9.3, where times have no zone."""
    about = {"taskId": "225d6247", "contextId": "05217e44"}
    events = [
        {
            "id": "225d6247",
            "contextId": "05217e44",
            "status": {"state": "submitted", "timestamp": "2025-04-02T16:59:25.331844"},
            "kind": "task",
            "metadata": {},
        },
        {
            **about,
            "artifact": {"artifactId": "9b6934dd", "parts": [{"kind": "text", "text": "<section 1...>"}]},
            "append": False,
            "lastChunk": False,
            "kind": "artifact-update",
        },
        {
            **about,
            "status": {"state": "completed", "timestamp": "2025-04-02T16:59:35.331844"},
            "final": True,
            "kind": "status-update",
        },
    ]
    reader = RPC.reader(operations.SEND_STREAMING_MESSAGE, ASKED)
    assert [one.to_object() for event in events for one in reader.read(event)] == [
        {
            "task": {
                "id": "225d6247",
                "contextId": "05217e44",
                "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": "2025-04-02T16:59:25.331844Z"},
                "metadata": {},
            }
        },
        {
            "artifactUpdate": {
                **about,
                "artifact": {"artifactId": "9b6934dd", "parts": [{"text": "<section 1...>"}]},
                "append": False,
                "lastChunk": False,
            }
        },
        {
            "statusUpdate": {
                **about,
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2025-04-02T16:59:35.331844Z"},
            }
        },
    ]


@pytest.mark.proves("a2a03-7.2.2-final")
@pytest.mark.parametrize("last", [False, True])
def test_an_update_says_whether_it_is_the_last(last: bool) -> None:
    event = StreamResponse.model_validate(
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_CANCELED"}}}
    ).to_json()
    about = {"taskId": "t", "contextId": "c", "final": last}
    [in_json] = RPC.writer(operations.SUBSCRIBE_TO_TASK).write(event, last=last)
    assert json.loads(in_json) == {**about, "kind": "status-update", "status": {"state": "canceled"}}
    [in_proto] = REST.writer(operations.SUBSCRIBE_TO_TASK).write(event, last=last)
    assert json.loads(in_proto) == {"statusUpdate": {**about, "status": {"state": "TASK_STATE_CANCELLED"}}}


@pytest.mark.proves("a2a03-3.2.1-json-rpc", "a2a03-3.2.3-rest")
def test_each_operation_but_the_list_has_a_method_and_a_path() -> None:
    known = set(OPERATIONS) - {operations.LIST_TASKS}
    assert {operation for operation in OPERATIONS if operation in RPC.methods.values()} == known
    assert {one.operation for one in REST.routes.routes} == known
    assert (REST.methods, list(RPC.routes.routes)) == ({}, [])


def test_an_operation_that_0_3_does_not_have_is_an_error() -> None:
    with pytest.raises(PeerError, match=r"the agent speaks A2A 0\.3, which has no ListTasks"):
        RPC.method_of(operations.LIST_TASKS)
    with pytest.raises(PeerError, match=r"the agent speaks A2A 0\.3, which has no ListTasks"):
        REST.target_of(operations.LIST_TASKS, ListTasksRequest().to_object())


@pytest.mark.proves("a2a03-3.2.3-rest")
def test_a_task_is_read_subscribed_to_and_cancelled_by_its_path() -> None:
    params = REST.params_of(operations.GET_TASK, GetTaskRequest(id="t/1", history_length=2))
    got = REST.target_of(operations.GET_TASK, params)
    assert (got.verb, got.path, got.query) == ("GET", "/v1/tasks/t%2F1", {"historyLength": "2"})
    asked = {operation: REST.target_of(operation, {"id": "t"}) for operation in (_CANCEL, _SUBSCRIBE)}
    assert (asked[_CANCEL].verb, asked[_CANCEL].path) == ("POST", "/v1/tasks/t:cancel")
    assert (asked[_SUBSCRIBE].verb, asked[_SUBSCRIBE].path) == ("GET", "/v1/tasks/t:subscribe")


_CANCEL: Final = operations.CANCEL_TASK
_SUBSCRIBE: Final = operations.SUBSCRIBE_TO_TASK


@pytest.mark.proves("a2a03-8-errors")
def test_an_error_is_written_with_its_code_in_both_bindings() -> None:
    error = task_not_found("t")
    said = {"code": -32001, "message": str(error), "data": error.details()}
    assert RPC.jsonrpc_error(error) == said
    assert json.loads(REST.http_error(error)) == said


@pytest.mark.proves("a2a03-8-errors")
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, {"message": "Task not found"}, -32001),
        (409, {"message": "Task cannot be canceled"}, -32002),
        (501, {"message": "This operation is not supported"}, -32004),
        (422, {"message": "Invalid parameters"}, -32602),
        (404, {"code": -32001, "message": "Task not found"}, -32001),
        (400, {"code": -32002, "message": "It has ended", "data": [{"reason": "TASK_NOT_FOUND"}]}, -32001),
        (404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "No"}}, -32001),
        (503, {"message": "Service Unavailable"}, None),
        (401, {"message": "Unauthorized"}, None),
        (404, {"detail": "Not Found"}, None),
        (404, "Not Found", None),
        (200, {"message": {"messageId": "m"}}, None),
        (200, {"id": "t", "code": 1}, None),
    ],
)
def test_an_error_is_read_by_its_code_else_by_its_status(status: int, body: Any, code: int | None) -> None:
    refusal = REST.http_refusal(body, status)
    assert (refusal and refusal.code) == code


@pytest.mark.proves("a2a03-8-errors")
def test_an_error_over_json_rpc_is_read_with_any_data() -> None:
    for data in (None, "text", {"a": 1}, [1, {"b": 2}]):
        refusal = RPC.jsonrpc_refusal({"code": -32001, "message": "Task not found", "data": data})
        assert (refusal.code, refusal.message, refusal.reason) == (-32001, "Task not found", None)
    said = RPC.jsonrpc_refusal({"code": 1, "message": "x", "data": task_not_found("t").details()})
    assert (said.code, said.reason) == (TASK_NOT_FOUND.jsonrpc_code, TASK_NOT_FOUND.reason)


def test_a_task_in_the_proto_form_notes_values_that_its_reader_refuses() -> None:
    task = Task.model_validate(
        {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_WORKING"},
            "history": [
                {
                    "messageId": "m",
                    "role": "ROLE_USER",
                    "parts": [{"text": "a", "strange": 1}],
                    "referenceTaskIds": ["r"],
                }
            ],
        }
    )
    written = json.loads(REST.result(operations.GET_TASK, task))
    assert written["history"] == [
        {
            "messageId": "m",
            "role": "ROLE_USER",
            "content": [{"text": "a", "metadata": {NOTE: {"strange": 1}}}],
            "metadata": {NOTE: {"referenceTaskIds": ["r"]}},
        }
    ]
    assert REST.answer_from(operations.GET_TASK, written) == task


NAMES: Final = (
    *("message", "request", "parts", "content", "file", "data", "text", "kind", "metadata", "configuration"),
    *("blocking", "status", "state", "role", "history", "artifacts", "artifact", "taskId", "id", "error"),
    *("statusUpdate", "artifactUpdate", "task", "messageId", "message_id", "authentication", "schemes", NOTE),
    *("pushNotificationConfig", "pushNotification", "fileWithBytes", "bytes", "value", "data_part_compat"),
)
ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "user", "text", "working", "AAEC"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


@pytest.mark.proves("a2a03-8-errors")
@given(value=ANYTHING)
def test_whatever_is_sent_is_read_or_refused(value: Any) -> None:
    for dialect in (RPC, REST):
        for operation in (operations.SEND_MESSAGE, operations.GET_TASK):
            with suppress(A2AError):
                dialect.request_from(operation, value)
            with suppress(ValidationError):
                dialect.answer_from(operation, value)
        with suppress(ValidationError):
            dialect.reader(operations.SEND_STREAMING_MESSAGE, ASKED).read(value)
        dialect.http_refusal(value, 404)
