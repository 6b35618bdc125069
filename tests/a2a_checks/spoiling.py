"""A good agent spoiled in one way: what it is asked, or what it answers, is changed on the way.

Knows ASGI and JSON, and which operation is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEFT_OUT: Final = object()
"""In place of an event: it is not sent."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, over either binding."""

    verb: str
    path: str
    body: Any

    @property
    def is_jsonrpc(self) -> bool:
        """Whether it is a call of JSON-RPC."""
        return self.path in ("", "/")

    @property
    def is_card(self) -> bool:
        """Whether it is the card that is asked for."""
        return self.path.endswith("agent-card.json")

    @property
    def method(self) -> str:
        """The operation, as JSON-RPC names it."""
        if self.is_jsonrpc:
            return str(self.body.get("method")) if isinstance(self.body, dict) else ""
        if self.is_card:
            return ""
        if self.path == "/message:send":
            return "SendMessage"
        verbs = {":cancel": "CancelTask", ":subscribe": "SubscribeToTask", ":stream": "SendStreamingMessage"}
        named = next((name for end, name in verbs.items() if self.path.endswith(end)), None)
        return named or ("ListTasks" if self.path == "/tasks" else "GetTask")

    @property
    def params(self) -> Any:
        """The parameters that are in the body."""
        return self.body.get("params") if self.is_jsonrpc and isinstance(self.body, dict) else self.body


def as_it_is(_: Asked, body: Any) -> Any:
    """Spoils nothing."""
    return body


@dataclass(frozen=True, slots=True)
class Spoil:
    """One way to be broken. `answer` and `event` get the body as JSON, in its envelope."""

    answer: Callable[[Asked, Any], Any] = as_it_is
    bindings: tuple[str, ...] = ("JSONRPC",)
    """What its card declares: one binding, where what is broken is not another one's."""
    event: Callable[[Asked, Any], Any] = as_it_is
    request: Callable[[Asked], Any] = field(default=lambda asked: asked.body)
    asked_headers: Mapping[str, str | None] = field(default_factory=dict)
    """Headers of the request that are set, or taken away."""
    ok: bool = False
    """Whether every JSON answer is 200."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Headers of JSON answers, likewise."""


def result_of(asked: Asked, body: Any) -> Any:
    """The result in an answer or an event, in the envelope or bare; None when it is an error."""
    if not isinstance(body, dict):
        return None
    return body.get("result") if asked.is_jsonrpc else (None if "error" in body else body)


def tasks_in(result: Any) -> list[dict[str, Any]]:
    """The tasks in a result."""
    if not isinstance(result, dict):
        return []
    inner = [result["task"]] if "task" in result else result.get("tasks", [result])
    return [task for task in inner if isinstance(task, dict) and "status" in task]


def spoiled(app: ASGIApp, spoil: Spoil, base_path: str) -> ASGIApp:
    """The application whose agent is at `base_path`, broken in this way."""

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(
            scope["method"], scope["path"].removeprefix(base_path), _json(body := await body_of(receive))
        )
        said = spoil.request(asked)
        body = body if said is asked.body else json.dumps(said).encode()
        headers = changed_headers(scope["headers"], {**spoil.asked_headers, "content-length": str(len(body))})
        await app({**scope, "headers": headers}, repeating(body, receive), _Spoiling(spoil, asked, send).send)

    return broken


class _Spoiling:
    """What comes back. Each message that the bridge sends on a stream holds whole events."""

    def __init__(self, spoil: Spoil, asked: Asked, send: Send) -> None:
        self._spoil = spoil
        self._asked = asked
        self._send = send
        self._start: Message = {}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif b"text/event-stream" in dict(self._start["headers"]).get(b"content-type", b""):
            await self._send_events(message)
        else:
            await self._send_answer(message)

    async def _send_events(self, message: Message) -> None:
        if self._start.get("status"):
            await self._send({**self._start})
            self._start = {**self._start, "status": None}
        blocks = message["body"].decode().split("\n\n")
        text = "".join(self._spoiled(block) for block in blocks if block)
        await self._send({**message, "body": text.encode()})

    def _spoiled(self, block: str) -> str:
        if not block.startswith("data:"):
            return f"{block}\n\n"
        event = self._spoil.event(self._asked, json.loads(block.removeprefix("data:")))
        return "" if event is LEFT_OUT else f"data: {json.dumps(event)}\n\n"

    async def _send_answer(self, message: Message) -> None:
        body = message["body"]
        if body:
            body = json.dumps(self._spoil.answer(self._asked, self._declared(json.loads(body)))).encode()
        changes = {**self._spoil.headers, "content-length": str(len(body))}
        status = 200 if self._spoil.ok else self._start["status"]
        headers = changed_headers(self._start["headers"], changes)
        await self._send({**self._start, "status": status, "headers": headers})
        await self._send({**message, "body": body})

    def _declared(self, body: Any) -> Any:
        if self._asked.is_card:
            known = body["supportedInterfaces"]
            body["supportedInterfaces"] = [
                one for one in known if one["protocolBinding"] in self._spoil.bindings
            ]
        return body


def changed_headers(
    headers: list[tuple[bytes, bytes]], changes: Mapping[str, str | None]
) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.decode().lower() not in changes]
    return [*kept, *((name.encode(), value.encode()) for name, value in changes.items() if value is not None)]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


async def body_of(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


def repeating(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, then what else comes."""
    told = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return told.pop() if told else await receive()

    return again
