"""Several servers, agents and faces in one process, and what a new plan does to those that are in use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import (
    CatalogPlan,
    OfferedPlan,
    Plan,
    ProcessPlan,
    PublishedPlan,
    RemotePlan,
    ServerPlan,
)
from bridge.config.tables.profile import Profile
from bridge.errors import PeerError, UsageError
from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.mcp.client.eras import Era
from bridge.mcp.client.transports.streamable_http import ServerTarget
from bridge.translate.extensions.availability import AVAILABILITY_URI
from bridge.translate.overrides import SkillOverride, ToolOverride
from tests.support.limits import url_at
from tests.support.running import Rpc, call_part, listening, profile_with, texts
from tests.support.tool_server import ToolServer, listed

WAIT_SECONDS = 30
NOWHERE = "http://127.0.0.1:9/mcp"
PROFILE = profile_with(
    server={"fail": "open"},
    run={"concurrency": 300, "queue": 300, "drain_seconds": 20.0},
    agents={"first_cards_seconds": 3.0, "card_min_seconds": 0.1, "card_max_seconds": 0.1},
)


def server(target: ServerTarget, **changes: Any) -> ServerPlan:
    """A tool server as plans have it."""
    plan = ServerPlan.as_profile_says(target, Era.MODERN, PROFILE.server, PROFILE.run)
    return replace(plan, **changes)


def agent(*servers: str, **changes: Any) -> PublishedPlan:
    """An agent as plans have it."""
    return replace(PublishedPlan(servers, PROFILE, "memory:"), **changes)


@dataclass
class Live:
    """A bridge that serves, and how to reach it."""

    bridge: Bridge
    url: str
    client: httpx2.AsyncClient
    plan: Plan

    async def apply(self, **changes: Any) -> None:
        """Give it another plan."""
        self.plan = replace(self.plan, **changes)
        await self.bridge.apply(self.plan)

    def rpc(self, name: str) -> Rpc:
        """A client of an agent."""
        return Rpc(self.client, f"{self.url}/agents/{name}")

    def mcp(self, name: str, mode: str = "auto") -> Client:
        """The official client of a server, not yet entered."""
        return Client(f"{self.url}/mcp/{name}", mode=mode, cache=None)  # type: ignore[arg-type]

    async def json(self, path: str, status: int = 200) -> Any:
        """What is read somewhere."""
        response = await self.client.get(f"{self.url}{path}")
        assert response.status_code == status, response.text
        return response.json()

    async def skills(self, name: str) -> list[str]:
        """The skills on an agent's card."""
        card = await self.json(f"/agents/{name}/.well-known/agent-card.json")
        return [skill["id"] for skill in card["skills"]]


@asynccontextmanager
async def live(folder: Path, profile: Profile = PROFILE, **plan: Any) -> AsyncIterator[Live]:
    """Serve a plan."""
    wanted = Plan(profile, **{"place": ProcessPlan(state=folder / "state", cache=folder / "cache"), **plan})
    with anyio.fail_after(WAIT_SECONDS):
        async with AsyncExitStack() as stack:
            late: list[Bridge] = []

            async def app(scope: Any, receive: Any, send: Any) -> None:
                await late[0].app(scope, receive, send)

            url = await stack.enter_async_context(listening(app))
            bridge = await stack.enter_async_context(Bridge(wanted, own_url=url).run())
            late.append(bridge)
            await bridge.apply(wanted)
            stack.push_async_callback(bridge.drain, 0)
            client = await stack.enter_async_context(httpx2.AsyncClient(timeout=WAIT_SECONDS))
            yield Live(bridge, url, client, wanted)


@asynccontextmanager
async def servers(*names: str, tools: Sequence[str] = ("echo", "hold")) -> AsyncIterator[list[ToolServer]]:
    """Tool servers in this process."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(ToolServer(name, [listed(tool) for tool in tools]).run())
            for name in names
        ]


def said(task: dict[str, Any]) -> str:
    """The text of a completed task."""
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return texts(task["artifacts"][0]["parts"])[0]


async def test_each_agent_has_a_path_and_the_root_points_to_all(tmp_path: Path) -> None:
    async with servers("one", "two") as (one, two):
        plan = {"one": server(one.target), "two": server(two.target)}
        async with live(tmp_path, servers=plan, published={"a": agent("one"), "b": agent("two")}) as there:
            assert await there.skills("a") == ["echo", "hold"]
            assert '"two"' in said(await there.rpc("b").send(call_part("echo")))
            card = await there.json("/agents/a/.well-known/agent-card.json")
            assert {one["url"] for one in card["supportedInterfaces"]} == {f"{there.url}/agents/a"}
            missing = await there.json("/.well-known/agent-card.json", 404)
            assert "/agents" in missing["error"]["message"]
            catalog = await there.json("/agents")
            assert [entry["name"] for entry in catalog["agents"]] == ["a", "b"]
            assert (await there.json("/healthz"))["status"] == "ok"
            ready = await there.json("/readyz")
            assert ready["status"] == "ready"
            assert ready["agents"]["a"]["servers"]["one"]["up"] is True


@pytest.mark.proves("catalog-found")
async def test_only_public_agents_are_found_without_configuration(tmp_path: Path) -> None:
    paths = ("/.well-known/ard.json", "/.well-known/ai-catalog.json")
    async with servers("one", "two") as (one, two):
        plan = {"one": server(one.target), "two": server(two.target)}
        hidden = {"a": agent("one"), "b": agent("two")}
        async with live(tmp_path, servers=plan, published=hidden) as there:
            for path in paths:
                await there.json(path, 404)
            shown = {**hidden, "b": replace(hidden["b"], public=True)}
            await there.apply(servers=plan, published=shown)
            for path in paths:
                (entry,) = (await there.json(path))["entries"]
                assert entry["url"] == f"{there.url}/agents/b/.well-known/agent-card.json"
                assert (await there.json(entry["url"].removeprefix(there.url)))["name"] == entry[
                    "displayName"
                ]
            await there.apply(servers=plan, published=hidden)
            await there.json(paths[0], 404)


async def test_white_space_around_the_value_of_a_header_does_not_count(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan = {"one": server(one.target)}
        async with live(tmp_path, servers=plan, published={"a": agent("one")}) as there:
            host, port = there.url.removeprefix("http://").split(":")
            body = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
            head = (
                f"POST /agents/a HTTP/1.1\r\nHost: {host}:{port} \t\r\nA2A-Version: 1.0 \t\r\n"
                f"Content-Type: application/json \r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(head.encode() + body)
                assert b" 200 " in await stream.receive()


async def test_the_only_agent_and_the_only_server_are_at_the_root_too(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
        }
        async with live(tmp_path, **plan) as there:
            card = await there.json("/.well-known/agent-card.json")
            assert {one["url"] for one in card["supportedInterfaces"]} == {f"{there.url}/agents/a"}
            assert '"one"' in said(await Rpc(there.client, there.url).send(call_part("echo")))
            async with Client(f"{there.url}/mcp", mode="auto", cache=None) as client:
                assert "echo" in {tool.name for tool in (await client.list_tools()).tools}
            await there.json("/mcp/other", 404)
            await there.json("/agents/other", 404)


@pytest.mark.parametrize(
    "schemes", [(), (Scheme.BEARER,), (Scheme.API_KEY,), (Scheme.API_KEY, Scheme.BEARER)], ids=str
)
async def test_what_is_published_here_can_be_offered_here(
    schemes: tuple[Scheme, ...], tmp_path: Path
) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE, overrides={"echo": ToolOverride(name="say")})},
            "credentials": [Credential(Principal("ada"), f"{scheme}-secret", scheme) for scheme in schemes],
        }
        async with live(tmp_path, **plan) as there:
            sent = {
                Scheme.BEARER: ("Authorization", "Bearer bearer-secret"),
                Scheme.API_KEY: (API_KEY_HEADER, "apiKey-secret"),
            }
            headers = dict(sent[scheme] for scheme in schemes)
            async with httpx2.AsyncClient(headers=headers) as http:
                transport = streamable_http_client(f"{there.url}/mcp/m", http_client=http)
                async with Client(transport, mode="auto", cache=None) as client:
                    result = await client.call_tool("say", {})
                    assert not result.is_error, result
                    assert [name for name, _ in one.calls] == ["echo"]
            card = await there.json("/agents/a/.well-known/agent-card.json")
            assert set(card.get("securitySchemes", {})) == set(schemes)
            if schemes:
                assert (await there.client.get(f"{there.url}/agents")).status_code == 401


async def test_a_server_that_is_down_is_said_and_fails_only_what_must_not_be_down(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan = {"one": server(one.target), "gone": server(url_at(NOWHERE))}
        async with live(tmp_path, servers=plan, published={"a": agent("one", "gone")}) as there:
            assert await there.skills("a") == ["echo", "hold"]
            told = await there.json("/readyz")
            assert (told["status"], told["agents"]["a"]["status"]) == ("degraded", "degraded")
            ready = told["agents"]["a"]["servers"]["gone"]
            assert ready["up"] is False
            assert "cannot be reached" in ready["why"]
            with pytest.raises(ExceptionGroup) as caught:
                await there.apply(
                    servers={**plan, "lost": server(url_at(NOWHERE))},
                    published={"a": agent("one", "gone"), "b": agent("lost", fail="closed")},
                )
            assert caught.group_contains(PeerError, match="cannot be reached")
            assert [entry["name"] for entry in (await there.json("/agents"))["agents"]] == ["a"]
            assert set(there.bridge.upstreams) == {"one", "gone"}
            assert '"one"' in said(await there.rpc("a").send(call_part("echo")))


async def test_a_process_whose_agents_have_no_server_is_not_ready(tmp_path: Path) -> None:
    plan = {"gone": server(url_at(NOWHERE))}
    async with live(tmp_path, servers=plan, published={"a": agent("gone")}) as there:
        assert (await there.json("/readyz", 503))["status"] == "not ready"
        assert await there.skills("a") == ["unavailable"]


async def test_one_dead_server_takes_no_other_face_out_of_service(tmp_path: Path) -> None:
    """Each face has a path of its own, and a name of two faces means both."""
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target), "gone": server(url_at(NOWHERE))},
            "published": {"a": agent("one"), "b": agent("gone"), "c": agent("one", "gone")},
            "offered": {
                "a": OfferedPlan(("a",), PROFILE),
                "b": OfferedPlan(("b",), PROFILE),
                "m": OfferedPlan(("a", "b"), PROFILE),
                "far": OfferedPlan(("away",), PROFILE),
                "unread": OfferedPlan(("list",), PROFILE),
            },
            "agents": {"away": RemotePlan(NOWHERE)},
            "catalogs": {"list": CatalogPlan(NOWHERE)},
        }
        async with live(tmp_path, **plan) as there:
            told = await there.json("/readyz")
            assert told["status"] == "degraded"
            status = {
                f"{kind}/{name}": one["status"]
                for kind in ("agents", "mcp")
                for name, one in told[kind].items()
            }
            assert status == {
                "agents/a": "ready",
                "agents/b": "not ready",
                "agents/c": "degraded",
                "mcp/a": "ready",
                "mcp/b": "not ready",
                "mcp/m": "degraded",
                "mcp/far": "not ready",
                "mcp/unread": "not ready",
            }
            for name, one_status in status.items():
                alone = await there.json(f"/readyz/{name}", 503 if one_status == "not ready" else 200)
                kind, _, face = name.partition("/")
                assert alone["status"] == one_status
                assert {key: [*value] for key, value in alone.items() if key != "status"} == {
                    "agents": [],
                    "mcp": [],
                    kind: [face],
                }
            assert (await there.json("/readyz/a"))["mcp"]["a"] == told["mcp"]["a"]
            assert (await there.json("/readyz/far", 503))["agents"] == {}
            await there.json("/readyz/none", 404)
            await there.json("/readyz/agents/m", 404)
            assert (await there.client.post(f"{there.url}/readyz/a")).status_code == 405


@pytest.mark.parametrize(
    "plan",
    [
        {"servers": {"gone": server(url_at(NOWHERE))}, "published": {"a": agent("gone")}},
        {"agents": {"away": RemotePlan(NOWHERE)}, "offered": {"m": OfferedPlan(("away",), PROFILE)}},
        {
            "servers": {"gone": server(url_at(NOWHERE))},
            "published": {"a": agent("gone")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
        },
    ],
    ids=["agent", "mcp", "both"],
)
async def test_where_no_peer_is_up_nothing_is_ready(plan: dict[str, Any], tmp_path: Path) -> None:
    async with live(tmp_path, **plan) as there:
        assert (await there.json("/readyz", 503))["status"] == "not ready"


async def test_a_server_that_was_never_up_tells_strangers_no_reason_on_the_card(tmp_path: Path) -> None:
    plan = {"gone": server(url_at(NOWHERE))}
    async with live(tmp_path, servers=plan, published={"a": agent("gone")}) as there:
        card = await there.client.get(f"{there.url}/agents/a/.well-known/agent-card.json")
        (skill,) = card.json()["skills"]
        words = "This agent has no skills at the moment: its tool server cannot be reached"
        assert skill["description"] == words
        assert NOWHERE not in card.text
        assert "refused" not in card.text
        why = there.bridge.readiness()["agents"]["a"]["servers"]["gone"]["why"]  # type: ignore[index, call-overload]
        assert NOWHERE in str(why)


async def test_a_start_while_a_server_is_down_shows_the_skills_that_it_listed_last(tmp_path: Path) -> None:
    card_path = "/agents/a/.well-known/agent-card.json"
    table = {"fail": "open", "connect_seconds": 1.0}
    profile = profile_with(server=table, card={"unavailable_after_seconds": 0.0})
    async with servers("one") as (one,):
        plan = {"one": ServerPlan.as_profile_says(one.target, Era.MODERN, profile.server, profile.run)}
        published = {"a": agent("one", profile=profile)}
        async with live(tmp_path, servers=plan, published=published) as there:
            before = await there.json(card_path)
    assert [skill["id"] for skill in before["skills"]] == ["echo", "hold"]
    async with live(tmp_path, servers=plan, published=published) as there:
        card = await there.json(card_path)
        (unavailable,) = [one for one in card["capabilities"]["extensions"] if one["uri"] == AVAILABILITY_URI]
        (outage,) = unavailable["params"]["unavailable"]
        assert (outage["state"], outage["skills"]) == ("unreachable", ["echo", "hold"])
        card["capabilities"]["extensions"].remove(unavailable)
        same = ("name", "description", "version", "skills", "capabilities", "defaultInputModes")
        assert [card[name] for name in same] == [before[name] for name in same]
        ready = await there.json("/readyz", 503)
        assert ready["agents"]["a"]["servers"]["one"]["up"] is False
        failed = await there.rpc("a").send(call_part("echo"))
        assert failed["status"]["state"] == "TASK_STATE_FAILED"
        assert "one is down" in texts(failed["status"]["message"]["parts"])[0]


async def test_what_a_server_listed_for_one_login_is_not_shown_for_another(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan = {"one": server(replace(one.target, headers={"Authorization": "Bearer of-a"}))}
        async with live(tmp_path, servers=plan, published={"a": agent("one")}) as there:
            assert await there.skills("a") == ["echo", "hold"]
    other = {"one": server(replace(one.target, headers={"Authorization": "Bearer of-b"}))}
    async with live(tmp_path, servers=other, published={"a": agent("one")}) as there:
        assert await there.skills("a") == ["unavailable"]
    assert b"of-a" not in b"".join(
        file.read_bytes() + file.name.encode() for file in (tmp_path / "state" / "listings").iterdir()
    )


async def test_find_skill_lists_the_skills_of_a_server_that_is_down_last(tmp_path: Path) -> None:
    profile = profile_with(
        server={"fail": "open", "connect_seconds": 1.0},
        card={"unavailable_after_seconds": 0.0},
        agents={
            "granularity": "search",
            "first_cards_seconds": 3.0,
            "card_min_seconds": 0.1,
            "card_max_seconds": 0.1,
        },
    )
    published = {
        "a": agent("one", profile=profile, card_name="First"),
        "b": agent("two", profile=profile, card_name="Second"),
    }
    offered = {"team": OfferedPlan(("a", "b"), profile)}

    async def found(there: Live) -> list[str]:
        async with there.mcp("team") as host:
            answer = await host.call_tool("find_skill", {"query": "echo", "limit": 20})
        assert answer.structured_content is not None
        return [skill["name"] for skill in answer.structured_content["skills"]]

    async with servers("two", tools=("echo",)) as (two,):
        async with servers("one", tools=("echo",)) as (one,):
            plan = {
                name: ServerPlan.as_profile_says(each.target, Era.MODERN, profile.server, profile.run)
                for name, each in (("one", one), ("two", two))
            }
            async with live(tmp_path, servers=plan, published=published, offered=offered) as there:
                assert await found(there) == ["a_echo", "b_echo"]
        async with live(tmp_path, servers=plan, published=published, offered=offered) as there:
            assert await found(there) == ["b_echo", "a_echo"]


async def test_only_what_differs_is_made_anew(tmp_path: Path) -> None:
    async with servers("one", "two", "three") as (one, two, three):
        plan = {"one": server(one.target), "two": server(two.target)}
        published = {"a": agent("one"), "b": agent("two")}
        async with live(tmp_path, servers=plan, published=published) as there:
            before, agents = there.bridge.upstreams, there.bridge.published
            etag = (await there.client.get(f"{there.url}/agents/a/.well-known/agent-card.json")).headers[
                "etag"
            ]
            rename = {"echo": SkillOverride(name="Say it")}
            await there.apply(
                servers={"one": plan["one"], "two": server(three.target), "unused": server(url_at(NOWHERE))},
                published={"a": agent("one", overrides=rename), "b": agent("two"), "c": agent("one", "two")},
            )
            after = there.bridge.upstreams
            assert after["one"] is before["one"]
            assert after["two"] is not before["two"]
            assert set(after) == {"one", "two"}
            assert there.bridge.published[:2] == agents
            card = await there.client.get(f"{there.url}/agents/a/.well-known/agent-card.json")
            assert card.headers["etag"] != etag
            assert card.json()["skills"][0]["name"] == "Say it"
            assert '"three"' in said(await there.rpc("b").send(call_part("echo")))
            assert await there.skills("c") == ["one_echo", "one_hold", "two_echo", "two_hold"]
            await there.apply(published={"c": agent("one")})
            await there.json("/agents/a/.well-known/agent-card.json", 404)
            assert await there.skills("c") == ["echo", "hold"]


@pytest.mark.long
async def test_two_hundred_calls_in_flight_survive_five_new_plans(tmp_path: Path) -> None:
    async with servers("one", "two") as (one, two):
        both = {"one": one, "two": two}
        plan = {name: server(tools.target) for name, tools in both.items()}
        offered = {"m": OfferedPlan(("a", "b"), PROFILE)}
        published = {"a": agent("one"), "b": agent("two")}
        async with live(tmp_path, servers=plan, published=published, offered=offered) as there:
            answered: list[str] = []

            async def call(name: str) -> None:
                answered.append(said(await there.rpc(name).send(call_part("hold"))))

            async def call_tool(client: Client, name: str) -> None:
                result = await client.call_tool(name, {})
                assert not result.is_error, result
                answered.append(name)

            limits = httpx2.Limits(max_connections=None)
            there.client = httpx2.AsyncClient(timeout=WAIT_SECONDS, limits=limits)
            async with (  # noqa: SIM117 - the calls end before their clients
                there.mcp("m", "legacy") as legacy,
                there.mcp("m") as modern,
                there.client,
            ):
                async with anyio.create_task_group() as calls:
                    for _ in range(80):
                        calls.start_soon(call, "a")
                        calls.start_soon(call, "b")
                    for client in (legacy, modern):
                        for name in ("a_hold", "b_hold"):
                            for _ in range(10):
                                calls.start_soon(call_tool, client, name)
                    await one.holding(100)
                    await two.holding(100)
                    for number in range(5):
                        # Each time the servers are other ones, and the agents say something else.
                        changed = {
                            name: server(
                                tools.target,
                                settings=plan[name].settings.having(retire_seconds=50.0 + number),
                            )
                            for name, tools in both.items()
                        }
                        overrides = {"echo": SkillOverride(name=f"Echo {number}")}
                        await there.apply(
                            servers=changed,
                            published={
                                name: replace(old, overrides=overrides) for name, old in published.items()
                            },
                            offered={
                                "m": replace(
                                    offered["m"], overrides={"a_echo": ToolOverride(title=str(number))}
                                )
                            },
                        )
                        assert len(answered) == 0
                    for tools in (one, two):
                        tools.released.set()
            assert len(answered) == 200
            card = there.bridge.published[0].agent.card("http://x")
            assert card.skills[0].name == "Echo 4"


async def test_clients_hear_of_what_a_new_plan_lists(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
        }
        async with live(tmp_path, **plan) as there, there.mcp("m") as client:
            async with client.listen(tools_list_changed=True) as heard:
                hidden = {"hold": ToolOverride(hidden=True)}
                await there.apply(offered={"m": OfferedPlan(("a",), PROFILE, overrides=hidden)})
                await anext(aiter(heard))
            assert "hold" not in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_server_made_of_an_own_agent_follows_it_at_once(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), profile_with())},
        }
        async with live(tmp_path, **plan) as there, there.mcp("m") as client:
            async with client.listen(tools_list_changed=True) as heard:
                renamed = {"hold": SkillOverride(id="keep")}
                await there.apply(published={"a": agent("one", overrides=renamed)})
                await anext(aiter(heard))
            assert {"echo", "keep"} <= {tool.name for tool in (await client.list_tools()).tools}


async def test_an_own_agent_is_known_before_anybody_listens(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan = Plan(
            PROFILE,
            ProcessPlan(state=tmp_path, cache=tmp_path),
            servers={"one": server(one.target)},
            published={"a": agent("one")},
            offered={"m": OfferedPlan(("a",), PROFILE)},
        )
        bridge = Bridge(plan, own_url="http://127.0.0.1:9")
        async with bridge.run():
            await bridge.apply(plan)
            assert {"echo", "hold"} <= {tool["name"] for tool in bridge.offered[0].face.tools()}


async def test_a_catalog_of_another_bridge_brings_its_agents(tmp_path: Path) -> None:
    async with servers("one", "two") as (one, two):
        far: dict[str, Any] = {
            "servers": {"one": server(one.target), "two": server(two.target)},
            "published": {"a": agent("one")},
        }
        async with live(tmp_path / "far", **far) as partner:
            near: dict[str, Any] = {
                "catalogs": {"partner": CatalogPlan(f"{partner.url}/agents")},
                "offered": {"m": OfferedPlan(("partner",), PROFILE)},
            }
            async with live(tmp_path / "near", **near) as there, there.mcp("m") as client:
                result = await client.call_tool("echo", {})
                assert '"one"' in result.content[0].text  # type: ignore[union-attr]
                await partner.apply(published={"a": agent("one"), "b": agent("two")})
                while "partner_b_echo" not in {tool.name for tool in (await client.list_tools()).tools}:
                    await anyio.sleep(0.05)
                result = await client.call_tool("partner_b_echo", {})
                assert '"two"' in result.content[0].text  # type: ignore[union-attr]


async def test_an_agent_is_made_of_published_agents_and_of_those_in_a_catalog(tmp_path: Path) -> None:
    async with servers("one", "two") as (one, two):
        far: dict[str, Any] = {
            "servers": {"one": server(one.target), "two": server(two.target)},
            "published": {"a": agent("one")},
        }
        async with live(tmp_path / "far", **far) as partner:
            near: dict[str, Any] = {
                "servers": {"two": server(two.target)},
                "catalogs": {"partner": CatalogPlan(f"{partner.url}/agents")},
                "published": {"own": agent("two"), "front": agent(agents=("own", "partner"))},
            }
            async with live(tmp_path / "near", **near) as there:
                skills = await there.skills("front")
                assert skills == ["own_echo", "own_hold", "partner_a_echo", "partner_a_hold"]
                for skill, name in {"own_echo": "two", "partner_a_echo": "one"}.items():
                    task = await there.rpc("front").send({"data": {}}, metadata={"skillId": skill})
                    assert f'"{name}"' in said(task)
                await partner.apply(published={"a": agent("one"), "b": agent("two")})
                while "partner_b_echo" not in await there.skills("front"):
                    await anyio.sleep(0.05)
                task = await there.rpc("front").send({"data": {}}, metadata={"skillId": "partner_b_echo"})
                assert '"two"' in said(task)
                await partner.apply(published={"b": agent("two")})
                while "partner_a_echo" in await there.skills("front"):
                    await anyio.sleep(0.05)


async def test_a_remote_agent_is_called_by_its_name_in_the_plan(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        far: dict[str, Any] = {"servers": {"one": server(one.target)}, "published": {"a": agent("one")}}
        async with live(tmp_path / "far", **far) as partner:
            url = f"{partner.url}/agents/a"
            near: dict[str, Any] = {
                "agents": {"left": RemotePlan(url), "right": RemotePlan(url)},
                "offered": {"m": OfferedPlan(("left", "right"), PROFILE)},
            }
            async with live(tmp_path / "near", **near) as there, there.mcp("m") as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert {"left_echo", "right_echo", "left_hold", "right_hold"} <= names


async def test_a_plan_without_an_own_address_cannot_offer_what_it_publishes(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan = Plan(
            PROFILE,
            ProcessPlan(state=tmp_path, cache=tmp_path),
            servers={"one": server(one.target)},
            published={"a": agent("one")},
            offered={"m": OfferedPlan(("a",), PROFILE)},
        )
        bridge = Bridge(plan)
        async with bridge.run():
            with pytest.raises(ExceptionGroup) as caught:
                await bridge.apply(plan)
        assert caught.group_contains(UsageError, match="uses the agent a, which the same process serves")
