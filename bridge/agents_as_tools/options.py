"""What can be chosen about a face made of agents. Values only; where they come from is no matter here."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.a2a.client.follow import FollowPace
from bridge.translate.skill_tools import ToolRules


@dataclass(frozen=True, slots=True)
class FaceOptions:
    """The choices of one MCP server made of agents."""

    name: str
    rules: ToolRules
    follow_up_tools: bool
    answer_within_seconds: float
    """When a call is answered with a handle although its agent is still at work: hosts give up at 60 s."""
    task_after_seconds: float
    """When a call becomes an MCP task, for a client that takes them."""
    task_poll_seconds: float
    """How often such a client is asked to look at it."""
    task_ttl_seconds: int
    """How long it may do so."""
    outage_seconds: float
    """How long an agent may be out of reach before its tasks are given up."""
    task_limit_bytes: int
    """How much a task may hold, with all that its agent gave and said."""
    skill_in_text: bool
    """Whether the skill is also named in the text of a message, for agents that ignore metadata."""
    inline_limit_bytes: int
    """Parts larger than this are given as links to resources of the face."""
    follow_up_seconds: int
    """How long task_result may wait."""
    unnamed_most: int
    """Messages that are kept waiting although their agents named no task for them; beyond, the oldest is given up."""
    cancel_seconds: float
    """How long a cancellation may take to reach an agent."""
    title: str | None = None
    """In place of the name of its only agent."""
    instructions: str | None = None
    """In place of what the agents say of themselves."""

    @property
    def pace(self) -> FollowPace:
        """How the tasks of its agents are followed."""
        return FollowPace(outage_seconds=self.outage_seconds, task_limit_bytes=self.task_limit_bytes)
