"""What a tool server gets of a message to its agent, and what becomes of a result that nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import Url
from bridge.web import Credential, Principal
from tests.support.drivers import JsonRpcDriver, new_client, state_of
from tests.support.mcp_wire import MODERN
from tests.support.recording_server import Json, RecordingServer
from tests.support.running import config_for, listening, wrapped

UPLOAD: Json = {
    "name": "upload",
    "inputSchema": {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "uri"}},
        "required": ["file"],
    },
}


@asynccontextmanager
async def before(server: RecordingServer) -> AsyncIterator[tuple[JsonRpcDriver, str]]:
    """Ada's client of the agent of a server, and the server's URL."""
    known = [Credential(Principal("ada"), "token-ada")]
    with anyio.fail_after(20):
        async with server.serve() as url:
            config = config_for(Url(url), era=Era.MODERN, credentials=known)
            async with wrapped(config) as bridge, listening(bridge.app) as root_url, new_client() as client:
                driver = JsonRpcDriver(client, f"{root_url}{bridge.path}")
                yield driver.with_headers(Authorization="Bearer token-ada"), url


@pytest.mark.proves("a2a-14.1.1-files", "map-files")
async def test_a_file_reference_goes_to_the_tool_unread_and_no_token_with_it() -> None:
    server = RecordingServer(MODERN, tools=[UPLOAD])
    async with before(server) as (driver, url):
        reference = url.replace("/mcp", "/secret.txt")
        task = await driver.send({"data": {"skill": "upload"}}, {"url": reference, "mediaType": "text/plain"})
        assert state_of(task) == "COMPLETED"
    assert [got.params["arguments"] for got in server.of("tools/call")] == [{"file": reference}]
    assert {got.verb for got in server.got} <= {"POST", "DELETE"}
    assert not [got for got in server.got if "authorization" in got.headers]


@pytest.mark.proves("mcp26-result-unknown")
async def test_a_result_of_an_unknown_type_is_none() -> None:
    server = RecordingServer(
        MODERN, answers={"tools/call": lambda _: {"resultType": "tomorrow", "content": []}}
    )
    async with before(server) as (driver, _):
        task = await driver.send({"data": {"skill": "echo"}})
    assert state_of(task) == "FAILED"
    assert "of a kind that is not known here: 'tomorrow'" in task["status"]["message"]["parts"][0]["text"]
