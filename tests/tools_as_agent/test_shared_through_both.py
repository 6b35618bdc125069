"""A server whose resources and prompts cross A2A and come out of an MCP server of the bridge again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import OfferedPlan
from bridge.mcp.client.eras import Era
from tests.assembly.test_bridge import PROFILE, agent
from tests.support.notes_server import PUBLIC, SECRET
from tests.tools_as_agent.test_shared_requests import BOTH, LIMITED, notes, person

pytestmark = pytest.mark.proves("map-mcp-requests")


@pytest.mark.parametrize("era", [Era.MODERN, Era.LEGACY])
async def test_a_host_gets_what_the_server_has(tmp_path: Path, era: Era) -> None:
    async with notes(tmp_path, era, offered={"m": OfferedPlan(("desk",), PROFILE)}) as (kept, there):
        async with there.mcp("m") as client:
            listed, cursor = [], None
            while True:
                page = await client.list_resources(cursor=cursor)
                listed += [str(one.uri) for one in page.resources]
                if (cursor := page.next_cursor) is None:
                    break
            assert [uri for uri in listed if uri.startswith("note:")] == [*PUBLIC, SECRET]
            read = await client.read_resource(PUBLIC[0])
            assert read.contents[0].text == f"the text of {PUBLIC[0]}"  # type: ignore[union-attr]
            prompts = [one.name for one in (await client.list_prompts()).prompts]
            assert {"greet", "leak"} <= set(prompts)
            assert (await client.get_prompt("greet", {"a": "b"})).messages
            with pytest.raises(MCPError) as caught:
                await client.read_resource("note:///public/none")
            # 2026-07-28 has another code than the server used, which is of 2025-11-25
            assert (caught.value.code, str(caught.value)) == (-32602, "Resource not found")
        assert PUBLIC[0] in kept.read


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_links_in_results_and_prompts_lead_to_what_is_listed(tmp_path: Path, mode: str) -> None:
    both = {name: agent("notes", share=BOTH) for name in ("desk", "other")}
    plan: dict[str, Any] = {"published": both, "offered": {"m": OfferedPlan((*both,), PROFILE)}}
    async with notes(tmp_path, **plan) as (_, there), there.mcp("m", mode=mode) as client:
        called = await client.call_tool("other_count", {"to": 1})
        prompt = await client.get_prompt("other_leak")
        for blocks in (called.content, [message.content for message in prompt.messages]):
            linked = [block.uri for block in blocks if block.type == "resource_link"]
            expected = [f"a2a://other/r/{uri}" for uri in (*PUBLIC, SECRET)]
            # Whoever can see a web address can fetch it, and needs no MCP server.
            assert linked == [*expected, "https://example.com/a"]
            (embedded,) = [block.resource for block in blocks if block.type == "resource"]
            assert embedded.uri == expected[-1]
            for uri in expected:
                (read,) = (await client.read_resource(uri)).contents
                assert read.uri == uri
                text = f"the text of {uri.removeprefix('a2a://other/r/')}"
                assert read.text == text  # type: ignore[union-attr]


async def test_the_rules_of_a_principal_hold_behind_an_mcp_server(tmp_path: Path) -> None:
    people = [person("ann"), person("bob", **{**LIMITED, "skills": ("*",)})]
    plan: dict[str, Any] = {"offered": {"m": OfferedPlan(("desk",), PROFILE)}, "credentials": people}
    async with notes(tmp_path, **plan) as (kept, there):
        headers = {"Authorization": "Bearer bob-token"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{there.url}/mcp/m", http_client=http)
            async with Client(transport, mode="auto", cache=None) as bob:
                assert (await bob.read_resource(PUBLIC[0])).contents
                with pytest.raises(MCPError):
                    await bob.read_resource(SECRET)
        assert SECRET not in kept.read
