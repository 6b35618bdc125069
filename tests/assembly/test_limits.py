"""A default stands in the default profile, and nowhere else."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from inspect import signature
from typing import Any

from bridge.a2a.client.client import ClientOptions
from bridge.a2a.client.follow import FollowPace
from bridge.a2a.client.http_cache import FreshnessBounds
from bridge.a2a.client.transports import Deadlines
from bridge.a2a.server.app import AgentLimits
from bridge.a2a.server.event_stream import StreamPace
from bridge.a2a.tasks.agent import HeldLimits
from bridge.a2a.tasks.intake import EngineLimits, HistoryLimits
from bridge.a2a.wire.jsontext import parse_json
from bridge.agents_as_tools.options import FaceOptions
from bridge.http.connections import ConnectionLimits
from bridge.http.server import RequestLimits
from bridge.mcp.client.dispatcher import UnansweredBounds
from bridge.mcp.client.link import ListBounds
from bridge.mcp.client.session import SessionPace
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.mcp.client.upstream import SessionRules
from bridge.mcp.server.server import McpLimits
from bridge.mcp.tools import SchemaBudget
from bridge.store.records import Quota
from bridge.store.retention import Retention
from bridge.tools_as_agent.options import AgentOptions
from tests.support.limits import PROFILE


def test_what_a_profile_says_has_no_default_in_the_code() -> None:
    made_of_a_profile = (
        AgentOptions,
        ConnectionLimits,
        EngineLimits,
        FaceOptions,
        HeldLimits,
        HistoryLimits,
        ListBounds,
        McpLimits,
        Quota,
        RequestLimits,
        Retention,
        AgentLimits,
        SessionPace,
        SessionRules,
        StreamPace,
    )
    assert {kind.__name__: names for kind in made_of_a_profile if (names := _defaults_of(kind))} == {
        "AgentOptions": {"name", "description"},
        "EngineLimits": {"store_pace"},
        "FaceOptions": {"title", "instructions"},
        "McpLimits": {"sessions", "session_idle_seconds", "list_ttl_ms"},
        "Quota": {"total_bytes", "each_bytes"},
    }


def test_a_default_of_what_is_also_made_without_a_profile_is_that_of_the_default_profile() -> None:
    agents, server, requests = PROFILE.agents, PROFILE.server, PROFILE.requests
    client, pace, cards = ClientOptions(), FollowPace(), FreshnessBounds()
    depth = signature(parse_json).parameters
    for target in (HttpTarget("http://127.0.0.1"), StdioTarget(("none",))):
        assert (target.result_limit_bytes, target.result_json_values) == (
            server.result_limit_bytes,
            server.result_json_values,
        )
    assert client.deadlines == Deadlines(
        agents.agent_connect_seconds, agents.answer_seconds, agents.silence_seconds
    )
    assert client.json_values == agents.answer_json_values
    assert (pace.outage_seconds, pace.task_limit_bytes) == (agents.outage_seconds, agents.task_limit_bytes)
    assert (cards.min_seconds, cards.max_seconds) == (agents.card_min_seconds, agents.card_max_seconds)
    assert UnansweredBounds() == UnansweredBounds(server.unanswered_most, server.result_limit_bytes)
    assert SchemaBudget().most == server.schema_values
    assert (depth["max_depth"].default, depth["max_values"].default) == (
        requests.json_depth,
        requests.json_values,
    )


def _defaults_of(kind: Any) -> set[str]:
    found: tuple[Field[Any], ...] = fields(kind)
    return {
        field.name for field in found if field.default is not MISSING or field.default_factory is not MISSING
    }
