"""The running parts of a bridge, by name, each started and ended on a task of its own.

A context must be left on the task that entered it, in reverse order. A reload ends some parts and keeps others, so the
contexts of parts cannot be nested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc
from starlette.types import ASGIApp

from bridge.a2a.client.catalog import CatalogSource
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.plan import CatalogPlan, OfferedPlan, Plan, ServerPlan
from bridge.assembly.published_agent import PublishedAgent
from bridge.identity.callers.principals import Principal, PrincipalNames, waiting_rights
from bridge.mcp.client.upstream import Upstream
from bridge.remotes.remote_agent import RemoteAgent

T = TypeVar("T")


class PartTask(Generic[T]):
    """One part: enters the context that `make` gives when it starts, and leaves the context when it ends."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._wanted = anyio.Event()
        self._ended = anyio.Event()
        self._value: T | None = None

    async def start(self, group: anyio.abc.TaskGroup) -> T:
        """Enter the context on a task of the group. Raises what entering raises."""
        value: T = await group.start(self._run)
        self._value = value
        return value

    @property
    def value(self) -> T:
        """The value that the context yielded."""
        assert self._value is not None, "it has not been started"
        return self._value

    async def end(self) -> None:
        """Leave the context, and wait until that is done."""
        self._wanted.set()
        await self._ended.wait()

    async def _run(self, *, task_status: anyio.abc.TaskStatus[T]) -> None:
        try:
            async with self._make() as value:
                task_status.started(value)
                await self._wanted.wait()
        finally:
            self._ended.set()


P = TypeVar("P")


@dataclass(frozen=True)
class PlannedPart(Generic[P, T]):
    """A part with the plan that it was made from. Another plan replaces the part."""

    plan: P
    unit: PartTask[T]


@dataclass(frozen=True)
class MountedServer:
    """An offered server, and its application if it is served over HTTP."""

    offered: OfferedServer
    app: ASGIApp | None


@dataclass
class Parts:
    """The running parts of each kind."""

    servers: dict[str, PlannedPart[ServerPlan, Upstream]] = field(default_factory=dict)
    catalogs: dict[str, PlannedPart[CatalogPlan, CatalogSource]] = field(default_factory=dict)
    published: dict[str, PartTask[PublishedAgent]] = field(default_factory=dict)
    offered: dict[str, PartTask[MountedServer]] = field(default_factory=dict)

    def __or__(self, newer: Parts) -> Parts:
        """These parts and newer parts. A newer part replaces the part of the same name."""
        return Parts(
            self.servers | newer.servers,
            self.catalogs | newer.catalogs,
            self.published | newer.published,
            self.offered | newer.offered,
        )

    def wanted_by(self, plan: Plan) -> Parts:
        """The running parts (servers, agents, catalogs) that a plan uses."""
        servers, catalogs = servers_of(plan), catalogs_of(plan)
        is_named_later = "" in plan.published
        return Parts(
            {key: server for key, server in self.servers.items() if key in servers},
            {key: catalog for key, catalog in self.catalogs.items() if key in catalogs},
            {
                name: published
                for name, published in self.published.items()
                if name in plan.published or is_named_later
            },
            {name: offered for name, offered in self.offered.items() if name in plan.offered},
        )

    def unread_catalogs(self, offered_plan: OfferedPlan) -> tuple[str, ...]:
        """The catalogs of an offered server that were never read. Which agents they list is not known."""
        used = {key: self.catalogs[key].unit.value for key in offered_plan.sources if key in self.catalogs}
        return tuple(key for key, source in used.items() if source.cached() is None)

    def without(self, others: Parts) -> Parts:
        """The parts that are not among `others`."""
        return Parts(
            _without(self.servers, others.servers),
            _without(self.catalogs, others.catalogs),
            _without(self.published, others.published),
            _without(self.offered, others.offered),
        )

    @property
    def running(self) -> int:
        """The number of running tasks of agents and calls of MCP servers."""
        calls = sum(face.offered.server.running for face in self.faces)
        return calls + sum(published.engine.running for published in self.agents)

    @property
    def waiting_at_servers(self) -> Counter[str]:
        """The calls that wait at each tool server, or for the turn of one of its tools."""
        waiting = Counter({key: server.waiting for key, server in self.upstreams.items()})
        for published in self.agents:
            waiting.update(published.agent.waiting)
        return waiting

    @property
    def waiting_at_agents(self) -> Counter[str]:
        """The calls that wait for the turn of a tool of each agent, over all faces."""
        waiting: Counter[str] = Counter()
        for face in self.faces:
            waiting.update(face.offered.face.waiting)
        return waiting

    def remote_agent(self, mark: str) -> RemoteAgent | None:
        """The agent with this mark, among all offered servers. An agent that may notify the bridge comes first."""
        agents = (agent for face in self.faces for agent in face.offered.remote_agents)
        marked = [agent for agent in agents if agent.mark == mark]
        return max(marked, key=lambda agent: agent.may_notify, default=None)

    def waiting_rights(self, principals: Sequence[Principal]) -> Iterator[str]:
        """In words: what these principals cannot use yet, because a peer was never read."""
        for published in self.agents:
            names = [skill.names for skill in published.agent.published]
            yield from waiting_rights(published.name, names, published.agent.unknown, principals)
        for server in (face.offered for face in self.faces):
            names = [tool.names for tool in server.face.published]
            yield from waiting_rights(server.name, names, server.face.unknown, principals)

    def end_streams_of(self, principals: PrincipalNames) -> None:
        """End the streams of principals that lost access. Their tasks and calls go on."""
        for published in self.agents:
            published.server.end_streams_of(principals)
        for face in self.faces:
            face.offered.server.revoke(principals)

    async def drain(self, seconds: float) -> None:
        """Refuse new work, and wait at most `seconds` for running work."""
        for face in self.faces:
            face.offered.server.stop()
        async with anyio.create_task_group() as group:
            for published in self.agents:
                group.start_soon(published.engine.drain, seconds)
            with anyio.move_on_after(seconds):
                for face in self.faces:
                    await face.offered.server.idle()
                for upstream in self.upstreams.values():
                    await upstream.idle()

    async def end(self) -> None:
        """End all parts: faces first, then the servers and catalogs that they are made of."""
        await _end(self.offered.values())
        await _end(self.published.values())
        await _end(server.unit for server in self.servers.values())
        await _end(catalog.unit for catalog in self.catalogs.values())

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The tool servers."""
        return {key: server.unit.value for key, server in self.servers.items()}

    @property
    def agents(self) -> tuple[PublishedAgent, ...]:
        """The published agents."""
        return tuple(unit.value for unit in self.published.values())

    @property
    def faces(self) -> tuple[MountedServer, ...]:
        """The offered servers."""
        return tuple(unit.value for unit in self.offered.values())


@dataclass(eq=False)
class RetiringParts:
    """Replaced parts that end after their last call."""

    parts: Parts
    ended: anyio.Event = field(default_factory=anyio.Event)


def servers_of(plan: Plan) -> tuple[str, ...]:
    """The tool servers that the agents of a plan use. Other servers are not started."""
    return tuple(dict.fromkeys(key for published in plan.published.values() for key in published.servers))


def catalogs_of(plan: Plan) -> tuple[str, ...]:
    """The catalogs that the faces of a plan use."""
    return tuple(dict.fromkeys(source for source in remotes_in(plan) if source in plan.catalogs))


def remotes_in(plan: Plan) -> Iterator[str]:
    """Yield what the faces of a plan name in `from`, without tool servers."""
    for offered in plan.offered.values():
        yield from offered.sources
    for published in plan.published.values():
        yield from published.agents


def _without(ones: dict[str, T], others: Mapping[str, T]) -> dict[str, T]:
    return {key: part for key, part in ones.items() if others.get(key) is not part}


async def _end(units: Iterable[PartTask[Any]]) -> None:
    """End parts concurrently."""
    async with anyio.create_task_group() as group:
        for unit in units:
            group.start_soon(unit.end)
