"""One MCP server of remote agents over stdin and stdout, without the rest of a bridge.

Hosts start this process when they start, and wait for it. So the modules that publish agents, keep tasks, call tool
servers and serve HTTP are not imported: their import would double the time of the start.
"""

from __future__ import annotations

import anyio

from bridge.assembly.offered_server import offered
from bridge.assembly.plan import Plan
from bridge.assembly.remote_agents import shared_resources
from bridge.process.resources import keep_code
from bridge.process.shutdown import Shutdown, watch_signals


async def serve_agents(plan: Plan) -> int:
    """Serve the plan's one MCP server, whose sources are remote agents, until stdin ends or a signal comes.

    Returns the exit code.

    Raises:
        UsageError: the key of the handles cannot be read or made.
    """
    keep_code()
    stopping = Shutdown()
    ((name, offered_plan),) = plan.offered.items()
    async with anyio.create_task_group() as tasks:
        with stopping.starting:
            await tasks.start(watch_signals, stopping)
            async with (
                shared_resources(plan) as shared,
                offered(name, offered_plan, plan.agents, shared) as there,
            ):
                await there.server.run_stdio()
        tasks.cancel_scope.cancel()
    return stopping.exit_code
