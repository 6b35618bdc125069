"""What the HTTP transport makes of faults, below the SDK: which were met before a request left, and which after."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

import anyio
import anyio.abc
import httpx2
import pytest

from bridge.mcp.client.faults import (
    BROKEN_OFF,
    FAULT_KEY,
    HTTP_STATUS,
    SESSION_LOST,
    STATUS_KEY,
    TOO_LARGE,
    UNREACHABLE,
)
from bridge.mcp.client.transports.bounded_bodies import BoundedEvents, Bounds
from bridge.mcp.client.transports.streamable_http import FaultMappingTransport
from tests.support.limits import url_at
from tests.support.ports import free_port

LIMIT_BYTES: Final = 1000
VALUES: Final = 20
RESULT: Final = b'{"jsonrpc":"2.0","id":1,"result":{}}'
ERROR: Final = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"No valid session ID provided"}}'
NO_TRANSPORT: Final = b"No transport found for sessionId"


def _response(status: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[str]:
    """A server that gives one answer to whatever it is sent, and hangs up."""

    async def hang_up(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer:
                await stream.send(answer)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, hang_up)
            yield f"http://127.0.0.1:{port}/mcp"
            tasks.cancel_scope.cancel()


async def _post(url: str, on_fault: Callable[[str], None], **headers: str) -> httpx2.Response:
    target = url_at(url, result_limit_bytes=LIMIT_BYTES, result_json_values=VALUES, shown="tools")
    transport = FaultMappingTransport(target, on_fault, limits=httpx2.Limits())
    async with httpx2.AsyncClient(transport=transport) as client:
        with anyio.fail_after(10):
            return await client.post(url, json={}, headers=headers)


JSON: Final = "content-type: application/json"
TOO_MANY: Final = "the response holds more than 20 values and keys: "
SESSION: Final = {"mcp-session-id": "s1"}


@pytest.mark.proves("map-lost")
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"", BROKEN_OFF, "tools broke off: Server disconnected without sending a response."),
        (b"SSH-2.0-OpenSSH\r\n", BROKEN_OFF, "tools broke off: "),
        (_response("200 OK", b"{", JSON, length=10), BROKEN_OFF, "the response broke off: "),
        (_response("200 OK", b"x" * 1001, JSON), TOO_LARGE, "the response is larger than 1000 bytes"),
        (
            _response("200 OK", b"[" + b"1," * 20 + b"1]", JSON),
            TOO_LARGE,
            f"{TOO_MANY}`result_json_values` of the tool ",
        ),
        (_response("502 Bad Gateway", b"<html>"), HTTP_STATUS, "tools answered HTTP 502 Bad Gateway"),
        (_response("500 ", b"", length=10), HTTP_STATUS, "tools answered HTTP 500"),
        (_response("404 Not Found", b""), HTTP_STATUS, "tools answered HTTP 404 Not Found"),
    ],
)
async def test_a_fault_becomes_the_answer_to_the_request_that_met_it(
    answer: bytes, kind: str, words: str
) -> None:
    heard: list[str] = []
    async with _answering(answer) as url:
        said = (await _post(url, heard.append)).json()
    assert heard == [kind]
    status = {STATUS_KEY: int(answer[9:12])} if kind == HTTP_STATUS else {}
    assert said["error"]["data"] == {FAULT_KEY: kind, **status}
    assert said["error"]["message"].startswith(words)


@pytest.mark.proves("map-lost")
async def test_where_nothing_listens_nothing_was_sent() -> None:
    heard: list[str] = []
    said = (await _post(f"http://127.0.0.1:{free_port()}/mcp", heard.append)).json()
    assert heard == [UNREACHABLE]
    assert said["error"]["message"] == "tools cannot be reached: Connection refused"


@pytest.mark.proves("map-lost", "mcp25-session-again")
@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (_response("404 Not Found", b""), True),
        (_response("404 Not Found", ERROR, JSON), True),
        (_response("400 Bad Request", ERROR, JSON), True),
        (_response("400 Bad Request", ERROR.replace(b"No valid session", NO_TRANSPORT), JSON), True),
        (_response("400 Bad Request", ERROR.replace(b"session", b"request"), JSON), False),
        (_response("400 Bad Request", b"no session"), False),
        (_response("500 Internal Server Error", ERROR, JSON), False),
        (_response("200 OK", ERROR, JSON), False),
    ],
)
async def test_a_session_is_lost_when_the_server_says_so(answer: bytes, lost: bool) -> None:
    for headers, means_lost in ((SESSION, lost), ({}, False)):
        heard: list[str] = []
        async with _answering(answer) as url:
            await _post(url, heard.append, **headers)
        assert (SESSION_LOST in heard) is means_lost


@pytest.mark.proves("mcp-raw")
async def test_an_error_of_the_server_and_a_result_are_handed_on() -> None:
    heard: list[str] = []
    for status, body in (("200 OK", RESULT), ("400 Bad Request", ERROR), ("200 OK", ERROR)):
        async with _answering(_response(status, body, JSON)) as url:
            answer = await _post(url, heard.append)
        assert f"{answer.status_code}" == status[:3]
        assert answer.content == body
    assert heard == []


@pytest.mark.proves("mcp-raw")
async def test_a_compressed_result_is_unpacked_once() -> None:
    async with _answering(_response("200 OK", gzip.compress(RESULT), JSON, "content-encoding: gzip")) as url:
        assert (await _post(url, lambda _: None)).content == RESULT


@pytest.mark.proves("mcp-http-read")
async def test_a_header_beyond_ascii_is_handed_on_with_its_result() -> None:
    town = "x-town: München"
    async with _answering(_response("200 OK", RESULT, JSON, town)) as url:
        answer = await _post(url, lambda _: None)
    assert (answer.content, answer.headers["x-town"]) == (RESULT, "München")


GZIP: Final = "content-encoding: gzip"


@cache
def bomb() -> bytes:
    """64 KB that unpack to 64 MB."""
    return gzip.compress(b" " * 64 * LIMIT_BYTES * LIMIT_BYTES)


@pytest.mark.proves("mcp-bounded")
@pytest.mark.parametrize("twice", [False, True])
async def test_a_result_is_bounded_by_what_it_unpacks_to(twice: bool) -> None:
    heard: list[str] = []
    packed = gzip.compress(bomb()) if twice else bomb()
    encoding = "content-encoding: gzip, gzip" if twice else GZIP
    tracemalloc.start()
    try:
        async with _answering(_response("200 OK", packed, JSON, encoding)) as url:
            said = (await _post(url, heard.append)).json()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert heard == [TOO_LARGE]
    assert said["error"]["message"].startswith("the response is larger than 1000 bytes")
    assert peak_bytes < 16 * LIMIT_BYTES * LIMIT_BYTES


@pytest.mark.proves("mcp-bounded")
async def test_a_packed_error_of_the_server_is_handed_on_and_no_more_of_it_unpacked_than_is_read() -> None:
    async with _answering(_response("400 Bad Request", gzip.compress(ERROR), JSON, GZIP)) as url:
        assert (await _post(url, lambda _: None)).content == ERROR
    heard: list[str] = []
    async with _answering(_response("500 Oh No", bomb(), JSON, GZIP)) as url:
        await _post(url, heard.append)
    assert heard == [HTTP_STATUS]


EVENTS: Final = "content-type: text/event-stream"


@pytest.mark.proves("mcp-bounded")
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_each_event_of_a_stream_is_bounded_and_not_all_of_them_together(end: bytes) -> None:
    stream = (b"data: " + b"x" * 900 + end) * 10
    for packed, headers in ((stream, [EVENTS]), (gzip.compress(stream), [EVENTS, GZIP])):
        async with _answering(_response("200 OK", packed, *headers)) as url:
            assert (await _post(url, lambda _: None)).content == stream


@pytest.mark.proves("mcp-bounded")
async def test_an_event_is_bounded_by_what_it_unpacks_to() -> None:
    stream = gzip.compress(b"data: " + b"x" * 900 + b"\n\ndata: " + b"x" * 900 + b"\ndata: " + b"x" * 900)
    async with _answering(_response("200 OK", stream, EVENTS, GZIP)) as url:
        with pytest.raises(httpx2.SSEError, match="larger than 1000 bytes"):
            await _post(url, lambda _: None)


@pytest.mark.proves("mcp-bounded")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 7, 32])
async def test_the_values_of_each_event_are_counted_however_it_is_cut(end: bytes, size: int) -> None:
    """Lines of an event are not values of it, nor are brackets in its strings."""
    lines = [b"event: message", b"data: [", *[b"data: 1,"] * 17, b'data: "' + b"[" * 90 + b'"]']
    fits = end.join([*lines, b"", b""])
    more = end.join([b"data: [" + b"1," * 20 + b"1]", b"", b""])

    async def pieces() -> AsyncIterator[bytes]:
        sent = fits + b": still there" + end + end + fits + more + fits
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    got = bytearray()
    stream = BoundedEvents(httpx2.Response(200, content=pieces()), Bounds(LIMIT_BYTES, VALUES))

    async def read() -> None:
        async for piece in stream:
            got.extend(piece)

    with pytest.raises(httpx2.SSEError, match=TOO_MANY):
        await read()
    assert got.count(b"[" * 90) == 2
    assert more not in got
