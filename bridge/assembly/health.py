"""The answer of /readyz: whether the process can do its work, and what is missing, since when and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from bridge.a2a.model.objects import timestamp
from bridge.assembly.parts import Parts
from bridge.jsonvalues import JsonObject
from bridge.mcp.client.call_queue import SlotHold
from bridge.mcp.client.upstream import Upstream
from bridge.source_state import SourceState


def readiness(parts: Parts, *, starting: bool) -> tuple[bool, JsonObject]:
    """Whether the bridge is ready, and its whole state as JSON.

    A bridge is ready when everything has been started, every store takes writes, and each agent has a tool server that
    is up. A remote agent that is down does not count: its tools stay listed, and calls of them say that it is down.
    """
    ready = not starting
    agents: JsonObject = {}
    for one in parts.agents:
        has_server = any(state.down is None for state in one.agent.sources)
        ready = ready and has_server and one.engine.ready
        agents[one.name] = {
            "store": "ok" if one.engine.ready else "takes no writes",
            "servers": {
                key: {**state, **_busy(one.agent.upstreams[key])}
                for key, state in _states(one.agent.sources).items()
            },
        }
    faces: JsonObject = {
        face.offered.name: {"agents": {**_states(face.offered.face.sources)}} for face in parts.faces
    }
    return ready, {"status": "ready" if ready else "not ready", "agents": agents, "mcp": faces}


_HELP: Final = (
    "A task that waits for an answer keeps its server from other calls: answer it or cancel it. With a larger"
    " `sessions`, in [tool_servers.NAME] or in [server] of the mapping profile, other calls run beside it"
)


def _states(states: Iterable[SourceState]) -> dict[str, JsonObject]:
    return {
        state.key: {
            "up": state.down is None,
            "since": timestamp(state.since_ms),
            **({} if state.down is None else {"why": state.down}),
        }
        for state in states
    }


def _busy(upstream: Upstream) -> JsonObject:
    """The calls that hold a server's slots while they wait for an answer, and what can be done about it."""
    if not upstream.holds:
        return {}
    held = [_held(hold) for hold in upstream.holds]
    return {"waiting": upstream.waiting, "held": [*held], "help": _HELP}


def _held(hold: SlotHold) -> JsonObject:
    task: JsonObject = {} if hold.caller.is_secret else {"task": hold.caller.task_id}
    if math.isinf(hold.ends_in_seconds):
        return task
    return {**task, "withdrawnInSeconds": round(hold.ends_in_seconds)}
