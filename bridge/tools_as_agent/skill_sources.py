"""The tool servers that an agent is made of, and the state of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.mcp.apps import is_for_app, is_for_model
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.client.values import ToolListing
from bridge.mcp.tools import Tool
from bridge.source_state import SourceState
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.overrides import SkillOverride


@dataclass(frozen=True, slots=True)
class SkillSource:
    """A tool server of an agent."""

    key: str
    """The server's name in tags, and the prefix of skill ids that would collide."""
    upstream: Upstream
    call_timeout_seconds: float | None = None
    """The limit for a call of the server's tools; None uses the agent's options."""
    ready: Mapping[str, SkillOverride] = field(default_factory=dict)
    """The ready mapping of the server, by the names of its tools."""


class SkillSourceStates:
    """The state of each server, and since when."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._states: dict[str, SourceState] = {}

    def __iter__(self) -> Iterator[SourceState]:
        """The states in the order of the servers."""
        return iter(tuple(self._states.values()))

    def read(self, sources: Iterable[SkillSource]) -> None:
        """Read the current state of these servers. Others are forgotten."""
        self._states = {source.key: self._state_of(source) for source in sources}

    def _state_of(self, source: SkillSource) -> SourceState:
        down, now_ms = source.upstream.down, self._now_ms()
        before = self._states.get(source.key, SourceState(source.key, down, now_ms))
        upstream = source.upstream
        return before.then(
            down, now_ms, needs_login=upstream.needs_login, is_unauthorized=upstream.is_unauthorized
        )


def served_tools(listing: ToolListing, options: AgentOptions) -> Iterator[Tool]:
    """The tools of a server that an agent serves: its own, and those that stand for prompts or resources. Tools for
    apps only are among them if the agent shares apps."""
    for tool in listing.tools:
        if is_for_model(tool.listed) or (options.shares_apps and is_for_app(tool.listed)):
            yield tool
    for tool in listing.stand_ins if options.stand_ins else ():
        if tool.stands_for is not None and tool.stands_for.kind in options.stand_ins:
            yield tool
