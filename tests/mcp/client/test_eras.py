"""How a connection to a tool server starts: servers that are slow, silent or lenient, and those that cannot ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge.errors import PeerError
from bridge.mcp.client.dispatcher import UnansweredBounds, Wire
from bridge.mcp.client.elicitation_routing import ElicitationRouter
from bridge.mcp.client.eras import Era, negotiate
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.link import CLIENT
from bridge.mcp.client.session import Session
from tests.support.limits import call_of, session_pace, url_at
from tests.support.running import listening
from tests.support.sdk_server import HttpServer, Tools

pytestmark = pytest.mark.proves("mcp-eras")

Json = dict[str, Any]

PACE: Final = session_pace(connect_seconds=30, longest_pause_seconds=0.3, retire_seconds=5)
INFO: Final = {"name": "slow", "version": "1"}
DISCOVERED: Final[Json] = {
    "result": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "serverInfo": INFO,
        "ttlMs": 0,
        "cacheScope": "private",
    }
}
INITIALIZED: Final[Json] = {
    "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
}
MODERN_ONLY: Final[Json] = {
    "error": {
        "code": -32022,
        "message": "modern",
        "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
    }
}
UNKNOWN: Final[Json] = {"error": {"code": -32601, "message": "Method not found"}}
NOT_YOU: Final[Json] = {"error": {"code": -32001, "message": "not you"}}


@asynccontextmanager
async def answering(answers: Sequence[tuple[str, Json]]) -> AsyncIterator[tuple[ClientSession, list[str]]]:
    """A session with a server that was asked for the era in both ways before it gives these answers, in this order."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](8)
    heard: list[str] = []
    wire = Wire(
        "slow",
        (from_server, to_server),
        ElicitationRouter("slow", 0, lambda: None),
        lambda: None,
        UnansweredBounds(1, 1000),
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, to_client, from_client:
            tasks.start_soon(serve, answers, from_client, to_client, heard)
            async with ClientSession(client_info=CLIENT, dispatcher=wire) as session:
                yield session, heard
            tasks.cancel_scope.cancel()


async def serve(
    answers: Sequence[tuple[str, Json]],
    incoming: MemoryObjectReceiveStream[SessionMessage],
    outgoing: MemoryObjectSendStream[SessionMessage | Exception],
    heard: list[str],
) -> None:
    ids: Json = {}
    async for message in incoming:
        said = message.message.model_dump(by_alias=True)
        heard.append(said["method"])
        ids[said["method"]] = said.get("id")
        if len(ids) == 2:
            for method, answer in answers:
                line = {"jsonrpc": "2.0", "id": ids[method], **answer}
                await outgoing.send(SessionMessage(jsonrpc_message_adapter.validate_python(line)))


LATE: Final = {
    "it is modern, and refuses the handshake": (
        [("server/discover", DISCOVERED), ("initialize", MODERN_ONLY)],
        Era.MODERN,
    ),
    "it is modern, and refuses the handshake first": (
        [("initialize", MODERN_ONLY), ("server/discover", DISCOVERED)],
        Era.MODERN,
    ),
    "it is legacy, and refuses the probe": (
        [("server/discover", UNKNOWN), ("initialize", INITIALIZED)],
        Era.LEGACY,
    ),
    "it is legacy, and passes the probe over": ([("initialize", INITIALIZED)], Era.LEGACY),
    "it takes both": ([("server/discover", DISCOVERED), ("initialize", INITIALIZED)], None),
}


@pytest.mark.proves("mcp-eras")
@pytest.mark.parametrize("kind", LATE)
async def test_a_server_that_answers_late_is_spoken_to_as_its_answers_say(kind: str) -> None:
    answers, era = LATE[kind]
    async with answering(answers) as (session, heard):
        spoken = await negotiate(session, Era.AUTO, silent_seconds=0.01)
        assert heard[:2] == ["server/discover", "initialize"]
        assert spoken is (era or spoken)
        modern = session.protocol_version == "2026-07-28"
        assert modern is (spoken is Era.MODERN)
        assert modern or heard[2:] == ["notifications/initialized"]
        assert "notifications/cancelled" not in heard


async def test_a_late_server_that_refuses_both_is_heard() -> None:
    async with answering([("initialize", NOT_YOU)]) as (session, _):
        with pytest.raises(MCPError, match="not you"):
            await negotiate(session, Era.AUTO, silent_seconds=0.01)


NO_RIGHTS: Final = {
    401: ("Bearer", "answered HTTP 401 Unauthorized"),
    403: (
        'Bearer error="insufficient_scope", scope="admin"',
        "answered HTTP 403 Forbidden: the token lacks the scopes admin",
    ),
}


@pytest.mark.parametrize("status", NO_RIGHTS)
async def test_a_modern_server_that_misses_rights_is_heard_and_not_what_it_says_of_the_older_handshake(
    status: int,
) -> None:
    challenge, words = NO_RIGHTS[status]

    async def answer(request: Request) -> Response:
        said = await request.json()
        if said["method"] == "server/discover":
            return Response(status_code=status, headers={"WWW-Authenticate": challenge})
        error = {"code": -32600, "message": "Missing MCP-Protocol-Version header"}
        return JSONResponse({"jsonrpc": "2.0", "id": said["id"], "error": error}, 400)

    with anyio.fail_after(20):
        async with listening(Starlette(routes=[Route("/mcp", answer, methods=["POST"])])) as url:
            session = Session("tools", url_at(f"{url}/mcp"), era=Era.AUTO, pace=PACE)
            async with session.run():
                with pytest.raises(PeerError, match=words):
                    await session.ready()


class Silent(Tools):
    """Never lists its tools."""

    async def list(self, context: Any, params: Any) -> NoReturn:
        await anyio.sleep_forever()
        raise AssertionError


async def test_the_deadline_of_a_connection_holds_until_its_tools_are_listed() -> None:
    pace = session_pace(connect_seconds=1)
    async with HttpServer(tools=Silent()).run() as server:
        session = Session("tools", url_at(server.url), era=Era.LEGACY, pace=pace)
        with anyio.fail_after(20):
            async with session.run():
                with pytest.raises(PeerError) as failed:
                    await session.ready()
    assert str(failed.value).startswith("tools did not list its tools within 1 s of being connected to")


# Servers that cannot ask under the version that they speak

OLDER: Final = "the older handshake, under which it can ask"


@asynccontextmanager
async def connected(server: HttpServer, era: Era, memory: ServerMemory) -> AsyncIterator[Session]:
    session = Session("asker", url_at(server.url), era=era, memory=memory, pace=PACE)
    with anyio.fail_after(20):
        async with session.run():
            await session.ready()
            yield session


def asker() -> HttpServer:
    return HttpServer(tools=Tools(names=["ask", "ask-tool", "hold"]))


@pytest.mark.parametrize("tool", ["ask", "ask-tool"])
async def test_a_server_that_cannot_ask_is_spoken_to_by_the_older_handshake_from_then_on(
    tool: str, tmp_path: Path
) -> None:
    file = tmp_path / "servers.json"
    async with asker().run() as server:
        async with connected(server, Era.AUTO, ServerMemory(file)) as session:
            said = await failure(session, tool)
            assert said.endswith(
                "asker asks in a way that MCP 2026-07-28 no longer has. "
                f"From now on the bridge speaks to it by {OLDER}: call again."
            )
            assert said.startswith(
                ("Cannot send 'elicitation/create'", "Error calling tool 'ask-tool': Cannot")
            )
            assert text_of(await session.call(call_of(tool, {}))) == "cancel"
        assert ServerMemory(file).recall(Fact.MUTE, server.url) == "yes"
        server.posted.clear()
        async with connected(server, Era.AUTO, ServerMemory(file)) as session:
            assert text_of(await session.call(call_of(tool, {}))) == "cancel"
        assert "server/discover" not in server.posted


async def test_calls_that_run_while_the_connection_is_made_anew_come_to_their_end() -> None:
    async with asker().run() as server, connected(server, Era.AUTO, ServerMemory(None)) as session:
        held: list[Json] = []

        async def hold() -> None:
            held.append(await session.call(call_of("hold", {})))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await server.tools.until(lambda: server.tools.waiting == 1)
            await failure(session, "ask")
            assert text_of(await session.call(call_of("ask", {}))) == "cancel"
            server.tools.released.set()
        assert [text_of(result) for result in held] == ["held"]


async def test_an_era_that_is_set_stays_and_the_failure_names_it(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with asker().run() as server, connected(server, Era.MODERN, ServerMemory(file)) as session:
        for _ in range(2):
            said = await failure(session, "ask")
            assert said.endswith('era = "modern" is set for it, and with era = "legacy" it can ask.')
        assert {key.partition(":")[0] for key in json.loads(file.read_text())} == {"name"}
        assert "initialize" not in server.posted


async def test_a_server_that_no_longer_takes_the_older_handshake_is_asked_anew_for_its_era() -> None:
    memory = ServerMemory(None)
    async with HttpServer(only="modern").run() as server:
        memory.remember(Fact.MUTE, server.url, "yes")
        session = Session("tools", url_at(server.url), memory=memory, pace=PACE)
        with anyio.fail_after(20):
            async with session.run():
                assert text_of(await session.call(call_of("echo", {"text": "hello"}))) == "hello"
        assert memory.recall(Fact.MUTE, server.url) is None


async def failure(session: Session, tool: str) -> str:
    """The words of a call that fails, by an error or a result."""
    try:
        result = await session.call(call_of(tool, {}))
    except ServerRefusedError as exc:
        return str(exc)
    assert result["isError"] is True
    return text_of(result)


def text_of(result: Json) -> str:
    return " ".join(block["text"] for block in result["content"])
