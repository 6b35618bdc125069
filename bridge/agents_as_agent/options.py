"""The options of an agent made of remote agents, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.a2a.client.follow import FollowPace
from bridge.settings import AgentSettings, RunSettings


@dataclass(frozen=True, slots=True)
class ForwardOptions:
    """The options of one agent made of remote agents."""

    face: str
    """Its name in the configuration."""
    agents: AgentSettings
    run: RunSettings
    skill_keys: tuple[str, ...]
    """The keys of metadata that name a skill."""
    name: str | None = None
    """The name on its card; None takes the names of the remote agents."""
    description: str | None = None
    """The description on its card; None takes the descriptions of the remote agents."""
    push: bool = False
    """Whether it sends push notifications."""
    is_local: bool = False
    """Whether its clients are on this machine. Only they get files by private addresses."""

    @property
    def pace(self) -> FollowPace:
        """How the tasks of the remote agents are followed."""
        return FollowPace(self.agents.outage_seconds, self.agents.task_limit_bytes)
