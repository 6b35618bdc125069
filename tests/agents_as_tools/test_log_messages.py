"""Log messages of an MCP server on their way through an agent to the host of the call: both halves of the bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from bridge.mcp.client.eras import Era
from bridge.mcp.client.log_routing import LogRouter
from bridge.mcp.client.values import LogSink, ResponseParams
from tests.support.exposing import exposing
from tests.support.limits import url_at
from tests.support.mcp_wire import LEGACY, MODERN, Http, Json, opening
from tests.support.running import config_for, listening, profile_with, running

pytestmark = pytest.mark.proves("map-logs")

LEVEL: Final = "io.modelcontextprotocol/logLevel"
ERAS: Final = [Era.LEGACY, Era.MODERN]
Context = ServerRequestContext[Any, Any]


class _LoggingServer:
    """A server whose tool sends the log messages in its arguments, and says at which levels it was asked."""

    def __init__(self) -> None:
        self.levels: list[str | None] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server: Server[Any] = Server(
            "logging", version="1", on_list_tools=self._list, on_call_tool=self._call
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        manager = StreamableHTTPSessionManager(server)
        async with manager.run(), listening(manager.asgi_app) as url:
            yield f"{url}/mcp"

    async def _list(self, _: Context, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name="log", description="Logs", input_schema={"type": "object"})]
        )

    async def _set_level(self, _: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.levels.append(params.level)
        return types.EmptyResult()

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if LEVEL in (context.params or {}).get("_meta", {}):
            self.levels.append((context.params or {})["_meta"][LEVEL])
        for message in (params.arguments or {})["messages"]:
            await context.session._request_outbound.notify("notifications/message", message)
        return types.CallToolResult(content=[types.TextContent(type="text", text="done")])


@asynccontextmanager
async def _both_halves(
    folder: Path, era: Era, shares_logs: bool = True, **run: Any
) -> AsyncIterator[tuple[_LoggingServer, str]]:
    server = _LoggingServer()
    profile = profile_with(card={"max_age_seconds": 0}, run=run)
    async with server.serve() as url:
        config = config_for(url_at(url), era=era, profile=profile, shares_logs=shares_logs)
        async with running(config) as bridge, exposing(folder, bridge.base_url) as there:
            yield server, there.url


@asynccontextmanager
async def _host(url: str, version: str) -> AsyncIterator[Http]:
    async with httpx2.AsyncClient(timeout=30) as client:
        http = Http(client, url, version)
        await http.open()
        yield http


async def _call(http: Http, messages: list[Json], level: str | None = None) -> list[Json]:
    """The log messages of a call, which precede its result."""
    meta = {"_meta": {LEVEL: level}} if level is not None and http.version == MODERN else {}
    if level is not None and http.version != MODERN:
        assert (await http.call("level", "logging/setLevel", {"level": level}))[-1]["result"] == {}
    params = {"name": "log", "arguments": {"messages": messages}, **meta}
    *before, answer = await http.call(7, "tools/call", params)
    assert answer["result"]["content"][0]["text"] == "done"
    assert {message["method"] for message in before} <= {"notifications/message"}
    return [message["params"] for message in before]


def _message(level: str = "info", data: Any = "words", **more: Any) -> Json:
    return {"level": level, "data": data, **more}


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("era", ERAS)
async def test_the_host_of_a_call_gets_its_log_messages_as_they_were_sent(
    tmp_path: Path, era: Era, version: str
) -> None:
    sent = [
        _message("debug"),
        _message("info", {"n": [1, None], "é": "ü"}, logger="db"),
        _message("error", None, _meta={"x": 1}),
    ]
    async with _both_halves(tmp_path, era) as (server, url), _host(url, version) as http:
        assert await _call(http, sent, "info") == sent[1:]
        assert server.levels == ["info"]
        assert await _call(http, sent, "error") == sent[2:]
        assert await _call(http, sent, "debug") == sent
        assert server.levels == ["info", "error", "debug"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("era", ERAS)
async def test_a_host_that_asks_for_no_log_messages_gets_none(tmp_path: Path, era: Era, version: str) -> None:
    async with _both_halves(tmp_path, era) as (server, url), _host(url, version) as http:
        assert await _call(http, [_message("emergency")]) == []
        assert server.levels == []


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_an_agent_that_does_not_share_log_messages_declares_and_passes_on_none(
    tmp_path: Path, version: str
) -> None:
    async with (
        _both_halves(tmp_path, Era.MODERN, shares_logs=False) as (server, url),
        _host(url, version) as http,
    ):
        method, params = (
            ("server/discover", {}) if version == MODERN else ("initialize", opening(LEGACY, None))
        )
        assert "logging" not in (await http.call("g", method, params))[-1]["result"]["capabilities"]
        refused = (await http.call("s", "logging/setLevel", {"level": "info"}))[-1]
        assert refused["error"]["code"] == -32601
        meta = {"_meta": {LEVEL: "debug"}}
        call = await http.call(
            1, "tools/call", {"name": "log", "arguments": {"messages": [_message()]}, **meta}
        )
        assert len(call) == 1
        assert server.levels == []


async def test_a_shared_logging_capability_is_declared_to_hosts_of_both_eras(tmp_path: Path) -> None:
    async with (
        _both_halves(tmp_path, Era.MODERN) as (_, url),
        _host(url, MODERN) as modern,
        _host(url, LEGACY) as legacy,
    ):
        for http, method, params in (
            (modern, "server/discover", {}),
            (legacy, "initialize", opening(LEGACY, None)),
        ):
            assert (await http.call("g", method, params))[-1]["result"]["capabilities"]["logging"] == {}
        assert (await modern.call(1, "logging/setLevel", {"level": "info"}))[-1]["error"]["code"] == -32601


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_level_that_mcp_does_not_have_is_refused(tmp_path: Path, version: str) -> None:
    async with _both_halves(tmp_path, Era.MODERN) as (server, url), _host(url, version) as http:
        if version == LEGACY:
            answer = (await http.call(1, "logging/setLevel", {"level": "loud"}))[-1]
        else:
            meta = {"_meta": {LEVEL: "loud"}}
            answer = (
                await http.call(1, "tools/call", {"name": "log", "arguments": {"messages": []}, **meta})
            )[-1]
        assert answer["error"]["code"] == -32602
        assert server.levels == []


async def test_each_of_two_hosts_gets_the_messages_of_its_own_calls_only(tmp_path: Path) -> None:
    async with (
        _both_halves(tmp_path, Era.LEGACY) as (_, url),
        _host(url, LEGACY) as first,
        _host(url, MODERN) as second,
        anyio.create_task_group() as tasks,
    ):
        heard: dict[str, list[Json]] = {"first": [], "second": []}

        async def call(name: str, http: Http) -> None:
            for _ in range(5):
                heard[name] += await _call(http, [_message(data=name)] * 3, "debug")

        tasks.start_soon(call, "first", first)
        tasks.start_soon(call, "second", second)
    assert {name: [*map(str, {message["data"] for message in heard[name]})] for name in heard} == {
        "first": ["first"],
        "second": ["second"],
    }
    assert [len(messages) for messages in heard.values()] == [15, 15]


async def test_of_a_flood_as_much_comes_as_fits_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    sent = [_message(data="x" * 100 + str(number)) for number in range(3000)]
    async with (
        _both_halves(tmp_path, Era.MODERN, log_limit_bytes=4096, log_updates_per_second=1) as (_, url),
        _host(url, MODERN) as http,
    ):
        heard = await _call(http, [_message(data="y" * 100_000), *sent], "debug")
    notes = [message for message in heard if message.get("logger") == "mcp-a2a"]
    passed = [message for message in heard if message.get("logger") != "mcp-a2a"]
    left_out = sum(int(message["data"].partition(" ")[0]) for message in notes)
    assert len(passed) + left_out == 3001
    assert left_out > 1000
    assert "cut here" in passed[0]["data"]
    numbers = [int(message["data"][100:]) for message in passed[1:]]
    assert numbers == sorted(numbers)


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_gets_the_log_messages_of_its_calls(tmp_path: Path, mode: str) -> None:
    heard: list[str] = []

    async def take(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with (
        _both_halves(tmp_path, Era.MODERN) as (_, url),
        Client(url, mode=mode, logging_callback=take) as client,  # type: ignore[arg-type]
    ):
        meta: Any = {LEVEL: "info"}
        if mode == "legacy":
            await client.session.set_logging_level("info")
        await client.call_tool("log", {"messages": [_message(data="heard"), _message("debug")]}, meta=meta)
    assert heard == ["heard"]


# Which call a message belongs to


def _router() -> tuple[LogRouter, list[Json], list[Json]]:
    router, first, second = LogRouter(), list[Json](), list[Json]()
    router._sinks = {1: LogSink("info", first.append, True), 2: LogSink("info", second.append, False)}
    return router, first, second


def test_a_message_on_the_response_to_a_call_belongs_to_this_call() -> None:
    router, first, second = _router()
    router.take(ResponseParams(_message(), 2), 5)
    router.take(ResponseParams(_message("debug"), 2), 5)
    router.take(ResponseParams(_message(), 3), 1)
    assert (first, second) == ([], [_message()])


def test_a_message_elsewhere_belongs_to_the_only_request_of_a_session_for_one_principal() -> None:
    router, first, second = _router()
    router.take(_message(), 2)
    assert (first, second) == ([], [])
    del router._sinks[2]
    router.take({**_message(), "request_id": 2, "_meta": {}}, 1)
    router.take(_message(), 2)
    assert first == [{**_message(), "_meta": {}}]


def test_a_message_elsewhere_belongs_to_nobody_if_the_session_serves_several_principals() -> None:
    router, first, second = _router()
    del router._sinks[1]
    router.take(_message(), 1)
    assert (first, second) == ([], [])


@pytest.mark.parametrize(
    "odd", [{}, {"level": "info"}, {"level": 3, "data": 1}, {"level": "info", "data": 1, "logger": 2}]
)
def test_what_is_no_log_message_is_passed_on_to_nobody(odd: Json) -> None:
    router, first, second = _router()
    router.take(ResponseParams(odd, 1), 1)
    assert (first, second) == ([], [])


def test_a_server_that_several_calls_ask_is_set_to_the_least_severe_level() -> None:
    router, _, _ = _router()
    assert (router.level_with("error"), router.level_with("debug")) == ("info", "debug")
