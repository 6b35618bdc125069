"""What a rule or a right keeps back it also keeps back for want of a peer that nobody has ever reached: a bridge that
starts while the peer is down, until after it has come up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import CatalogPlan, OfferedPlan, RemotePlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.translate.overrides import SkillOverride, ToolOverride
from tests.assembly.test_bridge import PROFILE, Live, agent, live, server
from tests.support.limits import url_at
from tests.support.proxy import Proxy, proxy_to
from tests.support.running import Rpc, call_part
from tests.support.tool_server import ToolServer, listed

pytestmark = pytest.mark.proves("map-rules-hold")

ADA, EVE = "ada-token", "eve-token"
NOWHERE = "http://127.0.0.1:9/"
SEARCH = PROFILE.having(agents=PROFILE.agents.having(granularity="search"))


def callers(*globs: str) -> list[Credential]:
    """Ada, who may use all, and Eve, who may use these."""
    return [Credential(Principal("ada"), ADA), Credential(Principal("eve", skills=globs), EVE)]


@dataclass
class Tools:
    """Two tool servers with tools of the same names. `a` is behind a proxy that begins closed."""

    a: ToolServer
    b: ToolServer
    door: Proxy
    plan: dict[str, Any]

    @property
    def called(self) -> list[str]:
        """The tools that were called, of both."""
        return [name for one in (self.a, self.b) for name, _ in one.calls]


@asynccontextmanager
async def two() -> AsyncIterator[Tools]:
    async with AsyncExitStack() as stack:
        made = [ToolServer(name, [listed("delete"), listed(f"only_{name}")]) for name in ("a", "b")]
        a, b = [await stack.enter_async_context(one.run()) for one in made]
        door = await stack.enter_async_context(proxy_to(urlsplit(a.url).port or 0))
        door.refuse()
        plan = {"a": server(url_at(door.url("/mcp"))), "b": server(b.target)}
        yield Tools(a, b, door, plan)


async def skills(there: Live, token: str = "", name: str = "d") -> list[str]:
    """The skills on the card, for a caller the extended one."""
    if not token:
        return await there.skills(name)
    rpc = Rpc(there.client, f"{there.url}/agents/{name}", {"Authorization": f"Bearer {token}"})
    return [skill["id"] for skill in (await rpc.call("GetExtendedAgentCard", {}))["skills"]]


async def sent(there: Live, skill: str, token: str = "", name: str = "d") -> str:
    """What becomes of a call."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    rpc = Rpc(there.client, f"{there.url}/agents/{name}", headers)
    task = await rpc.send(call_part(skill))
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


@asynccontextmanager
async def host(there: Live, name: str = "m", token: str = "") -> AsyncIterator[Client]:
    """A host at an MCP server."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport = streamable_http_client(f"{there.url}/mcp/{name}", http_client=http)
        async with Client(transport, mode="auto", cache=None) as client:
            yield client


async def listed_tools(client: Client) -> set[str]:
    own = {"task_result", "task_reply", "task_cancel", "find_skill", "call_skill"}
    return {tool.name for tool in (await client.list_tools()).tools} - own


async def refused(client: Client, name: str, how: str = "") -> bool:
    """Whether a call is refused as one of no tool."""
    try:
        if how == "search":
            result = await client.call_tool("call_skill", {"skill": name, "arguments": {}})
            return bool(result.is_error) and "There is no skill" in str(result.content)
        await client.call_tool(name, {})
    except MCPError as exc:
        return "Unknown tool" in str(exc)
    return False


async def up(there: Live, tools: Tools, name: str = "d") -> None:
    """Let `a` come up, and wait until its tools are shown."""
    await tools.door.accept()
    while "only_a" not in await there.skills(name):
        await anyio.sleep(0.05)


HIDDEN: Mapping[str, SkillOverride] = {
    "a_delete": SkillOverride(hidden=True),
    "b_delete": SkillOverride(hidden=True),
}


async def test_a_hidden_skill_is_not_served_while_the_other_server_was_never_up(tmp_path: Path) -> None:
    async with two() as tools:
        published = {"d": agent("a", "b", overrides=HIDDEN)}
        async with live(tmp_path, servers=tools.plan, published=published) as there:
            for shown in (["only_b"], ["only_a", "only_b"], ["only_a", "only_b"]):
                assert await there.skills("d") == shown
                for name in ("delete", "a_delete", "b_delete"):
                    assert await sent(there, name) == "INPUT_REQUIRED"
                if shown == ["only_b"]:
                    await up(there, tools)
                else:
                    tools.a.tools = [listed("only_a")]  # it comes back with other tools
                    tools.door.drop_all()
            assert tools.called == []


async def test_a_call_is_confirmed_while_the_other_server_was_never_up(tmp_path: Path) -> None:
    async with two() as tools:
        published = {"d": agent("a", "b", overrides={"b_delete": SkillOverride(confirm=True)})}
        async with live(tmp_path, servers=tools.plan, published=published) as there:
            assert await sent(there, "delete") == "AUTH_REQUIRED"
            await up(there, tools)
            assert await sent(there, "b_delete") == "AUTH_REQUIRED"
            assert tools.called == []


@pytest.mark.parametrize("globs", [("delete",), ("a_delete",), ("d*", "a_*")], ids=str)
async def test_a_right_is_no_right_to_another_tool_while_its_server_was_never_up(
    globs: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two() as tools:
        plan = {"published": {"d": agent("a", "b")}, "credentials": callers(*globs)}
        async with live(tmp_path, servers=tools.plan, **plan) as there:
            words = (
                "eve may not use delete of d before all tools of a are known: one of them may have that name; a right"
                " to b_delete holds at once"
            )
            assert (words in caplog.messages) is (globs != ("a_delete",))
            assert "delete" in await skills(there, ADA)
            assert await skills(there, EVE) == ["unavailable"]
            assert await sent(there, "delete", EVE) == "INPUT_REQUIRED"
            assert tools.called == []
            await tools.door.accept()
            while "b_delete" not in await skills(there, ADA):
                await anyio.sleep(0.05)
            assert await sent(there, "delete", EVE) == "INPUT_REQUIRED"
            assert await sent(there, "b_delete", EVE) == "INPUT_REQUIRED"
            assert tools.called == []


async def test_a_right_by_server_and_tool_holds_under_either_name(tmp_path: Path) -> None:
    async with two() as tools:
        plan = {"published": {"d": agent("a", "b")}, "credentials": callers("b_delete")}
        async with live(tmp_path, servers=tools.plan, **plan) as there:
            assert await skills(there, EVE) == ["delete"]
            assert await sent(there, "delete", EVE) == "COMPLETED"
            await tools.door.accept()
            while await skills(there, EVE) != ["b_delete"]:
                await anyio.sleep(0.05)
            assert await sent(there, "b_delete", EVE) == "COMPLETED"
            assert tools.a.calls == []


async def test_a_server_that_a_reload_adds_while_it_is_down_takes_no_rule_away(tmp_path: Path) -> None:
    rules = {"b_delete": SkillOverride(hidden=True)}
    async with two() as tools:
        published = {"d": agent("b", overrides=rules)}
        async with live(
            tmp_path, servers={"b": tools.plan["b"]}, published=published, credentials=callers("only_b")
        ) as there:
            assert await skills(there, EVE) == ["only_b"]
            await there.apply(servers=tools.plan, published={"d": agent("a", "b", overrides=rules)})
            assert await skills(there, ADA) == ["only_b"]
            assert await skills(there, EVE) == ["unavailable"]
            await tools.door.accept()
            while "only_a" not in await skills(there, ADA):
                await anyio.sleep(0.05)
            assert await skills(there, EVE) == ["only_b"]


async def test_what_was_asked_about_one_tool_is_not_given_to_another_of_that_id(tmp_path: Path) -> None:
    """The answer to a question about a skill `delete` comes once that is the id of another server's tool."""
    async with two() as tools:
        asks = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        tools.a.tools = [{"name": "delete", "inputSchema": asks}]
        tools.b.tools = [{"name": "delete", "inputSchema": asks}]
        published = {"d": agent("b")}
        async with live(tmp_path, servers={"b": tools.plan["b"]}, published=published) as there:
            rpc = there.rpc("d")
            asked = await rpc.send(call_part("delete"))
            assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            await tools.door.accept()
            await there.apply(servers={"a": tools.plan["a"]}, published={"d": agent("a")})
            assert await there.skills("d") == ["delete"]
            answered = await rpc.send({"data": {"n": 1}}, taskId=asked["id"])
            assert answered["status"]["state"] != "TASK_STATE_COMPLETED"
            assert tools.called == []


@pytest.mark.parametrize("how", ["skill", "search"])
@pytest.mark.parametrize("missing", ["agent", "catalog"])
async def test_a_hidden_tool_of_an_agent_is_not_offered_while_the_other_was_never_up(
    how: str, missing: str, tmp_path: Path
) -> None:
    async with two() as tools:
        far = {"servers": {"b": tools.plan["b"]}, "published": {"p": agent("b")}}
        async with live(tmp_path / "far", **far) as partner:
            gone: dict[str, Any] = (
                {"agents": {"painter": RemotePlan(NOWHERE)}}
                if missing == "agent"
                else {"agents": {}, "catalogs": {"painter": CatalogPlan(NOWHERE)}}
            )
            gone["agents"]["painter2"] = RemotePlan(f"{partner.url}/agents/p")
            rules = {"painter2_delete": ToolOverride(hidden=True)}
            offered = OfferedPlan(
                ("painter", "painter2"), SEARCH if how == "search" else PROFILE, overrides=rules
            )
            plan = {"offered": {"m": offered}, "credentials": callers("only_b", "d*"), **gone}
            async with live(tmp_path / "near", **plan) as there:
                async with host(there, token=ADA) as client:
                    if how == "search":
                        found = await client.call_tool("find_skill", {"query": ""})
                        names = {one["skill"] for one in _found(found)}
                    else:
                        names = await listed_tools(client)
                    assert names == {"only_b"}
                    assert await refused(client, "delete", how)
                    assert not await refused(client, "only_b", how)
                await there.apply(offered={"m": replace(offered, overrides={})})
                async with host(there, token=EVE) as client:
                    assert await listed_tools(client) == set()
                    assert await refused(client, "delete", how)
                    assert await refused(client, "only_b", how)
        assert tools.called == ["only_b"]


def _found(result: Any) -> list[dict[str, Any]]:
    return [{"skill": one["name"]} for one in result.structured_content["skills"]]


async def test_an_mcp_server_of_an_agent_of_this_process_waits_for_the_servers_of_that_agent(
    tmp_path: Path,
) -> None:
    async with two() as tools:
        plan = {
            "published": {"d": agent("a", "b")},
            "offered": {"m": OfferedPlan(("d",), PROFILE, overrides={"b_delete": ToolOverride(hidden=True)})},
            "credentials": callers("del*", "only_b"),
        }
        async with live(tmp_path, servers=tools.plan, **plan) as there:
            async with host(there, token=ADA) as client:
                assert await listed_tools(client) == {"only_b"}
                assert await refused(client, "delete")
            await there.apply(offered={"m": OfferedPlan(("d",), PROFILE)})
            async with host(there, token=EVE) as client:
                assert await listed_tools(client) == set()
                assert await refused(client, "delete")
                await tools.door.accept()
                while "only_b" not in await listed_tools(client):
                    await anyio.sleep(0.05)
                assert await refused(client, "delete")
            assert tools.called == []
