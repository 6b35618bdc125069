"""The bridge's own questions to a client, in words and as data, and how the answers are read. Pure.

Spec: A2A 1.0 section 3.4.3 (input required).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Message, Part
from bridge.errors import echoed
from bridge.mcp.tools import Tool
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import UNKNOWN_ARGUMENT, Problem, describe, form_for
from bridge.translate.extension import ANSWER
from bridge.translate.message_to_call import UnclearCall

WHICH_SKILL: Final = "which-skill"
"""The key of the question which skill is meant."""
ARGUMENTS: Final = "arguments"
"""The key of the question that asks for missing or wrong arguments."""

_MAX_SKILLS: Final = 50
"""The most skills that a question describes in words, or with their schemas. The card has all skills."""

_MAX_NAME: Final = 100
"""The most characters of an unknown name that are repeated."""

_MAX_ECHO: Final = 10_000
"""The most characters of a given argument, as JSON, that are repeated in a question."""


class ElicitAction(StrEnum):
    """A client's reaction to a question."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


def ask_which_skill(unclear: UnclearCall, skills: Mapping[str, Tool]) -> tuple[Part, ...]:
    """The parts that ask for the skill: in words, and as data with the skills and their schemas."""
    lines = [f"- {skill_id}: {_first_line(tool)}" for skill_id, tool in list(skills.items())[:_MAX_SKILLS]]
    if len(skills) > _MAX_SKILLS:
        lines.append(f"- and {len(skills) - _MAX_SKILLS} more, in the agent card")
    how = (
        'Answer with a data part {"skill": "...", "arguments": {...}}, or in text: '
        "skill name, then key=value pairs or a JSON object."
    )
    if not skills:
        lines, how = ["This agent has no skills at the moment."], ""
    described: list[JsonValue] = [
        {"id": skill_id, "description": _first_line(tool), **_schema_if(len(skills) <= _MAX_SKILLS, tool)}
        for skill_id, tool in skills.items()
    ]
    data: JsonObject = {
        "key": WHICH_SKILL,
        "skills": described,
        "example": {"skill": next(iter(skills), ""), "arguments": {}},
    }
    text = "\n".join(filter(None, [_lead(unclear), *lines, how]))
    return Part(text=text), Part(data=data, media_type="application/json")


def arguments(skill_id: str, tool: Tool, known: JsonObject, problems: Sequence[Problem]) -> tuple[Part, ...]:
    """The parts that ask for missing or wrong arguments: in words, and as data with a form."""
    unknown = [problem.name for problem in problems if problem.message == UNKNOWN_ARGUMENT]
    needed = [problem for problem in problems if problem.message != UNKNOWN_ARGUMENT]
    lines = (
        [f"To run {skill_id} I need:", *(f"- {describe(tool, problem)}" for problem in needed)]
        if needed
        else []
    )
    if unknown:
        names = ", ".join(map(echoed, unknown))
        without = "it" if len(unknown) == 1 else "them"
        lines.append(f"{skill_id} has no argument {names}. Your answer runs it without {without}.")
    text = "\n".join(lines)
    data: JsonObject = {
        "key": ARGUMENTS,
        "skill": skill_id,
        "schema": form_for(tool, problems),
        "errors": [{"property": problem.name, "message": problem.message} for problem in problems],
        "arguments": {name: value for name, value in known.items() if len(json.dumps(value)) <= _MAX_ECHO},
    }
    return Part(text=text), Part(data=data, media_type="application/json")


def action_of_message(message: Message, fields: frozenset[str]) -> ElicitAction:
    """Whether a message accepts, declines or cancels. `fields` are the names that the question asked for.

    A refusal is never guessed from words. It has to be in the metadata, or be data of the exact shape `{"action": ...}`
    when no field has that name.
    """
    action = (message.metadata or {}).get(ANSWER)
    if action is None and "action" not in fields:
        for part in message.parts:
            if part.kind == "data" and isinstance(part.data, dict) and set(part.data) == {"action"}:
                action = part.data["action"]
    return (
        ElicitAction(action)
        if isinstance(action, str) and action in set(ElicitAction)
        else ElicitAction.ACCEPT
    )


def _lead(unclear: UnclearCall) -> str:
    if unclear.several:
        named = ", ".join(skill_id[:_MAX_NAME] for skill_id in unclear.several[:_MAX_SKILLS])
        return f"The message asks for more than one call ({named}). Which one do you mean?"
    if unclear.named is not None:
        return f"There is no skill {unclear.named[:_MAX_NAME]!r}."
    return "Which skill do you mean?"


def _schema_if(few: bool, tool: Tool) -> JsonObject:
    return {"inputSchema": tool.input_schema} if few else {}


def _first_line(tool: Tool) -> str:
    text = tool.text("description") or tool.text("title") or tool.name
    return text.strip().partition("\n")[0][:200]
