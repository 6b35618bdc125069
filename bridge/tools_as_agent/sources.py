"""The tool servers behind an agent: what each is called there, and since when it is up or down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bridge.mcp.client.upstream import Upstream
from bridge.source_state import SourceState


@dataclass(frozen=True, slots=True)
class SkillSource:
    """A tool server of an agent."""

    key: str
    """What it is called in tags, and before the ids of skills whose names collide."""
    upstream: Upstream
    call_timeout_seconds: float | None = None
    """How long a call of it may take; None is as the agent's options say."""


class SkillSourceStates:
    """Since when each server has been as it is."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._states: dict[str, SourceState] = {}

    def __iter__(self) -> Iterator[SourceState]:
        """The servers in their order."""
        return iter(tuple(self._states.values()))

    def look(self, sources: Iterable[SkillSource]) -> None:
        """Take over how these are now."""
        self._states = {source.key: self._state_of(source) for source in sources}

    def _state_of(self, source: SkillSource) -> SourceState:
        down, now_ms = source.upstream.down, self._now_ms()
        return self._states.get(source.key, SourceState(source.key, down, now_ms)).then(down, now_ms)
