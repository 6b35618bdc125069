"""Which replicas live: what a replica concludes from what it sees of the others. Pure, without a database or a clock.

A replica is taken for dead when its beat has not changed for a lease, or, once its session with the database has ended,
for a short grace. Time is counted on the watcher's own monotonic clock, and only while the watcher itself saw the
database without a break: after an outage nobody is dead. What other machines' clocks say decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.store.postgres.bounds import Lease


@dataclass(slots=True)
class LivenessWatch:
    """What one replica has seen of the others."""

    lease: Lease
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By epoch: the beat, and since when it has not changed."""
    _looked_at: float | None = None

    def interrupted(self) -> None:
        """Note that the database was out of sight."""
        self._seen.clear()

    def dead(self, beats: Mapping[int, int], in_session: Collection[int], now: float) -> list[int]:
        """The epochs that are dead. `beats` has those of the others, `in_session` the epochs with a session."""
        if self._looked_at is not None and now - self._looked_at > self.lease.silence_seconds / 2:
            self._seen.clear()  # this process stood still itself
        self._looked_at = now
        before = self._seen
        self._seen = {
            epoch: before[epoch] if epoch in before and before[epoch][0] == beat else (beat, now)
            for epoch, beat in beats.items()
        }
        lease = self.lease
        return [
            epoch
            for epoch, (_, since) in self._seen.items()
            if now - since > (lease.silence_seconds if epoch in in_session else lease.grace_seconds)
        ]
