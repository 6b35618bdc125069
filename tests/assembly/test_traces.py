"""A trace goes through the bridge: from `_meta` of MCP into headers of A2A and back, on the wire of each side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.config.tables.profile import load_profile
from tests.support.exposing import exposing
from tests.support.limits import url_at
from tests.support.mcp_wire import MODERN, Http
from tests.support.recording import RecordingAgent, RecordingServer
from tests.support.running import VERSION, call_part, config_for, listening, message, running

PARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER: Final = "00-11111111111111111111111111111111-2222222222222222-00"
TRACE: Final = {"traceparent": PARENT, "tracestate": "vendor=opaque", "baggage": "tenant=a,user=alice"}
MALFORMED: Final = {"traceparent": PARENT[:-1], "tracestate": "vendor=opaque", "baggage": "no baggage"}
pytestmark = pytest.mark.proves("trace-context")


def beyond_loopback(url: str) -> str:
    """The same place by an address that is not one of loopback's."""
    return url.replace("127.0.0.1", "0.0.0.0")


@asynccontextmanager
async def mcp_at(url: str) -> AsyncIterator[Http]:
    async with httpx2.AsyncClient(timeout=30) as client:
        yield Http(client, url, MODERN)


async def send(url: str, *parts: Any, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """SendMessage; the task."""
    async with httpx2.AsyncClient(timeout=30) as client:
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(*parts, **fields)}
        answer = await client.post(url, json=call, headers={**VERSION, **(headers or {})})
        return answer.json()["result"]["task"]


async def test_the_trace_of_an_mcp_call_goes_to_the_agent_in_headers(tmp_path: Path) -> None:
    agent = RecordingAgent()
    async with listening(agent) as url, exposing(tmp_path, url) as there, mcp_at(there.url) as http:
        for number, meta in enumerate((TRACE, MALFORMED, {"baggage": "a=1"}, {})):
            answer = await http.tool(number, "greet", meta, message="hi")
            assert answer["result"]["content"][0]["text"] == "hello"
    assert agent.told == [TRACE, {}, {"baggage": "a=1"}, {}]


async def test_the_trace_of_an_a2a_message_goes_to_the_server_in_meta() -> None:
    server = RecordingServer()
    async with listening(server) as url, running(config_for(url_at(f"{url}/mcp"))) as bridge:
        for headers in (TRACE, MALFORMED, {"baggage": "a=1"}, {}):
            task = await send(bridge.base_url, call_part("echo", text="x"), headers=headers)
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert server.told == [TRACE, {}, {"baggage": "a=1"}, {}]


async def test_the_trace_of_a_message_without_headers_stands_in_its_metadata() -> None:
    server = RecordingServer()
    async with listening(server) as url, running(config_for(url_at(f"{url}/mcp"))) as bridge:
        for metadata in (TRACE, {"traceparent": 5}, MALFORMED):
            await send(bridge.base_url, call_part("echo", text="x"), metadata=metadata)
        there = {"traceparent": OTHER}
        await send(bridge.base_url, call_part("echo", text="x"), headers=there, metadata=TRACE)
    assert server.told == [TRACE, {}, {}, there]


async def test_a_trace_goes_through_both_directions_in_a_row(tmp_path: Path) -> None:
    server = RecordingServer()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(listening(server))
        bridge = await stack.enter_async_context(running(config_for(url_at(f"{url}/mcp"))))
        there = await stack.enter_async_context(exposing(tmp_path, bridge.base_url))
        http = await stack.enter_async_context(mcp_at(there.url))
        await http.tool(1, "echo", TRACE, text="x")
    assert server.told == [TRACE]


async def test_a_task_that_waited_goes_on_with_its_trace_unless_the_answer_names_another() -> None:
    server = RecordingServer()
    async with listening(server) as url, running(config_for(url_at(f"{url}/mcp"))) as bridge:
        for headers in ({}, {"traceparent": OTHER}):
            waiting = await send(bridge.base_url, call_part("echo"), headers=TRACE)
            assert waiting["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            answer = {"data": {"text": "x"}}
            done = await send(bridge.base_url, answer, headers=headers, taskId=waiting["id"])
            assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert server.told == [TRACE, {"traceparent": OTHER}]


async def test_a_task_that_waited_keeps_its_trace_over_a_restart(tmp_path: Path) -> None:
    server = RecordingServer()
    async with listening(server) as url:
        config = config_for(url_at(f"{url}/mcp"), store=f"sqlite:///{tmp_path / 'tasks.db'}")
        async with running(config) as bridge:
            waiting = await send(bridge.base_url, call_part("echo"), headers=TRACE)
        async with running(config) as bridge:
            await send(bridge.base_url, {"data": {"text": "x"}}, taskId=waiting["id"])
    assert server.told == [TRACE]


@pytest.mark.parametrize(
    ("keys", "baggage"), [((), {}), (("tenant", "other"), {"baggage": "tenant=a"})], ids=["none", "named"]
)
async def test_peers_beyond_this_machine_are_told_only_the_baggage_that_the_file_names(
    keys: tuple[str, ...], baggage: dict[str, str], tmp_path: Path
) -> None:
    agent, server = RecordingAgent(), RecordingServer()
    expected = [{name: TRACE[name] for name in ("traceparent", "tracestate")} | baggage]
    async with listening(agent) as agent_url, listening(server) as server_url:
        profile = load_profile()
        place = ProcessPlan(state=tmp_path, cache=tmp_path, baggage_keys=frozenset(keys))
        wrapping = config_for(url_at(beyond_loopback(f"{server_url}/mcp"))).plan()
        plan = Plan(
            profile,
            place,
            servers=wrapping.servers,
            published=wrapping.published,
            agents={"far": RemotePlan(beyond_loopback(agent_url), allow_private=True)},
            offered={"face": OfferedPlan(("far",), profile, named=False)},
        )
        bridge = Bridge(plan)
        async with bridge.run(), listening(bridge.app) as url:
            await bridge.apply(plan)
            async with mcp_at(f"{url}/mcp/face") as http:
                await http.tool(1, "greet", TRACE, message="hi")
            await send(f"{url}{bridge.published[0].path}", call_part("echo", text="x"), headers=TRACE)
            bridge.offered[0].server.stop()
            await bridge.published[0].engine.drain(0)
    assert (agent.told, server.told) == (expected, expected)
