"""What a peer may hold before it is known who it is: heads, bodies and connections, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
import uvicorn
from anyio.abc import SocketStream
from uvicorn.server import ServerState

from bridge.http.connections import Connections, HttpServerLimits
from bridge.http.server import BoundedProtocol
from bridge.process.resources import raise_descriptors
from bridge.settings import ConnectionSettings, RequestSettings
from tests.hostile.raw_caller import flood, refusal_in, until_closed
from tests.support.limits import PROFILE
from tests.support.running import listening

WAIT_SECONDS: Final = 10.0
SOON: Final = 0.05
"""A deadline that is there to pass."""
NEVER: Final = 3600.0
HEAD: Final = b"GET /quick HTTP/1.1\r\nHost: localhost\r\n"
GET: Final = HEAD + b"\r\n"
SLOW: Final = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST: Final = b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
CHUNKED: Final = b"POST /quick HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

REQUESTS: Final = PROFILE.requests.having(
    head_limit_bytes=4096,
    headers=20,
    target_limit_bytes=512,
    bytes_per_second=1000,
    pipelined=3,
    head_seconds=NEVER,
    body_seconds=NEVER,
    bodies_limit_bytes=10**9,
)
CONNECTIONS: Final = PROFILE.connections.having(most=100, new=100, each=100, idle_seconds=NEVER)


@dataclass
class App:
    """Answers with what it was asked; at /slow once it is let, at /deaf without reading the body."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    goes: anyio.Event = field(default_factory=anyio.Event)
    reads: anyio.Event = field(default_factory=anyio.Event)
    """Something of a body has come."""
    gone: list[str] = field(default_factory=list)
    """The paths of those who left before they were answered."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path, body, more = scope["path"], b"", scope["path"] != "/deaf"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.append(path)
                return
            body, more = body + message["body"], message["more_body"]
            if body:
                self.reads.set()
        headers = [name.decode() for name, _ in scope["headers"]]
        self.asked.append({"path": path, "headers": headers, "bytes": len(body)})
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
        await send(start)
        if path == "/slow":
            await send({"type": "http.response.body", "body": b"begins ", "more_body": True})
            await self.goes.wait()
        await send({"type": "http.response.body", "body": b"ends"})


@dataclass
class Served:
    """The server, and what it serves."""

    app: App
    port: int

    @asynccontextmanager
    async def peer(self, *said: bytes) -> AsyncIterator[SocketStream]:
        """A connection on which this was sent."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            for piece in said:
                await stream.send(piece)
            yield stream


@asynccontextmanager
async def serving(
    requests: RequestSettings = REQUESTS, connections: ConnectionSettings = CONNECTIONS
) -> AsyncIterator[Served]:
    app = App()
    with anyio.fail_after(WAIT_SECONDS):
        async with listening(app, limits=HttpServerLimits(requests, connections)) as url:
            yield Served(app, int(url.rpartition(":")[2]))
            app.goes.set()


async def until(stream: SocketStream, words: bytes) -> bytes:
    said = b""
    while words not in said:
        said += await stream.receive()
    return said


async def asked(stream: SocketStream, request: bytes = GET) -> bytes:
    """One answer of a connection that goes on."""
    await stream.send(request)
    return await until(stream, b"0\r\n\r\n")


TOO_LARGE: Final = (431, "The head of the request is too large", False)
TOO_LONG: Final = (414, "The target of the request is too long", False)
LATE_HEAD: Final = (408, "The head of the request did not come in time", False)
LATE_BODY: Final = (408, "The body of the request came too slowly", False)
FULL: Final = (503, "All connections are in use", True)
TOO_MUCH: Final = (503, "The bodies of all current requests are too large", True)


# Heads


@pytest.mark.parametrize(
    ("piece", "refusal"),
    [
        pytest.param(HEAD + b"A: " + b"x" * 300_000, TOO_LARGE, id="one large header, still coming"),
        pytest.param(HEAD + b"A: " + b"x" * 4096 + b"\r\n\r\n", TOO_LARGE, id="one large header, whole"),
        pytest.param(HEAD + b"a:b\r\n" * 60_000, TOO_LARGE, id="many headers, still coming"),
        pytest.param(HEAD + b"a:b\r\n" * 20 + b"\r\n", TOO_LARGE, id="one header too many"),
        pytest.param(b"\r\n" * 3000, TOO_LARGE, id="empty lines"),
        pytest.param(b"GET /" + b"x" * 600, TOO_LONG, id="a long target, still coming"),
        pytest.param(
            b"GET /" + b"x" * 512 + b" HTTP/1.1\r\nHost: a\r\n\r\n", TOO_LONG, id="a long target, whole"
        ),
    ],
)
async def test_a_head_beyond_its_bounds_is_refused_before_anything_knows_of_it(
    piece: bytes, refusal: tuple[int, str, bool]
) -> None:
    async with serving() as served, served.peer(piece) as stream:
        assert refusal_in(await until_closed(stream)) == refusal
        assert served.app.asked == []


async def test_a_head_at_its_bounds_is_taken_in_any_pieces() -> None:
    head = HEAD + b"a: b\r\n" * 18 + b"c: " + b"x" * 3900 + b"\r\n\r\n"
    async with serving() as served:
        async with served.peer() as stream:
            assert b"200 OK" in await asked(stream, head)
        async with served.peer(*(head[at : at + 7] for at in range(0, len(head), 7))) as stream:
            assert b"200 OK" in await until(stream, b"0\r\n\r\n")
    assert [len(one["headers"]) for one in served.app.asked] == [20, 20]


async def test_bytes_without_end_are_not_read_on_after_a_refusal() -> None:
    async with serving() as served, served.peer(HEAD + b"A: ") as stream:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, stream, b"x" * 65536, 3000)
            assert refusal_in(await until_closed(stream)) == TOO_LARGE
            tasks.cancel_scope.cancel()
        async with served.peer() as honest:
            assert b"200 OK" in await asked(honest)


@pytest.mark.parametrize("said", [HEAD, b"GET", b"\r\n"])
async def test_half_a_head_is_refused_with_408(said: bytes) -> None:
    async with (
        serving(REQUESTS.having(head_seconds=SOON)) as served,
        served.peer(said) as stream,
    ):
        assert refusal_in(await until_closed(stream)) == LATE_HEAD


async def test_half_a_head_after_a_request_is_refused_with_408() -> None:
    async with (
        serving(REQUESTS.having(head_seconds=SOON)) as served,
        served.peer(
            GET
        ) as stream,  # at once: a connection that says nothing is closed as soon as one with half a head
    ):
        assert b"200 OK" in await until(stream, b"0\r\n\r\n")
        await stream.send(HEAD)
        assert refusal_in(await until_closed(stream)) == LATE_HEAD


async def test_a_connection_that_sends_nothing_is_closed_in_silence() -> None:
    async with (
        serving(REQUESTS.having(head_seconds=SOON)) as served,
        served.peer() as stream,
    ):
        assert await until_closed(stream) == b""


async def test_a_peer_that_is_gone_is_refused_without_a_fault() -> None:
    config = uvicorn.Config(App(), ws="none", log_config=None)
    connections = Connections(CONNECTIONS, REQUESTS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: BoundedProtocol(config, ServerState(), {}, REQUESTS, connections), accepted
    )
    protocol.data_received(HEAD)
    client.close()  # so that it answers our next byte with a reset, before the loop hears of anything
    protocol.head_is_late()
    assert transport.is_closing()
    with anyio.fail_after(WAIT_SECONDS):
        while protocol in connections.draining:
            await anyio.lowlevel.checkpoint()


async def test_what_is_wrong_behind_a_call_ends_the_connection_after_its_answer() -> None:
    async with (
        serving(REQUESTS.having(head_seconds=SOON)) as served,
        served.peer(SLOW) as late,
        served.peer(SLOW + b"\0\0") as wrong,
    ):
        for stream in (late, wrong):
            await until(stream, b"begins")
        await late.send(HEAD)
        async with served.peer(HEAD) as later:
            assert refusal_in(await until_closed(later)) == LATE_HEAD
        served.app.goes.set()
        for stream in (late, wrong):
            assert b"ends" in await until_closed(stream)


async def test_a_body_that_is_wrong_behind_a_call_is_refused_after_its_answer() -> None:
    endless = CHUNKED + b"1;" + b"x" * 10_000
    async with (
        serving(REQUESTS.having(body_seconds=SOON)) as served,
        served.peer(SLOW + POST % 1000) as unended,
        served.peer(SLOW + endless) as wrong,
    ):
        for stream in (unended, wrong):
            await until(stream, b"begins")
        async with served.peer(POST % 1000) as later:
            assert refusal_in(await until_closed(later)) == LATE_BODY
        served.app.goes.set()
        for stream, refusal in ((unended, LATE_BODY), (wrong, TOO_LARGE)):
            ended, _, refused = (await until_closed(stream)).partition(b"0\r\n\r\n")
            assert b"ends" in ended
            assert refusal_in(refused) == refusal


async def test_requests_sent_ahead_are_bounded_and_those_before_are_answered() -> None:
    async with serving() as served, served.peer(SLOW + GET * 50) as stream:
        await until(stream, b"begins")
        served.app.goes.set()
        said = await until_closed(stream)
    assert said.count(b"200 OK") == REQUESTS.pipelined
    assert len(served.app.asked) == 1 + REQUESTS.pipelined


# Bodies


async def test_an_unended_body_is_refused_with_408() -> None:
    async with (
        serving(REQUESTS.having(body_seconds=SOON)) as served,
        served.peer(POST % 1000) as empty,
        served.peer(POST % 1000 + b"x") as begun,
    ):
        for stream in (empty, begun):
            assert refusal_in(await until_closed(stream)) == LATE_BODY
    assert served.app.gone == ["/quick", "/quick"]


async def test_a_trickling_body_is_refused_with_408() -> None:
    async def trickle(stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError):
            while True:
                await stream.send(b"x")

    too_fast_for_it = REQUESTS.having(bytes_per_second=1e9, body_seconds=SOON)
    async with (
        serving(too_fast_for_it) as served,
        served.peer(POST % 1_000_000) as stream,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(trickle, stream)
        assert refusal_in(await until_closed(stream)) == LATE_BODY
        tasks.cancel_scope.cancel()


async def test_a_body_that_comes_in_pieces_is_taken() -> None:
    async with serving() as served, served.peer(POST % 300_000, b"x" * 200_000) as stream:
        await served.app.reads.wait()
        assert b"200 OK" in await asked(stream, b"x" * 100_000)
        assert b"200 OK" in await asked(stream)
    assert [one["bytes"] for one in served.app.asked] == [300_000, 0]


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"1;" + b"x" * 300_000, id="an extension of a chunk"),
        pytest.param(b"0\r\nA: " + b"x" * 300_000, id="one large trailer"),
        pytest.param(b"0\r\n" + b"a:b\r\n" * 60_000, id="many trailers"),
    ],
)
async def test_what_comes_in_place_of_a_body_is_bounded_like_a_head(framing: bytes) -> None:
    async with serving() as served, served.peer(CHUNKED + framing) as stream:
        assert refusal_in(await until_closed(stream)) == TOO_LARGE


async def test_trailers_do_not_become_headers() -> None:
    async with serving() as served, served.peer() as stream:
        assert b"200 OK" in await asked(stream, CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    assert served.app.asked == [{"path": "/quick", "headers": ["host", "transfer-encoding"], "bytes": 1}]


async def test_a_connection_whose_answer_came_before_its_body_goes_on_once_that_is_read() -> None:
    deaf = (POST % 1000).replace(b"/quick", b"/deaf")
    async with serving(connections=CONNECTIONS.having(most=1)) as served, served.peer() as stream:
        assert b"200 OK" in await asked(stream, deaf)
        assert b"200 OK" in await asked(stream, b"x" * 1000 + GET)
        async with served.peer() as other:
            assert b"200 OK" in await asked(other)
        assert await until_closed(stream) == b"", "it did not count as idle"


async def test_a_body_that_nobody_wants_is_not_read_without_end() -> None:
    deaf = (POST % 10**15).replace(b"/quick", b"/deaf")
    async with serving() as served, served.peer() as stream:
        assert b"200 OK" in await asked(stream, deaf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, stream, b"x" * 65536, 100_000)
            assert await until_closed(stream) == b""


# Connections


async def test_those_who_send_no_head_shut_nobody_out() -> None:
    async with serving(connections=CONNECTIONS.having(most=2, new=4)) as served, served.peer() as kept:
        assert b"200 OK" in await asked(kept)
        first = [await anyio.connect_tcp("127.0.0.1", served.port) for _ in range(20)]
        async with served.peer() as honest:
            assert b"200 OK" in await asked(honest)
        assert b"200 OK" in await asked(kept)
        for stream in first[:16]:
            assert await until_closed(stream) == b""
        for stream in first:
            await stream.aclose()


async def test_the_one_that_rests_longest_gives_its_place() -> None:
    async with (
        serving(connections=CONNECTIONS.having(most=2)) as served,
        served.peer() as older,
        served.peer() as newer,
    ):
        assert b"200 OK" in await asked(older)
        assert b"200 OK" in await asked(newer)
        assert b"200 OK" in await asked(older)
        async with served.peer() as newest:
            assert b"200 OK" in await asked(newest)
            assert await until_closed(newer) == b""
            assert b"200 OK" in await asked(older)


async def test_a_call_at_work_is_never_closed_for_another_which_is_told_to_come_again() -> None:
    async with (
        serving(REQUESTS.having(head_seconds=SOON), CONNECTIONS.having(most=2, idle_seconds=SOON)) as served,
        served.peer(SLOW) as one,
        served.peer(SLOW) as other,
    ):
        for stream in (one, other):
            await until(stream, b"begins")
        async with served.peer(GET) as late:
            assert refusal_in(await until_closed(late)) == FULL
        served.app.goes.set()
        for stream in (one, other):
            assert b"ends" in await until_closed(stream)


async def test_a_body_that_is_read_gives_way_to_a_whole_request() -> None:
    async with (
        serving(connections=CONNECTIONS.having(most=1)) as served,
        served.peer(POST % 1000 + b"x") as unended,
    ):
        await served.app.reads.wait()
        async with served.peer() as honest:
            assert b"200 OK" in await asked(honest)
        assert refusal_in(await until_closed(unended)) == FULL


async def test_bodies_that_are_read_are_bounded_together_and_small_ones_pass() -> None:
    """Those that hold most give way. One that comes in one piece is never counted."""
    async with (
        serving(REQUESTS.having(bodies_limit_bytes=1_000_000)) as served,
        AsyncExitStack() as stack,
    ):
        small = await stack.enter_async_context(served.peer(POST % 2000, b"x" * 1000))
        await served.app.reads.wait()
        large = [await stack.enter_async_context(served.peer(POST % 900_000)) for _ in range(5)]
        refused: dict[SocketStream, tuple[int, str, bool]] = {}
        async with anyio.create_task_group() as tasks:

            async def be_refused(stream: SocketStream) -> None:
                refused[stream] = refusal_in(await until_closed(stream))
                if len(refused) == len(large) - 1:
                    tasks.cancel_scope.cancel()

            for stream in large:
                tasks.start_soon(be_refused, stream)
                tasks.start_soon(flood, stream, b"x" * 50_000, 17)
        assert set(refused.values()) == {TOO_MUCH}
        (kept,) = [stream for stream in large if stream not in refused]
        await kept.aclose()
        assert b"200 OK" in await asked(small, b"x" * 1000)
        async with served.peer() as whole:
            assert b"200 OK" in await asked(whole, POST % 3000 + b"x" * 3000)
        again = await stack.enter_async_context(served.peer(POST % 900_000))
        for _ in range(18):
            await again.send(b"x" * 50_000)
        assert b"200 OK" in await until(again, b"0\r\n\r\n")
    assert sorted(one["bytes"] for one in served.app.asked) == [2000, 3000, 900_000]


async def test_a_connection_that_rests_too_long_is_closed() -> None:
    async with (
        serving(connections=CONNECTIONS.having(idle_seconds=SOON)) as served,
        served.peer() as stream,
    ):
        assert b"200 OK" in await asked(stream)
        assert await until_closed(stream) == b""


async def test_each_kind_of_refusal_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with serving() as served:
            for said in (b"\0", b"GET /" + b"x" * 600, HEAD + b"A: " + b"x" * 5000) * 5:
                async with served.peer(said) as stream:
                    await until_closed(stream)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("bridge")] == [
        "refused with 400: this is not an HTTP request, from 127.0.0.1",
        "refused with 414: the target of the request is too long, from 127.0.0.1",
        "refused with 431: the head of the request is too large, from 127.0.0.1",
    ]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """A process that has as many files open as it may."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in taken:
            os.close(one)


@pytest.mark.skipif(os.name != "posix", reason="there is no limit elsewhere")
async def test_without_a_descriptor_the_one_that_rests_longest_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as served, served.peer() as idle:
        assert b"200 OK" in await asked(idle)
        with socket.socket() as honest:
            honest.settimeout(0)
            with no_descriptor_left():
                with suppress(BlockingIOError):
                    honest.connect(("127.0.0.1", served.port))
                assert await until_closed(idle) == b""
                await anyio.wait_writable(honest)
                honest.send(GET)
                await anyio.wait_readable(honest)
                assert b"200 OK" in honest.recv(1000)
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == [
        "bridge.http.connections",
        "bridge.http.connections",
    ]


# By address, which loopback is not counted by


@dataclass(eq=False)
class Peer:
    """A connection of some address."""

    peer: str
    kept: bool = False
    site: str | None = None
    has_sent_all: bool = True
    refused: bool = False

    def refuse_more(self) -> None:
        self.refused = True

    def head_is_late(self) -> None: ...
    def check_body(self) -> None: ...
    def end_idle(self) -> None: ...
    def give_way(self) -> None: ...
    def read_no_more(self) -> None: ...
    def abort(self) -> None: ...


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [
        (["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"], [2]),
        (["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], [2]),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"], [2]),
        (["127.0.0.1", "::1", "127.0.0.1", "127.0.0.1", "", "", ""], []),
        (["10.1.2.3", "10.1.2.3", "10.1.2.3", "fe80::1%eth0"], []),
    ],
)
async def test_connections_of_one_address_are_bounded_unless_it_is_loopback_or_a_proxy(
    addresses: list[str], refused: list[int]
) -> None:
    connections = Connections(CONNECTIONS.having(each=2, proxies=["10.0.0.0/8"]), REQUESTS)
    peers = [Peer(address) for address in addresses]
    for peer in peers:
        connections.arrived(peer)
    assert [number for number, peer in enumerate(peers) if peer.refused] == refused
    for peer in peers:
        connections.left(peer)
    again = Peer(addresses[0])
    connections.arrived(again)
    assert not again.refused


@pytest.mark.skipif(sys.platform == "win32", reason="its loop has other transports")
async def test_a_short_answer_is_one_write_and_a_stream_sends_its_head_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[bytes] = []
    written = asyncio.selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def write(transport: Any, data: bytes) -> None:
        writes.append(bytes(data))
        written(transport, data)

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write", write)  # type: ignore[attr-defined]
    goes_on = anyio.Event()

    async def app(scope: Any, _: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await goes_on.wait()
        await send({"type": "http.response.body", "body": b"whole"})

    with anyio.fail_after(WAIT_SECONDS):
        async with listening(app) as url, httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/short")).text == "whole"
            assert [write for write in writes if write.startswith(b"HTTP/1.1")] == [writes[-1]]
            assert b"whole" in writes[-1]
            assert (await client.head("/short")).status_code == 200
            async with client.stream("GET", "/stream") as answer:
                assert answer.status_code == 200
                goes_on.set()
                assert await answer.aread() == b"whole"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may refuse its own hard limit")
def test_the_limit_of_descriptors_is_raised_as_far_as_it_may_be() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
        assert raise_descriptors() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("descriptors", "most", "new"),
    [(1_000_000, 12_000, 1024), (20_000, 12_000, 1024), (1024, 576, 96), (256, 144, 24), (8, 4, 1)],
)
def test_connections_stay_below_the_limit_of_descriptors(descriptors: int, most: int, new: int) -> None:
    wanted = HttpServerLimits(REQUESTS, CONNECTIONS.having(most=12_000, new=1024))
    assert wanted.within(descriptors).connections == CONNECTIONS.having(most=most, new=new)
