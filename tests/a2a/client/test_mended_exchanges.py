"""Exchanges recorded from frameworks, with any field left out, null or empty: the text still arrives.

The exchanges are data in `tests/support/exchanges`: what a server gave as a stream, as the answer to a message, and as
its task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.follow import converse
from bridge.a2a.model.objects import Message, Part, Role, SendMessageRequest
from bridge.errors import PeerError
from bridge.translate.blocks import ResultRules
from bridge.translate.result import result_from_message, result_from_task
from tests.support.agents import found_at
from tests.support.limits import client_options, pace_of

pytestmark = pytest.mark.proves("map-agent-read-alone")

EXCHANGES = sorted((Path(__file__).parents[2] / "support" / "exchanges").glob("*.json"))
PACE = pace_of(
    first_seconds=0.001, most_seconds=0.001, end_seconds=0.05, piece_seconds=0.2, outage_seconds=0.05
)
_GONE = object()
_EMPTY_OF = {str: "", list: [], dict: {}}
Json = dict[str, Any]
At = tuple[str | int, ...]


@dataclass
class Replayed:
    """A server that gives what was recorded."""

    exchange: Json

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        called: Json = json.loads(body) if body else {}
        await self._answer(str(called.get("method") or request.url.path), called.get("id"))(
            scope, receive, send
        )

    def _answer(self, asked: str, call_id: Any) -> Response:
        if asked.lower().endswith(("stream", "sendstreamingmessage")):
            events = (json.dumps(self._enveloped(one, call_id)) for one in self.exchange["stream"])
            return Response("".join(f"data: {one}\n\n" for one in events), media_type="text/event-stream")
        answer = self.exchange["sent" if asked.lower().endswith(("send", "sendmessage")) else "read"]
        if answer is None:
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": call_id, "error": error}, 404)
        return JSONResponse(self._enveloped(answer, call_id))

    def _enveloped(self, result: Any, call_id: Any) -> Any:
        if not self.exchange["form"].endswith("JSONRPC"):
            return result
        return {"jsonrpc": "2.0", "id": call_id, **({} if result is _GONE else {"result": result})}


async def text_of(exchange: Json, *, streams: bool) -> str:
    """The text of what comes of an exchange."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(Replayed(exchange))) as http:
        found = found_at("http://127.0.0.1:9", exchange["form"], capabilities={"streaming": streams})
        message = Message(message_id="mine", role=Role.USER, parts=(Part(text="hi"),))
        client = AgentClient(http, found, client_options())
        outcome = await converse(client, SendMessageRequest(message=message), pace=PACE)
    read = result_from_message if isinstance(outcome, Message) else result_from_task
    result = read(outcome, ResultRules())  # type: ignore[operator]
    assert "isError" not in result
    return "".join(block["text"] for block in result["content"])


def places(value: Any, at: At = ()) -> Iterator[At]:
    """Where there is anything in a value, from the outside to the inside."""
    if at:
        yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inside:
        yield from places(item, (*at, name))


def changed(exchange: Json, at: At, empty: Any) -> tuple[Json, Any]:
    """An exchange with something empty in one place, and what was there."""
    copy = deepcopy(exchange)
    *path, last = at
    held: Any = copy
    for step in path:
        held = held[step]
    before = held[last]
    if empty is _GONE and not (isinstance(held, list) and path == ["stream"]):
        del held[last]
    elif empty is _GONE:
        held.pop(last)
    else:
        held[last] = deepcopy(empty)
    return copy, before


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "polls"])
@pytest.mark.parametrize("file", EXCHANGES, ids=[file.stem for file in EXCHANGES])
@pytest.mark.smoke("a2a_sdk_1_3_jsonrpc-streams", "a2a_sdk_0_3_message-polls", "agno-streams")
async def test_a_missing_field_loses_no_text(file: Path, streams: bool) -> None:
    exchange = json.loads(file.read_text("utf-8"))
    if not streams and exchange["sent"] is None:
        return  # it streams alone
    assert await text_of(exchange, streams=streams) == exchange["text"]
    lost: list[tuple[At, str, str]] = []
    answers = ("stream", "read") if streams else ("sent", "read")
    for at in [(name, *inside) for name in answers for inside in places(exchange[name])]:
        own = _EMPTY_OF.get(type(_at(exchange, at)), "")
        for word, empty in (("absent", _GONE), ("null", None), ("empty", own)):
            odd, before = changed(exchange, at, empty)
            # The content of the answer may go with its own field, but not the whole outcome where a task is known.
            held = json.dumps(before)
            has_content = any(json.dumps(one)[1:-1] in held for one in _pieces(exchange))
            try:
                with anyio.fail_after(0.5):
                    text = await text_of(odd, streams=streams)
            except (PeerError, AssertionError, TimeoutError) as exc:
                is_silent = isinstance(exc, TimeoutError) and at[0] == "read" and at[1] == "status"
                if is_silent and not streams:
                    continue  # nothing says that it has ended, so it is at work
                if not (has_content and (len(exchange["stream"]) == 1 or len(at) <= 2)):
                    lost.append((at, word, f"{type(exc).__name__}: {exc}"[:120]))
                continue
            if exchange["text"] not in text and not has_content:
                lost.append((at, word, text))
    assert not lost, "\n".join(map(str, lost))


def _pieces(exchange: Json) -> list[str]:
    """The texts in an exchange that the answer is made of."""
    return [
        item
        for name in ("stream", "sent", "read")
        for at in places(exchange[name])
        if at[-1] == "text" and isinstance(item := _at(exchange[name], at), str) and item in exchange["text"]
    ]


def _at(value: Any, at: At) -> Any:
    for step in at:
        value = value[step]
    return value
