"""Decides which replicas live, from the heartbeats that a replica sees. Pure, without a database or a clock.

A replica counts as dead when its heartbeat has not changed for a lease, or, after its database session has ended, for a
short grace period. The watching replica measures time with its own monotonic clock, and starts again after it lost
sight of the database: right after an outage no replica counts as dead. The clocks of other machines do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.store.postgres.bounds import Lease


@dataclass(slots=True)
class LivenessWatch:
    """The heartbeats of the other replicas, as this replica has seen them."""

    lease: Lease
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """For each epoch: the heartbeat, and the time since which it has not changed."""
    _looked_at: float | None = None

    def interrupted(self) -> None:
        """Start again, because the database was out of reach."""
        self._seen.clear()

    def dead(self, beats: Mapping[int, int], in_session: Collection[int], now: float) -> list[int]:
        """The dead epochs. `beats` has the heartbeats of the others, `in_session` the epochs with a session."""
        if self._looked_at is not None and now - self._looked_at > self.lease.silence_seconds / 2:
            self._seen.clear()  # this process itself stalled
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
