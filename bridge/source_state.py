"""The state of a tool server or remote agent behind a face: up or down, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

StateWord = Literal["up", "down", "login needed", "unauthorized"]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one source."""

    key: str
    down: str | None
    """Why the source cannot be called, in words; None while it can."""
    since_ms: int
    """When this state began, or when the source became known, in milliseconds since the epoch."""
    needs_login: bool = False
    """Whether it is down until a person logs in."""
    was_up: bool = False
    """Whether it could be called at any time since it became known."""
    is_unauthorized: bool = False
    """Whether it is down since it does not take the credentials of the bridge."""

    @property
    def word(self) -> StateWord:
        """The state in a word."""
        if self.down is None:
            return "up"
        return "unauthorized" if self.is_unauthorized else "login needed" if self.needs_login else "down"

    def then(
        self, down: str | None, now_ms: int, *, needs_login: bool = False, is_unauthorized: bool = False
    ) -> SourceState:
        """The state at a later time. Another reason to be down does not restart `since_ms`."""
        is_same = (down is None) == (self.down is None)
        since_ms = self.since_ms if is_same else now_ms
        was_up = self.was_up or self.down is None or down is None
        return replace(
            self,
            down=down,
            since_ms=since_ms,
            needs_login=needs_login,
            was_up=was_up,
            is_unauthorized=is_unauthorized,
        )
