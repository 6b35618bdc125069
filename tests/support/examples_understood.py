"""Sends each example on each card that an agent of tools makes back to this agent, in the whole suite.

The agent only decides what each example means, so nothing runs. An example that is not understood is noted as a
mistake of the bridge, as in `validated_again.py`, also by programs that the fork server starts. Examples that the
operator wrote are left out: `check` warns of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from bridge.a2a.model.errors import A2AError
from bridge.a2a.model.objects import AgentCard, Message, Part, Role, SendMessageConfiguration, TaskState
from bridge.a2a.tasks.agent import Turn
from bridge.identity.callers.principals import LOCAL
from bridge.tools_as_agent.agent import ToolsAgent
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.resume_state import RequireInput, RunTool
from bridge.tools_as_agent.route import decide
from bridge.tools_as_agent.skills import Skills
from bridge.translate.extensions.bridge import SKILL

_NOTHING_ASKED: Final = SendMessageConfiguration()


def install(note: Callable[[str], None]) -> None:
    """Check the examples of every card from now on; `note` takes what is wrong."""
    make_card = ToolsAgent._make_card

    def made_and_checked(self: ToolsAgent, base_url: str, skills: Skills, *more: Any) -> AgentCard:
        card = make_card(self, base_url, skills, *more)
        callers = self.skill_set if skills is self.skill_set.public else skills
        for fault in misunderstood(card, callers, self.options):
            note(fault)
        return card

    ToolsAgent._make_card = made_and_checked  # type: ignore[method-assign]


def misunderstood(card: AgentCard, skills: Skills, options: AgentOptions) -> Iterator[str]:
    """The examples of a card that the agent does not understand as a call of their skill."""
    for shown in card.skills:
        skill = skills.by_id.get(shown.id)
        if skill is None or skill.override.examples is not None:
            continue
        for example in shown.examples or ():
            if (meant := meaning(example, skills, options)) != shown.id:
                yield f"the example {example!r} of {shown.id} on the card of {card.name!r} means {meant}"


def meaning(text: str, skills: Skills, options: AgentOptions) -> str:
    """The id of the skill that a text runs at once or after a yes, or what happens instead."""
    message = Message(message_id="example", role=Role.USER, parts=(Part(text=text),))
    try:
        decision = decide(Turn(LOCAL, message, _NOTHING_ASKED, {}, frozenset()), skills, options)
    except A2AError as exc:
        return f"the error {exc}"
    match decision:
        case RunTool():
            return decision.skill.id
        case RequireInput(state=TaskState.AUTH_REQUIRED):
            return str((decision.metadata or {})[SKILL])
        case _:
            return repr(decision)[:500]
