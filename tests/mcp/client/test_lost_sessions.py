"""Sessions that a server has forgotten, however it says so: a new one is opened once, and no call runs twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerDownError, ServerLostError, ServerRefusedError
from bridge.mcp.client.session import Session
from bridge.settings import ServerSettings
from tests.support.limits import call_of, server_settings, url_at
from tests.support.odd_server import OddApp, result_of
from tests.support.running import listening

pytestmark = pytest.mark.proves("map-lost", "mcp25-session-again")

SETTINGS: Final = server_settings(connect_seconds=20, longest_pause_seconds=0.3)
Refuse = Callable[[Any], Response]


@dataclass
class Forgetful:
    """A server of 2025-11-25 with sessions, which it can forget."""

    refuse: Refuse
    """How it answers a request of a session that it does not know, by the id of the request."""
    tool_error: str = ""
    """What its tool `odd` fails with after it has run."""
    known: str = ""
    ran: int = 0
    posted: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            await (await self._response(Request(scope, receive)))(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = json.loads(await request.body())
        method, request_id = message["method"], message.get("id")
        self.posted.append(method)
        if method == "initialize":
            self.known = f"s{next(self._numbers)}"
            return self._answer(request_id, {"result": result_of(message)}, {"mcp-session-id": self.known})
        if request.headers.get("mcp-session-id") != self.known:
            return self.refuse(request_id)
        if request_id is None:
            return Response(status_code=202)
        if method == "tools/call":
            self.ran += 1
            if message["params"]["name"] == "odd":
                return self._answer(request_id, {"error": {"code": -32000, "message": self.tool_error}})
        return self._answer(request_id, {"result": result_of(message)})

    def _answer(self, request_id: Any, said: Any, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, **said}, headers=headers)


def text(status: int, words: str) -> Refuse:
    return lambda _: PlainTextResponse(words, status)


def plain_json(status: int, **said: Any) -> Refuse:
    return lambda _: JSONResponse(said, status)


def rpc(status: int, words: str, code: int = -32600) -> Refuse:
    def refuse(request_id: Any) -> Response:
        error = {"code": code, "message": words}
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, status)

    return refuse


def event(words: str) -> Refuse:
    def refuse(request_id: Any) -> Response:
        said = {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32000, "message": words}}
        return Response(f"data: {json.dumps(said)}\n\n", media_type="text/event-stream")

    return refuse


TOLD: Final = {
    "404": text(404, ""),
    "400 of mcp 1.12": text(400, "Bad Request: No valid session ID provided"),
    "400 in plain text": text(400, "Invalid session ID"),
    "400 with detail": plain_json(400, detail="Session not found"),
    "400 with an error that is a text": plain_json(400, error="Invalid or missing session ID"),
    "400 of the TypeScript SDK": rpc(400, "Bad Request: Server not initialized", -32000),
    "401": text(401, "Unauthorized: Session not found"),
    "401 with an error": rpc(401, "Unauthorized: Session not found"),
    "403": plain_json(403, message="unknown session"),
    "410": text(410, "Session abc-123 has expired"),
    "422": text(422, "Unprocessable: session does not exist"),
    "500": text(500, "Session not found"),
    "500 with an error": rpc(500, "Session 4f2 not found", -32603),
    "200 with an error": rpc(200, "Session not found", -32001),
    "200 with an error of no id": lambda _: rpc(200, "Session not found")(None),
    "200 with an event": event("No such session: 4f2"),
}


@asynccontextmanager
async def connected(
    app: Any, path: str = "/mcp", settings: ServerSettings = SETTINGS
) -> AsyncIterator[Session]:
    async with listening(app) as root_url:
        session = Session("tools", url_at(f"{root_url}{path}"), era=Era.LEGACY, settings=settings)
        with anyio.fail_after(30):
            async with session.run():
                await session.ready()
                yield session


async def plain(session: Session) -> Any:
    result: Any = await session.call(call_of("plain", {}))
    return result["content"][0]["text"]


@pytest.mark.parametrize("kind", TOLD)
async def test_a_call_on_a_forgotten_session_is_made_once_on_a_new_one(kind: str) -> None:
    server = Forgetful(TOLD[kind])
    async with connected(server) as session:
        assert await plain(session) == "plain"
        server.known = "another"
        assert await plain(session) == "plain"
        assert await plain(session) == "plain"
    assert server.ran == 3
    assert server.posted.count("initialize") == 2


@pytest.mark.parametrize(
    "words", ["Session not found", "Browser session 7 has been closed", "Invalid session"]
)
async def test_a_tools_own_session_is_not_the_session_of_the_server(words: str) -> None:
    server = Forgetful(text(404, ""), tool_error=words)
    async with connected(server) as session:
        for _ in range(2):
            with pytest.raises(ServerRefusedError, match=words):
                await session.call(call_of("odd", {}))
        assert await plain(session) == "plain"
    assert server.ran == 3
    assert server.posted.count("initialize") == 1


async def test_a_server_that_forgets_each_session_is_called_only_twice() -> None:
    server = Forgetful(text(400, "Invalid session ID"))
    async with connected(server, settings=SETTINGS.having(connect_seconds=2)) as session:
        server.known = "another"
        server.refuse = lambda _: text(400, "Invalid session ID")(None)
        before = server.posted.count("tools/call")
        real, server._answer = server._answer, lambda *_: text(400, "Invalid session ID")(None)  # type: ignore[method-assign]
        with pytest.raises((ServerDownError, ServerLostError, PeerError)):
            await plain(session)
        server._answer = real  # type: ignore[method-assign]
        assert server.posted.count("tools/call") - before <= 2
        assert server.ran == 0


async def test_a_refused_token_is_not_a_forgotten_session() -> None:
    def refuse(_: Any) -> Response:
        challenge = {"www-authenticate": "Bearer"}
        return PlainTextResponse("Your session has expired, invalid session", 401, challenge)

    server = Forgetful(refuse)
    async with connected(server) as session:
        server.known = "another"
        with pytest.raises(ServerLostError, match="answered HTTP 401"):
            await plain(session)
    assert server.posted.count("initialize") == 1


@pytest.mark.parametrize("words", ["Session not found", "Could not find session 4f2: unknown session"])
async def test_a_forgotten_session_of_the_older_transport_is_opened_anew(words: str) -> None:
    app = OddApp([])
    lost = 0

    async def forgetting(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal lost
        if scope["type"] == "http" and scope["path"] == "/messages" and lost:
            lost -= 1
            await PlainTextResponse(words, 400)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with connected(forgetting, "/sse") as session:
        assert await plain(session) == "plain"
        lost = 1
        assert await plain(session) == "plain"
    assert app.posted.count("initialize") == 2
