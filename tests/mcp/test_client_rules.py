"""What both revisions ask of a client on the wire: our own, before a server that keeps every request it got."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from starlette.responses import Response

from bridge.cli.logs import TextFormat
from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.server_connection import Deadline, ServerConnection, open_connection
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.client.values import ProgressReport
from tests.support.limits import call_of, calls, command_of, server_settings, url_at
from tests.support.mcp_wire import LEGACY, MODERN
from tests.support.recording_server import ECHO, SESSION, Got, Json, RecordingServer, Refusal, held_open
from tests.support.running import raw_command

SETTINGS: Final = server_settings(
    connect_seconds=10, longest_pause_seconds=0.3, retire_seconds=2, settle_seconds=0.05
)
ERAS: Final = {LEGACY: Era.LEGACY, MODERN: Era.MODERN}
META: Final = "io.modelcontextprotocol"
each_version = pytest.mark.parametrize("version", ERAS)


@asynccontextmanager
async def met(target: ServerTarget, era: Era) -> AsyncIterator[Upstream]:
    """The client of a server, connected."""
    upstream = Upstream("tools", target, era=era, settings=SETTINGS, **calls())
    with anyio.fail_after(30):
        async with upstream.run():
            await upstream.ready()
            yield upstream


def connection_to(url: str, deadline: Deadline) -> AbstractAsyncContextManager[ServerConnection]:
    """One connection that has to stand before the deadline."""
    return open_connection(
        "tools",
        url_at(url),
        Era.LEGACY,
        deadline,
        attribution_seconds=1,
        on_question=lambda: None,
        unanswered_most=256,
    )


@asynccontextmanager
async def before(server: RecordingServer, **headers: str) -> AsyncIterator[Upstream]:
    """The client of a server that keeps what it got."""
    async with server.serve() as url, met(url_at(url, headers), ERAS[server.version]) as upstream:
        yield upstream


async def called(upstream: Upstream, name: str = "echo", **arguments: Any) -> Any:
    """What a call gives; it asks for progress."""

    def hear(_: ProgressReport) -> None: ...

    async with upstream.queue("someone", "somewhere") as queue:
        return await queue.session.call(call_of(name, arguments), hear)


def failing(words: str) -> AbstractContextManager[Any]:
    """Where a connection cannot be made, which says why."""
    return pytest.RaisesGroup(pytest.RaisesExc(PeerError, match=words), flatten_subgroups=True)


def ids(got: list[Got]) -> list[Any]:
    return [one.message["id"] for one in got if "id" in one.message]


# Every message


@pytest.mark.proves("mcp-request-id", "mcp-http-post", "mcp-progress-token", "mcp26-cache-kept")
@each_version
async def test_every_message_is_a_post_of_its_own_with_an_id_of_its_own(version: str) -> None:
    server = RecordingServer(version)
    async with before(server) as upstream:
        assert await called(upstream, a=1) == await called(upstream, a=1)
    posted = [got for got in server.got if got.verb == "POST"]
    assert all(isinstance(got.message, dict) and got.message["jsonrpc"] == "2.0" for got in posted)
    accepted = [{kind.strip() for kind in got.headers["accept"].split(",")} for got in posted]
    assert all({"application/json", "text/event-stream"} <= kinds for kinds in accepted)
    assert len(set(ids(posted))) == len(ids(posted))
    assert all(isinstance(one, str | int) for one in ids(posted))
    tokens = [got.params["_meta"]["progressToken"] for got in server.of("tools/call")]
    assert len(set(tokens)) == 2


@pytest.mark.proves("mcp-http-read", "mcp26-result-untyped")
@each_version
async def test_answers_are_read_as_json_and_as_streams(version: str) -> None:
    untyped = {"content": [{"type": "text", "text": "hello"}]}
    answers = {"tools/call": lambda got: untyped if got.params["arguments"] else [untyped]}
    async with before(RecordingServer(version, answers=answers)) as upstream:
        assert await called(upstream) == await called(upstream, as_json=True) == untyped


@pytest.mark.proves("mcp25-token-header", "mcp26-token-header")
@each_version
async def test_a_token_stands_in_the_header_of_every_request(version: str) -> None:
    server = RecordingServer(version)
    async with before(server, Authorization="Bearer secret") as upstream:
        await called(upstream)
    assert {got.headers.get("authorization") for got in server.got} == {"Bearer secret"}


@pytest.mark.proves("mcp26-codes-meaningless")
@each_version
async def test_a_code_of_nobodys_is_a_refusal_and_nothing_more(version: str) -> None:
    def refuse(got: Got) -> Json:
        raise Refusal(got.params["arguments"]["code"])

    async with before(RecordingServer(version, answers={"tools/call": refuse})) as upstream:
        for code in range(-32019, -31999):
            with pytest.raises(ServerRefusedError) as caught:
                await called(upstream, code=code)
            assert caught.value.code == code


@pytest.mark.proves("tasks-elsewhere")
async def test_a_task_in_place_of_a_list_is_no_answer() -> None:
    task = {"resultType": "task", "taskId": "t", "status": "working"}
    server = RecordingServer(MODERN, answers={"tools/list": lambda _: task})
    with failing("without a list of tools"):
        async with before(server):
            pass


@pytest.mark.proves("mcp-stdio-client-lines", "mcp-stdio-stdin", "mcp-utf8")
async def test_each_line_to_a_child_is_one_message(tmp_path: Path) -> None:
    """What the child is sent goes through tee."""
    sent, raw = tmp_path / "sent", raw_command()
    piped = f"tee {shlex.quote(str(sent))} | exec {shlex.join(raw.argv)}"
    async with met(command_of(("sh", "-c", piped), cwd=raw.cwd), Era.LEGACY) as upstream:
        assert (await called(upstream, text="one\ntwo\u2028 ä"))["content"][0]["text"] == "one\ntwo\u2028 ä"
    messages = [json.loads(line) for line in sent.read_bytes().decode("utf-8").split("\n") if line]
    assert {message["jsonrpc"] for message in messages} == {"2.0"}
    assert [message["method"] for message in messages][:3] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]


# 2025-11-25


@pytest.mark.proves("mcp25-initialize", "mcp-elicit-declared", "mcp25-get-accept", "mcp25-negotiated")
async def test_the_client_introduces_itself_first() -> None:
    server = RecordingServer()
    async with before(server) as upstream:
        await called(upstream)
        await server.until(lambda: any(got.verb == "GET" for got in server.got))
    first, *_ = posted = [got for got in server.got if got.verb == "POST"]
    assert [got.method for got in posted] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    assert first.params["protocolVersion"] == LEGACY
    assert first.params["capabilities"] == {"elicitation": {"form": {}, "url": {}}}
    assert first.params["clientInfo"]["name"] == "mcp-a2a"
    listening = next(got for got in server.got if got.verb == "GET")
    assert "text/event-stream" in listening.headers["accept"]


@pytest.mark.proves("mcp25-session-sent", "mcp25-version-header", "mcp26-header-case", "mcp25-session-secret")
async def test_every_request_of_a_session_names_it_and_the_version_and_no_log_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("mcp", "client", "bridge"):
        caplog.set_level(logging.DEBUG, name)
    server = RecordingServer()
    async with before(server) as upstream:
        await called(upstream)
    _, *later = server.got
    assert {got.headers.get("mcp-session-id") for got in later} == {SESSION}
    assert {got.headers.get("mcp-protocol-version") for got in later} == {LEGACY}
    assert "session ID: ***" in (
        logged := "\n".join(TextFormat().format(record) for record in caplog.records)
    )
    assert SESSION not in logged


@pytest.mark.proves("mcp25-version-offered")
async def test_a_server_of_no_version_that_is_spoken_is_left() -> None:
    other = {
        "protocolVersion": "1999-01-01",
        "capabilities": {},
        "serverInfo": {"name": "old", "version": "0"},
    }
    server = RecordingServer(answers={"initialize": lambda _: other})
    with failing("1999-01-01"):
        async with before(server):
            pass
    assert not server.of("notifications/initialized")


@pytest.mark.proves("mcp25-cancel-initialize")
async def test_a_handshake_that_takes_too_long_is_left_and_not_cancelled() -> None:
    left = anyio.Event()

    class Silent(RecordingServer):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def held(message: Any) -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                left.set()

            await super().__call__(scope, receive, held)

    server = Silent()
    async with server.serve() as url:
        with failing("gave no MCP answer"):
            async with connection_to(url, Deadline.after(0.2)):
                pass
        with anyio.fail_after(10):
            await left.wait()
    assert {got.method for got in server.got if got.verb == "POST"} == {"initialize"}


@pytest.mark.proves(
    "mcp25-ping-client",
    "mcp25-answer-id",
    "mcp-notification-client",
    "mcp25-elicit-complete",
    "mcp25-elicit-mode",
)
async def test_a_ping_is_answered_a_notification_never_and_an_unknown_mode_refused() -> None:
    said = [
        {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/tomorrow"},
        {"jsonrpc": "2.0", "id": "ping-1", "method": "ping"},
        {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "elicitation/create",
            "params": {"mode": "voice", "message": "?"},
        },
        {
            "jsonrpc": "2.0",
            "id": 8,
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1},
        },
    ]
    server = RecordingServer(answers={"tools/call": lambda _: [*said, {"content": []}]})
    async with before(server) as upstream:
        await called(upstream)
        await server.until(lambda: len(answers_in(server)) == 3)
    answered = {one["id"]: one for one in answers_in(server)}
    assert answered["ping-1"]["result"] == {}
    assert answered[7]["error"]["code"] == -32602
    assert answered[8]["error"]["code"] in (-32600, -32601)


def answers_in(server: RecordingServer) -> list[Json]:
    return [got.message for got in server.got if got.verb == "POST" and not got.method]


@pytest.mark.proves("mcp25-task-declared")
@pytest.mark.parametrize(
    "declared", [{}, {"tasks": {"requests": {"tools": {"call": {}}}}}], ids=["none", "tasks"]
)
async def test_only_a_server_that_declares_tasks_is_asked_for_one(declared: Json) -> None:
    tool = {**ECHO, "execution": {"taskSupport": "required"}}
    server = RecordingServer(tools=[tool], capabilities={"tools": {}, **declared})
    async with before(server) as upstream:
        await called(upstream)
    assert ("task" in server.of("tools/call")[0].params) is bool(declared)


# 2026-07-28


@pytest.mark.proves(
    "mcp26-no-answers", "mcp26-meta-sent", "mcp-elicit-declared", "mcp26-extension-names", "mcp26-headers"
)
async def test_every_request_says_its_version_its_capabilities_and_what_it_is_for() -> None:
    server = RecordingServer(MODERN)
    async with before(server) as upstream:
        await called(upstream)
    assert all(got.method and "id" in got.message for got in server.got)
    for got in server.got:
        meta = got.params["_meta"]
        assert meta[f"{META}/protocolVersion"] == got.headers["mcp-protocol-version"] == MODERN
        assert got.headers["mcp-method"] == got.method
    assert server.of("tools/call")[0].headers["mcp-name"] == "echo"
    capabilities = server.of("tools/call")[0].params["_meta"][f"{META}/clientCapabilities"]
    assert capabilities["elicitation"] == {"form": {}, "url": {}}
    assert all(re.fullmatch(r"[a-z][a-z.]*[a-z]/[a-z]+", name) for name in capabilities["extensions"])


@pytest.mark.proves("mcp26-headers-encoded", "mcp26-params", "mcp26-params-wrong")
async def test_arguments_that_a_tool_wants_in_headers_are_there() -> None:
    wanted = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "size": {"type": "integer", "x-mcp-header": "Size"},
        "fast": {"type": "boolean", "x-mcp-header": "Fast"},
        "more": {"type": "object", "properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
    }
    tool = {"name": "größe", "inputSchema": {"type": "object", "properties": wanted}}
    bad = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    server = RecordingServer(MODERN, tools=[tool, {"name": "bad", "inputSchema": bad}])
    async with before(server) as upstream:
        assert [one.name for one in upstream.listing.tools] == ["größe"]
        await called(upstream, "größe", region=" öst", size=42, fast=True, more={})
        await called(upstream, "größe", region="=?base64?literal?=", fast=None, more={"deep": "down"})
    calls = [got.headers for got in server.of("tools/call")]
    assert {headers["mcp-name"] for headers in calls} == {"=?base64?Z3LDtsOfZQ==?="}
    assert [params_in(headers) for headers in calls] == [
        {"region": "=?base64?IMO2c3Q=?=", "size": "42", "fast": "true"},
        {"region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "deep": "down"},
    ]


def params_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The arguments that stand in headers."""
    prefix = "mcp-param-"
    return {name.removeprefix(prefix): value for name, value in headers.items() if name.startswith(prefix)}


@pytest.mark.proves("mcp26-fallback")
@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, 1])
async def test_whatever_a_legacy_server_says_to_discovery_it_is_initialized(code: int) -> None:
    def refuse(_: Got) -> Json:
        raise Refusal(code)

    server = RecordingServer(answers={"server/discover": refuse})
    async with server.serve() as url, met(url_at(url), Era.AUTO) as upstream:
        assert [one.name for one in upstream.listing.tools] == ["echo"]
    assert [got.method for got in server.got if got.verb == "POST"][:2] == ["server/discover", "initialize"]


@pytest.mark.proves("mcp26-listen-ended", "mcp26-listen-again")
async def test_a_subscription_that_its_server_ended_is_opened_again() -> None:
    def listening(got: Got) -> Response:
        """A stream that stays open although its subscription has ended, as on stdio."""
        listen_id = got.message["id"]
        about = {"_meta": {f"{META}/subscriptionId": listen_id}}
        granted = {**about, "notifications": {"toolsListChanged": True}}
        return held_open(
            told("notifications/subscriptions/acknowledged", granted),
            told("notifications/cancelled", {**about, "requestId": listen_id}),
        )

    changing = {"tools": {"listChanged": True}}
    server = RecordingServer(MODERN, capabilities=changing, answers={"subscriptions/listen": listening})
    async with before(server):
        await server.until(lambda: len(server.of("subscriptions/listen")) == 2)
    first, second = server.of("subscriptions/listen")
    assert first.message["id"] != second.message["id"]


def told(method: str, params: Json) -> Json:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
