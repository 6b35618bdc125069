"""What is in use when a plan changes, or when everything stops: calls, streams, stores, principals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bridge.assembly.plan import CatalogPlan, OfferedPlan, RemotePlan
from bridge.errors import UsageError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.process.resources import free_what_was_replaced
from bridge.translate.overrides import ArgumentRule, ToolOverride
from tests.assembly.test_bridge import PROFILE, agent, live, said, server, servers
from tests.support.foreign import foreign_agent
from tests.support.mcp_tasks import TAKES_ALL, TaskClient
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import call_part, profile_with
from tests.support.tool_server import ToolServer, listed

AT_ONCE = profile_with(agents={"task_after_seconds": 0.0, "task_poll_seconds": 0.05})


async def test_a_call_of_a_server_that_a_plan_leaves_out_comes_to_its_end(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), PROFILE)},
        }
        async with (
            live(tmp_path, **plan) as there,
            there.mcp("m") as client,
            anyio.create_task_group() as calls,
        ):
            results: list[Any] = []

            await client.list_tools()  # which the client would do at the end of a call

            async def call() -> None:
                results.append(await client.call_tool("hold", {}))

            calls.start_soon(call)
            await one.holding(1)
            await there.apply(offered={})
            assert there.bridge.running > 0
            one.released.set()
            while not results:
                await anyio.sleep(0.01)
            assert not results[0].is_error, results


async def test_stopping_waits_for_the_calls_of_servers_made_of_remote_agents(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        far: dict[str, Any] = {"servers": {"one": server(one.target)}, "published": {"a": agent("one")}}
        async with live(tmp_path / "far", **far) as partner:
            near: dict[str, Any] = {
                "agents": {"r": RemotePlan(f"{partner.url}/agents/a")},
                "offered": {"m": OfferedPlan(("r",), PROFILE)},
            }
            async with live(tmp_path / "near", **near) as there, there.mcp("m") as client:
                results: list[Any] = []
                await client.list_tools()  # which the client would do at the end of a call

                async def call() -> None:
                    results.append(await client.call_tool("hold", {}))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    await one.holding(1)
                    tasks.start_soon(there.bridge.drain, 20)
                    await anyio.wait_all_tasks_blocked()
                    assert there.bridge.running == 1
                    one.released.set()
                assert not results[0].is_error, results


async def test_what_a_plan_replaces_is_freed_once_it_has_ended(tmp_path: Path) -> None:
    async with foreign_agent() as agent:
        plan: dict[str, Any] = {
            "agents": {"r": RemotePlan(agent.url)},
            "offered": {"m": OfferedPlan(("r",), PROFILE)},
        }
        async with live(tmp_path, **plan) as there:
            there.bridge.on_retired = free_what_was_replaced
            async with there.mcp("m") as client:
                assert (await client.list_tools()).tools
            (offered,) = there.bridge.offered
            replaced = [ref(offered.face), ref(offered.remote_agents[0].card)]
            del offered
            await there.apply(agents={}, offered={})
            while any(one() is not None for one in replaced):
                await anyio.sleep(0.01)


async def test_an_agent_that_is_taken_out_and_put_back_finds_its_store_again(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        store = str(tmp_path / "tasks.db")
        published = {"a": agent("one", store=store)}
        async with live(tmp_path, servers={"one": server(one.target)}, published=published) as there:
            task = await there.rpc("a").send(call_part("echo"))
            running: list[Any] = []

            async def call() -> None:
                running.append(await there.rpc("a").send(call_part("hold")))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await one.holding(1)
                await there.apply(published={})
                tasks.start_soon(partial(there.apply, published=published))
                await anyio.wait_all_tasks_blocked()
                one.released.set()
            assert said(running[0])
            again = await there.rpc("a").call("GetTask", {"id": task["id"]})
            assert again["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_plan_that_cannot_be_taken_changes_neither_who_may_call_nor_whether_it_is_ready(
    tmp_path: Path,
) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {"servers": {"one": server(one.target)}, "published": {"a": agent("one")}}
        async with live(tmp_path, **plan) as there:
            twins = [Credential(Principal(name), "same") for name in ("ada", "bob")]
            with pytest.raises(UsageError, match="ada"):
                await there.bridge.apply(replace(there.plan, credentials=twins, published={}))
            assert (await there.json("/readyz"))["status"] == "ready"
            assert '"one"' in said(await there.rpc("a").send(call_part("echo")))


async def test_whoever_is_let_in_no_longer_hears_no_more(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        ada, bob = (Credential(Principal(name), f"{name}-token") for name in ("ada", "bob"))
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), AT_ONCE)},
            "credentials": [ada, bob],
        }
        async with live(tmp_path, **plan) as there:
            headers = {"authorization": "Bearer ada-token"}
            async with httpx2.AsyncClient(timeout=30, headers=headers) as http:
                client = TaskClient(Http(http, f"{there.url}/mcp/m", MODERN, TAKES_ALL))
                task = await client.call("hold")
                async with client.listening(taskIds=[task["taskId"]]) as messages:
                    assert (await anext(messages))["method"].endswith("acknowledged")
                    await there.apply(credentials=[bob])
                    one.released.set()
                    told = [message async for message in messages]
                assert not [one for one in told if one.get("params", {}).get("status") == "completed"]
                response = await http.post(f"{there.url}/mcp/m", json={})
                assert response.status_code == 401


async def test_a_task_of_a_tool_that_may_not_be_used_any_more_is_not_known(tmp_path: Path) -> None:
    async with servers("one") as (one,):
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one")},
            "offered": {"m": OfferedPlan(("a",), AT_ONCE)},
            "credentials": [Credential(Principal("ada"), "ada-token")],
        }
        async with live(tmp_path, **plan) as there:
            headers = {"authorization": "Bearer ada-token"}
            async with httpx2.AsyncClient(timeout=30, headers=headers) as http:
                client = TaskClient(Http(http, f"{there.url}/mcp/m", MODERN, TAKES_ALL))
                task = await client.call("hold")
                await there.apply(credentials=[Credential(Principal("ada", skills=("echo",)), "ada-token")])
                answer = await client.send("tasks/get", {"taskId": task["taskId"]})
                assert answer["error"]["code"] == -32602
                one.released.set()


async def test_a_catalog_takes_the_place_of_no_agent_of_the_file(tmp_path: Path) -> None:
    async with servers("one", "two") as (one, two):
        far: dict[str, Any] = {
            "servers": {"one": server(one.target), "two": server(two.target)},
            "published": {"x": agent("one"), "mine": agent("two")},
        }
        async with live(tmp_path / "far", **far) as partner:
            near: dict[str, Any] = {
                "agents": {"cat_x": RemotePlan(f"{partner.url}/agents/mine")},
                "catalogs": {"cat": CatalogPlan(f"{partner.url}/agents", include=("x",))},
                "offered": {"m": OfferedPlan(("cat_x", "cat"), PROFILE)},
            }
            async with live(tmp_path / "near", **near) as there, there.mcp("m") as client:
                result = await client.call_tool("echo", {})
                assert '"two"' in result.content[0].text  # type: ignore[union-attr]


INBOX = ArgumentRule(default="inbox", hidden=True)
REPLIES = [
    {"skill": "secret", "arguments": {}},
    {"tool": "secret", "arguments": {}},
    {"folder": "evil"},
    {"skill": "note", "arguments": {"folder": "evil"}},
]


@pytest.mark.parametrize("data", REPLIES, ids=str)
async def test_a_reply_calls_no_other_tool_and_sets_nothing_that_is_hidden(
    data: dict[str, Any], tmp_path: Path
) -> None:
    text = {"type": "string"}
    tools = [listed("note", "text", text=text, folder=text, hints={"destructive": True}), listed("secret")]
    async with ToolServer("one", tools).run() as one:
        careful = profile_with(run={"confirm": "destructive"})
        hidden = {
            "secret": ToolOverride(hidden=True),
            "note": ToolOverride(arguments={"folder": INBOX}),
        }
        plan: dict[str, Any] = {
            "servers": {"one": server(one.target)},
            "published": {"a": agent("one", profile=careful)},
            "offered": {"m": OfferedPlan(("a",), careful, overrides=hidden)},
        }
        async with live(tmp_path, **plan) as there, httpx2.AsyncClient() as http:
            transport = streamable_http_client(f"{there.url}/mcp/m", http_client=http)
            async with Client(transport, mode="legacy", cache=None) as client:
                asked = await client.call_tool("note", {"text": "hi"})
                words = "\n".join(block.text for block in asked.content)  # type: ignore[union-attr]
                handle = words.split("with this handle: ")[1].split()[0]
                for message in ("x", "yes"):
                    await client.call_tool("task_reply", {"handle": handle, "message": message, "data": data})
                assert not [call for call in one.calls if call[0] == "secret"]
                assert not [call for call in one.calls if call[1].get("folder") == "evil"]
