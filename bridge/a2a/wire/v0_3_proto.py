"""A2A 0.3 over HTTP+JSON: the paths below `/v1`, and the JSON of its protocol buffers.

Readers know only the fields of the proto: other fields of an object are kept in a note in its metadata. Parts have
metadata, and files have names, as in the proto of a2a-sdk 0.3.26 and @a2a-js/sdk 0.3.14.

Spec: A2A 0.3.0 sections 3.2.3, 3.5.6 and its a2a.proto; the JSON mapping of protocol buffers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from bridge.a2a.model import operations
from bridge.a2a.model.objects import GRPC, HTTP_JSON, Role, TaskState
from bridge.a2a.model.operations import AnyOperation
from bridge.a2a.wire.push_spelling import ProtoPushSpelling
from bridge.a2a.wire.rest import OperationRoutes, route
from bridge.a2a.wire.spelling import Spelling, noted, restored
from bridge.a2a.wire.tolerant import content_of_url
from bridge.a2a.wire.v0_3 import V0_3, data_in, data_out, file_out
from bridge.text.jsonvalues import JsonObject

_CONFIGS: Final = "/v1/tasks/{taskId}/pushNotificationConfigs"
_ROUTES: Final = (
    route("POST", "/v1/message:send", operations.SEND_MESSAGE),
    route("POST", "/v1/message:stream", operations.SEND_STREAMING_MESSAGE),
    route("POST", "/v1/tasks/{id}:cancel", operations.CANCEL_TASK),
    route("GET POST", "/v1/tasks/{id}:subscribe", operations.SUBSCRIBE_TO_TASK),
    route("GET", "/v1/tasks/{id}", operations.GET_TASK),
    route("POST", _CONFIGS, operations.CREATE_PUSH_CONFIG),
    route("GET", _CONFIGS, operations.LIST_PUSH_CONFIGS),
    route("GET", _CONFIGS + "/{id}", operations.GET_PUSH_CONFIG),
    route("DELETE", _CONFIGS + "/{id}", operations.DELETE_PUSH_CONFIG),
    route("GET", "/v1/card", operations.GET_EXTENDED_AGENT_CARD),
)
"""Subscribe has two verbs: POST in the text of the specification, GET in the proto and a2a-sdk 0.3.26. ListTasks has no
route: the text names a path, but the proto and both SDKs have none."""

_QUERY: Final[Mapping[AnyOperation, frozenset[str]]] = {
    operations.GET_TASK: frozenset({"historyLength", "history_length"}),
    operations.CREATE_PUSH_CONFIG: frozenset({"configId", "config_id"}),
    operations.LIST_PUSH_CONFIGS: frozenset({"pageSize", "pageToken", "page_size", "page_token"}),
}
"""The query parameters, by their JSON names and their proto names, like the fields of bodies."""

_FILE: Final[Mapping[str, str]] = {
    "raw": "fileWithBytes",
    "url": "fileWithUri",
    "mediaType": "mimeType",
    "filename": "name",
}
"""The fields of a file, by their names in 1.0."""
_FROM_FILE: Final = {older: name for name, older in _FILE.items()}
_TEXTUAL: Final = re.compile(r"^text/|json|xml|yaml|javascript", re.IGNORECASE)
_PART: Final = frozenset({"text", "file", "data", "metadata"})
_UPDATE: Final = ("taskId", "contextId", "metadata")


_JSON_NAMES: Final[Mapping[str, str]] = {
    "request": "message",
    "msg": "message",
    "update": "message",
    **{
        name: to_camel(name)
        for name in (
            *("message_id", "context_id", "task_id", "artifact_id", "mime_type", "file_with_bytes"),
            *("file_with_uri", "status_update", "artifact_update", "last_chunk", "history_length"),
            *("accepted_output_modes", "push_notification", "push_notification_config", "config_id"),
            *("next_page_token", "page_size", "page_token"),
        )
    },
}
"""The proto names of fields, with their JSON names where these differ."""
_USERS: Final = frozenset({"metadata", "data"})
"""Fields whose content belongs to the user, so that its names are not the proto's."""


class _ProtoSpelling(Spelling):
    """The objects of the proto's JSON."""

    states: ClassVar = {state.value: state.value for state in TaskState} | {
        TaskState.CANCELED.value: "TASK_STATE_CANCELLED"
    }
    roles: ClassVar = {role.value: role.value for role in Role}
    parts_name: ClassVar = "content"
    file_names: ClassVar = _FILE
    has_kinds: ClassVar = False
    fields: ClassVar = {
        "task": frozenset({"id", "contextId", "status", "artifacts", "history", "metadata"}),
        "message": frozenset(
            {"messageId", "contextId", "taskId", "role", "content", "metadata", "extensions"}
        ),
        "artifact": frozenset({"artifactId", "name", "description", "parts", "metadata", "extensions"}),
        "statusUpdate": frozenset({*_UPDATE, "status", "final"}),
        "artifactUpdate": frozenset({*_UPDATE, "artifact", "append", "lastChunk"}),
    }

    def event_from(self, value: JsonValue) -> JsonValue:
        return super().event_from(_by_json_names(value))

    def task_from(self, value: JsonValue) -> JsonValue:
        return super().task_from(_by_json_names(value))

    def part(self, part: JsonObject) -> JsonObject:
        older = part
        if "data" in part:
            older = data_out(part)
            older["data"] = {"data": older["data"]}
        elif "text" not in part:
            older["file"] = file_out(part, _FILE)
        return noted(older, _PART)

    def part_from(self, part: JsonObject) -> JsonObject:
        read, file = dict(part), part.get("file")
        if isinstance(file, dict):
            del read["file"]
            read |= {_FROM_FILE.get(name, name): item for name, item in file.items()}
            if read.get("raw") and read.get("url"):
                del read["url"]  # the bytes take precedence over the URI
            if isinstance(raw := read.get("raw"), str):
                read["raw"] = _once(raw, str(read.get("mediaType", "")))
        data = read.get("data")
        if isinstance(data, dict) and data.keys() <= {"data"}:
            read["data"] = data.get("data", {})
        return data_in(restored(content_of_url(read)))


def _by_json_names(value: JsonValue) -> JsonValue:
    """A value with the JSON names of its fields. It may have proto names, since readers of proto JSON accept both.

    A writer of proto names uses them everywhere, and they show in each object or its members. So only these two levels
    are searched.
    """
    if not isinstance(value, dict):
        return value
    layer = [value, *(item for item in value.values() if isinstance(item, dict))]
    return value if all(_JSON_NAMES.keys().isdisjoint(level) for level in layer) else _renamed(value)


def _renamed(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    read: JsonObject = {}
    for name, item in value.items():
        json_name = _JSON_NAMES.get(name, name)
        read[json_name] = item if json_name in _USERS else _renamed(item)
    return read


class V0_3Proto(V0_3):
    """A2A 0.3 over HTTP+JSON, and over gRPC, where the same values are protocol buffers."""

    bindings: ClassVar = (HTTP_JSON, GRPC)
    methods: ClassVar = {}
    routes: ClassVar = OperationRoutes(_ROUTES, _QUERY)
    spelling: ClassVar = _ProtoSpelling()
    push_spelling: ClassVar = ProtoPushSpelling()
    push_name: ClassVar = "pushNotification"
    blocks_unless_said: ClassVar = False  # proto JSON leaves out false values

    def _params_from(self, operation: AnyOperation, params: JsonValue) -> JsonValue:
        return super()._params_from(operation, _by_json_names(params))

    def event(self, event: JsonObject, *, last: bool) -> JsonObject:
        name, held = self.spelling.event(event, last=last)
        return {name: held}


def _once(raw: str, media_type: str) -> str:
    """The base64 of a file, decoded once if a2a-sdk has encoded it twice.

    A file with a textual media type counts as encoded twice only if the result is text.
    """
    try:
        inner = base64.b64decode(raw, validate=True)
        held = base64.b64decode(inner, validate=True)
        if not inner or (_TEXTUAL.search(media_type) and not _is_text(held)):
            return raw
        return inner.decode()
    except ValueError:
        return raw


def _is_text(held: bytes) -> bool:
    return all(letter.isprintable() or letter.isspace() for letter in held.decode())
