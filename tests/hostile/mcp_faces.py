"""Our MCP server, asked anything: over HTTP in both eras, straight at the application, and over stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import anyio

from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.verifiers import Access
from bridge.mcp.server.face import IncomingCall
from bridge.mcp.server.server import McpServer
from tests.hostile.a2a_answers import strict_json
from tests.hostile.asgi import Answered, Asked, ask, header
from tests.hostile.json_grammar import text
from tests.hostile.mutations import cut, hostile_json
from tests.hostile.target import Check, Target
from tests.support.limits import mcp_limits
from tests.support.mcp_face import Face
from tests.support.mcp_serving import PROGRAM
from tests.support.mcp_wire import LEGACY, MODERN, Lines, lines_to, opening

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    "progressToken": 1,
    "traceparent": "x",
    "tracestate": "a=1",
    "baggage": "a=1;b",
}
_TOOLS: Final = ["echo", "refuse", "rounds"]
_ANSWERS: Final = {"who": {"action": "accept"}}
_PROMPT: Final = {"type": "ref/prompt", "name": "hello"}
_CALLS: Final[list[tuple[str, Any]]] = [
    ("tools/call", {"name": "echo", "arguments": {"a": [1, {"b": None}]}}),
    ("tools/call", {"name": "refuse", "arguments": {}}),
    (
        "tools/call",
        {
            "name": "rounds",
            "arguments": {},
            "inputResponses": {"who": {"action": "accept"}},
            "requestState": "s",
        },
    ),
    ("tools/list", {}),
    ("tools/list", {"cursor": "x"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "a2a://one/card"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "hello", "arguments": {"who": "you"}}),
    ("ping", {}),
    ("server/discover", {}),
    ("initialize", opening(LEGACY, {})),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "hello"}, "argument": {"name": "who", "value": "x"}},
    ),
]
_NOTICES: Final[list[Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "x"}},
    {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}},
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
]
_MODERN: Final = [
    {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    for method, params in _CALLS
]
_LEGACY: Final = [
    *({"jsonrpc": "2.0", "id": 1, "method": method, "params": params} for method, params in _CALLS),
    *_NOTICES,
]
_VERSIONS: Final = (MODERN, LEGACY, "2024-11-05", "", "9999-99-99", "\xff", "2026-07-28\x00")


def _http_case(chance: Random, *, modern: bool) -> Asked:
    seeds = _MODERN if modern else _LEGACY
    document = chance.choice(seeds)
    said = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN if modern else LEGACY,
    }
    if modern:
        params = document["params"]
        said |= {
            "mcp-method": document["method"],
            "mcp-name": str(params.get("name", params.get("uri", "x"))),
        }
    else:
        said["mcp-session-id"] = "@SESSION@"
    if chance.random() < 0.2:
        name = chance.choice([*said, "mcp-param-a", "last-event-id", "origin", "traceparent"])
        said[name] = chance.choice(_VERSIONS) if chance.random() < 0.3 else text(chance)
    headers = tuple(header(name, value) for name, value in said.items() if chance.random() < 0.98)
    verb = "POST" if chance.random() < 0.95 else chance.choice(["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
    path = "/mcp" if chance.random() < 0.97 else chance.choice(["/mcp/", "/", "/mcp/x", "/healthz"])
    body = hostile_json([document], chance) if verb == "POST" else b""
    return Asked(verb, path, b"", headers, tuple(cut(body, chance)), chance.random() < 0.02)


def modern_case(chance: Random) -> Asked:
    """A request of 2026-07-28, or nearly one."""
    return _http_case(chance, modern=True)


def legacy_case(chance: Random) -> Asked:
    """A message of 2025-11-25 in a session, or nearly one."""
    return _http_case(chance, modern=False)


class _Face(Face):
    """The face of the other tests, which takes what it is given."""

    async def _rounds(self, incoming: IncomingCall) -> Any:
        return await super()._rounds(incoming) if incoming.is_modern else {"content": []}

    async def prompt(self, name: str, arguments: Mapping[str, str], *_: Any) -> Any:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": str(dict(arguments))}}]}


@asynccontextmanager
async def _http_scene() -> AsyncIterator[Check]:
    face = _Face(names=[*_TOOLS])
    server = face.server = McpServer(face, mcp_limits())
    async with server.at(Access([]), FaceAddress()) as app:
        session = b""

        async def check(case: Asked) -> None:
            nonlocal session
            if any(b"@SESSION@" in value for _, value in case.headers):
                session = session if await _is_open(app, session) else await _opened(app)
            headers = tuple((name, value.replace(b"@SESSION@", session)) for name, value in case.headers)
            asked = Asked(case.verb, case.path, case.query, headers, case.chunks, case.leaves_early)
            require_mcp(case, await ask(app, asked))

        yield check


def _headers(session: bytes) -> tuple[tuple[bytes, bytes], ...]:
    said = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LEGACY,
    }
    more = ((b"mcp-session-id", session),) if session else ()
    return (*(header(name, value) for name, value in said.items()), *more)


async def _opened(app: Any) -> bytes:
    first = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": opening(LEGACY, {"elicitation": {}}),
    }
    answer = await ask(app, Asked("POST", "/mcp", b"", _headers(b""), (json.dumps(first).encode(),)))
    session = answer.headers["mcp-session-id"].encode()
    ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    await ask(app, Asked("POST", "/mcp", b"", _headers(session), (ready,)))
    return session


async def _is_open(app: Any, session: bytes) -> bool:
    ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
    return (
        bool(session)
        and (await ask(app, Asked("POST", "/mcp", b"", _headers(session), (ping,)))).status == 200
    )


def require_mcp(asked: Asked, answer: Answered) -> None:
    """An answer of MCP: nothing, a message, or a stream of messages; never a fault of ours."""
    if asked.leaves_early:
        return  # nobody reads it
    assert answer.status is not None, "no answer"
    assert answer.status < 500, answer
    assert b"Traceback" not in answer.body
    if answer.media_type == "text/event-stream":
        said = [line[5:].strip() for line in answer.body.splitlines() if line.startswith(b"data:")]
        messages = [strict_json(one) for one in said if one]
    elif answer.media_type == "application/json" and answer.body:
        messages = [strict_json(answer.body)]
    else:
        messages = []
    for message in messages:
        require_message(message)
        assert "log says why" not in str(message.get("error")), message


def require_message(message: Any) -> None:
    """One JSON-RPC message of ours."""
    if message == {"status": "ok"}:
        return
    assert message["jsonrpc"] == "2.0", message
    if "error" in message:
        assert isinstance(message["error"]["code"], int)
        assert isinstance(message["error"]["message"], str)
    else:
        assert "result" in message or "method" in message, message


def stdio_case(chance: Random) -> bytes:
    """Lines that a client writes."""
    seeds = _MODERN if chance.random() < 0.3 else _LEGACY
    said = b"\n".join(hostile_json(seeds, chance) for _ in range(chance.randint(1, 3)))
    return said[:200_000]


@asynccontextmanager
async def _stdio_scene() -> AsyncIterator[Check]:
    async with _stdio(LEGACY) as lines:
        number = 0

        async def check(case: bytes) -> None:
            nonlocal number
            number += 1
            await lines.write(case + b"\n")
            await lines.send(f"ping-{number}", "ping")
            while (message := await lines.receive()).get("id") != f"ping-{number}":
                require_message(message)
            lines.seen.clear()

        yield check


@asynccontextmanager
async def _stdio(version: str) -> AsyncIterator[Lines]:
    # Its own time limit is for one test; here many cases go through one server.
    async with lines_to(PROGRAM, version) as lines:
        with anyio.CancelScope(shield=True):
            yield lines


TARGETS: Final = (
    Target("mcp-modern", modern_case, _http_scene, share=90, examples=300),
    Target("mcp-legacy", legacy_case, _http_scene, share=50, examples=200),
    Target("mcp-stdio", stdio_case, _stdio_scene, share=30, examples=100),
)
