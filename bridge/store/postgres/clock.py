"""The one clock that replicas share: the database's, as a difference to this machine's own.

Lists are ordered by the times of replicas whose machines may be an hour apart. So each replica measures how far its
clock is from the database's at each beat, and counts by that one. The difference decides nothing but what is shown and
how old is too old.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


def machine_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class ClockOffset:
    """What is to be added to this machine's clock, as it was measured so far."""

    milliseconds: int | None = None

    def measured(self, before_ms: int, database_ms: int, after_ms: int) -> None:
        """Take in what the database's clock said between two looks at this machine's.

        The difference lies between two bounds. It stays as it is as long as it lies there, so that an answer that was
        late does not make the clock jump.
        """
        least, most = database_ms - after_ms, database_ms - before_ms
        known = (least + most) // 2 if self.milliseconds is None else self.milliseconds
        self.milliseconds = min(max(known, least), most)
