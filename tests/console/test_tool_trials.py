"""Tools of an MCP server made of agents, tried by a person: as a host would call them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.access.principals import Principal
from bridge.access.verifiers import Credential
from bridge.assembly.bridge import Bridge
from bridge.assembly.call_lines import command_line, mcp_line
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, PublishedPlan, ServerPlan
from bridge.console.app import ConsoleApp
from bridge.console.tool_trials import shown_block
from bridge.mcp.client.eras import Era
from tests.console.test_tasks import HOSTILE, PROFILE, WAIT_SECONDS
from tests.support.console import ConsoleBrowser
from tests.support.running import listening
from tests.support.tool_server import ToolServer, listed

ADA = Credential(Principal("ada", skills=("devtools/*", "team/echo")), "token-of-ada")


@asynccontextmanager
async def offering(
    tmp_path: Path, *credentials: Credential
) -> AsyncIterator[tuple[ConsoleBrowser, ToolServer]]:
    """A bridge whose server `team` is made of its own agent `devtools`."""
    late: list[Bridge] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await late[0].app(scope, receive, send)

    tools = [listed(tool, text={"type": "string"}) for tool in ("echo", "fail")]
    with anyio.fail_after(WAIT_SECONDS):
        async with ToolServer("tools", tools).run() as server, listening(app) as url:
            plan = Plan(
                PROFILE,
                ProcessPlan(console=True, keys=("k" * 32,), state=tmp_path, cache=tmp_path / "cache"),
                credentials,
                servers={
                    "tools": ServerPlan.as_profile_says(
                        server.target, Era.MODERN, PROFILE.server, PROFILE.run
                    )
                },
                published={"devtools": PublishedPlan(("tools",), PROFILE, "memory:")},
                offered={"team": OfferedPlan(("devtools",), PROFILE)},
            )
            bridge = Bridge(plan, own_url=url)
            bridge.app.console = ConsoleApp(bridge, plan.place)
            late.append(bridge)
            async with bridge.run():
                await bridge.apply(plan)
                yield ConsoleBrowser(bridge, url), server
                await bridge.drain(0)


@pytest.mark.outside
async def test_a_tool_is_called_and_its_result_shown_as_what_it_is(tmp_path: Path) -> None:
    async with offering(tmp_path) as (browser, server):
        (team,) = (await browser.reads("/try"))["servers"]
        assert [tool["id"] for tool in team["tools"]] == ["echo", "fail"]
        page = await browser.opens("/try/mcp/team/echo")
        assert 'data-action="/try/mcp/team/echo"' in page.text
        url, typed = f"{browser.base_url}/mcp/team", {"text": HOSTILE}
        for arguments in ({}, typed):
            lines = (await browser.posts("/lines/mcp/team/echo", {"arguments": arguments})).json()
            assert lines == {
                "call": command_line(url, "echo", arguments),
                "curl": mcp_line(url, "echo", arguments),
                "protocol": "MCP",
            }
        assert (await browser.posts("/lines/mcp/team/nothing", {"arguments": {}})).status_code == 404
        answer = (await browser.posts("/try/mcp/team/echo", {"arguments": {"text": HOSTILE}})).json()
        assert server.calls == [("echo", {"text": HOSTILE})]
        assert answer["failed"] is False
        assert answer["parts"][0]["is"] == "text"
        assert "onerror=alert" in answer["parts"][0]["text"]
        assert json.loads(answer["raw"])["content"]
        failed = (await browser.posts("/try/mcp/team/fail", {"arguments": {}})).json()
        assert failed["failed"] is True
        wrong = await browser.posts("/try/mcp/team/echo", {"arguments": {"text": 7}})
        assert (wrong.status_code, wrong.json()["problems"][0]["name"]) == (422, "text")


@pytest.mark.outside
async def test_a_visitor_tries_the_tools_that_it_may_use(tmp_path: Path) -> None:
    async with offering(tmp_path, ADA) as (browser, server):
        assert await browser.signs_in(ADA.token) == 200
        await browser.opens()
        (team,) = (await browser.reads("/try"))["servers"]
        assert [tool["id"] for tool in team["tools"]] == ["echo"]
        assert (await browser.posts("/try/mcp/team/fail", {"arguments": {}})).status_code == 404
        assert (await browser.posts("/try/mcp/other/echo", {"arguments": {}})).status_code == 404
        assert server.calls == []


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "a\u202eb"}, {"is": "text", "text": "a\\u202eb"}),
        (
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"is": "image", "name": "image/png", "file": "data:image/png;base64,AAAA"},
        ),
        (
            {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"},
            {"is": "file", "name": "image", "file": "data:application/octet-stream;base64,AAAA"},
        ),
        (
            {"type": "resource_link", "uri": "javascript:alert(1)"},
            {"is": "link", "url": "javascript:alert(1)", "web": None},
        ),
        ({"type": "unheard of"}, {"is": "json", "value": {"type": "unheard of"}}),
    ],
)
def test_a_block_is_shown_as_what_it_is_and_never_run(block: Any, shown: Any) -> None:
    assert shown_block(block) == shown
