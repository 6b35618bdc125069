"""Serves one bridge with several workers, which are processes: one for each core of the machine.

The supervisor binds the public socket, and the workers accept on it. Each worker is a replica of the bridge on one
PostgreSQL. The supervisor serves nothing itself. It reads the file, starts the workers, says which of them runs which
tool server, starts a dead one anew, and stops them all.

    started ──serving──▶ up ──drain──▶ drained ──end──▶ gone
       └──────────── dies ────────────▶ its session is ended ──▶ its servers have other holders ──▶ started anew

A tool server has another holder only once every process that the dead worker had started is gone
(`worker_processes.py`). A new plan is taken in two steps: all workers get ready for it, then all take it over; when one
cannot, none does. Meanwhile no worker is started, so that none begins with the plan that the others leave.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import anyio
import anyio.abc

from bridge.assembly.admission import Admission
from bridge.assembly.plan import Changes, Plan, as_it_runs
from bridge.assembly.telemetry import ReloadCount
from bridge.assembly.workers import for_workers, require_workers_can_share, shared_servers
from bridge.concurrency import Backoff, Signal
from bridge.config.toml_text import ShownValue
from bridge.errors import BridgeError, PeerError, UsageError
from bridge.process.listening import listening
from bridge.process.reload import Reload
from bridge.process.serve import has_terminal, metrics_listener, metrics_server, url_of
from bridge.process.served_values import ConfigurationState
from bridge.process.shutdown import Shutdown, watch_signals
from bridge.process.worker_frames import WorkerStart, packed, unpacked_fault
from bridge.process.worker_metrics import WorkerMetrics
from bridge.process.worker_processes import RunningWorker, begun, end_whole, lifeline, socket_folder
from bridge.telemetry.families import MetricFamily
from bridge.worker_link import LinkEndedError, WorkerLink

logger = logging.getLogger(__name__)

_CAN_SHARE_SOCKETS: Final = sys.platform != "win32"
"""Whether several processes can accept on one socket that one of them has bound."""

DEATHS_MOST: Final = 5
"""So many deaths of workers within `DEATHS_SECONDS` end the whole: what kills them would go on."""
DEATHS_SECONDS: Final = 60.0

_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 10.0
"""The pauses before a worker is started anew."""

_END_SECONDS: Final = 15.0
"""How long a worker may take to end beyond the time in which its tasks may go on."""
_READY_SECONDS: Final = 60.0
"""How long a worker may take until it serves a plan, besides the time that its tool servers have to connect."""
_TAKE_SECONDS: Final = 15.0
"""How long a worker may take for what remains once it is ready for a plan."""
_AT_ONCE_SECONDS: Final = 10.0
"""How long it may take once it was told to stop at once."""


class FleetObserver(Protocol):
    """Is told of the start and the stop of all workers."""

    def started(self, plan: Plan, workers: int) -> None:
        """All workers serve."""
        ...

    def stopping(self, running: int) -> None:
        """The first signal came, and `running` tasks still run."""
        ...


@dataclass(eq=False)
class _Ownership:
    """Which worker, by its number, runs which tool server."""

    holders: dict[str, int] = field(default_factory=dict)

    def assign(self, servers: Sequence[str], workers: Sequence[int]) -> None:
        """Give each server without a holder to the worker with the fewest. The other servers stay where they are."""
        for server in servers:
            if server not in self.holders and workers:
                held = list(self.holders.values())
                self.holders[server] = min(workers, key=lambda number: (held.count(number), number))

    def release(self, number: int) -> None:
        """Take from a worker, which is gone, all that it has held."""
        self.holders = {server: holder for server, holder in self.holders.items() if holder != number}

    def keep_only(self, servers: Sequence[str]) -> None:
        """Forget the servers that no plan has any more."""
        self.holders = {server: holder for server, holder in self.holders.items() if server in servers}


class Supervisor:
    """The workers of one bridge. Used once."""

    def __init__(
        self,
        plan: Plan,
        workers: int,
        command: Sequence[str],
        observer: FleetObserver,
        log: tuple[str, str],
        shown: Callable[[], Sequence[ShownValue]] = tuple,
    ) -> None:
        """`command` starts a worker; the numbers of its descriptors are added. `log` is the format and the level.
        `shown` gives the values of the plan's file with their sources, for the console.

        Raises:
            UsageError: this system, or the plan, is not for several workers.
        """
        if not _CAN_SHARE_SOCKETS:
            raise UsageError(
                "--workers does not work on Windows, where processes cannot share a listening socket"
            )
        plan.require_safe()
        require_workers_can_share(plan)
        self._workers = workers
        self._first = plan
        self._plan = for_workers(plan, workers)
        self._command = tuple(command)
        self._observer = observer
        self._log = log
        self._shown = shown
        self._reload: Reload | None = None
        self._admission = Admission(self._plan)
        """Whom the workers admit. One that is started later admits nobody whom the others have turned away."""
        self._running: dict[int, RunningWorker] = {}
        self._ownership = _Ownership()
        self._servers = shared_servers(self._plan)
        """The tool servers that workers share: those of the plan, and of a plan that they get ready for."""
        self._moved = Signal()
        """Told when a worker has said something, or is gone."""
        self._changing = anyio.Lock()
        self._changes = 0
        self._starts = 0
        self._deaths: deque[float] = deque()
        self._failure: str | None = None
        self._was_up: set[int] = set()
        self._kept_down: dict[int, str] = {}
        """Why a worker cannot start at the moment, by its number."""
        self._metrics = WorkerMetrics(self._ask_for_metrics)
        self._reloads = ReloadCount()
        self._own_token, self._secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)

    async def serve(self, reload: Reload | None = None) -> int:
        """Serve until a signal comes, or workers die too often. Returns the exit code.

        Raises:
            UsageError: the port is taken, or a worker cannot serve the plan.
            PeerError: a required tool server cannot be reached.
        """
        on_hangup = reload.ask if reload is not None and not has_terminal() else None
        if reload is not None:
            reload.on_end, self._reload = self._note_reload, reload
        stopping = self._stopping = Shutdown(on_hangup=on_hangup)
        place = self._plan.place
        async with (
            listening(place.host, place.port) as listener,
            metrics_listener(self._plan) as metrics,
            anyio.create_task_group() as tasks,
        ):
            self._place_at(listener.getsockname()[1])
            await tasks.start(watch_signals, stopping)
            if metrics is not None:
                tasks.start_soon(metrics_server(self._plan, self._read_metrics).serve_on, metrics)
            with socket_folder() as self._folder, lifeline() as self._lifeline:
                try:
                    await self._supervise(listener, reload)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._end_all()
            tasks.cancel_scope.cancel()
        if self._failure is not None:
            logger.error("%s", self._failure)
            return 1
        return stopping.exit_code

    def set_up_log(self, set_up: Callable[[str, str], None], log_format: str, level: str) -> None:
        """Set up the log here, by `set_up`, and in all workers."""
        set_up(log_format, level)
        self._log = (log_format, level)
        self._tell_all({"log": [log_format, level]})

    def _place_at(self, port: int) -> None:
        self._first = replace(self._first, place=replace(self._first.place, port=port))
        self._plan = replace(self._plan, place=self._first.place)

    async def _supervise(self, listener: socket.socket, reload: Reload | None) -> None:
        numbers = range(1, self._workers + 1)
        self._ownership.assign(self._servers, numbers)
        async with anyio.create_task_group() as keeping:
            for number in numbers:
                keeping.start_soon(self._keep, number, listener)
            await self._until(lambda: self._was_up | self._kept_down.keys() >= {*numbers} or self._is_over())
            if not self._is_over():
                self._stopping.serving = True
                self._reloads.note(True)
            async with anyio.create_task_group() as meanwhile:
                meanwhile.start_soon(self._announce, numbers)
                if reload is not None:
                    meanwhile.start_soon(reload.run, self)
                await self._until(self._is_over)
                meanwhile.cancel_scope.cancel()
            listener.close()
            await self._drain()
            keeping.cancel_scope.cancel()

    async def _announce(self, numbers: Sequence[int]) -> None:
        await self._until(lambda: self._was_up >= {*numbers})
        self._observer.started(self._first, self._workers)

    def _is_over(self) -> bool:
        return self._failure is not None or self._stopping.asked.is_set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so. A signal counts as news, too."""
        async with anyio.create_task_group() as waiting:
            for event in (self._stopping.asked, self._stopping.at_once):
                waiting.start_soon(self._tell_after, event)
            while not condition():
                await self._moved.wait()
            waiting.cancel_scope.cancel()

    async def _tell_after(self, event: anyio.Event) -> None:
        if not event.is_set():
            await event.wait()
            self._moved.tell()

    # One worker

    async def _keep(self, number: int, listener: socket.socket) -> None:
        """Keep a worker running until all are to end."""
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while not self._is_over():
            async with self._changing:
                with anyio.CancelScope(shield=True):
                    worker = await self._start(number, listener)
            since = anyio.current_time()
            await self._attend(worker)
            if anyio.current_time() - since > DEATHS_SECONDS:
                pauses.reset()
            if self._is_over():
                return
            if worker.fault is None or worker.serves:
                self._count_death(worker)
            else:
                self._keep_trying(worker, worker.fault)
            if self._failure is None:
                await anyio.sleep(pauses.next())

    def _keep_trying(self, worker: RunningWorker, fault: BridgeError) -> None:
        """Let a worker that could not start be started anew, unless none is left to serve.

        A tool server that `fail = "closed"` requires has to be up as the bridge starts, which it has once one worker
        serves. One that is lost since then keeps a worker from starting, and ends no other.
        """
        others_serve = any(one.serves for one in self._running.values())
        if not self._stopping.serving and not (others_serve and isinstance(fault, PeerError)):
            raise fault
        if not others_serve:
            self._count_death(worker)
        elif self._kept_down.get(worker.number) != str(fault):
            logger.warning(
                "worker %d cannot start: %s; it is tried again, and the others serve", worker.number, fault
            )
        self._kept_down[worker.number] = str(fault)
        self._moved.tell()

    async def _start(self, number: int, listener: socket.socket) -> RunningWorker:
        self._starts += 1
        ours, theirs = socket.socketpair()
        address = str(self._folder / f"{number}.{self._starts}.sock")
        with theirs:
            process = begun(self._command, (theirs.fileno(), listener.fileno(), self._lifeline))
        worker = RunningWorker(number, address, process, await WorkerLink.over(ours))
        self._running[number] = worker
        is_first = number == 1 and not self._was_up
        start = WorkerStart(
            number,
            self._workers,
            is_first,
            any(one.serves for one in self._running.values()),
            self._plan,
            url_of(self._plan.place.host, self._plan.place.port),
            self._own_token,
            self._admission.own_scheme,
            self._secret,
            address,
            self._addresses(),
            *self._log,
            configuration=self._configuration(),
        )
        worker.link.post({"start": packed(start)})
        self._tell_holders()
        if self._is_over():
            worker.link.post({"drain": True})
        return worker

    async def _attend(self, worker: RunningWorker) -> None:
        """Take what a worker says until it ends; then see to it that nothing of it is left."""
        try:
            with suppress(LinkEndedError):
                while True:
                    self._hear(worker, await worker.link.receive())
            await end_whole(worker.process)
            self._metrics.end(worker.number)
            del self._running[worker.number]
            self._ownership.release(worker.number)
            self._assign()
        finally:
            with anyio.CancelScope(shield=True):
                await worker.link.close()
            self._moved.tell()

    def _hear(self, worker: RunningWorker, frame: dict[str, Any]) -> None:
        match frame:
            case {"serving": True}:
                worker.serves = True
                if worker.number in self._was_up:
                    logger.info("worker %d serves again", worker.number)
                elif worker.number in self._kept_down:
                    logger.info("worker %d serves now", worker.number)
                self._was_up.add(worker.number)
                self._kept_down.pop(worker.number, None)
                self._assign()
            case {"failed": dict() as fault}:
                worker.fault = unpacked_fault(fault)
            case {"stopping": int() as running}:
                worker.running = running
            case {"counted": int() as number}:
                self._metrics.hear(worker.number, number, frame)
            case {"drained": True}:
                worker.drained = True
            case {"prepared": int() as number} | {"refused": int() as number} | {"taken": int() as number}:
                if number == self._changes:
                    worker.answer = next(iter(frame)), frame
        self._moved.tell()

    def _configuration(self) -> ConfigurationState:
        """What the console of each worker shows of the files."""
        if not self._plan.place.console:
            return ConfigurationState(())
        if self._reload is not None:
            return ConfigurationState.of(self._reload)
        return ConfigurationState(tuple(self._shown()))

    def _note_reload(self, taken: bool) -> None:
        self._reloads.note(taken)
        if self._plan.place.console:
            self._tell_all({"configuration": packed(self._configuration())})
        for worker in self._running.values():
            if worker.serves and not taken:
                worker.link.post({"reload_refused": True})

    def _ask_for_metrics(self, number: int) -> list[int]:
        asked = [worker for worker in self._running.values() if worker.serves]
        for worker in asked:
            worker.link.post({"metrics": number})
        return [worker.number for worker in asked]

    async def _read_metrics(self) -> list[MetricFamily]:
        return [*await self._metrics.read(), *self._reloads.families()]

    def _count_death(self, worker: RunningWorker) -> None:
        now, why = anyio.current_time(), worker.why_ended
        self._deaths.append(now)
        while now - self._deaths[0] > DEATHS_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) >= DEATHS_MOST:
            self._failure = (
                f"{len(self._deaths)} workers died within {DEATHS_SECONDS:g} s, the last one since {why}: all are"
                " stopped. Their last lines in the log say more"
            )
        else:
            logger.error("worker %d died, since %s; it is started again", worker.number, why)
        self._moved.tell()

    # Who runs which tool server

    def _assign(self) -> None:
        """Give servers without a holder to workers that serve. Without any, they wait for one."""
        serving = [number for number, worker in self._running.items() if worker.serves]
        self._ownership.assign(self._servers, serving)
        self._tell_holders()

    def _addresses(self) -> dict[str, str]:
        return {
            server: self._running[number].address
            for server, number in self._ownership.holders.items()
            if number in self._running
        }

    def _tell_holders(self) -> None:
        self._tell_all({"holders": {**self._addresses()}})

    def _tell_all(self, frame: dict[str, Any]) -> None:
        for worker in self._running.values():
            worker.link.post(frame)

    # Another plan

    @property
    def asks_for_credentials(self) -> bool:
        """Whether requests without a credential are refused."""
        return self._admission.access.needs_token

    async def apply(self, plan: Plan) -> Changes:
        """Let all workers serve a plan, or none. Principals that it leaves out lose their access in either case.

        Raises:
            UsageError, PeerError: a worker cannot serve it.
        """
        async with self._changing:
            self._turn_away(plan)
            await self._started(_patience(self._plan))
            try:
                require_workers_can_share(plan)
            except UsageError:
                self._tell_all({"turn_away": packed(plan)})
                raise
            given = for_workers(plan, self._workers, self._plan)
            voters = tuple(self._running.values())
            self._servers = (*dict.fromkeys((*self._servers, *shared_servers(given))),)
            self._assign()
            self._changes += 1
            try:
                await self._prepare(given, voters)
            except BaseException:
                self._tell_all({"abandon": self._changes})
                self._forget_servers()
                raise
            with anyio.CancelScope(shield=True):
                running = replace(self._plan, profile=self._first_share.profile, place=self._first.place)
                self._plan = as_it_runs(given, running)
                self._admission.admit(plan)
                changes = await self._taken(voters)
                self._forget_servers()
            return changes

    def revoke(self, plan: Plan) -> bool:
        """See `Bridge.revoke`. The workers do so, too."""
        before = self._admission.credentials, self._admission.trusted
        with suppress(UsageError):
            self._turn_away(plan)
        if before == (self._admission.credentials, self._admission.trusted):
            return False
        self._tell_all({"revoke": packed(plan)})
        return True

    def _turn_away(self, plan: Plan) -> None:
        """Let workers that are started from now on admit nobody whom a plan leaves out. The others turn these away as
        soon as they are told of the plan."""
        self._admission.require_clear(plan)
        self._admission.turn_away(plan)
        credentials, issuers = self._admission.credentials, self._admission.trusted
        self._plan = replace(self._plan, credentials=credentials, issuers=issuers)

    async def _started(self, seconds: float) -> None:
        """Wait for the workers that are being started: they begin with the plan that the others are about to leave."""
        await self._all_of(tuple(self._running.values()), lambda one: one.serves, seconds)

    async def _prepare(self, plan: Plan, voters: Sequence[RunningWorker]) -> None:
        """Wait until each of these workers is ready for a plan. One that dies meanwhile begins with the plan that
        the others then have."""
        for worker in voters:
            worker.answer = None
            worker.link.post({"prepare": self._changes, "plan": packed(plan)})
        await self._all_of(
            voters, lambda one: one.answer is not None or _refusal(voters) is not None, _patience(plan)
        )
        if (refusal := _refusal(voters)) is not None:
            raise refusal
        if not any(self._lives(one) for one in voters):
            raise PeerError("all workers died while they got ready for it")

    async def _taken(self, voters: Sequence[RunningWorker]) -> Changes:
        """Let these workers, which are ready for it, take the plan over. One that cannot any more is ended: it begins
        anew with the plan."""
        for worker in voters:
            worker.answer = None
        self._tell_all({"take": self._changes})
        await self._all_of(voters, lambda one: one.answer is not None, _TAKE_SECONDS)
        if (refusal := _refusal(voters)) is not None:
            logger.error("a worker that was ready for a plan could not take it over: %s", refusal)
        told: dict[str, Any] = {}
        for worker in voters:
            match worker.answer:
                case "taken", {"changes": dict() as changes}:
                    told = told or changes
                case "refused", _:
                    worker.process.kill()
        return Changes(**{kind: tuple(keys) for kind, keys in told.items()})

    async def _all_of(
        self, workers: Sequence[RunningWorker], condition: Callable[[RunningWorker], bool], seconds: float
    ) -> None:
        """Wait until something is so of each of these workers that lives. One of which it is not so in time is
        ended."""

        def late() -> list[RunningWorker]:
            return [one for one in workers if self._lives(one) and not condition(one)]

        with anyio.move_on_after(seconds):
            await self._until(lambda: not late())
        for one in late():
            logger.error("worker %d has said nothing for %g s, and is ended", one.number, seconds)
            one.process.kill()
        await self._until(lambda: not late())

    @property
    def _first_share(self) -> Plan:
        return for_workers(self._first, self._workers)

    def _lives(self, worker: RunningWorker) -> bool:
        return self._running.get(worker.number) is worker

    def _forget_servers(self) -> None:
        self._servers = shared_servers(self._plan)
        self._ownership.keep_only(self._servers)
        self._tell_holders()

    # The end

    async def _drain(self) -> None:
        """Let the tasks of all workers end, within their time; at the second signal, at once."""
        self._tell_all({"drain": True})
        profiles = [one.profile for one in self._plan.published.values()]
        profiles += [one.profile for one in self._plan.offered.values()]
        seconds = max((profile.run.drain_seconds for profile in profiles), default=0.0)
        async with anyio.create_task_group() as hurrying:
            hurrying.start_soon(self._hurry)
            with anyio.move_on_after(seconds + _END_SECONDS):
                await self._until(lambda: all(one.running is not None for one in self._running.values()))
                self._observer.stopping(sum(one.running or 0 for one in self._running.values()))
                await self._until(lambda: all(one.drained for one in self._running.values()))
                self._tell_all({"end": True})
                await self._until(lambda: not self._running)
            hurrying.cancel_scope.cancel()

    async def _hurry(self) -> None:
        await self._stopping.at_once.wait()
        self._tell_all({"stop": True})
        await anyio.sleep(_AT_ONCE_SECONDS)
        for worker in self._running.values():
            worker.process.kill()

    async def _end_all(self) -> None:
        """End what is still left of all workers."""
        for worker in self._running.values():
            worker.process.kill()
        for worker in tuple(self._running.values()):
            await end_whole(worker.process)
        self._running.clear()


def _patience(plan: Plan) -> float:
    """How long a worker may take until it serves a plan, or is ready to, in seconds."""
    return _READY_SECONDS + max((one.pace.connect_seconds for one in plan.servers.values()), default=0.0)


def _refusal(voters: Sequence[RunningWorker]) -> BridgeError | None:
    """Why one of these workers cannot serve a plan."""
    answers = (one.answer for one in voters if one.answer is not None)
    return next((unpacked_fault(frame) for kind, frame in answers if kind == "refused"), None)
