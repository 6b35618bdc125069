"""The deprecated HTTP+SSE transport, against the two official servers for it and against servers that fail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
import pytest
from mcp import ClientSession, MCPError
from mcp.client._transport import TransportStreams
from mcp.server.sse import SseServerTransport
from mcp.shared.message import SessionMessage
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.errors import PeerError
from bridge.mcp.client.faults import (
    BROKEN_OFF,
    FAULT_KEY,
    HTTP_STATUS,
    SESSION_LOST,
    TOO_LARGE,
    UNREACHABLE,
    ServerDownError,
    fault_of,
)
from bridge.mcp.client.transports.http_sse import POSTS_AT_ONCE, http_sse, may_be_http_sse
from bridge.mcp.client.transports.streamable_http import streamable_http
from tests.peers.node import everything_sse_command, require_peers
from tests.support.limits import url_at
from tests.support.ports import free_port
from tests.support.running import listening
from tests.support.sdk_server import Tools

pytestmark = pytest.mark.proves("mcp-http-sse")

WAIT_SECONDS: Final = 20
Json = dict[str, Any]

# The official servers


@dataclass(frozen=True)
class Real:
    """A server of one of the SDKs that runs."""

    url: str
    progress: tuple[str, Json]
    """A tool that reports two steps."""
    echo: str
    """The argument of its tool `echo`."""
    process: anyio.abc.Process | None = None


@asynccontextmanager
async def python_server() -> AsyncIterator[Real]:
    transport = SseServerTransport("/messages/")
    server, _ = Tools().server()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/messages/":
            await transport.handle_post_message(scope, receive, send)
        elif scope["method"] != "GET":
            await Response(status_code=405)(scope, receive, send)
        else:
            async with transport.connect_sse(scope, receive, send) as streams:
                await server.run(*streams, server.create_initialization_options())

    async with listening(app) as root_url:
        yield Real(f"{root_url}/sse", ("progress", {"steps": 2}), "text")


@asynccontextmanager
async def node_server() -> AsyncIterator[Real]:
    require_peers()
    port = free_port()
    process = await anyio.open_process(
        everything_sse_command(),
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    async with process:
        assert process.stderr is not None
        try:
            with anyio.fail_after(WAIT_SECONDS):
                async for chunk in process.stderr:
                    if b"running on port" in chunk:
                        break
            progress = "trigger-long-running-operation", {"duration": 0.02, "steps": 2}
            yield Real(f"http://127.0.0.1:{port}/sse", progress, "message", process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.fixture(params=[python_server, node_server])
async def real(request: pytest.FixtureRequest) -> AsyncIterator[Real]:
    async with request.param() as server:
        yield server


def ignore(_: str) -> None:
    """Faults that the test sees otherwise."""


async def said(session: ClientSession, tool: str, arguments: Json, **options: Any) -> str:
    """The text that a tool answers with."""
    result = await session.call_tool(tool, arguments, **options)
    assert isinstance(result, types.CallToolResult)
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.smoke("python_server")
async def test_a_server_of_the_old_transport_is_greeted_listed_and_called(real: Real) -> None:
    steps: list[float] = []
    both = anyio.Event()

    async def on_progress(progress: float, total: float | None, words: str | None) -> None:
        steps.append(progress)
        if len(steps) == 2:
            both.set()

    heard: list[str] = []
    async with http_sse(url_at(real.url), heard.append) as streams, ClientSession(*streams) as session:
        with anyio.fail_after(WAIT_SECONDS):
            await session.initialize()
            assert "echo" in [tool.name for tool in (await session.list_tools()).tools]
            assert "grüße 🎈\u2028" in await said(session, "echo", {real.echo: "grüße 🎈\u2028"})
            tool, arguments = real.progress
            await said(session, tool, arguments, progress_callback=on_progress)
            await both.wait()
    assert sorted(steps) == [1, 2]
    assert heard == []


async def test_a_question_of_the_server_in_the_middle_of_a_call_is_answered() -> None:
    async def answer(context: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with (
        node_server() as server,
        http_sse(url_at(server.url), ignore) as streams,
        ClientSession(*streams, elicitation_callback=answer) as session,
    ):
        with anyio.fail_after(WAIT_SECONDS):
            await session.initialize()
            assert "declined" in await said(session, "trigger-elicitation-request", {})


async def test_an_answer_of_twenty_megabytes_arrives_whole() -> None:
    async with (
        python_server() as server,
        http_sse(url_at(server.url), ignore) as streams,
        ClientSession(*streams) as session,
    ):
        with anyio.fail_after(WAIT_SECONDS):
            await session.initialize()
            assert len(await said(session, "big", {"bytes": 20_000_000})) == 20_000_000


async def test_an_answer_above_the_limit_is_a_fault_of_its_call_and_of_no_other(real: Real) -> None:
    heard: list[str] = []
    target = url_at(real.url, result_limit_bytes=100_000)
    async with http_sse(target, heard.append) as streams, ClientSession(*streams) as session:
        with anyio.fail_after(WAIT_SECONDS):
            await session.initialize()
            with pytest.raises(MCPError, match="larger than 100000 bytes") as caught:
                await said(session, "echo", {real.echo: "x" * 300_000})
            assert fault_of(caught.value) == TOO_LARGE
            assert "again" in await said(session, "echo", {real.echo: "again"})
    assert heard == [TOO_LARGE]


async def test_a_call_ends_when_its_server_does() -> None:
    started = anyio.Event()

    async def on_progress(*_: object) -> None:
        started.set()

    async with (
        node_server() as server,
        http_sse(url_at(server.url), ignore) as streams,
        ClientSession(*streams) as session,
        anyio.create_task_group() as tasks,
    ):
        assert server.process is not None
        await session.initialize()

        async def kill() -> None:
            await started.wait()
            assert server.process is not None
            server.process.kill()

        tasks.start_soon(kill)
        arguments = {"duration": 600, "steps": 60_000}
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(MCPError) as caught:
            await said(session, "trigger-long-running-operation", arguments, progress_callback=on_progress)
        assert fault_of(caught.value) == BROKEN_OFF


async def _handshake_error(url: str) -> MCPError:
    async with streamable_http(url_at(url), ignore) as streams, ClientSession(*streams) as session:
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(MCPError) as caught:
            await session.initialize()
        return caught.value


async def test_a_server_of_the_old_transport_is_told_by_how_it_answers_the_new_one(real: Real) -> None:
    assert may_be_http_sse(await _handshake_error(real.url))


@pytest.mark.parametrize(
    ("status", "may_be"),
    [(400, True), (405, True), (401, None), (403, False), (500, False), (429, None), (503, None)],
)
async def test_only_some_statuses_may_stand_for_the_old_transport(status: int, may_be: bool | None) -> None:
    async with listening(PlainTextResponse("no", status)) as root_url:
        assert may_be_http_sse(await _handshake_error(root_url)) is may_be


async def test_neither_an_error_of_the_server_nor_its_absence_stands_for_the_old_transport() -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no", "data": {}}}
    async with listening(JSONResponse(error, 400)) as root_url:
        assert not may_be_http_sse(await _handshake_error(root_url))
    assert not may_be_http_sse(await _handshake_error(f"http://127.0.0.1:{free_port()}/mcp"))


# A server that does what a test says


async def accept(message: Json) -> Response:
    return PlainTextResponse("Accepted", 202)


@dataclass
class Script:
    """A server whose events a test writes, and whose answers to POSTs it chooses."""

    endpoint: str = "/post?session=1"
    greeting: Response | None = None
    """What the GET is answered with, in place of events."""
    answer: Callable[[Json], Awaitable[Response]] = accept
    paths: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self._events, self._written = anyio.create_memory_object_stream[bytes | None](100)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Script]:
        async with listening(self) as root_url:
            self.url = f"{root_url}/sse"
            with self._events, self._written:
                yield self

    def say(self, *events: bytes) -> None:
        """Write to the event stream."""
        for event in events:
            self._events.send_nowait(event)

    def end(self) -> None:
        """End the event stream as a server does that shuts down."""
        self._events.close()

    def break_off(self) -> None:
        """End it without the end of its body."""
        self._events.send_nowait(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.paths.append(request.url.path)
        self.tokens.append(request.headers.get("authorization"))
        if request.method == "POST":
            answer = await self.answer(await request.json())
            await answer(scope, receive, send)
        elif self.greeting is not None:
            await self.greeting(scope, receive, send)
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, send, tasks)
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

    async def _write(self, send: Send, tasks: anyio.abc.TaskGroup) -> None:
        kind = (b"content-type", b"text/event-stream; charset=utf-8")
        await send({"type": "http.response.start", "status": 200, "headers": [kind]})
        if self.endpoint:
            first = f": hello\r\n\r\nevent: endpoint\r\ndata: {self.endpoint}\r\n\r\n".encode()
            await send({"type": "http.response.body", "body": first, "more_body": True})
        async for event in self._written:
            if event is None:
                raise ConnectionResetError("as the test says")
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body"})
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def opened(script: Script, heard: list[str], **options: Any) -> AsyncIterator[TransportStreams]:
    """A connection to a server that does what a test says."""
    async with script.run(), http_sse(url_at(script.url, **options), heard.append) as streams:
        with anyio.fail_after(WAIT_SECONDS):
            yield streams


def ask(id_: int) -> SessionMessage:
    return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=id_, method="tools/list"))


def notify(method: str, **params: Any) -> SessionMessage:
    return SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params))


def event_of(id_: int) -> bytes:
    return f'event: message\ndata: {{"jsonrpc":"2.0","id":{id_},"result":{{}}}}\n\n'.encode()


async def answer_from(streams: TransportStreams) -> types.JSONRPCResponse | types.JSONRPCError:
    item = await streams[0].receive()
    assert isinstance(item, SessionMessage), item
    assert isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError)
    return item.message


async def fault_from(streams: TransportStreams) -> tuple[types.RequestId | None, str]:
    """The next answer, which is a fault of ours: its id and kind."""
    answer = await answer_from(streams)
    assert isinstance(answer, types.JSONRPCError)
    return answer.id, answer.error.data[FAULT_KEY]


# Messages that cannot be sent


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (PlainTextResponse("Could not find session", 404), SESSION_LOST),
        (PlainTextResponse("Invalid session ID", 400), SESSION_LOST),
        (PlainTextResponse("No transport found for sessionId", 400), SESSION_LOST),
        (PlainTextResponse("Could not parse message", 400), HTTP_STATUS),
        (PlainTextResponse("oh", 500), HTTP_STATUS),
        (RedirectResponse("/elsewhere", 307), HTTP_STATUS),
    ],
)
async def test_a_post_that_is_refused_is_a_fault_of_its_request_and_of_no_other(
    answer: Response, kind: str
) -> None:
    async def refuse_first(message: Json) -> Response:
        if message.get("id") == 1 or "id" not in message:
            return answer
        script.say(event_of(message["id"]))
        return await accept(message)

    script, heard = Script(answer=refuse_first), list[str]()
    async with opened(script, heard, headers={"authorization": "Bearer t"}) as streams:
        await streams[1].send(ask(1))
        assert await fault_from(streams) == (1, kind)
        await streams[1].send(notify("notifications/initialized"))
        await streams[1].send(ask(2))
        assert (await answer_from(streams)).id == 2
    assert heard == [kind, kind]
    assert script.paths == ["/sse", "/post", "/post", "/post"]
    assert script.tokens == ["Bearer t"] * 4


async def test_an_error_that_the_server_answers_a_post_with_is_handed_on() -> None:
    async def refuse(message: Json) -> Response:
        error = {"code": -32001, "message": "not you", "data": {"a": 1}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 403)

    heard: list[str] = []
    async with opened(Script(answer=refuse), heard) as streams:
        await streams[1].send(ask(1))
        error = types.ErrorData(code=-32001, message="not you", data={"a": 1})
        assert await answer_from(streams) == types.JSONRPCError(jsonrpc="2.0", id=1, error=error)
    assert heard == []


async def test_a_post_that_breaks_off_may_have_been_taken() -> None:
    heard: list[str] = []
    async with _events_only(hangs_up=True) as url, http_sse(url_at(url), heard.append) as streams:
        with anyio.fail_after(WAIT_SECONDS):
            await streams[1].send(ask(1))
            assert await fault_from(streams) == (1, BROKEN_OFF)
    assert heard == [BROKEN_OFF]


async def test_a_post_where_nothing_listens_was_not_sent() -> None:
    heard: list[str] = []
    async with _events_only() as url, http_sse(url_at(url), heard.append) as streams:
        with anyio.fail_after(WAIT_SECONDS):
            await streams[1].send(ask(1))
            assert await fault_from(streams) == (1, UNREACHABLE)
    assert heard == [UNREACHABLE]


@asynccontextmanager
async def _events_only(hangs_up: bool = False) -> AsyncIterator[str]:
    """A server that takes one connection, for its events; others are refused, or hung up on."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        (socket,) = listener.listeners

        async def serve() -> None:
            async with await socket.accept() as stream:
                await stream.receive()
                if not hangs_up:
                    await listener.aclose()
                await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                await stream.send(b"event: endpoint\ndata: /post\n\n")
                if hangs_up:
                    async with await socket.accept() as posted:
                        await posted.receive()
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            yield f"http://127.0.0.1:{port}/sse"
            tasks.cancel_scope.cancel()


# Many messages


async def test_a_post_that_hangs_holds_up_no_other() -> None:
    released = anyio.Event()

    async def answer(message: Json) -> Response:
        if message["id"] == 1:
            await released.wait()
        script.say(event_of(message["id"]))
        return await accept(message)

    script = Script(answer=answer)
    async with opened(script, []) as streams:
        await streams[1].send(ask(1))
        await streams[1].send(ask(2))
        assert (await answer_from(streams)).id == 2
        released.set()
        assert (await answer_from(streams)).id == 1


async def test_requests_are_bounded_and_a_cancellation_overtakes_those_that_wait() -> None:
    released, full, cancelled, last = (anyio.Event() for _ in range(4))
    asked: list[int] = []

    async def answer(message: Json) -> Response:
        if "id" not in message:
            assert len(asked) == POSTS_AT_ONCE
            cancelled.set()
            return await accept(message)
        asked.append(message["id"])
        if len(asked) == POSTS_AT_ONCE:
            full.set()
        if message["id"] == POSTS_AT_ONCE + 2:
            last.set()
        await released.wait()
        return await accept(message)

    async with opened(Script(answer=answer), []) as streams:
        for number in range(1, POSTS_AT_ONCE + 3):
            await streams[1].send(ask(number))
        await full.wait()
        await streams[1].send(notify("notifications/cancelled", requestId=POSTS_AT_ONCE + 1))
        await cancelled.wait()
        released.set()
        await last.wait()
    assert POSTS_AT_ONCE + 1 not in asked
    assert len(asked) == POSTS_AT_ONCE + 1


async def test_no_request_overtakes_the_end_of_the_handshake() -> None:
    asked = anyio.Event()
    overtaken: list[bool] = []

    async def answer(message: Json) -> Response:
        if "id" in message:
            asked.set()
        else:
            with anyio.move_on_after(0.2):
                await asked.wait()
            overtaken.append(asked.is_set())
        return await accept(message)

    async with opened(Script(answer=answer), []) as streams:
        await streams[1].send(notify("notifications/initialized"))
        await streams[1].send(ask(1))
        await asked.wait()
    assert overtaken == [False]


# Events


async def test_only_messages_are_read_and_what_is_none_is_handed_on_as_an_error() -> None:
    script, heard = Script(), list[str]()
    async with opened(script, heard) as streams:
        script.say(
            b": ping\n\nevent: ping\ndata: {}\n\ndata:\n\nevent: message\ndata: hello\n\n", event_of(1)
        )
        assert isinstance(await streams[0].receive(), ValueError)
        assert (await answer_from(streams)).id == 1
    assert heard == []


async def test_an_event_above_the_limit_that_answers_nothing_is_an_error_in_the_log() -> None:
    script, heard = Script(), list[str]()
    async with opened(script, heard, result_limit_bytes=1000) as streams:
        asks = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * 2000}}
        script.say(b"data: %b\n\n" % json.dumps(asks).encode(), event_of(1))
        assert isinstance(await streams[0].receive(), ValueError)
        assert (await answer_from(streams)).id == 1
    assert heard == [TOO_LARGE]


async def test_an_event_of_too_many_values_fails_the_request_that_it_answers() -> None:
    script, heard = Script(), list[str]()
    async with opened(script, heard, result_json_values=100) as streams:
        many = {"jsonrpc": "2.0", "id": 1, "result": {"rows": [0] * 100}}
        asks = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"rows": [0] * 100}}
        script.say(b"data: %b\n\n" % json.dumps(many).encode(), b"data: %b\n\n" % json.dumps(asks).encode())
        assert await fault_from(streams) == (1, TOO_LARGE)
        assert str(await streams[0].receive()) == (
            "a message of more than 100 values and keys, in which no id of an answer is found:"
            " `result_json_values` of the tool server is the limit"
        )
        script.say(event_of(2))
        assert (await answer_from(streams)).id == 2
    assert heard == [TOO_LARGE, TOO_LARGE]


@pytest.mark.parametrize("ends", [True, False])
async def test_the_streams_end_with_the_events_even_in_the_middle_of_one(ends: bool) -> None:
    script, heard = Script(), list[str]()
    async with opened(script, heard) as streams:
        script.say(event_of(1), event_of(2)[:-4])
        assert (await answer_from(streams)).id == 1
        script.end() if ends else script.break_off()
        with pytest.raises(anyio.EndOfStream):
            await streams[0].receive()
        with pytest.raises(anyio.BrokenResourceError):
            await streams[1].send(ask(3))
    assert heard == ([] if ends else [BROKEN_OFF])


async def test_leaving_waits_for_no_post() -> None:
    posted, left = anyio.Event(), anyio.Event()

    async def answer(message: Json) -> Response:
        posted.set()
        await left.wait()
        return await accept(message)

    script = Script(answer=answer)
    async with script.run():
        with anyio.fail_after(WAIT_SECONDS):
            async with http_sse(url_at(script.url), ignore) as streams:
                await streams[1].send(ask(1))
                await posted.wait()
        left.set()


# Connections that cannot be made


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (PlainTextResponse("no", 405), "with HTTP 405 Method Not Allowed$"),
        (JSONResponse({}), "with application/json, not with text/event-stream$"),
        (Response(), "with no content type, not with text/event-stream$"),
        (RedirectResponse("/elsewhere"), r"with HTTP 307 Temporary Redirect \(redirects are not followed\)$"),
    ],
)
async def test_what_is_no_event_stream_is_no_connection(greeting: Response, words: str) -> None:
    script = Script(greeting=greeting)
    async with script.run():
        with pytest.raises(PeerError, match=words):
            async with http_sse(url_at(script.url), ignore):
                raise AssertionError
    assert script.paths == ["/sse"]


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:1/post", "https://127.0.0.1/post", "//evil.test/post?key=s", "javascript:x"],
)
async def test_an_endpoint_of_another_origin_is_refused(endpoint: str) -> None:
    script = Script(endpoint=endpoint)
    async with script.run():
        with pytest.raises(PeerError, match=r"another origin .*credentials are not sent there") as caught:
            async with http_sse(url_at(script.url), ignore):
                raise AssertionError
    assert "key=s" not in str(caught.value)
    assert script.paths == ["/sse"]


@pytest.mark.parametrize("endpoint", ["post?s=1", "/post", "http://user:pw@127.0.0.1:{port}/post"])
async def test_an_endpoint_is_resolved_and_our_credentials_stay_ours(endpoint: str) -> None:
    posted = anyio.Event()

    async def answer(message: Json) -> Response:
        posted.set()
        return await accept(message)

    script = Script(answer=answer)
    async with script.run():
        url = script.url.replace("127.0.0.1", "me:secret@127.0.0.1")
        script.endpoint = endpoint.format(port=script.url.split(":")[2].partition("/")[0])
        async with http_sse(url_at(url), ignore) as streams:
            with anyio.fail_after(WAIT_SECONDS):
                await streams[1].send(ask(1))
                await posted.wait()
    assert script.paths == ["/sse", "/post"]
    assert len(set(script.tokens)) == 1


async def test_a_server_that_names_no_endpoint_is_not_waited_for() -> None:
    script = Script(endpoint="")
    async with script.run():
        with pytest.raises(PeerError, match=r"gave no endpoint for HTTP\+SSE within 0.3 s"):
            async with http_sse(url_at(script.url, connect_seconds=0.1), ignore):
                raise AssertionError
        script.end()
        with pytest.raises(PeerError, match="ended its events before it gave an endpoint"):
            async with http_sse(url_at(script.url), ignore):
                raise AssertionError


async def test_a_server_that_is_not_there_is_down() -> None:
    with pytest.raises(ServerDownError, match="cannot be reached: Connection refused"):
        async with http_sse(url_at(f"http://127.0.0.1:{free_port()}/sse"), ignore):
            raise AssertionError
