"""An agent of Hermes: it makes tasks of what it is told, and shows each of their sides at a path of its own.

Written anew from the description of the dialect. Its task says only how it is: what it made and what was said are
lists elsewhere. It knows no note and no id of a message. Knows Starlette and no A2A library. Must not import `bridge`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.running import listening

Json = dict[str, Any]
CLOSING = ("completed", "failed", "canceled", "input-required")


@dataclass
class HermesTask:
    """A task, and who waits for what becomes of it."""

    id: str
    session_id: str | None
    asked: Json
    """The body that made it."""
    state: str = "submitted"
    progress: float = 0.0
    artifacts: list[Json] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    moved: anyio.Event = field(default_factory=anyio.Event)

    def go(self, state: str, progress: float) -> None:
        """Go on to a state."""
        self.state, self.progress = state, progress
        self.moved.set()
        self.moved = anyio.Event()

    def say(self, words: str) -> None:
        """Say something."""
        self.messages.append({"role": "agent", "parts": [{"type": "text", "text": words}]})

    def give(self, *parts: Json) -> None:
        """Give an artifact."""
        self.artifacts.append({"name": f"part {len(self.artifacts)}", "parts": list(parts)})

    async def until(self, *states: str) -> None:
        """Wait for one of some states."""
        while self.state not in states:
            await self.moved.wait()

    def shown(self) -> Json:
        """As its path shows it."""
        status = {"state": self.state, "progress": self.progress}
        return {"id": self.id, "sessionId": self.session_id, "status": status}


Work = Callable[[HermesTask], Awaitable[None]]
"""Does a task, and does it again after each message."""


class HermesAgent:
    """The paths of the dialect; `heard` has each verb, path and body."""

    def __init__(self, work: Work, *, streams: bool = True) -> None:
        self.tasks: dict[str, HermesTask] = {}
        self.heard: list[tuple[str, str, Any]] = []
        self.headers: list[Any] = []
        self._work = work
        self._streams = streams

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Its URL, as long as this is entered."""
        about = "/tasks/{id}"
        routes = [
            Route("/.well-known/agent.json", self._card),
            Route("/tasks", self._create, methods=["POST"]),
            Route(about, self._shown),
            Route(f"{about}/cancel", self._cancel, methods=["PUT"]),
            Route(f"{about}/artifacts", self._listed("artifacts")),
            Route(f"{about}/messages", self._listed("messages")),
            Route(f"{about}/messages", self._say, methods=["POST"]),
            Route(f"{about}/stream", self._stream),
        ]
        async with anyio.create_task_group() as self._group:
            async with listening(Starlette(routes=routes)) as url:
                yield url
            self._group.cancel_scope.cancel()

    def _card(self, request: Request) -> Response:
        return JSONResponse(
            {
                "name": "Hermes",
                "description": "Does tasks",
                "url": str(request.base_url).rstrip("/"),
                "version": "1.0.0",
                "capabilities": {"streaming": self._streams, "pushNotifications": True},
                "authentication": {"schemes": []},
                "skills": [{"id": "act", "name": "Act", "description": "Acts", "tags": ["test"]}],
            }
        )

    async def _body(self, request: Request) -> Any:
        text = await request.body()
        body = json.loads(text) if text else None
        self.heard.append((request.method, request.url.path, body))
        self.headers.append(request.headers)
        return body

    async def _create(self, request: Request) -> Response:
        body = await self._body(request)
        task = HermesTask(f"task-{len(self.tasks) + 1}", body.get("sessionId"), body)
        task.messages.append(body["message"])
        self.tasks[task.id] = task
        self._group.start_soon(self._work, task)
        return JSONResponse(task.shown(), 202)

    async def _shown(self, request: Request) -> Response:
        await self._body(request)
        task = self.tasks.get(request.path_params["id"])
        return _refused(404, "Task not found") if task is None else JSONResponse(task.shown())

    async def _cancel(self, request: Request) -> Response:
        await self._body(request)
        task = self.tasks[request.path_params["id"]]
        task.go("canceled", task.progress)
        return JSONResponse(task.shown())

    def _listed(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def listed(request: Request) -> Response:
            await self._body(request)
            return JSONResponse(getattr(self.tasks[request.path_params["id"]], name))

        return listed

    async def _say(self, request: Request) -> Response:
        body = await self._body(request)
        task = self.tasks[request.path_params["id"]]
        if task.state in ("completed", "failed", "canceled"):
            return _refused(409, "The task has ended")
        task.messages.append(body["message"])
        task.go("working", task.progress)
        self._group.start_soon(self._work, task)
        return JSONResponse({"accepted": True})

    async def _stream(self, request: Request) -> Response:
        await self._body(request)
        task = self.tasks[request.path_params["id"]]

        async def lines() -> AsyncIterator[str]:
            while True:
                moved = task.moved
                shown = {"type": task.state, "status": task.state, "progress": task.progress}
                yield f"data: {json.dumps(shown)}\n\n"
                if task.state in CLOSING:
                    return
                await moved.wait()

        return StreamingResponse(lines(), media_type="text/event-stream")


def _refused(status: int, words: str) -> Response:
    return JSONResponse({"error": words}, status)
