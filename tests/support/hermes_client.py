"""A client and an orchestrator of Hermes: they make tasks, read them until they settle, and answer what they ask.

Written anew from the description of the dialect, as scripts with aiohttp are: paths and fields alone, each answer read
by its status, a stream read by lines of at most 64 KiB. Must not import `bridge`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

Json = Any

LINE_LIMIT_BYTES: Final = 64 * 1024
"""The longest line that the reader of an aiohttp response takes."""
CLOSING: Final = ("completed", "failed", "canceled", "input-required")
STATES: Final = ("submitted", "working", *CLOSING)


class HermesRefusedError(Exception):
    """The agent answered with an error."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status} {body['error']['message']}")
        self.status = status
        self.error = body["error"]


def said(*parts: str | dict[str, Any]) -> Json:
    """A message of the user: texts, or parts."""
    listed = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "parts": listed}


class HermesClient:
    """The paths of the dialect."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str = "") -> None:
        self._http = http
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def card(self) -> Json:
        """GET /.well-known/agent.json."""
        return await self.asked("GET", "/.well-known/agent.json")

    async def create(self, message: Json, **fields: Json) -> Json:
        """POST /tasks."""
        return await self.asked("POST", "/tasks", {"message": message, **fields}, status=202)

    async def task(self, task_id: str) -> Json:
        """GET /tasks/{id}."""
        return await self.asked("GET", f"/tasks/{task_id}")

    async def cancel(self, task_id: str) -> Json:
        """PUT /tasks/{id}/cancel."""
        return await self.asked("PUT", f"/tasks/{task_id}/cancel")

    async def artifacts(self, task_id: str) -> list[Json]:
        """GET /tasks/{id}/artifacts: a bare list."""
        listed = await self.asked("GET", f"/tasks/{task_id}/artifacts")
        assert isinstance(listed, list)
        return listed

    async def messages(self, task_id: str) -> list[Json]:
        """GET /tasks/{id}/messages: a bare list."""
        listed = await self.asked("GET", f"/tasks/{task_id}/messages")
        assert isinstance(listed, list)
        return listed

    async def say(self, task_id: str, message: Json) -> Json:
        """POST /tasks/{id}/messages."""
        return await self.asked("POST", f"/tasks/{task_id}/messages", {"message": message})

    async def stream(self, task_id: str) -> AsyncGenerator[Json, None]:
        """GET /tasks/{id}/stream: the events, up to the end."""
        path = f"{self.url}/tasks/{task_id}/stream"
        async with self._http.stream("GET", path, headers=self._headers) as response:
            if response.status_code != 200:
                raise HermesRefusedError(response.status_code, json.loads(await response.aread()))
            assert response.headers["content-type"] == "text/event-stream"
            async for line in response.aiter_lines():
                assert len(line.encode()) < LINE_LIMIT_BYTES, "the line is too long"
                if line.startswith("data: "):
                    yield checked_event(json.loads(line.removeprefix("data: ")))
                else:
                    assert line == "" or line.startswith(":"), line

    async def events(self, task_id: str) -> list[Json]:
        """The events of a stream that ends."""
        return [event async for event in self.stream(task_id)]

    async def asked(self, verb: str, path: str, body: Json = None, *, status: int = 200) -> Json:
        """What a path answers with."""
        answer = await self._http.request(verb, f"{self.url}{path}", json=body, headers=self._headers)
        if answer.status_code >= 400:
            raise HermesRefusedError(answer.status_code, answer.json())
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("application/json")
        return answer.json()


def checked_event(event: Json) -> Json:
    """An event, which has to be whole."""
    assert event["type"] == event["status"]["state"] in STATES
    assert isinstance(event["progress"], float)
    assert 0 <= event["progress"] <= 1
    assert "artifacts" not in event
    return event


@dataclass
class HermesOrchestrator:
    """Has tasks done: follows each by its stream, or by reading it, and answers its questions."""

    client: HermesClient
    answers: Callable[[Json], Json]
    """The answer to a question."""
    progress: list[float] = field(default_factory=list)

    async def done(self, message: Json, **fields: Json) -> tuple[Json, list[str]]:
        """The task as it ended, and the texts of its artifacts."""
        task = await self.client.create(message, **fields)
        while True:
            async for event in self.client.stream(task["id"]):
                self.progress.append(event["progress"])
            task = await self.client.task(task["id"])
            if task["status"]["state"] != "input-required":
                return task, texts_in(await self.client.artifacts(task["id"]))
            asked = (await self.client.messages(task["id"]))[-1]
            await self.client.say(task["id"], self.answers(asked))


def texts_in(listed: Sequence[Json]) -> list[str]:
    """The texts of artifacts or messages."""
    return [part["text"] for one in listed for part in one["parts"] if part["type"] == "text"]
