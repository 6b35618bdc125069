"""A default stands in the default profile, and nowhere else."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from inspect import signature
from pathlib import Path
from typing import Any

from bridge.a2a.client.agent_client import ClientOptions
from bridge.a2a.client.follow import FollowPace
from bridge.a2a.client.http_cache import FreshnessBounds
from bridge.a2a.client.transports import Deadlines
from bridge.a2a.server.app import AgentLimits
from bridge.a2a.tasks.intake import EngineLimits
from bridge.a2a.wire.jsontext import parse_json
from bridge.agents_as_tools.options import FaceOptions
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.mcp.client.dispatcher import UnansweredBounds
from bridge.mcp.client.transports.stdio import ChildPace, StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.mcp.client.values import ToolCall
from bridge.mcp.server.server import McpLimits
from bridge.mcp.tools import SchemaBudget
from bridge.store.records import Quota
from bridge.store.retention import Retention
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.skill_tools import ToolRules
from tests.support.files import written
from tests.support.limits import PROFILE, child_pace


def test_what_a_profile_says_has_no_default_in_the_code() -> None:
    made_of_a_profile = (
        AgentOptions,
        FreshnessBounds,
        ClientOptions,
        StdioTarget,
        ChildPace,
        Deadlines,
        EngineLimits,
        FaceOptions,
        McpLimits,
        FollowPace,
        Quota,
        Retention,
        AgentLimits,
        ToolCall,
        ToolRules,
        UnansweredBounds,
        HttpTarget,
    )
    assert {kind.__name__: names for kind in made_of_a_profile if (names := _defaults_of(kind))} == {
        "AgentOptions": {
            "name",
            "face",
            "push",
            "description",
            "extensions",
            "share",
            "stand_ins",
            "links",
            "shares_apps",
            "shares_logs",
            "shares_tasks",
            "chooser",
        },
        "FreshnessBounds": {"retry_seconds", "answer_seconds"},
        "ClientOptions": {
            "bindings",
            "extensions",
            "grpc",
            "credentials",
            "trust",
            "undeclared",
            "reach",
            "limit_bytes",
            "baggage_keys",
            "on_hop",
            "on_refusal",
            "versions",
            "hops",
            "how_to_log_in",
            "peer",
        },
        "StdioTarget": {"env", "cwd", "roots", "shown"},
        "EngineLimits": {"store_pace"},
        "FaceOptions": {"title", "instructions", "names_one_agent"},
        "McpLimits": {"sessions", "session_idle_seconds", "list_ttl_ms"},
        "FollowPace": {
            "end_seconds",
            "first_seconds",
            "late_seconds",
            "most_seconds",
            "piece_seconds",
            "stale_seconds",
        },
        "ToolCall": {"input_responses", "may_read", "meta", "request_state", "takes_tasks"},
        "HttpTarget": {
            "callers",
            "headers",
            "listener",
            "oauth",
            "shown",
            "tls",
            "allow_private",
            "on_command_line",
            "transport",
            "proxy",
            "roots",
            "seen",
        },
        "Quota": {"total_bytes", "each_bytes"},
    }


def test_a_default_of_what_is_also_made_without_a_profile_is_that_of_the_default_profile() -> None:
    """Schemas of what is no tool server, and JSON of what is no request, are bounded by the code alone."""
    depth = signature(parse_json).parameters
    assert SchemaBudget().most == PROFILE.server.schema_values
    assert (depth["max_depth"].default, depth["max_values"].default) == (
        PROFILE.requests.json_depth,
        PROFILE.requests.json_values,
    )


def test_how_long_the_end_of_a_server_is_waited_for_is_said_of_it_or_by_the_profile(tmp_path: Path) -> None:
    slow = "[tool_servers.slow]\ncommand = ['slow']\nchild_exit_seconds = 30\n"
    other = "[tool_servers.other]\ncommand = ['other']\n[tools_as_agent.both]\nfrom = ['slow', 'other']\n"
    profile = "extends = 'default'\n[server]\nchild_quiet_seconds = 1\n"
    written(tmp_path, profile, name="mine.toml")
    file = written(tmp_path, "[bridge]\nmapping = 'mine.toml'\n", slow, other)
    targets = {key: one.target for key, one in plan_from_file(load(file, {})).servers.items()}
    assert {key: target.pace for key, target in targets.items() if isinstance(target, StdioTarget)} == {
        "slow": child_pace(exit_seconds=30, quiet_seconds=1),
        "other": child_pace(quiet_seconds=1),
    }


def _defaults_of(kind: Any) -> set[str]:
    found: tuple[Field[Any], ...] = fields(kind)
    return {
        field.name for field in found if field.default is not MISSING or field.default_factory is not MISSING
    }
