"""The yardstick: `mcp.Client` calling the same tool without a bridge. Says `ready`, then takes plans on stdin.

A plan is a line of JSON as in `load`, and so is what it found. Its CPU time is the whole process's: with the loop
that asks, which is a few microseconds a call and counts in favour of everyone who is compared with it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Final

import anyio
import anyio.to_thread
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.benchmarks.messages import LIMIT_SECONDS, Plan, texts_for
from tests.benchmarks.usage import cpu_seconds


async def run(servers: int, command: list[str]) -> None:
    """Open all clients at once, say `ready`, carry out plans with one of them, and leave when stdin ends."""
    server = StdioServerParameters(command=command[0], args=command[1:])
    leaving = anyio.Event()
    clients: list[Client] = []

    async def hold() -> None:
        async with Client(server, mode="legacy") as client:
            await client.list_tools()
            clients.append(client)
            if len(clients) == servers:
                print("ready", flush=True)
            await leaving.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(servers):
            tasks.start_soon(hold)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            plan = json.loads(line)
            with anyio.fail_after(LIMIT_SECONDS):
                print(json.dumps(await KINDS[plan["kind"]](clients[0], plan)), flush=True)
        leaving.set()


async def send(client: Client, plan: Plan) -> Plan:
    """So many calls, so many of them at once."""
    warm, counted = texts_for(plan)
    await _call_all(client, plan, warm)
    cpu, begun = cpu_seconds(os.getpid()), time.perf_counter()
    latencies = await _call_all(client, plan, counted)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "latencies": latencies, "cpu_seconds": cpu_seconds(os.getpid()) - cpu}


async def _call_all(client: Client, plan: Plan, texts: list[str]) -> list[float]:
    latencies: list[float] = []
    waiting = iter(texts)

    async def worker() -> None:
        for text in waiting:
            begun = time.perf_counter()
            result = await client.call_tool(plan["tool"], {plan["argument"]: text})
            latencies.append(time.perf_counter() - begun)
            require_text(result, plan["prefix"] + text)

    async with anyio.create_task_group() as tasks:
        for _ in range(plan["concurrency"]):
            tasks.start_soon(worker)
    return latencies


async def stream(client: Client, plan: Plan) -> Plan:
    """So many calls, one after the other, each with reports of its progress."""
    await _follow(client, plan)
    cpu = cpu_seconds(os.getpid())
    streams = [await _follow(client, plan) for _ in range(plan["streams"])]
    return {"streams": streams, "cpu_seconds": cpu_seconds(os.getpid()) - cpu}


async def _follow(client: Client, plan: Plan) -> Plan:
    seen: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append(time.perf_counter())

    begun = time.perf_counter()
    result = await client.call_tool(plan["tool"], {"steps": plan["steps"]}, progress_callback=report)
    seconds = time.perf_counter() - begun
    require_text(result, f"{plan['steps']} steps")
    first = seen[0] - begun if seen else seconds
    return {"first_seconds": first, "seconds": seconds, "events": len(seen)}


def require_text(result: CallToolResult, text: str) -> None:
    """Fail unless this is what the tool had to say."""
    if result.is_error or result.content != [TextContent(type="text", text=text)]:
        raise ValueError(f"the tool was to say {text!r} and said {result!r}")


KINDS: Final = {"send": send, "stream": stream}


def main() -> None:
    """Run until stdin ends."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.direct_client", description="The MCP SDK client.")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("command", nargs="+", help="the MCP server on stdio")
    options = parser.parse_args()
    anyio.run(run, options.servers, options.command)


if __name__ == "__main__":
    main()
