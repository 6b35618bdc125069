"""Our MCP server: the official client gets along with it in both eras and on both transports, and on the wire
it is what the specifications say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.support.forked import through_server
from tests.support.mcp_face import FORM, NAMES, SECRET, Face
from tests.support.mcp_serving import PROGRAM, served, wire_to
from tests.support.mcp_wire import LEGACY, MODERN, lines_to

ROOT: Final = Path(__file__).parents[3]
PLACES: Final = [(mode, kind) for mode in ("legacy", MODERN) for kind in ("stdio", "http")]
ERAS: Final = [LEGACY, MODERN]
TRACE: Final = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=opaque",
    "baggage": "tenant=a",
}
NOTHING: Final = dict.fromkeys(TRACE)
ALL: Final = {"elicitation": {"form": {}, "url": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"

pytestmark = pytest.mark.usefixtures("_at_root")


@pytest.fixture
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@asynccontextmanager
async def client_of(mode: str, kind: str, **more: Any) -> AsyncIterator[Client]:
    """The official client, connected to a fresh server."""
    if kind == "stdio":
        command, *rest = through_server(*PROGRAM)
        there = StdioServerParameters(command=command, args=rest, cwd=ROOT)
        with anyio.fail_after(30):
            async with Client(there, mode=mode, **more) as client:
                yield client
        return
    async with served(Face()) as url, httpx2.AsyncClient(timeout=30) as http:
        transport = streamable_http_client(url, http_client=http, max_sse_event_size=None)
        async with Client(transport, mode=mode, **more) as client:
            yield client


def words_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


# The official client


@pytest.mark.proves("mcp-served", "mcp26-discover", "mcp25-initialized")
@pytest.mark.parametrize(("mode", "kind"), PLACES)
@pytest.mark.smoke("legacy-stdio", "2026-07-28-http")
async def test_the_official_client_lists_and_calls(mode: str, kind: str) -> None:
    async with client_of(mode, kind) as client:
        assert client.instructions == "Call them." or mode == MODERN
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [*NAMES, "rounds", "wait"]
        seen = (await client.call_tool("echo", {"a": [None, 1.5]})).structured_content
        assert seen["arguments"] == {"a": [None, 1.5]}
        assert seen["principal"] == "local"
        assert seen["is_modern"] is (mode == MODERN)
        assert words_of(await client.call_tool("big", {"bytes": 5_000_000})) == "x" * 5_000_000


@pytest.mark.proves("mcp-served", "map-cards-shown")
@pytest.mark.parametrize(("mode", "kind"), PLACES)
async def test_the_official_client_reads_resources_and_prompts(mode: str, kind: str) -> None:
    async with client_of(mode, kind) as client:
        assert [found.uri for found in (await client.list_resources()).resources] == ["a2a://one/card"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [found.uri_template for found in templates] == ["a2a://{agent}/card"]
        read = (await client.read_resource("a2a://one/card")).contents[0]
        assert isinstance(read, types.TextResourceContents)
        assert read.text == "for local"
        assert [found.name for found in (await client.list_prompts()).prompts] == ["hello"]
        said = (await client.get_prompt("hello", {"who": "Ada"})).messages[0].content
        assert isinstance(said, types.TextContent)
        assert said.text == "hello, Ada"
        with pytest.raises(MCPError) as caught:
            await client.read_resource("a2a://two/card")
        assert (caught.value.code, caught.value.data) == (-32602, {"uri": "a2a://two/card"})


@pytest.mark.proves("mcp-served", "mcp26-discover", "mcp-tools-declared")
async def test_the_official_client_finds_out_by_itself_that_the_server_is_modern() -> None:
    async with client_of("auto", "http") as client:
        assert client.protocol_version == MODERN
        info = client.server_info
        assert info is not None
        assert (info.name, info.version, info.title) == ("face", "1.2.3", "A Face")
        assert client.instructions == "Call them."
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed


@pytest.mark.proves("mcp-served", "map-tools-follow")
@pytest.mark.parametrize(("mode", "kind"), PLACES)
async def test_a_change_of_the_lists_reaches_the_client(mode: str, kind: str) -> None:
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with client_of(mode, kind, message_handler=hear) as client:
        await client.list_tools()
        if mode == MODERN:
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("grow", {})
                await anext(aiter(changes))
        else:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            await client.call_tool("grow", {})
            await told.wait()
        assert [tool.name for tool in (await client.list_tools()).tools][-1] == "grown"
        assert words_of(await client.call_tool("grown", {})) == "I am new"


@pytest.mark.proves("mcp-elicit-outcome")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_legacy_client_is_asked_in_the_middle_of_a_call(kind: str) -> None:
    answers = {
        "form": types.ElicitResult(action="accept", content={"name": "Ada"}),
        "url": types.ElicitResult(action="accept"),
        "no": types.ElicitResult(action="decline"),
        "away": types.ElicitResult(action="cancel"),
    }
    asked: set[str] = set()
    everything = anyio.Event()

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        asked.add(params.message)
        if len(asked) == len(answers):
            everything.set()
        await everything.wait()  # they are asked side by side, or this waits for ever
        if params.message == "url":
            assert (params.mode, params.url) == ("url", "https://example.com/")
            assert params.elicitation_id
        else:
            assert params.requested_schema == FORM
        return answers[params.message]

    questions = {key: {"mode": "form", "message": key, "requestedSchema": FORM} for key in answers}
    questions["url"] = {"mode": "url", "message": "url", "url": "https://example.com/"}
    async with client_of("legacy", kind, elicitation_callback=answer) as client:
        result = await client.call_tool("ask", {"questions": questions})
    assert result.structured_content is not None
    assert {key: found["action"] for key, found in result.structured_content.items()} == {
        "form": "accept",
        "url": "accept",
        "no": "decline",
        "away": "cancel",
    }
    assert result.structured_content["form"]["content"] == {"name": "Ada"}


@pytest.mark.proves("mcp26-rounds-shape", "mcp26-no-requests")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_modern_client_is_asked_in_rounds(kind: str) -> None:
    async def answer(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with client_of(MODERN, kind, elicitation_callback=answer) as client:
        result = await client.call_tool("rounds", {})
    answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
    assert result.structured_content == {"state": "state-1", "answers": answers}


# Results and errors


@pytest.mark.proves("mcp-served-raw")
@pytest.mark.parametrize("version", ERAS)
async def test_a_result_goes_out_as_it_is(version: str) -> None:
    result = {
        "content": [{"type": "hologram", "depth": None}, {"type": "text", "text": "x", "extra": {"a": None}}],
        "structuredContent": [1, None, {"n": 1.0}],
        "_meta": {"com.example/key": [None]},
        "later": "field",
        "isError": True,
    }
    async with wire_to(version) as (http, _):
        answer = (await http.tool(1, "result", result=result))["result"]
    assert answer.pop("resultType", None) == ("complete" if version == MODERN else None)
    assert answer["_meta"].pop(SERVER_INFO, {}).get("name") == ("face" if version == MODERN else None)
    if version != MODERN:  # which knows only objects as structured content
        result["structuredContent"] = {"result": result["structuredContent"]}
    assert answer == result


@pytest.mark.proves("mcp-served-raw")
@pytest.mark.parametrize("version", ERAS)
async def test_what_a_tool_lists_of_itself_goes_out_as_it_is(version: str) -> None:
    async with wire_to(version) as (http, face):
        result = (await http.call(1, "tools/list"))[-1]["result"]
    assert result["tools"] == face.tools()
    assert ("ttlMs" in result, "cacheScope" in result) == (version == MODERN, version == MODERN)


@pytest.mark.proves("mcp-utf8")
@pytest.mark.parametrize("version", ERAS)
async def test_half_a_character_does_not_break_the_connection(version: str) -> None:
    async with wire_to(version) as (http, _), lines_to(PROGRAM, version) as lines:
        params = {"name": "half", "arguments": {}, "_meta": {"progressToken": "t"}}
        over_http = (await http.call(1, "tools/call", params))[-1]["result"]["content"][0]["text"]
        over_stdio = (await lines.call(1, "tools/call", params))["result"]["content"][0]["text"]
    assert over_http.startswith("half ")
    assert over_stdio.startswith("half ")


@pytest.mark.proves("mcp26-codes", "mcp-error-shape", "map-peer-fault", "mcp25-url-required")
@pytest.mark.parametrize("version", ERAS)
async def test_errors_say_what_the_face_says_and_nothing_else(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire_to(version) as (http, _), lines_to(PROGRAM, version) as lines:
        for wire in (http, lines):
            unknown = (await wire.tool(1, "nonesuch"))["error"]
            refused = (await wire.tool(2, "refuse"))["error"]
            crashed = await wire.tool(3, "crash")
            assert (unknown["code"], unknown["message"]) == (-32602, "Unknown tool: nonesuch")
            assert refused == {"code": -32602, "message": "not today", "data": {"until": "tomorrow"}}
            assert crashed["error"]["code"] == -32603
            assert SECRET not in str(crashed)
    assert SECRET in caplog.text


@pytest.mark.proves("mcp25-negotiated")
async def test_a_legacy_client_is_never_answered_with_a_kind_of_result_it_does_not_know() -> None:
    async with wire_to(LEGACY) as (http, _):
        assert (await http.tool(1, "rounds"))["error"]["code"] == -32603


@pytest.mark.proves("mcp-served-raw")
@pytest.mark.parametrize("version", ERAS)
async def test_parameters_that_could_not_be_passed_on_are_refused(version: str) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    async with lines_to(PROGRAM, version) as lines:
        assert (await lines.tool(1, "echo", deep=deep))["error"]["code"] == -32602
        assert (await lines.tool(2, "echo", number=float("inf")))["error"]["code"] in (-32602, -32700)


@pytest.mark.proves("mcp26-cache-hints")
async def test_a_list_has_one_page() -> None:
    async with wire_to(MODERN) as (http, _):
        assert (await http.call(1, "tools/list", {"cursor": "2"}))[-1]["error"]["code"] == -32602


# What the face is told of a call


@pytest.mark.proves("mcp26-stateless")
@pytest.mark.parametrize("version", ERAS)
async def test_a_call_says_what_its_client_declared(version: str) -> None:
    is_modern = version == MODERN
    for capabilities, forms, urls, tasks in (
        (ALL, True, True, is_modern),
        ({"elicitation": {}}, True, False, False),
        ({"elicitation": {"url": {}}}, False, True, False),
        ({}, False, False, False),
    ):
        async with wire_to(version, capabilities) as (http, _):
            answer = await http.tool(1, "echo", {**TRACE, "x/y": None}, a=1)
            seen = answer["result"]["structuredContent"]
        assert (seen["takes_forms"], seen["takes_urls"], seen["takes_tasks"]) == (forms, urls, tasks)
        assert (seen["is_modern"], seen["trace"]) == (is_modern, TRACE)
        assert seen["meta"]["x/y"] is None


@pytest.mark.proves("trace-context")
@pytest.mark.parametrize(
    ("meta", "headers", "told"),
    [
        ({}, TRACE, TRACE),
        (TRACE, {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-00", "baggage": "b=2"}, TRACE),
        ({"baggage": "tenant=a"}, {**TRACE, "baggage": "b=2"}, TRACE),
        ({"traceparent": 7, "tracestate": "x=y"}, TRACE, TRACE),
        ({"traceparent": "broken"}, TRACE, {**NOTHING, "baggage": "tenant=a"}),
        ({"traceparent": TRACE["traceparent"]}, TRACE, {**TRACE, "tracestate": None}),
    ],
)
async def test_the_trace_of_a_call_is_named_in_its_meta_or_else_in_headers(
    meta: Any, headers: dict[str, str], told: Any
) -> None:
    async with wire_to(MODERN) as (http, _):
        http.client.headers.update(headers)
        answer = await http.tool(1, "echo", meta)
    assert answer["result"]["structuredContent"]["trace"] == told


@pytest.mark.proves("mcp-elicit-modes", "mcp26-rounds-declared", "mcp25-negotiated")
async def test_a_question_of_a_mode_that_is_not_declared_is_not_asked() -> None:
    questions = {
        "a": {"message": "Who?", "requestedSchema": FORM},
        "b": {"mode": "url", "message": "Where?", "url": "https://example.com/"},
    }
    async with lines_to(PROGRAM, LEGACY, {"elicitation": {}}) as lines:
        result = (await lines.tool(1, "ask", questions=questions))["result"]
        assert result["isError"]
        assert "URL mode" in result["content"][0]["text"]
        assert not [message for message in lines.seen if "method" in message]


@pytest.mark.proves("mcp-elicit-outcome")
async def test_what_a_client_answers_comes_back_unread_and_an_error_is_its_fault() -> None:
    question = {"q": {"message": "Who?", "requestedSchema": FORM, "_meta": {"x": None}, "later": 1}}
    answer = {"action": "accept", "content": {"name": None}, "_meta": {"y": None}, "later": {"z": None}}
    async with lines_to(PROGRAM, LEGACY, ALL) as lines:
        for request_id, said in ((1, {"result": answer}), (2, {"error": {"code": -1, "message": "no"}})):
            arguments = {"questions": question}
            await lines.send(request_id, "tools/call", {"name": "ask", "arguments": arguments})
            asked = await lines.receive()
            assert asked["params"] == question["q"]
            await lines.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}).encode() + b"\n")
            result = (await lines.receive())["result"]
            if request_id == 1:
                assert result["structuredContent"] == {"q": answer}
            else:
                assert result["isError"]


REPORTS: Final = [
    [1, 10, "one"],
    [1, 10, "again"],
    [1.5, 10, None],
    [2.5, 10.5, None],
    [None, None, None],
    [None, 4, "on"],
    [float(7), None, None],
]
REPORTED: Final = [
    {"progress": 1, "total": 10, "message": "one"},
    {"progress": 2, "message": "again"},
    {"progress": 2.5, "total": 10.5},
    {"progress": 3.5, "message": "on"},
    {"progress": 7.0},
]


@pytest.mark.proves("mcp-progress-grows", "mcp-progress-active", "mcp26-stream-own")
@pytest.mark.parametrize("version", ERAS)
async def test_progress_comes_in_order_before_the_result_and_only_when_it_is_asked_for(version: str) -> None:
    async with wire_to(version) as (http, _), lines_to(PROGRAM, version) as lines:
        params = {"name": "report", "arguments": {"reports": REPORTS}, "_meta": {"progressToken": "t"}}
        over_http = await http.call(1, "tools/call", params)
        await lines.call(1, "tools/call", params)
        over_stdio = [message for message in lines.seen if message.get("id") != "init"]
        for messages in (over_http, over_stdio):
            *reports, result = messages
            assert "result" in result
            assert [report["params"].pop("progressToken") for report in reports] == ["t"] * len(REPORTED)
            assert [report["params"] for report in reports] == REPORTED
        del params["_meta"]
        assert len(await http.call(2, "tools/call", params)) == 1


@pytest.mark.proves("mcp-utf8")
async def test_half_a_character_in_a_request_comes_back_as_something_whole() -> None:
    async with wire_to(MODERN) as (http, _):  # (a legacy client is told that it is not JSON)
        echoed = await http.tool(1, "echo", text="half \ud83d.")
        assert echoed["result"]["structuredContent"]["arguments"]["text"].startswith("half ")


@pytest.mark.proves("mcp-odd")
@pytest.mark.parametrize("version", ERAS)
async def test_a_progress_token_that_is_null_is_none(version: str) -> None:
    async with wire_to(version) as (http, _):
        answer = await http.tool(1, "result", {"progressToken": None}, result={"content": []})
    assert answer["result"]["content"] == []
