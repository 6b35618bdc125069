"""A model server on loopback, which answers each request with the next answer of a script, in the form of its API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.support.running import listening

Answer = Callable[["ModelServer", dict[str, Any]], Awaitable[Response]]


@dataclass
class ModelServer:
    """Answers with the script, one answer for each request; the last answer is repeated."""

    api: Literal["openai", "anthropic"]
    script: list[Answer]
    requests: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of the requests."""
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    """Set when a request arrives."""
    left: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client of a request that waits has gone."""
    released: anyio.Event = field(default_factory=anyio.Event)
    """Until then, `waits` does not answer."""
    url: str = ""
    receive: Receive = field(init=False)
    """Of the last request."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ModelServer]:
        """Serve as long as this is entered."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._answer(scope, receive, send)

        async with listening(app) as root:
            self.url = root
            yield self

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, self.receive = Request(scope, receive), receive
        body = json.loads(await request.body())
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        self.arrived.set()
        answer = self.script[min(len(self.requests), len(self.script)) - 1]
        response = await answer(self, body)
        await response(scope, receive, send)

    def tools(self) -> list[str]:
        """The names of the tools in the last request."""
        last = self.requests[-1]["tools"]
        return [tool["function"]["name"] if self.api == "openai" else tool["name"] for tool in last]


def _body(server: ModelServer, words: str, uses: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    if server.api == "anthropic":
        blocks: list[Any] = [{"type": "text", "text": words}] if words else []
        blocks += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": given}
            for at, (name, given) in enumerate(uses)
        ]
        usage = {"input_tokens": 90, "output_tokens": 10}
        return {"type": "message", "role": "assistant", "content": blocks, "usage": usage}
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(uses)
    ]
    message = {"role": "assistant", "content": words or None, **({"tool_calls": calls} if calls else {})}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 100}}


def chooses(name: str, arguments: Any = None, *more: tuple[str, Any], words: str = "") -> Answer:
    """A call of a tool, and further calls."""

    async def answer(server: ModelServer, _: dict[str, Any]) -> Response:
        return JSONResponse(_body(server, words, ((name, {} if arguments is None else arguments), *more)))

    return answer


def says(words: str) -> Answer:
    """Words without a call."""

    async def answer(server: ModelServer, _: dict[str, Any]) -> Response:
        return JSONResponse(_body(server, words, ()))

    return answer


def gives(status: int, content: bytes, **headers: str) -> Answer:
    """Any answer."""

    async def answer(_: ModelServer, __: dict[str, Any]) -> Response:
        return Response(content, status, headers=headers, media_type="application/json")

    return answer


def drips(chunk: bytes, chunks: int, pause_seconds: float) -> Answer:
    """An answer in many chunks."""

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(chunks):
            yield chunk
            await anyio.sleep(pause_seconds)

    async def answer(_: ModelServer, __: dict[str, Any]) -> Response:
        return StreamingResponse(stream(), media_type="application/json")

    return answer


def waits(then: Answer) -> Answer:
    """An answer that comes once the server is released."""

    async def answer(server: ModelServer, body: dict[str, Any]) -> Response:
        async def watch() -> None:
            while (await server.receive())["type"] != "http.disconnect":
                pass
            server.left.set()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await server.released.wait()
            group.cancel_scope.cancel()
        return await then(server, body)

    return answer
