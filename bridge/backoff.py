"""The pauses of a loop that tries again: exponential backoff with a bound and jitter.

Jitter shortens each pause at random, so that clients which lost the same peer together do not return to it together.
Jitter never lengthens a pause: the longest pause of the configuration is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

JITTER: Final = 0.2
"""The share of a pause that jitter may take away."""
_CHANCE: Final = Random()  # noqa: S311 - no secret is made of it
"""One generator for all loops. To make one is slower than all other work of a loop that never has to pause."""


@dataclass(slots=True)
class Backoff:
    """The pauses of one loop."""

    first_seconds: float
    most_seconds: float
    factor: float = 2.0
    """Each pause is this many times as long as the last."""
    jitter: float = JITTER
    """The share of each pause that jitter may take away, from 0 to 1."""
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
        """Start again from the first pause: an attempt has succeeded."""
        self._seconds = min(self.first_seconds, self.most_seconds)
