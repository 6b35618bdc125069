"""JSON to protocol buffers and back, held against the official JSON mapping with the messages of a2a-sdk."""

from __future__ import annotations

import base64
import math
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.a2a.grpc.messages import ProtobufDecodeLimits, ProtobufMessage, ProtobufMessages
from bridge.a2a.model.errors import INVALID_REQUEST, PARSE_ERROR, TOO_LARGE, A2AError
from bridge.a2a.model.objects import Role, StreamResponse, TaskState
from bridge.a2a.wire.protobuf_schema import SERVICE_1_0
from tests.support.grpc_driver import json_of

MODULES = {"lf.a2a.v1": a2a_pb2, "a2a.v1": a2a_v0_3_pb2}


@cache
def messages() -> ProtobufMessages:
    return ProtobufMessages()


def of(name: str, package: str = "lf.a2a.v1") -> ProtobufMessage:
    return messages().find(package, name)


# Every message, with every field: made from the official descriptors

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
numbers = st.integers(-(2**31), 2**31 - 1)
values = st.recursive(
    st.none()
    | st.booleans()
    | texts
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
WELL_KNOWN = {
    "google.protobuf.Struct": st.dictionaries(texts, values, min_size=1, max_size=3),
    "google.protobuf.Value": values,
    "google.protobuf.Timestamp": st.datetimes(datetime(1000, 1, 1)).map(  # noqa: DTZ001
        lambda at: f"{at.isoformat()[:19]}.120Z"
    ),
}


def field_values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        known = WELL_KNOWN.get(field.message_type.full_name)
        return known if known is not None else objects(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([value.name for value in field.enum_type.values if value.number])
    kinds = {
        field.TYPE_BOOL: st.just(True),
        field.TYPE_INT32: numbers.filter(bool),
        field.TYPE_STRING: texts.filter(bool),
    }
    base64s = st.binary(min_size=1, max_size=6).map(lambda raw: base64.b64encode(raw).decode())
    return kinds.get(field.type, base64s)


@st.composite
def objects(draw: Any, described: Any, depth: int = 3) -> dict[str, Any]:
    """JSON of a message, with some of its fields: of a oneof at most one."""
    made: dict[str, Any] = {}
    oneofs: set[str] = set()
    for field in described.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        is_message = field.message_type is not None and field.message_type.full_name not in WELL_KNOWN
        if (is_message and depth <= 0) or not draw(st.booleans()):
            continue
        oneof = field.containing_oneof
        if oneof is not None and oneof.name in oneofs:
            continue
        if is_map:
            item = field_values(field.message_type.fields_by_name["value"], depth)
            made[field.json_name] = draw(st.dictionaries(texts, item, min_size=1, max_size=2))
        elif field.is_repeated:
            made[field.json_name] = draw(st.lists(field_values(field, depth), min_size=1, max_size=2))
        else:
            made[field.json_name] = draw(field_values(field, depth))
        if oneof is not None:
            oneofs.add(oneof.name)
    return made


EVERY_MESSAGE = [
    (package, name) for package, module in MODULES.items() for name in module.DESCRIPTOR.message_types_by_name
]


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize(("package", "name"), EVERY_MESSAGE, ids=lambda said: said)
@settings(max_examples=6, deadline=None, database=None)
@given(data=st.data())
@pytest.mark.smoke("lf.a2a.v1-*", "a2a.v1-Task", "a2a.v1-Message")
def test_every_message_is_what_the_official_mapping_makes_of_it(
    package: str, name: str, data: st.DataObject
) -> None:
    official = getattr(MODULES[package], name)
    value = data.draw(objects(official.DESCRIPTOR))
    expected = json_format.ParseDict(value, official())
    written = of(name, package).to_bytes(value)
    assert official.FromString(written) == expected
    read = of(name, package).from_bytes(expected.SerializeToString())
    assert json_format.ParseDict(read, official()) == expected
    assert read == of(name, package).from_bytes(written)


@pytest.mark.proves("a2a-10.1-grpc")
def test_states_and_roles_of_the_model_are_all_in_the_table() -> None:
    assert set(SERVICE_1_0.table.enums["TaskState"]) - {"TASK_STATE_UNSPECIFIED"} == set(TaskState)
    assert set(SERVICE_1_0.table.enums["Role"]) - {"ROLE_UNSPECIFIED"} == set(Role)


@pytest.mark.proves("a2a-10.1-grpc")
def test_an_event_of_the_model_comes_back_as_it_was() -> None:
    value = {
        "statusUpdate": {
            "taskId": "t",
            "contextId": "c",
            "status": {
                "state": "TASK_STATE_INPUT_REQUIRED",
                "timestamp": "2026-01-31T12:00:00.123Z",
                "message": {
                    "messageId": "m",
                    "role": "ROLE_AGENT",
                    "parts": [{"text": ""}, {"data": None}, {"data": {"a": [1, 2.5, None]}}, {"raw": "AAEC"}],
                },
            },
        }
    }
    event = StreamResponse.model_validate(value)
    assert of("StreamResponse").from_bytes(of("StreamResponse").to_bytes(event.to_object())) == value


@pytest.mark.proves("a2a-5.7-unknown")
def test_a_field_without_a_number_is_left_out_and_an_unknown_number_is_ignored() -> None:
    written = of("Task").to_bytes({"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "later": {"x": 1}})
    assert of("Task").from_bytes(written + b"\xca\x3e\x01x") == {
        "id": "t",
        "status": {"state": "TASK_STATE_WORKING"},
    }


@pytest.mark.proves("a2a-4.6-extensions")
def test_hidden_keys_are_left_out_of_metadata_and_kept_in_data() -> None:
    value = {
        "metadata": {"urn:a": 1},
        "parts": [{"data": {"metadata": {"urn:a": 1}}, "metadata": {"urn:a": 1, "b": 2}}],
    }
    written = of("Message").to_bytes(value, frozenset({"urn:a"}))
    assert of("Message").from_bytes(written) == {
        "parts": [{"data": {"metadata": {"urn:a": 1}}, "metadata": {"b": 2}}]
    }


@pytest.mark.proves("a2a-10.1-grpc")
def test_times_keep_their_nanoseconds_and_become_utc() -> None:
    def read(time: str) -> Any:
        return of("TaskStatus").from_bytes(of("TaskStatus").to_bytes({"timestamp": time})).get("timestamp")

    assert read("2026-01-31T12:00:00.123456789Z") == "2026-01-31T12:00:00.123456789Z"
    assert read("2026-01-31t13:00:00+01:00") == "2026-01-31T12:00:00.000Z"
    assert read("1969-12-31T23:59:59.5Z") == "1969-12-31T23:59:59.500Z"
    out_of_range = a2a_pb2.TaskStatus(timestamp={"seconds": 2**50})
    assert of("TaskStatus").from_bytes(out_of_range.SerializeToString()) == {"timestamp": str(2**50)}


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (struct_pb2.Value(number_value=math.nan), PARSE_ERROR),
        (struct_pb2.Value(number_value=math.inf), PARSE_ERROR),
        (struct_pb2.Value(list_value={"values": [{"string_value": "x"}] * 60}), TOO_LARGE),
    ],
    ids=["nan", "infinite", "many"],
)
def test_a_value_that_json_cannot_hold_is_refused(value: Any, kind: Any) -> None:
    text = a2a_pb2.Part(data=value).SerializeToString()
    with pytest.raises(A2AError) as refused:
        of("Part").from_bytes(text, ProtobufDecodeLimits(depth=8, values=50))
    assert refused.value.kind is kind


@pytest.mark.proves("a2a-10.1-grpc")
def test_deep_and_broken_messages_are_refused() -> None:
    inner: Any = "x"
    for _ in range(12):
        inner = [inner]
    text = of("Part").to_bytes({"data": inner})
    with pytest.raises(A2AError) as deep:
        of("Part").from_bytes(text, ProtobufDecodeLimits(depth=8))
    assert deep.value.kind is INVALID_REQUEST
    for _ in range(100):
        inner = [inner]
    for broken in (b"\x0a\xff", b"\x0a\x02\xff\xff", of("Part").to_bytes({"data": inner})):
        with pytest.raises(A2AError) as refused:
            of("Part").from_bytes(broken)
        assert refused.value.kind is PARSE_ERROR
    with pytest.raises(A2AError) as many:
        of("Message").from_bytes(b"\x2a\x00" * 1000, ProtobufDecodeLimits(values=500))
    assert many.value.kind is TOO_LARGE


def test_json_of_tests_is_that_of_the_server() -> None:
    task = a2a_pb2.Task(id="t", status={"state": "TASK_STATE_WORKING", "timestamp": {"seconds": 1}})
    assert json_of(task) == of("Task").from_bytes(task.SerializeToString())
