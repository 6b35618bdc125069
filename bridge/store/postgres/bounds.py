"""The bounds of a store in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bridge.settings import StoreSettings


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
