"""MCP Apps of a tool server: over A2A, and for the hosts of an MCP server of the bridge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import AuditPlan, OfferedPlan, ProcessPlan, ServerPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from bridge.process.preview import findings_of
from tests.assembly.test_bridge import PROFILE, Live, agent, live
from tests.support.apps_server import CSP, LINK, PAGE, SHOWS, TYPE, UI, AppServer, Json, tool
from tests.support.running import Rpc, call_part, message, profile_with, texts
from tests.support.shared_walk import raw

pytestmark = pytest.mark.proves("map-apps")

APPS: Final = "urn:mcp-a2a:apps:v1"
ACTIVE: Final = {"A2A-Extensions": APPS}
SHARED: Final[Json] = {"share": ("resources",), "shares_apps": True}
SKILL_PAGE: Final = "skill://tell-time/SKILL.md"
ERAS: Final = pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
MODES: Final = pytest.mark.parametrize("mode", ["auto", "legacy"])


def plan_of(target: Any, era: Era = Era.LEGACY, *, shows_apps: bool = True) -> ServerPlan:
    """The plan of a server."""
    made = ServerPlan.as_profile_says(target, era, PROFILE.server, PROFILE.run)
    return replace(made, shows_apps=shows_apps)


@asynccontextmanager
async def clock(
    folder: Path, era: Era = Era.LEGACY, shared: Json = SHARED, apps: AppServer | None = None, **plan: Any
) -> AsyncIterator[tuple[AppServer, Live]]:
    """A bridge with an agent `desk` of a server with an app, and an MCP server `m` of this agent."""
    apps = apps or AppServer()
    whole: Json = {
        "servers": {"clock": plan_of(apps.target(), era, shows_apps="shares_apps" in shared)},
        "published": {"desk": agent("clock", **shared)},
        "offered": {"m": OfferedPlan(("desk",), PROFILE)},
        **plan,
    }
    async with live(folder, **whole) as there:
        await there.bridge.upstreams["clock"].ready()
        yield apps, there


def host(there: Live, mode: str = "auto", name: str = "m", **options: Any) -> Client:
    """A host, which shows apps unless the options say otherwise."""
    options = {"extensions": SHOWS, **options}
    return Client(f"{there.url}/mcp/{name}", mode=mode, cache=None, **options)  # type: ignore[arg-type]


async def tools_of(client: Client) -> dict[str, Json]:
    """The tools that a host is shown, besides those that act on handles."""
    listed = (await raw(client, "tools/list", {}))["tools"]
    return {one["name"]: one for one in listed if not one["name"].startswith("task_")}


async def card_of(there: Live, name: str = "desk") -> Json:
    card: Json = await there.json(f"/agents/{name}/.well-known/agent-card.json")
    return card


def declared(card: Json, uri: str) -> Json | None:
    extensions = card["capabilities"]["extensions"]
    return next((one["params"] for one in extensions if one["uri"] == uri), None)


# For hosts


@MODES
@ERAS
@pytest.mark.smoke("legacy-auto", "modern-legacy")
async def test_a_host_that_shows_apps_gets_what_the_server_has(mode: str, era: Era, tmp_path: Path) -> None:
    async with clock(tmp_path, era) as (apps, there), host(there, mode) as client:
        tools = await tools_of(client)
        assert {name: one.get("_meta") for name, one in tools.items()} == {
            "show_time": LINK,
            "tick": {"ui": {"resourceUri": PAGE, "visibility": ["app"]}, "vendor/k": [1]},
            "plain": None,
        }
        listed = (await raw(client, "resources/list", {}))["resources"]
        page = {"uri": PAGE, "name": "page", "mimeType": TYPE, "_meta": {"ui": CSP}}
        assert [one for one in listed if one["uri"].startswith("ui:")] == [page]
        (contents,) = (await raw(client, "resources/read", {"uri": PAGE}))["contents"]
        assert contents == {"uri": PAGE, "mimeType": TYPE, "text": apps.html, "_meta": {"ui": CSP}}
        for name in ("show_time", "tick"):
            result = await client.call_tool(name, {})
            assert result.structured_content == {"time": "12:00"}
            assert (result.content[0].text, result.meta["view/k"]) == (f"{name}: noon", 1)  # type: ignore[union-attr,index]
        assert apps.called == ["show_time", "tick"]


@MODES
async def test_a_host_without_apps_neither_sees_nor_calls_what_only_apps_call(
    mode: str, tmp_path: Path
) -> None:
    others = [advertise(UI, {"mimeTypes": ["text/x"]})] if mode == "auto" else None
    async with clock(tmp_path) as (apps, there), host(there, mode, extensions=others) as client:
        assert list(await tools_of(client)) == ["show_time", "plain"]
        with pytest.raises(MCPError, match="Unknown tool: tick"):
            await client.call_tool("tick", {})
        result = await client.call_tool("show_time", {})
        assert result.content[0].text == "show_time: noon"  # type: ignore[union-attr]
        assert apps.called == ["show_time"]


@ERAS
@pytest.mark.parametrize("shares_apps", [False, True])
async def test_the_server_hears_of_apps_only_if_its_agent_shares_them(
    era: Era, shares_apps: bool, tmp_path: Path
) -> None:
    shared = SHARED if shares_apps else {"share": ("resources",)}
    async with clock(tmp_path, era, shared) as (apps, _):
        for extensions in apps.declared:
            assert (UI in (extensions or {})) is shares_apps
            assert not shares_apps or (extensions or {})[UI] == {"mimeTypes": [TYPE]}
        assert apps.declared


async def test_apps_of_several_agents_have_the_prefixes_of_their_agents(tmp_path: Path) -> None:
    one, two = AppServer(html="<p>one"), AppServer(html="<p>two", tools=[tool("show_time", LINK)])
    plan: Json = {
        "servers": {"clock": plan_of(one.target()), "other": plan_of(two.target("other"))},
        "published": {"desk": agent("clock", **SHARED), "hall": agent("other", **SHARED)},
        "offered": {"m": OfferedPlan(("desk", "hall"), PROFILE)},
    }
    async with clock(tmp_path, **plan) as (_, there), host(there) as client:
        tools = await tools_of(client)
        links = {name: one["_meta"]["ui"].get("resourceUri") for name, one in tools.items() if "_meta" in one}
        page_one, page_two = "ui://desk/r/clock/page.html", "ui://hall/r/clock/page.html"
        assert links == {"desk_show_time": page_one, "tick": page_one, "hall_show_time": page_two}
        assert tools["desk_show_time"]["_meta"]["ui/resourceUri"] == page_one
        for uri, html in ((page_one, "<p>one"), (page_two, "<p>two")):
            (contents,) = (await raw(client, "resources/read", {"uri": uri}))["contents"]
            assert (contents["uri"], contents["text"]) == (uri, html)
        assert "error" in await raw(client, "resources/read", {"uri": PAGE})
        assert (one.read, two.read) == ([PAGE], [PAGE])


async def test_a_server_cannot_link_to_the_app_of_another_agent(tmp_path: Path) -> None:
    theirs = "ui://desk/r/clock/page.html"
    spoof = AppServer(tools=[tool("steal", {"ui": {"resourceUri": theirs}, "ui/resourceUri": theirs})])
    for shared, link in ((SHARED, f"ui://hall/r/{theirs.removeprefix('ui://')}"), ({}, None)):
        one = AppServer()
        plan: Json = {
            "servers": {"clock": plan_of(one.target()), "other": plan_of(spoof.target("other"))},
            "published": {"desk": agent("clock", **SHARED), "hall": agent("other", **shared)},
            "offered": {"m": OfferedPlan(("desk", "hall"), PROFILE)},
        }
        async with clock(tmp_path, **plan) as (_, there), host(there) as client:
            tools = await tools_of(client)
            meta = {"ui": {"resourceUri": link}, "ui/resourceUri": link} if link else None
            assert tools["steal"].get("_meta") == meta
            if link:
                assert "error" in await raw(client, "resources/read", {"uri": link})
                assert (one.read, spoof.read[-1]) == ([], theirs)


async def test_a_link_to_a_page_that_is_not_shared_is_left_out(tmp_path: Path) -> None:
    tools = [tool("show_time", {**LINK, "vendor/k": 1}), tool("other", {"ui": {"visibility": ["model"]}})]
    async with clock(tmp_path, shared={}, apps=AppServer(tools)) as (_, there), host(there) as client:
        found = await tools_of(client)
        assert found["show_time"]["_meta"] == {"vendor/k": 1}
        assert found["other"]["_meta"] == {"ui": {"visibility": ["model"]}}


async def test_a_page_above_the_limit_of_its_server_is_refused(tmp_path: Path) -> None:
    apps = AppServer(html="x" * 300_000)
    plan = {"servers": {"clock": plan_of(apps.target(limit_bytes=200_000))}}
    async with clock(tmp_path, apps=apps, **plan) as (_, there), host(there) as client:
        answer = await raw(client, "resources/read", {"uri": PAGE})
        assert "result_limit_bytes" in answer["error"]["message"]
        assert (await client.call_tool("tick", {})).content


@ERAS
async def test_skills_of_mcp_pass_as_the_resources_that_they_are(era: Era, tmp_path: Path) -> None:
    async with clock(tmp_path, era) as (apps, there), host(there) as client:
        listed = (await raw(client, "resources/list", {}))["resources"]
        entry = {"uri": SKILL_PAGE, "name": "tell-time", "mimeType": "text/markdown"}
        assert [one for one in listed if one["uri"].startswith("skill:")] == [entry]
        read = await raw(client, "resources/read", {"uri": SKILL_PAGE})
        assert read["contents"] == [{"uri": SKILL_PAGE, "mimeType": "text/markdown", "text": apps.skill}]


# Over A2A


async def test_a_tool_for_apps_only_is_no_skill(tmp_path: Path) -> None:
    async with clock(tmp_path) as (_, there):
        card = await card_of(there)
        assert [skill["id"] for skill in card["skills"]] == ["show_time", "plain"]
        assert list((declared(card, "urn:mcp-a2a:tool:v1") or {})["tools"]) == ["show_time", "plain"]
        entry = (declared(card, APPS) or {})["tools"]
        assert list(entry) == ["tick"]
        assert (entry["tick"]["server"], entry["tick"]["tool"]["name"]) == ("clock", "tick")


@pytest.mark.parametrize("shared", [{}, {"share": ("resources",)}])
async def test_an_agent_that_shares_no_apps_has_no_tool_for_apps_only(shared: Json, tmp_path: Path) -> None:
    async with clock(tmp_path, shared=shared) as (apps, there):
        card = await card_of(there)
        assert [skill["id"] for skill in card["skills"]] == ["show_time", "plain"]
        assert declared(card, APPS) is None
        rpc = Rpc(there.client, f"{there.url}/agents/desk", ACTIVE)
        asked = await rpc.send(call_part("tick"))
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert apps.called == []


async def test_only_a_client_of_the_extension_calls_a_tool_for_apps_only(tmp_path: Path) -> None:
    async with clock(tmp_path) as (apps, there):
        asked = await there.rpc("desk").send(call_part("tick"))
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert not any("tick" in text for text in texts(asked["status"]["message"]["parts"])[1:])
        assert apps.called == []
        rpc = Rpc(there.client, f"{there.url}/agents/desk", ACTIVE)
        task = await rpc.send(call_part("tick"))
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert apps.called == ["tick"]


async def test_no_text_means_a_tool_for_apps_only(tmp_path: Path) -> None:
    """The question which skill is meant does not name the tool, either."""
    async with clock(tmp_path) as (apps, there):
        rpc = Rpc(there.client, f"{there.url}/agents/desk", ACTIVE)
        task = await rpc.send({"text": "please let it go tick again"})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        said = " ".join(texts(task["status"]["message"]["parts"]))
        assert "show_time" in said
        assert "tick" not in said
        assert apps.called == []


# Rights, limits, confirmations and the audit


def person(name: str, **rules: Any) -> Credential:
    return Credential(Principal(name, **rules), f"{name}-token")


@asynccontextmanager
async def host_of(there: Live, name: str, mode: str = "auto") -> AsyncIterator[Client]:
    """The host of a principal. It shows apps."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {name}-token"}) as http:
        transport = streamable_http_client(f"{there.url}/mcp/m", http_client=http)
        async with Client(transport, mode=mode, cache=None, extensions=SHOWS) as client:
            yield client


@MODES
async def test_an_app_has_the_rights_of_its_caller(mode: str, tmp_path: Path) -> None:
    people = [
        person("ann", skills=("*",), resources=("ui://*",)),
        person("bob", skills=("show_time",), resources=("skill://*",)),
    ]
    async with clock(tmp_path, credentials=people) as (apps, there):
        async with host_of(there, "ann", mode) as ann:
            assert "tick" in await tools_of(ann)
            assert (await ann.call_tool("tick", {})).content
            assert "contents" in await raw(ann, "resources/read", {"uri": PAGE})
        async with host_of(there, "bob", mode) as bob:
            assert list(await tools_of(bob)) == ["show_time"]
            with pytest.raises(MCPError, match="Unknown tool: tick"):
                await bob.call_tool("tick", {})
            assert "error" in await raw(bob, "resources/read", {"uri": PAGE})
        assert (apps.called, apps.read) == (["tick"], [PAGE])
        headers = {**ACTIVE, "Authorization": "Bearer bob-token"}
        rpc = Rpc(there.client, f"{there.url}/agents/desk", headers)
        answer = await rpc.post("SendMessage", message(call_part("tick")))
        assert "tick" not in str((await card_of(there))["capabilities"])
        assert "TASK_STATE_COMPLETED" not in answer.text
        assert apps.called == ["tick"]


async def test_a_call_of_an_app_is_confirmed_as_any_other(tmp_path: Path) -> None:
    meta = {"ui": {"visibility": ["app"]}}
    profile = profile_with(run={"confirm": "strict"})
    plan = {"published": {"desk": replace(agent("clock", **SHARED), profile=profile)}}
    async with clock(tmp_path, apps=AppServer([tool("wipe", meta)]), **plan) as (apps, there):
        rpc = Rpc(there.client, f"{there.url}/agents/desk", ACTIVE)
        task = await rpc.send(call_part("wipe"))
        assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        task = (await rpc.call("SendMessage", message({"text": "yes"}, taskId=task["id"])))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        task = await rpc.send(call_part("wipe"))
        await there.rpc("desk").post("SendMessage", message({"text": "yes"}, taskId=task["id"]))
        assert apps.called == ["wipe"]


async def test_the_audit_tells_of_the_calls_of_an_app(tmp_path: Path) -> None:
    journal = tmp_path / "audit.jsonl"
    place = ProcessPlan(
        state=tmp_path / "state", cache=tmp_path / "cache", audit=AuditPlan(journal, 1 << 20, 600)
    )
    async with clock(tmp_path, place=place) as (_, there), host(there) as client:
        await client.call_tool("tick", {})
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {line["face"] for line in lines if line.get("skill") == "tick"} == {"m", "desk"}


# The file, and what `check` says


def test_a_server_hears_of_apps_if_one_of_its_agents_shares_them(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    words = [
        *(f'[tool_servers.{name}]\ncommand = ["{name}"]' for name in ("one", "two")),
        '[tools_as_agent.a]\nfrom = ["one"]\nshare = ["apps", "resources"]',
        '[tools_as_agent.b]\nfrom = ["one", "two"]\nshare = ["resources"]',
    ]
    file.write_text("\n".join(words))
    plan = plan_from_file(load(file, {}))
    assert {name: one.shows_apps for name, one in plan.servers.items()} == {"one": True, "two": False}
    assert {name: one.shares_apps for name, one in plan.published.items()} == {"a": True, "b": False}
    assert plan.published["a"].share == ("resources",)


async def test_check_says_which_tools_only_apps_call(tmp_path: Path) -> None:
    async with clock(tmp_path) as (_, there):
        shared = (await findings_of(there.plan, there.bridge)).faces[0].shared
        assert shared[-1] == "shares MCP Apps; only apps call: tick"
