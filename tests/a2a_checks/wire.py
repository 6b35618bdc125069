"""HTTP as it is: one request, one answer, nothing mended on the way.

Knows HTTP and server-sent events, and nothing of A2A. Most requests go through httpx2; what it would tidy up is
written to a socket by hand.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx2

from tests.a2a_checks.table import Failed, shown

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    verb: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        """The same with more headers; an empty value leaves the header out."""
        merged = {**self.headers, **headers}
        return Request(self.verb, self.url, {k: v for k, v in merged.items() if v}, self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came."""

    status: int
    headers: httpx2.Headers
    body: bytes

    @property
    def media_type(self) -> str:
        """Content-Type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The body as JSON."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            raise Failed("JSON in UTF-8", self.shown()) from None

    def shown(self) -> str:
        """Status and body in few characters."""
        return shown(f"{self.status} {self.media_type} {self.body.decode('utf-8', 'replace')}")


class Wire:
    """Sends requests."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(self, request: Request) -> Answer:
        """The whole answer to a request."""
        async with self.opened(request) as response:
            body = b"".join([chunk async for chunk in response.aiter_bytes()])
            return Answer(response.status_code, response.headers, body)

    @asynccontextmanager
    async def opened(self, request: Request) -> AsyncIterator[httpx2.Response]:
        """The answer's head; its body is read by who asks."""
        try:
            async with self._client.stream(
                request.verb, request.url, headers=dict(request.headers), content=request.body
            ) as response:
                yield response
        except httpx2.HTTPError as exc:
            raise Failed("an HTTP answer", f"{type(exc).__name__}: {exc}") from exc

    async def send_by_hand(self, request: Request) -> Answer:
        """The answer to a request whose headers are written letter by letter, empty ones too."""
        heard = await _exchanged(request.url, _written(request))
        try:
            response = HTTPResponse(_Heard(heard), method=request.verb)  # type: ignore[arg-type]
            response.begin()
            return Answer(response.status, httpx2.Headers(response.getheaders()), response.read())
        except (HTTPException, ValueError) as exc:
            raise Failed("an HTTP answer", repr(exc)) from exc


def _written(request: Request) -> bytes:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = request.body or b""
    headers = {
        "Host": parts.netloc,
        "Connection": "close",
        "Content-Length": str(len(body)),
        **request.headers,
    }
    lines = [
        f"{request.verb} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def _exchanged(url: str, said: bytes) -> bytes:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        async with await _connected(parts.hostname or "", port, secure) as connection:
            await connection.send(said)
            return await _all_of(connection)
    except OSError as exc:
        raise Failed("an HTTP answer", repr(exc)) from exc


async def _connected(host: str, port: int, secure: bool) -> anyio.abc.ByteStream:
    if secure:
        return await anyio.connect_tcp(host, port, tls=True, tls_standard_compatible=False)
    return await anyio.connect_tcp(host, port)


async def _all_of(connection: anyio.abc.ByteStream) -> bytes:
    heard = bytearray()
    while len(heard) < MAX_ANSWER_BYTES:
        try:
            heard += await connection.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            break
    return bytes(heard)


class _Heard:
    """What `HTTPResponse` reads from in place of a socket."""

    def __init__(self, heard: bytes) -> None:
        self._heard = heard

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._heard)


async def events_of(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of each server-sent event, as far as the stream goes."""
    data: list[str] = []
    async for line in _lines_of(response):
        if line:
            name, _, value = line.partition(":")
            data += [value.removeprefix(" ")] if name == "data" else []
        elif data:
            yield "\n".join(data)
            data = []


async def _lines_of(response: httpx2.Response) -> AsyncIterator[str]:
    """Lines end at LF, CR or CRLF and nowhere else: not at what Unicode calls a line end."""
    left = b""
    async for chunk in response.aiter_bytes():
        left += chunk
        held = b"\r" if left.endswith(b"\r") else b""  # which may be the first half of CRLF
        ended = left.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = ended.split(b"\n")
        left = rest + held
        for line in lines:
            yield _decoded(line)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise Failed("events in UTF-8", shown(line)) from None
