"""The limits of what is tested: those of the default profile, but for what a test says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from bridge.a2a.server.app import AgentLimits
from bridge.a2a.server.event_stream import StreamPace
from bridge.a2a.tasks.agent import HeldLimits
from bridge.a2a.tasks.intake import EngineLimits, HistoryLimits
from bridge.assembly import limits, offered_server
from bridge.assembly.plan import ServerPlan
from bridge.config.tables.profile import load_profile
from bridge.mcp.client.eras import Era
from bridge.mcp.client.link import ListBounds
from bridge.mcp.client.session import SessionPace
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.upstream import SessionRules
from bridge.mcp.server.server import McpLimits

PROFILE: Final = load_profile()
_PLAN: Final = ServerPlan.as_profile_says(StdioTarget(("none",)), Era.AUTO, PROFILE.server, PROFILE.run)


def engine_limits(**said: Any) -> EngineLimits:
    """Of the tasks of an agent."""
    return replace(limits.engine_limits(PROFILE, PROFILE), **said)


def history_limits(**said: Any) -> HistoryLimits:
    """Of what a task may hold of what was said."""
    return replace(engine_limits().history, **said)


def held_limits(**said: Any) -> HeldLimits:
    """Of what a task takes in while it is at work."""
    return replace(engine_limits().held, **said)


def agent_limits(**said: Any) -> AgentLimits:
    """Of the clients of an agent."""
    return replace(limits.agent_limits(PROFILE, PROFILE), **said)


def stream_pace(**said: Any) -> StreamPace:
    """Of the streams of an agent."""
    return replace(limits.stream_pace(PROFILE), **said)


def mcp_limits(**said: Any) -> McpLimits:
    """Of the clients of an MCP server."""
    return replace(offered_server.mcp_limits(PROFILE), **said)


def session_pace(**said: Any) -> SessionPace:
    """Of a session with a tool server."""
    return replace(_PLAN.pace, **said)


def session_rules(**said: Any) -> SessionRules:
    """Of who shares a session with a tool server."""
    return replace(_PLAN.rules, **said)


def list_bounds(**said: Any) -> ListBounds:
    """Of what a tool server lists."""
    return replace(_PLAN.pace.list_bounds, **said)
