"""What a tool server gets from a message to its agent, and how a result of an unknown type is handled."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stderr
from io import StringIO
from typing import Final

import anyio
import pytest

from bridge.cli.logs import set_up
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from tests.support.drivers import JsonRpcDriver, new_client, state_of
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.recording_server import SESSION, Json, RecordingServer
from tests.support.running import config_for, listening, wrapped

ERAS: Final = {LEGACY: Era.LEGACY, MODERN: Era.MODERN}
UPLOAD: Final[Json] = {
    "name": "upload",
    "inputSchema": {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "uri"}},
        "required": ["file"],
    },
}


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """The debug log, as the command writes it."""
    handlers, screen = [*logging.root.handlers], StringIO()
    with redirect_stderr(screen):
        set_up("text", "debug")
    yield screen
    logging.root.handlers[:] = handlers


@asynccontextmanager
async def before(server: RecordingServer) -> AsyncIterator[tuple[JsonRpcDriver, str]]:
    """Ada's client of the agent of a server, and the server's URL."""
    known = [Credential(Principal("ada"), "token-ada")]
    with anyio.fail_after(20):
        async with server.serve() as url:
            config = config_for(url_at(url), era=ERAS[server.version], credentials=known)
            async with wrapped(config) as bridge, listening(bridge.app) as root_url, new_client() as client:
                driver = JsonRpcDriver(client, f"{root_url}{bridge.path}")
                yield driver.with_headers(Authorization="Bearer token-ada"), url


@pytest.mark.proves("a2a-14.1.1-files", "map-files")
async def test_a_file_reference_reaches_the_tool_unread_and_without_a_token() -> None:
    server = RecordingServer(MODERN, tools=[UPLOAD])
    async with before(server) as (driver, url):
        reference = url.replace("/mcp", "/secret.txt")
        task = await driver.send({"data": {"skill": "upload"}}, {"url": reference, "mediaType": "text/plain"})
        assert state_of(task) == "COMPLETED"
    assert [got.params["arguments"] for got in server.of("tools/call")] == [{"file": reference}]
    assert {got.verb for got in server.got} <= {"POST", "DELETE"}
    assert not [got for got in server.got if "authorization" in got.headers]


@pytest.mark.proves("mcp26-result-unknown")
async def test_a_result_of_an_unknown_type_fails_the_call() -> None:
    server = RecordingServer(
        MODERN, answers={"tools/call": lambda _: {"resultType": "tomorrow", "content": []}}
    )
    async with before(server) as (driver, _):
        task = await driver.send({"data": {"skill": "echo"}})
    assert state_of(task) == "FAILED"
    assert "of a kind that is not known here: 'tomorrow'" in task["status"]["message"]["parts"][0]["text"]


@pytest.mark.proves("a2a-13.4-logs", "mcp25-session-secret")
@pytest.mark.parametrize("version", ERAS)
async def test_no_argument_result_token_or_session_is_logged(version: str, logged: StringIO) -> None:
    said: Json = {"content": [{"type": "text", "text": "a result of swordfish"}]}
    server = RecordingServer(version, answers={"tools/call": lambda _: [said]})
    async with before(server) as (driver, _):
        task = await driver.send({"data": {"skill": "echo", "arguments": {"password": "swordfish"}}})
    assert state_of(task) == "COMPLETED"
    lines = logged.getvalue()
    assert "Started server process" in lines
    assert [word for word in ("swordfish", "token-ada", SESSION) if word in lines] == []
