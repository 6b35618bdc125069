"""Whose turn it is among the calls of one tool, where the configuration bounds how many there are at a time."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from bridge.errors import BusyError

PlaceT = TypeVar("PlaceT", bound=Hashable)
"""What names a tool."""


class Turns(Generic[PlaceT]):
    """The limiters of several tools. A tool keeps its limiter when the configuration changes, and with it the count
    of the calls that run."""

    def __init__(self) -> None:
        self._limiters: dict[PlaceT, anyio.CapacityLimiter] = {}

    def set(self, bounds: Mapping[PlaceT, int | None]) -> None:
        """How many calls of each tool there may be at a time; None, and what is not named, is not bounded."""
        self._limiters = {
            place: self._limiter(place, most) for place, most in bounds.items() if most is not None
        }

    def of(self, place: PlaceT) -> anyio.CapacityLimiter | None:
        """What bounds the calls of a tool, if anything does."""
        return self._limiters.get(place)

    def _limiter(self, place: PlaceT, most: int) -> anyio.CapacityLimiter:
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
