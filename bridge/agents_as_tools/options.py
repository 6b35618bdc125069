"""The options of an MCP server made of agents, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.a2a.client.follow import FollowPace
from bridge.agents_as_tools.push_hints import WebhookOptions
from bridge.translate.skill_tools import ToolRules


@dataclass(frozen=True, slots=True)
class FaceOptions:
    """The options of one MCP server made of agents."""

    name: str
    rules: ToolRules
    follow_up_tools: bool
    answer_within_seconds: float
    """After this time, a call whose agent still works is answered with a handle. (Hosts give up after 60 s.)"""
    task_after_seconds: float
    """After this time, a call becomes an MCP task, for a client that supports tasks."""
    task_poll_seconds: float
    """The poll interval that such a client is asked to use."""
    task_ttl_seconds: int
    """How long an MCP task is valid."""
    outage_seconds: float
    """How long an agent may be out of reach before its tasks are given up."""
    task_limit_bytes: int
    """The most bytes of a task, with its artifacts and messages."""
    skill_in_text: bool
    """Whether the skill is also named in the text of a message, for agents that ignore metadata."""
    context_hint: bool
    """Whether a result says in words how to continue its conversation."""
    answer_tries: int
    """How often the same question is asked in one call before the host gets the question in words."""
    inline_limit_bytes: int
    """A larger part becomes a link to a resource of this MCP server."""
    follow_up_seconds: int
    """How long task_result may wait."""
    unnamed_most: int
    """The most messages that wait although their agents named no task. Beyond that number, the oldest is given up."""
    cancel_seconds: float
    """How long a cancellation may take to reach an agent."""
    webhooks: WebhookOptions
    title: str | None = None
    """Replaces the name of the only agent."""
    instructions: str | None = None
    """Replaces the instructions made from the agents' cards."""

    @property
    def pace(self) -> FollowPace:
        """How the tasks of its agents are followed."""
        return FollowPace(outage_seconds=self.outage_seconds, task_limit_bytes=self.task_limit_bytes)
