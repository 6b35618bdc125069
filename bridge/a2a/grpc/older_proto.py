"""What the protocol buffers of 0.3 name otherwise than its JSON: resources, and the security of a card. Pure.

Requests of 1.0 have neither, so both versions pass here.

Spec: A2A 0.3.0 a2a.proto.
"""

from __future__ import annotations

import re
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model import operations
from bridge.a2a.model.errors import Violation, invalid_params
from bridge.a2a.model.operations import AnyOperation
from bridge.text.jsonvalues import JsonObject

_TASK: Final = "tasks/{id}"
_TASK_OF_CONFIG: Final = "tasks/{taskId}"
_CONFIG: Final = "tasks/{taskId}/pushNotificationConfigs/{id}"
_NAMES: Final[dict[AnyOperation, tuple[str, str]]] = {
    operations.GET_TASK: ("name", _TASK),
    operations.CANCEL_TASK: ("name", _TASK),
    operations.SUBSCRIBE_TO_TASK: ("name", _TASK),
    operations.CREATE_PUSH_CONFIG: ("parent", _TASK_OF_CONFIG),
    operations.LIST_PUSH_CONFIGS: ("parent", _TASK_OF_CONFIG),
    operations.GET_PUSH_CONFIG: ("name", _CONFIG),
    operations.DELETE_PUSH_CONFIG: ("name", _CONFIG),
}
"""The field of a request that holds a resource name, and the form of the name with the fields of 1.0."""
_FIELD: Final = re.compile(r"\\{(\w+)\\}")


def params_of(operation: AnyOperation, request: JsonObject) -> JsonObject:
    """The parameters of a request, with the parts of its resource name as fields.

    Raises:
        A2AError: INVALID_PARAMS, the name has another form.
    """
    field, form = _NAMES.get(operation, ("", ""))
    if field not in request:
        return request
    pattern = _FIELD.sub(r"(?P<\1>.+)", re.escape(form))
    match = re.fullmatch(pattern, str(request[field]))
    if match is None:
        raise invalid_params(Violation(field, f"must be {form}"))
    rest = {name: item for name, item in request.items() if name != field}
    return {**rest, **match.groupdict()}


def request_of(operation: AnyOperation, params: JsonObject) -> JsonObject:
    """The reverse of `params_of`."""
    field, form = _NAMES.get(operation, ("", ""))
    if not field:
        return params
    named = re.findall(r"\{(\w+)\}", form)
    rest = {name: item for name, item in params.items() if name not in named}
    return {**rest, field: form.format_map({name: params.get(name, "") for name in named})}


def with_proto_security(card: JsonObject) -> JsonObject:
    """The card with its requirements, and those of its skills, also under the name of 0.3."""
    skills = card.get("skills")
    renamed: list[JsonValue] = [_renamed(skill) for skill in skills] if isinstance(skills, list) else []
    return {**_renamed_object(card), "skills": renamed}


def _renamed(value: JsonValue) -> JsonValue:
    return _renamed_object(value) if isinstance(value, dict) else value


def _renamed_object(value: JsonObject) -> JsonObject:
    return {**value, "security": value.get("securityRequirements")}
