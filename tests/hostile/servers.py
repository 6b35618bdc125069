"""Hostile tool servers behind a bridge that runs: whatever they say, a task ends in a state that a client can read."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import anyio

from bridge.errors import BridgeError
from bridge.mcp.client.transports.http_sse import http_sse
from tests.hostile.a2a_answers import SETTLED, require_jsonrpc, require_readable, strict_json
from tests.hostile.a2a_faces import bridge_of_server
from tests.hostile.asgi import Asked, ask, header
from tests.hostile.json_grammar import as_plain
from tests.hostile.mutations import hostile_json, mutated
from tests.hostile.raw_peer import RawPeer, Reply, raw_peer, reply_of, sse_of
from tests.hostile.schemas import schema
from tests.hostile.scripted_server import TOOLS
from tests.hostile.target import Check, Target
from tests.support.limits import url_at
from tests.support.raw_server import BLOCKS, LINKS
from tests.support.running import EXTENSION, Wrapped, config_for, profile_with, wrapped

_FORM: Final = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
_ELICIT: Final = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": _FORM}}
_GO: Final = {"message": "Go", "mode": "url", "url": "https://x.example/", "elicitationId": "e"}
_RESULTS: Final[list[Any]] = [
    {"content": BLOCKS, "structuredContent": {"n": 1}, "_meta": {"a": 1}},
    {"content": LINKS, "isError": True},
    {"resultType": "input_required", "inputRequests": {"k": _ELICIT}, "requestState": "s"},
    {"resultType": "input_required", "requestState": "s"},
    {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1, "ttlMs": 1000},
    {"task": {"taskId": "t", "status": "working", "pollInterval": 1, "createdAt": "x", "ttl": 5}},
    {"taskId": "t", "status": "completed", "result": {"content": []}},
    {"taskId": "t", "status": "input_required", "inputRequests": {"k": _ELICIT}, "pollIntervalMs": 1},
    {"taskId": "t", "status": "failed", "error": {"code": -32000, "message": "no"}},
    {"contents": [{"uri": "demo://x", "text": "x"}]},
]
_SAID: Final[list[Any]] = [
    *[{"jsonrpc": "2.0", "id": "@ID@", "result": one} for one in _RESULTS],
    {"jsonrpc": "2.0", "id": "@ID@", "error": {"code": -32602, "message": "no", "data": {"a": [1]}}},
    {
        "jsonrpc": "2.0",
        "id": "@ID@",
        "error": {"code": -32042, "message": "go", "data": {"elicitations": [_GO]}},
    },
    {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "@TOKEN@", "progress": 1, "total": 2, "message": "m"},
    },
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
    {"jsonrpc": "2.0", "id": 5, **_ELICIT},
    {"jsonrpc": "2.0", "id": 6, "method": "elicitation/create", "params": _GO},
    {"jsonrpc": "2.0", "id": "x", "method": "sampling/createMessage", "params": {}},
    {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {"taskId": "t", "status": "working"}},
]


def _line(chance: Random) -> bytes:
    said = hostile_json(_SAID, chance).replace(b'"@ID@"', b"@ID@").replace(b'"@TOKEN@"', b"@TOKEN@")
    return said if chance.random() < 0.2 else said.replace(b"\n", b" ")


def _text(said: bytes) -> str:
    return base64.b64encode(said).decode()


def said_case(chance: Random) -> tuple[Any, bool, bool]:
    """What a server is to say, whether the client streams, and whether it activated the extension."""
    if chance.random() < 0.1:
        tools = [{"name": "odd", "inputSchema": schema(chance), "outputSchema": schema(chance)}]
        odd = as_plain(mutated([*tools, TOOLS[3]], chance))
        listed = [*TOOLS, *(odd if isinstance(odd, list) else [odd])]
        call = {"skill": "relist", "arguments": {"tools": _text(json.dumps(listed).encode())}}
        return call, False, chance.random() < 0.5
    lines = b"\n".join(_line(chance) for _ in range(chance.randint(1, 3)))
    then = [_text(_line(chance)) for _ in range(chance.randint(0, 3))]
    call = {"skill": "say", "arguments": {"lines": _text(lines), "then": then}}
    return call, chance.random() < 0.5, chance.random() < 0.5


class _Client:
    """A client of a bridge, by JSON-RPC."""

    def __init__(self, bridge: Wrapped) -> None:
        self._bridge = bridge
        self._number = 0

    async def results(self, method: str, params: Any, *, extension: bool = False) -> list[Any]:
        said = {"host": "localhost", "a2a-version": "1.0", "content-type": "application/json"}
        said |= {"a2a-extensions": EXTENSION} if extension else {}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = tuple(header(name, value) for name, value in said.items())
        answer = await ask(self._bridge.app, Asked("POST", self._bridge.path, b"", headers, (body,)))
        results: list[Any] = require_jsonrpc(answer)
        for result in results:
            require_readable(result)
        return results

    async def settle(self, call: Any, *, streams: bool, extension: bool) -> None:
        """A call, to where its task settles; what still waits for an answer is canceled."""
        self._number += 1
        message = {"messageId": f"m-{self._number}", "role": "ROLE_USER", "parts": [{"data": call}]}
        method = "SendStreamingMessage" if streams else "SendMessage"
        results = await self.results(method, {"message": message}, extension=extension)
        if streams and not results:
            return  # it was left before it said anything
        task_id = results[0]["task"]["id"]
        (task,) = await self.results("GetTask", {"id": task_id}, extension=extension)
        state = task["status"]["state"].removeprefix("TASK_STATE_")
        if not streams:
            assert state in SETTLED, task
        if state not in ("COMPLETED", "FAILED", "REJECTED", "CANCELED"):
            await self.results("CancelTask", {"id": task_id})
        await self.results("ListTasks", {"pageSize": 1, "includeArtifacts": True}, extension=extension)


@asynccontextmanager
async def _said_scene() -> AsyncIterator[Check]:
    async with bridge_of_server(call_timeout_seconds=0.4, task_timeout_seconds=0.4) as bridge:
        client = _Client(bridge)

        async def check(case: tuple[Any, bool, bool]) -> None:
            call, streams, extension = case
            await client.settle(call, streams=streams, extension=extension)
            strict_json(bridge.agent.card("http://localhost").to_json())

        yield check


def http_case(chance: Random) -> tuple[list[Reply], bool]:
    """What a server at a URL answers a call and what follows it with, and whether the client streams."""
    replies = []
    for _ in range(3):
        if chance.random() < 0.5:
            replies.append(reply_of(_line(chance), chance, honest=0.4))
        else:
            lines = [_line(chance) for _ in range(chance.randint(0, 3))]
            replies.append(reply_of(sse_of(lines, chance), chance, b"text/event-stream", honest=0.4))
    return replies, chance.random() < 0.5


@asynccontextmanager
async def _http_scene() -> AsyncIterator[Check]:
    async with raw_peer() as peer:
        server = HttpToolServer(peer)
        quick = {"call_timeout_seconds": 0.4, "task_timeout_seconds": 0.4, "cancel_grace_seconds": 0.5}
        profile = profile_with(run=quick, server={"connect_seconds": 0.5, "longest_pause_seconds": 0.05})
        async with wrapped(config_for(url_at(f"{peer.url}/mcp"), profile=profile)) as bridge:
            client = _Client(bridge)

            async def check(case: tuple[list[Reply], bool]) -> None:
                replies, streams = case
                server.then = list(replies)
                call = {"skill": "echo", "arguments": {"text": "x"}}
                await client.settle(call, streams=streams, extension=False)

            try:
                yield check
            finally:
                server.then = []
                await bridge.engine.drain(0)


class HttpToolServer:
    """Answers the handshake as it should, and calls as it is told."""

    def __init__(self, peer: RawPeer) -> None:
        self.then: list[Reply] = []
        peer.answer = self._answer

    def _answer(self, _: str, body: bytes) -> Reply:
        try:
            message = json.loads(body)
        except ValueError:
            message = {}
        request_id, method = message.get("id"), message.get("method")
        match method:
            case "initialize":
                info = {"name": "hostile", "version": "1"}
                result: Any = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            case "tools/list":
                result = {"tools": TOOLS}
            case _ if request_id is None or not self.then:
                return _http(b"202 Accepted", b"")
            case _:
                spelled = json.dumps(request_id).encode()
                token = json.dumps(
                    (message.get("params", {}).get("_meta") or {}).get("progressToken")
                ).encode()
                pieces = self.then.pop(0).pieces
                joined = b"\x00cut\x00".join(pieces).replace(b"@ID@", spelled).replace(b"@TOKEN@", token)
                return Reply(tuple(joined.split(b"\x00cut\x00")))
        return _http(b"200 OK", json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode())


def _http(status: bytes, body: bytes) -> Reply:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return Reply((head % (status, len(body)) + body,))


_ENDPOINTS: Final = (
    b"/post?x=1",
    b"//evil.example/",
    b"http://[",
    b"\xff",
    b"",
    b"/a\r\nb",
    b"x" * 70_000,
    b"file:///a",
)


def opening_case(chance: Random) -> Reply:
    """How a server of HTTP+SSE opens its stream."""
    named = b"event: endpoint\ndata: " + chance.choice(_ENDPOINTS) + b"\n\n"
    lines = [_line(chance).replace(b"@ID@", b"1") for _ in range(chance.randint(0, 3))]
    return reply_of(named + sse_of(lines, chance), chance, b"text/event-stream")


@asynccontextmanager
async def _opening_scene() -> AsyncIterator[Check]:
    async with raw_peer() as peer:

        async def check(case: Reply) -> None:
            peer.answer = lambda *_: case
            target = url_at(f"{peer.url}/sse", connect_seconds=0.1, result_limit_bytes=10_000)
            with anyio.move_on_after(1.0):
                try:
                    async with http_sse(target, lambda _: None) as (messages, _):
                        async for _ in messages:
                            pass
                except* BridgeError:
                    pass

        yield check


TARGETS: Final = (
    Target("server-says", said_case, _said_scene, share=25, examples=150),
    Target("server-http", http_case, _http_scene, share=8, examples=50),
    Target("http-sse", opening_case, _opening_scene, share=3, examples=20),
)
