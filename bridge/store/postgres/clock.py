"""The clock that replicas share: the database's clock, as an offset from this machine's clock.

Listings order tasks by times of several replicas, and the clocks of their machines may be an hour apart. So at each
heartbeat a replica measures the offset of the database's clock, and uses that clock for its times. The offset affects
only the times shown and the age at which tasks are evicted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


def machine_ms() -> int:
    """The time of this machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class ClockOffset:
    """The offset to add to this machine's clock, from the measurements so far."""

    milliseconds: int | None = None

    def measured(self, before_ms: int, database_ms: int, after_ms: int) -> None:
        """Add a measurement: the database's time, and this machine's time before and after it.

        The measurement bounds the offset. The offset changes only if it lies outside these bounds, so that a late
        answer does not make the clock jump.
        """
        least, most = database_ms - after_ms, database_ms - before_ms
        known = (least + most) // 2 if self.milliseconds is None else self.milliseconds
        self.milliseconds = min(max(known, least), most)
