"""The operations of A2A in the words of each binding: an operation to a request, an answer to a result.

Reading is as liberal as can be told apart: that an envelope or an error is exactly as it has to be is what
single checks look at.

Spec: A2A 1.0 sections 5.3, 9, 11.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.a2a_checks.errors import Fault, Kind, Refusal
from tests.a2a_checks.table import HTTP_JSON, JSONRPC, Failed, shown
from tests.a2a_checks.wire import Answer, Request

SEND: Final = "SendMessage"
STREAM: Final = "SendStreamingMessage"
GET: Final = "GetTask"
LIST: Final = "ListTasks"
CANCEL: Final = "CancelTask"
SUBSCRIBE: Final = "SubscribeToTask"
CREATE_PUSH: Final = "CreateTaskPushNotificationConfig"
GET_PUSH: Final = "GetTaskPushNotificationConfig"
LIST_PUSH: Final = "ListTaskPushNotificationConfigs"
DELETE_PUSH: Final = "DeleteTaskPushNotificationConfig"
EXTENDED_CARD: Final = "GetExtendedAgentCard"

_CONFIGS: Final = "/tasks/{taskId}/pushNotificationConfigs"
PATHS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    SEND: ("POST", "/message:send", ()),
    STREAM: ("POST", "/message:stream", ()),
    GET: ("GET", "/tasks/{id}", ("id",)),
    LIST: ("GET", "/tasks", ()),
    CANCEL: ("POST", "/tasks/{id}:cancel", ("id",)),
    SUBSCRIBE: ("POST", "/tasks/{id}:subscribe", ("id",)),
    CREATE_PUSH: ("POST", _CONFIGS, ("taskId",)),
    LIST_PUSH: ("GET", _CONFIGS, ("taskId",)),
    GET_PUSH: ("GET", _CONFIGS + "/{id}", ("taskId", "id")),
    DELETE_PUSH: ("DELETE", _CONFIGS + "/{id}", ("taskId", "id")),
    EXTENDED_CARD: ("GET", "/extendedAgentCard", ()),
}
"""Section 11.3: verb, path, and what stands in the path."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an operation gave: a result, or a refusal."""

    answer: Answer
    result: Any = None
    refusal: Refusal | None = None

    def value(self) -> Any:
        """The result."""
        if self.refusal is not None:
            raise Failed("a result", self.refusal.shown())
        return self.result


class Binding(ABC):
    """One interface of the card."""

    name: str

    def __init__(self, interface: Mapping[str, Any]) -> None:
        self.url = str(interface["url"])
        self.tenant = interface.get("tenant")

    @abstractmethod
    def request(self, operation: str, params: Mapping[str, Any]) -> Request:
        """How the operation is asked for."""

    @abstractmethod
    def reply(self, answer: Answer) -> Reply:
        """What an answer says."""

    @abstractmethod
    def event(self, text: str, answer: Answer) -> Reply:
        """What one event of a stream says."""

    @abstractmethod
    def says(self, refusal: Refusal, kind: Kind | Fault) -> bool:
        """Whether a refusal is of this kind."""

    @abstractmethod
    def words(self, kind: Kind | Fault) -> str:
        """How a refusal of this kind has to look."""


class JsonRpc(Binding):
    """Section 9."""

    name = JSONRPC

    def __init__(self, interface: Mapping[str, Any]) -> None:
        super().__init__(interface)
        self._ids = itertools.count(1)

    def request(self, operation: str, params: Mapping[str, Any]) -> Request:
        """A call."""
        said = {**params, **({"tenant": self.tenant} if self.tenant else {})}
        return self.envelope({"method": operation, "params": said})

    def envelope(self, fields: Mapping[str, Any]) -> Request:
        """A request with these fields of the envelope beside its usual ones."""
        return self.posted({"jsonrpc": "2.0", "id": next(self._ids), **fields})

    def posted(self, body: object) -> Request:
        """Any body."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return Request("POST", self.url, headers, body if isinstance(body, bytes) else to_json(body))

    def reply(self, answer: Answer) -> Reply:
        """Result or error, in whatever else."""
        return self._said(answer.json(), answer)

    def event(self, text: str, answer: Answer) -> Reply:
        """The same, in an event."""
        return self._said(_parsed(text), answer)

    def _said(self, body: Any, answer: Answer) -> Reply:
        if isinstance(body, dict) and isinstance(error := body.get("error"), dict):
            seen = Answer(answer.status, answer.headers, to_json(body))
            refusal = Refusal(seen, error.get("code"), error.get("message"), error.get("data"))
            return Reply(answer, refusal=refusal)
        if not isinstance(body, dict) or "result" not in body:
            raise Failed("a JSON-RPC answer with result or error", f"{answer.status} {shown(body)}")
        return Reply(answer, body["result"])

    def says(self, refusal: Refusal, kind: Kind | Fault) -> bool:
        """The code says it."""
        return bool(refusal.code == kind.value[0])

    def words(self, kind: Kind | Fault) -> str:
        """For the report."""
        return f"error {kind.value[0]} ({kind.name})"


class HttpJson(Binding):
    """Section 11."""

    name = HTTP_JSON

    def request(self, operation: str, params: Mapping[str, Any]) -> Request:
        """Verb, path, and the rest in the query or the body."""
        verb, template, in_path = PATHS[operation]
        path = template.format_map({name: quote(str(params[name]), safe="") for name in in_path})
        rest = {name: value for name, value in params.items() if name not in in_path}
        if verb == "POST":
            return self.at(verb, path, to_json({**rest, **({"tenant": self.tenant} if self.tenant else {})}))
        query = urlencode({name: _query_value(value) for name, value in rest.items()})
        return self.at(verb, path + (f"?{query}" if query else ""))

    def at(self, verb: str, path: str, body: bytes | None = None) -> Request:
        """Anything below the interface's URL; a tenant goes first, as the proto's second paths have it."""
        tenant = f"/{quote(self.tenant, safe='')}" if self.tenant else ""
        headers = {"Accept": "application/a2a+json, application/json, text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/a2a+json"
        return Request(verb, self.url.rstrip("/") + tenant + path, headers, body)

    def reply(self, answer: Answer) -> Reply:
        """The body, or the error in it."""
        if answer.status < 400:
            return Reply(answer, answer.json() if answer.body else None)
        try:
            body = answer.json()
        except Failed:
            body = None
        error = body.get("error") if isinstance(body, dict) else None
        said = error if isinstance(error, dict) else {}
        refusal = Refusal(answer, said.get("code"), said.get("message"), said.get("details"))
        return Reply(answer, refusal=refusal)

    def event(self, text: str, answer: Answer) -> Reply:
        """The event itself."""
        return Reply(answer, _parsed(text))

    def says(self, refusal: Refusal, kind: Kind | Fault) -> bool:
        """Status and reason say it; statuses alone are shared by several kinds."""
        is_reason = isinstance(kind, Fault) or refusal.reason == kind.name
        return refusal.answer.status == kind.value[1] and is_reason

    def words(self, kind: Kind | Fault) -> str:
        """For the report."""
        reason = "" if isinstance(kind, Fault) else f" with ErrorInfo reason {kind.name}"
        return f"status {kind.value[1]}{reason}"


BINDINGS: Final[Mapping[str, type[JsonRpc] | type[HttpJson]]] = {JSONRPC: JsonRpc, HTTP_JSON: HttpJson}


def to_json(value: object) -> bytes:
    """A body."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Failed("events whose data is JSON", shown(text)) from None


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
