"""Serves a bridge over HTTP until it is told to stop, and stops it in two stages.

The first signal (Ctrl+C, SIGTERM, or SIGHUP when the terminal closes) drains: no new work, running tasks go on
for a while. The second stops them. Either way every child process is ended and every task is left in a state
that its client can read.
"""

from __future__ import annotations

import errno
import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import anyio
import uvicorn
from starlette.types import ASGIApp

from bridge.app import Bridge, WrapConfig, require_safe, wrapped
from bridge.errors import UsageError
from bridge.exposed import ExposeConfig, Exposure, exposed
from bridge.mcp.transport import Target
from bridge.web import ANONYMOUS, LOCAL, Access, Credential, Place, is_loopback

logger = logging.getLogger(__name__)

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_KEEP_ALIVE_SECONDS: Final = 75
"""Longer than clients keep idle connections, so that they close first: a server that does can lose a request."""

_GOODBYE_SECONDS: Final = 3
"""For answers that are still being written once all tasks have ended."""

_COLLECTED_AFTER: Final = (50_000, 20, 100)
"""New objects before the youngest are looked through for cycles (a few megabytes), and how many such looks come
before those that survived one, or two, are looked through as well. Python's own: 700, 10, 10."""

_DEAD_PEER_MS: Final = 60_000
"""After which the kernel drops a connection whose peer takes nothing in."""


@dataclass
class Stopping:
    """How far stopping has come."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    at_once: anyio.Event = field(default_factory=anyio.Event)
    signal: int | None = None
    """The first signal that came."""
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """What a signal ends at once while nothing is served yet."""
    serving: bool = False


class Audience(Protocol):
    """Who is told how far serving has come."""

    def connecting(self, target: Target) -> None:
        """The server is being started or called."""
        ...

    def serving(self, bridge: Bridge, port: int) -> None:
        """The bridge can be called, on this port."""
        ...

    def stopping(self, running: int) -> None:
        """The first signal came, and so many tasks still run."""
        ...


async def serve(config: WrapConfig, audience: Audience) -> int:
    """Serve until a signal comes; gives the exit code.

    Raises:
        UsageError: the port is taken, or the configuration cannot be served.
        PeerError: the tool server cannot be reached and has to be.
    """
    config.require_safe()
    stopping = Stopping()
    async with _listening(config.host, config.port) as listener, anyio.create_task_group() as tasks:
        port: int = listener.getsockname()[1]
        config = replace(config, port=port)
        audience.connecting(config.target)
        with stopping.starting:
            await tasks.start(_watch_signals, stopping)
            async with wrapped(config) as bridge:
                server = _uvicorn_for(bridge.app)
                tasks.start_soon(
                    _stop_server, server, bridge, stopping, config.profile.run.drain_seconds, audience
                )
                tasks.start_soon(_announce_once_up, server, audience, bridge, port)
                stopping.serving = True
                _calm_the_collector()
                await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()
    return 130 if stopping.signal == signal.SIGINT else 0


async def serve_stdio(config: ExposeConfig) -> int:
    """Serve a face of agents over stdin and stdout until stdin ends, or a signal comes; gives the exit code.

    Raises:
        UsageError: it cannot be served as configured.
    """
    stopping = Stopping()
    async with anyio.create_task_group() as tasks:
        with stopping.starting:
            await tasks.start(_watch_signals, stopping)
            async with exposed(config) as exposure:
                _calm_the_collector()
                await exposure.server.run_stdio()
        tasks.cancel_scope.cancel()
    return 130 if stopping.signal == signal.SIGINT else 0


async def serve_face(
    config: ExposeConfig, host: str, port: int, credentials: Sequence[Credential], allow_unauthenticated: bool
) -> int:
    """Serve a face of agents over Streamable HTTP until a signal comes; gives the exit code.

    Raises:
        UsageError: the port is taken, or it would be open to others without credentials.
    """
    require_safe(host, credentials, allow_unauthenticated)
    stopping = Stopping()
    access = Access(credentials, LOCAL if is_loopback(host) else ANONYMOUS)
    async with _listening(host, port) as listener, anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, stopping)
        with stopping.starting:
            async with (
                exposed(config) as exposure,
                exposure.server.at(access, Place(None, frozenset({host}))) as app,
            ):
                server = _uvicorn_for(app)
                tasks.start_soon(_stop_face, server, exposure, stopping)
                tasks.start_soon(_announce_face_once_up, server, host, listener.getsockname()[1])
                stopping.serving = True
                _calm_the_collector()
                await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()
    return 130 if stopping.signal == signal.SIGINT else 0


async def _announce_face_once_up(server: _Server, host: str, port: int) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn sets a flag, not an event
        await anyio.sleep(0.005)
    logger.warning("serving MCP at http://%s:%d/mcp (Ctrl+C stops)", host, port)


async def _stop_face(server: _Server, exposure: Exposure, stopping: Stopping) -> None:
    await stopping.asked.wait()
    exposure.server.stop()
    server.should_exit = True


def _calm_the_collector() -> None:
    """Look for cyclic garbage less often, and never among what was there at the start.

    A call makes thousands of short-lived objects, hardly any of them in cycles. By default every 700 of them are
    looked through, which was a quarter of the time of a call.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: one first signal ends its streams before ours could end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_for(app: ASGIApp) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            http="httptools",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
        )
    )


async def _announce_once_up(server: _Server, audience: Audience, bridge: Bridge, port: int) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn sets a flag, not an event
        await anyio.sleep(0.005)
    audience.serving(bridge, port)


async def _stop_server(
    server: _Server, bridge: Bridge, stopping: Stopping, drain_seconds: float, audience: Audience
) -> None:
    await stopping.asked.wait()
    audience.stopping(bridge.engine.running)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hurry, bridge, stopping)
        await bridge.engine.drain(drain_seconds)
        tasks.cancel_scope.cancel()
    server.should_exit = True


async def _hurry(bridge: Bridge, stopping: Stopping) -> None:
    await stopping.at_once.wait()
    await bridge.engine.stop()


async def _watch_signals(stopping: Stopping, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        task_status.started()
        async for number in signals:
            logger.info("received %s", signal.Signals(number).name)
            if stopping.signal is None:
                stopping.signal = number
                stopping.asked.set()
                if not stopping.serving:
                    stopping.starting.cancel()
            else:
                stopping.at_once.set()


@asynccontextmanager
async def _listening(host: str, port: int) -> AsyncIterator[socket.socket]:
    """A socket that listens; bound before anything else starts, so that a taken port costs nothing.

    Raises:
        UsageError: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named, else each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_MS)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            taken = isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE
            hint = "; choose another with --port (make run: PORT=...)" if taken else ""
            raise UsageError(f"cannot listen on {host} port {port}: {reason}{hint}") from exc
        listener.set_inheritable(False)
        yield listener
    finally:
        listener.close()
