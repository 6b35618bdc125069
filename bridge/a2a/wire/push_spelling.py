"""Push notification configs of versions before 1.0: converts them to 1.0 and back. Pure.

In the JSON of 0.3 and before, a config is a field beside the id of its task, which requests call `id`. In the proto of
0.3 the config is in `config`, and a resource name has both ids.

Spec: A2A 0.3.0 sections 7.5 to 7.8, and its a2a.proto.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model import operations
from bridge.a2a.model.operations import AnyOperation
from bridge.text.jsonvalues import JsonObject

SCHEMES: Final = "urn:mcp-a2a:schemes"
"""The field for all schemes that an older client named. An authentication of 1.0 has only one scheme."""
_CONFIG: Final = "pushNotificationConfig"
_CONFIG_ID: Final = "pushNotificationConfigId"
_NAME: Final = re.compile(r"tasks/(?P<taskId>[^/]+)(/pushNotificationConfigs/(?P<id>[^/]+))?")


def push_out(config: JsonObject) -> JsonObject:
    """A config in the form before 1.0, in which an authentication has a list of schemes."""
    authentication = config.get("authentication")
    if not isinstance(authentication, dict) or "scheme" not in authentication:
        return config
    rest = {name: item for name, item in authentication.items() if name not in ("scheme", SCHEMES)}
    schemes = authentication.get(SCHEMES) or [authentication["scheme"]]
    return {**config, "authentication": {"schemes": schemes, **rest}}


def push_in(config: JsonObject) -> JsonObject:
    """The reverse of `push_out`: the first scheme, and all schemes in a field of their own. An authentication without
    schemes and credentials is left out."""
    authentication = config.get("authentication")
    if not isinstance(authentication, dict):
        return config
    rest = {name: item for name, item in authentication.items() if name not in ("schemes", SCHEMES)}
    schemes = authentication.get("schemes")
    if not schemes and not any(rest.values()):
        return {name: item for name, item in config.items() if name != "authentication"}
    if not isinstance(schemes, list):
        return config
    others: JsonObject = {SCHEMES: schemes} if len(schemes) > 1 else {}
    return {**config, "authentication": {"scheme": next(iter(schemes), ""), **rest, **others}}


class JsonPushSpelling:
    """The configs of the JSON schema of 0.3."""

    task_id: str = "taskId"
    """The field for the id of the task, beside the config."""

    def request_from(self, operation: AnyOperation, params: JsonObject) -> JsonObject:
        """The parameters of an operation on configs, in the form of 1.0."""
        if operation is operations.CREATE_PUSH_CONFIG:
            return self.config_from(params)
        task_id: JsonObject = {"taskId": params["id"]} if "id" in params else {}
        if operation is operations.LIST_PUSH_CONFIGS:
            return task_id
        return {**task_id, "id": params.get(_CONFIG_ID) or ""}

    def request(self, operation: AnyOperation, params: JsonObject) -> JsonObject:
        """The reverse of `request_from`."""
        if operation is operations.CREATE_PUSH_CONFIG:
            return self.config(params)
        config_id: JsonObject = {_CONFIG_ID: params["id"]} if params.get("id") else {}
        return {"id": params["taskId"], **config_id}

    def answer(self, operation: AnyOperation, answer: JsonObject) -> JsonValue:
        """The answer of an operation on configs."""
        if operation is operations.LIST_PUSH_CONFIGS:
            return [self.config(config) for config in _objects(answer.get("configs"))]
        return None if operation is operations.DELETE_PUSH_CONFIG else self.config(answer)

    def answer_from(self, operation: AnyOperation, value: JsonValue) -> JsonValue:
        """The reverse of `answer`."""
        if operation is operations.LIST_PUSH_CONFIGS:
            return {"configs": [self.config_from(config) for config in _objects(value)]}
        if operation is operations.DELETE_PUSH_CONFIG:
            return {}
        return self.config_from(value) if isinstance(value, dict) else value

    def config(self, config: JsonObject) -> JsonObject:
        """A config of a task."""
        rest = {name: item for name, item in config.items() if name not in ("taskId", "tenant")}
        return {self.task_id: config.get("taskId", ""), _CONFIG: push_out(rest)}

    def config_from(self, value: JsonObject) -> JsonObject:
        """The reverse of `config`."""
        config = value.get(_CONFIG)
        read = push_in(config) if isinstance(config, dict) else {}
        task_id: JsonObject = {"taskId": value[self.task_id]} if self.task_id in value else {}
        return {**read, **task_id}


class FirstPushSpelling(JsonPushSpelling):
    """The configs of the first generation, in which a task has only one config."""

    task_id = "id"


class ProtoPushSpelling(JsonPushSpelling):
    """The configs of the proto of 0.3."""

    def request_from(self, operation: AnyOperation, params: JsonObject) -> JsonObject:
        if operation is not operations.CREATE_PUSH_CONFIG:
            return params
        config = params.get("config")
        read = self.config_from(config if isinstance(config, dict) else params)
        if "id" not in read and (config_id := params.get("configId")):
            read["id"] = config_id
        return {**read, "taskId": params.get("taskId", read.get("taskId"))}

    def request(self, operation: AnyOperation, params: JsonObject) -> JsonObject:
        if operation is not operations.CREATE_PUSH_CONFIG:
            return params
        task_id = params.get("taskId", "")
        config_id: JsonObject = {"configId": params["id"]} if params.get("id") else {}
        config = self.config(params)
        return {"taskId": task_id, "parent": f"tasks/{task_id}", **config_id, "config": config}

    def answer(self, operation: AnyOperation, answer: JsonObject) -> JsonValue:
        if operation is operations.LIST_PUSH_CONFIGS:
            configs: list[JsonValue] = [self.config(config) for config in _objects(answer.get("configs"))]
            return {"configs": configs, "nextPageToken": answer.get("nextPageToken", "")}
        return {} if operation is operations.DELETE_PUSH_CONFIG else self.config(answer)

    def answer_from(self, operation: AnyOperation, value: JsonValue) -> JsonValue:
        if operation is operations.LIST_PUSH_CONFIGS and isinstance(value, dict):
            return {
                **value,
                "configs": [self.config_from(config) for config in _objects(value.get("configs"))],
            }
        return super().answer_from(operation, value)

    def config(self, config: JsonObject) -> JsonObject:
        rest = {name: item for name, item in config.items() if name not in ("taskId", "tenant")}
        name = f"tasks/{config.get('taskId', '')}/pushNotificationConfigs/{config.get('id', '')}"
        return {"name": name, _CONFIG: push_out(rest)}

    def config_from(self, value: JsonObject) -> JsonObject:
        config = value.get(_CONFIG)
        read = push_in(config) if isinstance(config, dict) else {}
        named = _NAME.fullmatch(str(value.get("name", "")))
        ids: Mapping[str, str | None] = named.groupdict() if named else {}
        return {**{name: item for name, item in ids.items() if item}, **read}


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
