"""Each pair of generations and bindings, through the core: the other side gets the same values.

A script is told in the words of `model`. The client's dialect writes it, the bridge reads it and writes it to an agent
of the other generation, and back. Nothing may be lost on any way, whatever the generation has words for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

import pytest
from pydantic import ValidationError

from bridge.a2a.model import operations
from bridge.a2a.model.errors import (
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    A2AError,
    Violation,
    invalid_params,
    task_has_ended,
    task_not_cancelable,
)
from bridge.a2a.model.objects import (
    HTTP_JSON,
    GetTaskRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.reading import ExchangeReading
from bridge.a2a.wire.versions import VERSIONS

pytestmark = pytest.mark.proves("map-generations")

HERMES: Final = VERSIONS.chosen("hermes").current
STREAMING: Final = [
    dialect
    for version, binding in product(VERSIONS.names, ("JSONRPC", "HTTP+JSON"))
    if (dialect := VERSIONS.find(version, binding)) is not None
]
SPOKEN: Final = [*STREAMING, HERMES]


def pairs_of(ones: Sequence[Dialect], others: Sequence[Dialect]) -> list[Any]:
    """Each pair, by its name."""
    return [
        pytest.param(
            one, other, id=f"{one.version} {one.bindings[0]} to {other.version} {other.bindings[-1]}"
        )
        for one, other in product(ones, others)
    ]


PAIRS: Final = pairs_of(SPOKEN, SPOKEN)

PARTS: Final[list[dict[str, Any]]] = [
    {"text": "plain"},
    {"text": "", "mediaType": "text/html", "filename": "a.html", "metadata": {"m": {"deep": [None]}}},
    {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"},
    {"raw": "aGVsbG8=", "mediaType": "text/plain"},
    {"raw": ""},
    {"url": "https://example.com/a?b=c", "metadata": {"kind": "file"}},
    {"data": {"kind": "data", "data": {"data": 1}}},
    {"data": {"data": {"x": 1}}},
    {"data": {"value": 1}, "mediaType": "application/x"},
    {"data": None},
    {"data": [1, "2", None, {}], "metadata": {"m": 1}},
    {"data": "text", "filename": "f"},
    {"data": False},
    {"text": "with more", "strange": {"kept": True}},
]
MESSAGE: Final = {
    "messageId": "m-1",
    "contextId": "c-1",
    "taskId": "t-1",
    "role": "ROLE_USER",
    "parts": PARTS,
    "metadata": {"state": "canceled", "n": None},
    "extensions": ["urn:x"],
    "referenceTaskIds": ["t-0"],
}
SAID: Final = {**MESSAGE, "messageId": "m-2", "role": "ROLE_AGENT", "strange": [1]}
TIME: Final = "2026-01-31T12:00:00.000Z"


def task_in(state: str) -> dict[str, Any]:
    """A task with everything that one may have."""
    return {
        "id": "t-1",
        "contextId": "c-1",
        "status": {"state": state, "message": SAID, "timestamp": TIME},
        "artifacts": [
            {"artifactId": "a-1", "name": "n", "description": "d", "parts": PARTS, "metadata": {"x": 1}},
            {"artifactId": "a-2", "parts": [{"text": "t"}], "extensions": ["urn:x"], "strange": "kept"},
        ],
        "history": [MESSAGE, SAID],
        "metadata": {"kind": "task", "parts": [{"kind": "text"}]},
    }


EVENTS: Final[list[dict[str, Any]]] = [
    {"task": task_in("TASK_STATE_SUBMITTED")},
    {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}},
    {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "append": True,
            "lastChunk": False,
            "metadata": {"a": 1},
            "artifact": {"artifactId": "a-1", "parts": PARTS},
        }
    },
    {"message": SAID},
    {
        "statusUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "metadata": {"final": 3},
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": SAID, "timestamp": TIME},
        }
    },
]


ASKED: Final[dict[Any, Any]] = {
    operations.SEND_STREAMING_MESSAGE: SendMessageRequest.model_validate({"message": MESSAGE}),
    operations.SUBSCRIBE_TO_TASK: SubscribeToTaskRequest(id="t-1"),
}


def heard(dialect: Dialect, written: bytes) -> Any:
    """JSON as it arrives."""
    value = json.loads(written)
    assert dialect.version != "0.3" or b'"returnImmediately"' not in written
    return value


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("configuration", [{}, {"returnImmediately": True}, {"returnImmediately": False}])
def test_a_message_arrives_as_it_was_sent(
    one: Dialect, other: Dialect, configuration: dict[str, Any]
) -> None:
    asked = {"acceptedOutputModes": ["text/plain"], "historyLength": 0, **configuration}
    said = SendMessageRequest.model_validate(
        {"message": MESSAGE, "configuration": asked, "metadata": {"r": 1}}
    )
    request = said
    for dialect in (one, other):
        for operation in (operations.SEND_MESSAGE, operations.SEND_STREAMING_MESSAGE):
            params = heard(dialect, json.dumps(dialect.params_of(operation, request)).encode())
            request = dialect.request_from(operation, params)
    assert request.configuration is not None
    assert bool(request.configuration.return_immediately) is bool(asked.get("returnImmediately"))
    same = {"configuration": said.configuration}
    assert request.model_copy(update=same) == said


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.smoke("1.0 JSONRPC to *", "* to 1.0 GRPC0")
def test_a_task_comes_back_as_the_agent_gave_it(one: Dialect, other: Dialect) -> None:
    for state in TaskState:
        given = Task.model_validate(task_in(state.value))
        task, answer = given, SendMessageResponse(task=given)
        for dialect in (other, one):
            for operation in (operations.GET_TASK, operations.CANCEL_TASK):
                task = dialect.answer_from(operation, heard(dialect, dialect.result(operation, task)))
            answer = dialect.answer_from(
                operations.SEND_MESSAGE, heard(dialect, dialect.result(operations.SEND_MESSAGE, answer))
            )
        assert (task, answer) == (given, SendMessageResponse(task=given)), state


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_message_in_answer_comes_back_as_the_agent_gave_it(one: Dialect, other: Dialect) -> None:
    given = SendMessageResponse.model_validate({"message": SAID})
    answer = given
    for dialect in (other, one):
        written = dialect.result(operations.SEND_MESSAGE, answer)
        answer = dialect.answer_from(operations.SEND_MESSAGE, heard(dialect, written))
    assert answer == given


@pytest.mark.parametrize(("one", "other"), pairs_of(STREAMING, STREAMING))
@pytest.mark.parametrize(
    "operation", [operations.SEND_STREAMING_MESSAGE, operations.SUBSCRIBE_TO_TASK], ids=str
)
def test_a_stream_comes_back_as_the_agent_gave_it(one: Dialect, other: Dialect, operation: Any) -> None:
    given = [StreamResponse.model_validate(event) for event in EVENTS]
    events = given
    for dialect in (other, one):
        writer, reader = dialect.writer(operation), dialect.reader(operation, ASKED[operation])
        texts = [
            text
            for at, event in enumerate(events, 1)
            for text in writer.write(event.to_json(), last=at == len(events))
        ]
        events = [event for text in texts for event in reader.read(heard(dialect, text))]
    assert events == given


def passed(one: Dialect, other: Dialect, given: list[StreamResponse]) -> list[StreamResponse]:
    """The events of a subscription, as one hears them of another."""
    events = given
    for dialect in (other, one):
        operation = operations.SUBSCRIBE_TO_TASK
        writer, reader = dialect.writer(operation), dialect.reader(operation, ASKED[operation])
        texts = [
            text
            for at, event in enumerate(events, 1)
            for text in writer.write(event.to_json(), last=at == len(events))
        ]
        events = [event for text in texts for event in reader.read(heard(dialect, text))]
    return events


@pytest.mark.parametrize(("one", "other"), [*pairs_of([HERMES], SPOKEN), *pairs_of(STREAMING, [HERMES])])
@pytest.mark.parametrize("state", [state.value for state in TaskState])
def test_a_stream_of_hermes_has_each_status_and_no_artifacts(
    one: Dialect, other: Dialect, state: str
) -> None:
    task = task_in(state)
    about = {"taskId": "t-1", "contextId": "c-1"}
    last = {**about, "metadata": {"final": 3}, "status": task["status"]}
    given = [
        {"task": task},
        EVENTS[2],
        {"statusUpdate": {**about, "status": {"state": "TASK_STATE_WORKING"}}},
        {"statusUpdate": last},
    ]
    said = {**about, "status": task["status"], "metadata": task["metadata"]}
    assert passed(one, other, [StreamResponse.model_validate(event) for event in given]) == [
        StreamResponse.model_validate({"statusUpdate": update})
        for update in (said, given[2]["statusUpdate"], last)
    ]


@pytest.mark.parametrize("dialect", SPOKEN, ids=lambda one: f"{one.version} {one.bindings[0]}")
@pytest.mark.parametrize("history_length", [None, 0, 3])
def test_a_task_is_asked_for_in_each_generation(dialect: Dialect, history_length: int | None) -> None:
    request = GetTaskRequest(id="t-1", history_length=history_length)
    params = dialect.params_of(operations.GET_TASK, request)
    assert dialect.request_from(operations.GET_TASK, params) == request


def fields_at_fault(dialect: Dialect, error: A2AError) -> list[Any]:
    """The invalid fields in an error as this dialect writes it."""
    said: Any = dialect.jsonrpc_error(error)
    return [one["field"] for detail in said["data"] for one in detail.get("fieldViolations", ())]


_PUSH: Final = A2AError(
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    "Leave out configuration.taskPushNotificationConfig",
    names=("configuration.taskPushNotificationConfig",),
)
_ENDED: Final = Task.model_validate(
    {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_CANCELED"}, "metadata": {}}
)
_CONTEXT: Final = invalid_params(
    Violation("message.contextId", "is not the context of message.taskId"), names=("message.taskId",)
)
_ROLE: Final = invalid_params(Violation("message.role", "must be ROLE_USER"), names=("ROLE_USER",))
_CURRENT: Final = (
    "Leave out configuration.taskPushNotificationConfig",
    "The task has already ended (TASK_STATE_CANCELED)",
    "The task has ended (TASK_STATE_CANCELED); get it with GetTask",
    "message.contextId: is not the context of message.taskId",
    "message.role: must be ROLE_USER",
)
_WORDS: Final = {
    "1.0 JSONRPC": _CURRENT,
    "1.0 HTTP+JSON": _CURRENT,
    "0.3 JSONRPC": (
        "Leave out configuration.pushNotificationConfig",
        "The task has already ended (canceled)",
        "The task has ended (canceled); get it with tasks/get",
        "message.contextId: is not the context of message.taskId",
        "message.role: must be user",
    ),
    "0.3 HTTP+JSON": (
        "Leave out configuration.pushNotification",
        "The task has already ended (TASK_STATE_CANCELLED)",
        "The task has ended (TASK_STATE_CANCELLED); get it with GetTask",
        "message.contextId: is not the context of message.taskId",
        "message.role: must be ROLE_USER",
    ),
    "0.1 JSONRPC": (
        "Leave out pushNotification",
        "The task has already ended (canceled)",
        "The task has ended (canceled); get it with tasks/get",
        "sessionId: is not the context of id",
        "message.role: must be user",
    ),
}


@pytest.mark.parametrize("said", _WORDS)
def test_an_error_names_states_fields_and_operations_as_its_generation_does(said: str) -> None:
    version, binding = said.split()
    dialect = VERSIONS.find(version, binding)
    assert dialect is not None
    errors = (_PUSH, task_not_cancelable(_ENDED), task_has_ended(_ENDED), _CONTEXT, _ROLE)
    written: list[Any] = [dialect.jsonrpc_error(error) for error in errors]
    messages = tuple(one["message"].removeprefix("Invalid parameters: ") for one in written)
    assert messages == _WORDS[said]
    [violation] = written[3]["data"][-1]["fieldViolations"]
    assert f"{violation['field']}: {violation['description']}" == _WORDS[said][3]


def _with_in_artifact(value: Any) -> dict[str, Any]:
    return {"artifacts": [{"artifactId": "a", "index": 0, "parts": value, "content": value}]}


_APPENDED: Final = {"artifactId": "a", "index": 0, "append": True, "parts": ["y"]}


@pytest.mark.proves("map-agent-read-alone")
@pytest.mark.parametrize("dialect", SPOKEN, ids=lambda one: f"{one.version} {one.bindings[0]}")
@pytest.mark.parametrize(
    ("wrong", "left"),
    [
        ({"artifacts": ["x"]}, []),
        ({"artifacts": "x"}, []),
        ({"artifacts": [{"artifactId": "a", "index": 0, "parts": [{"text": "x"}]}, "x"]}, ["x"]),
        ({"artifacts": [{"artifactId": "a", "index": 0, "parts": [{"text": "x"}]}, _APPENDED]}, ["x", "y"]),
        ({"artifacts": [{"artifactId": "a", "index": 0, "parts": "x"}, {**_APPENDED, "parts": []}]}, ["x"]),
        (_with_in_artifact([{"text": "x"}, "y"]), ["x", "y"]),
        (_with_in_artifact({"text": "x"}), ["x"]),
        ({"history": ["x"]}, []),
        ({"history": {}}, []),
        ({"metadata": "x"}, []),
        ({"status": "x"}, []),
    ],
    ids=str,
)
def test_a_value_of_a_wrong_type_loses_no_other_value(
    dialect: Dialect, wrong: dict[str, Any], left: list[str]
) -> None:
    task = {"id": "t", "contextId": "c", "status": {"state": dialect_state(dialect)}, **wrong}
    reader = dialect.reader(operations.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="t"))
    reads: list[Callable[[], Task | None]] = [
        lambda: dialect.answer_from(operations.GET_TASK, task),
        lambda: dialect.answer_from(operations.SEND_MESSAGE, task).task,
    ]
    is_update = dialect.version == "0.1" and {"artifacts", "history"}.isdisjoint(wrong)
    if dialect.version != "hermes" and not is_update:  # whose streams tell the status alone
        reads.append(lambda: reader.read(task)[0].task)
    for read in reads:
        found = read()
        assert found is not None
        assert (found.id, found.context_id) == ("t", "c")
        parts = [part.text for artifact in found.artifacts or () for part in artifact.parts]
        assert parts == left


def dialect_state(dialect: Dialect) -> Any:
    """A state as this dialect writes it."""
    written = dialect.result(operations.GET_TASK, Task.model_validate(task_in("TASK_STATE_COMPLETED")))
    return json.loads(written)["status"]["state"]


@pytest.mark.parametrize("dialect", SPOKEN, ids=lambda one: f"{one.version} {one.bindings[0]}")
def test_fields_beside_a_wrapped_answer_are_kept(dialect: Dialect) -> None:
    task = {"id": "t", "contextId": "c", "status": {"state": dialect_state(dialect)}}
    read = dialect.answer_from(operations.GET_TASK, {"task": task, "strange": [1]})
    assert read.to_object()["strange"] == [1]
    answer = dialect.answer_from(operations.SEND_MESSAGE, {"task": task, "message": None})
    assert answer.task is not None
    # These two have tasks alone, and read what is beside one as its field.
    if dialect.version not in ("0.1", "hermes"):
        reading = ExchangeReading()
        answer = dialect.answer_from(operations.SEND_MESSAGE, {"task": task, "message": "hello"}, reading)
        assert answer.task is not None
        assert reading.notes == ['message cannot be read: "hello"']


_EMPTY_SIBLINGS: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = [
    ({"text": "fine", "raw": None, "url": None, "data": None, "file": None}, {"text": "fine"}),
    ({"text": "fine", "raw": "", "url": ""}, {"text": "fine"}),
    ({"kind": "text", "text": "fine", "file": None, "data": None}, {"text": "fine"}),
    ({"kind": "data", "data": {"a": 1}, "text": ""}, {"data": {"a": 1}}),
    ({"kind": "data", "data": {"a": 1}, "text": None, "file": None}, {"data": {"a": 1}}),
]


@pytest.mark.proves("map-agent-read-alone")
@pytest.mark.parametrize("dialect", SPOKEN, ids=lambda one: f"{one.version} {one.bindings[0]}")
@pytest.mark.parametrize(("written", "read"), _EMPTY_SIBLINGS, ids=str)
def test_empty_fields_beside_the_one_of_a_clients_part_are_none(
    dialect: Dialect, written: dict[str, Any], read: dict[str, Any]
) -> None:
    proto = dialect.version == "0.3" and dialect.bindings[0] == HTTP_JSON
    part = {**written, "data": {"data": written["data"]}} if proto and written.get("data") else written
    name = "content" if proto else "parts"
    message = {"messageId": "m", "role": "ROLE_USER" if proto else "user", name: [part]}
    params: dict[str, Any] = {"message": message, "id": "t"}
    if dialect.version == "1.0":
        message["role"] = "ROLE_USER"
    request = dialect.request_from(operations.SEND_MESSAGE, params)
    [found] = request.message.parts
    assert {key: found.to_object().get(key) for key in read} == read
    assert found.kind in read


def test_a_page_of_tasks_that_is_not_a_list_is_refused() -> None:
    current = VERSIONS.current
    assert current.answer_from(operations.LIST_TASKS, {}).tasks == ()
    with pytest.raises(ValidationError):
        current.answer_from(operations.LIST_TASKS, {"tasks": {"id": "t"}})


def _hybrid(*, is_current: bool, has_kinds: bool, is_wrapped: bool) -> dict[str, Any]:
    """A task, an update of its status and one of an artifact, as a hybrid writes them: with the enums of 1.0 or those
    before, with `kind` or without, bare or wrapped."""

    def kind(name: str) -> dict[str, str]:
        return {"kind": name} if has_kinds else {}

    said = {
        **kind("message"),
        "messageId": "m",
        "role": "ROLE_AGENT" if is_current else "agent",
        "parts": [{**kind("text"), "text": "Hi"}],
    }
    state = "TASK_STATE_INPUT_REQUIRED" if is_current else "input-required"
    status = {"state": state, "message": said, "timestamp": "2026-01-31T12:00:00.123456"}
    about = {"taskId": "t", "contextId": "c"}
    artifact = {"artifactId": "a", "parts": [{**kind("data"), "data": {"kind": "x"}}]}
    objects: dict[str, dict[str, Any]] = {
        "task": {**kind("task"), "id": "t", "contextId": "c", "status": status, "artifacts": [artifact]},
        "statusUpdate": {**kind("status-update"), **about, "status": status, "final": True},
        "artifactUpdate": {**kind("artifact-update"), **about, "artifact": artifact, "append": False},
        "message": {**said, "contextId": "c"},
    }
    return {name: {name: one} if is_wrapped else one for name, one in objects.items()}


HYBRIDS: Final = [
    pytest.param({"is_current": one, "has_kinds": two, "is_wrapped": three}, id=f"{one} {two} {three}")
    for one, two, three in product((True, False), repeat=3)
]
"""langgraph-api 0.16 has the enums of 1.0 and `kind`; fasta2a 2.1 wraps what it says with the words of 0.3."""


@pytest.mark.proves("map-liberal")
@pytest.mark.parametrize("dialect", SPOKEN[:4], ids=lambda one: f"{one.version} {one.bindings[0]}")
@pytest.mark.parametrize("form", HYBRIDS)
def test_a_hybrid_is_read_whatever_version_its_card_says(dialect: Dialect, form: dict[str, bool]) -> None:
    given = _hybrid(**form)
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}]}
    status = {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": said,
        "timestamp": "2026-01-31T12:00:00.123456Z",
    }
    artifact = {"artifactId": "a", "parts": [{"data": {"kind": "x"}}]}
    task = {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]}
    about = {"taskId": "t", "contextId": "c"}
    for operation in (operations.GET_TASK, operations.CANCEL_TASK):
        assert _known(dialect.answer_from(operation, given["task"]), task) == task
    for name, meant in (("task", task), ("message", {**said, "contextId": "c"})):
        answer = dialect.answer_from(operations.SEND_MESSAGE, given[name])
        held = answer.task or answer.message
        assert held is not None
        assert _known(held, meant) == meant
    reader = dialect.reader(operations.SEND_STREAMING_MESSAGE, ASKED[operations.SEND_STREAMING_MESSAGE])
    events = [one for name in given for one in reader.read(given[name])]
    for event, meant in zip(
        events,
        (
            task,
            {**about, "status": status},
            {**about, "artifact": artifact, "append": False},
            {**said, "contextId": "c"},
        ),
        strict=True,
    ):
        assert _known(event.payload, meant) == meant


def _known(held: Any, like: dict[str, Any]) -> Any:
    """An object without the fields that 1.0 does not know, which a reader of 1.0 keeps."""

    def bare(value: Any, like: Any) -> Any:
        if isinstance(value, dict) and isinstance(like, dict):
            return {name: bare(item, like.get(name)) for name, item in value.items() if name in like}
        if isinstance(value, list) and isinstance(like, list):
            return [bare(one, other) for one, other in zip(value, like, strict=True)]
        return value

    return bare(held.to_object(), like)
