"""Waits in an event loop: for a recurring signal, for a slot, for another task with the same key, or before a retry."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Final, Generic, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from bridge.errors import BusyError

ResultT = TypeVar("ResultT")
WaiterT = TypeVar("WaiterT")
KeyT = TypeVar("KeyT", bound=Hashable)
"""Names a tool, or work that only one task at a time may do."""

JITTER: Final = 0.2
"""The fraction of a pause that jitter may remove."""
_CHANCE: Final = Random()  # noqa: S311 - no secret is made from it
"""The generator for all loops. Making a generator would be the slowest part of a loop that never pauses."""


class Signal:
    """An event that recurs: each `notify` wakes the tasks that wait at that moment.

    Usually no task waits, so an event exists only while a task does.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: asyncio.Event | None = None

    def notify(self) -> None:
        """Wake the tasks that wait."""
        if self._next is not None:
            self._next.set()
            self._next = None

    @property
    def next(self) -> asyncio.Event:
        """The event that the next `notify` sets. Take it before you read the state that may change."""
        if self._next is None:
            self._next = asyncio.Event()
        return self._next

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self.next.wait()


class WaitingLine(Generic[WaiterT]):
    """Waiters for the same kind of event, the longest wait first, with one timer for all of them. After `seconds` a
    waiter is removed and passed to `on_end`."""

    def __init__(self, seconds: float, on_end: Callable[[WaiterT], None], early_seconds: float = 0.0) -> None:
        """A waiter may be passed on `early_seconds` too early, so that one turn of the event loop serves several."""
        self._seconds = seconds
        self._early_seconds = early_seconds
        self._on_end = on_end
        self._since: dict[WaiterT, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[WaiterT]:
        return iter(self._since)

    def __contains__(self, waiter: WaiterT) -> bool:
        return waiter in self._since

    def add(self, waiter: WaiterT) -> None:
        """Add a waiter to the end of the line. Its wait begins now, even if it waits already."""
        loop = asyncio.get_running_loop()
        self._since.pop(waiter, None)
        self._since[waiter] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire, loop)

    def discard(self, waiter: WaiterT) -> None:
        """End the wait of a waiter if it waits."""
        self._since.pop(waiter, None)

    def longest(self) -> WaiterT | None:
        """The waiter that has waited longest; None if none waits."""
        return next(iter(self._since), None)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        while (first := self.longest()) is not None:
            left = self._since[first] + self._seconds - now
            if left > self._early_seconds:
                self._timer = loop.call_later(left, self._expire, loop)
                return
            del self._since[first]
            self._on_end(first)


class SlowWork(Exception):
    """Pure work has used up its time on the loop. `finish` does the rest in a worker thread.

    An async caller catches this error, runs `finish` in a worker, and calls the same function again, which finds the
    result. So a function that may raise this error must change nothing before it raises.
    """

    def __init__(self, finish: Callable[[], None], forget: Callable[[], object]) -> None:
        super().__init__("this takes too long for the event loop")
        self.finish = finish
        """Does the work, in bounded time, and remembers its result."""
        self.forget = forget
        """Forgets the result."""


SLOW_MOST: Final = 30
"""How many times one call may continue in a worker."""
_TURN_SECONDS: Final = 10.0
"""How long a call waits for the worker."""
_worker: Final = RunVar[anyio.CapacityLimiter]("the worker for slow work")
"""One worker per loop: several workers together would keep the interpreter lock from the loop."""


async def with_slow_work(action: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Call `action`, and do its slow work in a worker.

    Raises:
        BusyError: the worker was busy with other calls, or the call has too much slow work.
    """
    forgotten: list[Callable[[], object]] = []
    try:
        while True:
            try:
                return await action()
            except SlowWork as exc:
                if len(forgotten) == SLOW_MOST:
                    raise BusyError("this would take too long to check") from exc
                forgotten.append(exc.forget)
                await _in_worker(exc.finish)
    finally:
        for forget in forgotten:
            forget()


async def _in_worker(finish: Callable[[], None]) -> None:
    try:
        limiter = _worker.get()
    except LookupError:
        _worker.set(limiter := anyio.CapacityLimiter(1))
    holder = object()
    with anyio.move_on_after(_TURN_SECONDS) as waiting:
        await limiter.acquire_on_behalf_of(holder)
    if waiting.cancelled_caught:
        raise BusyError(f"too many checks are running, so this was given up after {_TURN_SECONDS:g} s")
    try:
        await anyio.to_thread.run_sync(finish)
    finally:
        limiter.release_on_behalf_of(holder)


async def done_slowly(work: Callable[[], ResultT]) -> ResultT:
    """Do what `with_slow_work` does, for a function that is not async."""

    async def action() -> ResultT:
        return work()

    return await with_slow_work(action)


def done_at_once(work: Callable[[], ResultT]) -> ResultT:
    """Do work in this thread, with its slow parts, too. Use this only in a thread for which no other work waits."""
    forgotten: list[Callable[[], object]] = []
    try:
        while True:
            try:
                return work()
            except SlowWork as exc:
                forgotten.append(exc.forget)
                exc.finish()
    finally:
        for forget in forgotten:
            forget()


@contextmanager
def border(logger: logging.Logger, followed: str) -> Iterator[None]:
    """A context for a step of a task that follows a peer: an unexpected error is logged, and the task continues.

    Data from a peer must never end a task group, which would end the tasks for all other peers, and the process. Each
    step handles the errors that it expects; this catches the rest.
    """
    try:
        yield
    except Exception:
        logger.exception(
            "an unexpected error while following %s; the bridge continues to follow it", followed
        )


class ToolLimiters(Generic[KeyT]):
    """The limiters of several tools. When the configuration changes, a tool keeps its limiter, and so the count of its
    running calls."""

    def __init__(self) -> None:
        self._limiters: dict[KeyT, anyio.CapacityLimiter] = {}

    def set(self, bounds: Mapping[KeyT, int | None]) -> None:
        """Set the number of calls of each tool that may run at a time. A tool with None or without an entry has no
        bound."""
        self._limiters = {
            tool: self._limiter(tool, most) for tool, most in bounds.items() if most is not None
        }

    def of(self, tool: KeyT) -> anyio.CapacityLimiter | None:
        """The limiter of a tool; None if its calls have no bound."""
        return self._limiters.get(tool)

    def waiting(self, peer_of: Callable[[KeyT], str]) -> Counter[str]:
        """The number of calls that wait for a slot of a tool, by peer, for the peers with a bounded tool."""
        waiting: Counter[str] = Counter()
        for tool, limiter in self._limiters.items():
            waiting[peer_of(tool)] += limiter.statistics().tasks_waiting
        return waiting

    def _limiter(self, tool: KeyT, most: int) -> anyio.CapacityLimiter:
        limiter = self._limiters.get(tool)
        if limiter is None:
            return anyio.CapacityLimiter(most)
        limiter.total_tokens = most
        return limiter


def turn(
    limiter: anyio.CapacityLimiter | None,
    name: str,
    within_seconds: float = math.inf,
    waited: Callable[[float], None] = lambda _: None,
) -> AbstractAsyncContextManager[float]:
    """Wait for a slot of the limiter, and hold it while the context is open. Yields the rest of `within_seconds`.

    `name` is the tool's name for the message. `waited` gets the seconds of the wait, even if no slot was free. Without
    a limiter there is no wait, and `waited` is not called.

    Raises:
        BusyError: no slot was free in time.
    """
    if limiter is None:
        return nullcontext(within_seconds)
    return _slot_of(limiter, name, within_seconds, waited)


@asynccontextmanager
async def _slot_of(
    limiter: anyio.CapacityLimiter, name: str, within_seconds: float, waited: Callable[[float], None]
) -> AsyncIterator[float]:
    borrower, since = object(), anyio.current_time()
    try:
        with anyio.move_on_after(within_seconds) as waiting:
            await limiter.acquire_on_behalf_of(borrower)
    finally:
        waited(anyio.current_time() - since)
    if waiting.cancelled_caught:
        raise BusyError(f"{name} was busy for {within_seconds:g} s, so the call was given up")
    try:
        yield max(within_seconds - (anyio.current_time() - since), 0)
    finally:
        limiter.release_on_behalf_of(borrower)


class one_at_a_time(Generic[KeyT]):
    """Wait while another task holds the same key; then hold it while the context is open."""

    __slots__ = ("_busy", "_key")

    def __init__(self, busy: dict[KeyT, Signal], key: KeyT) -> None:
        self._busy = busy
        self._key = key

    async def __aenter__(self) -> None:
        while (other := self._busy.get(self._key)) is not None:
            await other.wait()
        self._busy[self._key] = Signal()

    async def __aexit__(self, *_: object) -> None:
        self._busy.pop(self._key).notify()


@dataclass(slots=True)
class Backoff:
    """The pauses between retries: exponential backoff with a bound and jitter.

    Jitter shortens each pause at random, so that clients that lost the same peer together do not return together. It
    never lengthens a pause, because the configured longest pause is a bound.
    """

    first_seconds: float
    most_seconds: float
    factor: float = 2.0
    """The ratio of each pause to the one before."""
    jitter: float = JITTER
    """The fraction of each pause that jitter may remove, from 0 to 1."""
    chance: Random = _CHANCE
    _seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def next(self) -> float:
        """Return the next pause in seconds, and lengthen the one after it."""
        seconds = self._seconds
        self._seconds = min(seconds * self.factor, self.most_seconds)
        return seconds * (1 - self.jitter * self.chance.random())

    def reset(self) -> None:
        """Start again from the first pause, after an attempt has succeeded."""
        self._seconds = min(self.first_seconds, self.most_seconds)
