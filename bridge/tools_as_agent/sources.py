"""The tool servers behind an agent: what each is called there, and since when it is up or down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bridge.mcp.client.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Source:
    """A tool server of an agent."""

    key: str
    """What it is called in tags, and before the ids of skills whose names collide."""
    upstream: Upstream
    call_timeout_seconds: float | None = None
    """How long a call of it may take; None is as the agent's options say."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """How a tool server is."""

    key: str
    down: str | None
    """Why it cannot be called, in words; None while it can."""
    since_ms: int
    """When it became so, or was first looked at, in milliseconds since the epoch."""


class SourceBook:
    """Since when each server has been as it is."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._states: dict[str, SourceState] = {}

    def __iter__(self) -> Iterator[SourceState]:
        """The servers in their order."""
        return iter(tuple(self._states.values()))

    def look(self, sources: Iterable[Source]) -> None:
        """Take over how these are now."""
        self._states = {source.key: self._state_of(source) for source in sources}

    def _state_of(self, source: Source) -> SourceState:
        before, down = self._states.get(source.key), source.upstream.down
        if before is not None and (before.down is None) == (down is None):
            return SourceState(source.key, down, before.since_ms)
        return SourceState(source.key, down, self._now_ms())
