"""The first page: the endpoints, the peers behind them, which peers are up, why others are down, and the load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlencode

from bridge.a2a.client.http import redacted_url
from bridge.assembly.bridge import Bridge
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.published_agent import PublishedAgent
from bridge.assembly.routes import MCP
from bridge.console.console_access import Visit
from bridge.console.operations import at_work, operations_of
from bridge.hosts.links import links_to_url
from bridge.mcp.client.values import ToolListing
from bridge.mcp.tools import UnservableTool
from bridge.text.jsonvalues import JsonObject
from bridge.version import __version__


async def overview(bridge: Bridge, visit: Visit, waiting: int) -> JsonObject:
    """The page. Only operators see peers, their faults, and endpoints that offer them nothing. `waiting` is the number
    of tasks that wait for the visitor."""
    status = bridge.fitness
    faces = [
        *(_agent(one, visit) for one in bridge.published),
        *(_server(one, visit) for one in bridge.offered),
    ]
    told: JsonObject = {
        "version": __version__,
        "status": status,
        "faces": [face for face in faces if face["offers"] or visit.reads_all],
        "load": await load_for(bridge, visit),
        "waiting": waiting,
    }
    if not visit.reads_all:
        return told
    unseen = sum([await one.waiting_unseen() for one in operations_of(bridge, visit)])
    health = (await bridge.health(visit.who, visit.base_url)).to_object()
    return {
        **told,
        "unseen": unseen,
        "peers": [*_peers(bridge)],
        "health": health["findings"],
        "failures": health["failures"],
    }


async def load_for(bridge: Bridge, visit: Visit) -> JsonObject:
    """The load of the bridge: all of it for operators; for other visitors, the number of their own tasks at work."""
    if visit.reads_all:
        return _load_of(bridge)
    return {"running": sum([await at_work(one) for one in operations_of(bridge, visit)])}


def _load_of(bridge: Bridge) -> JsonObject:
    states = Counter[str]()
    for one in bridge.published:
        states.update({state.word: number for state, number in one.engine.running_by_state().items()})
    return {
        "running": bridge.running,
        "states": dict(sorted(states.items())),
        "queued": bridge.parts.waiting_at_servers.total(),
        "streams": sum(one.server.open_streams for one in bridge.published),
    }


def _agent(one: PublishedAgent, visit: Visit) -> JsonObject:
    usable = visit.who.in_face(one.name)
    down = [state.key for state in one.agent.sources if state.down is not None]
    over_grpc = one.grpc_address(f"{visit.base_url}{one.path}")
    return {
        "kind": "agent",
        "name": one.name,
        "path": f"/try?{urlencode({'part': f'agent/{one.name}'})}",
        "url": f"{visit.base_url}{one.path}",
        **({"grpc": over_grpc} if over_grpc else {}),
        "offers": sum(usable.may_use(skill.names) for skill in one.agent.published),
        "noun": "skill",
        "made_of": [state.key or one.name for state in one.agent.sources],
        "up": one.engine.ready and len(down) < len(one.agent.sources),
        "down": [*down],
        **({"running": one.engine.running} if visit.reads_all else {}),
    }


def _server(one: OfferedServer, visit: Visit) -> JsonObject:
    usable = visit.who.in_face(one.name)
    down = [state.key for state in one.face.sources if state.down is not None]
    return {
        "kind": "mcp",
        "name": one.name,
        "path": f"/try?{urlencode({'part': f'mcp/{one.name}'})}",
        "url": f"{visit.base_url}{MCP}/{one.name}",
        "links": {**links_to_url(one.name, f"{visit.base_url}{MCP}/{one.name}")},
        "offers": sum(usable.may_use(tool.names) for tool in one.face.published),
        "noun": "tool",
        "made_of": [state.key for state in one.face.sources],
        "up": len(down) < len(one.remote_agents),
        "down": [*down],
        **({"running": one.server.running} if visit.reads_all else {}),
    }


def _peers(bridge: Bridge) -> Iterator[JsonObject]:
    """The tool servers and agents behind the endpoints, each once."""
    state = bridge.readiness()
    known = {key: one for face in _values(state["agents"]) for key, one in _values_by_key(face["servers"])}
    queued = bridge.parts.waiting_at_servers
    for key, upstream in bridge.upstreams.items():
        greeting = upstream.greeting
        yield {
            "kind": "tool server",
            "name": key or upstream.name,
            "path": _table_of("tool_servers", key),
            "where": str(upstream.target),
            "says": "" if greeting is None else f"{greeting.name} {greeting.version}".strip(),
            "offers": len(upstream.listing.tools),
            "noun": "tool",
            "queued": queued[key],
            "unservable": [f"{tool.name}: {tool.reason}" for tool in _not_served(upstream.listing)],
            **known.get(key, _state("up" if upstream.down is None else "down", upstream.down)),
        }
    states = {key: one for face in _values(state["mcp"]) for key, one in _values_by_key(face["agents"])}
    remote = {agent.key: agent for one in bridge.offered for agent in one.remote_agents}
    queued = bridge.parts.waiting_at_agents
    for key, agent in remote.items():
        yield {
            "kind": "agent",
            "name": key,
            "path": _table_of("agents", key) if key in bridge.plan.agents else "",
            "where": redacted_url(agent.url),
            "says": f"{agent.card.name} {agent.card.version}".strip() if agent.has_card else "",
            "offers": len(agent.card.skills) if agent.has_card else 0,
            "noun": "skill",
            "queued": queued[key],
            "unservable": [],
            **states.get(key, _state(agent.state.word, agent.down)),
        }


def _not_served(listing: ToolListing) -> tuple[UnservableTool, ...]:
    return (*listing.left_out, *listing.held_back)


def _table_of(section: str, key: str) -> str:
    """The path of a peer's table on the configuration page; "" for a peer without a name."""
    return f"/configuration?{urlencode({'table': f'{section}.{key}'})}" if key else ""


def _state(word: str, down: str | None) -> JsonObject:
    return {"up": down is None, "state": word, "why": down or ""}


def _values(value: object) -> Iterator[JsonObject]:
    assert isinstance(value, dict)
    yield from value.values()


def _values_by_key(value: object) -> Iterator[tuple[str, JsonObject]]:
    assert isinstance(value, dict)
    yield from value.items()
