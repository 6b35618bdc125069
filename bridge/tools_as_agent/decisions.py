"""What a turn can come to: values only."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.a2a.model.objects import Part, TaskState
from bridge.jsonvalues import JsonObject
from bridge.tools_as_agent.kept import FollowedTask, ServerQuestion
from bridge.tools_as_agent.skills import Skill


@dataclass(frozen=True, slots=True)
class RunTool:
    """Call this tool."""

    skill: Skill
    arguments: JsonObject
    """As its server gets them."""
    answered: ServerQuestion | None = None
    """What the server asked in the call that this one goes on with, with the answers."""

    @property
    def skill_id(self) -> str:
        """The id of the skill."""
        return self.skill.id

    @property
    def source_key(self) -> str:
        """The key of the server."""
        return self.skill.source_key


@dataclass(frozen=True, slots=True)
class Follow:
    """Go on with a call that the server made a task of."""

    task: FollowedTask

    @property
    def skill_id(self) -> str:
        """The id that the skill had when it was called."""
        return self.task.skill_id

    @property
    def source_key(self) -> str:
        """The key of the server; empty in what was kept when an agent had one only."""
        return self.task.source_key


@dataclass(frozen=True, slots=True)
class RequireInput:
    """Ask the client."""

    state: TaskState
    parts: tuple[Part, ...]
    metadata: JsonObject
    kept: bytes
    """What the answer will be understood by."""


@dataclass(frozen=True, slots=True)
class End:
    """End the task, saying why."""

    state: TaskState
    words: str


Decision = RunTool | Follow | RequireInput | End
