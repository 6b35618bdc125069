"""Serves a bridge until a signal comes, and stops it in two stages.

The first signal (Ctrl+C, SIGTERM, or SIGHUP when the terminal closes) drains the bridge: it takes no new work, and
running tasks go on for a while. The second signal stops them. In both cases every child process is ended, and every
task is left in a state that its client can read. A process without a terminal reloads its file on SIGHUP. A process
under `nohup` ignores SIGHUP.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import LOOPBACK_HOST, Plan, calls_itself
from bridge.assembly.telemetry import ReloadCount
from bridge.assembly.tool_servers import StartObserver
from bridge.config.tables.profile import Profile
from bridge.http.connections import HttpServerLimits
from bridge.http.server import BoundedServer
from bridge.http.tls import TlsPoint
from bridge.process.listening import listening
from bridge.process.reload import Reload
from bridge.process.resources import free_what_was_replaced, keep_code, raise_descriptors, share_malloc_arenas
from bridge.process.shared_listener import SharedListener, replica_listener
from bridge.process.shutdown import Shutdown, watch_signals
from bridge.telemetry.endpoint import MetricsEndpoint
from bridge.telemetry.families import MetricFamily, text_of

if TYPE_CHECKING:
    from bridge.a2a.grpc.server import GrpcServer
    from bridge.a2a.server.app import AgentServer
    from bridge.console.configuration import ServedConfiguration

logger = logging.getLogger(__name__)


class ServeObserver(StartObserver, Protocol):
    """Observes the start and the stop of serving."""

    def serving(self, bridge: Bridge, port: int) -> None:
        """The bridge accepts requests on this port."""
        ...

    def stopping(self, running: int) -> None:
        """The first signal came, and `running` tasks still run."""
        ...


async def serve_http(
    plan: Plan,
    audience: ServeObserver,
    reload: Reload | None = None,
    served: ServedConfiguration | None = None,
    shared: SharedListener | None = None,
) -> int:
    """Serve until a signal comes. Returns the exit code. `served` is the configuration that the console shows if no
    file is reloaded. `shared` is a socket from which other replicas accept, too; the plan has its address.

    Raises:
        UsageError: the port is taken, or the plan cannot be served.
        PeerError: a required tool server cannot be reached.
    """
    plan.require_safe()
    share_malloc_arenas()
    keep_code()
    stopping = Shutdown(on_hangup=reload.ask if reload is not None and not _has_terminal() else None)
    tls = _tls_of(plan)
    async with (
        _listener_of(plan, shared) as listener,
        _further_listeners(plan, shared) as further,
        _grpc_servers(plan) as grpc,
        anyio.create_task_group() as tasks,
    ):
        port: int = listener.getsockname()[1]
        plan = replace(plan, place=replace(plan.place, port=port))
        with stopping.starting:
            await tasks.start(watch_signals, stopping)
            own_url = url_of(plan.place.host, port) if further.own is None else _url_at(further.own)
            bridge = Bridge(plan, audience, own_url=own_url)
            bridge.grpc_ports = {name: server.port for name, server in grpc.items()}
            _mount_console(bridge, plan, reload or served)
            async with bridge.run(), anyio.create_task_group() as serving:
                limits = _limits_of(plan.profile)
                server = BoundedServer(bridge.app, limits, shares_listener=shared is not None, tls=tls)
                servers: list[StoppableServer] = [server]
                reloads = ReloadCount()
                for further_server, its_listener in _further_servers(plan, bridge, further, tls, reloads):
                    servers.append(further_server)
                    serving.start_soon(further_server.serve_on, its_listener)
                # Before the plan is applied: an offered server may use an agent that is published here.
                serving.start_soon(_serve_on, server, listener, serving.cancel_scope)
                await bridge.apply(plan)
                reloads.note(True)
                servers += grpc.values()
                for name, grpc_server in grpc.items():
                    serving.start_soon(grpc_server.serve, GrpcAgents(bridge, plan, name))
                stopping.serving = True
                audience.serving(bridge, port)
                serving.start_soon(_stop_servers, servers, bridge, stopping, audience)
                bridge.on_retired = free_what_was_replaced
                if reload is not None:
                    reload.on_end = partial(_note_reload, reloads, bridge)
                    serving.start_soon(_reload_until_stopping, reload, bridge, stopping)
        tasks.cancel_scope.cancel()
    return stopping.exit_code


async def serve_stdio(plan: Plan, reload: Reload | None = None) -> int:
    """Serve the plan's one MCP server over stdin and stdout until stdin ends or a signal comes.

    Returns the exit code.

    Raises:
        UsageError: the plan cannot be served.
        PeerError: a required tool server cannot be reached. The host may have been answered before.
    """
    keep_code()
    stopping = Shutdown()
    async with anyio.create_task_group() as tasks:
        with stopping.starting:
            await tasks.start(watch_signals, stopping)
            async with unannounced_bridge(plan) as (bridge, plan), anyio.create_task_group() as serving:
                await bridge.apply(plan, patience_seconds=_patience_seconds(plan))
                bridge.on_retired = free_what_was_replaced
                if reload is not None:
                    reload.on_end = partial(_note_reload, ReloadCount(), bridge)
                    serving.start_soon(reload.run, bridge)
                (offered,) = bridge.offered
                await offered.server.run_stdio()
                serving.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    return stopping.exit_code


def _patience_seconds(plan: Plan) -> float:
    """How long the start may wait for tool servers before the host gets its answer: a host gives up after a while."""
    (offered_plan,) = plan.offered.values()
    return offered_plan.profile.agents.first_servers_seconds


@asynccontextmanager
async def unannounced_bridge(
    plan: Plan, watching: StartObserver | None = None, *, over_http: bool = False
) -> AsyncIterator[tuple[Bridge, Plan]]:
    """Run a bridge without a public port. Yields the bridge and its plan, which the caller applies.

    The bridge listens only if it calls agents of its own. It then uses a free loopback port while the context is open,
    and the plan has this port.
    """
    if not calls_itself(plan):
        bridge = Bridge(plan, watching, over_http=over_http)
        async with bridge.run():
            yield bridge, plan
        return
    async with listening(LOOPBACK_HOST, 0) as listener, anyio.create_task_group() as serving:
        listener.listen()  # an early call then waits and is not refused
        port: int = listener.getsockname()[1]
        plan = replace(plan, place=replace(plan.place, host=LOOPBACK_HOST, port=port))
        bridge = Bridge(plan, watching, over_http=over_http, own_url=url_of(LOOPBACK_HOST, port))
        server = BoundedServer(bridge.app, _limits_of(plan.profile))
        serving.start_soon(server.serve_on, listener)
        async with bridge.run():
            yield bridge, plan
        server.should_exit = True


async def _serve_on(server: BoundedServer, listener: socket.socket, scope: anyio.CancelScope) -> None:
    """Serve until the server exits, and then cancel everything in `scope`."""
    await server.serve_on(listener)
    scope.cancel()


def _mount_console(bridge: Bridge, plan: Plan, served: ServedConfiguration | None = None) -> None:
    """Serve the console, if the plan has it. `served` gives the configuration that it shows.

    Raises:
        UsageError: the packages for it are not installed, or its cookies have no key.
    """
    if plan.place.console:
        from bridge.console.app import mount_console  # needs the extra `console`

        mount_console(bridge, served)


def _tls_of(plan: Plan) -> TlsPoint | None:
    """The TLS settings of the server; None for plain HTTP.

    Raises:
        UsageError: a file of it cannot be used.
    """
    return None if plan.place.tls is None else TlsPoint(plan.place.tls)


@asynccontextmanager
async def _listener_of(plan: Plan, shared: SharedListener | None) -> AsyncIterator[socket.socket]:
    if shared is not None:
        yield shared.listener
        return
    async with listening(plan.place.host, plan.place.port) as listener:
        yield listener


@asynccontextmanager
async def _listener_for_replicas(
    plan: Plan, shared: SharedListener | None
) -> AsyncIterator[socket.socket | None]:
    """The listener for the other replicas; None if no other process shares the address of this process."""
    if shared is None or plan.place.replica is None:
        yield None
        return
    async with replica_listener(plan.place.replica) as listener:
        yield listener


@asynccontextmanager
async def _own_listener(plan: Plan, *, is_shared: bool) -> AsyncIterator[socket.socket | None]:
    """A free loopback port at which the bridge calls its own agents; None if its agents can be called at the address of
    the plan.

    With TLS it cannot: the certificate is not for `127.0.0.1`, and the server may require a client certificate. At a
    shared address another process may answer."""
    if plan.place.tls is None and not is_shared:
        yield None
        return
    async with listening(LOOPBACK_HOST, 0) as listener:
        yield listener


@asynccontextmanager
async def _metrics_listener(plan: Plan) -> AsyncIterator[socket.socket | None]:
    """The listener for metrics; None if the plan has no metrics.

    Raises:
        UsageError: the port is taken.
    """
    if plan.place.metrics is None:
        yield None
        return
    option = "--metrics HOST:PORT, or `metrics` in [bridge]"
    async with listening(*plan.place.metrics, what_for="metrics", choose_by=option) as listener:
        yield listener


@dataclass(frozen=True)
class _FurtherListeners:
    """The listeners beside the one at the address of the plan; None for each that the plan does not need."""

    own: socket.socket | None
    replicas: socket.socket | None
    metrics: socket.socket | None


@asynccontextmanager
async def _further_listeners(plan: Plan, shared: SharedListener | None) -> AsyncIterator[_FurtherListeners]:
    async with (
        _own_listener(plan, is_shared=shared is not None) as own,
        _listener_for_replicas(plan, shared) as replicas,
        _metrics_listener(plan) as metrics,
    ):
        yield _FurtherListeners(own, replicas, metrics)


def _further_servers(
    plan: Plan, bridge: Bridge, listeners: _FurtherListeners, tls: TlsPoint | None, reloads: ReloadCount
) -> Iterator[tuple[BoundedServer, socket.socket]]:
    """The servers at these listeners."""
    limits = _limits_of(plan.profile)
    if listeners.replicas is not None and plan.place.replica is not None:
        replica_tls = tls if plan.place.replica.is_secure else None
        yield BoundedServer(bridge.app, limits, tls=replica_tls), listeners.replicas
    if listeners.own is not None:
        yield BoundedServer(bridge.own_door, limits), listeners.own
    if listeners.metrics is not None:
        yield _metrics_server(plan, partial(_read_metrics, bridge, reloads)), listeners.metrics


class StoppableServer(Protocol):
    """A server that ends once it is told to."""

    should_exit: bool


@asynccontextmanager
async def _grpc_servers(plan: Plan) -> AsyncIterator[Mapping[str, GrpcServer]]:
    """The servers of gRPC, by the name of the agent that is served there alone; "" for all agents. Empty if agents are
    served over HTTP alone.

    Raises:
        UsageError: a port is taken, or the packages for gRPC are not installed.
    """
    place, profile = plan.place, plan.profile
    if not place.grpc_addresses:
        yield {}
        return
    from bridge.a2a.grpc.server import GrpcServer, GrpcSettings  # needs the extra `grpc`

    async with AsyncExitStack() as stack:
        servers = {}
        for name, address in place.grpc_addresses.items():
            settings = GrpcSettings(
                *address,
                requests=profile.requests,
                connections=profile.connections,
                streams=profile.streams,
                tls=place.tls,
                proxies=place.proxies,
                reflection=place.grpc_reflection,
            )
            servers[name] = await stack.enter_async_context(GrpcServer(settings))
        yield servers


class GrpcAgents:
    """The agents of a bridge that one of its gRPC servers serves."""

    def __init__(self, bridge: Bridge, plan: Plan, only: str = "") -> None:
        """`only` names the agent that has the address for itself; "" serves all agents."""
        self._bridge = bridge
        self._only = only
        self.http_url = url_of(plan.place.host, plan.place.port).replace("http", plan.place.scheme, 1)
        """The URL of the bridge over HTTP."""

    def servers(self) -> dict[str, tuple[AgentServer, str]]:
        """Each agent's server, and the path of its base URL, by the agent's name."""
        return {
            agent.name: (agent.server, agent.path)
            for agent in self._bridge.published
            if self._only in ("", agent.name)
        }

    def is_ready(self, name: str) -> bool | None:
        """See `Bridge.is_ready`. At the address of one agent, this agent is the whole."""
        if self._only and name not in ("", self._only, f"agents/{self._only}"):
            return None
        return self._bridge.is_ready(name or self._only)


def _metrics_server(plan: Plan, read: Callable[[], Awaitable[list[MetricFamily]]]) -> BoundedServer:
    """The server of the metrics that `read` returns."""

    async def text() -> bytes:
        return await anyio.to_thread.run_sync(text_of, await read())

    return BoundedServer(MetricsEndpoint(text, plan.place.web), _limits_of(plan.profile))


def _limits_of(profile: Profile) -> HttpServerLimits:
    return HttpServerLimits(profile.requests, profile.connections).within(raise_descriptors())


def _note_reload(reloads: ReloadCount, bridge: Bridge, taken: bool) -> None:
    reloads.note(taken)
    if not taken:
        bridge.telemetry.tell_of_refusal()


async def _read_metrics(bridge: Bridge, reloads: ReloadCount) -> list[MetricFamily]:
    return [*await bridge.telemetry.families(), *reloads.families()]


def _url_at(listener: socket.socket) -> str:
    """The URL of a server on this listener."""
    return url_of(*listener.getsockname()[:2])


def url_of(host: str, port: int) -> str:
    """The URL by which a process on this machine reaches a server at this host and port."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def _has_terminal() -> bool:
    """Whether a terminal controls this process. SIGHUP then means that the terminal is gone."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


async def _reload_until_stopping(reload: Reload, bridge: Bridge, stopping: Shutdown) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload.run, bridge)
        await stopping.asked.wait()
        tasks.cancel_scope.cancel()


async def _stop_servers(
    servers: Sequence[StoppableServer], bridge: Bridge, stopping: Shutdown, audience: ServeObserver
) -> None:
    await stopping.asked.wait()
    audience.stopping(bridge.running)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hurry, bridge, stopping)
        await bridge.drain(bridge.drain_seconds)
        tasks.cancel_scope.cancel()
    for server in servers:
        server.should_exit = True


async def _hurry(bridge: Bridge, stopping: Shutdown) -> None:
    await stopping.at_once.wait()
    await bridge.stop()
