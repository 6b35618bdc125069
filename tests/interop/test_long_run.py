"""One run that really lasts: a minute and a half, most of it in silence."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import anyio
import pytest
from mcp import Client, stdio_client

from tests.interop.conversation import (
    COMPLETED,
    WORKING,
    Outcome,
    Reply,
    calling,
    client_of,
    converse,
)
from tests.interop.test_exposed import expose_command
from tests.peers import PeerClient
from tests.peers.node import everything_command, require_peers
from tests.peers.py_client import PyClient
from tests.support.command import wrapping

SECONDS: Final = 90
STEPS: Final = 9
READ_SECONDS: Final = 5.0
"""a2a-sdk's own timeout between two chunks: half of the silence between two steps."""


@pytest.mark.slow
@pytest.mark.proves("sse-heartbeat", "map-progress", "map-server-tasks")
async def test_two_clients_follow_their_runs_of_ninety_seconds_to_the_end(tmp_path: Path) -> None:
    require_peers()
    outcomes = {"py": Outcome(), "js": Outcome()}

    async def follow(name: str, client: PeerClient) -> None:
        async for event in client.stream(
            calling("trigger-long-running-operation", duration=SECONDS, steps=STEPS)
        ):
            outcomes[name].see(event)

    store = ("--store", str(tmp_path / "tasks.db"))
    with wrapping(*store, state=tmp_path, server=tuple(everything_command())) as bridge:
        async with (
            PyClient(bridge.url, "JSONRPC", wait_seconds=READ_SECONDS) as py,
            client_of(("js", "HTTP+JSON"), bridge.url) as js,
        ):
            with anyio.fail_after(SECONDS + 30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follow, "py", py)
                    tasks.start_soon(follow, "js", js)
                    snake = Reply("multiple interpretations", {"interpretation": "snake"})
                    request = calling("simulate-research-query", topic="python", ambiguous=True)
                    research = await converse(js, request, [snake], streamed=True)
                    assert {outcome.state for outcome in outcomes.values()} == {WORKING}
            assert research.parts[0]["text"].startswith("# Research Report: python (snake)\n")
            for outcome in outcomes.values():
                assert outcome.state == COMPLETED
                assert [numbers["progress"] for numbers in outcome.progress] == list(range(1, STEPS + 1))
                assert outcome.parts[0]["text"] == (
                    f"Long running operation completed. Duration: {SECONDS} seconds, Steps: {STEPS}."
                )
                kept = Outcome.of(await py.get(outcome.task_id))
                assert (kept.state, kept.parts) == (COMPLETED, outcome.parts)
        assert bridge.stop(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_a_host_comes_back_to_an_agent_that_takes_ninety_seconds(tmp_path: Path) -> None:
    """With the deadlines as they are by default: the handle comes at 50 s, before the host would give up."""
    require_peers()
    with wrapping(state=tmp_path, server=tuple(everything_command())) as bridge:
        async with Client(
            stdio_client(expose_command(bridge.url, tmp_path)), mode="auto", cache=None
        ) as host:
            with anyio.fail_after(SECONDS + 30):
                began = anyio.current_time()
                arguments = {"duration": SECONDS, "steps": STEPS}
                result = await host.call_tool("trigger-long-running-operation", arguments)
                assert anyio.current_time() - began < 60
                words = getattr(result.content[0], "text", "")
                assert "is still at work after 50 s" in words
                handle = words.rpartition(" ")[2]
                while "still at work" in words:
                    result = await host.call_tool("task_result", {"handle": handle, "wait_seconds": 49})
                    words = getattr(result.content[0], "text", "")
            assert words == f"Long running operation completed. Duration: {SECONDS} seconds, Steps: {STEPS}."
            assert not result.is_error
