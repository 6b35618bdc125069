"""Whose turn it is among the calls of one skill, where the configuration bounds how many there are at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from bridge.errors import BusyError
from bridge.translate.skills import Place


@asynccontextmanager
async def skill_turn(
    limiter: anyio.CapacityLimiter | None, skill_id: str, within_seconds: float
) -> AsyncIterator[float]:
    """Wait until the skill may be called; gives the seconds that are left to wait for its server.

    Raises:
        BusyError: it may not be within that time.
    """
    if limiter is None:
        yield within_seconds
        return
    borrower, since = object(), anyio.current_time()
    with anyio.move_on_after(within_seconds) as waiting:
        await limiter.acquire_on_behalf_of(borrower)
    if waiting.cancelled_caught:
        raise BusyError(f"{skill_id} was busy for {within_seconds:g} s, so the call was given up")
    try:
        yield max(within_seconds - (anyio.current_time() - since), 0)
    finally:
        limiter.release_on_behalf_of(borrower)


class SkillTurns:
    """The limiters of an agent's tools. A tool keeps its limiter when the configuration changes, and with it the
    count of the calls that run."""

    def __init__(self) -> None:
        self._limiters: dict[Place, anyio.CapacityLimiter] = {}

    def set(self, concurrency: Mapping[Place, int]) -> None:
        """How many calls of each tool there may be at a time; others are not bounded."""
        self._limiters = {place: self._limiter(place, most) for place, most in concurrency.items()}

    def of(self, place: Place) -> anyio.CapacityLimiter | None:
        """What bounds the calls of a tool, if anything does."""
        return self._limiters.get(place)

    def _limiter(self, place: Place, most: int) -> anyio.CapacityLimiter:
        limiter = self._limiters.get(place)
        if limiter is None:
            return anyio.CapacityLimiter(most)
        limiter.total_tokens = most
        return limiter
