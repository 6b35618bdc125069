"""Tools as a server would list them, for tests that need no server."""

from __future__ import annotations

from typing import Any

from bridge.mcp.tools import Tool, tools_from
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.message_to_call import RouteRules
from tests.support.limits import PROFILE, values_by_table


def tool_of(listed: dict[str, Any]) -> Tool:
    """One listed tool; it has to be one that can be served."""
    tools, left_out = tools_from([listed])
    assert left_out == ()
    return tools[0]


def tool(
    name: str = "t", required: str = "", *, listed: dict[str, Any] | None = None, **properties: Any
) -> Tool:
    """A tool with these properties, `required` by their names."""
    schema = {"type": "object", "properties": properties, "required": required.split()}
    return tool_of({"name": name, "inputSchema": schema, **(listed or {})})


def skills(*tools: Tool) -> dict[str, Tool]:
    """Tools by their names, as an agent holds them."""
    return {one.name: one for one in tools}


def options_with(**chosen: Any) -> AgentOptions:
    """The choices of an agent, of which a test names those that it is about."""
    run = PROFILE.run.having(
        call_timeout_seconds=1.0,
        task_timeout_seconds=1.0,
        queue_timeout_seconds=1.0,
        input_timeout_seconds=1.0,
        cancel_grace_seconds=1.0,
        progress_in_flight=1,
        progress_per_second=1.0,
    )
    content = PROFILE.content.having(inline_limit_bytes=1, links_most=1, links_limit_bytes=1)
    card = PROFILE.card.having(unavailable_after_seconds=float("inf"))
    tables, own = values_by_table(chosen, card=card, arguments=PROFILE.arguments, run=run, content=content)
    return AgentOptions(**{"route": RouteRules(("skillId",)), **tables, **own})
