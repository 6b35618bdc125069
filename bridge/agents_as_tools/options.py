"""What can be chosen about a face made of agents. Values only; where they come from is no matter here."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.translate.own_tools import MAX_WAIT_SECONDS
from bridge.translate.skill_tools import ToolRules


@dataclass(frozen=True, slots=True)
class FaceOptions:
    """The choices of one MCP server made of agents."""

    name: str = "mcp-a2a"
    title: str | None = None
    """In place of the name of its only agent."""
    instructions: str | None = None
    """In place of what the agents say of themselves."""
    rules: ToolRules = field(default_factory=ToolRules)
    follow_up_tools: bool = True
    answer_within_seconds: float = 50
    """When a call is answered with a handle although its agent is still at work: hosts give up at 60 s."""
    task_after_seconds: float = 2
    """When a call becomes an MCP task, for a client that takes them."""
    task_poll_seconds: float = 1
    """How often such a client is asked to look at it."""
    task_ttl_seconds: int = 86_400
    """How long it may do so."""
    outage_seconds: float = 120
    """How long an agent may be out of reach before its tasks are given up."""
    skill_in_text: bool = False
    """Whether the skill is also named in the text of a message, for agents that ignore metadata."""
    inline_limit_bytes: int = 1_048_576
    """Parts larger than this are given as links to resources of the face."""
    follow_up_seconds: int = MAX_WAIT_SECONDS
    """How long task_result may wait."""
    unnamed_most: int = 64
    """Messages that are kept waiting although their agents named no task for them; beyond, the oldest is given up."""
    cancel_seconds: float = 5
    """How long a cancellation may take to reach an agent."""
