"""Both bindings of our A2A server, asked anything, straight at the ASGI application of a bridge that runs."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.hostile.a2a_answers import require_jsonrpc, require_readable_echo, require_rest, strict_json
from tests.hostile.asgi import Answered, Asked, ask, header
from tests.hostile.json_grammar import TEXTS, text
from tests.hostile.mutations import cut, hostile_json, mutated_text
from tests.hostile.target import Check, Target
from tests.support.limits import command_of
from tests.support.running import EXTENSION, Wrapped, config_for, profile_with, wrapped

SERVER: Final = command_of((sys.executable, str(Path(__file__).with_name("scripted_server.py"))))

_DONE, _ASKING, _FRESH = "@DONE@", "@ASKING@", "@FRESH@"
_PARTS: Final[list[Any]] = [
    {"text": "echo text=hello"},
    {"text": 'many {"count": 2, "nested": {}}'},
    {"data": {"skill": "many", "arguments": {"count": 2.0, "nested": {"deep": {"a": {"b": {}}}}, "kind": 3}}},
    {"data": {"tool": "echo", "arguments": {"text": "hello"}}, "mediaType": "application/json"},
    {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"},
    {"url": "https://example.com/a.png", "mediaType": "image/png"},
    {"text": "plain words", "metadata": {"a": [1, {"b": None}]}},
]


def _message(*parts: Any, **more: Any) -> Any:
    said = {"messageId": _FRESH, "role": "ROLE_USER", "parts": list(parts), **more}
    return {"message": said, "configuration": {"historyLength": 3, "acceptedOutputModes": ["text/plain"]}}


_PARAMS: Final[list[tuple[str, Any]]] = [
    *[("SendMessage", _message(part)) for part in _PARTS],
    ("SendMessage", _message(_PARTS[0], metadata={f"{EXTENSION}/skill": "echo", "skill": "many"})),
    ("SendMessage", {**_message(_PARTS[4], _PARTS[5]), "metadata": {"skillId": "upload"}}),
    ("SendMessage", _message({"data": {"text": "yes"}}, taskId=_ASKING)),
    ("SendMessage", _message({"text": "text=more"}, taskId=_ASKING, contextId="c")),
    ("SendMessage", _message(_PARTS[0], taskId=_DONE)),
    ("SendStreamingMessage", _message(*_PARTS[:3])),
    ("SendStreamingMessage", _message({"data": {"action": "decline"}}, taskId=_ASKING)),
    ("GetTask", {"id": _DONE, "historyLength": 1}),
    ("CancelTask", {"id": _ASKING, "metadata": {}}),
    ("SubscribeToTask", {"id": _ASKING}),
    (
        "ListTasks",
        {
            "pageSize": 2,
            "status": "TASK_STATE_COMPLETED",
            "includeArtifacts": True,
            "statusTimestampAfter": "2026-01-31T12:00:00.000Z",
            "pageToken": "MTox",
            "contextId": "c",
            "historyLength": 0,
        },
    ),
    ("CreateTaskPushNotificationConfig", {"taskId": _DONE, "id": "1", "url": "https://example.com"}),
    ("GetExtendedAgentCard", {}),
]
_CALLS: Final = [{"jsonrpc": "2.0", "id": 1, "method": name, "params": params} for name, params in _PARAMS]
_PATHS: Final = (
    ("POST", "/message:send"),
    ("POST", "/message:stream"),
    ("GET", "/tasks"),
    ("GET", f"/tasks/{_DONE}"),
    ("POST", f"/tasks/{_ASKING}:cancel"),
    ("POST", f"/tasks/{_ASKING}:subscribe"),
    ("GET", f"/tasks/{_ASKING}:subscribe"),
    ("POST", f"/tasks/{_DONE}/pushNotificationConfigs"),
    ("DELETE", f"/tasks/{_DONE}/pushNotificationConfigs/1"),
    ("GET", "/extendedAgentCard"),
    ("GET", "/.well-known/agent-card.json"),
)
_QUERY: Final = (
    "historyLength",
    "pageSize",
    "pageToken",
    "status",
    "includeArtifacts",
    "statusTimestampAfter",
    "contextId",
    "tenant",
    "A2A-Version",
)
_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "a2a-version": ("1.0", "1.0.7", "0.3", "", "1.\u0660", "1" * 9000, "1.0,1.0"),
    "a2a-extensions": (EXTENSION, f" {EXTENSION} ,urn:x", ",,,", "urn:" + "x" * 9000),
    "content-type": ("application/json", "application/a2a+json; charset=utf-16", "text/plain", ";", ""),
    "content-length": ("0", "-1", "9" * 20, "9" * 5000, "1e3", "\u0663", " 5"),
    "last-event-id": ("1", "\x00"),
    "origin": ("http://localhost", "null", "https://evil.example", "://", ""),
    "host": (
        "localhost",
        "127.0.0.1:80",
        "[::1%25a]:1",
        "evil.example",
        "",
        "a:b:c",
        "[",
        "localhost:\u0663",
    ),
    "authorization": ("Bearer x", "Bearer", "Basic \xff", ""),
    "accept": ("application/json", "application/*;q=0.5, */*;q=x", ";q=1,,/", ",;" * 4000),
    "traceparent": ("00-" + "a" * 32 + "-" + "b" * 16 + "-01", "\n"),
    "tracestate": ("a=1", "a=1," * 2000, "=,;\u0663"),
    "baggage": ("a=1;b=2", "a=" + "v" * 9000, "a ; = ," * 1000),
    "if-none-match": ('W/"x"', "*", '"' * 5000),
    "x-forwarded-host": ("evil.example", "localhost", ",", "["),
    "x-forwarded-proto": ("https", "javascript"),
    "x-forwarded-prefix": ("/a", "//evil", "\\", "/a?b"),
    "transfer-encoding": ("chunked",),
    "expect": ("100-continue",),
}


def _headers(chance: Random) -> tuple[tuple[bytes, bytes], ...]:
    said = {"host": "localhost", "a2a-version": "1.0", "content-type": "application/json"}
    for _ in range(chance.choice([0, 0, 1, 2])):
        name = chance.choice(list(_HEADERS))
        said[name] = chance.choice(_HEADERS[name]) if chance.random() < 0.8 else text(chance)
    made = [header(name, value) for name, value in said.items() if chance.random() < 0.98]
    return tuple(made + made[:1]) if chance.random() < 0.02 else tuple(made)


def _asked(verb: str, path: str, query: bytes, body: bytes, chance: Random) -> Asked:
    return Asked(
        verb,
        path,
        query,
        _headers(chance),
        tuple(cut(body, chance)),
        leaves_early=chance.random() < 0.02,
        reads_bytes=chance.choice([1, 500, 1 << 30, 1 << 30]),
    )


def jsonrpc_case(chance: Random) -> Asked:
    """A call, or nearly one."""
    verb = "POST" if chance.random() < 0.97 else chance.choice(["GET", "PUT", "", "OPTIONS"])
    query = b"A2A-Version=1.0" if chance.random() < 0.1 else b""
    return _asked(verb, chance.choice(["", "/"]), query, hostile_json(_CALLS, chance), chance)


def rest_case(chance: Random) -> Asked:
    """A verb, a path with a query, and a body, or nearly."""
    verb, path = chance.choice(_PATHS)
    if chance.random() < 0.2:
        verb = chance.choice(["GET", "POST", "DELETE", "HEAD", "PATCH"])
    if chance.random() < 0.3:
        path = mutated_text(path.encode(), chance, 1).decode("utf-8", "replace")
    pairs = [
        f"{chance.choice(_QUERY)}={chance.choice([*TEXTS, '1', '5', '-1', '9' * 5000])}"
        for _ in range(chance.choice([0, 0, 1, 3]))
    ]
    query = "&".join(pairs).encode("utf-8", "surrogatepass")
    said = [params for name, params in _PARAMS if "message" in path and "Send" in name] or [{}]
    body = hostile_json(said, chance) if verb != "GET" or chance.random() < 0.1 else b""
    return _asked(verb, path if path.startswith("/") else f"/{path}", query, body, chance)


def _cut_again(body: bytes, pieces: int) -> tuple[bytes, ...]:
    size = -(-len(body) // max(pieces, 1)) or 1
    return tuple(body[at : at + size] for at in range(0, len(body), size))


class _Face:
    """A bridge, and two tasks of it: one has ended, one waits for an answer."""

    def __init__(self, bridge: Wrapped) -> None:
        self._bridge = bridge
        self._fresh = itertools.count()
        self._done = self._asking = b""

    async def ask(self, asked: Asked) -> Answered:
        await self._prepare()
        return await ask(
            self._bridge.app,
            replace(
                asked,
                path=self._bridge.path + self._filled(asked.path.encode("utf-8", "replace")).decode(),
                chunks=_cut_again(self._filled(b"".join(asked.chunks)), len(asked.chunks)),
            ),
        )

    def _filled(self, said: bytes) -> bytes:
        fresh = f"m-{next(self._fresh)}".encode()
        return (
            said.replace(_DONE.encode(), self._done)
            .replace(_ASKING.encode(), self._asking)
            .replace(_FRESH.encode(), fresh)
        )

    async def _prepare(self) -> None:
        if not self._done:
            self._done = await self._begun(_PARTS[0], "COMPLETED")
        if not self._asking or await self._state(self._asking) != "INPUT_REQUIRED":
            self._asking = await self._begun({"data": {"skill": "echo", "arguments": {}}}, "INPUT_REQUIRED")

    async def _begun(self, part: Any, state: str) -> bytes:
        task = (await self.call("SendMessage", _message(part)))["task"]
        assert task["status"]["state"] == f"TASK_STATE_{state}", task
        return str(task["id"]).encode()

    async def _state(self, task_id: bytes) -> str:
        task = await self.call("GetTask", {"id": task_id.decode()})
        return str(task["status"]["state"]).removeprefix("TASK_STATE_")

    async def call(self, method: str, params: Any) -> Any:
        """A call that has to succeed."""
        body = self._filled(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        )
        headers = (
            header("host", "localhost"),
            header("a2a-version", "1.0"),
            header("content-type", "application/json"),
        )
        answer = await ask(self._bridge.app, Asked("POST", self._bridge.path, b"", headers, (body,)))
        return strict_json(answer.body)["result"]


@asynccontextmanager
async def bridge_of_server(**run: Any) -> AsyncIterator[Wrapped]:
    """A bridge over the scripted server, quick to give up."""
    quick = {"call_timeout_seconds": 1.0, "task_timeout_seconds": 1.0, "cancel_grace_seconds": 1.0, **run}
    profile = profile_with(
        run=quick,
        streams={"heartbeat_seconds": 0.01},
        store={"keep_ended_tasks": 500, "clean_every_seconds": 5},
    )
    async with wrapped(config_for(SERVER, profile=profile)) as bridge:
        try:
            yield bridge
        finally:
            await bridge.engine.drain(0)


@asynccontextmanager
async def _jsonrpc_scene() -> AsyncIterator[Check]:
    async with bridge_of_server() as bridge:
        face = _Face(bridge)

        async def check(case: Asked) -> None:
            answer = await face.ask(case)
            for result in require_jsonrpc(answer):
                require_readable_echo(result)

        yield check


@asynccontextmanager
async def _rest_scene() -> AsyncIterator[Check]:
    async with bridge_of_server() as bridge:
        face = _Face(bridge)

        async def check(case: Asked) -> None:
            answer = await face.ask(case)
            if case.path.endswith("agent-card.json") and answer.status in (200, 304):
                assert answer.status == 304 or case.verb == "HEAD" or strict_json(answer.body)["skills"]
                return
            for result in (require_rest if case.path != "/" else require_jsonrpc)(answer):
                require_readable_echo(result)

        yield check


TARGETS: Final = (
    Target("a2a-jsonrpc", jsonrpc_case, _jsonrpc_scene, share=150, examples=400),
    Target("a2a-rest", rest_case, _rest_scene, share=80, examples=300),
)
