"""How long a loop waits before it tries again: longer each time, up to a bound, and not quite as long as others do.

Each pause is shortened by chance, so that many that lost the same peer at once do not come back to it at once.
It is never lengthened: what a configuration calls the longest pause is the longest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

JITTER: Final = 0.2
"""How much of a pause chance may take away."""
_CHANCE: Final = Random()  # noqa: S311 - no secret is made of it
"""One for all: to make another takes longer than all else that a loop does which never pauses, as most calls do."""


@dataclass(slots=True)
class Backoff:
    """The pauses of one loop."""

    first_seconds: float
    most_seconds: float
    factor: float = 2.0
    """By how much each pause is longer than the last."""
    jitter: float = JITTER
    """The share of each pause that chance may take away, from 0 to 1."""
    chance: Random = _CHANCE
    _seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def next(self) -> float:
        """The seconds to wait now."""
        seconds = self._seconds
        self._seconds = min(seconds * self.factor, self.most_seconds)
        return seconds * (1 - self.jitter * self.chance.random())

    def reset(self) -> None:
        """Begin anew: what was tried has succeeded."""
        self._seconds = min(self.first_seconds, self.most_seconds)
