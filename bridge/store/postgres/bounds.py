"""The bounds of a store in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bridge.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class Lease:
    """The times of liveness, in seconds."""

    beat_seconds: float
    """The pause between two beats of a replica, and between two looks at the others."""
    grace_seconds: float
    """How long the beat of a replica may stand still once its session has ended."""
    silence_seconds: float
    """How long it may stand still at all. A look that comes later than half of this counts as a break."""

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The lease in which a replica may be silent for so long. Its beats are so many that a few may be late."""
        return cls(beat_seconds=seconds / 10, grace_seconds=seconds * 0.3, silence_seconds=seconds)


@dataclass(frozen=True, slots=True)
class PostgresBounds:
    """What a store in PostgreSQL may take of the database, of memory, and of time."""

    store: StoreSettings
    lease: Lease

    @classmethod
    def of(cls, store: StoreSettings) -> Self:
        """The bounds that the settings say."""
        return cls(store, Lease.of(store.lease_seconds))
