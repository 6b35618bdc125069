"""The bounds of a store in PostgreSQL, and which replicas live within their lease."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from bridge.settings import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class Lease:
    """The times that decide whether a replica lives."""

    beat_seconds: float
    """The pause between two heartbeats of a replica. At each heartbeat it also checks the other replicas."""
    grace_seconds: float
    """How long a replica may send no heartbeat after its database session has ended."""
    silence_seconds: float
    """How long a replica with a session may send no heartbeat. If more than half of this time lies between two checks,
    the checking replica itself stalled, and restarts the count."""

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The lease of a replica that may be silent for `seconds`. A few of its heartbeats may be late."""
        return cls(beat_seconds=seconds / 10, grace_seconds=seconds * 0.3, silence_seconds=seconds)


@dataclass(frozen=True, slots=True)
class PostgresBounds:
    """The bounds of a store in PostgreSQL: connections, memory and times."""

    store: StoreSettings
    lease: Lease

    @classmethod
    def of(cls, store: StoreSettings) -> Self:
        """The bounds from the settings."""
        return cls(store, Lease.of(store.lease_seconds))


@dataclass(slots=True)
class LivenessWatch:
    """Decides which other replicas live, from the heartbeats that this replica sees. Pure: no database, no clock.

    A replica counts as dead when its heartbeat has not changed for a lease, or, after its database session has ended,
    for a short grace period. The watching replica measures time with its own monotonic clock, and starts again after it
    lost sight of the database: right after an outage no replica counts as dead. The clocks of other machines do not
    matter.
    """

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
