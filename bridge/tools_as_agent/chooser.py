"""The seam to a model that chooses a skill for a text. The model itself is above this package, and may be absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bridge.a2a.tasks.agent import PlannedWork, Turn
from bridge.identity.callers.principals import Principal
from bridge.translate.message_to_call import SkillCall

if TYPE_CHECKING:  # the options have a chooser, and the skills have options
    from bridge.tools_as_agent.resume_state import AskModel, Decision, ModelStep, ModelWait
    from bridge.tools_as_agent.skills import Skills


@dataclass(frozen=True, slots=True)
class ChoiceRules:
    """What an agent does with the choice of a model."""

    face: str
    """The name of the agent."""
    skills: Callable[[Principal], Skills]
    """The skills that a principal may use now."""
    check: Callable[[SkillCall, Turn, Skills], Decision]
    """Decides on a chosen call of one of these skills as on any other. Raises A2AError if the call cannot be made."""
    plan: Callable[[Decision, Principal], PlannedWork]
    """Plans the work for a decision. Raises A2AError if the principal may not have it done."""


class Chooser(Protocol):
    """Chooses a call for a text that no rule understands."""

    @property
    def notice(self) -> str:
        """A sentence for the card, which says where texts go."""
        ...

    def work(self, asked: AskModel, rules: ChoiceRules) -> PlannedWork:
        """The work that asks a model, then makes the chosen call or asks the client. Nothing is asked before the work
        is called."""
        ...

    def go_on(self, wait: ModelWait, work: PlannedWork, rules: ChoiceRules) -> PlannedWork:
        """The work that continues a call that a model chose, by `work`, and asks the model again with the result."""
        ...


def steps_in_words(steps: Sequence[ModelStep]) -> str:
    """The calls of a model, and whether each failed."""
    return ", ".join(f"{step.skill_id} ({'failed' if step.is_error else 'answered'})" for step in steps)
