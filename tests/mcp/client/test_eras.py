"""How a connection to a tool server starts: servers that are slow, silent or lenient, and those that cannot ask."""

from __future__ import annotations

import json
import os
import sys
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
from bridge.mcp.client.faults import ServerDownError, ServerRefusedError, cannot_ask
from bridge.mcp.client.known_servers import Fact, ServerMemory
from bridge.mcp.client.server_connection import CLIENT
from bridge.mcp.client.session import Session
from bridge.mcp.client.transports.stdio import StdioTarget
from tests.support.limits import call_of, command_of, server_settings, url_at
from tests.support.processes import children_with
from tests.support.running import listening
from tests.support.sdk_server import HttpServer, Tools

pytestmark = pytest.mark.proves("mcp-eras")

Json = dict[str, Any]

SETTINGS: Final = server_settings(connect_seconds=30, longest_pause_seconds=0.3, retire_seconds=5)
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
async def test_a_server_that_answers_late_is_spoken_to_in_the_era_of_its_answers(kind: str) -> None:
    answers, era = LATE[kind]
    async with answering(answers) as (session, heard):
        spoken = await negotiate(session, Era.AUTO, silent_seconds=0.01)
        assert heard[:2] == ["server/discover", "initialize"]
        assert spoken is (era or spoken)
        modern = session.protocol_version == "2026-07-28"
        assert modern is (spoken is Era.MODERN)
        assert modern or heard[2:] == ["notifications/initialized"]
        assert "notifications/cancelled" not in heard


async def test_the_refusal_of_a_late_server_that_refuses_both_eras_is_reported() -> None:
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
async def test_the_missing_rights_at_a_modern_server_are_reported_and_not_its_refusal_of_the_older_handshake(
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
            session = Session("tools", url_at(f"{url}/mcp"), era=Era.AUTO, settings=SETTINGS)
            async with session.run():
                with pytest.raises(PeerError, match=words):
                    await session.ready()


class Silent(Tools):
    """Never lists its tools."""

    async def list(self, context: Any, params: Any) -> NoReturn:
        await anyio.sleep_forever()
        raise AssertionError


async def test_the_deadline_of_a_connection_holds_until_its_tools_are_listed() -> None:
    settings = server_settings(connect_seconds=1)
    async with HttpServer(tools=Silent()).run() as server:
        session = Session("tools", url_at(server.url), era=Era.LEGACY, settings=settings)
        with anyio.fail_after(20):
            async with session.run():
                with pytest.raises(PeerError) as failed:
                    await session.ready()
    words = "tools did not list its tools within 1 s (`connect_seconds` is the limit)"
    assert str(failed.value).startswith(words)


# Processes that start slowly, or end at the question for their era

INITIALIZE_FIRST: Final = """
import json, sys
for number, line in enumerate(sys.stdin):
    message = json.loads(line)
    if number == 0:
        with open(sys.argv[1], "a") as file:
            print(message["method"], file=file)
        if message["method"] != "initialize" or "never" in sys.argv:
            sys.exit("Error: expect initialized request")
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }.get(message["method"])
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
""".replace("INFO", repr(INFO))


def initialize_first(file: Path, *options: str) -> StdioTarget:
    """A server that ends when its first message is not `initialize`; its starts are noted in a file."""
    return command_of((sys.executable, "-S", "-E", "-c", INITIALIZE_FIRST, str(file), *options))


@asynccontextmanager
async def started(target: StdioTarget, era: Era = Era.AUTO, **more: Any) -> AsyncIterator[Session]:
    session = Session("tools", target, era=era, **{"settings": SETTINGS, **more})
    with anyio.fail_after(30):
        async with session.run():
            yield session


async def test_a_process_that_ends_at_the_era_probe_is_started_again_with_initialize(
    tmp_path: Path,
) -> None:
    noted, file = tmp_path / "starts", tmp_path / "servers.json"
    for starts in (["server/discover", "initialize"], ["initialize"]):
        noted.write_text("")
        async with started(initialize_first(noted), memory=ServerMemory(file)) as session:
            await session.ready()
            assert text_of(await session.call(call_of("echo", {}))) == "hello"
        assert noted.read_text().split() == starts


async def test_a_process_that_ends_at_both_handshakes_is_down_with_a_reason_that_names_the_era(
    tmp_path: Path,
) -> None:
    ended = "tools ended before it gave an MCP answer"
    async with started(initialize_first(tmp_path / "starts", "never")) as session:
        with pytest.raises(PeerError) as failed:
            await session.ready()
        assert str(failed.value) == f'{ended}, by either handshake (era = "auto")'
        assert "expect initialized request" in failed.value.detail
    async with started(initialize_first(tmp_path / "starts"), Era.MODERN) as session:
        with pytest.raises(PeerError) as failed:
            await session.ready()
        hint = 'a server that takes `initialize` alone as its first message needs era = "legacy"'
        assert str(failed.value) == f"{ended}; {hint}"
    async with started(initialize_first(tmp_path / "starts"), Era.LEGACY) as session:
        await session.ready()


SILENCED: Final = """
import json, sys
is_open = False
for line in sys.stdin:
    message = json.loads(line)
    is_open = is_open or message["method"] == "initialize"
    if not is_open:
        sys.stdin.read()
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }.get(message["method"])
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
""".replace("INFO", repr(INFO))


async def test_a_process_that_falls_silent_at_the_era_probe_is_started_with_initialize() -> None:
    settings = server_settings(connect_seconds=0.5, start_seconds=1, longest_pause_seconds=0.1)
    up = anyio.Event()
    sessions: list[Session] = []

    def look() -> None:
        if sessions and sessions[0].down is None:
            up.set()

    silenced = command_of((sys.executable, "-S", "-E", "-c", SILENCED))
    async with started(silenced, settings=settings, on_change=look) as session:
        sessions.append(session)
        await up.wait()
        assert text_of(await session.call(call_of("echo", {}))) == "hello"


STARTS_SLOWLY: Final = """
import json, os, sys
with open(sys.argv[1]) as gate:
    gate.read()
print("starting", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
        "tools/list": {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
    }.get(message["method"])
    said = {"error": {"code": -32601, "message": "what?"}} if result is None else {"result": result}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
""".replace("INFO", repr(INFO))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the start is held up by a FIFO")
@pytest.mark.parametrize("era", [Era.AUTO, Era.LEGACY])
async def test_a_process_that_starts_slowly_counts_as_down_and_is_waited_for(
    era: Era, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = command_of((sys.executable, "-S", "-E", "-c", STARTS_SLOWLY, str(gate)))
    settings = server_settings(connect_seconds=0.2, start_seconds=60, longest_pause_seconds=0.1)
    up = anyio.Event()
    sessions: list[Session] = []

    def look() -> None:
        if sessions and sessions[0].down is None:
            up.set()

    async with started(slow, era, settings=settings, on_change=look) as session:
        sessions.append(session)
        with pytest.raises(PeerError) as failed:
            await session.ready()
        assert str(failed.value) == (
            "tools was started, but is not up within 0.2 s (`connect_seconds` is the limit); where `fail` is "
            '"open", its process is waited for up to 60 s (`start_seconds`)'
        )
        with pytest.raises(ServerDownError, match="tools is down: tools was started, but is not up"):
            await session.call(call_of("pid", {}))
        (process,) = children_with(str(gate))
        async with await anyio.open_file(gate, "w") as opened:
            await opened.write("go")
        await up.wait()
        assert text_of(await session.call(call_of("pid", {}))) == str(process)


async def test_a_process_that_never_comes_up_is_restarted_after_start_seconds(tmp_path: Path) -> None:
    silent = command_of((sys.executable, "-S", "-E", "-c", "import sys; sys.stdin.read()"))
    settings = server_settings(connect_seconds=0.1, start_seconds=0.3, longest_pause_seconds=1000)
    gave_up = anyio.Event()
    sessions: list[Session] = []

    def look() -> None:
        if sessions and "`start_seconds` is the limit" in (sessions[0].down or ""):
            gave_up.set()

    async with started(silent, settings=settings, on_change=look) as session:
        sessions.append(session)
        await gave_up.wait()


# Servers that cannot ask under the version that they speak

OLDER: Final = "the older handshake, under which it can ask"


@asynccontextmanager
async def connected(server: HttpServer, era: Era, memory: ServerMemory) -> AsyncIterator[Session]:
    session = Session("asker", url_at(server.url), era=era, memory=memory, settings=SETTINGS)
    with anyio.fail_after(20):
        async with session.run():
            await session.ready()
            yield session


def asker() -> HttpServer:
    return HttpServer(tools=Tools(names=["ask", "ask-tool", "ask-everything", "hold"]))


@pytest.mark.parametrize("tool", ["ask", "ask-tool"])
async def test_a_server_that_cannot_ask_is_spoken_to_by_the_older_handshake_from_then_on(
    tool: str, tmp_path: Path
) -> None:
    file = tmp_path / "servers.json"
    async with asker().run() as server:
        async with connected(server, Era.AUTO, ServerMemory(file)) as session:
            said = await failure(session, tool)
            assert said.endswith(
                "asker asks questions in a form that MCP 2026-07-28 does not have. "
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


async def test_the_error_as_the_text_of_a_result_is_a_server_that_cannot_ask() -> None:
    """The everything-servers of both SDKs catch it, and say it like any other text."""
    async with asker().run() as server, connected(server, Era.AUTO, ServerMemory(None)) as session:
        said = await failure(session, "ask-everything")
        assert said.startswith("Elicitation not supported or error: Cannot send 'elicitation/create'")
        assert said.endswith(f"From now on the bridge speaks to it by {OLDER}: call again.")
        assert text_of(await session.call(call_of("ask-everything", {}))) == "cancel"


NO_BACK_CHANNEL: Final = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated "
    "requests."
)
TYPESCRIPT: Final = (
    "Method 'elicitation/create' is not supported by the negotiated protocol version (wire era 2026-07-28)"
)


@pytest.mark.parametrize("text", [NO_BACK_CHANNEL, TYPESCRIPT, f"Elicitation error: {TYPESCRIPT}"])
async def test_both_sdks_say_in_a_text_that_they_cannot_ask(text: str) -> None:
    assert cannot_ask({"content": [{"type": "text", "text": text}]})
    assert cannot_ask({"content": [{"type": "text", "text": "x" * 500 + text}], "isError": True})
    assert cannot_ask(ServerRefusedError(-32603, text)) is not text.startswith("Elicitation error")


@pytest.mark.parametrize(
    "text",
    [
        "x" * 500 + NO_BACK_CHANNEL,
        NO_BACK_CHANNEL + " In other words, " + "x" * 500,
        "elicitation/create",
        "Cannot send 'sampling/createMessage': this transport context has no back-channel",
    ],
)
async def test_a_text_that_is_about_the_error_is_an_answer_like_any_other(text: str) -> None:
    result: Any = {"content": [{"type": "text", "text": text}]}
    assert not cannot_ask(result)
    two = [{"type": "text", "text": NO_BACK_CHANNEL}, {"type": "text", "text": "and more"}]
    assert not cannot_ask({"content": two})


async def test_running_calls_end_normally_while_the_connection_is_made_anew() -> None:
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


async def test_a_configured_era_stays_and_the_failure_names_it(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with asker().run() as server, connected(server, Era.MODERN, ServerMemory(file)) as session:
        for _ in range(2):
            said = await failure(session, "ask")
            assert said.endswith('era = "modern" is set for it, and with era = "legacy" it can ask.')
        assert {key.partition(":")[0] for key in json.loads(file.read_text())} == {"name"}
        assert "initialize" not in server.posted


async def test_a_server_that_no_longer_accepts_the_older_handshake_is_probed_anew() -> None:
    memory = ServerMemory(None)
    async with HttpServer(only="modern").run() as server:
        memory.remember(Fact.MUTE, server.url, "yes")
        session = Session("tools", url_at(server.url), memory=memory, settings=SETTINGS)
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
