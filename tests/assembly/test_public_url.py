"""A bridge behind a proxy: what it tells others of its address is not how it calls itself."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from tests.support.running import listening, profile_with
from tests.support.tool_server import ToolServer, listed

PUBLIC_URL = "https://bridge.example.com"
ALICE = Credential(Principal("alice"), "a-90d3")
PROFILE = profile_with()


@pytest.mark.parametrize("credentials", [(), (ALICE,)], ids=["open", "with-principals"])
async def test_a_server_made_of_own_agents_calls_them_here_and_not_at_their_public_address(
    credentials: tuple[Credential, ...], tmp_path: Path
) -> None:
    place = ProcessPlan(public_url=PUBLIC_URL, state=tmp_path / "state", cache=tmp_path / "cache")
    async with ToolServer("one", [listed("echo")]).run() as tools:
        plan = Plan(
            PROFILE,
            place,
            credentials,
            servers={
                "one": ServerPlan.as_profile_says(tools.target, Era.MODERN, PROFILE.server, PROFILE.run)
            },
            published={"a": PublishedPlan(("one",), PROFILE, "memory:")},
            offered={"m": OfferedPlan(("a",), PROFILE)},
        )
        late: list[Bridge] = []

        async def app(scope: object, receive: object, send: object) -> None:
            await late[0].app(scope, receive, send)  # type: ignore[arg-type]

        with anyio.fail_after(30):
            async with listening(app) as url, Bridge(plan, own_url=url).run() as bridge:
                late.append(bridge)
                await bridge.apply(plan)
                headers = {"Authorization": "Bearer a-90d3"} if credentials else {}
                async with httpx2.AsyncClient(headers=headers) as http:
                    card = (await http.get(f"{url}/agents/a/.well-known/agent-card.json")).json()
                    assert {one["url"] for one in card["supportedInterfaces"]} == {f"{PUBLIC_URL}/agents/a"}
                    transport = streamable_http_client(f"{url}/mcp/m", http_client=http)
                    async with Client(transport, cache=None) as host:
                        result = await host.call_tool("echo", {})
                        assert not result.is_error, result
                await bridge.drain(0)
