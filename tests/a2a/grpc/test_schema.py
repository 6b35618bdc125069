"""The tables of the protocol buffers, held against the descriptors of a2a-sdk, which come from the official files."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from bridge.a2a.grpc.messages import ProtobufMessages
from bridge.a2a.wire.protobuf_schema import SERVICE_0_3, SERVICE_1_0, ProtobufService

OFFICIAL = ((SERVICE_1_0, a2a_pb2), (SERVICE_0_3, a2a_v0_3_pb2))


def file_of(serialized: bytes) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(serialized)


def fields_of(message: Any) -> dict[int, tuple[Any, ...]]:
    """What decides the bytes and the JSON of each field."""
    return {
        field.number: (
            field.name,
            field.json_name or json_name_of(field.name),
            FieldDescriptor.TYPE_STRING if field.type == FieldDescriptor.TYPE_STRING else field.type,
            field.type_name,
            field.label,
            field.proto3_optional,
            message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
        )
        for field in message.field
    }


def json_name_of(name: str) -> str:
    first, *rest = name.split("_")
    return "".join([first, *(word.capitalize() for word in rest)])


def messages_of(file: FileDescriptorProto) -> dict[str, Any]:
    found = {message.name: message for message in file.message_type}
    inner = {f"{name}.{one.name}": one for name, message in found.items() for one in message.nested_type}
    return {**found, **inner}


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize(("service", "official"), OFFICIAL, ids=["1.0", "0.3"])
def test_every_message_has_the_fields_of_the_official_file(service: ProtobufService, official: Any) -> None:
    ours = file_of(
        ProtobufMessages().pool.FindFileByName(f"mcp_a2a/{service.table.package}.proto").serialized_pb
    )
    theirs = file_of(official.DESCRIPTOR.serialized_pb)
    known, wanted = messages_of(ours), messages_of(theirs)
    assert known.keys() == wanted.keys()
    for name, message in wanted.items():
        assert fields_of(known[name]) == fields_of(message), name
        assert known[name].options.map_entry == message.options.map_entry


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize(("service", "official"), OFFICIAL, ids=["1.0", "0.3"])
def test_every_enumeration_and_method_is_that_of_the_official_file(
    service: ProtobufService, official: Any
) -> None:
    ours = file_of(
        ProtobufMessages().pool.FindFileByName(f"mcp_a2a/{service.table.package}.proto").serialized_pb
    )
    theirs = file_of(official.DESCRIPTOR.serialized_pb)
    enums = [
        {enum.name: [(value.name, value.number) for value in enum.value] for enum in file.enum_type}
        for file in (ours, theirs)
    ]
    assert enums[0] == enums[1]
    methods = [
        {
            method.name: (
                method.input_type,
                method.output_type,
                method.server_streaming,
                method.client_streaming,
            )
            for method in file.service[0].method
        }
        for file in (ours, theirs)
    ]
    assert methods[0] == methods[1]
    assert (ours.package, ours.service[0].name) == (theirs.package, theirs.service[0].name)
