"""A TCP proxy in front of a server on loopback, which loses, cuts and delays what passes as a test tells it to.

It knows where a request ends (all of ours say their length) and holds it until it is whole, so that it reaches
the server or does not. A fault is told by what a request holds, `proxy.on(b'"tools/call"', RESET)`, and is met
by the response to it, on the connection it came on.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

from tests.support.faults import End, Fault
from tests.support.ports import free_port

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Proxy:
    """A proxy that runs. It tells how many connections it `accepted` and which of them are open, which requests
    were `delivered` whole to the server, and which faults they `met`."""

    to_port: int
    port: int
    accepted: int = 0
    delivered: list[bytes] = field(default_factory=list)
    met: list[Fault] = field(default_factory=list)
    connections: set[_Connection] = field(default_factory=set)
    _rules: list[tuple[bytes, Fault]] = field(default_factory=list)
    _listening: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _moved: anyio.Event = field(default_factory=anyio.Event)
    _tasks: anyio.abc.TaskGroup = field(init=False)

    def url(self, path: str) -> str:
        """The address of a path of the server, through this proxy."""
        return f"http://127.0.0.1:{self.port}{path}"

    def count(self, words: bytes) -> int:
        """How many requests with these words the server got."""
        return sum(words in request for request in self.delivered)

    def on(self, words: bytes, fault: Fault, *, times: int = 1) -> None:
        """Let the next requests that hold these words meet a fault."""
        self._rules += [(words, fault)] * times

    def drop_all(self) -> None:
        """Reset every open connection."""
        for connection in self.connections:
            connection.end(End.RESET)

    def refuse(self) -> None:
        """Close the port. Connections that are open stay open."""
        self._listening.cancel()

    async def accept(self) -> None:
        """Open the port."""
        await self._tasks.start(self._listen)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that is told here is so."""
        with anyio.fail_after(20):
            while not condition():
                await self._moved.wait()

    def move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    def fault_of(self, request: bytes) -> Fault | None:
        """What a request meets; it is counted."""
        fault = None
        if rule := next((rule for rule in self._rules if rule[0] in request), None):
            self._rules.remove(rule)
            self.met.append(fault := rule[1])
        if fault is None or fault.is_delivered:
            self.delivered.append(request)
        self.move()
        return fault

    async def _listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with socket.create_server(("127.0.0.1", self.port)) as listener, anyio.CancelScope() as scope:
            listener.setblocking(False)
            self._listening = scope
            task_status.started()
            while True:
                await anyio.wait_readable(listener)
                client, _ = listener.accept()
                self.accepted += 1
                self._tasks.start_soon(_Connection(self, client).run)


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of loopback; on exit every connection is ended."""
    proxy = Proxy(port, free_port())
    try:
        async with anyio.create_task_group() as tasks:
            proxy._tasks = tasks
            await proxy.accept()
            yield proxy
            tasks.cancel_scope.cancel()
    finally:
        for connection in proxy.connections:  # also those that had not begun
            connection.close()


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, socket.socket()
        self._fault: Fault | None = None
        self._scope, self._response, self._passed = anyio.CancelScope(), b"", 0
        proxy.connections.add(self)

    async def run(self) -> None:
        try:
            with self._scope:
                self._server.connect(("127.0.0.1", self._proxy.to_port))  # loopback: at once or never
                for end in (self._client, self._server):
                    end.setblocking(False)
                    # Without it a body waits 40 ms behind its head.
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pass_requests)
                    tasks.start_soon(self._pass_responses)
        except* ConnectionError:
            pass
        self.close()
        self._proxy.connections.remove(self)
        self._proxy.move()

    def close(self) -> None:
        self._client.close()
        self._server.close()

    def end(self, how: End) -> None:
        if how is End.RESET:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how is not End.NEVER:
            self._scope.cancel()

    async def _pass_requests(self) -> None:
        buffer = b""
        while chunk := await _received(self._client):
            buffer += chunk
            while size := _size_of_request(buffer):
                request, buffer = buffer[:size], buffer[size:]
                self._fault, self._response, self._passed = self._proxy.fault_of(request), b"", 0
                if self._fault is not None and not self._fault.is_delivered:
                    return self.end(self._fault.end)
                await _send(self._server, request)
        return self.end(End.CLOSE)

    async def _pass_responses(self) -> None:
        while chunk := await _received(self._server):
            if (fault := self._fault) is None:
                await _send(self._client, chunk)
            elif not fault.piece_bytes:
                await self._lose(fault, chunk)
            else:
                for start in range(0, len(chunk), fault.piece_bytes):
                    await _send(self._client, chunk[start : start + fault.piece_bytes])
                    await anyio.sleep(fault.pause_seconds)
        self.end(End.CLOSE)

    async def _lose(self, fault: Fault, chunk: bytes) -> None:
        """Pass of a response what its fault passes, and end there."""
        self._response += chunk
        head, found, _ = self._response.partition(_HEAD_END)
        passes = 0 if fault.body_bytes is None else len(head) + len(found) + fault.body_bytes
        await _send(self._client, self._response[self._passed : passes])
        self._passed = len(self._response)
        if self._passed >= passes and (found or not passes):
            self.end(fault.end)


def _size_of_request(data: bytes) -> int:
    """The length of the request that data begins with; 0 as long as it is not whole."""
    head, found, _ = data.partition(_HEAD_END)
    length = _LENGTH.search(head)
    size = len(head) + len(found) + (int(length[1]) if length else 0)
    return size if found and len(data) >= size else 0


async def _received(source: socket.socket) -> bytes:
    await anyio.wait_readable(source)
    return source.recv(1024 * 1024)


async def _send(target: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[target.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(target)
