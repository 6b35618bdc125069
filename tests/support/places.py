"""Tool servers at a URL, of every kind that the bridge speaks to, each behind a proxy of ours and wrapped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.server.sse import SseServerTransport
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.config.tables.profile import Profile
from bridge.mcp.client.eras import Era
from tests.peers.node import everything_http_command, require_peers
from tests.support.limits import url_at
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxy_to
from tests.support.running import Rpc, Running, call_part, config_for, listening, profile_with, running, texts
from tests.support.sdk_server import HttpServer, Tools

CALL: Final = b'"tools/call"'
Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A kind of server: how it is started, spoken to, and asked to say something back."""

    start: Callable[[], Any]
    era: Era
    text: str = "text"
    """The argument of its tool `echo`."""
    lasting: tuple[str, Json] = ("wait", {})
    """A call that does not end by itself while a test runs."""
    answers_posts: bool = True
    """Whether the answer to a call is the response to its request, as in all but HTTP+SSE."""


@asynccontextmanager
async def _streamable() -> AsyncIterator[str]:
    async with HttpServer().run() as server:
        yield server.url


@asynccontextmanager
async def _http_sse() -> AsyncIterator[str]:
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
        yield f"{root_url}/sse"


@asynccontextmanager
async def _everything(transport: str, path: str) -> AsyncIterator[str]:
    require_peers()
    port = free_port()
    process = await anyio.open_process(
        everything_http_command(transport),
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    async with process:
        assert process.stderr is not None
        try:
            with anyio.fail_after(20):
                async for chunk in process.stderr:
                    if b"on port" in chunk:
                        break
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            with suppress(ProcessLookupError):
                process.kill()


_LONG_RUN: Final = "trigger-long-running-operation", {"duration": 60, "steps": 1}
PLACES: Final = {
    "legacy": Place(_streamable, Era.LEGACY),
    "modern": Place(_streamable, Era.MODERN),
    "sse": Place(_http_sse, Era.LEGACY, answers_posts=False),
    "everything": Place(lambda: _everything("streamableHttp", "/mcp"), Era.LEGACY, "message", _LONG_RUN),
    "everything-sse": Place(
        lambda: _everything("sse", "/sse"), Era.LEGACY, "message", _LONG_RUN, answers_posts=False
    ),
}


@dataclass(frozen=True)
class Wrapped:
    """A bridge to a server behind a proxy, and a client of it."""

    place: Place
    proxy: Proxy
    bridge: Running
    rpc: Rpc

    @property
    def calls(self) -> int:
        """How many calls of tools have reached the server."""
        return self.proxy.count(CALL)

    async def call(self, skill: str, **arguments: Any) -> Json:
        """The task that a call makes, once it has ended."""
        with anyio.fail_after(30):
            task: Json = await self.rpc.send(call_part(skill, **arguments))
            return task

    async def echo(self, text: str) -> Json:
        """The task in which the server says a text back."""
        return await self.call("echo", **{self.place.text: text})

    async def works(self, text: str = "still here") -> None:
        """Make sure that a call completes, sent once, and gives the whole text."""
        before = self.calls
        task = await self.echo(text)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        (said,) = texts(task["artifacts"][0]["parts"])
        assert said.removeprefix("Echo: ") == text
        assert self.calls == before + 1


@asynccontextmanager
async def wrapped_at(
    place: str, profile: Profile | None = None, started: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Wrapped]:
    """A server of one of the places, behind a proxy, wrapped. `started` has the URLs of those that run already."""
    kind = PLACES[place]
    profile = profile or profile_with(server={"connect_seconds": 3.0, "longest_pause_seconds": 0.1})
    async with AsyncExitStack() as stack:
        url = started.get(place) or await stack.enter_async_context(kind.start())
        proxy = await stack.enter_async_context(proxy_to(urlsplit(url).port))
        target = url_at(proxy.url(urlsplit(url).path))
        config = config_for(target, era=kind.era, profile=profile)
        async with running(config) as bridge, httpx2.AsyncClient(timeout=60) as http:
            yield Wrapped(kind, proxy, bridge, Rpc(http, bridge.base_url))
        await proxy.until(lambda: not proxy.connections)
