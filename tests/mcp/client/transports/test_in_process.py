"""The transport to a server object of this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.server import MCPServer

import bridge.testing
from bridge.errors import UsageError
from bridge.mcp.client.stderr import LastWords
from bridge.mcp.client.transports.in_process import InProcessTarget, in_process, low_level


def target_of(server: MCPServer, exit_seconds: float = 5.0) -> InProcessTarget:
    return InProcessTarget(
        "demo",
        low_level("demo", server),
        exit_seconds=exit_seconds,
        result_limit_bytes=1 << 20,
        result_json_values=1000,
    )


async def test_each_connection_has_a_lifespan_of_its_own_that_ends_with_it() -> None:
    heard: list[str] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        heard.append("begins")
        yield
        heard.append("ends")

    server = MCPServer("demo", lifespan=lifespan)
    for _ in range(2):
        async with in_process(target_of(server), "demo", LastWords()):
            await anyio.wait_all_tasks_blocked()
    assert heard == ["begins", "ends"] * 2


async def test_a_server_that_will_not_end_is_cancelled() -> None:
    cancelled = anyio.Event()

    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        yield
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise

    with anyio.fail_after(10):
        async with in_process(target_of(MCPServer("demo", lifespan=lifespan), 0.01), "demo", LastWords()):
            await anyio.wait_all_tasks_blocked()
    assert cancelled.is_set()


async def test_a_server_that_fails_ends_the_connection_and_its_error_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan(_: MCPServer) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    last_words = LastWords()
    async with in_process(target_of(MCPServer("demo", lifespan=lifespan)), "demo", last_words) as streams:
        with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
            await streams[0].receive()
    assert "LookupError: no database" in str(last_words)
    assert [one.levelno for one in caplog.records if one.exc_info] == [logging.ERROR]


async def test_a_server_and_its_caller_share_no_value() -> None:
    kept: list[dict[str, str]] = []
    server = MCPServer("demo", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def keep(words: dict[str, str]) -> str:
        """Keep words."""
        kept.append(words)
        return "kept"

    words: dict[str, str] = {"a": "b"}
    async with bridge.testing.agent(server) as agent:
        await agent.call("keep", words=words)
    kept[0]["a"] = "changed"
    assert words == {"a": "b"}


def test_an_object_of_another_kind_is_named() -> None:
    with pytest.raises(UsageError, match=r"tool server demo: builtins\.int is no MCP server"):
        low_level("demo", 7)
