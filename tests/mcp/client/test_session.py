"""One session with a tool server, whose connections come and go at awkward moments."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.session import Session
from tests.support.limits import call_of, command_of, server_settings, url_at
from tests.support.recording_server import Got, RecordingServer

Json = dict[str, Any]
CALL: Final = call_of("echo", {})


def _session_of(got: Got) -> str:
    return got.headers["mcp-session-id"]


def _event(message: Json) -> str:
    return f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"


class TwoSessions:
    """The answers of a server that loses its first session, while a call and a listing of it are under way."""

    def __init__(self) -> None:
        self.sessions = 0
        self.seen: Counter[tuple[str, str]] = Counter()
        """How often each session asked for each method."""
        self.listing, self.call = anyio.Event(), anyio.Event()
        """Set to let the late listing, and then the call, of the first session go on."""
        self.listed = anyio.Event()
        """Set once the late listing was sent."""
        self.server = RecordingServer(
            answers={"initialize": self._greeting, "tools/list": self._tools, "tools/call": self._called},
            capabilities={"tools": {"listChanged": True}},
        )

    def _greeting(self, got: Got) -> Response:
        self.sessions += 1
        info = {"name": "two", "version": "0"}
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": self.server.capabilities,
            "serverInfo": info,
        }
        body = {"jsonrpc": "2.0", "id": got.message["id"], "result": result}
        return JSONResponse(body, headers={"MCP-SESSION-ID": f"session-{self.sessions}"})

    def _nth(self, got: Got) -> tuple[str, int]:
        key = got.method, _session_of(got)
        self.seen[key] += 1
        return key[1], self.seen[key]

    def _tools(self, got: Got) -> Response | Json:
        session, number = self._nth(got)
        tools = [
            {"name": name, "inputSchema": {"type": "object"}} for name in ("echo", f"{session}-{number}")
        ]
        if (session, number) != ("session-1", 2):
            return {"tools": tools}

        async def late() -> AsyncIterator[str]:
            await self.listing.wait()
            yield _event({"id": got.message["id"], "result": {"tools": tools}})
            self.listed.set()

        return StreamingResponse(late(), media_type="text/event-stream")

    def _called(self, got: Got) -> Response | Json:
        session, number = self._nth(got)
        if session == "session-2":
            return {"content": []}
        if number == 2:
            return Response(status_code=404)

        async def long() -> AsyncIterator[str]:
            yield _event({"method": "notifications/tools/list_changed"})
            await self.call.wait()
            yield _event({"id": got.message["id"], "result": {"content": []}})

        return StreamingResponse(long(), media_type="text/event-stream")


@pytest.mark.proves("mcp-changed")
async def test_a_late_listing_of_a_retiring_connection_does_not_replace_the_tools_of_the_next_one() -> None:
    two = TwoSessions()
    settings = server_settings(settle_seconds=0.001)
    async with two.server.serve() as url:
        with anyio.fail_after(30):
            async with (
                Session("tools", url_at(url), era=Era.LEGACY, settings=settings).run() as session,
                anyio.create_task_group() as tasks,
            ):
                await session.ready()
                tasks.start_soon(session.call, CALL)
                await two.server.until(lambda: two.seen["tools/list", "session-1"] == 2)
                await session.call(CALL)
                two.listing.set()
                await two.listed.wait()
                await anyio.wait_all_tasks_blocked()
                assert [tool.name for tool in session.listing.tools] == ["echo", "session-2-1"]
                two.call.set()


DEAF_AT_FIRST: Final = """
import json, os, pathlib, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

started = pathlib.Path(sys.argv[1])
is_deaf = not started.exists()
started.touch()
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if message["method"] == "initialize":
        info = {"name": "deaf", "version": "0"}
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=message["id"], result=greeting)
    elif message["method"] == "tools/call":
        send(id=message["id"], result={"content": []})
    elif message["method"] == "tools/list":
        if is_deaf:
            os.close(0)
        send(id=message["id"], result={"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        for number in range(200 * is_deaf):
            send(method="notifications/message", params={"level": "info", "data": number})
            time.sleep(0.05)
"""
"""A server over stdio. At its first start it lists its tools, then reads no more and writes on for ten seconds: nothing
can be sent to it, but its connection has not ended."""


@pytest.mark.proves("map-lost")
async def test_a_call_to_an_unresponsive_child_moves_to_a_new_child_before_the_old_output_is_read(
    tmp_path: Path,
) -> None:
    results: dict[int, Json | str] = {}
    settings = server_settings(connect_seconds=8, longest_pause_seconds=0.1)

    async def call(number: int) -> None:
        try:
            results[number] = await session.call(CALL)
        except PeerError as exc:
            results[number] = str(exc)

    with anyio.fail_after(30):
        target = command_of((sys.executable, "-c", DEAF_AT_FIRST, str(tmp_path / "started")))
        async with Session("tools", target, era=Era.LEGACY, settings=settings).run() as session:
            await session.ready()
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(call, number)
                    await anyio.wait_all_tasks_blocked()
    lost = "The server process of tools ended"
    assert results[0] in ({"content": []}, lost), "it may be written before the pipe is known to be closed"
    assert results[3] == {"content": []}
