"""Converts plain JSON values to protocol buffers and back, by the tables of `protobuf_schema.py`. Pure.

The values are those that dialects read and write, in the JSON form of protocol buffers. The message classes live in a
descriptor pool of their own: a2a-sdk registers messages of the same names in the default pool of a process.

Writing is strict: a value of the wrong type is an error, and fields without a number are left out, since a protocol
buffer has no place for them. Reading is bounded: a message of a few bytes can hold very many values.

Spec: the JSON mapping of protocol buffers (protobuf.dev/programming-guides/json).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from bridge.a2a.model.errors import INVALID_REQUEST, PARSE_ERROR, TOO_LARGE, A2AError
from bridge.a2a.model.operations import Streamed
from bridge.a2a.wire.jsontext import DEFAULT_MAX_DEPTH
from bridge.a2a.wire.protobuf_schema import (
    HEALTH,
    SERVICE_NAME,
    SERVICES,
    STATUS,
    TENANTS,
    MessageTable,
    ProtobufService,
)
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES, JsonObject

_FIELD: Final = re.compile(
    r"(?P<number>\d+) (?P<name>\w+)(:(?P<json>\w+))? ((?P<oneof>\w+)\||(?P<mark>[*?]))?(?P<type>\{?\w+\}?)"
)
_WELL_KNOWN: Final = {
    "Struct": struct_pb2,
    "Value": struct_pb2,
    "Timestamp": timestamp_pb2,
    "Empty": empty_pb2,
    "Any": any_pb2,
}
"""The messages of `google.protobuf` that the tables use, and the modules of their files."""
_TYPES: Final = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32")
}
_TIME: Final = re.compile(r"(?P<second>.{19})(\.(?P<fraction>\d{1,9}))?(?P<zone>.*)")
_WHOLE: Final = 2.0**53
"""The numbers of a protocol buffer are floats. Below this, a whole float is read as an integer, as JSON has it."""


class ProtobufDecodeLimits:
    """The bounds of one message that is read."""

    __slots__ = ("depth", "left", "most")

    def __init__(self, depth: int = DEFAULT_MAX_DEPTH, values: int = DEFAULT_MAX_VALUES) -> None:
        """At most `depth` levels of arrays and objects in a JSON value, and `values` values in all."""
        self.depth = depth
        self.most = self.left = values

    def count(self, values: int) -> None:
        """Note that values were read.

        Raises:
            A2AError: TOO_LARGE.
        """
        self.left -= values
        if self.left < 0:
            raise A2AError(TOO_LARGE, f"The message holds more than {self.most} values and keys")


_Read = Callable[[Any, ProtobufDecodeLimits], JsonValue]
_Write = Callable[[Any, frozenset[str]], Any]


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """One message of a table: JSON to bytes, and back."""

    made: Callable[..., Message]
    write: Callable[[JsonObject, frozenset[str]], dict[str, Any]]
    read: Callable[[Message, ProtobufDecodeLimits], JsonObject]

    def to_bytes(self, value: JsonObject, hidden: frozenset[str] = frozenset()) -> bytes:
        """The message of a JSON object, without these keys of its metadata.

        Raises:
            TypeError, ValueError, KeyError: a value has another type than its field.
        """
        return bytes(self.made(**self.write(value, hidden)).SerializeToString())

    def from_bytes(self, text: bytes, limits: ProtobufDecodeLimits | None = None) -> JsonObject:
        """The JSON object of a message.

        Raises:
            A2AError: PARSE_ERROR, the bytes are not the message, or a number in it is not finite; INVALID_REQUEST, it
                is nested too deeply; TOO_LARGE, it has too many values.
        """
        message = self.made()
        try:
            message.ParseFromString(text)
        except DecodeError as exc:
            raise A2AError(PARSE_ERROR, "Invalid payload: not the protocol buffer of this method") from exc
        return self.read(message, limits or ProtobufDecodeLimits())


class ProtobufMessages:
    """The messages of the tables, in a descriptor pool of their own."""

    def __init__(self) -> None:
        self.pool: Final = DescriptorPool()
        """The descriptors, for reflection."""
        for module in dict.fromkeys(_WELL_KNOWN.values()):
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for table, services in (
            *((table, ()) for table in (STATUS, HEALTH, TENANTS)),
            *((service.table, (service,)) for service in SERVICES),
        ):
            self.pool.AddSerializedFile(_file_of(table, services).SerializeToString())
        self._known: dict[str, ProtobufMessage] = {}

    def number_of(self, field: str, package: str, name: str) -> int | None:
        """The number of a message's field; None if the message has no such field."""
        field_found = self.pool.FindMessageTypeByName(_full_name(package, name)).fields_by_name.get(field)
        return None if field_found is None else field_found.number

    def find(self, package: str, name: str) -> ProtobufMessage:
        """A message by its package and name, or a message of `google.protobuf` by its name."""
        return self._of(self.pool.FindMessageTypeByName(_full_name(package, name)))

    def _of(self, described: Descriptor) -> ProtobufMessage:
        """The converter of a message. A message may hold messages of its own kind, so it is known before its fields."""
        if (known := self._known.get(described.full_name)) is not None:
            return known
        writers: dict[str, tuple[str, _Write]] = {}
        readers: dict[int, tuple[str, _Read]] = {}

        def write(value: JsonObject, hidden: frozenset[str]) -> dict[str, Any]:
            fields = {}
            for json_name, item in value.items():
                if (writer := writers.get(json_name)) is None:
                    continue
                value_shown = _shown(item, hidden) if json_name == "metadata" and hidden else item
                if value_shown is not None or json_name == "data":
                    fields[writer[0]] = writer[1](value_shown, hidden)
            return fields

        def read(message: Message, limits: ProtobufDecodeLimits) -> JsonObject:
            value: JsonObject = {}
            present = message.ListFields()
            limits.count(len(present))
            for field, item in present:
                json_name, convert = readers[field.number]
                value[json_name] = convert(item, limits)
            return value

        converter = ProtobufMessage(GetMessageClass(described), write, read)
        self._known[described.full_name] = converter
        for field in described.fields:
            writers[field.json_name] = field.name, self._writer(field)
            readers[field.number] = field.json_name, self._reader(field)
        return converter

    def _writer(self, field: FieldDescriptor) -> _Write:
        if (entry := _entry_of(field)) is not None:
            write = self._writer(entry.fields_by_name["value"])
            return lambda items, hidden: {key: write(item, hidden) for key, item in items.items()}
        write = self._item_writer(field)
        if field.is_repeated and write is not _same:
            return lambda items, hidden: [write(item, hidden) for item in items]
        return write

    def _item_writer(self, field: FieldDescriptor) -> _Write:
        if field.message_type is not None:
            return _WRITTEN.get(field.message_type.full_name) or self._of(field.message_type).write
        return _bytes if field.type == FieldDescriptor.TYPE_BYTES else _same

    def _reader(self, field: FieldDescriptor) -> _Read:
        if (entry := _entry_of(field)) is not None:
            read = self._reader(entry.fields_by_name["value"])
            return lambda items, limits: {
                key: read(item, limits) for key, item in _counted(items.items(), limits)
            }
        read = self._item_reader(field)
        if field.is_repeated:
            return lambda items, limits: [read(item, limits) for item in _counted(items, limits)]
        return read

    def _item_reader(self, field: FieldDescriptor) -> _Read:
        if field.message_type is not None:
            return _READ.get(field.message_type.full_name) or self._of(field.message_type).read
        if field.enum_type is not None:
            names = {value.number: value.name for value in field.enum_type.values}
            return lambda number, _: names.get(number, number)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return lambda raw, _: base64.b64encode(raw).decode()
        return lambda item, _: item


def _shown(metadata: Any, hidden: frozenset[str]) -> JsonObject | None:
    """Metadata without these keys; None if nothing is left."""
    return {key: item for key, item in metadata.items() if key not in hidden} or None


def _counted(items: Any, limits: ProtobufDecodeLimits) -> Any:
    limits.count(len(items))
    return items


def _entry_of(field: FieldDescriptor) -> Descriptor | None:
    """The message of a map's entries; None if the field is no map."""
    described = field.message_type
    return described if described is not None and described.GetOptions().map_entry else None


# Values of google.protobuf


def _same(item: Any, _: frozenset[str]) -> Any:
    return item


def _bytes(text: str, _: frozenset[str]) -> bytes:
    """The bytes of base64, which may be of either alphabet and without its padding, as `Part.raw` allows."""
    plain = text.replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


def _timestamp(text: str, _: frozenset[str]) -> timestamp_pb2.Timestamp | dict[str, int]:
    match = _TIME.fullmatch(text.upper())
    assert match is not None
    at = datetime.fromisoformat(match["second"] + match["zone"])
    return {"seconds": math.floor(at.timestamp()), "nanos": int((match["fraction"] or "0").ljust(9, "0"))}


def _value(item: JsonValue, _: frozenset[str]) -> dict[str, Any]:
    if item is None:
        return {"null_value": 0}
    kinds = {bool: "bool_value", str: "string_value", dict: "struct_value", list: "list_value"}
    return {kinds.get(type(item), "number_value"): item}


def _any(item: Any, hidden: frozenset[str]) -> dict[str, Any]:
    return {"type_url": item["typeUrl"], "value": _bytes(item["value"], hidden)}


def _timestamp_from(stamp: Any, _: ProtobufDecodeLimits) -> JsonValue:
    """The time as text. A time that JSON cannot have is left as its number of seconds, which no reader takes."""
    if not 0 <= stamp.nanos < 1_000_000_000:
        return str(stamp.seconds)
    try:
        second = datetime.fromtimestamp(stamp.seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return str(stamp.seconds)
    digits = f"{stamp.nanos:09d}"
    fraction = digits[:3] if digits.endswith("000000") else digits
    return f"{second.isoformat()[:19]}.{fraction}Z"


def _struct_from(struct: Any, limits: ProtobufDecodeLimits) -> JsonValue:
    return _object_from(struct, limits, limits.depth)


def _value_from(value: Any, limits: ProtobufDecodeLimits) -> JsonValue:
    return _inner_from(value, limits, limits.depth)


def _object_from(struct: Any, limits: ProtobufDecodeLimits, depth: int) -> JsonObject:
    return {
        key: _inner_from(item, limits, depth - 1) for key, item in _counted(struct.fields, limits).items()
    }


def _inner_from(value: Any, limits: ProtobufDecodeLimits, depth: int) -> JsonValue:
    if depth < 0:
        raise A2AError(INVALID_REQUEST, f"The message is nested deeper than {limits.depth} levels")
    match value.WhichOneof("kind"):
        case "struct_value":
            return _object_from(value.struct_value, limits, depth)
        case "list_value":
            items = _counted(value.list_value.values, limits)
            return [_inner_from(item, limits, depth - 1) for item in items]
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return bool(value.bool_value)
        case "number_value":
            number = float(value.number_value)
            if not math.isfinite(number):
                raise A2AError(PARSE_ERROR, "Invalid payload: a number is out of range")
            is_whole = number.is_integer() and abs(number) < _WHOLE and str(number) != "-0.0"
            return int(number) if is_whole else number
        case _:
            return None


_WRITTEN: Final[Mapping[str, _Write]] = {
    "google.protobuf.Struct": _same,
    "google.protobuf.Value": _value,
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Any": _any,
}
_READ: Final[Mapping[str, _Read]] = {
    "google.protobuf.Struct": _struct_from,
    "google.protobuf.Value": _value_from,
    "google.protobuf.Timestamp": _timestamp_from,
}


# Descriptors


def _full_name(package: str, name: str) -> str:
    return f"google.protobuf.{name}" if name in _WELL_KNOWN else f"{package}.{name}"


def _file_of(
    table: MessageTable, services: tuple[ProtobufService, ...]
) -> descriptor_pb2.FileDescriptorProto:
    """The file of a table. The file's name tells it apart from files of the same package in other pools."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"mcp_a2a/{table.package}.proto", package=table.package, syntax="proto3"
    )
    file.dependency.extend(dict.fromkeys(module.DESCRIPTOR.name for module in _WELL_KNOWN.values()))
    for name, values in table.enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for line in _lines(table.messages):
        name, _, fields = line.partition(":")
        _describe(file.message_type.add(name=name), fields.strip(), table)
    for service in services:
        described = file.service.add(name=SERVICE_NAME)
        for method in service.methods:
            described.method.add(
                name=method.name,
                input_type=f".{_full_name(table.package, method.request)}",
                output_type=f".{_full_name(table.package, method.answer)}",
                server_streaming=isinstance(method.operation, Streamed),
            )
    return file


def _lines(messages: str) -> Iterator[str]:
    """The lines of a table. A line that begins with a space continues the line before it."""
    return iter(messages.strip().replace("\n    ", " ").splitlines())


def _describe(message: descriptor_pb2.DescriptorProto, fields: str, table: MessageTable) -> None:
    oneofs: dict[str, int] = {}
    optional: list[descriptor_pb2.FieldDescriptorProto] = []
    for match in map(_FIELD.fullmatch, fields.split("; ") if fields else ()):
        assert match is not None
        name, kind = match["name"], match["type"]
        field = message.field.add(
            name=name,
            number=int(match["number"]),
            json_name=match["json"] or to_camel(name),
            label="LABEL_OPTIONAL",
        )
        if kind.startswith("{"):
            entry = message.nested_type.add(name=f"{to_camel(name)[0].upper()}{to_camel(name)[1:]}Entry")
            entry.options.map_entry = True
            _type(
                entry.field.add(name="key", number=1, json_name="key", label="LABEL_OPTIONAL"),
                "string",
                table,
            )
            value = entry.field.add(name="value", number=2, json_name="value", label="LABEL_OPTIONAL")
            _type(value, kind[1:-1], table)
            _type(field, f"{message.name}.{entry.name}", table)
        else:
            _type(field, kind, table)
        if match["mark"] == "*" or kind.startswith("{"):
            field.label = field.LABEL_REPEATED
        if match["mark"] == "?":
            optional.append(field)
        if (oneof := match["oneof"]) is not None:
            if oneof not in oneofs:
                oneofs[oneof] = len(oneofs)
                message.oneof_decl.add(name=oneof)
            field.oneof_index = oneofs[oneof]
    for field in optional:  # each has a oneof of its own, after all others
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _type(field: descriptor_pb2.FieldDescriptorProto, kind: str, table: MessageTable) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
        return
    field.type = field.TYPE_ENUM if kind in table.enums else field.TYPE_MESSAGE
    field.type_name = f".{_full_name(table.package, kind)}"
