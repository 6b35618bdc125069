"""Whose turn it is among the calls of one tool, where the configuration bounds how many there are at a time.

A call has its turn from before its message goes out until its host has an answer. What goes on after that (a
task, a handle, a question to come back with) is not counted, since nobody here knows when it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from bridge.agents_as_tools.tools import Place


class Turns:
    """The limiters of a face's tools. A tool keeps its own when the configuration changes, and with it the count
    of the calls that run."""

    def __init__(self) -> None:
        self._most: Mapping[Place, int] = {}
        self._limiters: dict[Place, anyio.CapacityLimiter] = {}

    def set(self, most: Mapping[Place, int]) -> None:
        """How many calls of each tool there may be at a time; others are not bounded."""
        self._most = most
        self._limiters = {place: limiter for place, limiter in self._limiters.items() if place in most}
        for place, limiter in self._limiters.items():
            limiter.total_tokens = most[place]

    def of(self, place: Place) -> anyio.CapacityLimiter | None:
        """What bounds the calls of a tool, if anything does."""
        if place not in self._most:
            return None
        if place not in self._limiters:
            self._limiters[place] = anyio.CapacityLimiter(self._most[place])
        return self._limiters[place]


@asynccontextmanager
async def turn(limiter: anyio.CapacityLimiter | None) -> AsyncIterator[None]:
    """Wait for a turn, and have it as long as this is entered."""
    if limiter is None:
        yield
        return
    borrower = object()
    await limiter.acquire_on_behalf_of(borrower)
    try:
        yield
    finally:
        limiter.release_on_behalf_of(borrower)
