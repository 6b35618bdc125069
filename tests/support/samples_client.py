"""A client of the first generation as those of the 2025 samples are: their types, and what they post.

Written anew from A2A v0.1.0, samples/python/common. It reads strictly what those read: the seven states, parts by
`type`, nothing of what it does not know. It writes null for what it does not say, makes a session where it is given
none, and knows two events.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import uuid4

import httpx2
from pydantic import BaseModel, Field, model_validator


class State(StrEnum):
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"
    UNKNOWN = "unknown"


class TextPart(BaseModel):
    type: Literal["text"] = "text"
    text: str
    metadata: dict[str, Any] | None = None


class File(BaseModel):
    name: str | None = None
    mimeType: str | None = None
    bytes: str | None = None
    uri: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> File:
        assert bool(self.bytes) is not bool(self.uri)
        return self


class FilePart(BaseModel):
    type: Literal["file"] = "file"
    file: File
    metadata: dict[str, Any] | None = None


class DataPart(BaseModel):
    type: Literal["data"] = "data"
    data: dict[str, Any]
    metadata: dict[str, Any] | None = None


Part = Annotated[TextPart | FilePart | DataPart, Field(discriminator="type")]


class Said(BaseModel):
    role: Literal["user", "agent"]
    parts: list[Part]
    metadata: dict[str, Any] | None = None


class Status(BaseModel):
    state: State
    message: Said | None = None
    timestamp: str


class Artifact(BaseModel):
    name: str | None = None
    parts: list[Part]
    index: int = 0
    append: bool | None = None
    lastChunk: bool | None = None
    metadata: dict[str, Any] | None = None


class Task(BaseModel):
    id: str
    sessionId: str | None = None
    status: Status
    artifacts: list[Artifact] | None = None
    history: list[Said] | None = None
    metadata: dict[str, Any] | None = None


class StatusUpdate(BaseModel):
    id: str
    status: Status
    final: bool = False
    metadata: dict[str, Any] | None = None


class ArtifactUpdate(BaseModel):
    id: str
    artifact: Artifact
    metadata: dict[str, Any] | None = None


class Event(BaseModel):
    result: StatusUpdate | ArtifactUpdate


class SendParams(BaseModel):
    id: str
    sessionId: str = Field(default_factory=lambda: uuid4().hex)
    message: Said
    acceptedOutputModes: list[str] | None = None
    pushNotification: dict[str, Any] | None = None
    historyLength: int | None = None
    metadata: dict[str, Any] | None = None


class RefusedError(Exception):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


def said(*parts: str | dict[str, Any]) -> dict[str, Any]:
    """A message of the user: texts, or parts."""
    listed = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "parts": listed}


class SamplesClient:
    """Posts to one URL."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str = "") -> None:
        self._http = http
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def send_task(self, **payload: Any) -> Task:
        """tasks/send."""
        return Task.model_validate(await self.call("tasks/send", SendParams(**payload).model_dump()))

    async def send_task_streaming(self, **payload: Any) -> list[StatusUpdate | ArtifactUpdate]:
        """tasks/sendSubscribe, up to the event that is final."""
        return await self.events("tasks/sendSubscribe", SendParams(**payload).model_dump())

    async def get_task(self, task_id: str, history_length: int | None = None) -> Task:
        """tasks/get."""
        params = {"id": task_id, "metadata": None, "historyLength": history_length}
        return Task.model_validate(await self.call("tasks/get", params))

    async def cancel_task(self, task_id: str) -> Task:
        """tasks/cancel."""
        return Task.model_validate(await self.call("tasks/cancel", {"id": task_id, "metadata": None}))

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """What a method gives."""
        body = {"jsonrpc": "2.0", "id": uuid4().hex, "method": method, "params": params}
        answer = await self._http.post(self._url, json=body, headers=self._headers)
        answer.raise_for_status()
        given = answer.json()
        assert given["id"] == body["id"]
        if given.get("error"):
            raise RefusedError(given["error"])
        return given["result"]

    async def events(self, method: str, params: dict[str, Any]) -> list[StatusUpdate | ArtifactUpdate]:
        """The events of a stream, up to the one that is final: nothing may follow it."""
        body = {"jsonrpc": "2.0", "id": uuid4().hex, "method": method, "params": params}
        seen: list[StatusUpdate | ArtifactUpdate] = []
        async with self._http.stream("POST", self._url, json=body, headers=self._headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    assert not (seen and isinstance(seen[-1], StatusUpdate) and seen[-1].final)
                    seen.append(Event.model_validate(json.loads(line.removeprefix("data:"))).result)
        return seen
