"""Our MCP server on the wire: what cancels a call, what stdout carries, who is let in over HTTP, and how it ends."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import httpx2
import pytest

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from tests.support.mcp_face import FORM, Face
from tests.support.mcp_serving import PROGRAM, served, wire_to
from tests.support.mcp_wire import LEGACY, MODERN, Http, Json, Lines, lines_to, messages_of, opening, request

ROOT: Final = Path(__file__).parents[3]
ERAS: Final = [LEGACY, MODERN]
ALL: Final = {"elicitation": {"form": {}, "url": {}}}

pytestmark = pytest.mark.usefixtures("_at_root")


@pytest.fixture
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


# Cancelling


@pytest.mark.proves("mcp26-cancelled-stdio")
@pytest.mark.parametrize("version", ERAS)
async def test_over_stdio_a_notification_cancels_the_call(version: str) -> None:
    async with lines_to(PROGRAM, version) as lines:
        await lines.send(1, "tools/call", {"name": "wait", "arguments": {}})
        await lines.call(2, "tools/list")
        await lines.send(None, "notifications/cancelled", {"requestId": 1})
        assert (await lines.tool(3, "cancelled"))["result"]["content"][0]["text"] == "1"
        assert not [message for message in lines.seen if message.get("id") == 1]


@pytest.mark.proves("mcp26-cancel-http")
async def test_over_modern_http_closing_the_response_cancels_the_call() -> None:
    async with wire_to(MODERN) as (http, face):
        async with anyio.create_task_group() as tasks:
            waiting = http.message(1, "tools/call", {"name": "wait", "arguments": {}})
            tasks.start_soon(http.post, waiting)
            await face.until(lambda: face.waiting == 1)
            tasks.cancel_scope.cancel()
        await face.until(lambda: face.stopped == 1)


@pytest.mark.proves("map-who-cancels")
async def test_over_legacy_http_only_the_notification_cancels_the_call() -> None:
    async with wire_to(LEGACY) as (http, face):
        async with anyio.create_task_group() as tasks:
            waiting = http.message(1, "tools/call", {"name": "wait", "arguments": {}})
            tasks.start_soon(http.post, waiting)
            await face.until(lambda: face.waiting == 1)
            tasks.cancel_scope.cancel()
        assert (await http.tool(2, "echo"))["result"]
        assert face.stopped == 0
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        await http.post({"jsonrpc": "2.0", **cancel})
        await face.until(lambda: face.stopped == 1)


@pytest.mark.proves("mcp-elicit-outcome")
async def test_a_question_is_withdrawn_when_its_call_is_cancelled() -> None:
    async with lines_to(PROGRAM, LEGACY, ALL) as lines:
        questions = {"q": {"message": "Who?", "requestedSchema": FORM}}
        await lines.send(1, "tools/call", {"name": "ask", "arguments": {"questions": questions}})
        asked = await lines.receive()
        await lines.send(None, "notifications/cancelled", {"requestId": 1})
        withdrawn = await lines.receive()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]


# Stdin and stdout


@pytest.mark.any_loop
@pytest.mark.proves("mcp-stdio-stdout")
@pytest.mark.parametrize("version", ERAS)
async def test_nothing_but_the_protocol_is_on_stdout_and_it_ends_with_stdin(version: str) -> None:
    async with lines_to(PROGRAM, version) as lines:
        assert (await lines.tool(1, "print"))["result"]
        await lines.send(2, "tools/call", {"name": "wait", "arguments": {}})
        await lines.call(3, "tools/list")
        assert lines.process.stdin is not None
        await lines.process.stdin.aclose()
        with anyio.fail_after(3):
            rest = await lines.rest()
            assert await lines.process.wait() == 0
        assert b"before" not in rest
        assert b"after" not in rest
        assert lines.process.stderr is not None
        printed = b"".join([chunk async for chunk in lines.process.stderr])
        for words in (b"before", b"printed", b"written", b"echoed", b"after"):
            assert words in printed


@pytest.mark.proves("mcp-response-id")
async def test_a_line_that_is_no_message_is_answered_and_the_next_one_is_read() -> None:
    async with lines_to(PROGRAM, MODERN) as lines:
        for line, code, words in (
            (b"{nonsense\n", -32700, "not JSON"),
            (b'{"a": 1}\n', -32600, "not a JSON-RPC message"),
            (b"x" * (17 << 20) + b"\n", -32600, "larger than 16777216 bytes"),
            (b"[" + b"{}," * 130_000 + b"0]\n", -32600, "more than 250000 values"),
        ):
            await lines.write(b"\r\n" + line)
            answer = await lines.receive()
            assert (answer["id"], answer["error"]["code"]) == (None, code)
            assert words in answer["error"]["message"]
        assert (await lines.tool(1, "echo"))["result"]


def _odd(call: Json, kind: str) -> bytes:
    """The call as a host writes it that gets something wrong, at the place of `MARK` or elsewhere."""
    plain = json.dumps(call)
    return {
        "half a surrogate pair": plain.replace("MARK", "\\ud83d").encode(),
        "a byte order mark": b"\xef\xbb\xbf" + plain.encode(),
        "a byte of latin-1": plain.replace("MARK", "\xe9").encode("latin-1"),
        "a raw tab": plain.replace("MARK", "\t").encode(),
        "a batch of one": f"[{plain}]".encode(),
        "an id such as 7.0": plain.replace('"id": 7', '"id": 7.0').encode(),
    }[kind]


ODD: Final = {
    "half a surrogate pair": "\ufffd",
    "a byte order mark": "MARK",
    "a byte of latin-1": "\ufffd",
    "a raw tab": "\t",
    "a batch of one": "MARK",
    "an id such as 7.0": "MARK",
}


@pytest.mark.proves("mcp-response-id")
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("kind", ODD)
async def test_a_request_that_is_written_oddly_is_read_and_answered_with_its_id(
    version: str, kind: str
) -> None:
    params = {"name": "echo", "arguments": {"a": "MARK"}}
    async with lines_to(PROGRAM, version) as lines:
        sent = request(7, "tools/call", params, version, None)
        await lines.write(_odd(sent, kind) + b"\n")
        answer = await lines.receive()
        assert (answer["id"], answer["result"]["structuredContent"]["arguments"]["a"]) == (7, ODD[kind])
    async with wire_to(version) as (http, _):
        posted = await http.client.post(http.url, content=_odd(sent, kind), headers=http.headers(sent))
        (answer,) = messages_of(posted)
        assert (answer["id"], answer["result"]["structuredContent"]["arguments"]["a"]) == (7, ODD[kind])


@pytest.mark.proves("mcp-response-id")
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    "change",
    [{"params": [1]}, {"params": None}, {"jsonrpc": None}, {"method": 5}],
    ids=["a list for params", "null for params", "no jsonrpc", "a number for method"],
)
async def test_a_request_that_is_refused_is_refused_with_its_id(version: str, change: Json) -> None:
    async with lines_to(PROGRAM, version) as lines, wire_to(version) as (http, _):
        call = http.message(7, "tools/call", {"name": "echo"})
        headers = http.headers(call)
        call = {**call, **change}
        if call["jsonrpc"] is None:
            del call["jsonrpc"]
        text = json.dumps(call).encode()
        await lines.write(text + b"\n")
        answer = await lines.receive()
        assert (answer["id"], answer["error"]["code"]) in ((7, -32600), (7, -32602))
        (answer,) = messages_of(await http.client.post(http.url, content=text, headers=headers))
        assert answer["id"] == 7
        assert "error" in answer


@pytest.mark.proves("mcp-response-id")
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("more", [" and more", "{", '{"jsonrpc":"2.0","id":8,"method":"ping"}'])
async def test_a_body_with_more_after_its_request_is_refused_with_the_id_of_that(
    version: str, more: str
) -> None:
    async with wire_to(version) as (http, _):
        call = http.message(7, "tools/call", {"name": "echo"})
        posted = await http.client.post(http.url, content=json.dumps(call) + more, headers=http.headers(call))
        assert (posted.status_code, posted.json()["id"], posted.json()["error"]["code"]) == (400, 7, -32600)


@pytest.mark.proves("web-auth")
@pytest.mark.parametrize("kind", ODD)
async def test_a_call_that_is_written_oddly_takes_the_rights_that_it_always_takes(kind: str) -> None:
    limited = Principal("ada", scopes=(("tools", frozenset({"echo"})),), skills=())
    access = Access(verifiers_of([Credential(limited, "token-a")]))
    async with wire_to(MODERN, access=access) as (http, _):
        call = http.message(7, "tools/call", {"name": "echo", "arguments": {"a": "MARK"}})
        headers = {**http.headers(call), "authorization": "Bearer token-a"}
        posted = await http.client.post(http.url, content=_odd(call, kind), headers=headers)
        assert posted.status_code == 403


@pytest.mark.any_loop
@pytest.mark.proves("mcp-served-end")
async def test_it_can_be_stopped_while_stdin_stays_open() -> None:
    async with lines_to(PROGRAM, MODERN) as lines:
        await lines.send(1, "tools/call", {"name": "wait", "arguments": {}})
        await lines.call(2, "tools/list")
        lines.process.send_signal(signal.SIGINT)
        with anyio.fail_after(3):
            last = await lines.receive()
            await lines.process.wait()
    assert (last["id"], last["error"]["message"]) == (1, "Connection closed")


# Eras of one connection over stdio


async def asked(lines: Lines, request_id: str, method: str, params: Json, version: str) -> Json:
    """What a request of an era is answered, whatever era the requests before were of."""
    lines.version = version
    return await lines.call(request_id, method, params)


@pytest.mark.proves("mcp-tools-declared", "mcp-served")
@pytest.mark.parametrize("first", ["server/discover", "initialize"])
@pytest.mark.parametrize("then", ERAS)
async def test_until_a_tool_is_called_a_connection_is_open_to_both_eras(first: str, then: str) -> None:
    greetings: dict[str, tuple[Json, str]] = {
        "server/discover": ({}, MODERN),
        "initialize": (opening(LEGACY, None), LEGACY),
    }
    async with lines_to(PROGRAM, MODERN) as lines:
        for method in sorted(greetings, key=lambda method: method != first):
            params, version = greetings[method]
            answer = await asked(lines, method, method, params, version)
            assert answer["result"]["capabilities"]["tools"] == {"listChanged": True}
        await lines.send(None, "notifications/initialized")
        for version in ERAS:
            listed = await asked(lines, version, "tools/list", {}, version)
            assert listed["result"]["tools"]
        called = await asked(lines, "call", "tools/call", {"name": "echo", "arguments": {}}, then)
        assert called["result"]["structuredContent"]["is_modern"] is (then == MODERN)


@pytest.mark.proves("mcp-served")
async def test_a_client_that_gave_up_on_discover_and_initialized_is_served_and_asked() -> None:
    async with lines_to(PROGRAM, MODERN, ALL) as lines:
        await lines.send("late", "server/discover")
        lines.version = LEGACY
        await lines.call("init", "initialize", opening(LEGACY, ALL))
        await lines.send(None, "notifications/initialized")
        while "late" not in [message.get("id") for message in lines.seen]:
            await lines.receive()
        questions = {"q": {"message": "Who?", "requestedSchema": FORM}}
        await lines.send(1, "tools/call", {"name": "ask", "arguments": {"questions": questions}})
        question = await lines.receive()
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        await lines.write(json.dumps(answer).encode() + b"\n")
        assert (await lines.receive())["result"]["structuredContent"]["q"] == {"action": "decline"}


@pytest.mark.proves("mcp26-version")
@pytest.mark.parametrize(
    ("called", "other", "params", "code"),
    [(MODERN, "initialize", opening(LEGACY, None), -32022), (LEGACY, "server/discover", {}, -32600)],
)
async def test_after_a_call_the_other_era_is_refused(
    called: str, other: str, params: Json, code: int
) -> None:
    async with lines_to(PROGRAM, called) as lines:
        assert (await lines.tool(1, "echo"))["result"]
        version = MODERN if called == LEGACY else LEGACY
        assert (await asked(lines, "other", other, params, version))["error"]["code"] == code
        lines.version = called
        assert (await lines.tool(2, "echo"))["result"]


# Over HTTP


@pytest.mark.proves("mcp-http-origin", "mcp-http-endpoint", "web-auth", "web-host", "web-json")
async def test_only_our_own_requests_are_let_in() -> None:
    ada = Credential(Principal("ada"), "token-a")
    async with wire_to(MODERN, access=Access(verifiers_of([ada])), body_limit_bytes=1000) as (http, _):
        token = {"authorization": "Bearer token-a"}
        message = http.message(1, "tools/list")
        assert (await http.post(message)).status_code == 401
        assert (await http.post(message, authorization="Bearer other")).status_code == 401
        assert (await http.post(message, **token)).status_code == 200
        assert (await http.post(message, **token, host="evil.example")).status_code == 421
        assert (await http.post(message, **token, origin="https://evil.example")).status_code == 403
        assert (await http.post(message, **token, **{"content-type": "text/plain"})).status_code == 415
        large = http.message(1, "tools/call", {"name": "echo", "arguments": {"a": "x" * 1000}})
        assert (await http.post(large, **token)).status_code == 413
        assert (await http.client.put(http.url, headers=token)).status_code == 405
        assert (await http.client.get(f"{http.url}/x", headers=token)).status_code == 404
        preflight = await http.client.options(http.url, headers={"origin": "https://evil.example"})
        assert preflight.status_code == 403
        assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.proves("web-json")
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_message_of_many_values_is_refused_and_a_long_string_is_not(version: str) -> None:
    async with wire_to(version) as (http, _):
        arguments = {"a": [{}] * 250_000}
        many = await http.post(http.message(1, "tools/call", {"name": "echo", "arguments": arguments}))
        assert (many.status_code, many.json()["error"]["message"]) == (
            413,
            "The message holds more than 250000 values and keys",
        )
        long = await http.tool(2, "echo", a="QUJD" * 1_000_000)
        assert len(long["result"]["structuredContent"]["arguments"]["a"]) == 4_000_000


@pytest.mark.proves("web-json")
async def test_a_name_that_an_error_repeats_is_cut() -> None:
    name, cut = "x" * 1_000_000, "x" * 200 + "..."
    async with wire_to(LEGACY) as (http, _):

        async def refused(method: str, params: dict[str, str]) -> dict[str, Any]:
            error: dict[str, Any] = (await http.call(1, method, params))[-1]["error"]
            return error

        method_not_found = {"code": -32601, "message": "Method not found", "data": cut}
        assert await refused(name, {}) == method_not_found
        unknown_tool = {"code": -32602, "message": f"Unknown tool: {cut}"}
        assert await refused("tools/call", {"name": name}) == unknown_tool


@pytest.mark.proves("mcp-served-end")
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_who_goes_away_while_it_posts_leaves_no_trace(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire_to(version) as (http, _):
        place = urlsplit(http.url)
        headers = {
            **http.headers(http.message(1, "tools/list")),
            "content-length": "100",
            "host": place.netloc,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        stream = await anyio.connect_tcp(str(place.hostname), place.port or 0)
        async with stream:
            await stream.send(f'POST {place.path} HTTP/1.1\r\n{lines}\r\n{{"jsonrpc'.encode())
        assert (await http.tool(2, "echo"))["result"]
    assert not [record for record in caplog.records if record.exc_info and "ASGI" in record.getMessage()]


@pytest.mark.proves("web-auth", "mcp-elicit-state", "mcp-elicit-identity")
async def test_a_call_and_a_session_belong_to_whom_the_token_stands_for() -> None:
    known = [Credential(Principal(name), f"token-{name}") for name in ("ada", "bob")]
    async with wire_to(LEGACY, access=Access(verifiers_of(known))) as (http, _):
        http.client.headers["authorization"] = "Bearer token-ada"
        await http.open()
        assert (await http.tool(1, "echo"))["result"]["structuredContent"]["principal"] == "ada"
        message = http.message(2, "tools/list")
        assert (await http.post(message, authorization="Bearer token-bob")).status_code == 404
        modern = Http(http.client, http.url, MODERN)
        http.client.headers["authorization"] = "Bearer token-bob"
        assert (await modern.tool(1, "echo"))["result"]["structuredContent"]["principal"] == "bob"


@pytest.mark.proves("mcp-http-endpoint")
async def test_both_eras_share_an_endpoint() -> None:
    async with wire_to(LEGACY) as (legacy, _):
        modern = Http(legacy.client, legacy.url, MODERN)
        for http in (legacy, modern):
            seen = (await http.tool(1, "echo"))["result"]["structuredContent"]
            assert seen["is_modern"] is (http is modern)


@pytest.mark.proves("mcp-served-end", "mcp26-listen-first", "mcp26-server-cancels", "mcp25-get")
async def test_stopping_ends_the_open_streams_and_lets_calls_go_on() -> None:
    async with wire_to(LEGACY) as (legacy, face):
        assert face.server is not None
        modern = Http(legacy.client, legacy.url, MODERN)
        opened = anyio.Event()
        ended: list[str] = []

        async def listen() -> None:
            wanted = {"notifications": {"toolsListChanged": True}}
            async with modern.stream(modern.message("l", "subscriptions/listen", wanted)) as messages:
                assert (await anext(messages))["method"] == "notifications/subscriptions/acknowledged"
                opened.set()
                ended.extend([message["id"] async for message in messages])

        async def get() -> None:
            headers = {**legacy.headers({}), "accept": "text/event-stream"}
            async with legacy.client.stream("GET", legacy.url, headers=headers) as response:
                assert response.status_code == 200
                await opened.wait()
                face.server.stop()  # type: ignore[union-attr]
                assert not [line async for line in response.aiter_lines() if line.startswith("data")]
                ended.append("get")

        async def wait() -> None:
            await legacy.post(legacy.message(1, "tools/call", {"name": "wait", "arguments": {}}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await face.until(lambda: face.waiting == 1)
            with anyio.fail_after(3):
                async with anyio.create_task_group() as streams:
                    streams.start_soon(listen)
                    streams.start_soon(get)
            assert sorted(ended) == ["get", "l"]
            assert face.stopped == 0
            refused = await modern.post(modern.message(2, "tools/list"))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert messages_of(refused)[0]["error"]
            assert (await legacy.tool(3, "echo"))["error"]["code"] == -32603
            cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            await legacy.post({"jsonrpc": "2.0", **cancel})
            await face.until(lambda: face.stopped == 1)


@pytest.mark.proves("mcp-served-end")
async def test_the_end_takes_less_than_three_seconds_with_calls_and_streams_open() -> None:
    face = Face()
    async with httpx2.AsyncClient(timeout=30) as client, anyio.create_task_group() as tasks:
        with anyio.fail_after(30) as limit:
            async with served(face) as url:
                for version in ERAS:
                    http = Http(client, url, version)
                    await http.open()
                    waiting = http.message(1, "tools/call", {"name": "wait", "arguments": {}})
                    tasks.start_soon(_post, http, waiting)
                await face.until(lambda: face.waiting == 2)
                limit.deadline = anyio.current_time() + 3
        assert face.stopped == 2


async def _post(http: Http, message: dict[str, Any]) -> None:
    with suppress(httpx2.TransportError):
        await http.post(message)


@pytest.mark.proves("mcp-served-end")
async def test_a_session_that_has_ended_is_forgotten() -> None:
    async with wire_to(LEGACY) as (http, face):
        assert face.server is not None
        for _ in range(3):
            http.session = None
            await http.open()
            assert (await http.tool(1, "echo"))["result"]
            known = set(face.server._legacy)
            assert known
            await http.client.delete(http.url, headers=http.headers({}))
            while known <= face.server._legacy.keys():  # its last tasks end after the answer
                await anyio.lowlevel.checkpoint()
