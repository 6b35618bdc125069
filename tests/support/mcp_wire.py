"""JSON-RPC to an MCP server with nothing between the test and the wire, in both eras, over stdio and HTTP."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc
import httpx2
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.forked import through_server

Json = dict[str, Any]

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
_PREFIX: Final = "io.modelcontextprotocol"
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
_MOST_BYTES: Final = 1 << 26


def request(request_id: Any, method: str, params: Json, version: str, capabilities: Json | None) -> Json:
    """A request as a client of this revision sends it."""
    if version == MODERN:
        meta = {
            f"{_PREFIX}/protocolVersion": version,
            f"{_PREFIX}/clientCapabilities": capabilities or {},
            **params.get("_meta", {}),
        }
        params = {**params, "_meta": meta}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def opening(version: str, capabilities: Json | None) -> Json:
    """The params of initialize."""
    client = {"name": "test", "version": "0"}
    return {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}


@dataclass
class Lines:
    """A server that was started, and is spoken to over its stdin and stdout."""

    process: anyio.abc.Process
    version: str
    capabilities: Json | None = None
    seen: list[Json] = field(default_factory=list)
    """Every message that was read."""
    _lines: BufferedByteReceiveStream = field(init=False)

    def __post_init__(self) -> None:
        assert self.process.stdout is not None
        self._lines = BufferedByteReceiveStream(self.process.stdout)

    async def send(self, request_id: Any, method: str, params: Json | None = None) -> None:
        """Send a request; a notification when the id is None."""
        message = request(request_id, method, params or {}, self.version, self.capabilities)
        if request_id is None:
            message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        await self.write(json.dumps(message).encode() + b"\n")

    async def write(self, text: bytes) -> None:
        """Send any bytes."""
        assert self.process.stdin is not None
        await self.process.stdin.send(text)

    async def receive(self) -> Json:
        """The next message."""
        message: Json = json.loads(await self._lines.receive_until(b"\n", _MOST_BYTES))
        self.seen.append(message)
        return message

    async def call(self, request_id: Any, method: str, params: Json | None = None) -> Json:
        """Send a request; the response to it, whatever else comes before."""
        await self.send(request_id, method, params)
        while (message := await self.receive()).get("id") != request_id or "method" in message:
            pass
        return message

    async def tool(self, request_id: Any, name: str, meta: Json | None = None, **arguments: Any) -> Json:
        """Call a tool; the response."""
        more = {"_meta": meta} if meta else {}
        return await self.call(request_id, "tools/call", {"name": name, "arguments": arguments, **more})

    async def rest(self) -> bytes:
        """What comes until the server closes its stdout, or ends."""
        rest = self._lines.buffer
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            rest += chunk
        return rest


@asynccontextmanager
async def lines_to(
    argv: Sequence[str], version: str, capabilities: Json | None = None
) -> AsyncIterator[Lines]:
    """Start a server and, as a legacy client, initialize it."""
    with anyio.fail_after(30):
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        process = await anyio.open_process(through_server(*argv), stderr=subprocess.PIPE, env=buffered)
        async with process:
            lines = Lines(process, version, capabilities)
            try:
                if version != MODERN:
                    await lines.call("init", "initialize", opening(version, capabilities))
                    await lines.send(None, "notifications/initialized")
                yield lines
            finally:
                if process.returncode is None:
                    process.kill()


@dataclass
class Http:
    """A server under a URL."""

    client: httpx2.AsyncClient
    url: str
    version: str
    capabilities: Json | None = None
    session: str | None = None

    def headers(self, message: Json) -> dict[str, str]:
        """What a client of this revision sends with a message."""
        method, params = message.get("method", ""), message.get("params", {})
        found = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": self.version,
        }
        if self.version == MODERN:
            found |= {"mcp-method": method}
            found |= {"mcp-name": params[_NAMES[method]]} if method in _NAMES else {}
        elif self.session is not None:
            found |= {"mcp-session-id": self.session}
        return found

    def message(self, request_id: Any, method: str, params: Json | None = None) -> Json:
        """A request as it is posted."""
        return request(request_id, method, params or {}, self.version, self.capabilities)

    async def post(self, message: Json, **headers: str) -> httpx2.Response:
        """Post a message; the whole response."""
        content = json.dumps(message)  # which escapes what is half a character
        return await self.client.post(self.url, content=content, headers={**self.headers(message), **headers})

    @asynccontextmanager
    async def stream(self, message: Json) -> AsyncIterator[AsyncIterator[Json]]:
        """Post a message; what comes back one by one. Leaving it closes the response."""
        posted = self.client.stream("POST", self.url, json=message, headers=self.headers(message))
        async with posted as response:
            yield _messages(response)

    async def call(self, request_id: Any, method: str, params: Json | None = None) -> list[Json]:
        """All messages that answer a request."""
        return messages_of(await self.post(self.message(request_id, method, params)))

    async def tool(self, request_id: Any, name: str, meta: Json | None = None, **arguments: Any) -> Json:
        """Call a tool; the response."""
        more = {"_meta": meta} if meta else {}
        return (await self.call(request_id, "tools/call", {"name": name, "arguments": arguments, **more}))[-1]

    async def open(self) -> None:
        """Initialize, as a legacy client."""
        if self.version != MODERN:
            answer = await self.post(
                self.message("init", "initialize", opening(self.version, self.capabilities))
            )
            self.session = answer.headers["mcp-session-id"]
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})


def messages_of(response: httpx2.Response) -> list[Json]:
    """The messages in a response, which is one or a stream of them."""
    if response.headers.get("content-type", "").startswith("application/json"):
        return [response.json()]
    return [
        json.loads(line[5:])
        for line in response.text.splitlines()
        if line.startswith("data:") and line[5:].strip()
    ]


async def _messages(response: httpx2.Response) -> AsyncIterator[Json]:
    async for line in response.aiter_lines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])
