"""Turns the limits of a profile into the values that the HTTP server, an agent and its engine take.

The defaults stand in `mappings/default.toml` alone.
"""

from __future__ import annotations

import logging

from bridge.a2a.server.app import AgentLimits
from bridge.a2a.server.event_stream import StreamPace
from bridge.a2a.tasks.agent import HeldLimits
from bridge.a2a.tasks.intake import EngineLimits, HistoryLimits
from bridge.config.tables.profile import Profile
from bridge.http.connections import ConnectionLimits
from bridge.http.request_checks import network_of
from bridge.http.server import HttpServerLimits, RequestLimits

logger = logging.getLogger(__name__)


def server_limits(profile: Profile, descriptors: int) -> HttpServerLimits:
    """The limits of the HTTP server, with no more connections than `descriptors` allow."""
    requests, connections = profile.requests, profile.connections
    wanted = ConnectionLimits(
        most=connections.most,
        new=connections.new,
        each=connections.each,
        proxies=tuple(network_of(one) for one in connections.proxies),
        idle_seconds=connections.idle_seconds,
        head_seconds=requests.head_seconds,
        body_seconds=requests.body_seconds,
        bodies_bytes=requests.bodies_limit_bytes,
    )
    fitting = wanted.within(descriptors)
    if fitting != wanted:
        logger.info("%d descriptors are enough for %d connections", descriptors, fitting.most)
    return HttpServerLimits(
        RequestLimits(
            head_bytes=requests.head_limit_bytes,
            headers=requests.headers,
            target_bytes=requests.target_limit_bytes,
            bytes_per_second=requests.bytes_per_second,
            pipelined=requests.pipelined,
        ),
        fitting,
    )


def engine_limits(profile: Profile, process: Profile) -> EngineLimits:
    """The limits of an agent's engine: deadlines of tasks, and how much tasks may hold."""
    return EngineLimits(
        cancel_grace_seconds=profile.run.cancel_grace_seconds,
        drain_seconds=profile.run.drain_seconds,
        repeat_seconds=process.requests.repeat_seconds,
        repeat_answered_seconds=process.requests.repeat_answered_seconds,
        held=HeldLimits(process.requests.held_messages, process.requests.held_bytes),
        history=HistoryLimits(
            process.requests.history_messages,
            process.requests.history_bytes,
            process.requests.timeline_moments,
        ),
        open_tasks=process.requests.open_tasks,
        watch_events=process.streams.queue_events,
        input_timeout_seconds=profile.run.input_timeout_seconds,
    )


def agent_limits(profile: Profile, process: Profile) -> AgentLimits:
    """The limits of requests to an agent."""
    return AgentLimits(
        body_bytes=process.requests.body_limit_bytes,
        json_depth=process.requests.json_depth,
        json_values=process.requests.json_values,
        streams=process.streams.open,
        card_max_age_seconds=profile.card.max_age_seconds,
        signed_cards=profile.card.signed_most,
    )


def stream_pace(process: Profile) -> StreamPace:
    """How long an agent's stream may be silent, and how long a client may leave it unread."""
    return StreamPace(process.streams.heartbeat_seconds, process.streams.stall_seconds)
