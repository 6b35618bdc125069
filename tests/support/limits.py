"""The limits of what is tested: those of the default profile, but for what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bridge.a2a.client.agent_client import ClientOptions
from bridge.a2a.client.follow import FollowPace
from bridge.a2a.client.http_cache import FreshnessBounds
from bridge.a2a.client.transports import Deadlines
from bridge.a2a.server.app import AgentLimits
from bridge.a2a.tasks.intake import EngineLimits
from bridge.agents_as_tools.options import FaceOptions
from bridge.assembly import remote_agents
from bridge.config.tables.profile import load_profile
from bridge.mcp.client.transports.stdio import ChildPace, StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.mcp.client.values import ToolCall
from bridge.mcp.server.server import McpLimits
from bridge.settings import ServerSettings, Settings
from bridge.text.jsonvalues import JsonObject
from bridge.translate.skill_tools import ToolRules

PROFILE: Final = load_profile()


def url_at(url: str, headers: Mapping[str, str] | None = None, **said: Any) -> HttpTarget:
    """A tool server at a URL."""
    limits = {
        "connect_seconds": PROFILE.server.connect_seconds,
        "result_limit_bytes": PROFILE.server.result_limit_bytes,
        "result_json_values": PROFILE.server.result_json_values,
    }
    return HttpTarget(url, headers or {}, **{**limits, **said})


def command_of(
    argv: tuple[str, ...], env: Mapping[str, str] | None = None, cwd: str | None = None, **said: Any
) -> StdioTarget:
    """A tool server that is started."""
    limits = {
        "result_limit_bytes": PROFILE.server.result_limit_bytes,
        "result_json_values": PROFILE.server.result_json_values,
        "pace": child_pace(),
    }
    return StdioTarget(argv, env or {}, cwd, **{**limits, **said})


def child_pace(**said: Any) -> ChildPace:
    """Of the end of a tool server that is started."""
    server = PROFILE.server
    pace = ChildPace(
        server.child_flush_seconds,
        server.child_exit_seconds,
        server.child_quiet_seconds,
        server.child_output_seconds,
    )
    return replace(pace, **said)


def client_options(extensions: tuple[str, ...] = (), **said: Any) -> ClientOptions:
    """Of a client of an agent."""
    options = ClientOptions(deadlines(), PROFILE.agents.answer_json_values, extensions)
    return replace(options, **said)


def deadlines(**said: Any) -> Deadlines:
    """Of an agent."""
    return replace(remote_agents.deadlines(PROFILE.agents), **said)


def card_bounds(**said: Any) -> FreshnessBounds:
    """Of a card or a catalog."""
    return replace(remote_agents.card_bounds(PROFILE.agents), **said)


def tool_rules(**said: Any) -> ToolRules:
    """Of the tools that stand for skills."""
    return replace(face_options().rules, **said)


def call_of(tool: str, arguments: JsonObject, *rest: Any) -> ToolCall:
    """Of a tool."""
    return ToolCall(tool, arguments, *rest, task_ttl_ms=round(PROFILE.run.task_timeout_seconds * 1000))


def pace_of(**said: Any) -> FollowPace:
    """Of a task of an agent."""
    pace = FollowPace(PROFILE.agents.outage_seconds, PROFILE.agents.task_limit_bytes)
    return replace(pace, **said)


def engine_limits(**said: Any) -> EngineLimits:
    """Of the tasks of an agent."""
    tables, own = values_by_table(said, run=PROFILE.run, requests=PROFILE.requests)
    return EngineLimits(**{"watch_events": PROFILE.streams.queue_events, **tables, **own})


def agent_limits(**said: Any) -> AgentLimits:
    """Of the clients of an agent."""
    tables, own = values_by_table(said, requests=PROFILE.requests, streams=PROFILE.streams, card=PROFILE.card)
    return AgentLimits(**tables, **own)


def mcp_limits(**said: Any) -> McpLimits:
    """Of the clients of an MCP server."""
    tables, own = values_by_table(said, requests=PROFILE.requests, streams=PROFILE.streams)
    return McpLimits(**tables, **own)


def face_options(**said: Any) -> FaceOptions:
    """Of an MCP server made of agents."""
    tables, own = values_by_table(said, agents=PROFILE.agents.having(task_poll_seconds=0.05), run=PROFILE.run)
    return FaceOptions(**{"name": "mcp-a2a", **tables, **own})


def values_by_table(said: Mapping[str, Any], **tables: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tables with the values that are theirs, and the values that are of none."""
    named = {
        name: {key: value for key, value in said.items() if key in type(table).model_fields}
        for name, table in tables.items()
    }
    rest = {key: value for key, value in said.items() if not any(key in keys for keys in named.values())}
    return {name: table.having(**named[name]) for name, table in tables.items()}, rest


def server_settings(**said: Any) -> ServerSettings:
    """Of the sessions with a tool server."""
    return PROFILE.server.having(**said)


def calls(**said: int) -> dict[str, int]:
    """Of the calls on a tool server that run and that wait."""
    return {"concurrency": PROFILE.run.concurrency, "queue": PROFILE.run.queue, **said}
