"""What a probe reports at an address without the wanted peer, over loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest
from anyio.streams.tls import TLSListener, TLSStream
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse

from bridge.a2a.client.agent_card import CardSource
from bridge.assembly.health.findings import Health
from bridge.assembly.parts import Parts
from bridge.assembly.routes import Router, RoutingTable, readiness
from bridge.errors import PeerError
from bridge.http.client import GuardedClient
from bridge.http.probe import url_with_scheme
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.verifiers import Access
from bridge.mcp.client.session import Session
from tests.support.certificates import served_as
from tests.support.limits import card_bounds, server_settings, url_at
from tests.support.mcp_face import Face
from tests.support.mcp_serving import served
from tests.support.running import listening
from tests.support.sdk_server import HttpServer

At = Callable[[], AbstractAsyncContextManager[str]]

CARD: Final = {"name": "an agent", "skills": []}


@asynccontextmanager
async def an_agent() -> AsyncIterator[str]:
    async with listening(JSONResponse(CARD)) as url:
        yield url


async def unasked(*_: object) -> Health:
    raise AssertionError("a probe does not ask for the health of a bridge")


@asynccontextmanager
async def several_agents() -> AsyncIterator[str]:
    """The router of a bridge with two agents."""
    router = Router(
        FaceAddress(),
        Access([]),
        PlainTextResponse("unused"),
        lambda name: readiness(Parts(), starting=False, name=name),
        health=unasked,
    )
    router.routes = RoutingTable({"/agents/one": JSONResponse(CARD), "/agents/two": JSONResponse(CARD)})
    async with listening(router) as url:
        yield url


@asynccontextmanager
async def a_server() -> AsyncIterator[str]:
    async with served(Face()) as url:
        yield url


@asynccontextmanager
async def a_modern_server() -> AsyncIterator[str]:
    async with HttpServer(only="modern").run() as server:
        yield server.url


@asynccontextmanager
async def a_server_elsewhere() -> AsyncIterator[str]:
    async with served(Face()) as url:
        yield url.removesuffix("/mcp")


@asynccontextmanager
async def a_page() -> AsyncIterator[str]:
    async with listening(HTMLResponse("<h1>Welcome</h1>")) as url:
        yield url


@asynccontextmanager
async def a_page_with_a_header_beyond_ascii() -> AsyncIterator[str]:
    async with listening(HTMLResponse("<h1>Welcome</h1>", headers={"x-town": "M\xfcnchen"})) as url:
        yield url


@asynccontextmanager
async def a_port_with_tls() -> AsyncIterator[str]:
    async with anyio.TemporaryDirectory() as folder:
        context = served_as("x", Path(folder))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    tls = TLSListener(listener, context, standard_compatible=False)
    async with tls, anyio.create_task_group() as tasks:
        tasks.start_soon(tls.serve, _leave)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/x"
        tasks.cancel_scope.cancel()


async def _leave(stream: TLSStream) -> None:
    await stream.aclose()


INSTEAD_OF_A_SERVER: Final[dict[At, str]] = {
    an_agent: "It is an A2A agent: mcp-a2a expose {url} makes tools of it, and mcp-a2a call {url} calls it",
    several_agents: (
        "It serves several A2A agents, which {url}/agents lists: mcp-a2a expose makes tools of them"
    ),
    a_server_elsewhere: "There is an MCP server at {url}/mcp",
    a_page_with_a_header_beyond_ascii: "It is a web page. The path of an MCP server is often /mcp",
    a_page: "It is a web page. The path of an MCP server is often /mcp",
    a_port_with_tls: "It speaks HTTPS there: write https://{rest}",
}
INSTEAD_OF_AN_AGENT: Final[dict[At, str]] = {
    several_agents: ("It serves several agents, each at its own address: {url}/agents lists them"),
    a_server: (
        "It is an MCP server: mcp-a2a wrap {url} makes an agent of it, and mcp-a2a call {url} calls its tools"
    ),
    a_server_elsewhere: (
        "There is an MCP server at {url}/mcp: mcp-a2a wrap makes an agent of it, and mcp-a2a call calls its tools"
    ),
    a_page: (
        "It is a web page. Give the address of an agent, which has its card at /.well-known/agent-card.json below it"
    ),
    a_port_with_tls: "It speaks HTTPS there: write https://{rest}",
}


@pytest.mark.parametrize(
    ("at", "hint"), INSTEAD_OF_A_SERVER.items(), ids=lambda at: getattr(at, "__name__", "")
)
async def test_a_probe_says_what_is_there_in_place_of_a_tool_server(at: At, hint: str) -> None:
    with anyio.fail_after(30):
        async with (
            at() as url,
            Session("tools", url_at(url), settings=server_settings(connect_seconds=10)).run() as session,
        ):
            with pytest.raises(PeerError) as failed:
                await session.ready()
    assert str(failed.value).endswith(_filled(hint, url))


@pytest.mark.parametrize(
    ("at", "hint"), INSTEAD_OF_AN_AGENT.items(), ids=lambda at: getattr(at, "__name__", "")
)
async def test_a_probe_says_what_is_there_in_place_of_an_agent(at: At, hint: str) -> None:
    with anyio.fail_after(30):
        async with at() as url, httpx2.AsyncClient() as http:
            with pytest.raises(PeerError) as failed:
                await CardSource(http, url, None, card_bounds()).refresh()
    assert str(failed.value).endswith(_filled(hint, url))


async def test_a_session_opened_by_a_probe_is_closed_again() -> None:
    server = HttpServer()
    async with server.run(), httpx2.AsyncClient() as http:
        with pytest.raises(PeerError, match="It is an MCP server"):
            await CardSource(http, server.url, None, card_bounds()).refresh()
        assert server._manager is not None
        assert server._manager._server_instances == {}


async def test_an_address_from_a_peer_is_not_probed() -> None:
    asked: list[str] = []

    async def app(scope: dict[str, str], receive: object, send: object) -> None:
        asked.append(scope["method"])
        await HTMLResponse("<h1>Welcome</h1>")(scope, receive, send)  # type: ignore[arg-type]

    async with listening(app) as url, httpx2.AsyncClient() as http:
        with pytest.raises(PeerError, match="not JSON: ") as failed:
            await CardSource(http, url, None, card_bounds(), is_learned=True).refresh()
    assert "web page" not in str(failed.value)
    assert set(asked) == {"GET"}


async def test_an_abandoned_handshake_is_closed() -> None:
    shaken, hung_up = anyio.Event(), anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                if (await stream.receive()).startswith((b"GET", b"POST")):
                    return
                shaken.set()
                while await stream.receive():
                    pass
        if shaken.is_set():
            hung_up.set()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as serving,
        GuardedClient() as http,
    ):
        serving.start_soon(listener.serve, serve)
        url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        for seconds in (0.2, 1, 5):  # until it gets as far as the handshake
            with pytest.raises(PeerError):
                await CardSource(http, url, None, card_bounds(answer_seconds=seconds)).refresh()
            if shaken.is_set():
                break
        else:
            pytest.fail("it never got as far as the handshake")
        with anyio.fail_after(30):
            await hung_up.wait()
        serving.cancel_scope.cancel()


async def test_https_to_a_plain_port_is_reported() -> None:
    async with a_page() as url, httpx2.AsyncClient() as http:
        secure = url.replace("http", "https")
        with pytest.raises(PeerError, match=r"cannot be reached: it speaks plain HTTP there: write http://$"):
            await CardSource(http, secure, None, card_bounds()).refresh()
        async with Session("tools", url_at(secure), settings=server_settings()).run() as session:
            with pytest.raises(
                PeerError, match=r"cannot be reached: it speaks plain HTTP there: write http://$"
            ):
                await session.ready()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8302", "http://localhost:8302"),
        ("localhost", "http://localhost"),
        ("127.0.0.1:8302/mcp", "http://127.0.0.1:8302/mcp"),
        ("[::1]:8302", "http://[::1]:8302"),
        ("tools.example.com/mcp", "https://tools.example.com/mcp"),
        ("tools:8302", "http://tools:8302"),
        ("somewhere", None),
        ("[nonsense", None),
    ],
)
def test_a_url_without_its_scheme_is_recognized(text: str, url: str | None) -> None:
    assert url_with_scheme(text) == url


def _filled(hint: str, url: str) -> str:
    return hint.format(url=url, rest=url.removeprefix("http://"))
