"""The parts of a bridge that run, by name, each started and ended on a task of its own.

What is entered has to be left on the same task, in the reverse order. A reload ends some parts and keeps others, so
they cannot be nested in one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc
from starlette.types import ASGIApp

from bridge.a2a.client.catalog import CatalogSource
from bridge.assembly.offered_server import OfferedServer
from bridge.assembly.plan import CatalogPlan, Plan, ServerPlan
from bridge.assembly.published_agent import PublishedAgent
from bridge.mcp.client.upstream import Upstream

T = TypeVar("T")


class PartTask(Generic[T]):
    """One part: what `make` gives is entered when it starts, and left when it ends."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._wanted = anyio.Event()
        self._ended = anyio.Event()
        self._value: T | None = None

    async def start(self, group: anyio.abc.TaskGroup) -> T:
        """Enter it on a task of the group; raises what entering raises."""
        value: T = await group.start(self._run)
        self._value = value
        return value

    @property
    def value(self) -> T:
        """What was entered."""
        assert self._value is not None, "it has not been started"
        return self._value

    async def end(self) -> None:
        """Leave it, and wait until it is left."""
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
    """A part that is replaced when its plan is another."""

    plan: P
    unit: PartTask[T]


@dataclass(frozen=True)
class MountedServer:
    """An offered server, and where it is served over HTTP, if it is."""

    offered: OfferedServer
    app: ASGIApp | None


@dataclass
class Parts:
    """What runs."""

    servers: dict[str, PlannedPart[ServerPlan, Upstream]] = field(default_factory=dict)
    catalogs: dict[str, PlannedPart[CatalogPlan, CatalogSource]] = field(default_factory=dict)
    published: dict[str, PartTask[PublishedAgent]] = field(default_factory=dict)
    offered: dict[str, PartTask[MountedServer]] = field(default_factory=dict)

    def __or__(self, newer: Parts) -> Parts:
        """These, and the newer ones, also in the place of their namesakes."""
        return Parts(
            self.servers | newer.servers,
            self.catalogs | newer.catalogs,
            self.published | newer.published,
            self.offered | newer.offered,
        )

    def wanted_by(self, plan: Plan) -> Parts:
        """Those that a plan has a use for."""
        servers, catalogs = servers_of(plan), catalogs_of(plan)
        is_named_later = "" in plan.published
        return Parts(
            {key: one for key, one in self.servers.items() if key in servers},
            {key: one for key, one in self.catalogs.items() if key in catalogs},
            {name: one for name, one in self.published.items() if name in plan.published or is_named_later},
            {name: one for name, one in self.offered.items() if name in plan.offered},
        )

    def without(self, others: Parts) -> Parts:
        """Those that are not among the others."""
        return Parts(
            _without(self.servers, others.servers),
            _without(self.catalogs, others.catalogs),
            _without(self.published, others.published),
            _without(self.offered, others.offered),
        )

    @property
    def running(self) -> int:
        """How many tasks of agents, and calls of servers, are being worked on."""
        calls = sum(face.offered.server.running for face in self.faces)
        return calls + sum(one.engine.running for one in self.agents)

    def let_go(self, principals: frozenset[str]) -> None:
        """End the streams of principals that are let in no more; their tasks and calls go on."""
        for one in self.agents:
            one.server.let_go(principals)
        for face in self.faces:
            face.offered.server.revoke(principals)

    async def drain(self, seconds: float) -> None:
        """Take in nothing new, and wait so long for what runs."""
        for face in self.faces:
            face.offered.server.stop()
        async with anyio.create_task_group() as group:
            for one in self.agents:
                group.start_soon(one.engine.drain, seconds)
            with anyio.move_on_after(seconds):
                for face in self.faces:
                    await face.offered.server.idle()
                for upstream in self.upstreams.values():
                    await upstream.idle()

    async def end(self) -> None:
        """End all of them; what others are made of comes last."""
        await _end(self.offered.values())
        await _end(self.published.values())
        await _end(one.unit for one in self.servers.values())
        await _end(one.unit for one in self.catalogs.values())

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The tool servers."""
        return {key: one.unit.value for key, one in self.servers.items()}

    @property
    def agents(self) -> tuple[PublishedAgent, ...]:
        """The published agents."""
        return tuple(unit.value for unit in self.published.values())

    @property
    def faces(self) -> tuple[MountedServer, ...]:
        """The offered servers."""
        return tuple(unit.value for unit in self.offered.values())


def servers_of(plan: Plan) -> tuple[str, ...]:
    """The tool servers that a plan's agents are made of; others need not run."""
    return tuple(dict.fromkeys(key for one in plan.published.values() for key in one.servers))


def catalogs_of(plan: Plan) -> tuple[str, ...]:
    """The catalogs that a plan's servers are made of."""
    named = (source for one in plan.offered.values() for source in one.sources)
    return tuple(dict.fromkeys(source for source in named if source in plan.catalogs))


def _without(ones: dict[str, T], others: Mapping[str, T]) -> dict[str, T]:
    return {key: one for key, one in ones.items() if others.get(key) is not one}


async def _end(units: Iterable[PartTask[Any]]) -> None:
    """End some side by side."""
    async with anyio.create_task_group() as group:
        for unit in units:
            group.start_soon(unit.end)
