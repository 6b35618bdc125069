"""Requests that are passed on to another replica, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bridge.replicas.relay import BrokenRelayError, RelayedRequest, ReplicaRelay, UnreachableReplicaError
from bridge.replicas.replica_address import MAX_SOCKET_BYTES, ReplicaAddress
from tests.support.ports import free_port

REQUEST = RelayedRequest(
    "POST",
    "/mcp/face",
    [
        (b"Host", b"agents.example.com"),
        (b"X-Own", b"kept"),
        (b"Connection", b"X-Once, close"),
        (b"X-Once", b"no"),
    ],
    b"{}",
)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: today\r\nX-Own: kept\r\nKeep-Alive: 5\r\n\r\n[]"


class Server:
    """Reads one request per connection, and sends the bytes that a test gives it."""

    def __init__(self, *says: bytes, ends: bool = True) -> None:
        self.heard: list[bytes] = []
        self._says = says
        self._ends = ends
        self.goes_on = anyio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2) if b"content-length: 2" in head.lower() else b""
        self.heard.append(head + body)
        for words in self._says:
            writer.write(words)
            await writer.drain()
        if not self._ends:
            await self.goes_on.wait()
        writer.close()


@asynccontextmanager
async def relay(silence_seconds: float = 10) -> AsyncIterator[ReplicaRelay]:
    """A relay of this test."""
    one = ReplicaRelay(silence_seconds)
    try:
        yield one
    finally:
        await one.close()


@asynccontextmanager
async def at_port(server: Server, base: str = "") -> AsyncIterator[ReplicaAddress]:
    """The address of a server over TCP."""
    port = free_port()
    listening = await asyncio.start_server(server, "127.0.0.1", port)
    try:
        yield ReplicaAddress.parse(f"http://127.0.0.1:{port}{base}")
    finally:
        server.goes_on.set()
        listening.close()


async def test_a_request_is_passed_on_and_answered_without_what_is_about_one_connection() -> None:
    server = Server(OK)
    async with relay() as one, at_port(server, "/base/") as address, one.answer(address, REQUEST) as answer:
        assert answer.start == {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"2"), (b"x-own", b"kept")],
        }
        assert b"".join([chunk async for chunk in answer.chunks()]) == b"[]"
    (heard,) = server.heard
    assert heard.lower().splitlines() == [
        b"post /base/mcp/face http/1.1",
        f"host: {address.authority}".encode(),
        b"x-own: kept",
        b"content-length: 2",
        b"",
        b"{}",
    ]


@pytest.mark.outside
@pytest.mark.skipif(not hasattr(asyncio, "start_unix_server"), reason="this system has no unix sockets")
async def test_a_request_is_passed_on_to_a_socket_of_this_machine(tmp_path: Path) -> None:
    server = Server(OK)
    path = tmp_path / "replica.sock"
    listening = await asyncio.start_unix_server(server, path)
    async with (
        relay() as one,
        one.answer(ReplicaAddress.parse(f"unix:{path}"), replace(REQUEST, verb="GET", body=b"")) as answer,
    ):
        assert b"".join([chunk async for chunk in answer.chunks()]) == b"[]"
    listening.close()
    assert server.heard[0].splitlines()[:2] == [b"GET /mcp/face HTTP/1.1", b"Host: localhost"]


async def test_an_answer_is_streamed() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = Server(head, b"3\r\none\r\n", ends=False)
    async with relay() as one, at_port(server) as address, one.answer(address, REQUEST) as answer:
        chunks = answer.chunks()
        assert await anext(chunks) == b"one"
        server.goes_on.set()
        with pytest.raises(BrokenRelayError):
            await anext(chunks)


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    server = Server(b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    async with relay() as one, at_port(server) as address, one.answer(address, REQUEST) as answer:
        assert answer.start["status"] == 307
    assert len(server.heard) == 1


async def test_a_replica_that_refuses_is_silent_or_talks_nonsense_is_unreachable() -> None:
    silent, nonsense = Server(ends=False), Server(b"hello\r\n\r\n")
    async with relay(0.05) as one, at_port(silent) as first, at_port(nonsense) as second:
        nobody = ReplicaAddress.parse(f"http://127.0.0.1:{free_port()}")
        for address in (first, second, nobody, ReplicaAddress.parse("unix:/nowhere/at.all")):
            with pytest.raises(UnreachableReplicaError):
                async with one.answer(address, REQUEST):
                    raise AssertionError("it answered")


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with relay() as one, at_port(Server(OK)) as address, one.answer(address, REQUEST) as answer:
        assert answer.start["status"] == 200


@pytest.mark.parametrize(
    "text",
    [
        "unix:relative",
        "unix:",
        "unix:/a\nb",
        f"unix:/{'a' * MAX_SOCKET_BYTES}",
        "ftp://host",
        "http://",
        "http://user@host",
        "http://host?a",
        "http://host#a",
        "http://host:0",
        "http://host:x",
        "http://ho st",
        "host:80",
        "http://exämple.com",
        "unix:/run/ä.sock",
    ],
)
def test_a_malformed_replica_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        ReplicaAddress.parse(text)


@pytest.mark.parametrize(
    ("text", "authority", "base_path"),
    [
        ("https://replica.internal/", "replica.internal", ""),
        ("http://10.0.0.7:8080/bridge/", "10.0.0.7:8080", "/bridge"),
        ("http://[fd00::7]:8080", "[fd00::7]:8080", ""),
        ("unix:/run/a b.sock", "localhost", ""),
    ],
)
def test_a_replica_address_is_parsed(text: str, authority: str, base_path: str) -> None:
    address = ReplicaAddress.parse(text)
    assert (address.text, address.authority, address.base_path) == (text, authority, base_path)
