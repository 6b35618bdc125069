"""Agents over gRPC for tests of the client: one that follows a script, and one whose methods the test writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.abc
import grpc
from grpc import aio

from bridge.a2a.grpc.server import GrpcServer, GrpcSettings
from bridge.a2a.layers.operations import TaskOperations
from bridge.a2a.server.app import AgentServer
from bridge.a2a.server.service import AgentService
from bridge.a2a.tasks.agent import Job
from bridge.a2a.tasks.engine import Engine
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.a2a.wire.versions import VERSIONS
from bridge.http.request_checks import FaceAddress
from bridge.identity.callers.verifiers import Access
from tests.support.agents import Scripted, engine_of
from tests.support.limits import PROFILE, agent_limits

PATIENCE_SECONDS: Final = 20


@dataclass(frozen=True)
class _OneAgent:
    """See `ServedAgents`."""

    server: AgentServer
    http_url: str = "http://127.0.0.1:1"

    def servers(self) -> Mapping[str, tuple[AgentServer, str]]:
        return {"scripted": (self.server, "")}

    def is_ready(self, name: str) -> bool | None:
        return True


@asynccontextmanager
async def scripted_over_grpc(
    script: Callable[[Job], Awaitable[None]], streams: Mapping[str, Any] | None = None, **limits: Any
) -> AsyncIterator[int]:
    """Serve an agent that follows a script over gRPC; its port. `streams` are changes of the settings for streams, and
    `limits` are those of the engine."""
    async with (
        engine_of(script, **limits) as engine,
        served_at(Scripted(script), service_of(engine), **(streams or {})) as port,
    ):
        yield port
        await engine.drain(0)


def service_of(engine: Engine, tasks: TaskOperations | None = None) -> AgentService:
    """The operations of an engine, with the layers around it."""
    return AgentService(engine, ExtensionFilter({}), PROFILE.requests.parts, tasks)


@asynccontextmanager
async def served_at(agent: Scripted, service: AgentService, **streams: Any) -> AsyncIterator[int]:
    """Serve the operations of an agent over gRPC; its port. `streams` are changes of the settings for streams."""
    of_streams = PROFILE.streams.model_copy(update=streams)
    settings = GrpcSettings("127.0.0.1", 0, PROFILE.requests, PROFILE.connections, of_streams)
    server = AgentServer(agent, service, Access(()), FaceAddress(), agent_limits(), versions=VERSIONS)
    async with GrpcServer(settings) as listening, anyio.create_task_group() as group:
        group.start_soon(listening.serve, _OneAgent(server))
        yield listening.port
        listening.should_exit = True


@asynccontextmanager
async def methods_over_grpc(handlers: Mapping[str, Any]) -> AsyncIterator[int]:
    """Serve handlers by the name of their method; the port."""

    class Methods(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            return handlers.get(call.method.rpartition("/")[2])

    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    server.add_generic_rpc_handlers((Methods(),))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@dataclass
class Relay:
    """Passes connections on to a port, until the test ends them."""

    to_port: int
    port: int = 0
    accepted: int = 0
    _open: list[anyio.abc.SocketStream] = field(default_factory=list)
    _is_refusing: bool = False

    async def drop_all(self, *, refuse: bool = False) -> None:
        """End all connections, and take no others if `refuse`."""
        self._is_refusing = refuse
        streams, self._open = self._open, []
        for stream in streams:
            await anyio.aclose_forcefully(stream)

    async def _take(self, client: anyio.abc.SocketStream) -> None:
        self.accepted += 1
        if self._is_refusing:
            await anyio.aclose_forcefully(client)
            return
        server = await anyio.connect_tcp("127.0.0.1", self.to_port)
        self._open += [client, server]
        async with anyio.create_task_group() as group:
            group.start_soon(_pass, client, server)
            group.start_soon(_pass, server, client)


async def _pass(source: anyio.abc.SocketStream, target: anyio.abc.SocketStream) -> None:
    try:
        async for chunk in source:
            await target.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    await anyio.aclose_forcefully(target)


@asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """A relay to a port of this machine."""
    relay = Relay(port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    relay.port = listener.extra(anyio.abc.SocketAttribute.local_address)[1]
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, relay._take)
        yield relay
        await relay.drop_all(refuse=True)
        group.cancel_scope.cancel()
