"""A server with resources and prompts, wrapped and exposed again: a host sees what the server itself shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.stdio import StdioTarget
from tests.conformance.server import FixtureServer
from tests.peers.node import (
    everything_command,
    filesystem_command,
    memory_command,
    memory_environment,
    require_peers,
)
from tests.support.exposing import exposing
from tests.support.limits import command_of, url_at
from tests.support.running import config_for, listening, profile_with, running
from tests.support.shared_walk import Json, raw, walk

pytestmark = pytest.mark.proves("map-mcp-requests")

each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


@asynccontextmanager
async def through(
    folder: Path, target: Any, mode: str, era: Era = Era.AUTO, **options: Any
) -> AsyncIterator[Client]:
    """A client of a server that is wrapped and exposed again."""
    profile = profile_with(content={"allow_file_links": True})
    config = config_for(target, era=era, profile=profile, share=("resources", "prompts"))
    async with (
        running(config) as bridge,
        exposing(folder, bridge.base_url) as there,
        there.client(mode, **options) as client,
    ):
        yield client


@each_mode
@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
@pytest.mark.smoke("legacy-auto", "modern-legacy")
async def test_a_server_of_either_era_is_the_same_through_both_halves(
    mode: str, era: Era, tmp_path: Path
) -> None:
    direct_mode = "legacy" if era is Era.LEGACY else "auto"
    async with FixtureServer().serve() as app, listening(app) as url:
        async with Client(f"{url}/mcp", mode=direct_mode, cache=None) as directly:
            expected = await walk(directly)
        async with through(tmp_path, url_at(f"{url}/mcp"), mode, era) as client:
            seen = await walk(client)
    # Its question is passed on only to a client that can be asked; see below.
    differing_most = {"get test_input_required_result_prompt {}"} if era is Era.MODERN else set()
    assert differing(seen, expected).keys() == differing_most
    assert len(expected) > 20


async def test_a_question_before_a_prompt_reaches_a_client_that_can_be_asked(tmp_path: Path) -> None:
    async def answer(_: Any, __: Any) -> types.ElicitResult:
        raise AssertionError("this test answers by itself")

    name = "test_input_required_result_prompt"
    async with (
        FixtureServer().serve() as app,
        listening(app) as url,
        through(tmp_path, url_at(f"{url}/mcp"), "auto", Era.MODERN, elicitation_callback=answer) as client,
    ):
        asked = await raw(client, "prompts/get", {"name": name})
        assert list(asked["inputRequests"]) == ["user_context"]
        answers = {"user_context": {"action": "accept", "content": {"context": "a trip"}}}
        got = await raw(client, "prompts/get", {"name": name, "inputResponses": answers})
        assert "a trip" in got["messages"][0]["content"]["text"]


def differing(seen: Json, expected: Json) -> Json:
    """What differs between two walks."""
    return {
        key: (seen.get(key), expected.get(key))
        for key in seen | expected
        if seen.get(key) != expected.get(key)
    }


@asynccontextmanager
async def direct(target: StdioTarget) -> AsyncIterator[Client]:
    """A client of a server on stdio."""
    parameters = StdioServerParameters(
        command=target.argv[0], args=list(target.argv[1:]), env=dict(target.env)
    )
    async with Client(stdio_client(parameters), mode="auto", cache=None) as client:
        yield client


@pytest.mark.parametrize("server", ["everything", "filesystem", "memory"])
@pytest.mark.smoke("everything")
async def test_real_servers_are_the_same_through_both_halves(server: str, tmp_path: Path) -> None:
    require_peers()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("hello")
    targets = {
        "everything": command_of(tuple(everything_command())),
        "filesystem": command_of(tuple(filesystem_command(tmp_path / "files"))),
        "memory": command_of(tuple(memory_command()), env=memory_environment(tmp_path / "graph.jsonl")),
    }
    async with direct(targets[server]) as client:
        expected = await walk(client)
    async with through(tmp_path, targets[server], "auto") as client:
        seen = await walk(client)
    assert differing(seen, expected) == {}


async def test_updates_of_a_real_server_reach_a_subscriber(tmp_path: Path) -> None:
    require_peers()
    heard: list[str] = []
    told = anyio.Event()

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.append(str(message.params.uri))
            told.set()

    target = command_of(tuple(everything_command()))
    async with through(tmp_path, target, "legacy", message_handler=note) as client:
        listed = await raw(client, "resources/list", {})
        uri = next(one["uri"] for one in listed["resources"] if not one["uri"].startswith("a2a://"))
        assert await raw(client, "resources/subscribe", {"uri": uri}) == {}
        await client.call_tool("toggle-subscriber-updates", {})
        with anyio.fail_after(30):
            await told.wait()
        assert heard[0] == uri
        assert await raw(client, "resources/unsubscribe", {"uri": uri}) == {}
