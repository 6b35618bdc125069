"""The loopback redirect URI to which a browser returns after a login (RFC 8252 section 7.3).

The listener accepts one answer of the login, at one path, with the right `state` and the right Host header, so that no
other page can send an answer here. Any other request gets an error page and changes nothing.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.abc

_PATH: Final = "/callback"

_HEAD_BYTES: Final = 32 * 1024
"""The largest request head to read. Codes of some issuers have a few KB."""

_HEAD_SECONDS: Final = 30.0
"""How long a browser may take to send the head."""

_HEADERS: Final = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n"
)


@dataclass
class LoginLanding:
    """Receives the answer of one login."""

    host: str
    port: int
    answer: Mapping[str, str] = field(default_factory=dict)
    """The query of the answer; empty until `came` is set."""
    came: anyio.Event = field(default_factory=anyio.Event)
    state: str = ""
    """The `state` of the login; empty until the login begins."""

    @property
    def redirect_uri(self) -> str:
        """The URL to which the issuer redirects the browser."""
        return f"http://{self.host}:{self.port}{_PATH}"

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Answer one request of a browser."""
        async with stream:
            try:
                with anyio.fail_after(_HEAD_SECONDS):
                    status, words = self._taken(await _head_of(stream))
                    body = f"<!doctype html><title>mcp-a2a</title><p>{html.escape(words)}</p>".encode()
                    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n"
                    await stream.send(line.encode() + body)
            except (TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
                return  # a browser opens connections that it does not use

    def _taken(self, head: bytes) -> tuple[HTTPStatus, str]:
        """Accept an answer or refuse a request. Returns the status and the text of the page."""
        first, *lines = head.decode("latin-1").split("\r\n")
        verb, _, rest = first.partition(" ")
        try:
            target = urlsplit(rest.partition(" ")[0])
        except ValueError:
            return HTTPStatus.BAD_REQUEST, "This is not a URL."
        hosts = [
            value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name.lower() == "host"
        ]
        if hosts != [f"{self.host}:{self.port}"]:
            return HTTPStatus.MISDIRECTED_REQUEST, "This is not the address of the login."
        if target.path != _PATH:
            return HTTPStatus.NOT_FOUND, "There is nothing here."
        if verb != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is allowed here."
        parameters = parse_qsl(target.query, keep_blank_values=True)
        query = dict(parameters)
        if len(query) < len(parameters) or not self._is_ours(query):
            return (
                HTTPStatus.BAD_REQUEST,
                "This answer does not belong to the login. Nothing was done.",
            )
        if self.came.is_set():
            return HTTPStatus.GONE, "This login already has an answer. Nothing was done."
        self.answer = query
        self.came.set()
        return HTTPStatus.OK, "The answer has arrived. Close this page, and return to the terminal."

    def _is_ours(self, query: Mapping[str, str]) -> bool:
        state = query.get("state", "")
        return bool(self.state) and secrets.compare_digest(state.encode(), self.state.encode())


@asynccontextmanager
async def login_landing(host: str, port: int) -> AsyncIterator[LoginLanding]:
    """Listen on loopback; port 0 means any free port. `host` is the name of this machine in the URL.

    Raises:
        OSError: the port is taken.
    """
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        landing = LoginLanding(host, port)
        tasks.start_soon(listener.serve, landing.serve)
        yield landing
        tasks.cancel_scope.cancel()


async def _head_of(stream: anyio.abc.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) <= _HEAD_BYTES:
        head += await stream.receive()
    return head.partition(b"\r\n\r\n")[0]
