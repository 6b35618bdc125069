"""How tasks of one event loop wait for one another: for something that happens again and again, for a turn."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from bridge.errors import BusyError

KeyT = TypeVar("KeyT", bound=Hashable)
"""What names a tool, or something to be done by one task at a time."""


class Signal:
    """Something that happens again and again: who waits for it goes on when it happens the next time.

    Most of the time nobody waits, so there is an event only while somebody does.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: anyio.Event | None = None

    def tell(self) -> None:
        """It happened."""
        if self._next is not None:
            self._next.set()
            self._next = None

    @property
    def next(self) -> anyio.Event:
        """Is set when it happens the next time. To be taken before a look at what may have changed already."""
        if self._next is None:
            self._next = anyio.Event()
        return self._next

    async def wait(self) -> None:
        """Wait until it happens."""
        await self.next.wait()


class ToolLimiters(Generic[KeyT]):
    """The limiters of several tools. A tool keeps its limiter when the configuration changes, and with it the count
    of the calls that run."""

    def __init__(self) -> None:
        self._limiters: dict[KeyT, anyio.CapacityLimiter] = {}

    def set(self, bounds: Mapping[KeyT, int | None]) -> None:
        """How many calls of each tool there may be at a time; None, and what is not named, is not bounded."""
        self._limiters = {
            place: self._limiter(place, most) for place, most in bounds.items() if most is not None
        }

    def of(self, place: KeyT) -> anyio.CapacityLimiter | None:
        """What bounds the calls of a tool, if anything does."""
        return self._limiters.get(place)

    def _limiter(self, place: KeyT, most: int) -> anyio.CapacityLimiter:
        limiter = self._limiters.get(place)
        if limiter is None:
            return anyio.CapacityLimiter(most)
        limiter.total_tokens = most
        return limiter


@asynccontextmanager
async def turn(
    limiter: anyio.CapacityLimiter | None, name: str, within_seconds: float = math.inf
) -> AsyncIterator[float]:
    """Wait for a turn of the tool of that name, and have it as long as this is entered; gives the seconds that are
    left of those.

    Raises:
        BusyError: it does not come within that time.
    """
    if limiter is None:
        yield within_seconds
        return
    borrower, since = object(), anyio.current_time()
    with anyio.move_on_after(within_seconds) as waiting:
        await limiter.acquire_on_behalf_of(borrower)
    if waiting.cancelled_caught:
        raise BusyError(f"{name} was busy for {within_seconds:g} s, so the call was given up")
    try:
        yield max(within_seconds - (anyio.current_time() - since), 0)
    finally:
        limiter.release_on_behalf_of(borrower)


@asynccontextmanager
async def one_at_a_time(busy: dict[KeyT, Signal], key: KeyT) -> AsyncIterator[None]:
    """Wait while another task does the same thing, of that key."""
    while (other := busy.get(key)) is not None:
        await other.wait()
    busy[key] = done = Signal()
    try:
        yield
    finally:
        del busy[key]
        done.tell()
