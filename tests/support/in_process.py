"""HTTP without a server: the requests of an httpx2 client go straight into an ASGI application.

The transport that httpx2 has for this hands over a response only once its application has ended, and so no stream.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import anyio
import httpx2
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Message, Receive


@asynccontextmanager
async def client_of(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client whose every request goes straight into an application, as long as this is entered."""
    async with anyio.create_task_group() as group:
        async with httpx2.AsyncClient(transport=_Straight(app, group), timeout=None) as client:
            yield client
        group.cancel_scope.cancel()


@dataclass
class _Straight(httpx2.AsyncBaseTransport):
    """The way into an application; responses are read while they are written."""

    app: ASGIApp
    group: TaskGroup

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = _Answer()
        self.group.start_soon(self._run, request, await request.aread(), answer)
        await answer.started.wait()
        head = answer.head[0]
        return httpx2.Response(head["status"], headers=head["headers"], stream=_Body(answer))

    async def _run(self, request: httpx2.Request, body: bytes, answer: _Answer) -> None:
        path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": request.url.scheme,
            "method": request.method,
            "path": unquote(path.decode()),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        with answer.writer:
            try:
                await self.app(scope, replayed(body, answer.disconnected), answer.send)
            finally:
                answer.started.set()


class _Answer:
    """A response on its way from an application to its client."""

    def __init__(self) -> None:
        self.started, self.gone = anyio.Event(), anyio.Event()
        self.head: list[Message] = []
        self.writer, self.reader = anyio.create_memory_object_stream[bytes](math.inf)

    async def send(self, message: Message) -> None:
        """Take what the application sends; nothing once the client has hung up."""
        if message["type"] == "http.response.start":
            self.head.append(message)
            self.started.set()
        elif not self.gone.is_set():
            self.writer.send_nowait(message.get("body", b""))
            if not message.get("more_body", False):
                self.writer.close()

    async def disconnected(self) -> Message:
        """Wait until the client hangs up, without a checkpoint if it has."""
        if not self.gone.is_set():
            await self.gone.wait()
        return {"type": "http.disconnect"}


@dataclass
class _Body(httpx2.AsyncByteStream):
    """The body of a response; to close it before its end is to hang up."""

    answer: _Answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.answer.reader:
            yield chunk

    async def aclose(self) -> None:
        self.answer.gone.set()
        await self.answer.reader.aclose()


def replayed(body: bytes, then: Receive) -> Receive:
    """A body that was read already, then what else comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else await then()

    return receive
