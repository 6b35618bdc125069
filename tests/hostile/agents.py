"""Hostile A2A agents: what they answer our client, and what that becomes for an MCP host."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import FollowPace, TaskListener, converse, wait_until_settled
from bridge.a2a.model import objects
from bridge.config.tables.profile import load_profile
from bridge.errors import PeerError
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.principals import LOCAL
from bridge.identity.callers.verifiers import Access
from bridge.translate.extensions.bridge import URI
from tests.hostile.a2a_answers import strict_json
from tests.hostile.agent_cards import QUICK, card_of, in_order
from tests.hostile.asgi import Asked, ask, header
from tests.hostile.mutations import hostile_json, mutated
from tests.hostile.raw_peer import RawPeer, Reply, raw_peer, reply_of, sse_of
from tests.hostile.scripted_server import TOOLS
from tests.hostile.target import Check, Target
from tests.support.exposing import ExposeConfig, exposed

_MESSAGE: Final = {
    "messageId": "m",
    "role": "ROLE_AGENT",
    "contextId": "c",
    "parts": [{"text": "hi"}, {"data": {"n": 1}}],
}
_TASK: Final[Any] = {
    "id": "t-1",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED", "message": _MESSAGE, "timestamp": "2026-01-31T12:00:00Z"},
    "artifacts": [
        {
            "artifactId": "a",
            "name": "n",
            "parts": [
                {"text": "x"},
                {"raw": "AAAA", "mediaType": "image/png"},
                {"url": "https://x.example/a"},
            ],
        },
        {
            "artifactId": "b",
            "parts": [{"data": {"count": 2}, "metadata": {f"{URI}/block": {"type": "structuredContent"}}}],
        },
    ],
    "history": [_MESSAGE],
}
_ASKING: Final[Any] = {
    "id": "t-1",
    "contextId": "c",
    "status": {
        "state": "input-required",
        "message": {
            **_MESSAGE,
            "parts": [
                {"text": "Who?"},
                {"data": {"key": "k", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            ],
            "metadata": {f"{URI}/question": "k"},
        },
    },
}
_AUTH: Final[Any] = {
    "id": "t-1",
    "status": {
        "state": "TASK_STATE_AUTH_REQUIRED",
        "message": {**_MESSAGE, "parts": [{"url": "https://x.example/"}]},
    },
}
_EVENTS: Final[list[Any]] = [
    {"task": {**_TASK, "status": {"state": "TASK_STATE_WORKING"}, "artifacts": None}},
    {
        "statusUpdate": {
            "taskId": "t-1",
            "contextId": "c",
            "status": {"state": "TASK_STATE_WORKING", "message": _MESSAGE},
        }
    },
    {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c",
            "artifact": _TASK["artifacts"][0],
            "append": True,
        }
    },
    {"statusUpdate": {"taskId": "t-1", "contextId": "c", "status": {"state": "COMPLETED"}}},
]
_RESULTS: Final[list[Any]] = [
    {"task": _TASK},
    _TASK,
    {"message": _MESSAGE},
    {"task": _ASKING},
    {"task": _AUTH},
    *_EVENTS,
]
_ERROR: Final = {
    "code": -32001,
    "message": "no",
    "data": [{"reason": "TASK_NOT_FOUND", "fieldViolations": [{"field": "a"}]}],
}


def _answer(chance: Random, *, jsonrpc: bool) -> Reply:
    """An answer of an agent, in one piece or as a stream."""
    seeds = [{"jsonrpc": "2.0", "id": 1, "result": one} if jsonrpc else one for one in _RESULTS]
    seeds.append({"jsonrpc": "2.0", "id": 1, "error": _ERROR})
    if chance.random() < 0.5:
        return reply_of(hostile_json(seeds, chance), chance)
    some = [hostile_json(seeds[-5:], chance) for _ in range(chance.randint(0, 5))]
    return reply_of(sse_of(some, chance), chance, b"text/event-stream")


def answer_case(chance: Random) -> tuple[str, str, bool, list[Reply]]:
    """What is asked by which binding, whether by streams, and what is answered."""
    binding = chance.choice(["JSONRPC", "HTTP+JSON"])
    replies = [_answer(chance, jsonrpc=binding == "JSONRPC") for _ in range(3)]
    operation = chance.choice(["send", "stream", "subscribe", "get", "cancel", "converse", "wait"])
    return operation, binding, chance.random() < 0.7, replies


@asynccontextmanager
async def _answer_scene() -> AsyncIterator[Check]:
    async with raw_peer() as peer, httpx2.AsyncClient() as http:

        async def check(case: tuple[str, str, bool, list[Reply]]) -> None:
            operation, binding, streaming, replies = case
            peer.answer = in_order(replies)
            card = card_of(f"{peer.url}/x", streaming=streaming, binding=binding)
            found = FoundCard(
                peer.url, b"", objects.AgentCard.model_validate({**card, "securityRequirements": None})
            )
            with suppress(PeerError), anyio.move_on_after(1.5):
                await _perform(AgentClient(http, found, QUICK), operation)

        yield check


async def _perform(client: AgentClient, operation: str) -> None:
    user = objects.Message(message_id="u", role=objects.Role.USER, parts=(objects.Part(text="go"),))
    request, pace = (
        objects.SendMessageRequest(message=user),
        FollowPace(0.05, 0, first_seconds=0.01, most_seconds=0.02),
    )
    match operation:
        case "send":
            await client.send(request)
        case "stream" | "subscribe":
            events = client.stream(request) if operation == "stream" else client.subscribe("t-1")
            async for event in events:
                event.to_json()
        case "get":
            await client.get("t-1")
        case "cancel":
            await client.cancel("t-1")
        case "converse":
            await converse(client, request, TaskListener(), pace=pace)
        case _:
            await wait_until_settled(client, "t-1", TaskListener(), pace=pace)


def call_case(chance: Random) -> tuple[bool, Any, Any, list[Reply]]:
    """Whether the agent is one of ours, what it is called with, what the host takes, and what is answered."""
    ours = chance.random() < 0.5
    name = chance.choice([tool["name"] for tool in TOOLS]) if ours else "talk"
    arguments: Any = {"message": "hi"} if not ours else {"text": "hi", "count": 2}
    arguments = mutated(arguments, chance) if chance.random() < 0.2 else arguments
    capabilities = chance.choice([{}, {"elicitation": {"form": {}, "url": {}}}])
    return (
        ours,
        {"name": name, "arguments": arguments},
        capabilities,
        [_answer(chance, jsonrpc=True) for _ in range(3)],
    )


@asynccontextmanager
async def _call_scene() -> AsyncIterator[Check]:
    with TemporaryDirectory() as folder:
        async with raw_peer() as peer, raw_peer() as own_peer:
            for one, ours in ((peer, False), (own_peer, True)):
                one.answer = _card_answer(one, ours)
            async with _exposed(Path(folder), peer.url, own_peer.url) as app:

                async def check(case: tuple[bool, Any, Any, list[Reply]]) -> None:
                    _, params, capabilities, replies = case
                    for one in (peer, own_peer):
                        one.answer = in_order(replies)
                    await _call(app, params, capabilities)

                yield check


def _card_answer(peer: RawPeer, ours: bool) -> Any:
    card = json.dumps(card_of(f"{peer.url}/x", ours=ours) | {"securityRequirements": None}).encode()
    return lambda *_: Reply(
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n", card)
    )


@asynccontextmanager
async def _exposed(folder: Path, *urls: str) -> AsyncIterator[Any]:
    profile = load_profile()
    agents = profile.agents.model_copy(
        update={
            "answer_within_seconds": 0.3,
            "answer_seconds": 0.2,
            "silence_seconds": 0.2,
            "card_min_seconds": 3000,
        }
    )
    config = ExposeConfig(urls, profile.having(agents=agents), state=folder / "state", cache=folder / "cache")
    async with exposed(config) as exposure, exposure.server.at(Access((), LOCAL), FaceAddress()) as app:
        try:
            yield app
        finally:
            exposure.server.stop()


async def _call(app: Any, params: Any, capabilities: Any) -> None:
    """A call always ends with a result that an MCP host can read, or one of two errors."""
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    said = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": "tools/call",
        "mcp-name": params["name"],
    }
    headers = tuple(header(name, value) for name, value in said.items())
    answer = await ask(app, Asked("POST", "/mcp", b"", headers, (json.dumps(call).encode(),)))
    body = answer.body
    if answer.media_type == "text/event-stream":
        body = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")][-1]
    message = strict_json(body)
    if "error" in message:
        assert message["error"]["code"] in (-32602, -32603, -32600, -32700), message
        assert "log says why" not in message["error"]["message"], message
    elif message["result"].get("resultType") == "input_required":
        assert message["result"]["inputRequests"]
    elif "ours" not in params:
        types.CallToolResult.model_validate(message["result"])


TARGETS: Final = (
    Target("agent-answers", answer_case, _answer_scene, share=10, examples=120),
    Target("agent-calls", call_case, _call_scene, share=8, examples=80),
)
