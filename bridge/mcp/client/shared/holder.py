"""The side of the worker that runs a tool server: it does for other workers what they ask of the server.

Each link is one piece of work, and ends with it. The calls of other workers stand in the same queue as this worker's
own, so that the server's limits, and the turns of principals, are those of one process.
"""

from __future__ import annotations

import logging
import math
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import anyio
import anyio.abc

from bridge.concurrency import Signal
from bridge.errors import BridgeError, PeerError, UsageError, leaf_of
from bridge.mcp.client.call_queue import CallSlot, Claimant, SlotHold
from bridge.mcp.client.contract import DescribedServer
from bridge.mcp.client.faults import ServerDownError
from bridge.mcp.client.session import Session
from bridge.mcp.client.shared.frames import (
    SessionPlace,
    fault_frame,
    fault_in,
    hold_frame,
    state_frame,
    take_trace_of,
)
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.client.values import ProgressReport, ToolCall
from bridge.text.jsonvalues import JsonObject
from bridge.worker_link import LinkEndedError, WorkerLink

logger = logging.getLogger(__name__)

_BUG: Final = "the worker that runs the server failed at this; its log says how"

_NOT_HELD: Final = "the worker that is to run it for all workers does not, or no longer"

_LINKS_MOST: Final = 20_000
"""Links of other workers at the same time. Their calls are bounded by what they may reserve."""

_PAUSE_SECONDS: Final = 0.1
"""The pause after an attempt to accept a link failed: without a free descriptor, the link goes on waiting."""


@dataclass(eq=False)
class _Held:
    """A server that this worker runs."""

    server: Upstream
    known: DescribedServer
    """What an earlier holder knew of it, until this one has reached it."""
    changed: Signal


class HeldServers:
    """The tool servers that this worker runs for all workers, by the names that the supervisor gave them."""

    def __init__(self, secret: str) -> None:
        """`secret` is known to the workers of one supervisor."""
        self.secret = secret
        self._held: dict[str, _Held] = {}
        self._arrived = Signal()
        self._room = anyio.CapacityLimiter(_LINKS_MOST)

    @contextmanager
    def holding(self, name: str, server: Upstream, known: DescribedServer, changed: Signal) -> Iterator[None]:
        """Let others use a server as long as this is open. `known` is what they are told of it. `changed` is told when
        that has changed."""
        self._held[name] = _Held(server, known, changed)
        self._arrived.tell()
        try:
            yield
        finally:
            del self._held[name]

    async def serve(self, listener: socket.socket) -> None:
        """Do what others ask at this unix socket, until cancelled."""
        listener.setblocking(False)
        listener.listen()
        async with anyio.create_task_group() as links:
            while True:
                await anyio.wait_readable(listener)
                try:
                    accepted, _ = listener.accept()
                except OSError as exc:
                    logger.debug("a link of another worker cannot be accepted at the moment: %s", exc)
                    await anyio.sleep(_PAUSE_SECONDS)
                    continue
                links.start_soon(self._answer, accepted)

    async def _answer(self, accepted: socket.socket) -> None:
        """Do what one link asks for. Whatever goes wrong, the others go on."""
        link = await WorkerLink.over(accepted)
        try:
            async with self._room:
                frame = await link.receive()
                if self._knows_secret(frame):
                    take_trace_of(frame)
                    await _Errand(link, frame).run(self._found)
        except LinkEndedError:
            pass
        except Exception:
            logger.exception("a link of another worker failed")
        finally:
            await link.close()

    def _knows_secret(self, frame: Mapping[str, Any]) -> bool:
        said = str(frame.get("secret")).encode(errors="surrogatepass")
        return secrets.compare_digest(said, self.secret.encode())

    async def _found(self, name: str, within_seconds: float) -> _Held:
        """A server, once this worker has started it.

        Raises:
            ServerDownError: it has not within that time; another plan may have taken the server away.
        """
        with anyio.move_on_after(within_seconds):
            while (held := self._held.get(name)) is None:
                await self._arrived.wait()
            return held
        raise ServerDownError(f"{name.rpartition('#')[0]} is down: {_NOT_HELD}")


class _Errand:
    """What one link asks for, from its first frame to its end."""

    def __init__(self, link: WorkerLink, first: Mapping[str, Any]) -> None:
        self._link = link
        self._first = first
        self._place = SessionPlace(**first["place"])
        self._asker = _PassedAsker(link)
        self._slot: CallSlot | None = None
        self._call: ToolCall | None = None
        self._called = anyio.Event()
        self._keep_up: Callable[[], None] = lambda: None

    async def run(self, found: Callable[[str, float], Awaitable[_Held]]) -> None:
        """Do it, unless the other end closes the link first. It closes the link once it has the outcome, however long
        it takes to read that: the server has acted, so the outcome is not to be lost."""
        login_configs: Mapping[str, Callable[[_Held], Awaitable[None]]] = {
            "state": self._tell_state,
            "session": self._keep_session,
            "call": self._make_call,
            "request": self._send_request,
            "task": self._tell_of_task,
        }
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, group.cancel_scope)
            try:
                held = await found(self._first["server"], self._first["start_seconds"])
                await login_configs[self._first["wish"]](held)
            except BridgeError as exc:
                self._link.post(fault_frame(exc))
            except Exception as exc:
                logger.exception("what another worker asked for failed")
                self._link.post(fault_frame(PeerError(_BUG, detail=str(leaf_of(exc)))))
            await self._link.stuck()
            logger.warning("another worker does not take in what it asked for, and is given up")
            group.cancel_scope.cancel()

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Take what the other worker says meanwhile; when it goes away, end."""
        try:
            while True:
                self._hear(await self._link.receive(), scope)
        except LinkEndedError:
            scope.cancel()

    def _hear(self, frame: JsonObject, scope: anyio.CancelScope) -> None:
        match frame:
            case {"call": dict() as call}:
                self._call = ToolCall(**call)
                self._called.set()
            case {"answer": str() as question}:
                self._asker.take(question, frame)
            case {"hold": True} if self._slot is not None:
                self._slot.hold(
                    lambda seconds: self._link.post({"contended": seconds}),
                    lambda: self._link.post({"give_up": True}),
                )
            case {"hold": False} if self._slot is not None:
                self._slot.go_on()
            case {"keep_up": True}:
                self._keep_up()
            case {"cancel": bool() as is_left}:
                self._asker.is_left = is_left
                scope.cancel()

    # What may be asked for

    async def _tell_state(self, held: _Held) -> None:
        try:
            await held.server.ready()
        except (PeerError, UsageError) as exc:
            self._link.post({**fault_frame(exc), **state_frame(held.known)})
            await held.changed.wait()
        while True:
            changed = held.changed.next
            self._link.post(state_frame(held.known))
            await changed.wait()

    async def _keep_session(self, held: _Held) -> None:
        async with held.server.queue(self._place.principal, self._place.context_id):
            self._link.post({"open": True})
            await anyio.sleep_forever()

    async def _make_call(self, held: _Held) -> None:
        caller, wait = Claimant(**self._first["caller"]), self._first["within_seconds"]
        held.server.reserve(caller.principal, even_if_full=True)
        try:
            async with (
                held.server.queue(self._place.principal, self._place.context_id) as queue,
                queue.slot(caller, math.inf if wait is None else wait, self._tell_of_hold) as slot,
            ):
                self._slot = slot
                self._link.post({"slot": queue.sessions.index(slot.session)})
                await self._called.wait()
                assert self._call is not None
                result = await slot.session.call(self._call, self._tell_progress, self._asker)
                self._link.post({"result": result})
        finally:
            self._slot = None
            held.server.release(caller.principal)

    def _tell_of_hold(self, hold: SlotHold) -> None:
        self._link.post(hold_frame(hold))

    def _tell_progress(self, report: ProgressReport) -> None:
        self._link.post({"progress": asdict(report)})

    async def _send_request(self, held: _Held) -> None:
        first = self._first
        async with _session_at(held.server, self._place) as session:
            result = await session.request(first["method"], first["params"], name=first["name"])
        self._link.post({"result": result})

    async def _tell_of_task(self, held: _Held) -> None:
        async with _session_at(held.server, self._place) as session:
            task_id: str = self._first["task_id"]
            with session.about_task(task_id, self._asker, self._tell_news) as self._keep_up:
                self._link.post({"open": True})
                await anyio.sleep_forever()

    def _tell_news(self, task: JsonObject) -> None:
        self._link.post({"news": task})


@asynccontextmanager
async def _session_at(server: Upstream, place: SessionPlace) -> AsyncIterator[Session]:
    """The session that is meant; it stays open as long as this is entered."""
    async with server.queue(place.principal, place.context_id) as queue:
        sessions = queue.sessions
        yield sessions[place.number] if place.number < len(sessions) else queue.session


@dataclass(eq=False)
class _PassedQuestion:
    """A question that the other worker's client is asked."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    frame: Mapping[str, Any] = field(default_factory=dict)


class _PassedAsker:
    """Asks through the link. Implements `Asker`."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._open: dict[str, _PassedQuestion] = {}
        self._count = 0
        self.is_left = False

    async def ask(self, questions: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
        """See `Asker.ask`."""
        self._count += 1
        name, one = str(self._count), _PassedQuestion()
        self._open[name] = one
        self._link.post({"ask": name, "questions": dict(questions)})
        try:
            await one.answered.wait()
        except anyio.get_cancelled_exc_class():
            self._link.post({"unask": name})
            raise
        finally:
            del self._open[name]
        if (fault := fault_in(one.frame)) is not None:
            raise fault
        answers: Mapping[str, JsonObject] = one.frame["answers"]
        return answers

    def take(self, name: str, frame: Mapping[str, Any]) -> None:
        """The answers to a question, unless it is no longer open."""
        if (one := self._open.get(name)) is not None:
            one.frame = frame
            one.answered.set()

    def withdraw(self, key: str) -> None:
        """See `Asker.withdraw`."""
        self._link.post({"withdraw": key})

    def miss_question(self, calls: int) -> None:
        """See `Asker.miss_question`."""
        self._link.post({"missed": calls})
