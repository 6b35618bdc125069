"""One worker: serves a bridge on a socket that its supervisor has bound, and does what the supervisor says.

The supervisor's end is noticed in two ways. The link to it ends: then the worker stops at once, as after a second
signal. And a thread waits at a pipe that the supervisor holds open: if the worker has not ended some time after that,
because its event loop is stuck, the thread ends it with all that it has started.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

import anyio
import anyio.abc

from bridge.assembly.bridge import Bridge
from bridge.assembly.limits import server_limits
from bridge.assembly.plan import Plan
from bridge.assembly.tool_servers import StartObserver
from bridge.assembly.workers import WorkerSharing
from bridge.concurrency import Signal
from bridge.errors import BridgeError, UsageError, leaf_of
from bridge.http.server import BoundedServer
from bridge.mcp.client.shared.holder import HeldServers
from bridge.mcp.client.shared.server import Holders
from bridge.process.resources import free_what_was_replaced, keep_code, raise_descriptors, share_malloc_arenas
from bridge.process.serve import ServeObserver, mount_console, own_listener, tls_of, url_at
from bridge.process.served_values import ToldConfiguration
from bridge.process.shutdown import Shutdown, watch_signals
from bridge.process.worker_frames import WorkerStart, packed_fault, unpacked
from bridge.process.worker_processes import end_process, processes_of
from bridge.replicas.replica_address import UNIX, ReplicaAddress
from bridge.telemetry.families import families_as_json
from bridge.text.jsonvalues import JsonObject
from bridge.worker_link import LinkEndedError, WorkerLink, unix_socket

logger = logging.getLogger(__name__)

_STUCK_SECONDS: Final = 15.0
"""How long a worker may take to end after its supervisor has."""


_SUPERVISOR_SECONDS: Final = 5.0
"""How long a worker that got a signal of its own waits for its supervisor, which may have got one, too."""
_OF_SESSIONS: Final = ".http"
"""What the socket for requests of other workers' MCP sessions ends with."""


class Worker:
    """A worker, from its start to its end. Used once."""

    def __init__(
        self,
        link: WorkerLink,
        start: WorkerStart,
        listener: socket.socket,
        observer: ServeObserver | None,
        set_up_log: Callable[[str, str], None],
    ) -> None:
        """`observer` is told what is served, if this worker is the one to tell it."""
        self._link = link
        self._start = start
        self._listener = listener
        self._observer = observer
        self._set_up_log = set_up_log
        self._stopping = Shutdown()
        self._may_end = anyio.Event()
        self._drains_with_all = anyio.Event()
        """Set once the supervisor is to say when all have drained. Until then other workers may use our servers."""
        self._is_orphan = False
        self._bridge: Bridge | None = None
        self._change: _PlannedChange | None = None
        self._asked_to_change = Signal()
        self._asked_for_metrics = 0
        """The number of the latest question for metrics."""
        self._asked_to_count = Signal()
        self._holders = Holders(start.address, start.holders)
        self._configuration = ToldConfiguration(start.configuration)

    async def serve(self) -> int:
        """Serve until the supervisor, a signal or the supervisor's end stops it. Returns the exit code."""
        share_malloc_arenas()
        keep_code()
        async with anyio.create_task_group() as tasks:
            with self._stopping.starting:
                await tasks.start(watch_signals, self._stopping)
                tasks.start_soon(self._obey)
                try:
                    await self._run()
                except* BridgeError as faults:
                    fault = leaf_of(faults)
                    assert isinstance(fault, BridgeError)
                    self._link.post({"failed": packed_fault(fault)})
                    self._stopping.serving = False
            tasks.cancel_scope.cancel()
        await self._link.close()
        if self._is_orphan:
            shutil.rmtree(Path(self._start.address).parent, ignore_errors=True)
        return 0

    async def _run(self) -> None:
        start, held = self._start, HeldServers(self._start.secret)
        sharing = WorkerSharing(start.workers, start.own_token, start.own_scheme, self._holders, held)
        watching: StartObserver | None = self._observer
        plan = self._reached_here(start.plan)
        tls = tls_of(plan)
        with _bound(start.address) as inner, _bound(start.address + _OF_SESSIONS) as sessions:
            async with own_listener(plan, is_shared=False) as own, anyio.create_task_group() as passing:
                passing.start_soon(held.serve, inner)
                own_url = start.own_url if own is None else url_at(own)
                bridge = self._bridge = Bridge(plan, watching, own_url=own_url, sharing=sharing)
                mount_console(bridge, plan, self._configuration)
                async with bridge.run(), anyio.create_task_group() as serving:
                    limits = server_limits(start.plan.profile, raise_descriptors())
                    server = BoundedServer(bridge.app, limits, accepts_at_once=1, tls=tls)
                    servers = [server, BoundedServer(bridge.app, limits)]
                    serving.start_soon(servers[-1].serve_on, sessions)
                    if own is not None:
                        servers.append(BoundedServer(bridge.own_door, limits))
                        serving.start_soon(servers[-1].serve_on, own)
                    if not start.others_serve:
                        serving.start_soon(self._serve_on, server, serving.cancel_scope)
                    await bridge.apply(plan)
                    if start.others_serve:
                        serving.start_soon(self._serve_on, server, serving.cancel_scope)
                    self._stopping.serving = True
                    bridge.on_retired = free_what_was_replaced
                    self._link.post({"serving": True})
                    if self._observer is not None:
                        self._observer.serving(bridge, start.plan.place.port)
                    serving.start_soon(self._take_plans, bridge)
                    serving.start_soon(self._tell_metrics, bridge)
                    serving.start_soon(self._stop_servers, servers, bridge)
                passing.cancel_scope.cancel()

    def _reached_here(self, plan: Plan) -> Plan:
        """The plan with the audit of this worker, and the socket at which others reach its MCP sessions."""
        address = ReplicaAddress.parse(f"{UNIX}{self._start.address}{_OF_SESSIONS}")
        audit = None if plan.place.audit is None else plan.place.audit.of_worker(self._start.number)
        return replace(plan, place=replace(plan.place, replica=address, audit=audit))

    async def _serve_on(self, server: BoundedServer, scope: anyio.CancelScope) -> None:
        await server.serve_on(self._listener)
        scope.cancel()

    # What the supervisor says

    async def _obey(self) -> None:
        try:
            while True:
                self._hear(await self._link.receive())
        except LinkEndedError:
            logger.warning("the supervisor is gone: this worker ends")
            self._is_orphan = True
            self._drains_with_all.set()
            self._may_end.set()
            for _ in range(2):
                self._stopping.hear(signal.SIGTERM)

    def _hear(self, frame: JsonObject) -> None:
        match frame:
            case {"holders": dict() as holders}:
                self._holders.update({str(name): str(address) for name, address in holders.items()})
            case {"prepare": int() as number, "plan": str() as plan}:
                self._change = _PlannedChange(number, unpacked(plan))
                self._asked_to_change.tell()
            case {"take": int() as number} if self._change is not None and self._change.number == number:
                self._change.is_agreed.set()
            case {"abandon": int() as number} if self._change is not None and self._change.number == number:
                self._change.scope.cancel()
            case {"turn_away": str() as plan} if self._bridge is not None:
                self._bridge.turn_away(unpacked(plan))
            case {"revoke": str() as plan} if self._bridge is not None:
                self._bridge.revoke(unpacked(plan))
            case {"log": [str() as log_format, str() as level]}:
                self._set_up_log(log_format, level)
            case {"drain": True}:
                self._drains_with_all.set()
                self._stopping.ask()
            case {"stop": True}:
                self._stopping.at_once.set()
            case {"reload_refused": True} if self._bridge is not None:
                self._bridge.telemetry.tell_of_refusal()
            case {"configuration": str() as state}:
                self._configuration.state = unpacked(state)
            case {"metrics": int() as number}:
                self._asked_for_metrics = number
                self._asked_to_count.tell()
            case {"end": True}:
                self._may_end.set()

    async def _take_plans(self, bridge: Bridge) -> None:
        """Apply each plan that all workers take, until this worker stops."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take_each, bridge)
            await self._stopping.asked.wait()
            tasks.cancel_scope.cancel()

    async def _take_each(self, bridge: Bridge) -> None:
        while True:
            asked = self._asked_to_change.next
            if (change := self._change) is not None:
                with change.scope:
                    await self._take(bridge, change)
                self._change = None if self._change is change else self._change
            if self._change is None:
                await asked.wait()

    async def _take(self, bridge: Bridge, change: _PlannedChange) -> None:
        """Make ready for a plan, say so, and take it over once all have."""

        async def agreed() -> None:
            self._link.post({"prepared": change.number})
            await change.is_agreed.wait()

        try:
            changes = await bridge.apply(self._reached_here(change.plan), agreed=agreed)
        except Exception as exc:
            fault = leaf_of(exc)
            if not isinstance(fault, BridgeError):
                logger.warning("the configuration could not be taken over", exc_info=fault)
                fault = UsageError(f"the configuration could not be taken over: {fault!r}")
            self._link.post({"refused": change.number, **packed_fault(fault)})
        else:
            self._link.post({"taken": change.number, "changes": asdict(changes)})

    async def _tell_metrics(self, bridge: Bridge) -> NoReturn:
        """Answer each question of the supervisor for metrics; of several that have come meanwhile, the latest."""
        told = 0
        while True:
            asked = self._asked_to_count.next
            if (number := self._asked_for_metrics) == told:
                await asked.wait()
                continue
            families = await bridge.telemetry.families()
            names = bridge.telemetry.names().to_json()
            self._link.post({"counted": number, "families": families_as_json(families), "names": names})
            told = number

    # The end

    async def _stop_servers(self, servers: Sequence[BoundedServer], bridge: Bridge) -> None:
        await self._stopping.asked.wait()
        self._link.post({"stopping": bridge.running})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hurry, bridge)
            await bridge.drain(bridge.drain_seconds)
            self._link.post({"drained": True})
            with anyio.move_on_after(_SUPERVISOR_SECONDS):
                await self._drains_with_all.wait()
            if self._drains_with_all.is_set():
                await self._may_end.wait()
            tasks.cancel_scope.cancel()
        for server in servers:
            server.should_exit = True

    async def _hurry(self, bridge: Bridge) -> None:
        await self._stopping.at_once.wait()
        await bridge.stop()


@dataclass(eq=False)
class _PlannedChange:
    """A plan that all workers take, or none."""

    number: int
    plan: Plan
    is_agreed: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


def _bound(address: str) -> socket.socket:
    """A unix socket for other workers."""
    listener = unix_socket()
    listener.bind(address)
    return listener


def end_with_supervisor(lifeline: int) -> None:
    """End this process, and what it has started, some time after the other end of a pipe is closed."""
    threading.Thread(target=_wait_for_the_end, args=(lifeline,), daemon=True).start()


def _wait_for_the_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    time.sleep(_STUCK_SECONDS)
    own = os.getpid()
    for one in (*(one for one in processes_of(own) if one != own), own):
        end_process(one)
