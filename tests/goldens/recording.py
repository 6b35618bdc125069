"""What passes over HTTP, written down as text: each exchange with its request (`>`) and its response (`<`).

An exchange stands where its request began, with all that was answered to it, however late. `#` is a heading, `=` a
value that no HTTP carries. A body stands byte for byte, a line for each of its lines.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.goldens.placeholders import with_placeholders
from tests.support.in_process import replayed
from tests.support.running import message

ROOT: Final = "http://127.0.0.1:8080"
"""Where a bridge is whose application is asked without a socket."""
_LONG_BYTES: Final = 40_000
_COUNTED: Final = frozenset({"content-length", "connection", "accept-encoding", "date", "server"})
"""Headers of the HTTP library and the server: the application says nothing with them."""
_OF_THE_TEST: Final = frozenset({"user-agent"})
"""Headers that the client of a test sends whoever it asks."""
_HEARTBEAT: Final = b": \n\n"

Headers = list[tuple[str, str]]


@dataclass
class Exchange:
    """One request and its response."""

    label: str
    request: str
    headers: Headers
    body: bytes
    status: int | None = None
    answer_headers: Headers = field(default_factory=list)
    answer: bytes = b""
    is_over: bool = False

    def lines(self) -> list[str]:
        """As it is written down."""
        asked = [self.request, *_header_lines(self.headers), *_body_lines(self.body)]
        answered = ["(no answer)"]
        if self.status is not None:
            answered = [str(self.status), *_header_lines(self.answer_headers), *_body_lines(self.answer)]
        label = f"{self.label} " if self.label else ""
        return [
            *(f"{label}> {line}" if line else f"{label}>" for line in asked),
            *(f"{label}< {line}" if line else f"{label}<" for line in answered),
        ]


@dataclass
class Recording:
    """A conversation on its way into a file."""

    written: list[Exchange | str] = field(default_factory=list)
    _messages: int = 0
    _moved: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when an exchange is over."""

    def heading(self, words: str) -> None:
        """What comes next."""
        self.written.append(f"# {words}")

    def line(self, said: str) -> None:
        """What was written to a process."""
        self.written.append(f"> {said}")

    def value(self, words: str, value: Any) -> None:
        """What came of something."""
        self.written.append(f"= {words}: {value if isinstance(value, str) else json.dumps(value)}")

    def message(self, *parts: Any, **fields: Any) -> dict[str, Any]:
        """The parameters of SendMessage; the ids of messages are the same in each conversation."""
        self._messages += 1
        return message(*parts, **{"messageId": f"m-{self._messages}", **fields})

    async def answered(self, words: str) -> None:
        """Wait until a request with these words was answered in full."""
        while not any(
            isinstance(one, Exchange) and one.is_over and words in one.body.decode() for one in self.written
        ):
            await self._moved.wait()

    def text(self) -> str:
        """All of it, as it stands in a file."""
        blocks = [
            one if isinstance(one, str) else "\n".join(_printable(line) for line in one.lines())
            for one in self.written
        ]
        return with_placeholders("\n\n".join(blocks) + "\n")

    def of(self, app: ASGIApp, label: str = "", *, hides_client: bool = False) -> ASGIApp:
        """An application, recorded. `hides_client` leaves out what the HTTP client of a test always says."""
        hidden = _COUNTED | (_OF_THE_TEST if hides_client else frozenset())

        async def tapped(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            body = await _whole_body(receive)
            query = scope["query_string"].decode()
            target = scope["raw_path"].decode() + (f"?{query}" if query else "")
            found = _shown_headers(scope["headers"], hidden)
            exchange = Exchange(label, f"{scope['method']} {target}", found, body)
            self.written.append(exchange)

            async def recorded(message: Message) -> None:
                if message["type"] == "http.response.start":
                    exchange.status = message["status"]
                    exchange.answer_headers = _shown_headers(message["headers"], hidden)
                elif (chunk := message.get("body", b"")) != _HEARTBEAT:
                    exchange.answer += chunk
                await send(message)

            try:
                await app(scope, replayed(body, receive), recorded)
            finally:
                exchange.is_over = True
                self._moved.set()
                self._moved = anyio.Event()

        return tapped


async def _whole_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _shown_headers(raw: Any, hidden: frozenset[str]) -> Headers:
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]
    plain = {("host", "127.0.0.1:8080"), ("accept", "*/*")} if "user-agent" in hidden else set()
    return [(name, value) for name, value in pairs if name not in hidden and (name, value) not in plain]


def _header_lines(headers: Headers) -> list[str]:
    return [f"{name}: {value}" for name, value in headers]


def _body_lines(body: bytes) -> list[str]:
    if not body:
        return []
    if len(body) > _LONG_BYTES:
        return ["", f"({len(body)} bytes)"]
    return ["", *body.decode("utf-8", "backslashreplace").split("\n")]


def _printable(line: str) -> str:
    """A line of which an editor changes nothing."""
    return line.replace("\r", "\\r").replace("\u2028", "\\u2028")
