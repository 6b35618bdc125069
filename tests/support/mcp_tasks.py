"""A client of the tasks extension, on the raw wire: nothing between a test and what the server says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio.lowlevel
import httpx2

from tests.support.exposing import Exposed
from tests.support.mcp_wire import MODERN, Http, Json, messages_of

TASKS: Final = "io.modelcontextprotocol/tasks"
TAKES_TASKS: Final[Json] = {"extensions": {TASKS: {}}}
TAKES_ALL: Final[Json] = {**TAKES_TASKS, "elicitation": {"form": {}, "url": {}}}
OVER: Final = frozenset({"completed", "cancelled", "failed"})


@dataclass
class TaskClient:
    """A client that declares some capabilities with each request."""

    http: Http
    tasks: set[str] = field(default_factory=set)
    """The ids of those that it was given."""
    _next: int = 0

    async def send(self, method: str, params: Json | None = None, **headers: str) -> Json:
        """A request; the response to it, with an error if it is one."""
        self._next += 1
        message = self.http.message(self._next, method, params)
        response = await self.http.post(message, **headers)
        return messages_of(response)[-1]

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """A request that has to succeed; its result."""
        answer = await self.send(method, params)
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    async def call(self, name: str, **arguments: Any) -> Json:
        """Call a tool; the result, or the task."""
        result = await self.ask("tools/call", {"name": name, "arguments": arguments})
        if result["resultType"] == "task":
            self.tasks.add(result["taskId"])
        return result

    async def get(self, task: Json) -> Json:
        """How a task stands."""
        return await self.ask("tasks/get", {"taskId": task["taskId"]})

    async def until(self, task: Json, is_so: Callable[[Json], bool]) -> Json:
        """How a task stands once something is so of it."""
        while not is_so(found := await self.get(task)):
            await anyio.lowlevel.checkpoint()
        return found

    async def end(self, task: Json) -> Json:
        """How a task stands once it has ended."""
        return await self.until(task, lambda found: found["status"] in OVER)

    async def asked(self, task: Json, *but: str) -> Json:
        """What a task asks, once it asks for anything but these keys."""
        found = await self.until(task, lambda one: bool(one.get("inputRequests", {}).keys() - set(but)))
        requests: Json = found["inputRequests"]
        return requests

    async def answer(self, task: Json, **answers: Json) -> Json:
        """Answer what a task asks."""
        return await self.ask("tasks/update", {"taskId": task["taskId"], "inputResponses": answers})

    @asynccontextmanager
    async def listening(self, **wanted: Any) -> AsyncIterator[AsyncIterator[Json]]:
        """A stream of what is told."""
        self._next += 1
        message = self.http.message(self._next, "subscriptions/listen", {"notifications": wanted})
        async with self.http.stream(message) as messages:
            yield messages


@asynccontextmanager
async def task_client(
    exposed: Exposed, capabilities: Json | None = None, token: str | None = None
) -> AsyncIterator[TaskClient]:
    """A client of a face that is exposed."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(timeout=30, headers=headers) as client:
        yield TaskClient(
            Http(client, exposed.url, MODERN, TAKES_ALL if capabilities is None else capabilities)
        )


def accepted(**content: Any) -> Json:
    """An answer to a form."""
    return {"action": "accept", "content": content}
