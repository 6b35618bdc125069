"""The data model: which values are accepted, which are refused, and how they are written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import from_json

from bridge.a2a.model import objects, push_objects
from bridge.a2a.model.errors import Violation, violations_from
from bridge.a2a.model.objects import (
    AgentCard,
    Message,
    Part,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    milliseconds,
    text_of_parts,
    timestamp,
)

MESSAGE: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
TASK: dict[str, Any] = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
CARD: dict[str, Any] = {
    "name": "n",
    "description": "d",
    "supportedInterfaces": [{"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "version": "1",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["t"]}],
}

PARTS: list[tuple[Any, str]] = [
    ({"text": "hi"}, "text"),
    ({"text": ""}, "text"),
    ({"raw": "AAAA", "filename": "a", "mediaType": "image/png"}, "raw"),
    ({"raw": "_-8"}, "raw"),
    ({"raw": ""}, "raw"),
    ({"url": "https://example.com"}, "url"),
    *(({"data": value}, "data") for value in ({}, {"a": None}, [], [None], "", "text", 0, 1.5, False, None)),
    ({"data": None, "metadata": {"a": None, "b": {"c": None}}}, "data"),
]


@pytest.mark.proves("a2a-4.1.6-part", "a2a-5.5-names")
@pytest.mark.parametrize(("written", "kind"), PARTS)
def test_a_part_is_one_of_four_and_is_written_as_it_was_read(written: Any, kind: str) -> None:
    part = Part.model_validate(written)
    assert part.kind == kind
    assert part.to_object() == written
    assert from_json(part.to_json()) == written


@pytest.mark.proves("a2a-4.1.6-part")
@pytest.mark.parametrize(
    "written",
    [
        {},
        {"mediaType": "text/plain"},
        {"text": None},
        {"text": "a", "raw": "AAAA"},
        {"text": "a", "data": {"b": 1}},
        {"text": None, "raw": None, "url": None, "data": None},
        {"url": "u", "raw": "AAAA"},
        {"text": 5},
        {"raw": "not base64!"},
        {"raw": "A"},
        {"raw": "AAA\nA\nA"},
        {"raw": "A=AA"},
        {"raw": "+-AA"},
        "text",
        None,
    ],
)
def test_a_part_with_no_or_several_contents_or_invalid_base64_is_refused(written: Any) -> None:
    with pytest.raises(ValidationError):
        Part.model_validate(written)


@pytest.mark.proves("map-agent-read-alone")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"text": "fine", "raw": None, "url": None, "data": None}, {"text": "fine"}),
        ({"text": "fine", "raw": "", "url": "", "data": {}}, {"text": "fine"}),
        ({"text": "", "raw": "", "url": "", "data": None}, {"text": ""}),
        ({"text": "", "raw": "AAAA"}, {"raw": "AAAA"}),
        ({"text": "", "url": "https://a.example"}, {"url": "https://a.example"}),
        ({"text": None, "data": {"a": 1}}, {"data": {"a": 1}}),
        ({"data": None}, {"data": None}),
        ({"raw": "AA\r\nAA\n"}, {"raw": "AAAA"}),
    ],
)
def test_empty_fields_beside_the_content_of_a_part_are_ignored(written: Any, read: Any) -> None:
    assert Part.model_validate(written).to_object() == read


REQUIRED: list[tuple[type[objects.Model], Any, str]] = [
    (Message, MESSAGE, "messageId"),
    (Message, MESSAGE, "role"),
    (Message, MESSAGE, "parts"),
    (Task, TASK, "id"),
    (Task, TASK, "status"),
    (SendMessageRequest, {"message": MESSAGE}, "message"),
    *((AgentCard, CARD, name) for name in CARD),
]
EMPTY: list[tuple[type[objects.Model], Any, str]] = [
    (Message, MESSAGE, "parts"),
    *((AgentCard, CARD, name) for name, value in CARD.items() if isinstance(value, list)),
    (objects.AgentSkill, CARD["skills"][0], "tags"),
    (objects.Artifact, {"artifactId": "a", "parts": [{"text": ""}]}, "parts"),
]


@pytest.mark.proves("a2a-5.7-required")
@pytest.mark.parametrize(("model", "whole", "name"), REQUIRED)
@pytest.mark.parametrize("absent", [True, False])
def test_a_required_field_that_is_absent_or_null_is_refused_by_name(
    model: type[objects.Model], whole: Any, name: str, absent: bool
) -> None:
    model.model_validate(whole)
    broken = {key: value for key, value in whole.items() if key != name} | ({} if absent else {name: None})
    with pytest.raises(ValidationError) as refused:
        model.model_validate(broken)
    assert {found["loc"][0] for found in refused.value.errors()} == {name}


@pytest.mark.proves("a2a-5.7-required")
@pytest.mark.parametrize(("model", "whole", "name"), EMPTY)
def test_a_required_array_that_is_empty_is_refused(model: type[objects.Model], whole: Any, name: str) -> None:
    with pytest.raises(ValidationError):
        model.model_validate({**whole, name: []})


@pytest.mark.proves("a2a-5.7-unknown", "a2a-5.5-names")
def test_unknown_fields_are_kept_at_every_level() -> None:
    written = {
        "message": {
            **MESSAGE,
            "parts": [{"text": "hi", "tomorrow": {"a": None}}],
            "referenceTaskIds": ["t1"],
            "newField": [1],
        },
        "configuration": {"returnImmediately": True, "more": "x"},
        "metadata": {"snake_key": None},
    }
    assert SendMessageRequest.model_validate(written).to_object() == written


@pytest.mark.proves("a2a-5.5-names")
def test_names_are_camel_case_and_states_are_the_protos() -> None:
    task = Task(
        id="t",
        context_id="c",
        status=objects.TaskStatus(
            state=objects.TaskState.INPUT_REQUIRED, timestamp="2026-01-31T12:00:00.000Z"
        ),
        history=(Message(message_id="m", task_id="t", role=objects.Role.AGENT, parts=(Part(text="?"),)),),
    )
    assert task.to_object() == {
        "id": "t",
        "contextId": "c",
        "status": {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-31T12:00:00.000Z"},
        "history": [{"messageId": "m", "taskId": "t", "role": "ROLE_AGENT", "parts": [{"text": "?"}]}],
    }


@pytest.mark.proves("a2a-5.7-required")
@pytest.mark.parametrize(
    ("model", "written"),
    [
        (Message, {**MESSAGE, "role": "user"}),
        (Message, {**MESSAGE, "role": "ROLE_UNSPECIFIED"}),
        (Message, {**MESSAGE, "messageId": ""}),
        (Message, {**MESSAGE, "messageId": "x" * 513}),
        (Task, {**TASK, "status": {"state": "TASK_STATE_UNSPECIFIED"}}),
        (Task, {**TASK, "status": {"state": "working"}}),
        (Task, {**TASK, "status": {"state": "TASK_STATE_WORKING", "timestamp": "yesterday"}}),
        (objects.GetTaskRequest, {"id": "t", "historyLength": -1}),
        (objects.ListTasksRequest, {"pageSize": 0}),
        (objects.ListTasksRequest, {"pageSize": 101}),
        (objects.ListTasksRequest, {"status": "TASK_STATE_UNSPECIFIED"}),
    ],
)
def test_values_that_the_protocol_does_not_have_are_refused(model: type[objects.Model], written: Any) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(written)


@pytest.mark.parametrize("key", ["messageId", "contextId", "taskId"])
def test_an_id_with_a_null_character_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Message.model_validate({**MESSAGE, key: "a\0b"})
    assert violations_from(refused.value) == (Violation(key, "holds the character U+0000"),)


@pytest.mark.parametrize("wide", ["\u4e00", "\U0001f388", "\u00e4"])
@pytest.mark.parametrize("key", ["messageId", "contextId", "taskId"])
def test_an_id_too_long_for_a_database_index_is_refused_by_name(key: str, wide: str) -> None:
    most = 1024 // len(wide.encode())
    assert Message.model_validate({**MESSAGE, key: wide * min(most, 512)})
    with pytest.raises(ValidationError) as refused:
        Message.model_validate({**MESSAGE, key: wide * 511 + "\u4e00"})
    assert violations_from(refused.value) == (Violation(key, "has more than 1024 bytes in UTF-8"),)


@pytest.mark.parametrize("written", ["a\0b", "\u4e00" * 400, "x" * 513])
@pytest.mark.parametrize(
    "model",
    [
        objects.TaskPushNotificationConfig,
        push_objects.GetTaskPushNotificationConfigRequest,
        push_objects.DeleteTaskPushNotificationConfigRequest,
    ],
)
def test_the_id_of_a_webhook_is_bounded_like_others(model: type[objects.Model], written: str) -> None:
    for ids in ({"id": written, "taskId": "t"}, {"id": "w", "taskId": written}):
        with pytest.raises(ValidationError):
            model.model_validate({"url": "https://hooks.test", **ids})


def test_an_empty_optional_id_is_an_absent_one() -> None:
    message = Message.model_validate({**MESSAGE, "taskId": "", "contextId": ""})
    assert message.to_object() == MESSAGE


ONE_OF: list[tuple[type[objects.Model], list[Any]]] = [
    (SendMessageResponse, [{"task": TASK}, {"message": MESSAGE}]),
    (
        StreamResponse,
        [
            {"task": TASK},
            {"message": MESSAGE},
            {"statusUpdate": {"taskId": "t", "contextId": "c", "status": TASK["status"]}},
            {
                "artifactUpdate": {
                    "taskId": "t",
                    "contextId": "c",
                    "artifact": {"artifactId": "a", "parts": [{"text": ""}]},
                }
            },
        ],
    ),
]


@pytest.mark.proves("a2a-5.7-required")
@pytest.mark.parametrize(("model", "kinds"), ONE_OF)
def test_an_answer_is_exactly_one_of_its_kinds(model: type[objects.Model], kinds: list[Any]) -> None:
    for kind in kinds:
        assert model.model_validate(kind).to_object() == kind
    for wrong in ({}, {**kinds[0], **kinds[1]}):
        with pytest.raises(ValidationError, match="exactly one"):
            model.model_validate(wrong)


def test_an_object_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Part(text="a").text = "b"  # type: ignore[misc]


TIMES = [
    (0, "1970-01-01T00:00:00.000Z"),
    (1, "1970-01-01T00:00:00.001Z"),
    (-1, "1969-12-31T23:59:59.999Z"),
    (1_769_860_800_999, "2026-01-31T12:00:00.999Z"),
]


@pytest.mark.proves("a2a-5.6.1-time")
@pytest.mark.parametrize(("number", "text"), TIMES)
def test_a_time_is_utc_in_milliseconds_both_ways(number: int, text: str) -> None:
    assert timestamp(number) == text
    assert milliseconds(text) == number


@pytest.mark.proves("a2a-5.6.1-time")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
        ("2026-01-31t12:00:00.5z", "2026-01-31T12:00:00.500Z"),
        ("2026-01-31T12:00:00.123456789+05:30", "2026-01-31T06:30:00.123Z"),
        ("2026-01-31T12:00:00-00:30", "2026-01-31T12:30:00.000Z"),
    ],
)
def test_any_rfc_3339_time_is_read(text: str, same: str) -> None:
    assert timestamp(milliseconds(text)) == same


@pytest.mark.proves("a2a-5.6.1-time")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31T23:59:60Z",
        "2026-01-31T12:00:00+99:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "2026-01-31T12:00:00Z\n",
    ],
)
def test_an_invalid_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are datetime's own
        milliseconds(text)


def test_the_text_of_parts_is_what_a_person_would_read() -> None:
    assert (
        text_of_parts([Part(text="a"), Part(data={"text": "no"}), Part(text=""), Part(text="b")]) == "a\n\nb"
    )


def test_a_copy_with_other_values_equals_the_copy_of_pydantic() -> None:
    task = Task.model_validate({**TASK, "unknown": {"kept": True}})
    changes = {"id": "u", "metadata": {"a": 1}}
    copy, expected = task.changed(**changes), task.model_copy(update=changes)
    assert copy == expected
    assert copy.model_fields_set == expected.model_fields_set
    assert copy.to_json() == expected.to_json()
    assert task == Task.model_validate({**TASK, "unknown": {"kept": True}})
