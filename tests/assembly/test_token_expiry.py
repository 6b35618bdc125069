"""Streams that have begun end when the JSON Web Token of their client expires, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest

from tests.assembly.test_issuers import Guarded, trusting
from tests.support.drivers import JsonRpcDriver, new_client
from tests.support.issuer import LIMITS, bearer
from tests.support.mcp_wire import LEGACY, MODERN, Http
from tests.support.running import call_part

LIFE_SECONDS: Final = 10
"""How long the token still counts that expires in the test, less than `live` gives the test."""

Open = Callable[[Guarded, httpx2.AsyncClient, anyio.Event], Awaitable[None]]
"""Opens a stream, tells that it has begun, and returns once it has ended."""


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved."""

    ahead_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_seconds


async def stream_of_agent(there: Guarded, client: httpx2.AsyncClient, begun: anyio.Event) -> None:
    driver = JsonRpcDriver(client, f"{there.live.url}/agents/a")
    async with driver.working(call_part("hold")) as (_, events):
        begun.set()
        assert await events.rest() == []


async def stream_of_mcp(there: Guarded, client: httpx2.AsyncClient, begun: anyio.Event) -> None:
    http = Http(client, f"{there.live.url}/mcp/m", MODERN)
    wanted = {"notifications": {"toolsListChanged": True}}
    async with http.stream(http.message("listen", "subscriptions/listen", wanted)) as messages:
        assert (await anext(messages))["method"].endswith("acknowledged")
        begun.set()
        assert [one["id"] async for one in messages] == ["listen"]


async def stream_of_older_mcp(there: Guarded, client: httpx2.AsyncClient, begun: anyio.Event) -> None:
    http = Http(client, f"{there.live.url}/mcp/m", LEGACY)
    await http.open()
    headers = {**http.headers({}), "accept": "text/event-stream"}
    async with client.stream("GET", http.url, headers=headers) as response:
        assert response.status_code == 200
        begun.set()
        assert [line async for line in response.aiter_lines() if "method" in line] == []


@pytest.mark.proves("oauth-expiry")
@pytest.mark.parametrize(
    ("audience", "open_stream"),
    [("api://a", stream_of_agent), ("api://m", stream_of_mcp), ("api://m", stream_of_older_mcp)],
    ids=["A2A", "MCP", "MCP 2025-11-25"],
)
def test_a_stream_ends_with_the_token_that_opened_it_and_no_other_does(
    audience: str, open_stream: Open, tmp_path: Path
) -> None:
    loop = MovedLoop()
    ended: list[str] = []

    async def read(there: Guarded, name: str, life_seconds: int, begun: anyio.Event) -> None:
        expiry = int(time.time()) + life_seconds - int(LIMITS.leeway_seconds)
        token = there.issuer.token(audience, name, exp=expiry)
        async with new_client() as client:
            client.headers.update(bearer(token))
            await open_stream(there, client, begun)
        ended.append(name)

    async def main() -> None:
        async with trusting(tmp_path) as there, anyio.create_task_group() as streams:
            for name, life_seconds in (("long", 3600), ("short", LIFE_SECONDS)):
                begun = anyio.Event()
                streams.start_soon(read, there, name, life_seconds, begun)
                await begun.wait()
            assert ended == []
            loop.ahead_seconds += LIFE_SECONDS
            while not ended:
                await anyio.sleep(0.01)
            assert ended == ["short"]
            await there.live.apply(issuers={})
            there.tools.released.set()
        assert ended == ["short", "long"]

    anyio.run(main, backend_options={"loop_factory": lambda: loop})
