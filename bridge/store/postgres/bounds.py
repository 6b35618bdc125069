"""The bounds of a store in PostgreSQL. Their values come from the profile of the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


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

    lease: Lease
    connections: int
    """How many connections reads, commands and hints share. Three more are kept: of the writer, the beat, and the
    listener."""
    statement_seconds: float
    """How long one step may wait for the database. After that its connection is given up."""
    patience_seconds: float
    """How long changes wait for a database that is away."""
    waiting_bytes: int
    """How much waits for the database, at the most."""
    poll_seconds: float
    """How long an event stays unread whose hint was lost."""
    events_seconds: float
    """How long an event is kept at least. It is kept for as long as a commit of it may be in doubt, too."""
    close_seconds: float
    """How long closing waits for the last changes to be stored."""
