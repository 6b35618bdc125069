"""An agent that answers requests of MCP, by the extension urn:mcp-a2a:requests:v1. Must not import `bridge`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.running import listening
from tests.support.scripted_agent import plain_card

Json = dict[str, Any]
REQUESTS: Final = "urn:mcp-a2a:requests:v1"
ALL: Final[Json] = {
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}


@dataclass(eq=False)
class Listening:
    """The task of a subscription."""

    task_id: str
    server: str
    wanted: Json
    is_canceled: bool = False
    _news: list[Json] = field(default_factory=list)
    _told: anyio.Event = field(default_factory=anyio.Event)

    def notify(self, *notifications: Json) -> None:
        """Tell of changes in one status update."""
        self._put({"state": "TASK_STATE_WORKING", "message": _message({"notifications": [*notifications]})})

    def updated(self, *uris: str) -> None:
        """Tell that resources have changed."""
        self.notify(*({"method": "notifications/resources/updated", "params": {"uri": uri}} for uri in uris))

    def end(self, state: str = "TASK_STATE_COMPLETED") -> None:
        """End the task."""
        self._put({"state": state})

    def drop(self) -> None:
        """Break the stream off, without a word."""
        self._put({})

    def _put(self, status: Json) -> None:
        self._news.append(status)
        self._told.set()

    async def statuses(self) -> AsyncIterator[Json]:
        """The statuses of the task, until it ends or is dropped."""
        while True:
            while self._news:
                if not (status := self._news.pop(0)):
                    return
                yield status
                if status["state"] not in ("TASK_STATE_WORKING",):
                    return
            self._told = anyio.Event()
            await self._told.wait()


@dataclass
class SharingAgent:
    """What the agent shares, and what it was asked."""

    servers: dict[str, Json] = field(default_factory=lambda: {"notes": ALL})
    """The capabilities of its servers."""
    answer: Callable[[str, str, Json], Json] = lambda server, method, params: {"result": {}}
    """The answer to a request: `{"result"}` or `{"error"}`, by the server, the method and the params."""
    obeys: Callable[[Json], Json | None] = lambda wanted: wanted
    """The acknowledged part of a filter; None refuses the subscription."""
    name: str = "Sharing"
    url: str = ""
    asked: list[Json] = field(default_factory=list)
    """The data parts of the requests."""
    heard: list[Request] = field(default_factory=list)
    streams: list[Listening] = field(default_factory=list)
    examples: tuple[str, ...] = ()
    """The examples of its skill `do`."""
    as_task: bool = False
    """Whether it answers requests with a task that has ended."""
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def open(self) -> list[Listening]:
        """The subscriptions that nobody has ended."""
        return [stream for stream in self.streams if not stream.is_canceled]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        with anyio.fail_after(20):
            while not condition():
                await self._changed.wait()

    def _move(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def card(self, base: str) -> Json:
        """Its card."""
        params = {"servers": {key: {"capabilities": one} for key, one in self.servers.items()}}
        extensions = [{"uri": REQUESTS, "params": params}] if self.servers else []
        skill = {"id": "do", "name": "do", "description": "Does", "tags": [], "examples": [*self.examples]}
        return {
            **plain_card(base),
            "name": self.name,
            "skills": [skill],
            "capabilities": {"streaming": True, "extensions": extensions},
        }

    async def _show_card(self, request: Request) -> Response:
        return JSONResponse(self.card(str(request.base_url)), headers={"Cache-Control": "no-store"})

    async def _answer(self, request: Request) -> Response:
        called = await request.json()
        self.heard.append(request)
        params = called["params"]
        if called["method"] == "CancelTask":
            for stream in self.streams:
                if stream.task_id == params["id"]:
                    stream.is_canceled = True
            self._move()
            task = {"id": params["id"], "contextId": "c", "status": {"state": "TASK_STATE_CANCELED"}}
            return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": task})
        data = params["message"]["parts"][0]["data"]
        assert params["message"]["metadata"] == {"urn:mcp-a2a:tool:v1/skill": REQUESTS}
        assert REQUESTS in request.headers["A2A-Extensions"]
        if data["method"] == "subscriptions/listen":
            return self._listen(called["id"], data)
        self.asked.append(data)
        message = _message(self.answer(data.get("server", ""), data["method"], data["params"]))
        if self.as_task:
            ended = {"state": "TASK_STATE_COMPLETED", "message": message}
            answer: Json = {"task": {"id": "t", "contextId": "c", "status": ended}}
        else:
            answer = {"message": message}
        return JSONResponse({"jsonrpc": "2.0", "id": called["id"], "result": answer})

    def _listen(self, request_id: Any, data: Json) -> Response:
        wanted = data["params"]["notifications"]
        stream = Listening(f"task-{next(self._numbers)}", data.get("server", ""), wanted)
        obeyed = self.obeys(wanted)
        if obeyed is None:
            refusal = {"code": -32602, "message": "There may be no more subscriptions"}
            return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": refusal})
        acknowledged = {
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": obeyed},
        }
        self.streams.append(stream)
        self._move()

        async def events() -> AsyncIterator[str]:
            ids = {"taskId": stream.task_id, "contextId": "c"}
            working = {"state": "TASK_STATE_WORKING"}
            yield _event(request_id, {"task": {"id": stream.task_id, "contextId": "c", "status": working}})
            stream.notify(acknowledged)
            async for status in stream.statuses():
                yield _event(request_id, {"statusUpdate": {**ids, "status": status}})

        return StreamingResponse(events(), media_type="text/event-stream")


@asynccontextmanager
async def sharing(agent: SharingAgent, port: int = 0) -> AsyncIterator[str]:
    """Serve the agent; its URL."""
    routes = [
        Route("/.well-known/agent-card.json", agent._show_card),
        Route("/", agent._answer, methods=["POST"]),
    ]
    async with listening(Starlette(routes=routes), port) as url:
        agent.url = url
        yield url


def _message(data: Json) -> Json:
    return {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": data}], "extensions": [REQUESTS]}


def _event(request_id: Any, result: Json) -> str:
    return f"data: {json.dumps({'jsonrpc': '2.0', 'id': request_id, 'result': result})}\n\n"
