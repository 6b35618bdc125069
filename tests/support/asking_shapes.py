"""What the two eras of the asking server share: a call, a refusal, the forms, and the check of an answer.

Nothing here knows an era, a transport or a task. No library: the server has to start at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "green"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2},
    },
    "required": ["name"],
}
SAMPLING: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9}


class Refused(Exception):
    """A JSON-RPC error. `status` is that of HTTP, where it can still be said."""

    def __init__(
        self, words: str, code: int = INVALID_PARAMS, data: Json | None = None, status: int = 200
    ) -> None:
        super().__init__(words)
        self.error: Json = {"code": code, "message": words, **({"data": data} if data else {})}
        self.status = status


class Stopped(Exception):
    """The call was cancelled: it gets no response."""


@dataclass(eq=False)
class Call:
    """One request of the client while it is worked on; `send` reaches the stream that its response goes to."""

    message: Json
    send: Callable[[Json], None]
    headers: Mapping[str, str] | None = None
    """By their names in lower case. None over stdio."""
    session: Any = None
    is_stopped: bool = False
    status: int = 200

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def params(self) -> Json:
        return self.message.get("params", {})

    @property
    def tool(self) -> str:
        return str(self.params.get("name", ""))

    @property
    def arguments(self) -> Json:
        return self.params.get("arguments") or {}

    def notify(self, method: str, params: Json) -> None:
        self.send({"method": method, "params": params})

    def progress(self, done: int, total: int, words: str) -> None:
        token = self.params.get("_meta", {}).get("progressToken")
        if token is not None:
            report = {"progressToken": token, "progress": done, "total": total, "message": words}
            self.notify("notifications/progress", report)


@dataclass
class AskingServer:
    """What both eras do with a call, and what they remember of all of them."""

    moved: threading.Condition = field(default_factory=threading.Condition)
    """Guards everything that is remembered; told of every change."""
    calls: list[Call] = field(default_factory=list)
    cancelled: int = 0
    answers: list[Json] = field(default_factory=list)
    grown: int = 0
    requests: dict[str, int] = field(default_factory=dict)

    def answer(self, call: Call) -> Json:
        """The result of a call, or Refused, or Stopped."""
        raise NotImplementedError

    def take(self, call: Call) -> None:
        """Work on a call until its response is sent."""
        try:
            done: Json = {"result": self.answer(call)}
        except Refused as refused:
            call.status = refused.status
            done = {"error": refused.error}
        except Stopped:
            return
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            done = {"error": {"code": INVALID_PARAMS, "message": f"not understood: {error!r}"}}
        finally:
            self.calls.remove(call)
        if not call.is_stopped:
            call.send({"id": call.id, **done})

    def enter(self, call: Call) -> None:
        """Take note of a call that begins."""
        with self.moved:
            self.calls.append(call)
            method = call.message["method"]
            self.requests[method] = self.requests.get(method, 0) + 1

    def stop(self, call: Call) -> None:
        """A call was cancelled."""
        with self.moved:
            if not call.is_stopped and call in self.calls:
                call.is_stopped = True
                self.cancelled += call.message["method"] == "tools/call"
                self.moved.notify_all()

    def notice(self, session: Any, message: Json) -> None:
        """A notification of the client."""
        if message["method"] == "notifications/cancelled":
            request_id = message.get("params", {}).get("requestId")
            for call in [call for call in self.calls if call.id == request_id and call.session is session]:
                self.stop(call)

    def receive(self, session: Any, message: Json) -> None:
        """A response of the client, which only one era knows."""

    def until(self, call: Call, condition: Callable[[], Any], seconds: float | None = None) -> bool:
        """Wait until something is so; False when the time was over before. Stopped when the call was."""
        with self.moved:
            self.moved.wait_for(lambda: call.is_stopped or condition(), seconds)
            if call.is_stopped:
                raise Stopped
            return bool(condition())

    def grown_tools(self) -> list[Json]:
        return [tool(f"grown-{number + 1}") for number in range(self.grown)]


def is_request(message: Json) -> bool:
    """Whether it is a request; one with an id of the wrong kind is none that can be answered."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Refused("no JSON-RPC 2.0 message", INVALID_REQUEST, status=400)
    if "method" in message and "id" in message:
        if not isinstance(message["id"], str | int) or isinstance(message["id"], bool):
            raise Refused("an id is a string or an integer", INVALID_REQUEST, status=400)
        if not isinstance(message.get("params", {}), dict):
            raise Refused("params is an object", status=400)
        return True
    return False


def pass_on(server: AskingServer, session: Any, message: Json) -> None:
    """What needs no answer."""
    if "method" in message:
        server.notice(session, message)
    else:
        server.receive(session, message)


def tool(name: str, *, required: str = "", annotations: Json | None = None, **properties: str) -> Json:
    """A tool; its properties are given as `steps="integer"`."""
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": required.split(),
    }
    return {"name": name, "inputSchema": schema, **({"annotations": annotations} if annotations else {})}


def text(words: str, **more: Any) -> Json:
    """A tool's result of one text."""
    return {"content": [{"type": "text", "text": words}], **more}


def added(arguments: Json) -> Json:
    """A sum, said as a text and as data."""
    total = {"sum": arguments["a"] + arguments["b"]}
    return text(json.dumps(total), structuredContent=total)


def form(message: str, schema: Json | None = None) -> Json:
    """The parameters of an elicitation in form mode."""
    return {"mode": "form", "message": message, "requestedSchema": schema or FORM}


def field_form(name: str, kind: str = "string") -> Json:
    """A form of one required field."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return form(f"Your {name}, please", schema)


def sure_form() -> Json:
    """A form of one required boolean, which leaves the mode out: it has to be taken as a form."""
    return {key: value for key, value in field_form("sure", "boolean").items() if key != "mode"}


def url_of(elicitation_id: str) -> Json:
    """The parameters of an elicitation in URL mode; 2025-11-25 needs `elicitationId` beside them."""
    where = f"https://example.com/connect?e={elicitation_id}"
    return {"mode": "url", "message": "Connect your account", "url": where}


def stamp(seconds: float | None = None) -> str:
    """ISO 8601, in UTC, to the millisecond."""
    now = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def missing_capability(capabilities: Json, method: str, params: Json) -> Json | None:
    """What the client would have to declare before it may be asked this, if it did not."""
    if method != "elicitation/create":
        return None
    mode = params.get("mode", "form")
    declared = capabilities.get("elicitation")
    modes = {"form": {}} if declared == {} else declared or {}
    return None if mode in modes else {"elicitation": {mode: {}}}


def check_answer(method: str, params: Json, answer: Any) -> None:
    """Refuse an answer that is not as the specification and the form say."""
    if not isinstance(answer, dict):
        raise Refused("an answer must be an object")
    if method != "elicitation/create":
        return
    action, content = answer.get("action"), answer.get("content")
    if action not in ("accept", "decline", "cancel"):
        raise Refused(f"an answer's action is accept, decline or cancel, not {action!r}")
    if params.get("mode") == "url" and "content" in answer:
        raise Refused("an answer in URL mode has no content")
    if action == "accept" and params.get("mode") != "url":
        _check_content(params["requestedSchema"], content)


def _check_content(schema: Json, content: Any) -> None:
    if not isinstance(content, dict):
        raise Refused("an accepted form needs its content, an object")
    if missing := [name for name in schema["required"] if name not in content]:
        raise Refused(f"the content lacks {', '.join(missing)}")
    for name, value in content.items():
        if name not in schema["properties"]:
            raise Refused(f"the form has no field {name}")
        if not _fits(schema["properties"][name], value):
            raise Refused(f"the content's {name} does not fit its schema: {value!r}")


def _fits(schema: Json, value: Any) -> bool:
    match schema["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            low, high = schema.get("minimum", value), schema.get("maximum", value)
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        case "array":
            known, most = schema["items"]["enum"], schema.get("maxItems", 99)
            return isinstance(value, list) and len(value) <= most and all(one in known for one in value)
    is_known = value in schema.get("enum", [value])
    return isinstance(value, str) and is_known and len(value) >= schema.get("minLength", 0)
