"""Single faults: what a request, an answer or an event becomes on the way (see `spoiling`)."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from tests.a2a_checks.spoiling import LEFT_OUT, Asked, result_of, tasks_in

ENDS: Final = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")


def untyped_details(_: Asked, body: Any) -> Any:
    error = body.get("error") if isinstance(body, dict) else None
    for detail in (error or {}).get("data") or (error or {}).get("details") or ():
        detail.pop("@type")
    return body


def one_domain(_: Asked, body: Any) -> Any:
    error = body.get("error") if isinstance(body, dict) else None
    for detail in (error or {}).get("data") or (error or {}).get("details") or ():
        if "domain" in detail:
            detail["domain"] = "a2a-protocol.org"
    return body


def wrapped_task(asked: Asked, body: Any) -> Any:
    if asked.method != "GetTask" or result_of(asked, body) is None:
        return body
    return {**body, "result": {"task": body["result"]}} if asked.is_jsonrpc else {"task": body}


def no_terminal_event(asked: Asked, event: Any) -> Any:
    update = (result_of(asked, event) or {}).get("statusUpdate") or {}
    return LEFT_OUT if update.get("status", {}).get("state", "").endswith(ENDS) else event


def no_first_task(asked: Asked, event: Any) -> Any:
    return LEFT_OUT if "task" in (result_of(asked, event) or {}) else event


def no_artifact_event(asked: Asked, event: Any) -> Any:
    return LEFT_OUT if "artifactUpdate" in (result_of(asked, event) or {}) else event


def another_context(asked: Asked, event: Any) -> Any:
    for update in (result_of(asked, event) or {}).values():
        if "contextId" in update and "id" not in update:
            update["contextId"] = "another"
    return event


def no_empty_token(asked: Asked, body: Any) -> Any:
    result = result_of(asked, body)
    if isinstance(result, dict) and result.get("nextPageToken") == "":
        del result["nextPageToken"]
    return body


def older_roles(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        for message in task.get("history", ()):
            message["role"] = "user"
    return body


def snake_case(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        task["created_at"] = "2026-01-01T00:00:00.000Z"
    return body


def other_zone(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        task["status"]["timestamp"] = task["status"]["timestamp"].replace("Z", "+00:00")
    return body


def two_contents(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        for artifact in task.get("artifacts", ()):
            artifact["parts"][0]["url"] = "https://example.com"
    return body


def ids_in_words(asked: Asked, body: Any) -> Any:
    return {**body, "id": str(body["id"])} if asked.is_jsonrpc and isinstance(body.get("id"), int) else body


def context_of_its_own(asked: Asked, body: Any) -> Any:
    said = asked.params.get("message") if isinstance(asked.params, dict) else None
    if isinstance(said, dict) and "contextId" in said and "taskId" not in said:
        for task in tasks_in(result_of(asked, body)):
            task["contextId"] = "my-own"
    return body


class ContextsForTasks:
    """Takes a message that names a context for one to the last task there."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def answer(self, asked: Asked, body: Any) -> Any:
        for task in tasks_in(result_of(asked, body)):
            self._last[task["contextId"]] = task["id"]
        return body

    def request(self, asked: Asked) -> Any:
        said = asked.params.get("message") if isinstance(asked.params, dict) else None
        task_id = self._last.get(said.get("contextId", "")) if isinstance(said, dict) else None
        if task_id is None:
            return asked.body
        said.setdefault("taskId", task_id)
        return {**asked.body}


def another_message_id(asked: Asked) -> Any:
    said = asked.params.get("message") if isinstance(asked.params, dict) else None
    if not isinstance(said, dict) or not said.get("messageId"):
        return asked.body
    said["messageId"] = str(uuid.uuid4())
    return {**asked.body}


def first_text_alone(asked: Asked) -> Any:
    said = asked.params.get("message") if isinstance(asked.params, dict) else None
    parts = said.get("parts") if isinstance(said, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "text" in part for part in parts):
        return asked.body
    said["parts"] = parts[:1]
    return {**asked.body}


def no_output_modes(asked: Asked) -> Any:
    configuration = asked.params.get("configuration") if isinstance(asked.params, dict) else None
    if not isinstance(configuration, dict):
        return asked.body
    configuration.pop("acceptedOutputModes", None)
    return {**asked.body}


def data_beside_texts(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        for artifact in task.get("artifacts", ()):
            said = [part for part in artifact["parts"] if part.get("text", "").startswith("{")]
            twins = [part for part in artifact["parts"] if "data" in part]
            artifact["parts"] += [{"data": json.loads(part["text"])} for part in said]
            artifact["parts"] += [{"text": json.dumps(part["data"])} for part in twins]
    return body


def wrong_example(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        said = body["skills"][0]
        said["examples"] = [json.dumps({"skill": said["id"], "arguments": {"text": 7}})]
    return body


def never_blocking(asked: Asked) -> Any:
    if isinstance(asked.params, dict) and isinstance(asked.params.get("message"), dict):
        asked.params["configuration"] = {"returnImmediately": True}
        return {**asked.body}
    return asked.body


def all_artifacts(asked: Asked) -> Any:
    if asked.method == "ListTasks" and asked.is_jsonrpc and isinstance(asked.params, dict):
        return {**asked.body, "params": {**asked.params, "includeArtifacts": True}}
    return asked.body


def whole_history(asked: Asked) -> Any:
    if asked.is_jsonrpc and isinstance(asked.params, dict) and asked.params.get("historyLength", -1) >= 0:
        return {**asked.body, "params": {**asked.params, "historyLength": None}}
    return asked.body


def last_words_kept_back(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        if task["status"]["state"].endswith(ENDS) and "message" in task["status"]:
            task["history"] = task.get("history", [])[:-1]
    return body


def last_words_told_twice(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        if task["status"]["state"].endswith(ENDS) and task.get("history"):
            task["history"] = [*task["history"][-1:], *task["history"]]
    return body


def own_codes(_: Asked, body: Any) -> Any:
    if isinstance(body, dict) and body.get("error", {}).get("code") == -32001:
        body["error"]["code"] = "-32602"
    return body


def no_skills(asked: Asked, body: Any) -> Any:
    return {**body, "skills": []} if asked.is_card else body


def same_skills(asked: Asked, body: Any) -> Any:
    return {**body, "skills": [body["skills"][0]] * 2} if asked.is_card else body


def no_streaming(asked: Asked, body: Any) -> Any:
    return {**body, "capabilities": {"streaming": False}} if asked.is_card else body


def needs_extension(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        body["capabilities"]["extensions"] = [{"uri": "urn:needed:v1", "required": True}]
    return body


def with_push(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        body["capabilities"] |= {"pushNotifications": True, "extendedAgentCard": True}
    return body


def nothing_refused(asked: Asked, body: Any) -> Any:
    if not isinstance(body, dict) or "error" not in body:
        return body
    made = {"task": {"id": "made-up", "contextId": "made-up", "status": {"state": "TASK_STATE_COMPLETED"}}}
    return {"jsonrpc": "2.0", "id": body.get("id"), "result": made} if asked.is_jsonrpc else made


def everything_refused(asked: Asked, body: Any) -> Any:
    if asked.is_card or result_of(asked, body) is None:
        return body
    if asked.is_jsonrpc:
        return {"jsonrpc": "2.0", "id": body["id"], "error": {"code": "no", "message": ""}}
    return {"error": {"code": 7, "message": None}}


def every_event_refused(asked: Asked, event: Any) -> Any:
    return {"error": {"code": 1}, "id": "x"} if asked.is_jsonrpc else {"nothing": 1}


def lists_nothing(asked: Asked, body: Any) -> Any:
    result = result_of(asked, body)
    if isinstance(result, dict) and "tasks" in result:
        result["tasks"] = []
        del result["totalSize"]
    return body


def lists_backwards(asked: Asked, body: Any) -> Any:
    result = result_of(asked, body)
    if isinstance(result, dict) and "tasks" in result:
        result["tasks"].reverse()
    return body


def no_filter(asked: Asked) -> Any:
    if asked.is_jsonrpc and asked.method == "ListTasks" and isinstance(asked.params, dict):
        kept = {"includeArtifacts"} & set(asked.params)
        return {**asked.body, "params": {name: asked.params[name] for name in kept}}
    return asked.body


def odd_tasks(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        task["metadata"] = []
        for message in [*task.get("history", ()), task["status"].get("message", {})]:
            message.pop("contextId", None)
            message["metadata"] = {"a2a-checks": "?"}
        for artifact in task.get("artifacts", ()):
            artifact["parts"] = [{"raw": "*"}]
        task["artifacts"] = task.get("artifacts", []) * 2
    return body


def odd_card(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        body["agent_name"] = body.pop("name")
        body["supportedInterfaces"].append(
            {"url": "agent", "protocolBinding": "JSONRPC", "protocolVersion": "0.9.1"}
        )
        body["capabilities"]["streaming"] = "yes"
        body["securitySchemes"] = {"none": {}}
        body["signatures"] = [{"protected": "e30", "signature": "x"}]
    return body


def one_task(asked: Asked, body: Any) -> Any:
    for task in tasks_in(result_of(asked, body)):
        task["id"] = "the-task"
        task.pop("contextId", None)
    return body


def elsewhere(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        body["supportedInterfaces"][0]["url"] += "/elsewhere"
    return body


def params_needed(asked: Asked) -> Any:
    is_call = asked.is_jsonrpc and isinstance(asked.body, dict) and "method" in asked.body
    return {**asked.body, "jsonrpc": "1"} if is_call and "params" not in asked.body else asked.body


def no_older(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        listed = body["supportedInterfaces"]
        body["supportedInterfaces"] = [one for one in listed if one["protocolVersion"] == "1.0"]
    return body


def token_in_card(asked: Asked, body: Any) -> Any:
    if asked.is_card:
        body["capabilities"]["extendedAgentCard"] = True
        body["securitySchemes"] = {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        body["securityRequirements"] = [{"schemes": {"token": {"list": []}}}]
    return body
