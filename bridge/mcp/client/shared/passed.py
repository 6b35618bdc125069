"""The side of a worker that asks: a session, a slot and a queue of a server that another worker runs."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

import anyio
import anyio.abc

from bridge.errors import BridgeError
from bridge.mcp.client.call_queue import Claimant, OnHeld
from bridge.mcp.client.dispatcher import OnTaskNews
from bridge.mcp.client.faults import ServerLostError
from bridge.mcp.client.shared.frames import SessionPlace, fault_frame, fault_in, hold_in
from bridge.mcp.client.values import Asker, OnProgress, ProgressReport, ToolCall
from bridge.text.jsonvalues import JsonObject
from bridge.worker_link import LinkEndedError, WorkerLink

_CANCEL_SECONDS: Final = 1.0
"""How long a call that is cancelled waits until the other worker has cancelled it on the server."""

_LOST: Final = (
    "the process that ran {} for all workers has ended while it had the call. Whether the server acted on it is not"
    " known"
)


class Links(Protocol):
    """Opens links to the worker that runs a server."""

    name: str

    async def open(self, login_config: str, place: SessionPlace, **more: Any) -> WorkerLink:
        """A link with this wish.

        Raises:
            ServerDownError: no worker runs the server.
        """
        ...

    def in_background(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this until the server is no longer used."""
        ...


@dataclass(eq=False)
class PassedSlot:
    """The slot of a call in the worker that runs the server."""

    link: WorkerLink
    session: PassedSession
    tell: Callable[[float], None] = field(default=lambda _: None)
    give_up: Callable[[], None] = field(default=lambda: None)

    def hold(self, tell: Callable[[float], None], give_up: Callable[[], None]) -> None:
        """See `CallSlot.hold`."""
        self.tell, self.give_up = tell, give_up
        self.link.post({"hold": True})

    def go_on(self) -> None:
        """See `CallSlot.go_on`."""
        self.link.post({"hold": False})


class PassedSession:
    """A session in the worker that runs the server."""

    def __init__(self, links: Links, place: SessionPlace) -> None:
        self._links = links
        self._place = place
        self.slot: PassedSlot | None = None

    @property
    def name(self) -> str:
        """The server's name in messages and logs."""
        return self._links.name

    async def call(
        self, call: ToolCall, on_progress: OnProgress | None = None, asker: Asker | None = None
    ) -> JsonObject:
        """See `Session.call`."""
        assert self.slot is not None, "a call has a slot"
        self.slot.link.post({"call": asdict(call)})
        return await _Conversation(self.slot.link, self.name, asker, self.slot, on_progress).result()

    async def request(self, method: str, params: JsonObject, *, name: str | None = None) -> JsonObject:
        """See `Session.request`."""
        link = await self._links.open("request", self._place, method=method, params=params, name=name)
        try:
            return await _Conversation(link, self.name, None).result()
        finally:
            await link.close()

    @contextmanager
    def about_task(self, task_id: str, asker: Asker, on_news: OnTaskNews) -> Iterator[Callable[[], None]]:
        """See `Session.about_task`."""
        news = _TaskNews(self._links, self._place, task_id, asker, on_news)
        news.keep_up()
        try:
            yield news.keep_up
        finally:
            news.scope.cancel()


class _TaskNews:
    """Listens to what concerns a task, in the background, and again with another worker."""

    def __init__(
        self, links: Links, place: SessionPlace, task_id: str, asker: Asker, on_news: OnTaskNews
    ) -> None:
        self._links, self._place, self._task_id = links, place, task_id
        self._asker, self._on_news = asker, on_news
        self._link: WorkerLink | None = None
        self._listens = False
        self.scope = anyio.CancelScope()

    def keep_up(self) -> None:
        """Listen on the latest connection of the server."""
        if not self._listens:
            self._listens = True
            self._links.in_background(self._listen)
        elif self._link is not None:
            self._link.post({"keep_up": True})

    async def _listen(self) -> None:
        with self.scope:
            try:
                self._link = link = await self._links.open("task", self._place, task_id=self._task_id)
                try:
                    conversation = _Conversation(link, self._links.name, self._asker, on_news=self._on_news)
                    await conversation.result()
                finally:
                    await link.close()
            except BridgeError:  # the poll of the task, which goes on, says what is wrong
                pass
        self._link, self._listens = None, False


class PassedQueue:
    """The queue of some callers, in the worker that runs the server."""

    def __init__(self, links: Links, place: SessionPlace) -> None:
        self._links = links
        self._place = place
        self.session = PassedSession(links, place)

    @asynccontextmanager
    async def slot(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld = lambda _: None
    ) -> AsyncIterator[PassedSlot]:
        """See `CallQueue.slot`."""
        link, number = await self._in_turn(caller, within_seconds, on_held)
        try:
            place = SessionPlace(self._place.principal, self._place.context_id, number)
            session = PassedSession(self._links, place)
            session.slot = PassedSlot(link, session)
            yield session.slot
        finally:
            await link.close()

    async def _in_turn(
        self, caller: Claimant, within_seconds: float, on_held: OnHeld
    ) -> tuple[WorkerLink, int]:
        """The link of a call that has a slot, and the number of the session that the slot is of.

        When the holder dies before that, nothing was sent, and the call waits at the next holder.
        """
        wait = None if within_seconds == math.inf else within_seconds
        while True:
            link = await self._links.open("call", self._place, caller=asdict(caller), within_seconds=wait)
            try:
                return link, await self._number(link, on_held)
            except LinkEndedError:
                await link.close()
            except BaseException:
                await link.close()
                raise

    async def _number(self, link: WorkerLink, on_held: OnHeld) -> int:
        """The number of the session that has a free slot, once there is one."""
        while True:
            frame: Mapping[str, Any] = await link.receive()
            if (fault := fault_in(frame)) is not None:
                raise fault
            if "slot" in frame:
                number: int = frame["slot"]
                return number
            on_held(hold_in(frame))


class _Conversation:
    """What is said about one call or task, until there is a result. Used once."""

    def __init__(
        self,
        link: WorkerLink,
        name: str,
        asker: Asker | None,
        slot: PassedSlot | None = None,
        on_progress: OnProgress | None = None,
        on_news: OnTaskNews | None = None,
    ) -> None:
        self._link, self._name = link, name
        self._asker, self._slot = asker, slot
        self._on_progress, self._on_news = on_progress, on_news
        self._asked: dict[str, anyio.CancelScope] = {}
        self._outcome: JsonObject | BridgeError | None = None

    async def result(self) -> JsonObject:
        """The result.

        Raises:
            BridgeError: as the other worker says.
            ServerLostError: the other worker has ended.
        """
        try:
            async with anyio.create_task_group() as asking:
                while self._outcome is None:
                    await self._next(asking)
                asking.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
                self._link.post({"cancel": self._asker is not None and self._asker.is_left})
                await self._link.ended()
            raise
        assert self._outcome is not None
        if isinstance(self._outcome, BridgeError):
            raise self._outcome
        return self._outcome

    async def _next(self, asking: anyio.abc.TaskGroup) -> None:
        """Take one frame."""
        try:
            frame = await self._link.receive()
        except LinkEndedError:
            self._outcome = ServerLostError(_LOST.format(self._name))
            return
        match frame:
            case {"result": dict() as result}:
                self._outcome = result
            case {"progress": dict() as report} if self._on_progress is not None:
                self._on_progress(ProgressReport(**report))
            case {"news": dict() as task} if self._on_news is not None:
                self._on_news(task)
            case {"ask": str() as name, "questions": dict() as questions}:
                self._asked[name] = anyio.CancelScope()
                asking.start_soon(self._ask, name, questions)
            case {"unask": str() as name} if name in self._asked:
                self._asked[name].cancel()
            case _:
                self._outcome = fault_in(frame)
                self._tell(frame)

    def _tell(self, frame: JsonObject) -> None:
        """Tell the call what concerns its slot and its questions."""
        match frame:
            case {"withdraw": str() as key} if self._asker is not None:
                self._asker.withdraw(key)
            case {"missed": int() as calls} if self._asker is not None:
                self._asker.miss_question(calls)
            case {"contended": float() | int() as seconds} if self._slot is not None:
                self._slot.tell(seconds)
            case {"give_up": True} if self._slot is not None:
                self._slot.give_up()

    async def _ask(self, name: str, questions: Mapping[str, Any]) -> None:
        assert self._asker is not None, "a call without an asker is not asked"
        with self._asked[name]:
            try:
                answers = await self._asker.ask(questions)
            except BridgeError as exc:
                self._link.post({"answer": name, **fault_frame(exc)})
            else:
                self._link.post({"answer": name, "answers": dict(answers)})
        del self._asked[name]
