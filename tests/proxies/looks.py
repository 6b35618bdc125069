"""What is looked at through a proxy: the card's addresses, a streamed task event by event, MCP calls of both
generations, and that a host which goes away cancels."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.proxies.guide import Case
from tests.support.running import Rpc, call_part, message

Json = dict[str, Any]


async def card_names_the_proxy(case: Case, client: httpx2.AsyncClient) -> str:
    """The card is at its place and its addresses are the public ones."""
    base = f"{case.base}/agents/demo"
    card = (await client.get(f"{base}/.well-known/agent-card.json")).raise_for_status().json()
    urls = sorted({one["url"] for one in card["supportedInterfaces"]})
    assert urls == [base], urls
    listed = (await client.get(f"{case.base}/agents")).raise_for_status().json()["agents"]
    assert [one["url"] for one in listed] == [base], listed
    return base


async def task_arrives_event_by_event(case: Case, client: httpx2.AsyncClient) -> int:
    """Events of a task that goes on for minutes are there while it does; it is cancelled then."""
    rpc = Rpc(client, f"{case.base}/agents/demo")
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
    body |= {"params": message(call_part("countdown", steps=60, pause_seconds=10))}
    seen, task = 0, ""
    async with client.stream("POST", rpc.url, json=body, headers=rpc.headers) as response:
        async for event in _events(response):
            seen += 1
            task = task or event["task"]["id"]
            if "Liftoff" not in str(event) and "to go" in str(event):
                await rpc.call("CancelTask", {"id": task})
            if event.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_CANCELED":
                return seen
    raise AssertionError(f"the stream ended after {seen} events")


async def _events(response: httpx2.Response) -> AsyncIterator[Json]:
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))["result"]


async def host_calls_a_tool(case: Case, client: httpx2.AsyncClient, mode: str) -> None:
    """An MCP host lists the tools and calls one."""
    async with _host(case, client, mode) as host:
        assert "greet" in {tool.name for tool in (await host.list_tools()).tools}
        result = await host.call_tool("greet", {"name": "Ada"})
        assert result.content[0].text == "Hello, Ada!", result


async def host_that_goes_away_cancels(case: Case, client: httpx2.AsyncClient, mode: str) -> None:
    """Progress arrives while a tool works; once the host gives up, the tool is stopped, so that the next
    call, for which there was no room, is answered."""
    async with _host(case, client, mode) as host:
        reported = anyio.Event()

        async def report(*_: object) -> None:
            reported.set()

        async with anyio.create_task_group() as calling:
            calling.start_soon(_call, host, {"steps": 60, "pause_seconds": 10}, report)
            await reported.wait()
            calling.cancel_scope.cancel()
    await host_calls_a_tool(case, client, mode)


async def _call(host: Client, arguments: Json, report: Any) -> None:
    await host.call_tool("countdown", arguments, progress_callback=report)


def _host(case: Case, client: httpx2.AsyncClient, mode: str) -> Client:
    transport = streamable_http_client(f"{case.base}/mcp", http_client=client)
    return Client(transport, mode=mode, cache=None)  # type: ignore[arg-type]


async def drive(case: Case, client: httpx2.AsyncClient, say: Callable[[str], None]) -> None:
    """Look at all of it."""
    say(f"  card      {await card_names_the_proxy(case, client)}")
    say(
        f"  stream    {await task_arrives_event_by_event(case, client)} events, the first of a task that goes on"
    )
    for mode in ("2026-07-28", "legacy"):
        await host_calls_a_tool(case, client, mode)
        await host_that_goes_away_cancels(case, client, mode)
        say(f"  MCP       {mode}: tools, a call, progress in the middle of a call, its cancellation")
