"""What a process says of itself at /readyz: whether it can do its work, and what it lacks since when and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bridge.a2a.models import timestamp
from bridge.assembly.parts import Parts
from bridge.jsonvalues import JsonObject


def readiness(parts: Parts, *, starting: bool) -> tuple[bool, JsonObject]:
    """Whether it is ready, and the whole story as JSON.

    It is when everything has been started, every store takes writes, and each agent has a tool server that is up. A
    remote agent that is down does not count: its tools are listed all the same, and say so.
    """
    ready = not starting
    agents: JsonObject = {}
    for one in parts.agents:
        has_server = any(state.down is None for state in one.agent.sources)
        ready = ready and has_server and one.engine.ready
        agents[one.name] = {
            "store": "ok" if one.engine.ready else "takes no writes",
            "servers": _states(one.agent.sources),
        }
    faces: JsonObject = {
        face.offered.name: {"agents": _states(face.offered.face.sources)} for face in parts.faces
    }
    return ready, {"status": "ready" if ready else "not ready", "agents": agents, "mcp": faces}


class _State(Protocol):
    """How a server or an agent is."""

    @property
    def key(self) -> str: ...
    @property
    def down(self) -> str | None: ...
    @property
    def since_ms(self) -> int: ...


def _states(states: Iterable[_State]) -> JsonObject:
    return {
        state.key: {
            "up": state.down is None,
            "since": timestamp(state.since_ms),
            **({} if state.down is None else {"why": state.down}),
        }
        for state in states
    }
