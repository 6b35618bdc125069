"""How a tool server or an agent that something is made of is: up or down, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SourceState:
    """How it is."""

    key: str
    down: str | None
    """Why it cannot be called, in words; None while it can."""
    since_ms: int
    """When it became so, or was first known of, in milliseconds since the epoch."""

    def then(self, down: str | None, now_ms: int) -> SourceState:
        """How it is later. Another reason to be down is no change."""
        is_same = (down is None) == (self.down is None)
        return replace(self, down=down, since_ms=self.since_ms if is_same else now_ms)
