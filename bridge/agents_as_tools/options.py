"""The options of an MCP server made of agents, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.a2a.client.follow import FollowPace
from bridge.settings import AgentSettings, RunSettings
from bridge.translate.skill_tools import ToolRules


@dataclass(frozen=True, slots=True)
class FaceOptions:
    """The options of one MCP server made of agents."""

    name: str
    agents: AgentSettings
    run: RunSettings
    title: str | None = None
    """Replaces the name of the only agent."""
    instructions: str | None = None
    """Replaces the instructions made from the agents' cards."""
    names_one_agent: bool = True
    """Whether the configuration names a single agent. A catalog counts as several agents, whatever it lists now."""

    @property
    def pace(self) -> FollowPace:
        """How the tasks of its agents are followed."""
        return FollowPace(self.agents.outage_seconds, self.agents.task_limit_bytes)

    @property
    def rules(self) -> ToolRules:
        """How skills become tools."""
        return ToolRules(
            self.agents.granularity,
            always_prefixed=self.agents.prefix == "always",
            found_most=self.agents.found_most,
            skills_most=self.agents.skills_most,
        )
