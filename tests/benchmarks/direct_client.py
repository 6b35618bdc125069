"""The yardstick: `mcp.Client` calling the same tool without a bridge. Says `ready`, then takes plans on stdin.

The CPU time that it finds is by default its own, of the whole process: with the loop that asks, which is a few
microseconds a call and counts in favour of everyone who is compared with it. It is also what asks `mcp-a2a expose`,
over stdio or at a URL; then the plan's `cpu_of` says whose CPU time counts.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Final

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from tests.benchmarks.asking import asked, carried_out, followed, plans
from tests.benchmarks.messages import Plan
from tests.support.processes import children_of


async def run(servers: int, mode: str, command: list[str]) -> None:
    """Open all clients at once, say `ready`, carry out plans with one of them, and leave when stdin ends."""
    leaving = anyio.Event()
    clients: list[Client] = []

    async def hold() -> None:
        async with _client(mode, command) as client:
            await client.list_tools()
            clients.append(client)
            if len(clients) == servers:
                print("ready", flush=True)
            await leaving.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(servers):
            tasks.start_soon(hold)
        async for plan in plans():
            await carried_out(KINDS[plan["kind"]](clients[0], plan))
        leaving.set()


def _client(mode: str, command: list[str]) -> Client:
    """A client for a command on stdio, or for the URL that stands in its place."""
    if command[0].startswith("http://"):
        return Client(command[0], mode=mode, cache=None)
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    return Client(server, mode=mode, cache=None)


def _pid_of(plan: Plan) -> int:
    """The process that a plan means by `cpu_of`: its id, or `server`, the only child; by default this one."""
    whose = plan.get("cpu_of", "client")
    if whose == "server":
        (pid,) = children_of()
        return pid
    return os.getpid() if whose == "client" else int(whose)


async def send(client: Client, plan: Plan) -> Plan:
    """So many calls, so many of them at once."""

    async def call(text: str) -> CallToolResult:
        return await client.call_tool(plan["tool"], {plan["argument"]: text})

    def require(result: CallToolResult, text: str) -> None:
        require_text(result, plan["prefix"] + text)

    return await asked(plan, call, require, _pid_of(plan))


async def stream(client: Client, plan: Plan) -> Plan:
    """So many calls, one after the other, each with reports of its progress."""

    async def follow() -> Plan:
        return await _follow(client, plan)

    return await followed(plan, follow, _pid_of(plan))


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
    parser.add_argument("--mode", default="legacy", help="of the client: legacy, or a modern revision")
    parser.add_argument("command", nargs="+", help="the MCP server on stdio, or the URL of one")
    options = parser.parse_args()
    anyio.run(run, options.servers, options.mode, options.command)


if __name__ == "__main__":
    main()
